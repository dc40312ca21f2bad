"""Lines repeated by a template across documents, and how much of a text is left when they are taken out.

Two passes: over a sample of a dataset, `count_lines` says for batches which lines their documents have, `merge_counts`
adds such tables up in any order. The hashes of lines in enough documents are the template table, with which
`score_templates` measures each text of the dataset, and `find_examples` spells them. A line is known by a hash of its
characters without the white space around it; shorter lines than `min_characters` are no evidence of a template, because
all code shares `else:` and `}`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.kernels.compiling import compiled, inner
from headrace.kernels.memory import byte_at, four_bytes_at
from spark_jobs.arrays import BoolArray, Float64Array, Int32Array, Int64Array, UInt32Array, UInt64Array
from spark_jobs.filters.heuristics.character_flags import SPACE
from spark_jobs.filters.heuristics.contractions import hash_points
from spark_jobs.filters.heuristics.lines import is_list, is_table, link_span
from spark_jobs.filters.heuristics.measure import addresses_of, chunks, reader
from spark_jobs.filters.heuristics.phrases import LINK
from spark_jobs.filters.heuristics.text_memory import (
    FIRST_OUTPUT,
    FOLDS,
    MOVES,
    OUTPUTS,
    KernelAddresses,
    flags_at,
    held,
    point_at,
)
from spark_jobs.lexing.machine import U64

LINE_COUNTS: Final = pa.schema([("line_hash", pa.int64()), ("document_count", pa.int64())])
MIN_CHARACTERS: Final = 8


def count_lines(content: pa.Array, min_characters: int = MIN_CHARACTERS) -> pa.Table:
    """The lines of a batch of documents, each with its number of documents.

    Returns:
        Rows of LINE_COUNTS, ordered by hash.
    """
    parts = [pa.table({"line_hash": pa.array([], pa.int64()), "document_count": pa.array([], pa.int64())})]
    for _, _, points, starts in chunks(content):
        hashes, lengths, _, texts, _ = _lines(points, starts)
        is_long = lengths >= min_characters
        pairs = np.unique(np.column_stack([texts[is_long], hashes[is_long].view(np.int64)]), axis=0)
        line_hashes, counts = np.unique(pairs[:, 1], return_counts=True)
        parts.append(pa.table({"line_hash": line_hashes, "document_count": counts.astype(np.int64)}))
    return merge_counts(parts)


def merge_counts(parts: Iterable[pa.Table]) -> pa.Table:
    """Add tables of LINE_COUNTS up; the order of the parts does not matter."""
    rows = pa.concat_tables(parts).group_by("line_hash").aggregate([("document_count", "sum")])
    return rows.rename_columns({"document_count_sum": "document_count"}).select(LINE_COUNTS.names).sort_by("line_hash")


def find_examples(content: pa.Array, templates: Int64Array, max_characters: int = 200) -> pa.Table:
    """Spell the lines of the template table in a batch of documents.

    Args:
        content: (D,) strings, none of them null.
        templates: (L,) hashes of the table, ascending.
        max_characters: of a line, the first ones are given.

    Returns:
        line_hash, example: a row for each such line, by hash.
    """
    examples: dict[int, str] = {}
    for _, _, points, starts in chunks(content):
        hashes, lengths, _, _, firsts = _lines(points, starts)
        line_hashes, at = np.unique(hashes.view(np.int64), return_index=True)
        listed = _is_in(line_hashes, templates)
        for line, k in zip(line_hashes[listed].tolist(), at[listed].tolist(), strict=True):
            if line not in examples:
                span = points[firsts[k] : firsts[k] + min(lengths[k], max_characters)]
                examples[line] = span.tobytes().decode("utf-32-le")
    rows = sorted(examples.items())
    return pa.table({"line_hash": pa.array([k for k, _ in rows], pa.int64()), "example": [v for _, v in rows]})


def score_templates(content: pa.Array, templates: Int64Array) -> dict[str, pa.Array]:
    """Measure how much of each text a template wrote, and how much is its own running text.

    Args:
        content: (D,) strings, none of them null.
        templates: (L,) hashes of the template table, ascending.

    Returns:
        template_fraction: (D,) characters in lines of the template table, of characters in lines; white space at the
            ends of lines counts nowhere. signal_density: (D,) likewise the characters outside lines of the table, lines
            that repeat an earlier one of the text, list lines, table lines and links. Both null for a text of white
            space alone.
    """
    fractions: list[Float64Array] = [np.zeros((0, 2))]
    for first, stop, points, starts in chunks(content):
        hashes, lengths, clean, texts, _ = _lines(points, starts)
        template = _is_in(hashes.view(np.int64), templates)
        kept = ~template & ~_repeats(hashes, texts)
        sums = [
            np.bincount(texts, weights=weights, minlength=stop - first)
            for weights in (lengths, lengths * template, clean * kept)
        ]
        with np.errstate(invalid="ignore"):
            fractions.append(np.column_stack(sums[1:]) / sums[0][:, None])
    columns = np.concatenate(fractions)
    return {
        name: pa.array(columns[:, index], from_pandas=True)
        for index, name in enumerate(("template_fraction", "signal_density"))
    }


def _is_in(hashes: Int64Array, table: Int64Array) -> BoolArray:
    """Whether each hash is in a sorted table."""
    if not len(table):
        return np.zeros(len(hashes), dtype=bool)
    places = np.minimum(np.searchsorted(table, hashes), len(table) - 1)
    return np.asarray(table[places] == hashes)


def _repeats(hashes: UInt64Array, texts: Int32Array) -> BoolArray:
    """Whether each line repeats an earlier one of its text."""
    order = np.lexsort((hashes, texts))  # stable: equal lines stay in the order of the text
    repeats = np.zeros(len(hashes), dtype=bool)
    ordered = hashes[order], texts[order]
    repeats[order[1:]] = (ordered[0][1:] == ordered[0][:-1]) & (ordered[1][1:] == ordered[1][:-1])
    return repeats


def _lines(
    points: UInt32Array, starts: Int64Array
) -> tuple[UInt64Array, Int32Array, Int32Array, Int32Array, Int32Array]:
    """Of each line not blank: hash, characters, those of running text, its text, and its place."""
    room = int(np.count_nonzero(points == 0x0A)) + len(starts)
    hashes, numbers = np.empty(room, np.uint64), np.empty((4, room), np.int32)
    count = _find_lines(reader(points, addresses_of()), starts, hashes, numbers)
    lengths, clean, texts, firsts = numbers[:, :count]
    return hashes[:count], lengths, clean, texts, firsts


@compiled
def _find_lines(r: KernelAddresses, starts: Int64Array, hashes: UInt64Array, numbers: Int32Array) -> int:
    """Write what `_lines` returns; the number of lines."""
    lengths, clean, texts, firsts = numbers[0], numbers[1], numbers[2], numbers[3]
    count = 0
    for text in range(len(starts) - 1):
        i, end = starts[text], starts[text + 1]
        while i < end:
            first = i
            while i < end and point_at(r, i) != 0x0A:
                i += 1
            last = i
            i += 1
            while first < last and flags_at(r, first) & SPACE:
                first += 1
            while first < last and flags_at(r, last - 1) & SPACE:
                last -= 1
            if first < last:
                hashes[count] = hash_points(r.points, first, last, U64(0))
                lengths[count] = last - first
                listed = is_list(r, first, last) or is_table(r, first, last)
                clean[count] = 0 if listed else last - first - _link_characters(r, first, last)
                texts[count] = text
                firsts[count] = first
                count += 1
    return count


@inner
def _link_characters(r: KernelAddresses, first: int, last: int) -> int:
    """Characters of a line inside links."""
    state, link_end, characters = 0, first, 0
    for i in range(first, last):
        point = point_at(r, i)
        state = four_bytes_at(held(r, MOVES) + 4 * (64 * state + byte_at(held(r, FOLDS) + point))) if point < 128 else 0
        if state >= held(r, FIRST_OUTPUT) and four_bytes_at(held(r, OUTPUTS) + 4 * state) & LINK and i >= link_end:
            begin, link_end = link_span(r, first, i + 1, last)
            characters += link_end - begin
    return characters
