"""A dataset: how many documents each step left, its increments, its tables, and where to look further."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from dagster_project.addresses import DAGSTER, address_of
from headrace_features.explore.answers import answer, explorer_of, principal_of
from headrace_features.explore.explorer import Explorer
from headrace_features.explore.pages.lake import dataset_card
from headrace_features.explore.pages.refused import counts_of, refusals

_INCREMENTS: Final = 20


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


PATHS = {"/datasets/{dataset}": dataset}
