"""The keyed permutation: a bijection, the same in every version, even for small tables."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from blender_service.order.resolve import source_key
from tests.blender_service import simulator
from tests.blender_service.order.plain_permutation import grouping, mix, permute, shuffle, tweak
from tests.tiers import tries

words = st.integers(0, 2**64 - 1)


def test_golden_values_never_change() -> None:
    """Seed 17 and name a give these words and places in every version of order 1."""
    word = tweak(source_key(17, "a"), 0, 0, 0)
    assert source_key(17, "a") == 0xA6C7D50E2F49DBE5
    assert word == 0x72CD1FD098603B8C
    assert permute(np.arange(10, dtype=np.uint64), word, 10).tolist() == [1, 7, 6, 5, 8, 9, 2, 3, 0, 4]
    assert permute(np.arange(4, dtype=np.uint64), word, 257).tolist() == [45, 90, 128, 155]
    assert permute(np.arange(3, dtype=np.uint64), word, 1 << 20).tolist() == [404805, 754746, 439028]
    assert permute(np.arange(3, dtype=np.uint64), word, 10**9).tolist() == [364372280, 758910161, 603860865]


@given(word=words, size=st.integers(1, 2000))
@settings(max_examples=tries(60))
def test_permute_is_a_bijection(word: int, size: int) -> None:
    """Every place is reached once, for every word and size."""
    assert sorted(permute(np.arange(size, dtype=np.uint64), word, size).tolist()) == list(range(size))


@given(word=words, size=st.integers(1, 10**12), data=st.data())
@settings(max_examples=tries(60))
def test_permute_equals_a_row_by_row_one(word: int, size: int, data: st.DataObject) -> None:
    """The vectorised form equals plain integers, up to 10**12 rows."""
    places = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=5))
    expected = [simulator.permute(place, word, size) for place in places]
    assert permute(np.array(places, dtype=np.uint64), word, size).tolist() == expected


@given(seed=words, epoch=st.integers(0, 5), size=st.integers(1, 200), block=st.integers(1, 40), group=st.integers(1, 6))
@settings(max_examples=tries(40))
def test_shuffle_equals_written_out_groups(seed: int, epoch: int, size: int, block: int, group: int) -> None:
    """The grouped permutation is the one that permutes lists of blocks and then the rows of each group."""
    word = tweak(source_key(seed, "a"), 0, epoch, 0)
    shuffled = shuffle(np.arange(size, dtype=np.uint64), word, size, block, group).tolist()
    assert shuffled == simulator.epoch_order(seed, "a", epoch, size, block, group)
    assert sorted(shuffled) == list(range(size))


@given(word=words, block=st.integers(1, 30), group=st.integers(1, 6), blocks=st.integers(1, 40), short=st.data())
@settings(max_examples=tries(60))
def test_a_group_touches_no_more_blocks_than_it_may(
    word: int, block: int, group: int, blocks: int, short: st.DataObject
) -> None:
    """Rows of one group lie in at most `group_blocks` blocks: a reader needs no more in memory."""
    size = (blocks - 1) * block + short.draw(st.integers(1, block))
    ordinals = shuffle(np.arange(size, dtype=np.uint64), word, size, block, group).astype(np.int64)
    at = grouping(word, size, block, group)
    assert at.block_count == blocks
    start = 0
    while start < size:
        is_short = start == at.rows_before
        length = at.short_group_rows if is_short else block * min(group, blocks - start // (block * group) * group)
        assert len(set((ordinals[start : start + length] // block).tolist())) <= group
        start += max(1, length)


def test_mix_is_splitmix64() -> None:
    """First outputs of splitmix64 from seed 0, as its authors publish them."""
    assert mix(0) == 0xE220A8397B1DCDAF
    assert mix(0x9E3779B97F4A7C15) == 0x6E789E6AA1B965F4
