"""The explorer's pages of compositions: how often a blend reads documents and their near-duplicates."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from blender_service.recently_used import RecentlyUsed
from dagster_project.exceptions import CommandError
from dagster_project.pages import PageAnswer, PageRequest, Pages
from headrace.tables.catalogue import load_table
from headrace_features.composition.repeats_tables import blend_repeats

_MOST_WINDOWS: Final = 4_000_000  # seconds, and some 2 GB while they are counted
_COUNTED: Final = RecentlyUsed[tuple[str, int | None, tuple[int | None, ...]], list[dict[str, Any]]](64)


def blends(request: PageRequest) -> PageAnswer:
    """The blends of tables that the reader may see, by name."""
    from blender_service.server.blender import Blender

    blender = Blender(request.catalogue).within(lambda table: request.may_read(table.partition(".")[0]))
    there = set(blender.list_ids())
    named = {blend_id: names for blend_id, names in blender.names().items() if blend_id in there}
    return PageAnswer("counted_blends.html", {"blends": dict(sorted(named.items(), key=lambda each: each[1]))})


def repeats(request: PageRequest) -> PageAnswer:
    """The histogram of a blend's documents by reads before `at`: a piece of its page that comes late."""
    from blender_service.server.blender import Blender

    catalogue, at = request.catalogue, request.query.get("at", "")
    blender = Blender(catalogue).within(lambda table: request.may_read(table.partition(".")[0]))
    blend_id = blender.resolve(request.parts["blend"])
    pins = blender.head(blend_id).pins()
    tables = sorted({pin.table for pin in pins.values()})
    request.require(*tables)
    if (windows := sum(pin.rows or 0 for pin in pins.values())) > _MOST_WINDOWS:
        raise CommandError(f"reads of {windows:,} windows take a while: headrace blend repeats {blend_id[:12]}")
    if at and (not at.isdecimal() or len(at) > 18):
        raise CommandError(f"at={at[:40]} is no whole number; give 0 or more")
    offset = int(at) if at else blender.head(blend_id).end
    heads = tuple(table.metadata.current_snapshot_id for name in tables if (table := load_table(catalogue, name)))
    lines = _COUNTED.find(
        (blend_id, offset, heads), lambda: blend_repeats(catalogue, blender, blend_id, offset).histogram()
    )
    total = sum(line["documents_in_part"] for line in lines) or 1
    shares = [line["documents_in_part"] / total for line in lines]
    return PageAnswer("repeats.html", {"blend": blend_id, "at": offset, "histogram": lines, "_shares": shares})


PAGES: Final = Pages({"/repeats": blends, "/repeats/{blend}": repeats}, Path(__file__).parent / "templates")
