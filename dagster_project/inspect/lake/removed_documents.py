"""Look at what the newest increment of a corpus removed as near-duplicates: how much, and is it like what stays?

How much is counted by dataset. Whether it is like is asked of a sample by a second measure, which looks at the order of
words (`shared_runs`): the pairs of a removed document and its witness with the smallest ids, which are hashes, so many
that their texts are read in about a second. Copies with edits share far more than a tenth of their runs of words;
texts that are alike as bags alone share next to none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo, In

from dagster_project.inspect.lake.corpus_facts import CorpusFacts, facts_of
from spark_jobs.lake.files.lookups import read_batches, read_rows
from spark_jobs.lake.files.wide_values import read_wide_values
from spark_jobs.lake.ledger.ledger import Ledger

MOST_REMOVED = 0.5
"""Share of a dataset's documents from which on a user is asked to look."""
MOST_DOUBTED = 0.2
"""The same of the sampled pairs; of copies with edits by ten kinds at most 0.04 are doubted."""
_DOUBTED_BELOW = 0.3
_SAMPLED_PAIRS = 200
_LEAST_PAIRS = 10
_TEXT_BYTES = 256 << 20  # decoded to find the texts of one dataset
_SAMPLED_BYTES = 16 << 20


@dataclass(frozen=True)
class RemovedDocuments:
    """What went for similar documents in the newest increment of a corpus.

    Attributes:
        corpus: its name.
        increment: the newest one.
        members: by dataset, how many documents entered.
        removed: of them, those that went for a similar document, near-duplicates and files of repositories that go.
        looked_at: pairs with a second comparison of their texts.
        doubted: of them, the removed documents with less than 0.3 of shared runs of words, ascending.
    """

    corpus: str
    increment: int
    members: dict[str, int]
    removed: dict[str, int]
    looked_at: int
    doubted: tuple[str, ...]

    def findings(self, most_removed: float, most_doubted: float, least: int) -> Iterator[tuple[str, float, float]]:
        """(line, share, limit) for each share above its limit; datasets of fewer than `least` members have none."""
        for dataset, members in sorted(self.members.items()):
            removed = self.removed.get(dataset, 0)
            if members >= least and removed > most_removed * members:
                text = (
                    f"{removed:,} of {members:,} documents of {dataset} in increment {self.increment} go for similar "
                    f"ones; look: headrace corpus show {self.corpus} --thresholds"
                )
                yield text, removed / members, most_removed
        doubted = len(self.doubted)
        if self.looked_at >= _LEAST_PAIRS and doubted > most_doubted * self.looked_at:
            text = (
                f"{doubted} of {self.looked_at} removed documents of increment {self.increment} that were looked at "
                f"have less than {_DOUBTED_BELOW:.0%} of their runs of words in common with what they go for; "
                f"look: headrace doc show {self.doubted[0]} --duplicates"
            )
            yield text, doubted / self.looked_at, most_doubted


def look_at_removed(ledger: Ledger, name: str) -> RemovedDocuments | None:
    """What the newest increment of a corpus removed; None where it removes no near-duplicates, or is not done.

    Args:
        ledger: refreshed.
        name: the corpus.
    """
    newest = max(ledger.increments(f"{name}.removals"), default=None)
    if newest is None:
        return None
    corpus = facts_of(ledger, name)
    if corpus.applied is None or newest not in ledger.increments(corpus.own(corpus.base)):
        return None
    members, repeats, survivors = (
        rows_by_dataset(ledger.catalogue, corpus.own(table), newest)
        for table in ("members", "exact_duplicates", corpus.base)
    )
    removed = members - repeats - survivors
    shared = _compared(ledger.catalogue, _sampled(ledger.catalogue, corpus, newest)) if removed else {}
    doubted = tuple(sorted(doc_id for doc_id, share in shared.items() if share < _DOUBTED_BELOW))
    return RemovedDocuments(name, newest, dict(members), dict(removed), len(shared), doubted)


def rows_by_dataset(catalogue: Catalog, table: str, increment: int) -> Counter[str]:
    """Rows of an increment by dataset."""
    counts: Counter[str] = Counter()
    for batch in read_batches(catalogue, table, ("dataset",), EqualTo("increment", increment)):
        counts.update(
            {value["values"]: value["counts"] for value in pc.value_counts(batch.column("dataset")).to_pylist()}
        )
    return counts


def _sampled(catalogue: Catalog, corpus: CorpusFacts, increment: int) -> list[dict[str, Any]]:
    """Rows of `removals` at the applied threshold of the kind: a sample, the pairs with the smallest ids."""
    assert corpus.applied is not None
    columns = ("threshold", "dataset", "doc_id", "witness_dataset", "witness_doc_id")
    rows: list[dict[str, Any]] = []
    for threshold in corpus.applied.distinct:
        here = And(EqualTo("increment", increment), EqualTo("threshold", threshold))
        smallest: pa.Table | None = None
        for batch in read_batches(catalogue, corpus.own("removals"), columns, here):
            both = pa.Table.from_batches([batch])
            both = both.append_column("larger", pc.max_element_wise(both["doc_id"], both["witness_doc_id"]))
            both = both if smallest is None else pa.concat_tables([smallest, both])
            first = pc.select_k_unstable(both, _SAMPLED_PAIRS, [("larger", "ascending"), ("doc_id", "ascending")])
            smallest = both.take(first)  # so that memory does not grow with the documents
        rows += smallest.to_pylist() if smallest is not None else []
    those = In("doc_id", {row[side] for row in rows for side in ("doc_id", "witness_doc_id")})
    about = {
        row["doc_id"]: row
        for row in read_rows(catalogue, corpus.own("members"), ("doc_id", "kind", "byte_count"), those)
    }
    chosen: list[dict[str, Any]] = []
    left = _SAMPLED_BYTES
    for row in sorted(rows, key=lambda row: (row["larger"], row["doc_id"])):
        both_ends = [about[row[side]] for side in ("doc_id", "witness_doc_id") if row[side] in about]
        if len(both_ends) < 2 or corpus.applied.of(both_ends[0]["kind"]) != row["threshold"]:
            continue
        left -= sum(end["byte_count"] for end in both_ends)
        if left < 0 or len(chosen) == _SAMPLED_PAIRS:
            break
        chosen.append(row)
    return chosen


def _compared(catalogue: Catalog, rows: list[dict[str, Any]]) -> dict[str, float]:
    """The share of runs of words by removed document, where both texts were found."""
    from spark_jobs.dedup.evaluate.shared_runs import shared_runs

    wanted: dict[str, set[str]] = {}
    for row in rows:
        for side in ("", "witness_"):
            wanted.setdefault(row[f"{side}dataset"], set()).add(row[f"{side}doc_id"])
    texts: dict[str, str] = {}
    for dataset, doc_ids in wanted.items():
        texts |= read_wide_values(catalogue, f"{dataset}.texts", "content", doc_ids, most_bytes=_TEXT_BYTES)
    there = [row for row in rows if row["doc_id"] in texts and row["witness_doc_id"] in texts]
    return {row["doc_id"]: shared_runs(texts[row["doc_id"]], texts[row["witness_doc_id"]]) for row in there}
