"""VARIANT of Parquet is the JSON that it stands for, and columns whose type Arrow does not say have their values."""

from __future__ import annotations

import datetime
import io
import json
import random
import struct
import uuid
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.sources.config.source_config import FilesSource
from spark_jobs.sources.formats.parquet_records import parquet_records
from spark_jobs.sources.formats.variants import is_variant, variant_values
from spark_jobs.sources.records.records import Record, Refused

DAY, MOMENT = datetime.date(2026, 1, 31), 1_769_860_800_500_000
PRIMITIVES: list[tuple[bytes, Any]] = [
    (b"\x00", None),
    (b"\x04", True),
    (b"\x08", False),
    (b"\x0c" + struct.pack("<b", -7), -7),
    (b"\x10" + struct.pack("<h", -700), -700),
    (b"\x14" + struct.pack("<i", 1 << 30), 1 << 30),
    (b"\x18" + struct.pack("<q", -(1 << 62)), -(1 << 62)),
    (b"\x1c" + struct.pack("<d", 1e300), 1e300),
    (b"\x1c" + struct.pack("<d", float("inf")), "Infinity"),
    (b"\x20\x02" + struct.pack("<i", -150), -1.5),
    (b"\x24\x03" + struct.pack("<q", 5000), 5),
    (b"\x28\x02" + (10**30 + 1).to_bytes(16, "little", signed=True), "10000000000000000000000000000.01"),
    (b"\x2c" + struct.pack("<i", (DAY - datetime.date(1970, 1, 1)).days), "2026-01-31"),
    (b"\x30" + struct.pack("<q", MOMENT), "2026-01-31T12:00:00.5Z"),
    (b"\x34" + struct.pack("<q", MOMENT), "2026-01-31T12:00:00.5"),
    (b"\x38" + struct.pack("<f", 0.1), 0.1),
    (b"\x3c" + struct.pack("<I", 2) + b"\xff\x00", "/wA="),
    (b"\x40" + struct.pack("<I", 3) + "né".encode(), "né"),
    (b"\x44" + struct.pack("<q", 43_200_500_000), "12:00:00.5"),
    (b"\x48" + struct.pack("<q", MOMENT * 1000 + 1), "2026-01-31T12:00:00.500000001Z"),
    (b"\x4c" + struct.pack("<q", 1), "1970-01-01T00:00:00.000000001"),
    (b"\x50" + uuid.UUID(int=1).bytes, "00000000-0000-0000-0000-000000000001"),
    (b"\x0d" + b"abc", "abc"),
]
NAMES = ["a", "b", "longer name", "né", *(f"n{n}" for n in range(300))]


def metadata(width: int = 2) -> bytes:
    """The names."""
    data, ends = "".join(NAMES).encode(), [0]
    for name in NAMES:
        ends.append(ends[-1] + len(name.encode()))
    sizes = b"".join(number.to_bytes(width, "little") for number in (len(NAMES), *ends))
    return bytes([1 | (width - 1) << 6]) + sizes + data


def made(draw: random.Random, depth: int) -> tuple[bytes, Any]:
    """A value and its JSON; offsets and counts in every width that holds them, objects with values in any order."""
    if depth == 0 or draw.random() < 0.3:
        return draw.choice(PRIMITIVES)
    inner = [made(draw, depth - 1) for _ in range(draw.randrange(4))]
    width, is_large = draw.randrange(2, 5), draw.randrange(2)
    count = len(inner).to_bytes(4 if is_large else 1, "little")
    data, starts = b"", dict[int, int]()
    is_object = draw.random() < 0.5
    for place in draw.sample(range(len(inner)), len(inner)) if is_object else range(len(inner)):
        starts[place], data = len(data), data + inner[place][0]
    offsets = b"".join(
        number.to_bytes(width, "little") for number in (*(starts[place] for place in range(len(inner))), len(data))
    )
    if not is_object:
        return bytes([3 | (width - 1) << 2 | is_large << 4]) + count + offsets + data, [value for _, value in inner]
    names, id_width = draw.sample(range(len(NAMES)), len(inner)), draw.randrange(2, 5)
    ids = b"".join(number.to_bytes(id_width, "little") for number in names)
    head = bytes([2 | (width - 1) << 2 | (id_width - 1) << 4 | is_large << 6])
    return head + count + ids + offsets + data, {
        NAMES[number]: value for number, (_, value) in zip(names, inner, strict=True)
    }


