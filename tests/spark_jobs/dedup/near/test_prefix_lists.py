"""Lists of tokens as functions of workers, against loops over single documents."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.dedup.bags.bag_arrays import binary_column
from spark_jobs.dedup.near.prefix_lists import (
    RECORD,
    count_pool_tokens,
    list_candidates,
    prefix_records,
    sum_counters,
)
from tests.spark_jobs.dedup.near.test_prefix_join import THRESHOLDS, Weights, as_bags, documents_of, similarity

Record = tuple[int, int, bool]
Row = tuple[int | None, int | None, int]


def pool(rows: list[Weights], groups: list[int], earlier: list[bool]) -> pa.RecordBatch:
    """Documents of the pool in places that descend."""
    bags = as_bags(rows)
    columns = {"token_hashes": bags.hashes, "units": bags.units, "levels": bags.levels}
    return pa.RecordBatch.from_pydict(
        {
            "place": pa.array([1000 - number for number in range(len(rows))], pa.int64()),
            "total_weight": pa.array([sum(u * n for u, n in row.values()) for row in rows], pa.int64()),
            "groups": pa.array(groups, pa.int32()),
            "earlier": earlier,
            **{name: binary_column(values, bags.offsets) for name, values in columns.items()},
        }
    )


def batches_of(whole: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """The same in small batches, the last one empty."""
    return (whole.slice(start, size) for start in range(0, whole.num_rows + size, size))


def test_counters_of_workers_add_up() -> None:
    """Each token of each document once, and how many documents there were; nobody's counters are none."""
    whole = pool(documents_of(np.random.default_rng(1)), [7] * 120, [False] * 120)
    (alone,) = count_pool_tokens([whole])
    shares = [whole.slice(start, count) for start, count in ((0, 50), (50, 70), (120, 0))]
    parts = [part for share in shares for part in count_pool_tokens(batches_of(share, 20))]
    (summed,) = sum_counters([pa.concat_batches(parts[:2]), parts[2]])
    assert summed.to_pylist() == alone.to_pylist()
    counters = np.frombuffer(alone.column("counters")[0].as_py(), np.uint32)
    assert counters.sum() == len(as_bags(documents_of(np.random.default_rng(1))).hashes)
    assert alone.column("documents").to_pylist() == [120]
    (nothing,) = sum_counters([])
    assert nothing.column("documents").to_pylist() == [0] and not any(nothing.column("counters")[0].as_py())


@pytest.mark.parametrize("partitions", [1, 3])
def test_every_similar_pair_of_the_pool_is_a_candidate_of_some_partition(partitions: int) -> None:
    """From documents to candidates, whatever the batches; a block goes to the partition of its tokens alone."""
    draw = np.random.default_rng(4)
    rows = documents_of(draw)
    groups, earlier = draw.integers(1, 8, len(rows)).tolist(), (draw.random(len(rows)) < 0.3).tolist()
    whole = pool(rows, groups, earlier)
    (counted,) = count_pool_tokens([whole])
    made = prefix_records(batches_of(whole, 50), counted.column("counters")[0].as_py(), THRESHOLDS, partitions)
    blocks = [(row["part"], row["records"]) for batch in made for row in batch.to_pylist()]
    assert {part for part, _ in blocks} == set(range(partitions))
    tokens: dict[int, set[int]] = {}
    found: set[frozenset[int]] = set()
    for part in range(partitions):
        own = [block for number, block in blocks if number == part]
        assert all(own)
        tokens[part] = {int(token) for block in own for token in np.frombuffer(block, RECORD)["token"]}
        batch = pa.RecordBatch.from_pydict({"part": [part] * len(own), "records": pa.array(own, pa.binary())})
        *pairs, last = (row for out in list_candidates([batch], THRESHOLDS, None, 1, 10**9) for row in out.to_pylist())
        assert last == {"first": None, "second": None, "shared": 0}
        found |= {frozenset((row["first"], row["second"])) for row in pairs}
    assert sum(map(len, tokens.values())) == len(set().union(*tokens.values()))
    expected = set()
    for one, other in itertools.combinations(range(len(rows)), 2):
        common = groups[one] & groups[other]
        if not common or (earlier[one] and earlier[other]):
            continue
        if similarity(rows[one], rows[other]) >= THRESHOLDS[(common & -common).bit_length() - 1]:
            expected.add(frozenset((1000 - one, 1000 - other)))
    assert len(expected) > 5 and expected <= found


