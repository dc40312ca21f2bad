"""The statement about a request: what was taken out for it, that no blend serves it any more, and the proof of both.

    leaves      all rows of its entries, each with the path of hashes from it to the root of the register
    documents   what they reached and how, as the rows of its excisions say
    since       what the entries hit now beside these
    windows     every (table, snapshot) that a blend can serve, looked through while the statement is made
    before      who read the documents, up to which offset; `examples/verify_statement.py` checks the rest

A statement stands for the rows of the register that it counts. Rows that come later do not touch it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from pyiceberg.catalog import Catalog

from dagster_project.exceptions import CheckFailedError
from dagster_project.inspect.documents.window_reads import reads_of
from headrace.tables.catalogue import load_table
from headrace.tables.generations import successors
from headrace.tables.rights_root import OPT_OUTS
from headrace_features.rights.hits.copies import follow_copies
from headrace_features.rights.hits.matching import Matcher
from headrace_features.rights.hits.named import named_documents
from headrace_features.rights.hits.plan import entries_named
from headrace_features.rights.hits.served import Served, served_texts, served_windows
from headrace_features.rights.proof.verify import Log
from headrace_features.rights.register.merkle import audit_path
from headrace_features.rights.register.register import ROOTS, Entry, entries_of, leaf_bytes, register_salt, written
from spark_jobs.lake.plan.excisions import EXCISIONS, excised_documents

FORMAT: Final = "headrace-rights-statement/1"
NOT_RECORDED: Final = "not recorded"


def statement_of(catalogue: Catalog, name: str, now: datetime | None = None) -> dict[str, Any]:
    """State what became of an entry, or of all entries of a request, as JSON.

    Raises:
        CommandError: there is none of this name.
        CheckFailedError: the register is not as it was written.
    """
    made_at, log = now or datetime.now(UTC), Log.read(catalogue)
    if fault := next(log.faults(), None):
        raise CheckFailedError(f"rights statement: {fault}; mend the register first (headrace rights verify)")
    chosen = entries_named(entries_of(log.rows), [name])
    rows = [row for row in log.rows if row["entry"] in {entry.entry for entry in chosen}]
    documents = documents_of(rows)
    standing = [entry for entry in chosen if entry.holds and (entry.opt_out.since or made_at) <= made_at]
    since = _since(catalogue, standing, {document["doc_id"] for document in documents})
    doc_ids = sorted({document["doc_id"] for document in [*documents, *since]})
    windows = list(served_windows(catalogue, doc_ids))
    texts = list(served_texts(catalogue, doc_ids))
    taken = {row["entry"] for row in rows if row["act"] == "excision"}
    waiting = [entry.entry for entry in standing if entry.entry not in taken]
    verdict = _verdict([*windows, *texts], waiting, taken)
    stated: dict[str, Any] = {
        "format": FORMAT,
        "made_at": written(made_at),
        "about": name,
        "entries": [_entry(entry) for entry in chosen],
        "verdict": verdict,
        "claim": _claim(verdict, windows, texts, waiting),
        "register": {"table": OPT_OUTS, "leaves": len(log.rows), "root": log.prefixes[-1], **_day(log)},
        "leaves": _leaves(log, rows),
        "documents": documents,
        "since": since,
        "windows": [_served(served) for served in windows if served.by],
        "kept": [_served(served) for served in windows if not served.by],
        "texts": [_served(served) for served in texts],
        "packed_again": sorted(set(doc_ids) - excised_documents(catalogue, None)),
        "left_out_by": EXCISIONS,
        **_before(catalogue, rows),
    }
    return stated


def documents_of(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The documents that rows of excisions say, each with its leaf and how it was reached, in order of doc_id."""
    documents = [{**document, "leaf": row["leaf"]} for row in rows for document in _detail(row).get("documents", ())]
    return sorted(documents, key=lambda document: (document["doc_id"], document["leaf"]))


def _since(catalogue: Catalog, standing: Sequence[Entry], taken: Collection[str]) -> list[dict[str, str]]:
    """What entries hit now beside the documents that were taken out: it came later, or waits."""
    hits = named_documents(catalogue, Matcher.of(standing, register_salt(catalogue)))
    follow_copies(catalogue, hits)
    hows = {doc_id: str(reached) for of_entry in hits.documents.values() for doc_id, reached in of_entry.items()}
    return [{"doc_id": doc_id, "how": how} for doc_id, how in sorted(hows.items()) if doc_id not in taken]


