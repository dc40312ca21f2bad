"""The last rounds of comparisons of the pool, in one process.

Once all pairs of the kept documents were compared, a round compares the returned ones alone: what had removed them
was removed itself. They are a few dozen in each of a dozen rounds, so that a round must not read the pool again. Held
are 24 bytes for each token of a prefix, 20 for each pair of the graph, and 8 for each candidate so far.

    lists        token 5: documents 0 3 8     token 9: documents 3 7        of the whole pool
    8 came back  by token 5 it meets 0 and 3, if these are kept
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.kernels.compiling import compiled
from headrace.process.memory_limit import core_count
from spark_jobs.arrays import BoolArray, Int32Array, Int64Array
from spark_jobs.dedup.graph.growing_kept_set import GrowingKeptSet
from spark_jobs.dedup.graph.threshold_pairs import own_groups
from spark_jobs.dedup.near.comparison import SignatureColumns
from spark_jobs.dedup.near.prefix_join import lowest_group, threshold_terms
from spark_jobs.dedup.near.prefix_lists import RECORD, RECORDS_DDL, prefix_records
from spark_jobs.dedup.near.verification import PAIRS_DDL, opened
from spark_jobs.lake.engine.embedded import keep_batches
from spark_jobs.lake.engine.spooled_rows import mapped_rows
from spark_jobs.lake.engine.united import united
from spark_jobs.spark_sql import DataFrame

if TYPE_CHECKING:
    from spark_jobs.dedup.near.large_buckets import Comparisons

_PART_DOCUMENTS = 64  # that a thread compares: each part takes 8 bytes for every document of the pool


def last_rounds(state: Comparisons, compared: DataFrame) -> tuple[int, list[int]]:
    """Compare until no returned document has a new pair.

    Args:
        state: after a round over all pairs of kept documents; its pairs are added to.
        compared: rows (place, groups) of these documents.

    Returns:
        The number of rounds, and how many documents are kept in each group.
    """
    all_groups, first = own_groups(state.limits.thresholds)
    pool = state.pool.select(
        "place", "total_weight", "earlier", all_groups.alias("own"), first.alias("first")
    ).toArrow()
    pool = pool.sort_by("place")
    places, every = pool.column("place").to_numpy(), pool.column("own").to_numpy().astype(np.int32)
    lists = token_lists(pool, _records(state.pool.withColumn("groups", all_groups), state))
    groups = np.zeros(len(places), np.int32)
    before = compared.toArrow()
    groups[np.searchsorted(places, before.column("place").to_numpy())] = before.column("groups").to_numpy()
    with ExitStack() as open_files:
        done = open_files.enter_context(mapped_rows(united(state.compared)))
        candidates = Compared(lists, done.column("first").to_numpy(), done.column("second").to_numpy(), groups)
        edges = [open_files.enter_context(mapped_rows(frame)) for frame in state.edges]
        ends = [
            chunk.to_numpy() for rows in edges for name in ("worse", "better") for chunk in rows.column(name).chunks
        ]
        kept = GrowingKeptSet(np.unique(np.concatenate([places, *map(np.unique, ends)])))
        for rows in edges:
            _add(kept, rows)
    at = np.searchsorted(kept.ids, places)
    lowest, rounds = state.limits.thresholds.lowest, 0
    with opened(state.index, lowest) as documents:
        signed = SignatureColumns.of(documents.known, lowest)
        while True:
            groups = every & ~kept.removed[at]
            pairs = candidates.next(groups, state.thresholds)
            if not len(pairs[0]):
                numbers = pool.column("first").to_numpy()
                return rounds, [
                    int(np.count_nonzero(groups >> np.maximum(group, numbers) & 1))
                    for group in range(len(state.thresholds))
                ]
            left, right = np.divmod(signed.agreeing(pairs), len(documents.known))
            similar = documents.similar([(left, right)])
            state.take((keep_batches(compared.sparkSession, similar, PAIRS_DDL), ()))
            state.candidate_count += len(pairs[0])
            with mapped_rows(state.edges[-1]) as rows:
                _add(kept, rows)
            rounds += 1


def _records(pool: DataFrame, state: Comparisons) -> NDArray[np.void]:
    """Records of all tokens in prefixes of the pool's documents."""
    emit = partial(prefix_records, counters=state.counters, thresholds=state.thresholds, partition_count=1)
    with mapped_rows(pool.mapInArrow(emit, RECORDS_DDL)) as rows:
        blocks = [np.frombuffer(block.as_buffer(), RECORD) for block in rows.column("records")]
        return np.concatenate([np.zeros(0, RECORD), *blocks])


def _add(kept: GrowingKeptSet, edges: pa.Table) -> None:
    """Take edges (groups, worse, better) into the graph."""
    for batch in edges.combine_chunks().to_batches():
        columns = (batch.column(name).to_numpy() for name in ("groups", "worse", "better"))
        kept.add(*columns)


