"""Bags are read from their columns as they lie."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.dedup.bags.bag_arrays import Bags, bags_from_columns, token_weights, total_weights
from spark_jobs.exceptions import TableMismatchError
from tests.spark_jobs.dedup.made_bags import Bag, bags_of

bag_lists = st.lists(
    st.dictionaries(st.integers(0, 2**64 - 1), st.tuples(st.integers(0, 255), st.integers(0, 255)), max_size=5),
    max_size=8,
)


def columns_of(bags: Bags, binary: pa.DataType) -> list[pa.Array]:
    """The three columns of the table `bags`."""
    rows = list(zip(bags.offsets[:-1].tolist(), bags.offsets[1:].tolist(), strict=True))
    return [
        pa.array([values[start:end].tobytes() for start, end in rows], type=binary)
        for values in (bags.hashes.astype("<u8"), bags.units, bags.levels)
    ]


@given(bag_lists, st.sampled_from([pa.binary(), pa.large_binary()]), st.integers(0, 3), st.integers(0, 3))
def test_any_slice_of_columns_gives_its_bags(bags: list[Bag], binary: pa.DataType, skip: int, drop: int) -> None:
    """Offsets of a slice are honoured, for both widths of binary columns; weights and totals are those of the bags."""
    kept = bags[skip : max(skip, len(bags) - drop)]
    columns = [column.slice(skip, len(kept)) for column in columns_of(bags_of(bags), binary)]
    read, wanted = bags_from_columns(*columns), bags_of(kept)
    assert len(read) == len(kept)
    for name in ("offsets", "hashes", "units", "levels"):
        assert np.array_equal(getattr(read, name), getattr(wanted, name))
        assert getattr(read, name).dtype == getattr(wanted, name).dtype
    weights = [[unit * level for _, (unit, level) in sorted(bag.items())] for bag in kept]
    assert token_weights(read).tolist() == [weight for row in weights for weight in row]
    assert total_weights(read).tolist() == [sum(row) for row in weights]


def test_hashes_are_not_copied() -> None:
    """The hashes lie where Arrow has them."""
    column = columns_of(bags_of([{5: (1, 1), 9: (2, 2)}, {7: (1, 1)}]), pa.binary())
    read = bags_from_columns(*column)
    assert read.hashes.ctypes.data == column[0].buffers()[2].address


@pytest.mark.parametrize(
    ("hashes", "units", "levels", "message"),
    [
        ([b"12345678", None], [b"1", b"1"], [b"1", b"1"], "1 nulls in token_hashes, wanted none"),
        ([b"12345678"], [b"12"], [b"1"], "differ in their number of tokens"),
        ([b"1234567"], [b"1"], [b"1"], "differ in their number of tokens"),
        ([b"12345678"], [b"1"], [b"12"], "differ in their number of tokens"),
        ([b"12345678"], [b"1"], [b"1", b""], "differ in their number of tokens"),
    ],
)
def test_columns_that_are_no_bags_are_refused(
    hashes: list[bytes | None], units: list[bytes], levels: list[bytes], message: str
) -> None:
    """A null, or columns of different lengths, is an error that says which."""
    with pytest.raises(TableMismatchError, match=message):
        bags_from_columns(*(pa.array(values, type=pa.binary()) for values in (hashes, units, levels)))