def _verdict(served: Iterable[Served], waiting: Sequence[str], taken: Iterable[str]) -> str:
    if any(part.holding for part in served if part.by):
        return "present"
    if waiting:
        return "waiting"
    return "absent" if taken else "refused"


def _claim(verdict: str, windows: Sequence[Served], texts: Sequence[Served], waiting: Sequence[str]) -> str:
    served = [part for part in windows if part.by]
    if verdict == "present":
        where = sorted({f"{part.table} at snapshot {part.snapshot_id}" for part in [*served, *texts] if part.holding})
        return f"NOT absent: windows that are served still hold documents of this request, in {', '.join(where)}."
    if verdict == "waiting":
        return f"Nothing was taken out yet for {', '.join(waiting)}: they wait (headrace rights plan, then apply)."
    if verdict == "refused":
        return "The request was refused or withdrawn, or its day has not come, so nothing was taken out for it."
    counted = f"{sum(part.rows for part in served):,} windows of {len(served):,} such pairs"
    beside = f", and from {len(texts):,} (table, snapshot) of texts" if texts else ""
    return (
        "Absent from every window that any blend of this lake serves, as of the (table, snapshot) pairs listed here: "
        f"{counted} were looked through when this statement was made{beside}."
    )


def _leaves(log: Log, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows with their hashes and paths; a row is stated as its hash has it."""
    hashes = [bytes.fromhex(row["leaf_hash"]) for row in log.rows]
    return [
        {
            "leaf": row["leaf"],
            "leaf_hash": row["leaf_hash"],
            "row": json.loads(leaf_bytes(row)),
            "audit_path": [beside.hex() for beside in audit_path(hashes, row["leaf"])],
        }
        for row in rows
    ]


def _day(log: Log) -> dict[str, str]:
    """The day of the newest leaf, which is that of the root."""
    newest = log.rows[-1]["at"].astimezone(UTC)
    return {"day": newest.date().isoformat(), "written": written(newest), "roots": ROOTS}


def _before(catalogue: Catalog, rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Who read the documents before, what was derived from them, models that learnt from them: as excisions say."""
    details = [_detail(row) for row in rows]
    facts = {name: [fact for detail in details for fact in detail.get(name, ())] for name in ("derived", "models")}
    facts["read_before"] = [run for detail in details for run in _with_offsets(catalogue, detail)]
    return {name: [fact for at, fact in enumerate(some) if fact not in some[:at]] for name, some in facts.items()}


def _with_offsets(catalogue: Catalog, detail: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The runs that an excision names, each with the first rows of its blend that were these windows."""
    from blender_service.exceptions import BlenderError
    from blender_service.server.blender import Blender

    windows: list[tuple[str, int | None, int]] = []
    for part in detail["windows"] if detail.get("runs") else ():
        table, old = load_table(catalogue, part["table"]), int(part["snapshot_id"])
        served = old if table is None else successors(table).get(old, old)
        windows += [(part["table"], served, ordinal) for ordinal in part["ordinals"]]
    try:
        reads = reads_of(catalogue, Blender(catalogue), windows) if windows else []
    except BlenderError:  # a damaged blend: what the excision counted stays
        reads = []
    for run in detail.get("runs", ()):
        mine = [read.offset for read in reads if (read.blend_id, read.table) == (run["blend"], run["table"])]
        yield {**run, "offsets": [offset for offset in mine if run["first"] <= offset < run["before"]] or NOT_RECORDED}


def _detail(row: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(row["detail"]) if row["act"] == "excision" and row["detail"] else {}


def _entry(entry: Entry) -> dict[str, Any]:
    opt_out = entry.opt_out
    since = None if opt_out.since is None else written(opt_out.since)
    facts = {**asdict(opt_out), "values": list(opt_out.values), "since": since}
    return {"entry": entry.entry, **facts, "at": written(entry.at), "leaf": entry.leaf, "state": entry.state}


def _served(served: Served) -> dict[str, Any]:
    """Ids as text, since readers of JSON round numbers of 64 bits."""
    holding = [{"ordinal": row, "doc_id": doc_id} for row, doc_id in served.holding]
    return {**asdict(served), "snapshot_id": str(served.snapshot_id), "by": list(served.by), "holding": holding}