def records_of(records: list[Record]) -> list[pa.RecordBatch]:
    """Records (token, place, earlier) of documents that can all reach each other, in two batches of blocks."""
    made = np.array([(token, place, 10, 10, 1, earlier) for token, place, earlier in records], RECORD)
    blocks = [made[start : start + 3].tobytes() for start in range(0, len(made), 3)]
    half = len(blocks) // 2
    return [
        pa.RecordBatch.from_pydict({"records": pa.array(part, pa.binary())}) for part in (blocks[:half], blocks[half:])
    ]


def rows_by_loop(records: list[Record], pivots: int | None, most: int) -> tuple[set[Row], int]:
    """The pairs in words: of short lists all; of long ones the first members with all after them, counted.

    Returns:
        Rows of `CHOSEN_DDL` without the last, and the members of long lists.
    """
    short: set[Row] = set()
    led: Counter[tuple[int, int]] = Counter()
    members = 0
    for token in {token for token, *_ in records}:
        own = sorted((not earlier, place) for other, place, earlier in records if other == token)
        pairs = [(a, b) for a, b in itertools.combinations(own, 2) if a[0] or b[0]]
        if pivots is not None and len(own) * (len(own) - 1) // 2 > most:
            members += len(own)
            led.update((a[1], b[1]) for a, b in pairs if own.index(a) < pivots)
        elif pivots != 1:
            short |= {(a[1], b[1], 0) for a, b in pairs}
    return short | {(*pair, count) for pair, count in led.items()}, members


@pytest.mark.parametrize("pivots", [None, 1, 2, 8])
@pytest.mark.parametrize("most", [1, 5, 6, 9, 10])
def test_short_lists_give_all_pairs_and_long_ones_those_of_their_first_members(pivots: int | None, most: int) -> None:
    """A list of n members is long above `most` of its n (n - 1) / 2 pairs; the last row counts members of long ones.

    Of lists that share members a pair of pivots counts how many have it; two earlier documents are no pair.
    """
    sizes = {11: 1, 12: 2, 13: 3, 14: 4, 15: 5, 16: 4}
    records = [(token, 50 - place, place > 2) for token, size in sizes.items() for place in range(size)]
    records = [records[at] for at in np.random.default_rng(most).permutation(len(records))]
    out = list(list_candidates(records_of(records), (Fraction(1, 2),), pivots, most, 10**6))
    *rows, last = (tuple(row.values()) for batch in out for row in batch.to_pylist())
    expected, members = rows_by_loop(records, pivots, most)
    assert last == (None, None, members)
    assert set(rows) == expected and len(rows) == len(expected)


def test_more_pairs_than_may_be_are_given_up() -> None:
    """Six pairs of four members are made where six may be, and -1 is said where five may; with pivots none are."""
    records = [(9, place, False) for place in range(4)]
    for pivots, most, last in ((None, 6, 0), (None, 5, -1), (8, 5, 0)):
        *rows, end = (
            row
            for out in list_candidates(records_of(records), (Fraction(1, 2),), pivots, 99, most)
            for row in out.to_pylist()
        )
        assert end == {"first": None, "second": None, "shared": last}
        assert len(rows) == (0 if last else 6)


def test_a_partition_without_records_has_no_pair() -> None:
    """One row says so."""
    for pivots in (None, 1):
        rows = [row for out in list_candidates([], THRESHOLDS, pivots, 1, 1) for row in out.to_pylist()]
        assert rows == [{"first": None, "second": None, "shared": 0}]