def flat(column: pa.Array) -> list[Any]:
    """Values of a column."""
    return list(column.to_pylist())


def group(values: list[bytes | None], width: int = 2) -> pa.StructArray:
    """A column that is not shredded."""
    return pa.StructArray.from_arrays(
        [pa.array([metadata(width)] * len(values)), pa.array(values, pa.binary())], ["metadata", "value"]
    )


@pytest.mark.parametrize("width", [2, 3, 4])
def test_every_type_and_nesting_is_its_json(width: int) -> None:
    """All types of the specification, alone and in 300 random objects and arrays."""
    draw = random.Random(width)
    cases = [*PRIMITIVES, *(made(draw, 4) for _ in range(300))]
    column = group([data for data, _ in cases], width)
    assert is_variant(column.type)
    assert variant_values(column, flat) == [value for _, value in cases]


def test_damaged_values_are_told_and_never_grow() -> None:
    """Every cut of a value, each of its bytes changed, and arrays whose items share bytes."""
    draw = random.Random(1)
    data = max((made(draw, 4)[0] for _ in range(50)), key=len)
    data = data[:600] if len(data) > 600 else data
    changed = (data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :] for at in range(len(data)))
    for case in (*(data[:size] for size in range(len(data))), *changed):
        try:
            variant_values(group([case]), flat)
        except (ValueError, RecursionError):
            continue
    shared = b"\x00"
    for _ in range(40):
        shared = b"\x0f\x02" + struct.pack("<HHH", 0, 0, len(shared)) + shared
    with pytest.raises(ValueError, match=r"share bytes|ends inside"):
        variant_values(group([shared]), flat)


def read(data: bytes | Path, text: str, *columns: str) -> list[Record | Refused]:
    """Records of a file."""
    source = FilesSource(path="x", text_column=text, metadata_columns=columns)
    file = io.BytesIO(data if isinstance(data, bytes) else data.read_bytes())
    return list(parquet_records(file, source, 1 << 20))


SHREDDED = [
    "{'a': i, 'b': 't' || i, 'c': [i, i + 1], 'd': date '2026-01-31', 'e': {'x': 1.5, 'y': NULL}}",
    "[{'a': i}, {'a': i + 1}]",
    "'text ' || i",
    "i * 0.5",
    "i::double / 3",
    "i % 2 = 0",
    "time '12:00:00.5'",
    "map {'k': i}",
]


@pytest.mark.parametrize("query", SHREDDED)
def test_what_duckdb_shreds_is_what_duckdb_says(query: str, tmp_path: Path) -> None:
    """As text and as metadata, as a whole and below a path."""
    path = tmp_path / "a.parquet"
    duckdb.sql(
        f"COPY (SELECT 'body' t, CASE WHEN i % 7 = 6 THEN NULL ELSE ({query})::VARIANT END v "
        f"FROM range(40) r(i)) TO '{path}'"
    )
    wanted = [row[0] for row in duckdb.sql(f"SELECT to_json(v) FROM '{path}'").fetchall()]
    for found, json_ in zip(read(path, "t", "v", "v.a"), wanted, strict=True):
        assert isinstance(found, Record)
        value = None if json_ is None else json.loads(json_)
        text = value if isinstance(value, str) else None if value is None else json.dumps(value)
        said = found.metadata.get("v")
        assert said == text or (said and text and json.loads(said) == json.loads(text))
        if isinstance(value, dict) and "a" in value:
            assert found.metadata["v.a"] == str(value["a"])
    texts = [found.text if isinstance(found, Record) else None for found in read(path, "v")]
    assert [text is None for text in texts] == [value is None for value in wanted]


