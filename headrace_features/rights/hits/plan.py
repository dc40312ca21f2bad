"""What each entry of the register hits: documents with how they were reached, windows, blends, runs, models."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
from pyiceberg.catalog import Catalog

from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.window_reads import BlendReads, reads_of_runs
from headrace_features.rights.hits.copies import follow_copies
from headrace_features.rights.hits.matching import Matcher
from headrace_features.rights.hits.named import Hits, Reached, facts_of, named_documents
from headrace_features.rights.hits.served import Served, served_texts, served_windows
from headrace_features.rights.register.register import Entry, entries, register_salt
from spark_jobs.exceptions import nearest
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.plan.excisions import excised_documents
from spark_jobs.lake.run.registry import entries as registered

_TRAINED: Final = ("classifier", "ngrams", "proxy_model")  # tables that are models; the ledger says what they read
_LINEAGE: Final = ("dataset", "datasets", "run", "runs", "corpus", "trained_on")  # fields of a registry's model


@dataclass
class Plan:
    """What entries hit.

    Attributes:
        entries: that were asked about.
        hits: their documents.
        facts: dataset, repository and path of these.
        out: documents that are out of all packed tables already.
        served: windows and texts that hold documents.
        reads: what blends and runs read of these windows.
        models: names of the registry, with the datasets of their training; None where nobody stated them.
    """

    entries: Sequence[Entry]
    hits: Hits
    facts: Mapping[str, Mapping[str, Any]]
    out: frozenset[str]
    served: Sequence[Served]
    reads: Sequence[BlendReads]
    models: Sequence[tuple[str, frozenset[str] | None]]
    by_doc: Mapping[str, list[tuple[Served, int]]] = field(default_factory=dict)

    def of(self, entry: str) -> dict[str, Any]:
        """What one entry hits, ready for JSON; the shape of `detail` in an excision."""
        documents = self.hits.documents.get(entry, {})
        holding: dict[tuple[str, int], list[int]] = defaultdict(list)
        for doc_id in documents:
            for served, ordinal in self.by_doc.get(doc_id, ()):
                holding[served.table, served.snapshot_id].append(ordinal)
        datasets = {self.facts[doc_id]["dataset"] for doc_id in documents if doc_id in self.facts}
        return {
            "documents": [self._document(doc_id, reached) for doc_id, reached in sorted(documents.items())],
            "by_how": dict(sorted(Counter(reached.how for reached in documents.values()).items())),
            "derived": sorted(doc_id for doc_id, reached in documents.items() if reached.how == "derived"),
            "windows": [_windows(*place, ordinals) for place, ordinals in sorted(holding.items())],
            "blends": sorted({name for served in self.served if (served.table, served.snapshot_id) in holding
                              for name in served.by if name.startswith("blend ")}),
            "runs": [read for reads in self.reads if (reads.table, reads.snapshot_id) in holding
                     for read in _runs(reads, holding[reads.table, reads.snapshot_id])],
            "models": [line for model, learnt in self.models if documents
                       and (line := _model(model, learnt, datasets)) is not None],
        }  # fmt: skip

    def _document(self, doc_id: str, reached: Reached) -> dict[str, Any]:
        return {"doc_id": doc_id, "how": str(reached), **self.facts.get(doc_id, {}), "out": doc_id in self.out}


def make_plan(
    catalogue: Catalog, chosen: Collection[str] = (), every: bool = False, now: datetime | None = None
) -> Plan:
    """Find out what entries hit.

    Args:
        catalogue: of the lake.
        chosen: entries, or requests; none for all that wait.
        every: those that were applied too: documents may have landed since.
        now: the clock's time by default.

    Raises:
        CommandError: there is no such entry or request.
    """
    there, moment = entries(catalogue), now or datetime.now(UTC)
    asked = entries_named(there, chosen) if chosen else [entry for entry in there if _is_due(entry, every)]
    matcher = Matcher.of(asked, register_salt(catalogue) if asked else "", moment)
    hits = named_documents(catalogue, matcher)
    follow_copies(catalogue, hits)
    doc_ids = hits.doc_ids
    windows = [part for part in served_windows(catalogue, doc_ids) if part.holding and part.by] if doc_ids else []
    texts = [part for part in served_texts(catalogue, doc_ids) if part.holding and part.by] if doc_ids else []
    by_doc: dict[str, list[tuple[Served, int]]] = defaultdict(list)
    for served in [*windows, *texts]:
        for ordinal, doc_id in served.holding:
            by_doc[doc_id].append((served, ordinal))
    ordinals = {(part.table, part.snapshot_id): np.unique([row for row, _ in part.holding]) for part in windows}
    return Plan(
        asked, hits, facts_of(catalogue, doc_ids), excised_documents(catalogue, None), [*windows, *texts],
        list(reads_of_runs(catalogue, ordinals)), list(_models(catalogue)) if doc_ids else [], by_doc,
    )  # fmt: skip


def entries_named(there: Collection[Entry], chosen: Collection[str]) -> list[Entry]:
    """The entries of some names, which may be those of requests.

    Raises:
        CommandError: there is no such entry or request.
    """
    names = {entry.entry for entry in there} | {entry.opt_out.request for entry in there if entry.opt_out.request}
    for name in chosen:
        if name not in names:
            raise CommandError(
                f"rights: no entry or request {name}{nearest(name, names)}; headrace rights show names them"
            )
    return [entry for entry in there if not {entry.entry, entry.opt_out.request}.isdisjoint(chosen)]


def _is_due(entry: Entry, every: bool) -> bool:
    """Whether a plan without names has an entry: it waits, or was applied and `every` one is asked about."""
    return entry.state == "waiting" or (every and entry.state == "applied")


def _windows(table: str, snapshot_id: int, ordinals: Sequence[int]) -> dict[str, Any]:
    """Ids as text, since readers of JSON round numbers of 64 bits."""
    rows = sorted({ordinal for ordinal in ordinals if ordinal >= 0})
    return {"table": table, "snapshot_id": str(snapshot_id), "windows": len(rows), "ordinals": rows}


def _runs(reads: BlendReads, ordinals: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Runs with a read of some windows of a table."""
    mine = np.isin(reads.ordinals, ordinals)
    for run, first, before, counts in reads.runs:
        if windows := int((counts[mine] > 0).sum()):
            yield {
                "run": run, "blend": reads.blend_id, "names": list(reads.names), "table": reads.table, "first": first,
                "before": before, "windows": windows, "reads": int(counts[mine].sum()),
            }  # fmt: skip


