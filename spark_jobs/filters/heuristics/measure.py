"""Measure a column of texts: all heuristics of a text in one visit, while its characters are in the cache of a core.

Texts are taken in chunks of about `CHUNK_BYTES`, turned into code points once. Of each text the compiled entry finds
the words, measures lines with their help, and looks for repetition among words, lines and paragraphs; what it counts
becomes columns here. `heuristics.py` says of each what it is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.compiling import compiled, inner
from headrace.kernels.hash_tables import slots_for
from spark_jobs.arrays import BoolArray, Float64Array, Int32Array, Int64Array, UInt8Array, UInt32Array, UInt64Array
from spark_jobs.filters.heuristics.character_flags import character_flags
from spark_jobs.filters.heuristics.contractions import rule_shapes, rule_table
from spark_jobs.filters.heuristics.lines import measure_lines, paragraphs
from spark_jobs.filters.heuristics.phrases import automaton
from spark_jobs.filters.heuristics.repetition import (
    LAST_N,
    MOST_WORDS,
    NGRAM_MEASURES,
    compressed_size,
    duplicates,
    ngram_characters,
)
from spark_jobs.filters.heuristics.text_memory import AT, FOLDS, RUN_POINTS, WORD_COUNTS, KernelAddresses
from spark_jobs.filters.heuristics.words import find_words
from spark_jobs.text.characters import code_points
from spark_jobs.text.repeated_blocks import repeated_blocks
from spark_jobs.text.text_columns import utf8_buffer

CHUNK_BYTES: Final = 256 << 10
SAMPLE_POINTS: Final = 1 << 14
"""Characters at the head of a text that `compression_ratio` looks at."""
NGRAM_FRACTIONS: Final = (
    *(f"top_{n}gram_character_fraction" for n in (2, 3, 4)),
    *(f"duplicate_{n}gram_character_fraction" for n in range(5, LAST_N + 1)),
)
ALL_COUNTS: Final = (*AT._fields, *(f"ngram_{k}" for k in range(NGRAM_MEASURES)))
_NGRAMS_AT: Final = len(AT)


class ColumnMemory(NamedTuple):
    """Room shared by the texts of a column.

    Attributes:
        hashes, starts, lengths, kinds: of words, as in `KernelAddresses`; also of lines, once the words are done with.
        bounds, totals: likewise.
        work: of `ngram_characters`; then lengths and starts of lines.
        line_hashes: of lines.
        keys, numbers: a hash table.
        places: (4096,) of `compressed_size`.
        addresses: of the above and of the automaton, for `KernelAddresses`.
    """

    hashes: UInt64Array
    starts: Int32Array
    lengths: Int32Array
    kinds: UInt8Array
    bounds: Int32Array
    totals: Int64Array
    work: tuple[Int32Array, Int32Array, Int32Array]
    line_hashes: UInt64Array
    keys: UInt64Array
    numbers: Int32Array
    places: Int32Array
    addresses: Int64Array


def score(content: pa.Array) -> dict[str, pa.Array]:
    """Measure every text of a column.

    Returns:
        (D,) by column of the table `heuristics`, in its order; null where a measure is undefined.
    """
    counts = np.zeros((len(content), len(ALL_COUNTS)), dtype=np.int64)
    for first, stop, points, starts in chunks(content):
        _measure(points, starts, counts[first:stop])
    columns = _columns({name: counts[:, index] for index, name in enumerate(ALL_COUNTS)})
    return {**columns, "repeated_share": pa.array(repeated_blocks(content).shares, from_pandas=True)}


def chunks(content: pa.Array) -> Iterator[tuple[int, int, UInt32Array, Int64Array]]:
    """Rows first to stop, the code points of their texts, and (stop - first + 1,) where each text begins."""
    offsets, data = utf8_buffer(content)
    lengths = pc.utf8_length(content).to_numpy(zero_copy_only=False).astype(np.int64)
    first = 0
    while first < len(content):
        stop = int(np.searchsorted(offsets, offsets[first] + CHUNK_BYTES, side="right")) - 1
        stop = max(first + 1, min(stop, len(content)))
        starts = np.concatenate([[0], np.cumsum(lengths[first:stop])])
        part = data[offsets[first] : offsets[stop]]
        is_ascii = len(part) == starts[-1]
        points = np.frombuffer(part, dtype=np.uint8).astype(np.uint32) if is_ascii else code_points(part)
        yield first, stop, points, starts
        first = stop


def _measure(points: UInt32Array, starts: Int64Array, counts: Int64Array) -> None:
    """Count what is in the texts of a chunk."""
    longest = int(np.diff(starts).max(initial=0))
    memory = _memory(1 << max(longest, CHUNK_BYTES).bit_length())  # powers of two: few sizes are kept
    _measure_texts(reader(points, memory.addresses), memory, points, starts, counts)


def reader(points: UInt32Array, addresses: Int64Array) -> KernelAddresses:
    """What kernels read from; `addresses` are those of `addresses_of`."""
    return KernelAddresses(
        points.ctypes.data,
        character_flags().ctypes.data,
        rule_table().ctypes.data,
        rule_shapes().ctypes.data,
        addresses.ctypes.data,
    )


def addresses_of(words: tuple[int, ...] = (0,) * FOLDS) -> Int64Array:
    """The addresses behind `KernelAddresses.memory`; without words none can be found."""
    machine = automaton()
    phrases = (machine.folds.ctypes.data, machine.moves.ctypes.data, machine.outputs.ctypes.data, machine.first_output)
    return np.array([*words, *phrases], dtype=np.int64)


class _Kept(threading.local):
    """Memory by its size, each thread's own: compiled code runs without the GIL, and tasks of Sail are threads."""

    def __init__(self) -> None:
        self.by_size: dict[int, ColumnMemory] = {}


