"""Two states of a dataset or corpus, or two policies on a dataset: what came, went or changed, with texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from starlette.requests import Request
from starlette.responses import Response

from dagster_project.exceptions import CommandError
from dagster_project.inspect.corpora import policy_preview
from dagster_project.inspect.corpora.policy_preview import PolicyComparison
from dagster_project.inspect.corpora.rule_curve import judged_policy
from dagster_project.inspect.corpora.rule_inputs import read_documents
from dagster_project.inspect.corpora.snapshot_diff import Diff, LakeState, find_state, state_diff
from dagster_project.inspect.documents.document_lookup import other_revisions, read_text
from dagster_project.inspect.documents.side_by_side import compare as side_by_side
from dagster_project.project.declared import dataset_file
from headrace.tables.catalogue import load_table
from headrace_features.explore.answers import answer, explorer_of, principal_of
from headrace_features.explore.dataset_at import TABLES, DatasetVersion
from headrace_features.explore.explorer import Explorer, Snapshots
from headrace_features.explore.pages.duplicates import marked
from spark_jobs.filters.policy import Policy
from spark_jobs.filters.policy_files import is_file, shipped
from spark_jobs.filters.policy_registry import policy_finder
from spark_jobs.filters.policy_resolution import resolve
from spark_jobs.lake.run.registry import entries
from spark_jobs.lake.run.releases import releases

_COLUMN, _ROWS = 90, 14  # of a changed text
_OFFERED = 5  # earlier states of each table that the form offers


def compare(request: Request) -> Response:
    """Compare what `first` and `second` name: states, or with `dataset` policies."""
    explorer, principal, query = explorer_of(request), principal_of(request), request.query_params
    first, second, dataset = (query.get(name, "") for name in ("first", "second", "dataset"))
    values: dict[str, Any] = {"first": first, "second": second, "dataset": dataset, "kind": None, "counted": True}
    if dataset:
        explorer.reads(principal, dataset)
        values |= {"first": first or judged_policy(explorer.catalogue, dataset).label, "_offered": _policies(explorer)}
        if second:
            values |= _policies_compared(explorer, dataset, values["first"], second)
    else:
        values["_offered"] = _states(explorer, principal)
        if first and second:
            explorer.reads(principal, *(text.partition("@")[0] for text in (first, second)))
            values |= states_compared(explorer, principal, first, second)
    return answer(request, "compare.html", values)


def _policies_compared(explorer: Explorer, dataset: str, first: str, second: str) -> dict[str, Any]:
    policies = [_policy(explorer.catalogue, dataset, reference) for reference in (first, second)]
    compared = explorer.computed(_comparison, dataset, *policies, explorer.snapshots(dataset))
    if compared is None:
        return {"kind": "policies", "counted": False}
    about = explorer.index(dataset).by_id([doc_id for some in compared.examples.values() for doc_id in some])
    return {
        "kind": "policies", "kept_by": compared.kept_by,
        "lost": compared.lost, "gained": compared.gained, "labels": (compared.first.policy, compared.second.policy),
        "examples": {name: _rows(some, about) for name, some in compared.examples.items()},
    }  # fmt: skip


def _policy(catalogue: Catalog, dataset: str, reference: str) -> Policy:
    """The policy of a reference; of files those beside the dataset's declaration alone.

    Raises:
        CommandError: it names another file.
    """
    if is_file(reference):
        if Path(reference).name != reference:
            raise CommandError(f"policy {reference[:80]}: give the name of a file beside the declaration of {dataset}")
        reference = str(dataset_file(dataset).parent / reference)
    return resolve(reference, policy_finder(lambda: catalogue))


def _comparison(catalogue: Catalog, dataset: str, first: Policy, second: Policy, at: Snapshots) -> PolicyComparison:
    return policy_preview.compare(read_documents(catalogue, dataset, [first, second]), first, second)


def states_compared(explorer: Explorer, principal: str, first: str, second: str) -> dict[str, Any]:
    """What came, went and changed between two states that may be read; not `counted` while that is computed."""
    states = [find_state(explorer.catalogue, text) for text in (first, second)]
    keys = [(state.name, state.text, tuple(sorted(state.snapshots.items())), state.moment) for state in states]
    answered = explorer.computed(_difference, *keys)
    if answered is None:
        return {"kind": "states", "counted": False}
    kind, difference = answered
    names = {state.name for state in states}
    if kind == "corpus":
        datasets_of = {corpus.name: corpus.datasets for corpus in explorer.corpora(principal)}
        names = {dataset for name in names for dataset in datasets_of[name] if explorer.may_read(principal, dataset)}
        explorer.reads(principal, *names)
    ids = list(dict.fromkeys(doc_id for some in difference.examples.values() for doc_id in some))
    about: dict[str, Any] = {}
    for name in sorted(names):
        about |= explorer.index(name).by_id(ids)
    changed = [
        _changed(explorer, principal, doc_id) for doc_id in difference.examples.get("changed", ()) if doc_id in about
    ]
    newest = {name: states[1].snapshots.get(name, 0) for name in TABLES}
    return {
        "kind": kind, "_moved": {"name": states[1].name, "at": str(DatasetVersion(**newest))},
        **{k: v for k, v in asdict(difference).items() if k != "examples"},
        "examples": {name: _rows(some, about) for name, some in difference.examples.items()},
        "changes": [{k: v for k, v in change.items() if k != "marked"} for change in changed if change],
        "_changes": [change for change in changed if change],
    }  # fmt: skip


def _difference(catalogue: Catalog, *states: tuple[str, str, Snapshots, datetime | None]) -> tuple[str, Diff]:
    first, second = (LakeState(name, text, dict(snapshots), moment) for name, text, snapshots, moment in states)
    return state_diff(catalogue, first, second)


def _changed(explorer: Explorer, principal: str, doc_id: str) -> dict[str, Any] | None:
    """How a document differs from the one that was at its path before; None where that is not known."""
    new = explorer.found(principal, doc_id)
    before = [other for other in other_revisions(explorer.catalogue, new) if other.increment <= new.increment]
    if not before or explorer.hides_text(new.dataset):
        return None
    texts = [read_text(explorer.catalogue, revision) or "" for revision in (before[0], new)]
    sides = side_by_side(texts[0], texts[1], _COLUMN, most_rows=_ROWS)
    return {
        "doc_id": doc_id, "before": before[0].doc_id, "path": new.path, "rows_left_out": sides.rows_left_out,
        "rows": sides.rows, "marked": [marked(row) for row in sides.rows],
    }  # fmt: skip


def _rows(doc_ids: Iterable[str], about: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Documents with path, first words and verdict; of a document that is gone, the id alone."""
    gone = {"path": None, "preview": None, "kept": None}
    return [{"doc_id": doc_id, **about.get(doc_id, gone)} for doc_id in doc_ids]


def _policies(explorer: Explorer) -> list[str]:
    """References of policies, for the form."""
    return [*shipped(), *dict.fromkeys(entry.label for entry in entries(explorer.catalogue, "policy"))]


def _states(explorer: Explorer, principal: str) -> list[str]:
    """Names of states, for the form: what there is now, some earlier snapshots, releases."""
    names = [(dataset, "documents") for dataset in explorer.datasets(principal)]
    names += [(corpus.name, "members") for corpus in explorer.corpora(principal)]
    kept = releases(explorer.catalogue)
    offered = []
    for name, main in names:
        table = load_table(explorer.catalogue, f"{name}.{main}")
        history = table.history()[-_OFFERED - 1 : -1] if table is not None else ()
        offered += [name, *(f"{name}@{past.snapshot_id}" for past in reversed(history))]
        offered += [
            f"{name}@{release.name}" for release in kept if any(t.startswith(f"{name}.") for t in release.snapshots)
        ]
    return offered


PATHS = {"/compare": compare}
