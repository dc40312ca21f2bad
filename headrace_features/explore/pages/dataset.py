"""A dataset: what each step left, increments, tables; and the list of what became no document, with its reasons."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from starlette.requests import Request
from starlette.responses import Response

from dagster_project.addresses import DAGSTER, address_of
from headrace.tables.catalogue import load_table
from headrace_features.explore.answers import address, answer, explorer_of, principal_of
from headrace_features.explore.explorer import Explorer
from headrace_features.explore.pages.lake import dataset_card
from headrace_features.explore.row_index import PAGE
from spark_jobs.lake.files.scans import scan_of
from spark_jobs.sources.refusals import LEFT_OUT

_INCREMENTS: Final = 20
COLUMNS = ("increment", "location", "byte_count", "reason", "detail")
_FILTERS = ("reason", "increment")


def dataset(request: Request) -> Response:
    """The page of a dataset: sums alone, so reading it leaves no row of the audit."""
    explorer, principal, name = explorer_of(request), principal_of(request), request.path_params["dataset"]
    explorer.reads(principal, name, sums_alone=True)
    counts, at = explorer.counts(name), dict(explorer.snapshots(name)).get("arrivals")
    refused = explorer.computed(refusals, name, at) if at is not None else None
    increments = sorted(counts.increments.items())[-_INCREMENTS:] if counts is not None else []
    values = {
        "dataset": name, "card": dataset_card(explorer, name), "counted": counts is not None,
        "increments": increments[::-1], "refused": counts_of(refused, "reason") if refused is not None else [],
        "tables": _tables(explorer, name), "hidden": explorer.hides_text(name), "_dagster": address_of(DAGSTER),
        "corpora": [corpus.name for corpus in explorer.corpora(principal) if name in corpus.datasets],
    }  # fmt: skip
    return answer(request, "dataset.html", values)


def _tables(explorer: Explorer, name: str) -> list[dict[str, Any]]:
    """The tables of a dataset, the one that was written last first."""
    shown = []
    for identifier in explorer.catalogue.list_tables(name):
        table = explorer.catalogue.load_table(identifier)
        head = table.current_snapshot()
        if head is not None and head.summary is not None:
            sums = {said: int(head.summary[f"total-{said}"] or 0) for said in ("records", "data-files", "files-size")}
            written = datetime.fromtimestamp(head.timestamp_ms / 1000).astimezone()
            facts = {"table": identifier[-1], "comment": table.properties.get("comment", ""), "written": written}
            shown.append({**facts, **sums, "columns": len(table.schema().fields), "snapshot": str(head.snapshot_id)})
    return sorted(shown, key=lambda one: (one["written"], one["table"]), reverse=True)


def refused(request: Request) -> Response:
    """What was refused, the newest increment first; `q` is a part of the location or of the sentence that says why."""
    explorer, query = explorer_of(request), dict(request.query_params)
    dataset = request.path_params["dataset"]
    explorer.reads(principal_of(request), dataset)
    table = load_table(explorer.catalogue, f"{dataset}.arrivals")
    head = table.current_snapshot() if table is not None else None
    values: dict[str, Any] = {"dataset": dataset, "counted": True, "total": 0, "selected": 0, "facets": {}, "rows": []}
    rows = explorer.computed(refusals, dataset, head.snapshot_id) if head is not None else None
    if rows is None:
        return answer(request, "refused.html", {**values, "counted": head is None, "start": 0, "next": None})
    masks = {name: pc.equal(rows[name].cast(pa.string()), query[name]) for name in _FILTERS if query.get(name)}
    if words := query.get("q", "").strip():
        holds = [pc.match_substring(rows[name], words, ignore_case=True) for name in ("location", "detail")]
        masks["q"] = pc.or_(*(pc.fill_null(mask, False) for mask in holds))
    for name in _FILTERS:
        values["facets"][name] = counts_of(_met(rows, (mask for other, mask in masks.items() if other != name)), name)
    chosen, text = _met(rows, masks.values()), query.get("from", "")
    start = int(text) if text.isdecimal() and len(text) < 12 else 0
    shown = chosen.slice(start, PAGE).to_pylist()
    more = address(request.url.path, query, **{"from": start + PAGE}) if start + PAGE < len(chosen) else None
    values |= {"total": len(rows), "selected": len(chosen), "rows": shown, "start": start, "next": more}
    return answer(request, "refused.html", {**values, "_left_out": LEFT_OUT})


def refusals(catalogue: Catalog, dataset: str, snapshot: int) -> pa.Table:
    """The arrivals of a dataset that were refused, the newest increment first, each in the order of locations."""
    table = load_table(catalogue, f"{dataset}.arrivals")
    assert table is not None
    rows = scan_of(table, EqualTo("status", "rejected"), COLUMNS, snapshot).to_arrow()
    return rows.select(COLUMNS).sort_by([("increment", "descending"), ("location", "ascending")])


def _met(rows: pa.Table, masks: Iterable[Any]) -> pa.Table:
    chosen = [*masks]
    return rows.filter(functools.reduce(pc.and_, chosen)) if chosen else rows


def counts_of(rows: pa.Table, name: str) -> list[tuple[str, int]]:
    """The values of a column with their rows, the most frequent first."""
    counted = [(str(one["values"]), one["counts"]) for one in pc.value_counts(rows[name]).to_pylist()]
    return sorted(counted, key=lambda one: (-one[1], one[0]))


PATHS = {"/datasets/{dataset}": dataset, "/datasets/{dataset}/refused": refused}