class Lists(NamedTuple):
    """Documents by the tokens of their prefixes: D documents, L lists, R records of a token and a document.

    Attributes:
        places: (D,) int64 ascending.
        totals: (D,) int64 total weights.
        earlier: (D,) bool whether it came in an earlier increment; two such are not compared.
        begins: (L + 1,) int64 where the records of each list begin.
        members: (R,) int32 documents, list by list.
        suffixes: (R,) int64 weight of the token and of all after it in that document.
        lists: (R,) int32 the list of each record.
        document_begins: (D + 1,) int64 where the records of each document begin.
        records: (R,) int64 records, document by document.
    """

    places: Int64Array
    totals: Int64Array
    earlier: BoolArray
    begins: Int64Array
    members: Int32Array
    suffixes: Int64Array
    lists: Int32Array
    document_begins: Int64Array
    records: Int64Array


def token_lists(pool: pa.Table, records: NDArray[np.void]) -> Lists:
    """Lists of the records (`prefix_lists.prefix_records`) of all documents of the pool.

    Args:
        pool: columns place, total_weight, earlier, by place.
        records: of all tokens in prefixes, at the lowest groups of each document.
    """
    places = pool.column("place").to_numpy()
    order = np.argsort(records["token"], kind="stable")
    tokens = records["token"][order]
    is_first = np.append(True, tokens[1:] != tokens[:-1])[: len(tokens)]
    members = np.searchsorted(places, records["place"][order]).astype(np.int32)
    return Lists(
        places=places,
        totals=pool.column("total_weight").to_numpy(),
        earlier=pool.column("earlier").to_numpy(zero_copy_only=False),
        begins=np.append(np.flatnonzero(is_first), len(tokens)),
        members=members,
        suffixes=records["suffix"][order],
        lists=(np.cumsum(is_first) - 1).astype(np.int32),
        document_begins=np.concatenate([[0], np.cumsum(np.bincount(members, minlength=len(places)))]),
        records=np.argsort(members, kind="stable"),
    )


class Compared:
    """The former candidates, and the documents compared with all kept ones, with the groups."""

    def __init__(self, lists: Lists, first: Int64Array, second: Int64Array, groups: Int32Array) -> None:
        """The state after a round over all pairs of kept documents.

        Args:
            lists: of the pool.
            first: (C,) int64 places of the candidates so far.
            second: (C,) int64 places.
            groups: (D,) int32 groups keeping each document in that round.
        """
        ends = np.sort([np.searchsorted(lists.places, side) for side in (first, second)], axis=0)
        self._lists, self._groups = lists, groups
        self._keys = np.sort(ends[0] << 32 | ends[1])

    def next(self, groups: Int32Array, thresholds: tuple[Fraction, ...]) -> tuple[Int64Array, Int64Array]:
        """New candidates, as (P,) and (P,) places: pairs with a returned document.

        Pairs of two others were made when the later of them came back, as they were kept in these groups ever since.

        Args:
            groups: (D,) int32 groups keeping each document now.
            thresholds: of each group.
        """
        returned = np.flatnonzero(groups & ~self._groups)
        self._groups = groups
        meet = partial(_meet, groups=groups, lists=self._lists, terms=threshold_terms(thresholds))
        count = min(4 * core_count(), 1 + len(returned) // _PART_DOCUMENTS)
        with ThreadPoolExecutor(core_count()) as threads:
            keys = np.unique(np.concatenate(list(threads.map(meet, np.array_split(returned, count)))))
        at = np.minimum(np.searchsorted(self._keys, keys), max(0, len(self._keys) - 1))
        keys = keys[self._keys[at] != keys] if len(self._keys) else keys
        self._keys = np.sort(np.concatenate([self._keys, keys]), kind="stable")
        return self._lists.places[keys >> 32], self._lists.places[keys & 0xFFFFFFFF]


@compiled
def _meet(documents: Int64Array, groups: Int32Array, lists: Lists, terms: tuple[Int64Array, Int64Array]) -> Int64Array:
    """Pairs of some documents with all that they can be similar to, as lesser document << 32 | greater one."""
    numerators, denominators = terms
    pairs = np.empty(1024, np.int64)
    filled = 0
    met = np.full(groups.size, -1, np.int64)
    for document in documents:
        for at in range(lists.document_begins[document], lists.document_begins[document + 1]):
            record = lists.records[at]
            for entry in range(lists.begins[lists.lists[record]], lists.begins[lists.lists[record] + 1]):
                other = np.int64(lists.members[entry])
                common = groups[document] & groups[other]
                if other == document or not common or met[other] == document:
                    continue
                if lists.earlier[document] and lists.earlier[other]:
                    continue
                group = lowest_group(common)
                suffix = min(lists.suffixes[record], lists.suffixes[entry])
                # J >= n / d shares n / (n + d) of both totals, and from here on they share the lesser suffix at most
                needed = numerators[group] * (lists.totals[document] + lists.totals[other])
                if suffix * (numerators[group] + denominators[group]) < needed:
                    continue
                met[other] = document
                if filled == pairs.size:
                    larger = np.empty(2 * filled, np.int64)
                    larger[:filled] = pairs
                    pairs = larger
                pairs[filled] = min(document, other) << 32 | max(document, other)
                filled += 1
    return pairs[:filled]
