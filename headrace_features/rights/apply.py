"""Take out what entries of the opt-out register hit; killed anywhere, the next call ends it, and no row comes twice.

    plan        a row of the register for each entry: what it hits now; and one of `system.audit` for that row
    excise      documents are listed as out of all packed tables, and windows of all served snapshots rewritten
    excision    a row of the register for each entry: its plan, and which snapshots succeeded which

Whatever was rewritten before a kill is in the plan's row alone, so the last step takes it from there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo, StartsWith

from dagster_project.exceptions import CommandError
from headrace.tables.catalogue import load_table
from headrace.tables.generations import successors
from headrace_features.rights.plan import Plan
from headrace_features.rights.register import note_excision, note_plans, read_log
from spark_jobs.lake.files.lookups import read_rows
from spark_jobs.lake.ledger.acts import AUDIT_TABLE, EXCISE, note_acts
from spark_jobs.lake.plan.excisions import record_excisions
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.sources.landing.derivations import forget_derived

_SUBJECT = "opt-out "


def apply(lake: Lake, plan: Plan) -> Iterator[str]:
    """Take the documents of a plan out of everything that is served; gives lines.

    Raises:
        CommandError: a packed table could not be changed; its entries wait on, and calling again does the rest.
    """
    from dagster_project.deletion.excised_tables import excise_documents, excision_lines

    catalogue = lake.catalogue
    details = _noted(catalogue, plan)
    doc_ids = plan.documents | {row["doc_id"] for detail in details.values() for row in detail["documents"]}
    if doc_ids:
        record_excisions(catalogue, None, doc_ids, lake.run_id)
        yield from forget_derived(catalogue, doc_ids, lake.wait_seconds)
        done = excise_documents(lake, (), doc_ids)
        for excision in done:
            yield from excision_lines(excision)
        if failed := next((excision.failure for excision in done if excision.failure), ""):
            raise CommandError(f"rights apply: {failed}; the entries wait on, run it again")
    note_excision(catalogue, {entry: _done(catalogue, detail) for entry, detail in details.items()})


def _noted(catalogue: Catalog, plan: Plan) -> dict[str, dict[str, Any]]:
    """What each entry hits, written down before anything is changed; what a killed call wrote is taken along."""
    open_plans: dict[str, Mapping[str, Any]] = {}
    for row in read_log(catalogue):
        if row["act"] == "plan":
            open_plans[row["entry"]] = row
        elif row["act"] == "excision":
            open_plans.pop(row["entry"], None)
    details = {entry.entry: plan.detail(entry.entry) for entry in plan.entries}
    new = {entry: detail for entry, detail in details.items() if entry not in open_plans}
    leaves = {entry: row["leaf"] for entry, row in open_plans.items() if entry in details}
    leaves |= note_plans(catalogue, new)
    _audit(catalogue, leaves, details)
    for entry in details.keys() & open_plans.keys():
        details[entry] = _both(json.loads(open_plans[entry]["detail"]), details[entry])
    return details


def _audit(catalogue: Catalog, leaves: Mapping[str, int], details: Mapping[str, Mapping[str, Any]]) -> None:
    """One row of `system.audit` for each plan that has none yet."""
    condition = And(EqualTo("act", EXCISE), StartsWith("subject", _SUBJECT))
    there = {
        row["why"].partition(":")[0] for row in read_rows(catalogue, AUDIT_TABLE, ("why",), condition) if row["why"]
    }
    missing = [entry for entry, leaf in leaves.items() if f"leaf {leaf}" not in there]
    if missing:
        why = [f"leaf {leaves[entry]}: {len(details[entry]['documents']):,} documents" for entry in missing]
        note_acts(catalogue, EXCISE, "", {"subject": [f"{_SUBJECT}{entry}" for entry in missing], "why": why})


def _both(earlier: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """A plan that a kill left, with what has come since."""
    known = {document["doc_id"] for document in earlier["documents"]}
    documents = [document for document in later["documents"] if document["doc_id"] not in known]
    both = {
        key: [*earlier[key], *(fact for fact in later[key] if fact not in earlier[key])]
        for key in ("derived", "tables", "blends", "models", "runs", "not_asked")
    }
    return {"documents": [*earlier["documents"], *documents], **both}


def _done(catalogue: Catalog, detail: dict[str, Any]) -> dict[str, Any]:
    """A plan with the snapshots that are served now in place of those that held the documents."""
    later = {name: _successors(catalogue, name) for name in {part["table"] for part in detail["tables"]}}
    tables = [{**part, "succeeded_by": later[part["table"]].get(part["snapshot"])} for part in detail["tables"]]
    return {**detail, "tables": tables}


def _successors(catalogue: Catalog, identifier: str) -> dict[str, str]:
    table = load_table(catalogue, identifier)
    return {} if table is None else {str(old): str(new) for old, new in successors(table).items()}


def remaining(plan: Plan, entries: Sequence[str]) -> Iterator[str]:
    """Lines on bytes that stay where an entry is about everything, not training alone: texts and kept objects."""
    datasets = {
        plan.reached.places[doc_id][0]
        for entry in plan.entries
        if entry.entry in entries and entry.opt_out.scope == "all"
        for doc_id in plan.reached.how.get(entry.entry, {})
        if doc_id in plan.reached.places
    }
    for dataset in sorted(datasets):
        yield f"bytes and texts stay in {dataset}; headrace dataset delete {dataset} --increment N removes them"
