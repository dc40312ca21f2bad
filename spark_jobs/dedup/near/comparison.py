"""Comparison of two documents of each candidate, with their signatures and bags in files or in memory.

Documents are numbered by their rows in a table. Long columns stay where they are: `ByteRows` copies those of a block of
pairs, a block at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.compiling import compiled
from headrace.kernels.memory import byte_at, eight_bytes_at, store
from spark_jobs.arrays import Int64Array, UInt8Array
from spark_jobs.dedup.graph.threshold_pairs import KindThreshold, exact, of_kinds
from spark_jobs.dedup.near.pair_columns import BAG, ENDS, PAIRS_SCHEMA, SIDES, Pairs
from spark_jobs.dedup.sketches.darts import SIGNATURE_VALUES
from spark_jobs.exceptions import TableMismatchError
from spark_jobs.threads import in_order_of

if TYPE_CHECKING:
    from spark_jobs.dedup.bags.bag_arrays import Bags

SIGNATURE_LOSS = 1e-6
"""Most share of pairs exactly at the threshold that the test of signatures drops."""
BLOCK = 16_384
"""Pairs that are compared together."""
_TAKEN_ROWS = 65_536  # some 10 MB of two identities and their datasets
_BLOCK_BYTES = 2 << 20  # of hashes of bags that are copied together


def taken(rows: pa.Table, numbers: Int64Array) -> pa.Table:
    """Rows of a table by number; of its chunks only these are copied."""
    chunks = rows.to_batches()
    starts = np.cumsum([0, *(chunk.num_rows for chunk in chunks)])
    order = np.argsort(numbers, kind="stable")
    ascending = numbers[order]
    edges = np.searchsorted(ascending, starts)
    parts = [
        chunk.take(pa.array(ascending[first:last] - start))
        for chunk, start, first, last in zip(chunks, starts, edges, edges[1:], strict=False)
        if last > first
    ]
    back = np.empty(len(numbers), np.int64)
    back[order] = np.arange(len(numbers))
    return pa.Table.from_batches(parts, rows.schema).combine_chunks().take(pa.array(back))


def taken_in_batches(rows: pa.Table, numbers: Int64Array) -> Iterator[pa.Table]:
    """As `taken`, some rows at a time."""
    for start in range(0, len(numbers), _TAKEN_ROWS):
        yield taken(rows, numbers[start : start + _TAKEN_ROWS])


@dataclass(frozen=True)
class ByteRows:
    """A column of byte strings in any number of chunks.

    Attributes:
        column: keeps the memory.
        addresses: (D,) int64 of each string.
        sizes: (D,) int64 bytes of each.
    """

    column: pa.ChunkedArray
    addresses: Int64Array
    sizes: Int64Array

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> ByteRows:
        """The strings of a column.

        Raises:
            TableMismatchError: one is null.
        """
        if column.null_count:
            raise TableMismatchError(
                f"{column.null_count} nulls in a column of bytes, wanted none; materialize it again"
            )
        addresses, sizes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for chunk in column.chunks:
            wide = chunk.cast(pa.large_binary())
            _, offsets, data = wide.buffers()
            ends = np.frombuffer(offsets, np.int64)[wide.offset : wide.offset + len(wide) + 1]
            addresses.append(ends[:-1] + (data.address if data is not None else 0))
            sizes.append(np.diff(ends))
        return cls(column, np.concatenate(addresses), np.concatenate(sizes))

    def take(self, rows: Int64Array) -> tuple[Int64Array, UInt8Array]:
        """(R + 1,) offsets of the strings of R rows, and their bytes."""
        offsets = np.concatenate([[0], np.cumsum(self.sizes[rows])]).astype(np.int64)
        data = np.empty(offsets[-1], np.uint8)
        _copy(self.addresses[rows], offsets, data)
        return offsets, data


@compiled
def _copy(addresses: Int64Array, offsets: Int64Array, data: UInt8Array) -> None:
    """Copy byte strings from their addresses to their offsets."""
    begin = np.int64(data.ctypes.data)
    for row in range(addresses.size):
        source, at, end = addresses[row], begin + offsets[row], begin + offsets[row + 1]
        while at + 8 <= end:  # eight bytes at a time: strings of signatures and hashes are long
            store(at, eight_bytes_at(source))
            source, at = source + 8, at + 8
        while at < end:
            store(at, np.uint8(byte_at(source)))
            source, at = source + 1, at + 1


def similar_pairs(candidates: pa.Table, signatures: pa.Table, stored: pa.Table, lowest: KindThreshold) -> pa.Table:
    """Similar pairs among candidates (`PAIRS_SCHEMA`), by rows of `signatures` and `stored` rows of `bags`."""
    sides = agreeing_rows(candidates, signatures, lowest)
    ends = taken(signatures.select(ENDS), sides[0]), taken(signatures.select(ENDS), sides[1])
    bags = BagRows.of(stored)
    rows = bags.rows_of(ends[0].column("doc_id")), bags.rows_of(ends[1].column("doc_id"))
    alike = similar(rows, bags, threshold_fractions(ends[0].column("kind"), lowest))
    left, right = (side.take(alike.pairs) for side in ends)
    return pa.Table.from_batches(pair_batches((left, right), alike), PAIRS_SCHEMA)


def agreeing_rows(
    candidates: pa.Table, signatures: pa.Table, lowest: KindThreshold, threads: int = 1
) -> tuple[Int64Array, Int64Array]:
    """Candidates of one kind with sizes and signatures that allow the lowest threshold.

    Where several documents have the same place, all combinations are compared, since a place does not tell them apart.

    Args:
        candidates: columns first and second (int64), distinct pairs of places.
        signatures: rows of `signatures` at these places, and others.
        lowest: lowest weighted Jaccard similarity, by kind of document.
        threads: that compare.

    Returns:
        Row numbers in `signatures` of the left documents, and of the right ones; the left one comes first in the order
        (increment, place, doc_id). Each pair comes once.
    """
    documents = SignatureColumns.of(signatures, lowest)
    blocks = (
        (part.column("first").to_numpy(), part.column("second").to_numpy())
        for part in candidates.select(["first", "second"]).to_batches(max_chunksize=BLOCK)
    )
    with ThreadPoolExecutor(threads) as pool:
        agreeing = list(in_order_of(pool, documents.agreeing, blocks))
    pairs = np.unique(np.concatenate([np.zeros(0, np.int64), *agreeing]))
    left, right = np.divmod(pairs, max(1, signatures.num_rows))
    return left, right


@dataclass(frozen=True)
class SignatureColumns:
    """Narrow columns of D rows of `signatures`.

    Attributes:
        by_place: (D,) int64 rows by place.
        places: (D,) int64 their places, ascending.
        ranks: (D,) int64 of each row in the order (increment, place, doc_id).
        weights: (D,) int64 total weights.
        kinds: (D,) int64 number of the kind.
        versions: (D,) int64 number of the signature's version.
        bounds: (3, kinds) int64 numerator and denominator of the kind's threshold, least agreeing values.
        signatures: of each row.
    """

    by_place: Int64Array
    places: Int64Array
    ranks: Int64Array
    weights: Int64Array
    kinds: Int64Array
    versions: Int64Array
    bounds: Int64Array
    signatures: ByteRows

    @classmethod
    def of(cls, signatures: pa.Table, lowest: KindThreshold) -> SignatureColumns:
        """The columns of a table."""
        from spark_jobs.dedup.sketches.similarity import least_agreement

        places, increments = signatures.column("place").to_numpy(), signatures.column("increment").to_numpy()
        by_place = np.argsort(places, kind="stable")
        order = np.lexsort((places, increments))
        if len(signatures) > 1 and bool((np.diff(places[by_place]) == 0).any()):
            keys = signatures.select(["increment", "place", "doc_id"])
            order = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names]).to_numpy()
        ranks = np.empty(len(signatures), np.int64)
        ranks[order] = np.arange(len(signatures))
        kinds, names = _codes(signatures.column("kind"))
        limits = [exact(lowest.of(name)) for name in names]
        least = [least_agreement(limit, SIGNATURE_LOSS) for limit in limits]
        bounds = [[limit.numerator for limit in limits], [limit.denominator for limit in limits], least]
        return cls(
            by_place=by_place,
            places=places[by_place],
            ranks=ranks,
            weights=signatures.column("total_weight").to_numpy(),
            kinds=kinds,
            versions=_codes(signatures.column("signature_version"))[0],
            bounds=np.array(bounds, np.int64),
            signatures=ByteRows.of(signatures.column("signature")),
        )

    def agreeing(self, candidates: tuple[Int64Array, Int64Array]) -> Int64Array:
        """The agreeing pairs of candidates, each as left row * D + right row."""
        from spark_jobs.dedup.sketches.similarity import agreement_counts

        left, right = self._ends(*candidates)
        numerators, denominators, least = self.bounds[:, self.kinds[left]]
        lesser, greater = np.sort([self.weights[left], self.weights[right]], axis=0)
        possible = lesser * denominators >= greater * numerators
        for codes in (self.kinds, self.versions):
            possible &= codes[left] == codes[right]
        left, right, least = left[possible], right[possible], least[possible]
        values = [self.signatures.take(side)[1].reshape(len(side), SIGNATURE_VALUES) for side in (left, right)]
        agree = agreement_counts(values[0], values[1]) >= least
        pairs: Int64Array = np.unique(left[agree] * len(self.ranks) + right[agree])
        return pairs

    def _ends(self, first: Int64Array, second: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Row numbers of both documents of each candidate, the first in order on the left."""
        starts, counts = [], []
        for side in (first, second):
            # a place may have several rows, all of which are compared
            starts.append(np.searchsorted(self.places, side))
            counts.append(np.searchsorted(self.places, side, side="right") - starts[-1])
        combinations = counts[0] * counts[1]
        candidate = np.repeat(np.arange(len(first)), combinations)
        nth = np.arange(len(candidate)) - np.repeat(np.cumsum(combinations) - combinations, combinations)
        first_row = self.by_place[starts[0][candidate] + nth // counts[1][candidate]]
        other = self.by_place[starts[1][candidate] + nth % counts[1][candidate]]
        is_first = self.ranks[first_row] < self.ranks[other]
        left, right = np.where(is_first, first_row, other), np.where(is_first, other, first_row)
        two = left != right
        return left[two], right[two]


@dataclass(frozen=True)
class BagRows:
    """Bags, looked up by row.

    Attributes:
        ids: their documents.
        hashes: the column `token_hashes`.
        units: the column `units`.
        levels: the column `levels`.
    """

    ids: pa.ChunkedArray
    hashes: ByteRows
    units: ByteRows
    levels: ByteRows

    @classmethod
    def of(cls, rows: pa.Table) -> BagRows:
        """Of rows of `bags`."""
        return cls(rows.column("doc_id"), *(ByteRows.of(rows.column(name)) for name in BAG))

    def rows_of(self, ids: pa.Array | pa.ChunkedArray) -> Int64Array:
        """Row of each document; all are there."""
        rows: Int64Array = np.asarray(pc.index_in(ids, value_set=self.ids)).astype(np.int64)
        return rows

    def take(self, rows: Int64Array) -> Bags:
        """The bags of some rows."""
        from spark_jobs.dedup.bags.bag_arrays import bags_of_bytes

        return bags_of_bytes(*(column.take(rows) for column in (self.hashes, self.units, self.levels)))


class SimilarPairs(NamedTuple):
    """Similar pairs among P: (S,) int64 which ones, and (S,) int64 numerators and (S,) denominators of J."""

    pairs: Int64Array
    shared: Int64Array
    united: Int64Array


def similar(rows: tuple[Int64Array, Int64Array], bags: BagRows, least: tuple[Int64Array, Int64Array]) -> SimilarPairs:
    """Pairs at least as similar as their threshold, by their bags.

    Args:
        rows: (P,) of the left bags, and (P,) of the right ones.
        bags: at least all of them.
        least: (P,) numerators and (P,) denominators of the thresholds.
    """
    from spark_jobs.dedup.sketches.similarity import overlaps

    shared, united = np.zeros(len(rows[0]), np.int64), np.zeros(len(rows[0]), np.int64)
    read = np.cumsum(bags.hashes.sizes[rows[0]] + bags.hashes.sizes[rows[1]]) // _BLOCK_BYTES
    edges = [0, *(np.flatnonzero(np.diff(read)) + 1).tolist(), len(read)]
    for start, end in itertools.pairwise(edges):
        block = slice(start, end)
        shared[block], united[block] = overlaps(*(bags.take(side[block]) for side in rows))
    pairs = np.flatnonzero(shared * least[1] >= united * least[0])
    return SimilarPairs(pairs, shared[pairs], united[pairs])


def pair_batches(ends: tuple[pa.Table, pa.Table], alike: SimilarPairs) -> Pairs:
    """Columns left_* and right_* (`ENDS`), shared_weight and united_weight of similar pairs, row by row."""
    sides = {f"{side}_{name}": of.column(name) for side, of in zip(SIDES, ends, strict=True) for name in ENDS}
    rows = pa.table({**sides, "shared_weight": alike.shared, "united_weight": alike.united})
    yield from rows.combine_chunks().to_batches()


def _codes(column: pa.ChunkedArray) -> tuple[Int64Array, list[str]]:
    """(D,) int64 number of each value, and the values."""
    coded = (
        column.combine_chunks().dictionary_encode()
        if column.num_chunks
        else pa.array([], column.type).dictionary_encode()
    )
    return coded.indices.to_numpy().astype(np.int64), coded.dictionary.to_pylist()


def threshold_fractions(kinds: pa.ChunkedArray, lowest: KindThreshold) -> tuple[Int64Array, Int64Array]:
    """(D,) numerators and (D,) denominators of the lowest threshold of each of D documents."""
    return (
        of_kinds(kinds, lambda kind: exact(lowest.of(kind)).numerator),
        of_kinds(kinds, lambda kind: exact(lowest.of(kind)).denominator),
    )
