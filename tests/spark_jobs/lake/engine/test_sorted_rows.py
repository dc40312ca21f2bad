"""Rows that are sorted in parts on disk are in the order of all."""

from __future__ import annotations

import random

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
