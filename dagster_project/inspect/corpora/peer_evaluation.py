"""Compare the pairs that a corpus stores with those that datasketch finds, on a sample of its documents.

The sample is the documents with the smallest ids, which are hashes. The truth is the exact weighted Jaccard similarity
of all pairs of the sample, by brute force over the bags as they are stored.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo, LessThanOrEqual

from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.neighbours import applied_removals
from dagster_project.inspect.lake.corpus_facts import CorpusFacts
from spark_jobs.arrays import Int64Array
from spark_jobs.dedup.bags.bag_arrays import bags_from_columns
from spark_jobs.dedup.evaluate.peer_pairs import datasketch_pairs, true_pairs
from spark_jobs.dedup.graph.threshold_pairs import exact, of_kinds
from spark_jobs.dedup.near.pair_columns import BAG
from spark_jobs.lake.files.lookups import read_batches, read_columns, read_rows
from spark_jobs.lake.ledger.ledger import Ledger

_STEPS = ("signatures", "buckets", "pairs")


@dataclass(frozen=True)
class PeerScore:
    """What one of the two found among the similar pairs of the sample.

    Attributes:
        tool: headrace or datasketch.
        documents: that its seconds are of.
        seconds: it took; of headrace those of the steps from signatures to pairs, as the ledger has them.
        found: pairs.
        similar: of them, pairs that reach the threshold.
        missed: pairs that reach it and were not found.
    """

    tool: str
    documents: int
    seconds: float
    found: int
    similar: int
    missed: int


@dataclass(frozen=True)
class PeerEvaluation:
    """Both scores.

    Attributes:
        documents: of the corpus that are compared.
        sampled: of them, in the sample.
        truth: pairs of the sample that reach the threshold of their kind.
        brute_force_seconds: that took to find.
        both_kept: of the truth that headrace did not store, pairs of which it keeps both.
        scores: headrace's, datasketch's.
    """

    documents: int
    sampled: int
    truth: int
    brute_force_seconds: float
    both_kept: int
    scores: tuple[PeerScore, PeerScore]


def compare_with_datasketch(
    catalogue: Catalog, corpus: CorpusFacts, threshold: float | None, sample: int
) -> PeerEvaluation:
    """Compare at one threshold, or at that which is applied to each kind.

    Raises:
        CommandError: the corpus has no level near.
    """
    if corpus.applied is None or "bags" not in corpus.tables:
        raise CommandError(f"corpus {corpus.name} compares no bags; give it the level near: headrace run {corpus.name}")
    identifier, documents = corpus.own("bags"), 0
    identifier, documents, smallest = corpus.own("bags"), 0, list[str]()
    for batch in read_batches(catalogue, identifier, ("doc_id",)):
        documents += batch.num_rows
        smallest = heapq.nsmallest(sample, [*smallest, *batch["doc_id"].to_pylist()])
    last = smallest[-1] if smallest else ""
    bags = read_columns(catalogue, identifier, ("doc_id", "kind", *BAG), LessThanOrEqual("doc_id", last))
    if bags is None or not smallest:
        raise CommandError(f"{identifier} has no document yet; run: headrace run {corpus.name}")
    bags = bags.sort_by("doc_id")
    truth, peer, seconds = [], [], np.zeros(2)
    for kind in pc.unique(bags["kind"]).to_pylist():
        rows = np.flatnonzero(pc.equal(bags["kind"], kind))
        columns = (bags.take(pa.array(rows))[name].cast(pa.large_binary()).combine_chunks() for name in BAG)
        least, of_kind = threshold or corpus.applied.of(kind), bags_from_columns(*columns)
        started = time.perf_counter()
        truth.append(rows[true_pairs(of_kind, exact(least))])
        middle = time.perf_counter()
        peer.append(rows[datasketch_pairs(of_kind, least)])
        seconds += (middle - started, time.perf_counter() - middle)
    ids = bags["doc_id"].cast(pa.string()).combine_chunks()
    stored, gone = _stored(catalogue, corpus, ids, threshold)
    known, theirs = (_keys(np.concatenate(pairs), len(ids)) for pairs in (truth, peer))
    missed = known[~np.isin(known, stored)]
    kept = ~np.isin(np.column_stack(np.divmod(missed, len(ids))), gone).any(axis=1)
    ledger = Ledger.fresh(catalogue)
    own_seconds = sum(row.seconds for one in _STEPS for row in ledger.increments_there(corpus.own(one)).values())

    def scored(tool: str, count: int, taken: float, found: Int64Array) -> PeerScore:
        similar = int(np.isin(found, known).sum())
        return PeerScore(tool, count, round(taken, 1), len(found), similar, len(known) - similar)

    scores = (scored("headrace", documents, own_seconds, stored), scored("datasketch", len(ids), seconds[1], theirs))
    return PeerEvaluation(documents, len(ids), len(known), round(seconds[0], 1), int(kept.sum()), scores)


def _keys(pairs: Int64Array, count: int) -> Int64Array:
    """(K,) a number for each distinct pair of rows."""
    return np.unique(pairs.min(axis=1, initial=count) * count + pairs.max(axis=1, initial=0))


def _stored(
    catalogue: Catalog, corpus: CorpusFacts, ids: pa.Array, threshold: float | None
) -> tuple[Int64Array, Int64Array]:
    """Keys of the stored pairs of the sample at the threshold, and the rows of the sample that go at it."""
    pairs = [np.zeros((0, 2), np.int64)]
    least = {kind: exact(threshold or value) for kind, value in corpus.applied.values.items()} if corpus.applied else {}
    columns = ("kind", "doc_id", "better_doc_id", "shared_weight", "united_weight")
    for batch in read_batches(catalogue, corpus.own("pairs"), columns):
        ends = (pc.index_in(batch[name].cast(pa.string()), ids).fill_null(-1) for name in columns[1:3])
        rows = np.column_stack([np.asarray(one, np.int64) for one in ends])
        kinds = pa.chunked_array([batch["kind"].cast(pa.string())])
        shared, united = (np.asarray(batch[name], np.int64) for name in columns[3:])
        tops = of_kinds(kinds, lambda kind: least[kind].numerator)
        bottoms = of_kinds(kinds, lambda kind: least[kind].denominator)
        pairs.append(rows[(shared * bottoms >= united * tops) & (rows >= 0).all(axis=1)])
    last = LessThanOrEqual("doc_id", ids[-1].as_py())
    if threshold is None:
        removed = applied_removals(catalogue, corpus, last)
    else:
        removed = read_rows(catalogue, corpus.own("removals"), ("doc_id",), And(EqualTo("threshold", threshold), last))
    gone = pa.array([row["doc_id"] for row in removed], pa.string())
    return _keys(np.concatenate(pairs), len(ids)), np.flatnonzero(pc.is_in(ids, gone))