def test_fields_that_are_half_shredded_are_put_together() -> None:
    """Some fields in columns, others in `value`, and some rows of another type; a group without either is absent."""
    fields = pa.StructArray.from_arrays(
        [
            pa.StructArray.from_arrays(
                [pa.array([None, b"\x04", None], pa.binary()), pa.array([1, None, None], pa.int64())],
                ["value", "typed_value"],
            )
        ],
        ["b"],
        mask=pa.array([False, False, True]),
    )
    object_ = b"\x02\x01\x00\x00\x03" + b"\x09hi"
    values = pa.array([object_, None, b"\x0dabc"], pa.binary())
    column = pa.StructArray.from_arrays(
        [pa.array([metadata()] * 3), values, fields], ["metadata", "value", "typed_value"]
    )
    assert variant_values(column, flat) == [{"a": "hi", "b": 1}, {"b": True}, "abc"]


def test_a_value_that_is_no_variant_refuses_its_record_alone() -> None:
    """By the name of its column; also as the text of a document."""
    table = pa.table({"t": ["x", "y"], "v": group([b"\x09hi", b"\x15hi"])})
    written = io.BytesIO()
    pq.write_table(table, written)
    for text, columns in (("t", ("v",)), ("v", ())):
        first, second = read(written.getvalue(), text, *columns)
        assert isinstance(first, Record) and isinstance(second, Refused)
        assert "column 'v'" in second.refusal.detail and "VARIANT" in second.refusal.detail


WIDE = [0, 1, -1, 2**63, -(2**63) - 1, 2**127 - 1, -(2**127), None]
SPANS = [datetime.timedelta(seconds=1.5), datetime.timedelta(days=-3), None]


def test_columns_of_polars_that_arrow_does_not_know_have_their_values() -> None:
    """128-bit integers, and durations in their files, alone, in lists and in structs."""
    rows = [(WIDE[n % len(WIDE)], SPANS[n % len(SPANS)]) for n in range(24)]
    wide, spans = ([row[at] for row in rows] for at in (0, 1))
    frame = pl.DataFrame(
        {
            "t": ["body"] * len(rows),
            "i": pl.Series(wide, dtype=pl.Int128),
            "u": pl.Series([None if value is None else abs(value) for value in wide], dtype=pl.UInt128),
            "d": pl.Series(spans, dtype=pl.Duration("us")),
            "e": pl.Series(spans, dtype=pl.Duration("ms")),
            "l": pl.Series([[value, 1] for value in wide], dtype=pl.List(pl.Int128)),
            "s": [{"d": span, "x": 1, "i": "z"} for span in spans],
        }
    )
    written = io.BytesIO()
    frame.write_parquet(written)
    with pytest.raises(pa.ArrowNotImplementedError):
        pq.ParquetFile(written)
    for found, value, span in zip(read(written.getvalue(), "t", *"iudels", "s.d"), wide, spans, strict=True):
        assert isinstance(found, Record)
        assert found.metadata.get("i") == (None if value is None else str(value))
        assert found.metadata.get("u") == (None if value is None else str(abs(value)))
        assert json.loads(found.metadata["l"]) == [value, 1]
        for name in ("d", "e", "s.d"):
            seconds = found.metadata.get(name)
            assert (None if seconds is None else float(seconds)) == (None if span is None else span.total_seconds())
        assert json.loads(found.metadata["s"]) == {"d": found.metadata.get("s.d"), "x": 1, "i": "z"}


def test_an_interval_is_its_months_days_and_seconds(tmp_path: Path) -> None:
    """As ISO 8601 has them, alone and in lists; floats are their shortest form."""
    path = tmp_path / "a.parquet"
    duckdb.sql(
        "COPY (SELECT 'a' t, INTERVAL 14 MONTH + INTERVAL 3 DAY + INTERVAL 1500 MILLISECOND i, [INTERVAL 1 DAY] l, "
        f"INTERVAL 0 DAY z, {{'i': INTERVAL 1 MONTH}} s, 0.1::FLOAT f, map {{'k': INTERVAL 2 DAY}} m) TO '{path}'"
    )
    (found,) = read(path, "t", "i", "l", "z", "s", "s.i", "f", "m", "m.k")
    assert isinstance(found, Record)
    assert found.metadata == {
        **{"i": "P14M3DT1.5S", "l": '["P1D"]', "z": "PT0S", "s": '{"i": "P1M"}', "s.i": "P1M", "f": "0.1"},
        **{"m": '[["k", "P2D"]]', "m.k": "P2D"},
    }
