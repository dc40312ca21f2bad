"""How often a task gives its counts and begins anew, which bounds its memory, changes no count."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.dedup.bags import vocabulary
from spark_jobs.dedup.bags.features import Features


def counts(batches: list[pa.RecordBatch]) -> tuple[int, dict[Any, tuple[str, int, int]]]:
    """How many tables a task gave, and what the step makes of them: spelling, documents and occurrences of a token."""
    tables = list(vocabulary._count_partition(batches, Features()))
    found = defaultdict[Any, list[Any]](list)
    for row in (row for table in tables for row in table.to_pylist()):
        found[row["kind"], row["token_hash"]].append((row["token"], row["document_count"], row["occurrence_count"]))
    return len(tables), {
        key: (
            min((word for word, _, _ in parts if word), default=""),
            sum(p[1] for p in parts),
            sum(p[2] for p in parts),
        )
        for key, parts in found.items()
    }


def test_counts_do_not_depend_on_when_a_table_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of few letters in upper and lower case: tables share most of their tokens."""
    draw = random.Random(54)
    words = ["".join(draw.choices("abAB", k=draw.randrange(1, 5))) for _ in range(200)]
    texts = [" ".join(draw.choices(words, k=draw.randrange(60))) for _ in range(400)]
    kinds = draw.choices(["prose", "code", "markup"], k=len(texts))
    schema = pa.schema([("kind", pa.string()), ("language", pa.string()), ("content", pa.large_string())])
    rows = pa.table({"kind": kinds, "language": ["en"] * len(texts), "content": texts}).cast(schema)
    batches = rows.to_batches(max_chunksize=23)
    count, at_once = counts(batches)
    monkeypatch.setattr(vocabulary, "_MOST_TOKENS", 60)
    parts, in_parts = counts(batches)
    assert count == 1 and parts > 3 and in_parts == at_once