_KEPT = _Kept()


def _memory(size: int) -> ColumnMemory:
    """Room for texts of that many characters; that for ordinary chunks is kept from call to call of a thread."""
    kept = _KEPT.by_size
    if size in kept:
        return kept[size]
    words = min(size, MOST_WORDS)
    slots = slots_for.py_func(words)
    hashes = np.empty(words, np.uint64)
    starts, lengths, *work = (np.empty(words, np.int32) for _ in range(5))
    kinds, bounds = np.empty(words, np.uint8), np.empty(3 * RUN_POINTS, np.int32)
    totals = np.empty(WORD_COUNTS, np.int64)
    addresses = [array.ctypes.data for array in (hashes, starts, lengths, kinds, bounds, totals)]
    memory = ColumnMemory(
        hashes,
        starts,
        lengths,
        kinds,
        bounds,
        totals,
        (work[0], work[1], work[2]),
        np.empty(words, np.uint64),
        np.empty(slots, np.uint64),
        np.empty(slots, np.int32),
        np.empty(4096, np.int32),
        addresses_of((*addresses[:4], words, *addresses[4:])),
    )
    if size <= 2 * CHUNK_BYTES:
        kept[size] = memory
    return memory


@compiled
def _measure_texts(
    r: KernelAddresses, memory: ColumnMemory, points: UInt32Array, starts: Int64Array, counts: Int64Array
) -> None:
    for text in range(len(starts) - 1):
        _measure_text(r, memory, points, starts[text], starts[text + 1], counts[text])


@inner
def _measure_text(
    r: KernelAddresses, m: ColumnMemory, points: UInt32Array, start: int, end: int, row: Int64Array
) -> None:
    """Count what is in one text."""
    row[AT.characters] = row[AT.measured_characters] = end - start
    if end == start:
        return
    for place in range(WORD_COUNTS):
        m.totals[place] = 0
    word_count = find_words(r, start, end)
    for place in range(WORD_COUNTS):
        row[place] = m.totals[place]
    kept_words = min(word_count, len(m.hashes))
    if kept_words < word_count:
        # fractions of n-grams are of the text that they were counted in
        row[AT.measured_characters] = m.starts[kept_words - 1] + m.lengths[kept_words - 1] - start
    ngram_characters(m.hashes, m.lengths, kept_words, m.work, m.keys, m.numbers, row, _NGRAMS_AT)
    lengths, starts = m.work[0], m.work[1]
    lines = measure_lines(r, start, end, word_count, row, m.line_hashes, lengths, starts)
    opens, closes = points[start] == 0x0A, points[end - 1] == 0x0A
    duplicate_count, characters, filled = duplicates(m.line_hashes, lengths, lines, m.keys, m.numbers)
    # datatrove splits at runs of LF: one at an end of the text leaves an empty element there, and two are duplicates.
    row[AT.line_elements] = lines + opens + closes
    row[AT.duplicate_lines] = duplicate_count + (opens and closes)
    row[AT.duplicate_line_characters] = characters
    row[AT.filled_duplicate_characters] = filled
    count = paragraphs(r, lines, m.line_hashes, lengths, starts)
    duplicate_count, characters, _ = duplicates(m.line_hashes, lengths, count, m.keys, m.numbers)
    row[AT.paragraphs] = max(count, 1)
    row[AT.duplicate_paragraphs] = duplicate_count
    row[AT.duplicate_paragraph_characters] = characters
    row[AT.sample] = min(end - start, SAMPLE_POINTS)
    row[AT.compressed] = compressed_size(points, start, start + row[AT.sample], m.places)


