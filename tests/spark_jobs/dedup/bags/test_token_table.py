"""Tokens counted over many batches, and looked up for their weights."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa

from spark_jobs.dedup.bags.features import Features, token_rules
from spark_jobs.dedup.bags.token_counts import count_tokens
from spark_jobs.dedup.bags.token_table import TokenTable, UnitTable
from spark_jobs.text.text_columns import utf8_buffer


def counted_in_batches(texts: list[str], size: int) -> TokenTable:
    """A table over batches of `size` texts, prose of one kind."""
    table = TokenTable()
    for first in range(0, len(texts), size):
        column = pa.array(texts[first : first + size], pa.string())
        count = len(column)
        counted = count_tokens(column, np.zeros(count, np.uint8), np.zeros(count, np.uint64))
        table.add(counted, np.zeros(count, np.uint8), np.frombuffer(utf8_buffer(column)[1], np.uint8))
    return table


def test_counts_are_those_of_counting_words() -> None:
    """Documents and occurrences of every word, over batches of any size; the table grows."""
    draw = np.random.default_rng(3)
    texts = [" ".join(f"W{number}" for number in draw.zipf(1.2, 300) % 200_000) for _ in range(900)]
    documents = Counter(word for text in texts for word in set(text.lower().split()))
    occurrences = Counter(word for text in texts for word in text.lower().split())
    assert len(documents) > 1 << 15
    for size in (900, 7):
        rows = counted_in_batches(texts, size).rows(["prose"])
        tokens = rows.column("token").to_pylist()
        assert set(rows.column("kind").to_pylist()) == {"prose"}
        assert dict(zip(tokens, rows.column("document_count").to_pylist(), strict=True)) == documents
        assert dict(zip(tokens, rows.column("occurrence_count").to_pylist(), strict=True)) == occurrences


def test_what_may_be_spelled_in_many_ways_has_no_spelling() -> None:
    """Pairs and runs of code: which text comes first would decide it. Rows are the same in any order of the texts."""
    code = ["def f(x, y=1): return x + y * 2", "def g(a, b=3): return a + b * 4"]
    prose = ["New York", "new-york"]
    for kind, texts, features in (("code", code, Features()), ("prose", prose, Features(prose="word_pairs"))):
        found = []
        for order in (texts, texts[::-1]):
            column, table = pa.array(order), TokenTable()
            counted = count_tokens(column, *token_rules([kind] * 2, ["Python"] * 2, features))
            table.add(counted, np.zeros(2, np.uint8), np.frombuffer(utf8_buffer(column)[1], np.uint8))
            rows = table.rows([kind]).to_pylist()
            found.append(sorted(rows, key=lambda row: int(row["token_hash"])))
        assert found[0] == found[1]
        shared = [row for row in found[0] if row["document_count"] == 2 and row["token"] is None]
        assert shared
        assert {row["token"] for row in found[0]} - {None} == (set("fgxyab1234") if kind == "code" else set())


def test_spellings_are_lower_case_one_character_for_one() -> None:
    """Two spellings of one token are shown as one, in any script."""
    rows = counted_in_batches(["Straße ΟΔΟΣ İ", "STRASSE οδοσ"], 1).rows(["prose"])
    assert sorted(rows.column("token").to_pylist()) == sorted(["straße", "strasse", "οδοσ", "i̇"[:0] + "İ".lower()[:1]])


def test_an_empty_table_has_no_rows() -> None:
    """Nothing was counted."""
    assert counted_in_batches([], 1).rows(["prose"]).num_rows == 0
    assert counted_in_batches(["", "..."], 1).rows(["prose"]).num_rows == 0


def test_units_are_found_by_hash_and_others_stay() -> None:
    """Every known hash has its weight; unknown ones keep what was given for them."""
    draw = np.random.default_rng(4)
    hashes = np.unique(draw.integers(0, 2**64, 100_000, dtype=np.uint64))
    units = (hashes % np.uint64(255) + np.uint64(1)).astype(np.uint8)
    unknown = np.setdiff1d(draw.integers(0, 2**64, 1000, dtype=np.uint64), hashes)
    asked = draw.permutation(np.concatenate([hashes, unknown]))
    given = (asked % np.uint64(7)).astype(np.uint8)
    known = np.isin(asked, hashes)
    expected = np.where(known, (asked % np.uint64(255) + np.uint64(1)).astype(np.uint8), given)
    assert (UnitTable(hashes, units).of(asked, given) == expected).all()
    assert (UnitTable(hashes[:0], units[:0]).of(asked, given) == given).all()
