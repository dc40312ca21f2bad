"""Documents of a corpus with items of benchmarks, and the windows and blends of those documents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo

from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.document_windows import packed_tables
from dagster_project.inspect.lake.corpus_facts import find_corpus
from dagster_project.inspect.lake.dependent_blends import dependent_blends, pinned_snapshots
from headrace.tables.catalogue import load_table
from spark_jobs.filters.contamination.decontaminated import EVALS_PROPERTY, present_evals
from spark_jobs.lake.files.lookups import read_rows
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.packing.generations import served_heads
from spark_jobs.packing.ordinals import find_windows


@dataclass(frozen=True)
class HoldingDocument:
    """A document with items of benchmarks.

    Attributes:
        doc_id: its id.
        dataset: where it came from.
        share: largest share of an item in it.
        items: `eval set, kind` of its findings, each once.
        windows: its windows, by packed table; of older generations that are still served, by `table@snapshot`.
    """

    doc_id: str
    dataset: str
    share: float
    items: tuple[str, ...]
    windows: Mapping[str, int]


@dataclass(frozen=True)
class ContaminationReport:
    """What a corpus holds of the benchmarks of the registry.

    Attributes:
        corpus: its name.
        evals: the eval sets of the search.
        documents: those left out of packing from now on, by dataset and id.
        blends: blends by packed table (or `table@snapshot`) with any of the documents in their rows.
    """

    corpus: str
    evals: tuple[str, ...]
    documents: tuple[HoldingDocument, ...]
    blends: Mapping[str, tuple[str, ...]]

    @property
    def packed(self) -> tuple[HoldingDocument, ...]:
        """The documents in served windows."""
        return tuple(one for one in self.documents if one.windows)


def contamination_report(catalogue: Catalog, corpus: str) -> ContaminationReport:
    """Say what a corpus holds of the benchmarks of the registry.

    Raises:
        CommandError: the corpus is not there, the registry holds none, not all of them were searched for, or the corpus
            does without.
    """
    facts = find_corpus(catalogue, corpus)
    evals = present_evals(catalogue).labels
    if not evals:
        raise CommandError("the registry has no benchmark; headrace evals add NAME --from FILE --columns a,b")
    heads = [load_table(catalogue, one) for one in packed_tables(catalogue) if one.split(".")[0] == corpus]
    if any(table is not None and table.properties.get(EVALS_PROPERTY) == "off" for table in heads):
        raise CommandError(
            f"corpus {corpus} is packed with decontaminate: off, so nothing is searched for; take that out of its "
            f"declaration, then headrace run {corpus}.decontaminated, which packs nothing"
        )
    ledger = Ledger.fresh(catalogue)
    searched = ledger.increments(facts.own("contaminated"))
    missing = ledger.increments(facts.own("survivors")).keys() - searched.keys()
    if missing or any(tuple(json.loads(row.config)["evals"]) != evals for row in searched.values()):
        raise CommandError(
            f"{corpus}: {', '.join(evals)} were not searched for in all that it holds; "
            f"headrace run {corpus}.decontaminated, which packs nothing"
        )
    columns = ("dataset", "doc_id", "findings", "max_share")
    rows = read_rows(catalogue, facts.own("contaminated"), columns, EqualTo("removed", True))
    windows: dict[str, dict[str, int]] = {row["doc_id"]: {} for row in rows}
    blends = _count_windows(catalogue, corpus, windows)
    documents = tuple(
        HoldingDocument(
            row["doc_id"],
            row["dataset"],
            row["max_share"],
            tuple(dict.fromkeys(f"{one['eval_set']}, {one['kind']}" for one in row["findings"])),
            windows[row["doc_id"]],
        )
        for row in sorted(rows, key=lambda row: (row["dataset"], row["doc_id"]))
    )
    return ContaminationReport(corpus, evals, documents, blends)


def _count_windows(catalogue: Catalog, corpus: str, windows: dict[str, dict[str, int]]) -> dict[str, tuple[str, ...]]:
    """Count windows of documents in place, in all that is served; gives their blends."""
    tables = [table for table in packed_tables(catalogue) if table.split(".")[0] == corpus]
    depending = dependent_blends(catalogue, tables)
    blends: dict[str, tuple[str, ...]] = {}
    for identifier in tables:
        table = load_table(catalogue, identifier)
        if table is None or not windows:
            continue
        for head in served_heads(table, pinned_snapshots(depending[identifier])):
            name = identifier if head.is_main else f"{identifier}@{head.snapshot.snapshot_id}"
            for _, _, segments in find_windows(identifier, table, windows, None, head.snapshot.snapshot_id):
                for doc_id in {segment["doc_id"] for segment in segments} & windows.keys():
                    windows[doc_id][name] = windows[doc_id].get(name, 0) + 1
                    served = {
                        one.blend
                        for one in depending[identifier]
                        if (head.is_main if one.snapshot_id is None else one.snapshot_id in head.covered)
                    }
                    blends[name] = tuple(sorted(served))
    return blends
