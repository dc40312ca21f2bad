"""Rows that are sorted in parts on disk are in the order of all."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.lake.engine import sorted_rows
from spark_jobs.lake.engine.sorted_rows import in_order
from tests.tiers import tries


@pytest.mark.parametrize("run_bytes", [1, 700, 5_000, 1 << 30])
def test_rows_are_sorted_in_parts_as_they_are_at_once(run_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the parts: rows that are equal in all columns of the order keep theirs, nulls come first."""
    monkeypatch.setattr(sorted_rows, "_RUN_BYTES", run_bytes)
    monkeypatch.setattr(sorted_rows, "_BATCH_BYTES", 900)
    draw = random.Random(54)
    for _ in range(tries(200, default=25)):
        rows = [
            {
                "a": draw.choice([None, "", "x", "y"]),
                "b": draw.choice([None, 1, 2]),
                "number": number,
                "text": "é" * draw.randrange(60),
            }
            for number in range(draw.randrange(120))
        ]
        schema = pa.schema([("a", pa.string()), ("b", pa.int32()), ("number", pa.int64()), ("text", pa.string())])
        batches = pa.Table.from_pylist(rows, schema).to_batches(max_chunksize=draw.randrange(1, 40))
        batches.insert(0, pa.RecordBatch.from_pylist([], schema))
        found = [row for batch in in_order(batches, ("b", "a"), ("number", "text")) for row in batch.to_pylist()]
        key = {None: (0, ""), "": (1, ""), "x": (1, "x"), "y": (1, "y")}
        wanted = sorted(rows, key=lambda row: ((0, 0) if row["b"] is None else (1, row["b"]), key[row["a"]]))
        assert found == [{"number": row["number"], "text": row["text"]} for row in wanted]


def test_rows_of_all_types_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nested ones, nulls alone, and codes of a dictionary too, which a message of its own holds."""
    monkeypatch.setattr(sorted_rows, "_RUN_BYTES", 2_000)
    monkeypatch.setattr(sorted_rows, "_STRETCH_BYTES", 300)
    count = range(300)
    rows = pa.table(
        {
            "key": [number * 7 % 50 for number in count],
            "list": pa.array([[number, None] if number % 3 else None for number in count]),
            "map": pa.array([[("a", str(number))] for number in count], pa.map_(pa.string(), pa.string())),
            "struct": pa.array([{"x": number, "y": [{"z": str(number)}]} for number in count]),
            "decimal": pa.array(count).cast(pa.decimal128(38, 2)),
            "time": pa.array([number if number % 2 else None for number in count], pa.timestamp("us", "UTC")),
            "bytes": pa.array([b"\0" * number for number in count], pa.large_binary()),
            "fixed": pa.array([bytes([number % 256]) * 4 for number in count], pa.binary(4)),
            "nothing": pa.nulls(len(count)),
            "code": pa.array([str(number % 5) for number in count]).dictionary_encode(),
        }
    )
    found = pa.Table.from_batches(in_order(rows.to_batches(max_chunksize=17), ("key",)))
    assert found.schema == rows.schema
    assert found.to_pylist() == sorted(rows.to_pylist(), key=lambda row: row["key"])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="a kernel that tells it")
def test_a_stretch_of_each_part_is_held_and_nothing_is_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory does not grow with the rows: of 128 MiB in a file little is there at a time."""
    monkeypatch.setattr(sorted_rows, "_RUN_BYTES", 4 << 20)
    monkeypatch.setattr(sorted_rows, "_BATCH_BYTES", 1 << 20)
    monkeypatch.setattr(sorted_rows, "_STRETCH_BYTES", 64 << 10)
    draw = np.random.default_rng(55)
    batches = (
        pa.RecordBatch.from_pydict({"key": draw.integers(0, 1 << 60, 64), "text": ["x" * 16_384] * 64})
        for _ in range(128)
    )
    before, mapped = pa.total_allocated_bytes(), mapped_bytes()
    held = [(pa.total_allocated_bytes() - before, mapped_bytes() - mapped) for _ in in_order(batches, ("key",))]
    assert max(arrow for arrow, _ in held) < 24 << 20
    assert max(pages for _, pages in held) < 16 << 20


def test_a_file_that_gives_less_than_was_written_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short read is no end of the rows."""
    monkeypatch.setattr(sorted_rows, "_RUN_BYTES", 1)
    monkeypatch.setattr(sorted_rows.os, "pread", lambda descriptor, size, offset: b"")
    batches = [pa.RecordBatch.from_pydict({"key": [2]}), pa.RecordBatch.from_pydict({"key": [1]})]
    with pytest.raises(OSError, match=r"^0 of \d+ bytes"):
        list(in_order(batches, ("key",)))


def mapped_bytes() -> int:
    """Bytes of files' pages that count to this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("RssFile")).split()[1])
