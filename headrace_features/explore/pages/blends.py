"""Blends: their sources and mix over offsets, and the batch at an offset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from blender_service.blend.describe import ending_lines, source_ends
from blender_service.exceptions import BlenderError
from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.blend_rows import inspect_rows
from dagster_project.inspect.lake.training_runs import has_read, named_reads
from headrace_features.explore.added_pages import address_of
from headrace_features.explore.answers import address, answer, explorer_of, principal_of
from headrace_features.explore.charts import share_bar
from headrace_features.explore.offset_charts import COLOURS, Series, columns, plot
from headrace_features.explore.texts import inline

if TYPE_CHECKING:
    from blender_service.blend.config import BlendConfig
    from blender_service.order.resolved_blend import Head
    from headrace_features.explore.explorer import Explorer

_PARTS: Final = 48  # of a blend's rows that its charts show
_ROWS, MOST_ROWS = 8, 64
_FIRST_CHARACTERS: Final = 240


def blends(request: Request) -> Response:
    """The blends whose tables the reader may see, a hundred a page, by id."""
    blender = explorer_of(request).blender(principal_of(request))
    page = blender.list_page(token=request.query_params.get("after", ""))
    rows: list[dict[str, Any]] = []
    for blend_id in page.blend_ids:
        row: dict[str, Any] = {"blend_id": blend_id, "names": blender.names_of(blend_id), "sources": [], "error": ""}
        try:
            config = blender.config(blend_id)
            row |= {"end": blender.head(blend_id).end, "window_tokens": config.window.window_tokens}
            row |= {"parent": config.parent, "from_offset": config.from_offset}
            row["sources"] = [{"name": source.name, "share": share} for source, share in _shares(config)]
            bars = [(f"c{at % COLOURS}", source["share"]) for at, source in enumerate(row["sources"])]
            row["_bar"] = share_bar(bars, "shares of the sources by weight")
        except BlenderError as error:  # one that is damaged hides no other
            row["error"] = str(error)
        rows.append(row)
    more = address(request.url.path, after=page.next_token) if page.next_token else None
    return answer(request, "blends.html", {"blends": rows, "next": more, "_colours": COLOURS})


def blend(request: Request) -> Response:
    """A blend: what its rows before `at` read, and its mix up to row `to`; both its end, or an epoch, by default."""
    blender, query = explorer_of(request).blender(principal_of(request)), request.query_params
    blend_id = blender.resolve(request.path_params["blend"])
    config, head = blender.config(blend_id), blender.head(blend_id)
    horizon = _offset(query.get("to"), "to") if query.get("to") else _horizon(head)
    horizon = horizon if head.end is None else min(horizon, head.end)
    edges = np.unique(np.linspace(0, horizon, min(_PARTS, max(horizon, 1)) + 1).astype(np.int64)).tolist()
    steps = [blender.describe(blend_id, edge) for edge in edges]
    at = _offset(query.get("at"), "at") if query.get("at") else horizon
    described = blender.describe(blend_id, at)
    names = [source.name for source in described.sources]
    read, expected = (np.array([[getattr(source, field) for source in step.sources] for step in steps], float)
                      for field in ("rows", "expected_rows"))  # fmt: skip
    widths = np.maximum(np.diff(edges), 1)[:, None]
    shares, wanted = np.diff(read, axis=0) / widths, np.diff(expected, axis=0) / widths

    def link(offset: float) -> str:
        return f"/blends/{blend_id}/rows/{min(int(offset), max((head.end or 1 << 62) - 1, 0))}"

    turns = [
        Series(name, f"c{at % COLOURS}", edges, [float(step.sources[at].epochs or 0) for step in steps])
        for at, name in enumerate(names)
    ]
    out = [
        (source.runs_out_at, f"{source.name} runs out")
        for source in described.sources
        if source.runs_out_at is not None
    ]
    weights = {source.name: share for source, share in _shares(config)}
    shown: dict[str, Any] = {
        "blend_id": blend_id, "names": blender.names_of(blend_id), "end": head.end, "seed": config.seed,
        "window_tokens": config.window.window_tokens, "parent": config.parent, "from_offset": config.from_offset,
        "at": at, "tokens": described.tokens, "to": horizon,
        "sources": [{**vars(source), "weight_share": weights.get(source.name)} for source in described.sources],
        "segments": described.segments, "endings": ending_lines(source_ends(config, head), head.end),
        "mix": [{"offset": edge, "rows": row.astype(int).tolist(), "expected_rows": due.tolist()}
                for edge, row, due in zip(edges, read, expected, strict=True)],
        "_mix": columns(edges, shares.tolist(), wanted.tolist(), names, link),
        "_epochs": plot(turns, "epochs over offsets", link, lines_at=[end for end in out if end[0] <= horizon], low=0),
        "_repeats": "" if config.texts else address_of("repeats", blend_id),
        "_colours": COLOURS, "_most_epochs": max((max(turn.y) for turn in turns), default=0.0),
    }  # fmt: skip
    return answer(request, "blend.html", shown)


def batch(request: Request) -> Response:
    """Rows of a blend from an offset on: where each comes from, its documents, their licences, their first words."""
    explorer, principal, query = explorer_of(request), principal_of(request), dict(request.query_params)
    blender = explorer.blender(principal)
    blend_id = blender.resolve(request.path_params["blend"])
    offset, count = request.path_params["offset"], _offset(query.get("rows", str(_ROWS)), "rows")
    if not 1 <= count <= MOST_ROWS:
        raise CommandError(f"rows={count} cannot be shown; give 1 to {MOST_ROWS}")
    head = blender.head(blend_id)
    rows = rows_shown(explorer, principal, blend_id, offset, count)
    names = sorted(head.pins())
    for row in rows:
        row["_colour"] = names.index(row["source"]) % COLOURS
        for segment in row["segments"]:
            segment["first"] = inline(" ".join((segment["text"] or "").split())[:_FIRST_CHARACTERS])
    here = f"/blends/{blend_id}/rows"
    later = offset + len(rows)
    runs = [read.run for read in named_reads(explorer.catalogue) if has_read(read, blend_id, offset)]
    shown = {
        "blend_id": blend_id, "names": blender.names_of(blend_id), "offset": offset, "end": head.end, "rows": rows,
        "runs": list(dict.fromkeys(runs)),
        "next": address(f"{here}/{later}", query) if head.end is None or later < head.end else None,
        "previous": address(f"{here}/{max(0, offset - count)}", query) if offset else None,
    }  # fmt: skip
    return answer(request, "blend_rows.html", shown)


def rows_shown(explorer: Explorer, principal: str, blend_id: str, offset: int, count: int) -> list[dict[str, Any]]:
    """Rows of a blend with their documents, as a principal may see them: texts are None where `hidden` says why."""
    blender = explorer.blender(principal)
    hidden = explorer.reads_packed(principal, *{pin.table for pin in blender.head(blend_id).pins().values()})
    rows = [row.facts() for row in inspect_rows(explorer.catalogue, blender, blend_id, offset, count)]
    for row in rows:
        row["hidden"] = hidden[row["table"]]
        for segment in row["segments"]:
            segment["text"] = None if row["hidden"] else segment["text"]
    return rows


def jump(request: Request) -> Response:
    """The batch at the offset of a form."""
    offset = _offset(request.query_params.get("offset"), "offset")
    return RedirectResponse(f"/blends/{request.path_params['blend']}/rows/{offset}", 303)


def _shares(config: BlendConfig) -> list[tuple[Any, float]]:
    """The sources that a blend's own config has, with their shares by weight."""
    total = sum(source.weight for source in config.sources)
    return [(source, source.weight / total) for source in config.sources]


def _horizon(head: Head) -> int:
    """The end, or where the slowest source of the last weights of a blend without end has gone round once."""
    if head.end is not None:
        return head.end
    last = head.segments[-1]
    rounds = [-(-(part.pin.rows or 0) // part.weight) for part in last.parts]
    return last.start + last.cycle_rows * max(1, *rounds)


def _offset(value: str | None, name: str) -> int:
    text = (value or "").replace(",", "").strip()
    if not text.isdecimal() or len(text) > 18:
        raise CommandError(f"{name}={text[:40] or 'nothing'} is no whole number; give 0 or more")
    return int(text)


PATHS = {
    "/blends": blends,
    "/blends/{blend}": blend,
    "/blends/{blend}/rows": jump,
    "/blends/{blend}/rows/{offset:int}": batch,
}
