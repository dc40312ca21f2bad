"""Deduplication of texts in memory, kernel after kernel on one core: what the benchmarks and their peers compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from cpu_time import seconds
from numba import njit

from spark_jobs.dedup.bags.bag_arrays import Bags, rows_of, token_weights, total_weights
from spark_jobs.dedup.bags.features import Features, token_rules
from spark_jobs.dedup.bags.token_counts import TokenCounts, count_tokens
from spark_jobs.dedup.bags.token_table import UnitTable
from spark_jobs.dedup.graph.in_memory import REMOVED, kept_states
from spark_jobs.dedup.near.bucket_records import group_by_key, pairs_within
from spark_jobs.dedup.sketches.bands import band_keys, solve_bands
from spark_jobs.dedup.sketches.darts import Darts, make_darts
from spark_jobs.dedup.sketches.similarity import agreement_counts, background_counts, least_agreement, overlaps
from spark_jobs.dedup.sketches.weighted_minhash import signatures
from spark_jobs.lexing.lexers import lexer_of

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]
UInt8Array = npt.NDArray[np.uint8]
Float64Array = npt.NDArray[np.float64]

BATCH_ROWS = 10_000  # as Spark's batches
HOT_TOKENS = 10_000
MAX_LEVEL = 4
THRESHOLD = 0.7
SAMPLE_DOCUMENTS = 3000  # for the background, as the step takes
SEED = 1
DEFAULT_FEATURES = Features()


@dataclass(frozen=True)
class Corpus:
    """Documents of one kind."""

    kind: str
    language: str | None
    texts: list[str]

    @property
    def lexer(self) -> int:
        """Code of its lexer."""
        return lexer_of(self.kind, self.language)

    @property
    def byte_count(self) -> int:
        """Bytes of UTF-8."""
        return sum(len(text.encode()) for text in self.texts)

    def counts(self, features: Features = DEFAULT_FEATURES) -> TokenCounts:
        """Tokens of all documents."""
        return self.count(pa.array(self.texts, pa.large_string()), features)

    def count(self, column: pa.Array, features: Features = DEFAULT_FEATURES) -> TokenCounts:
        """Tokens of documents of this kind."""
        return count_tokens(column, *token_rules([self.kind] * len(column), [self.language] * len(column), features))

    def bag(self, column: pa.Array, units: Units) -> Bags:
        """Bags of documents of this kind, empty ones too."""
        return weighed(self.count(column), units)


@dataclass(frozen=True)
class Weighed:
    """A corpus in bags: which rows have one, the bags, the weights, the darts of the hot tokens."""

    rows: Int64Array
    bags: Bags
    units: Units
    darts: Darts


@dataclass(frozen=True)
class Units:
    """Weights as a worker holds them: a table of the vocabulary, and the weight of all other tokens."""

    table: UnitTable
    other: int

    def of(self, hashes: UInt64Array) -> UInt8Array:
        """(T,) weight of each token."""
        return self.table.of(hashes, np.full(len(hashes), self.other, np.uint8))


def frozen_units(counts: TokenCounts) -> tuple[Units, UInt64Array]:
    """Weights as in the step `vocabulary`, and the hottest tokens."""
    hashes, frequency = np.unique(counts.hashes, return_counts=True)
    documents = len(counts.offsets) - 1
    units = np.rint(8 * np.log((documents + 1) / (frequency + 1))).clip(1, 255).astype(np.uint8)
    known = frequency >= 2
    other = int(np.rint(8 * np.log((documents + 1) / 2)).clip(1, 255))
    hot = hashes[np.argsort(-frequency, kind="stable")[:HOT_TOKENS]]
    return Units(UnitTable(hashes[known], units[known]), other), hot


def weighed(counts: TokenCounts, units: Units) -> Bags:
    """Bags of counted documents."""
    weights = units.of(counts.hashes)
    return Bags(counts.offsets, counts.hashes, weights, np.minimum(counts.counts, MAX_LEVEL).astype(np.uint8))


def weigh(corpus: Corpus) -> Weighed:
    """Texts to bags and what signatures need."""
    counts = corpus.counts()
    units, hot = frozen_units(counts)
    bags = weighed(counts, units)
    rows = np.flatnonzero(np.diff(bags.offsets))
    return Weighed(rows, rows_of(bags, rows), units, make_darts(SEED, MAX_LEVEL, hot, units.of(hot)))


def candidates(sketches: UInt8Array, bags: Bags, documents: int) -> tuple[Int64Array, Int64Array]:
    """Pairs of rows that share a bucket, each once."""
    sample = rows_of(bags, np.sort(np.random.default_rng(SEED).permutation(len(bags))[:SAMPLE_DOCUMENTS]))
    scheme = solve_bands(background_counts(sample), documents, THRESHOLD, 0.9999)
    keys = band_keys(sketches, scheme, np.zeros(len(sketches), np.uint64))
    places = np.repeat(np.arange(len(sketches), dtype=np.int64), scheme.bands)
    found = group_by_key(keys.ravel(), places, np.zeros(keys.size, np.bool_))
    left, right = pairs_within(
        found.new_offsets, found.new, found.earlier_offsets, found.earlier, np.diff(found.new_offsets)
    )
    distinct = np.unique(left * len(sketches) + right)
    return distinct // len(sketches), distinct % len(sketches)


def find_duplicates(texts: list[str]) -> tuple[list[tuple[int, int]], list[int]]:
    """The kernels in a row, from texts to verified pairs and removed rows; earlier rows are kept first."""
    made = weigh(Corpus("prose", None, texts))
    sketches = signatures(made.bags, made.darts)
    left, right = candidates(sketches, made.bags, len(texts))
    least = least_agreement(Fraction(str(THRESHOLD)), 1e-6)
    agreeing = agreement_counts(sketches[left], sketches[right]) >= least
    left, right = left[agreeing], right[agreeing]
    shared, united = overlaps(rows_of(made.bags, left), rows_of(made.bags, right))
    alike = shared * 10 >= united * 7
    left, right = left[alike], right[alike]
    state = kept_states(right, left, len(made.bags))
    pairs = list(zip(made.rows[left].tolist(), made.rows[right].tolist(), strict=True))
    return pairs, made.rows[state == REMOVED].tolist()


# ---- brute force


def all_pairs(bags: Bags, least: float) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """All pairs of rows (earlier, later) with J >= least > 0, weights they share and have together.

    Every two documents that share a token meet.
    """
    _, tokens = np.unique(bags.hashes, return_inverse=True)
    starts = np.concatenate([[0], np.cumsum(np.bincount(tokens))]).astype(np.int64)
    lists = (starts[:-1].copy(), np.empty(len(tokens), np.int32), np.empty(len(tokens), np.int64))
    weights, totals = token_weights(bags).astype(np.int64), total_weights(bags)
    found = []
    for row in range(len(bags)):
        own = slice(bags.offsets[row], bags.offsets[row + 1])
        shared = _shared_with_earlier(row, tokens[own], weights[own], starts, *lists)
        united = np.maximum(totals[:row] + totals[row] - shared, 1)
        near = np.flatnonzero(shared >= least * united)
        found.append((near, np.full(len(near), row), shared[near], united[near]))
    left, right, shared, united = (np.concatenate(column) for column in zip(*found, strict=True))
    return left, right, shared, united


@njit(cache=True)
def _shared_with_earlier(
    row: int,
    tokens: Int64Array,
    weights: Int64Array,
    starts: Int64Array,
    ends: Int64Array,
    documents: npt.NDArray[np.int32],
    held: Int64Array,
) -> Int64Array:
    """(row,) sums of minima with all earlier documents; the document's tokens then join the lists."""
    shared = np.zeros(row, np.int64)
    for place in range(tokens.size):
        token, weight = tokens[place], weights[place]
        for entry in range(starts[token], ends[token]):
            shared[documents[entry]] += min(weight, held[entry])
        documents[ends[token]] = row
        held[ends[token]] = weight
        ends[token] += 1
    return shared


def cpu_seconds(work: Callable[[], object]) -> float:
    """Best of three, after one run that compiles."""
    work()
    return seconds(work)