def _columns(c: dict[str, Int64Array]) -> dict[str, pa.Array]:
    """The columns of the table from what was counted."""
    spaced = 2 * c["spaceless_words"] < np.maximum(c["words"], 1)
    stops = np.bitwise_count(c["stop_words"].astype(np.uint64)).astype(np.int64)
    filled, lines = c["filled_pieces"], c["filled_lines"]
    return {
        "gopher_word_count": pa.array(c["content_words"]),
        "gopher_mean_word_length": _ratio(c["content_characters"], c["content_words"], spaced),
        "hash_word_ratio": _ratio(c["hashes"], c["words"]),
        "ellipsis_word_ratio": _ratio(c["ellipses"], c["words"]),
        "bullet_line_fraction": _ratio(c["bullet_pieces"], c["pieces"]),
        "ellipsis_line_fraction": _ratio(c["ellipsis_pieces"], c["pieces"]),
        "stop_word_count": pa.array(stops),
        "alphabetic_word_fraction": _ratio(c["alphabetic_words"], c["words"]),
        "duplicate_line_fraction": _ratio(c["duplicate_lines"], c["line_elements"]),
        "duplicate_paragraph_fraction": _ratio(c["duplicate_paragraphs"], c["paragraphs"]),
        "duplicate_line_character_fraction": _ratio(c["duplicate_line_characters"], c["characters"]),
        "duplicate_paragraph_character_fraction": _ratio(c["duplicate_paragraph_characters"], c["characters"]),
        **{
            name: _ratio(c[f"ngram_{k}"], c["measured_characters"], c["words"] > (k + 1))
            for k, name in enumerate(NGRAM_FRACTIONS)
        },
        "terminal_punctuation_line_fraction": _ratio(c["terminal_lines"], lines),
        "short_line_fraction": _ratio(c["short_lines"], lines),
        "fineweb_duplicate_line_character_fraction": _ratio(
            c["filled_duplicate_characters"], c["characters"] - c["lf"], lines > 0
        ),
        "newline_word_ratio": _ratio(c["lf"], c["words"]),
        "sentence_count": pa.array(c["sentences"]),
        "c4_kept_line_count": pa.array(c["kept_pieces"]),
        "javascript_line_count": pa.array(c["javascript"]),
        "policy_line_count": pa.array(c["policy"]),
        "curly_bracket_count": pa.array(c["braces"]),
        "lorem_ipsum_count": pa.array(c["lorem"]),
        "xml_head": pa.array(c["xml_head"] > 0),
        "capital_fraction": _ratio(c["capitals"], c["letters"]),
        "link_fraction": _ratio(c["link_characters"], c["characters"]),
        "list_line_fraction": _ratio(c["list_pieces"], filled),
        "table_line_fraction": _ratio(c["table_pieces"], filled),
        "compression_ratio": _ratio(c["compressed"], c["sample"]),
        "placeholder_count": pa.array(c["placeholders"]),
        "mojibake_count": pa.array(c["mojibake"]),
        "stack_trace_line_fraction": _ratio(c["trace_pieces"], filled),
        "log_line_fraction": _ratio(c["log_pieces"], filled),
    }


def _ratio(part: Int64Array, whole: Int64Array, defined: BoolArray | None = None) -> pa.Array:
    """(D,) part / whole; null where the whole is 0 or the measure is not defined."""
    is_defined = whole > 0 if defined is None else (whole > 0) & defined
    ratio: Float64Array = np.zeros(len(part))
    np.divide(part, whole, out=ratio, where=is_defined)
    return pa.array(ratio, mask=~is_defined)
