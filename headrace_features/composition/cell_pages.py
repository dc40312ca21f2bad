"""The explorer's pages of cells: a map of two dimensions, two compositions side by side, the documents of a square."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from markupsafe import Markup
from pyiceberg.expressions import In

from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.document_lookup import members_named
from dagster_project.inspect.lake.corpus_facts import find_corpus, namespaces_with
from dagster_project.pages import PageAnswer, PageRequest, Pages
from headrace.tables.catalogue import load_table
from headrace.tables.cells import CELL_COLUMN, Value, cell_label, in_order, parse_choice
from headrace.tables.exceptions import CellsError
from headrace_features.composition.cell_map import (
    OF_BLENDS,
    Square,
    cell_facts,
    dimensions_of,
    numbers_of,
    squares,
    with_reads,
)
from spark_jobs.lake.files.lookups import first_rows
from spark_jobs.packing.cells import CELLS

if TYPE_CHECKING:
    from blender_service.server.blender import Blender

_SHOWN: Final = 50
_SIDE, _LEFT, _TOP = 64, 90, 22  # pixels of a square, of the names beside and above
_RECT: Final = Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}" fill-opacity="{}"/>')
_MOST_SQUARES: Final = 4_000  # of a map; more are a megabyte that nobody can look at


def corpora(request: PageRequest) -> PageAnswer:
    """The corpora with cells, as far as visible to the reader."""
    names = [name for name in namespaces_with(request.catalogue, CELLS.name) if request.may_read(name)]
    return PageAnswer("cell_corpora.html", {"corpora": names})


def corpus(request: PageRequest) -> PageAnswer:
    """The map of a corpus: by dimensions `down` and `across`, of `number`; of a `blend` and another (`beside`)."""
    name, query = request.parts["corpus"], request.query
    request.require(f"{name}.{CELLS.name}")
    facts, blender = cell_facts(request.catalogue, name), _blender(request)
    if not facts:
        raise CommandError(f"{name} has no cells yet; run its asset cell_statistics")
    blends = [query[field] for field in ("blend", "beside") if query.get(field)]
    there = dimensions_of(facts)
    down = query.get("down") or there[-1]
    across = query.get("across") or next((other for other in there if other != down), "")
    number = query.get("number") or ("repeats" if blends else "tokens")
    if number in OF_BLENDS and not blends:
        raise CommandError(f"{number} is of a blend; name one: blend=NAME")
    at = query.get("at", "")
    if at and (not at.isdecimal() or len(at) > 18):
        raise CommandError(f"at={at[:40]} is no whole number; give 0 or more")
    drawn: dict[str, list[Square]] = {}
    for blend in blends or [""]:
        of_map = facts
        if blend:
            blend_id = blender.resolve(blend)
            of_map = with_reads(request.catalogue, blender, facts, name, blend_id, int(at) if at else None)
        drawn[blend] = squares(of_map, down, across if across != down else None, number)
    most = max((square.value or 0.0 for of_map in drawn.values() for square in of_map), default=0.0)
    title = f"{number} by {down} and {across}"
    pictures = {blend: _picture(name, of_map, most, title) for blend, of_map in drawn.items()}
    maps = [
        {"blend": blend, "squares": [square._asdict() for square in of_map], "_picture": pictures[blend]}
        for blend, of_map in drawn.items()
    ]
    shown = {"corpus": name, "down": down, "across": across, "number": number, "maps": maps}
    choices = {"_dimensions": there, "_numbers": numbers_of(facts, bool(blends)), "_names": _names(blender)}
    return PageAnswer("cells.html", {**shown, **choices})


def documents(request: PageRequest) -> PageAnswer:
    """Some documents of the cells of a `choice`."""
    name = request.parts["corpus"]
    request.require(f"{name}.{CELLS.name}")
    table = load_table(request.catalogue, f"{name}.{CELLS.name}")
    try:
        cells = parse_choice(request.query.get("choice", "")).select(cell_facts(request.catalogue, name), name)
    except CellsError as error:
        raise CommandError(str(error)) from error
    if table is None:
        raise CommandError(f"corpus {name} has no cells")
    rows = first_rows(table, ("dataset", "doc_id", CELL_COLUMN), _SHOWN, In(CELL_COLUMN, cells)).to_pylist()
    corpus_facts = find_corpus(request.catalogue, name)
    named = members_named(request.catalogue, corpus_facts, [row["doc_id"] for row in rows])
    for row in rows:
        row |= {field: named.get(row["doc_id"], {}).get(field) for field in ("repository", "path")}
        row["label"] = cell_label(row[CELL_COLUMN])
    return PageAnswer("cell_documents.html", {"corpus": name, "documents": rows, "most": _SHOWN})


def _blender(request: PageRequest) -> Blender:
    from blender_service.server.blender import Blender

    return Blender(request.catalogue).within(lambda table: request.may_read(table.partition(".")[0]))


def _names(blender: Blender) -> list[str]:
    """Names of the blends that the reader may see."""
    there = set(blender.list_ids())
    return sorted(name for blend_id, names in blender.names().items() if blend_id in there for name in names)


def _picture(corpus: str, drawn: Sequence[Square], most: float, title: str) -> Markup:
    """The map as squares, the fuller the larger their number is; each is a link to its documents.

    Raises:
        CommandError: there are too many squares.
    """
    if len(drawn) > _MOST_SQUARES:
        raise CommandError(f"{len(drawn):,} squares cannot be shown; choose dimensions with fewer values")
    downs, acrosses = (list(dict.fromkeys(values)) for values in zip(*[square[:2] for square in drawn], strict=True))
    acrosses = in_order(acrosses)
    parts = [_text(_LEFT + _SIDE * (at + 0.5), _TOP - 6, value, "middle") for at, value in enumerate(acrosses)]
    parts += [_text(_LEFT - 6, _TOP + _SIDE * (at + 0.55), value, "end") for at, value in enumerate(downs)]
    for square in drawn:
        x, y = _LEFT + _SIDE * acrosses.index(square.across), _TOP + _SIDE * downs.index(square.down)
        there = f"/cells/{corpus}/documents?{urlencode({'choice': square.choice})}"
        value = "none" if square.value is None else f"{square.value:,.4g}"
        full = 0.0 if not most or square.value is None else max(0.0, square.value) / most
        said = f"{_said(square.down)}, {_said(square.across)}: {value}"
        rects = Markup("").join(
            _RECT.format(kind, x, y, _SIDE - 2, _SIDE - 2, f"{opacity:.3f}")
            for kind, opacity in (("track", 1.0), ("all", full))
        )
        written = _text(x + _SIDE / 2 - 1, y + _SIDE / 2 + 4, "" if square.value is None else value, "middle")
        link = Markup('<a href="{}" aria-label="{}"><title>{}</title>{}{}</a>')
        parts.append(link.format(there, said, said, rects, written))
    width, height = _LEFT + _SIDE * len(acrosses), _TOP + _SIDE * len(downs)
    return Markup(
        '<svg class="cells" viewBox="0 0 {} {}" width="{}" height="{}" role="group" aria-label="{}">{}</svg>'
    ).format(width, height, width, height, title, Markup("").join(parts))


def _text(x: float, y: float, value: Value, anchor: str) -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}" font-size="11" fill="currentColor">{}</text>').format(
        x, y, anchor, _said(value)[:14]
    )


def _said(value: Value) -> str:
    return "none" if value is None else str(value)


PAGES: Final = Pages(
    {"/cells": corpora, "/cells/{corpus}": corpus, "/cells/{corpus}/documents": documents},
    Path(__file__).parent / "templates",
)
