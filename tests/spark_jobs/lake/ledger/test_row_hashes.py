"""The row hash is that of a slow reference over Python values, however Arrow holds them."""

from __future__ import annotations

import datetime
import hashlib
import math
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.exceptions import TableMismatchError
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.row_hashes import row_hashes, version_of_batch, versions_by_increment

_MASK = 2**64 - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def xxh64(data: bytes, seed: int = 0) -> int:
    """XXH64 as its specification says it."""

    def rotated(x: int, bits: int) -> int:
        return ((x << bits) | (x >> (64 - bits))) & _MASK

    def in_lane(lane: int, word: int) -> int:
        return rotated((lane + word * _P2) & _MASK, 31) * _P1 & _MASK

    length = len(data)
    if length >= 32:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        while len(data) >= 32:
            lanes = [in_lane(lane, word) for lane, word in zip(lanes, struct.unpack("<4Q", data[:32]), strict=True)]
            data = data[32:]
        state = sum(rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            state = ((state ^ in_lane(0, lane)) * _P1 + _P4) & _MASK
    else:
        state = (seed + _P5) & _MASK
    state = (state + length) & _MASK
    while len(data) >= 8:
        state = (rotated(state ^ in_lane(0, *struct.unpack("<Q", data[:8])), 27) * _P1 + _P4) & _MASK
        data = data[8:]
    if len(data) >= 4:
        state = (rotated(state ^ (struct.unpack("<I", data[:4])[0] * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        data = data[4:]
    for byte in data:
        state = rotated(state ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    state = (state ^ (state >> 33)) * _P2 & _MASK
    state = (state ^ (state >> 29)) * _P3 & _MASK
    return state ^ (state >> 32)


def of_word(word: int, seed: int = 0) -> int:
    """XXH64 of one word."""
    return xxh64((word & _MASK).to_bytes(8, "little"), seed & _MASK)


def of_fields(fields: dict[str, int | None]) -> int:
    """The word of a struct whose fields have these words."""
    tags = {name: int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") for name in fields}
    return of_word(sum(of_word(word, tags[name]) for name, word in fields.items() if word is not None))


def word_of(value: Any, kind: pa.DataType) -> int | None:  # noqa: PLR0911  a case a line
    """The word of a Python value of a type, as the module of the kernel says it; None of a null."""
    if value is None:
        return None
    if pa.types.is_dictionary(kind):
        return word_of(value, kind.value_type)
    if pa.types.is_floating(kind):
        number = np.nan if math.isnan(value) else 0.0 if value == 0 else value
        return int(np.float64(number).view(np.uint64))
    if pa.types.is_decimal(kind):
        unscaled = int(value.scaleb(kind.scale, _EXACT))
        return xxh64(unscaled.to_bytes(16, "little", signed=True), kind.scale & _MASK)
    if isinstance(value, str | bytes):
        return xxh64(value.encode() if isinstance(value, str) else value)
    if pa.types.is_struct(kind):
        return of_fields({field.name: word_of(value[field.name], field.type) for field in kind})
    if pa.types.is_map(kind):
        entries = [
            of_fields({"key": word_of(key, kind.key_type), "value": word_of(item, kind.item_type)})
            for key, item in value
        ]
        return of_word(sum(entries), len(entries))
    if isinstance(value, list):
        words = [word_of(item, kind.value_type) for item in value]
        hashed = xxh64(b"".join(((word or 0) & _MASK).to_bytes(8, "little") for word in words))
        for position in (at for at, word in enumerate(words) if word is None):
            hashed = of_word(position, hashed)
        return hashed
    if isinstance(value, datetime.datetime):
        since = value - datetime.datetime(1970, 1, 1, tzinfo=value.tzinfo and datetime.UTC)
        return since // datetime.timedelta(microseconds=1)
    if isinstance(value, datetime.date):
        return (value - datetime.date(1970, 1, 1)).days
    if isinstance(value, datetime.time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 10**6 + value.microsecond
    return int(value)


def reference(rows: pa.RecordBatch) -> list[int]:
    """The signed hashes of rows, by `word_of`."""
    hashes = [
        of_fields({field.name: word_of(row[field.name], field.type) for field in rows.schema})
        for row in rows.to_pylist()
    ]
    return [hashed - 2**64 if hashed >= 2**63 else hashed for hashed in hashes]


def _exact() -> Any:
    import decimal

    return decimal.Context(prec=80)


_EXACT = _exact()
_TEXTS = st.one_of(st.text(max_size=9), st.sampled_from(["", "null", "é漢🙂" * 20, "x" * 31, "y" * 32, "\x00"]))
_DOUBLES = st.one_of(
    st.floats(), st.sampled_from([float("nan"), -float("nan"), -0.0, 0.0, 1e-7, 1e-4, 0.001, 1e7, 2e23, 5e-324, 1 / 3])
)
_TIMES = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2400, 1, 1))
_FLAT: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.one_of(st.floats(width=32), st.sampled_from([float(np.float32(0.1)), -0.0, float("nan")])),
    pa.float64(): _DOUBLES,
    pa.date32(): st.dates(),
    pa.timestamp("us"): _TIMES,
    pa.timestamp("s"): _TIMES.map(lambda at: at.replace(microsecond=0)),
    pa.timestamp("us", "UTC"): _TIMES.map(lambda at: at.replace(tzinfo=datetime.UTC)),
    pa.time64("us"): st.times(),
    pa.string(): _TEXTS,
    pa.large_string(): _TEXTS,
    pa.string_view(): _TEXTS,
    pa.binary(): st.binary(max_size=40),
    pa.binary_view(): st.binary(max_size=40),
    pa.binary(16): st.binary(min_size=16, max_size=16),
    pa.dictionary(pa.int32(), pa.string()): _TEXTS,
    pa.decimal128(38, 10): st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(n).scaleb(-10, _EXACT)),
    pa.decimal128(18, 3): st.integers(-(10**18) + 1, 10**18 - 1).map(lambda n: Decimal(n).scaleb(-3)),
    pa.decimal256(20, 0): st.integers(-(10**20) + 1, 10**20 - 1).map(Decimal),
}
Typed = tuple[pa.DataType, st.SearchStrategy[Any]]


def _nested(inner: Typed) -> st.SearchStrategy[Typed]:
    """Lists, maps and structs of a type."""
    kind, values = inner
    maybe = st.none() | values
    shapes: list[Typed] = [
        (pa.list_(kind), st.lists(maybe, max_size=6)),
        (pa.large_list(kind), st.lists(maybe, max_size=6)),
        (pa.list_(kind, 2), st.lists(maybe, min_size=2, max_size=2)),
        (pa.map_(pa.string(), kind), st.dictionaries(_TEXTS, maybe, max_size=4).map(lambda made: list(made.items()))),
        (
            pa.struct({"a": kind, "b": pa.int32()}),
            st.fixed_dictionaries({"a": maybe, "b": st.none() | st.integers(0, 9)}),
        ),
    ]
    return st.sampled_from(shapes)


_KINDS = st.recursive(st.sampled_from([*_FLAT.items()]), lambda inner: inner.flatmap(_nested), max_leaves=3)


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    """Up to a dozen rows of one to three columns of any type, at any depth."""
    kinds = draw(st.lists(_KINDS, min_size=1, max_size=3))
    count = draw(st.integers(0, 12))
    columns = [
        pa.array(draw(st.lists(st.none() | values, min_size=count, max_size=count)), kind) for kind, values in kinds
    ]
    return pa.RecordBatch.from_arrays(columns, names=[f"c{number}" for number in range(len(columns))])


@given(batches(), st.integers(0, 12), st.integers(0, 12))
def test_hashes_are_those_of_the_reference(rows: pa.RecordBatch, start: int, count: int) -> None:
    """Of rows, of a slice of them, and of columns in another order with one beside them that is null."""
    expected = reference(rows)
    assert row_hashes(rows).tolist() == expected
    assert row_hashes(rows.slice(start, count)).tolist() == expected[start : start + count]
    others = [pa.nulls(rows.num_rows, pa.list_(pa.int32())), *reversed(rows.columns)]
    names = ["later", *reversed(rows.schema.names)]
    assert row_hashes(pa.RecordBatch.from_arrays(others, names=names)).tolist() == expected


def test_how_arrow_holds_values_does_not_count() -> None:
    """Wider numbers, offsets of 64 bits, dictionaries, runs, views, lists with garbage under nulls: equal hashes."""
    texts = ["a", None, "", "a", "b" * 40]
    lists = [[1, 2], None, [], [3], [4, None, 5]]
    held: list[list[pa.Array]] = [
        [pa.array(texts, kind) for kind in (pa.string(), pa.large_string(), pa.string_view())]
        + [pa.array(texts).dictionary_encode(), pc.run_end_encode(pa.array(texts))],
        [pa.array([1, None, -5, 2**31 - 1], kind) for kind in (pa.int32(), pa.int64())],
        [pa.array([0.5, None, float(np.float32(0.1)), float("nan")], kind) for kind in (pa.float32(), pa.float64())],
        [pa.array([Decimal("1.50"), None], kind) for kind in (pa.decimal128(5, 2), pa.decimal128(38, 2))],
        [pa.array(lists, kind) for kind in (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.large_list(pa.int32()))]
        + [pa.ListArray.from_arrays([0, 2, 4, 4, 5, 8], [1, 2, 8, 9, 3, 4, None, 5], mask=pa.array(lists).is_null())],
        [pa.array([datetime.datetime(2026, 1, 1), None], pa.timestamp(unit)) for unit in ("s", "ms", "us")],
        [
            pa.array([[("a", 1.0), ("b", None)]], pa.map_(pa.string(), pa.float64())),
            pa.array([[("b", None), ("a", 1.0)]], pa.map_(pa.large_string(), pa.float64())),
        ],
    ]
    for arrays in held:
        first, *others = (row_hashes(pa.RecordBatch.from_arrays([array], names=["x"])).tolist() for array in arrays)
        assert all(other == first for other in others)
        assert len(set(first)) == len({str(value) for value in arrays[0].to_pylist()})


_T = datetime.datetime(2026, 1, 2, 3, 4, 5, 600700)
_SCHEMA = pa.schema(
    {
        "a": pa.string(),
        "b": pa.string(),
        "n": pa.int64(),
        "x": pa.float64(),
        "d": pa.decimal128(38, 3),
        "t": pa.timestamp("us", "UTC"),
        "ids": pa.list_(pa.int32()),
        "more": pa.list_(pa.string()),
        "s": pa.struct({"p": pa.string(), "q": pa.int32()}),
        "m": pa.map_(pa.string(), pa.string()),
        "deep": pa.list_(pa.struct({"k": pa.map_(pa.string(), pa.list_(pa.int32()))})),
        "floats": pa.list_(pa.float32()),
    }
)
_BASE: dict[str, Any] = {
    "a": "x",
    "b": "y",
    "n": 1,
    "x": 0.5,
    "t": _T,
    "ids": [1, 2],
    "more": ["p", None],
    "s": {"p": "v", "q": None},
    "m": {"k": "v", "l": None},
    "deep": [{"k": {"a": [1], "b": [2]}}, None],
    "floats": [0.5, None],
}


def test_every_difference_is_seen() -> None:
    """Rows that differ in one value only, at any depth, have different hashes; nulls and shifted bounds too."""
    changes: list[dict[str, Any]] = [
        {},
        {"a": "y", "b": "x"},
        {"a": None, "b": "x"},
        {"a": "x", "b": None},
        {"a": "xy", "b": ""},
        {"a": "", "b": "xy"},
        {"a": None},
        {"a": ""},
        {"n": None},
        {"n": 0},
        {"n": -1},
        {"x": None},
        {"x": 0.0},
        {"x": float("nan")},
        {"x": float("inf")},
        {"x": -float("inf")},
        {"d": Decimal("1.000")},
        {"d": Decimal("1.001")},
        {"d": Decimal("12345678901234567890123456789012345.001")},
        {"d": Decimal("12345678901234567890123456789012345.002")},
        {"t": _T.replace(microsecond=600701)},
        {"ids": [1], "more": ["2", "p", None]},
        {"ids": [2, 1]},
        {"ids": [1, 2, 0]},
        {"ids": [1, 2, None]},
        {"ids": [None, 1, 2]},
        {"ids": [0, 1, 2]},
        {"ids": [0]},
        {"ids": [0, 0]},
        {"ids": [None]},
        {"ids": [None, None]},
        {"ids": []},
        {"ids": None},
        {"ids": [*range(4)]},
        {"ids": [*range(4), 0]},
        {"more": [None, "p"]},
        {"more": ["p"]},
        {"more": ["p", ""]},
        {"more": ["p", "null"]},
        {"more": []},
        {"more": None},
        {"more": [None]},
        {"s": {"p": None, "q": None}},
        {"s": None},
        {"s": {"p": "v", "q": 0}},
        {"m": {}},
        {"m": None},
        {"m": {"k": "v"}},
        {"m": {"k": "v", "l": ""}},
        {"m": {"k": None, "l": "v"}},
        {"m": {"v": "k", "l": None}},
        {"deep": [{"k": {"a": [2], "b": [1]}}, None]},
        {"deep": [{"k": {"a": [1], "b": [2]}}]},
        {"deep": [None, {"k": {"a": [1], "b": [2]}}]},
        {"deep": [{"k": None}, None]},
        {"deep": [{"k": {"a": [1], "b": None}}, None]},
        {"floats": [0.1, None]},
        {"floats": [1e-7, None]},
        {"floats": [1e-5, None]},
    ]
    rows = pa.RecordBatch.from_pylist([{**_BASE, **change} for change in changes], _SCHEMA)
    assert len(set(row_hashes(rows).tolist())) == len(changes)
    assert row_hashes(rows).tolist() == reference(rows)


def test_golden_hashes() -> None:
    """Values that no later version may change, by the names of their columns."""
    rows = pa.RecordBatch.from_pylist([_BASE, {}, {**_BASE, "d": Decimal("9" * 35 + ".125")}], _SCHEMA)
    assert row_hashes(rows).tolist() == [1893702802467103940, 3803688792395291579, -7517050227906676050]


def test_zeros_and_nans_are_one_value_at_any_depth() -> None:
    """As in SQL: 0.0 and -0.0 join and group together, and so do all NaNs."""
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], np.uint64).view(np.float64)
    for values in (pa.array(bits), pa.array([0.0, -0.0])):
        lists = pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), values)
        for column in (values, lists):
            assert len(set(row_hashes(pa.RecordBatch.from_arrays([column], names=["x"])).tolist())) == 1


def test_increments_have_versions_of_their_own() -> None:
    """The rows of each number, and the versions add up to that of all."""
    rows = pa.RecordBatch.from_pydict({"increment": [0, 2, 0, 2, 2], "x": [1.0, 2.0, None, 2.0, 3.0]})
    versions = versions_by_increment(rows)
    assert {number: version.count for number, version in versions.items()} == {0: 2, 2: 3}
    assert versions[0] == version_of_batch(rows.take([0, 2]))
    assert sum(versions.values(), DataVersion()) == version_of_batch(rows)


def test_no_rows_have_no_hashes() -> None:
    """An empty batch of every type is fine."""
    assert row_hashes(pa.RecordBatch.from_pylist([], _SCHEMA)).tolist() == []


def test_a_type_that_no_table_has_is_refused() -> None:
    """The message names it."""
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
    with pytest.raises(TableMismatchError, match=r"union.* has no data version"):
        row_hashes(pa.RecordBatch.from_arrays([union], names=["x"]))
