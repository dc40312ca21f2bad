"""The map of a dataset's vectors, of which a rectangle is a list of documents."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from dagster_project.exceptions import CommandError
from headrace_features.explore.answers import answer, explorer_of, principal_of
from headrace_features.explore.row_query import RowQuery
from headrace_features.explore.vector_map import PREFIX
from spark_jobs.exceptions import nearest

_DRAWN = 3000  # documents; ids are hashes, so the first are a random sample
_WIDE, _TALL = 1000, 600
_POINT = Markup(
    '<a href="/documents/{0}" tabindex="-1"><title>{1}</title><circle class="{2}" cx="{3:.1f}" cy="{4:.1f}" r="4"/></a>'
)


def vector_map(request: Request) -> Response:
    """Points of a sample of the documents; `map` is the rectangle that was chosen."""
    explorer, principal, dataset = explorer_of(request), principal_of(request), request.path_params["dataset"]
    explorer.reads(principal, dataset)
    tables = [name for _, name in explorer.catalogue.list_tables(dataset) if name.startswith(PREFIX)]
    table = request.query_params.get("table") or next(iter(tables), "")
    if table not in tables:
        raise CommandError(
            f"{dataset} has no {table or 'vectors'}{nearest(table, tables)}; a map needs the scorer `vectors`"
        )
    low_x, high_x, low_y, high_y, count, sample = _read(explorer.vector_map(dataset, table))
    index = explorer.index(dataset)
    index.wait(5 * explorer.patience)
    rows = {row["doc_id"]: row for row in index.rows(RowQuery(ids=tuple(doc_id for doc_id, *_ in sample)), len(sample))}
    points = []
    for doc_id, x, y in sample:
        if (row := rows.get(doc_id)) is not None:
            kind = {1: "kept", 0: "rejected"}.get(row["kept"], "all")
            across, up = _WIDE * (x - low_x) / ((high_x - low_x) or 1), _TALL * (high_y - y) / ((high_y - low_y) or 1)
            points.append(_POINT.format(doc_id, row["path"], kind, across, up))
    values: dict[str, Any] = {
        "dataset": dataset, "tables": tables, "table": table, "count": count, "drawn": len(points),
        "bounds": [low_x, high_x, low_y, high_y], "_points": Markup("").join(points), "_wide": _WIDE, "_tall": _TALL,
    }  # fmt: skip
    return answer(request, "map.html", values)


def _read(file: Path) -> tuple[Any, ...]:
    """The bounds of a map, its documents, and a sample of them: doc_id, x, y."""
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as opened:
        bounds = opened.execute("SELECT min(x), max(x), min(y), max(y), count(*) FROM docs").fetchone()
        sample = opened.execute(
            "SELECT lower(hex(doc_id)), x, y FROM docs ORDER BY doc_id LIMIT ?", [_DRAWN]
        ).fetchall()
    return *bounds, sample


PATHS = {"/datasets/{dataset}/map": vector_map}
