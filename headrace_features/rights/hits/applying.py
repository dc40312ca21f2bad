"""Take out what entries hit: once over all tables, and so that a killed command is finished by the same one.

    plan      what is hit goes to `system.rights_plans`, as the windows will not tell any more once they are rewritten
    audit     a row of `system.audit` for each entry
    list      the documents in `system.excisions`; what models said about them is forgotten
    rewrite   the windows
    note      an excision in the register for each entry, with what the plan has: now it is applied

Each part leaves out what was done before; the last is one commit, after which an entry waits for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo

from dagster_project.exceptions import CommandError
from headrace.tables.catalogue import load_table
from headrace.tables.generations import successors
from headrace_features.rights.hits.plan import Plan
from headrace_features.rights.register.register import Entry, note_excision
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.files.lookups import EVERYTHING, read_rows
from spark_jobs.lake.ledger.acts import AUDIT_TABLE, EXCISE, note_acts
from spark_jobs.lake.ledger.step_key import canonical_json
from spark_jobs.lake.plan.excisions import record_excisions
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, ensure_table
from spark_jobs.sources.landing.derivations import forget_derived

if TYPE_CHECKING:
    from spark_jobs.lake.run.materialize import Lake

PLANS: Final = "system.rights_plans"
DECLARED_PLANS = Table(
    name="rights_plans",
    comment="One row for each entry of the opt-out register that was begun to be applied: what it hit before that.",
    columns=(
        Column("entry!", "string", "of `opt_outs`"),
        Column("at!", "timestamptz", "when it began"),
        Column("run_id!", "string", "the command"),
        Column("detail!", "string", "documents, windows, blends, runs and models, as JSON"),
    ),
    key=(),
)
_MERGED: Final = {"documents": "doc_id", "windows": "", "blends": "", "runs": "", "derived": "", "models": ""}


def apply_plan(lake: Lake, plan: Plan) -> Iterator[str]:
    """Take out what a plan says; gives lines.

    Raises:
        CommandError: a table could not be changed; then no entry is applied, and running again does the rest.
    """
    catalogue, now = lake.catalogue, datetime.now(UTC)
    before = unfinished_plans(catalogue, plan.entries)
    entries = [entry for entry in plan.entries if entry.entry in before or _is_due(plan, entry, now)]
    details = _begun(catalogue, plan, entries, before, lake.run_id, now)
    _note_audit(catalogue, entries, details, lake.run_id)
    doc_ids = {document["doc_id"] for detail in details.values() for document in detail["documents"]}
    record_excisions(catalogue, None, doc_ids, lake.run_id)
    if doc_ids:
        yield from forget_derived(catalogue, doc_ids, lake.wait_seconds)
    yield from _excise(lake, plan, doc_ids, bool(before))
    for detail in details.values():
        detail |= {"tables": _changed(catalogue, detail["windows"]), "run_id": lake.run_id}
        del detail["at"]
    if details:
        note_excision(catalogue, details, {entry.entry: entry.applied for entry in entries})
    yield f"{len(details):,} entries are applied: {len(doc_ids):,} documents are out of all packed tables"
    yield from _remaining(plan, entries)


def _is_due(plan: Plan, entry: Entry, now: datetime) -> bool:
    """Whether there is anything to do: what was applied, and hits nothing new, leaves no second excision."""
    asked, hit = entry.opt_out, plan.of(entry.entry)
    is_new = bool(hit["windows"]) or not all(document["out"] for document in hit["documents"])
    return entry.holds and (asked.since is None or asked.since <= now) and (entry.applied is None or is_new)


def _begun(
    catalogue: Catalog, plan: Plan, entries: Sequence[Entry], before: Mapping[str, dict[str, Any]], run_id: str,
    now: datetime,
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """By entry, what it hits: now, and when a command began that did not come to its end."""
    details = {entry.entry: _merged(before.get(entry.entry), plan.of(entry.entry), now) for entry in entries}
    new = [
        {"entry": name, "at": now, "run_id": run_id, "detail": canonical_json(detail | {"at": None})}
        for name, detail in details.items()
        if detail["documents"] != before.get(name, {}).get("documents")
    ]
    if new:
        table = ensure_table(catalogue, PLANS, DECLARED_PLANS, {SCOPE_PROPERTY: "rights_plans"})
        table.append(pa.Table.from_pylist(new, schema=table.schema().as_arrow()))
    return details


def unfinished_plans(catalogue: Catalog, entries: Sequence[Entry]) -> dict[str, dict[str, Any]]:
    """The newest plan of each entry that no excision followed, with the time when the first of such began."""
    applied = {entry.entry: entry.applied for entry in entries}
    plans: dict[str, dict[str, Any]] = {}
    for row in sorted(read_rows(catalogue, PLANS, ("entry", "at", "detail"), EVERYTHING), key=lambda row: row["at"]):
        name = row["entry"]
        if name in applied and (applied[name] is None or row["at"] > applied[name]):
            began = plans.get(name, row)["at"]
            plans[name] = {**json.loads(row["detail"]), "at": began}
    return plans


def _merged(before: dict[str, Any] | None, hit: dict[str, Any], now: datetime) -> dict[str, Any]:
    """The hits of an entry with those that a killed command noted: windows that it rewrote have no hits any more."""
    if before is None:
        return {**hit, "at": now}
    merged = {**hit, "at": before["at"]}
    for name, key in _MERGED.items():
        there = {fact[key] if key else canonical_json(fact) for fact in before[name]}
        merged[name] = before[name] + [
            fact for fact in hit[name] if (fact[key] if key else canonical_json(fact)) not in there
        ]
    return merged


def _note_audit(catalogue: Catalog, entries: Sequence[Entry], details: dict[str, dict[str, Any]], run_id: str) -> None:
    """A row for each entry, once since its plan began."""
    rows = read_rows(catalogue, AUDIT_TABLE, ("subject", "at"), EqualTo("act", EXCISE)) if entries else []
    noted: dict[str, datetime] = {}
    for row in rows:
        noted[row["subject"]] = max(row["at"], noted.get(row["subject"], row["at"]))
    missing = [
        entry for entry in entries
        if f"opt-out {entry.entry}" not in noted or noted[f"opt-out {entry.entry}"] < details[entry.entry]["at"]
    ]  # fmt: skip
    if missing:
        why = [
            f"{entry.opt_out.kind}, {len(details[entry.entry]['documents']):,} documents, run {run_id}"
            for entry in missing
        ]
        columns = {"subject": [f"opt-out {entry.entry}" for entry in missing], "why": why}
        note_acts(catalogue, EXCISE, "", columns)


def _excise(lake: Lake, plan: Plan, doc_ids: set[str], all_tables: bool) -> Iterator[str]:
    """Rewrite the windows that hold documents, table by table; all tables for what an unfinished command looked up."""
    from dagster_project.deletion.excised_tables import excise_documents, excision_lines

    tables = sorted({served.table for served in plan.served if any(row >= 0 for row, _ in served.holding)})
    done = excise_documents(lake, () if all_tables else tables, doc_ids) if tables or all_tables else []
    for excision in done:
        yield from excision_lines(excision)
    if failed := [excision.failure for excision in done if excision.failure]:
        raise CommandError(f"rights apply: {failed[0]}; no entry is applied, run it again")


def _changed(catalogue: Catalog, windows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each table and snapshot that held documents, with the snapshot that is served instead of it."""
    changed = []
    for part in windows:
        table, old = load_table(catalogue, part["table"]), int(part["snapshot_id"])
        new = successors(table).get(old) if table is not None else None
        changed.append(
            {"table": part["table"], "old_snapshot": str(old), "new_snapshot": None if new is None else str(new)}
        )
    return changed


def _remaining(plan: Plan, entries: Sequence[Entry]) -> Iterator[str]:
    """Where bytes remain of entries whose scope is all."""
    remaining: dict[str, int] = {}
    for entry in entries:
        for doc_id in plan.hits.documents.get(entry.entry, {}) if entry.opt_out.scope == "all" else ():
            if doc_id in plan.facts:
                dataset = plan.facts[doc_id]["dataset"]
                remaining[dataset] = remaining.get(dataset, 0) + 1
    for dataset, count in sorted(remaining.items()):
        yield (
            f"{dataset}: texts, and files where they are kept, still have {count:,} of them; with its source changed, "
            f"headrace dataset delete {dataset} --plan shows what deletes them (--increment N for a part)"
        )
