"""What entries of the opt-out register hit, before anything is done: documents, windows, blends, runs, models."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyiceberg.catalog import Catalog

from dagster_project.exceptions import CommandError
from headrace_features.rights.copies import Reached, reach
from headrace_features.rights.hits import NotAsked, direct_hits
from headrace_features.rights.matching import Matcher
from headrace_features.rights.readers import RunReads, run_reads
from headrace_features.rights.register import Entry, entries, register_salt
from headrace_features.rights.served import Served, served_texts, served_windows
from spark_jobs.exceptions import nearest
from spark_jobs.lake.plan.excisions import excised_documents

_OFFSETS = 1000  # of a run and an entry, in a row of the register; how many there are is beside them


@dataclass(frozen=True)
class Plan:
    """What entries hit.

    Attributes:
        entries: those that were asked about, in order.
        reached: documents and how.
        served: snapshots of packed tables with windows that hold some of them.
        texts: tables of texts that blends read with them.
        reads: what runs have read of the windows.
        excised: documents that are out of all packed tables already.
    """

    entries: tuple[Entry, ...]
    reached: Reached
    served: tuple[Served, ...]
    texts: tuple[Served, ...]
    reads: tuple[RunReads, ...]
    excised: frozenset[str]

    @property
    def documents(self) -> set[str]:
        """All documents that are hit."""
        return set(self.reached.entries)

    def detail(self, entry: str) -> dict[str, Any]:
        """What an entry hits, as its row of the register has it."""
        how = self.reached.how.get(entry, {})
        windows = {
            (part.table, part.snapshot_id): rows
            for part in self.served
            if (rows := sorted({row for row, doc_id in part.holding if doc_id in how}))
        }
        held = {(table, row) for (table, _), rows in windows.items() for row in rows}
        runs = []
        for read in self.reads:
            mine = [count for row, count in read.reads.items() if (read.table, row) in held]
            if mine:
                facts = {"run": read.run, "blend": read.blend, "table": read.table, "until": read.until}
                offsets = sorted(at for row, those in read.offsets.items() if (read.table, row) in held for at in those)
                runs.append({**facts, "windows": len(mine), "reads": sum(mine), "offsets": offsets[:_OFFSETS]})
        blends = {
            reason.removeprefix("blend ")
            for part in (*self.served, *self.texts)
            if (part.table, part.snapshot_id) in windows or any(doc_id in how for _, doc_id in part.holding)
            for reason in part.by
            if reason.startswith("blend ")
        }
        return {
            "documents": [self._document(doc_id, how[doc_id]) for doc_id in sorted(how)],
            "derived": sorted(doc_id for doc_id in how if doc_id in self.reached.derived),
            "tables": [
                {"table": table, "snapshot": str(snapshot_id), "windows": len(rows)}
                for (table, snapshot_id), rows in sorted(windows.items())
            ],
            "blends": sorted(blends),
            "runs": runs,
            "models": sorted({f"the model of run {run['run']}" for run in runs}),
            "not_asked": [f"{part.dataset}: {part.what}".removeprefix(": ") for part in self.reached.not_asked],
        }

    def _document(self, doc_id: str, how: str) -> dict[str, str]:
        dataset, path = self.reached.places.get(doc_id, ("", ""))
        return {"doc_id": doc_id, "dataset": dataset, "path": path, "how": how}


def chosen_entries(catalogue: Catalog, named: Collection[str], every: bool, now: datetime) -> list[Entry]:
    """The entries of some ids or requests; without any those that wait, or `every` one that holds now.

    Raises:
        CommandError: a name is neither, or the entry does not hold.
    """
    there = entries(catalogue)
    holding = [entry for entry in there if entry.holds and (entry.opt_out.since is None or entry.opt_out.since <= now)]
    known = {entry.entry for entry in there} | {entry.opt_out.request for entry in there if entry.opt_out.request}
    for name in named:
        if name not in known:
            near = nearest(name, known)
            raise CommandError(
                f"no entry or request of the opt-out register is named {name}{near}; see headrace rights list"
            )
    if not named:
        return [entry for entry in holding if every or entry.state == "waiting"]
    chosen = [entry for entry in there if entry.entry in named or entry.opt_out.request in named]
    if still := next((entry for entry in chosen if entry not in holding), None):
        raise CommandError(f"entry {still.entry} does not hold: it is {still.state}, or its day has not come")
    return chosen


def make_plan(catalogue: Catalog, chosen: Sequence[Entry]) -> Plan:
    """Say what some entries hit."""
    not_asked = list[NotAsked]()
    matcher = Matcher.of(chosen, register_salt(catalogue))
    reached = reach(catalogue, direct_hits(catalogue, matcher, not_asked), not_asked)
    served, texts = list[Served](), list[Served]()
    if reached.entries:
        served = [part for part in served_windows(catalogue, reached.entries) if part.holding]
        texts = [part for part in served_texts(catalogue, reached.entries) if part.holding]
        _name_models(catalogue, not_asked)
    reads = run_reads(catalogue, served)
    excised = excised_documents(catalogue, None) & reached.entries.keys()
    return Plan(tuple(chosen), reached, tuple(served), tuple(texts), tuple(reads), frozenset(excised))


def _name_models(catalogue: Catalog, not_asked: list[NotAsked]) -> None:
    """Tell that the registry does not say what its models learnt from."""
    from spark_jobs.lake.run.registry import entries as registered

    models = [entry.label for entry in registered(catalogue, "model")]
    if models:
        some = ", ".join(models[:3]) + (", .." if len(models) > 3 else "")
        what = f"what {len(models):,} models of the registry learnt from ({some}): it keeps no lineage"
        not_asked.append(NotAsked("", what))


def moment() -> datetime:
    """Now, in UTC."""
    return datetime.now(UTC)
