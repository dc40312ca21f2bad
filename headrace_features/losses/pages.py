"""The explorer's pages of losses: runs, documents of one by loss and its fall, their groups, segments of a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from dagster_project.exceptions import CommandError
from dagster_project.inspect.lake.training_runs import open_register
from dagster_project.pages import PageAnswer, PageRequest, Pages
from headrace_features.losses.document_losses import ORDERS
from headrace_features.losses.reading import GROUPS, groups, segments_of_step, with_paths, worst

_PAGE: Final = 50
_MOST_ROWS: Final = 1 << 20  # of a step


def runs(request: PageRequest) -> PageAnswer:
    """The runs of blends that the reader may see."""
    from blender_service.server.blender import Blender

    blender = Blender(request.catalogue).within(lambda table: request.may_read(table.partition(".")[0]))
    blends, register = set(blender.list_ids()), open_register(request.catalogue)
    names = [run for run in register.names() if all(read.blend_id in blends for read in register.reads(run))]
    return PageAnswer("runs.html", {"runs": names})


def run(request: PageRequest) -> PageAnswer:
    """Documents of a run by `sort`."""
    name, sort = request.parts["run"], request.query.get("sort", ORDERS[0])
    lines = _named(request, worst(request.catalogue, name, sort, _PAGE, request.may_read))
    return PageAnswer("losses.html", {"run": name, "sort": sort, "documents": lines, "_orders": ORDERS})


def grouped(request: PageRequest) -> PageAnswer:
    """Documents of a run together, by source, cell or rule."""
    name, by = request.parts["run"], request.parts["by"]
    lines = groups(request.catalogue, name, by, request.may_read)[:_PAGE]
    return PageAnswer("groups.html", {"run": name, "by": by, "groups": lines, "_groups": GROUPS})


def step(request: PageRequest) -> PageAnswer:
    """The segments of `rows` rows from one on, by loss."""
    name, offset, rows = request.parts["run"], int(request.parts["offset"]), request.query.get("rows", "1")
    if not rows.isdecimal() or not 0 < int(rows) <= _MOST_ROWS:
        raise CommandError(f"rows={rows[:40]} is no number of rows; give 1 to {_MOST_ROWS:,}")
    segments = segments_of_step(request.catalogue, name, offset, int(rows), request.may_read)
    shown = {"run": name, "offset": offset, "rows": int(rows), "segment_count": len(segments)}
    return PageAnswer("step.html", {**shown, "segments": _named(request, segments[:_PAGE])})


def _named(request: PageRequest, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lines with paths, those of tables that the reader is allowed to see."""
    request.require(*sorted({line["table"] for line in lines}))
    return with_paths(request.catalogue, lines)


PAGES: Final = Pages(
    {
        "/losses": runs,
        "/losses/{run}": run,
        "/losses/{run}/at/{offset:int}": step,
        "/losses/{run}/by/{by}": grouped,
    },
    Path(__file__).parent / "templates",
)