def _models(catalogue: Catalog) -> Iterator[tuple[str, frozenset[str] | None]]:
    """Each model of the lake with the datasets that it is known to be trained on; None where nobody said."""
    ledger, trained = Ledger.fresh(catalogue), dict[str, frozenset[str]]()
    for space in sorted(name[0] for name in catalogue.list_namespaces()):
        for table in _TRAINED:
            for row in ledger.increments_there(f"{space}.{table}").values():
                inputs = {name.partition(".")[0] for name in row.inputs} - {space, "system"}
                trained[space] = trained.get(space, frozenset()) | inputs
    for model in registered(catalogue, "model"):
        try:
            content = json.loads(model.content)
        except ValueError:
            content = {}
        stated = [content[name] for name in _LINEAGE if name in content] if isinstance(content, dict) else []
        names = {str(name) for value in stated for name in (value if isinstance(value, list) else [value])}
        yield model.label, frozenset(names) or trained.get(model.name)


def _model(label: str, learnt: frozenset[str] | None, datasets: set[str]) -> dict[str, Any] | None:
    """A model that is known to be trained on some datasets, or of which it is not known; None of others."""
    if learnt is None:
        return {"model": label, "trained": "unknown", "on": []}
    return {"model": label, "trained": "yes", "on": sorted(learnt & datasets)} if learnt & datasets else None
