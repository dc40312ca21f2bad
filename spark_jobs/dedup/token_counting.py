"""Counts the tokens of texts in tables that come out sorted; the compiled code has its only entries here.

Tokens come in blocks from `token_lexing`. They are counted in a table with open addressing by the top bits of the hash,
which grows with the distinct tokens of the text; read from end to end it is sorted but for neighbours, and an insertion
sort finishes. Only as many slots are used, and cleared, as the text needs.

Numba's cache notices a change of the very file of a function, not of the functions that it calls: with a cache each,
the modules of a newer version could go on with machine code of an older one, and cut texts in another way. So only the
entries are cached, and a number over all sources is part of their key.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from spark_jobs.dedup.language_syntax import SyntaxTables
from spark_jobs.dedup.lexer_memory import (
    STATE_WORDS,
    U64,
    Block,
    Int32Array,
    Int64Array,
    Machine,
    UInt8Array,
    UInt64Array,
    eight_bytes_at,
    new_block,
    store,
)
from spark_jobs.dedup.token_lexing import begin_text, lex, machine
from spark_jobs.dedup.word_characters import WordTables
from spark_jobs.dedup.words import (
    ONE,
    S32,
    ZERO,
    finish,
    hash_step,
)

_BLOCK_TOKENS: Final = 1024
_FEWEST_SLOT_BITS: Final = 6
_SLOT_BITS: Final = 12
_SOURCES: Final = (
    "language_syntax",
    "lexer_memory",
    "lexers",
    "regions",
    "token_counting",
    "token_lexing",
    "word_characters",
    "words",
)


class Counts(NamedTuple):
    """Distinct tokens.

    Attributes:
        hashes: (T,) uint64 finished hashes.
        starts: (T,) int64 position of the first occurrence.
        lengths: (T,) int32 bytes of it.
        counts: (T,) int32 occurrences.
    """

    hashes: UInt64Array
    starts: Int64Array
    lengths: Int32Array
    counts: Int32Array


@njit
def _new_counts(size: int) -> Counts:
    return Counts(
        np.empty(size, np.uint64), np.empty(size, np.int64), np.empty(size, np.int32), np.empty(size, np.int32)
    )


@njit
def _with_room(counts: Counts, used: int, more: int) -> Counts:
    """The same counts in arrays that have room for more."""
    if used + more <= counts.hashes.size:
        return counts
    wider = _new_counts(max(2 * counts.hashes.size, used + more))
    wider.hashes[:used], wider.starts[:used] = counts.hashes[:used], counts.starts[:used]
    wider.lengths[:used], wider.counts[:used] = counts.lengths[:used], counts.counts[:used]
    return wider


@njit
def _add(slots: int, slot_bits: int, h: np.uint64, start: int, length_and_count: int) -> int:
    """Add occurrences of a token; 1 if it is new, else 0.

    A slot is three words: hash (0: free), start, length << 32 | count. The top bits of a hash are its slot, so the
    slots are nearly sorted. Whether a token is new cannot be foreseen, so nothing branches on it.
    """
    slot = h >> U64(64 - slot_bits)
    mask = (ONE << U64(slot_bits)) - ONE
    at = slots + 24 * np.int64(slot)
    found = eight_bytes_at(at)
    while found != h and found != ZERO:  # noqa: PLR1714 - compiled to two compares
        slot = (slot + ONE) & mask
        at = slots + 24 * np.int64(slot)
        found = eight_bytes_at(at)
    first, sum_before = np.int64(eight_bytes_at(at + 8)), np.int64(eight_bytes_at(at + 16))
    known = found == h
    store(at, h)
    store(at + 8, first if known else start)
    store(at + 16, sum_before + (length_and_count & 0xFFFFFFFF) if known else length_and_count)
    return 0 if known else 1


@njit
def _add_block(m: Machine, n: int, slots: int, slot_bits: int) -> int:
    """Add the first n tokens of the block; how many of them are new."""
    new = 0
    for k in range(n):
        start = np.int64(eight_bytes_at(m.starts + 8 * k))
        length = np.int64(eight_bytes_at(m.ends + 8 * k)) - start
        new += _add(slots, slot_bits, eight_bytes_at(m.hashes + 8 * k), start, length << 32 | 1)
    return new


@njit
def _drain(slots: UInt64Array, slot_bits: int, out: Counts, at: int) -> int:
    """Move what is in the slots to `out` from `at` on, and leave them free; the position after it.

    Which slots are free cannot be foreseen, so all are moved, to one place past the end if need be; a free one is
    written over by the next.
    """
    hashes, starts, lengths, counts = out
    for word in range(0, 3 << slot_bits, 3):
        h, length_and_count = slots[word], slots[word + 2]
        hashes[at], starts[at] = h, np.int64(slots[word + 1])
        lengths[at], counts[at] = length_and_count >> S32, length_and_count & U64(0xFFFFFFFF)
        slots[word] = ZERO
        at += 1 if h != ZERO else 0
    return at


@njit
def _insertion_sort(out: Counts, first: int, last: int) -> None:
    """Sort by hash what is nearly sorted."""
    hashes, starts, lengths, counts = out
    for i in range(first + 1, last):
        h = hashes[i]
        if hashes[i - 1] <= h:
            continue
        start, length, count = starts[i], lengths[i], counts[i]
        k = i
        while k > first and hashes[k - 1] > h:
            hashes[k], starts[k], lengths[k], counts[k] = hashes[k - 1], starts[k - 1], lengths[k - 1], counts[k - 1]
            k -= 1
        hashes[k], starts[k], lengths[k], counts[k] = h, start, length, count


@njit
def _finish_block(block: Block, n: int, salt: np.uint64) -> None:
    hashes = block.hashes
    for k in range(n):
        hashes[k] = finish(hashes[k], salt)


@njit
def _shingles(block: Block, n: int, held: Block, held_count: int, ended: bool) -> tuple[int, int]:
    """Replace the tokens of a block by the shingles that end in them.

    Args:
        block: finished tokens; afterwards shingles.
        n: how many.
        held: the tokens before them, as many as a shingle has; afterwards those that the next block needs.
        held_count: how many tokens of the text have been held so far, the shingle's number at most.
        ended: whether the text ends here; if it has fewer tokens than a shingle, all of them are one.

    Returns:
        Number of shingles, and the new `held_count`.
    """
    size, made = held.hashes.size, 0
    for k in range(n):
        if held_count == size:
            for j in range(size - 1):
                held.hashes[j], held.starts[j] = held.hashes[j + 1], held.starts[j + 1]
            held_count -= 1
        held.hashes[held_count], held.starts[held_count] = block.hashes[k], block.starts[k]
        held.ends[0] = block.ends[k]
        held_count += 1
        if held_count == size:
            block.hashes[made], block.starts[made] = _shingle_hash(held, size), held.starts[0]
            block.ends[made] = block.ends[k]
            made += 1
    if ended and 0 < held_count < size:
        block.hashes[0], block.starts[0] = _shingle_hash(held, held_count), held.starts[0]
        block.ends[0] = held.ends[0]
        made = 1
    return made, held_count


@njit
def _shingle_hash(held: Block, count: int) -> np.uint64:
    h = ZERO
    for k in range(count):
        h = hash_step(h, held.hashes[k])
    return finish(h, ZERO)


def sources_number() -> int:
    """63 bits over the sources of all compiled code: another number is another cache."""
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update(Path(__file__).with_name(f"{name}.py").read_bytes())
    return int.from_bytes(digest.digest()[:8], "little") >> 1


def _entries(sources: int) -> tuple[Any, Any]:
    """The compiled entries. What a function encloses is part of the key that Numba caches it under."""

    @njit(cache=True)
    def count_texts(
        data: UInt8Array,
        offsets: Int64Array,
        lexers: UInt8Array,
        salts: UInt64Array,
        shingle_tokens: int,
        syntax: SyntaxTables,
        words: WordTables,
    ) -> tuple[Int64Array, Counts, int]:
        """Count the tokens of D texts.

        Memory beyond the result: a block of tokens, and slots for the distinct tokens of the largest text, 24 bytes
        each.

        Returns:
            (D + 1,) offsets into the counts, ascending in each text; the counts; how many they are.
        """
        texts = offsets.size - 1 if sources >= 0 else 0  # enclosed: see above
        bounds = np.zeros(texts + 1, np.int64)
        block, held = new_block(_BLOCK_TOKENS), new_block(shingle_tokens)
        state = np.empty(STATE_WORDS, np.int64)
        slots = np.zeros(3 << _SLOT_BITS, np.uint64)
        out = _new_counts(max(1024, (offsets[texts] - offsets[0]) // 8))
        total = 0
        for text in range(texts):
            i, end, lexer = offsets[text], offsets[text + 1], np.int64(lexers[text])
            begin_text(i, lexer, syntax, state)
            m = machine(data, end, lexer, syntax, words, state, block)
            used, held_count, slot_bits = 0, 0, _FEWEST_SLOT_BITS
            while i < end:
                i, n = lex(m, i, lexer)
                _finish_block(block, n, salts[text])
                if shingle_tokens > 1:
                    n, held_count = _shingles(block, n, held, held_count, i >= end)
                if 4 * (used + n) > 3 << slot_bits:
                    out = _with_room(out, total, used + 1)
                    _drain(slots, slot_bits, out, total)
                    while 4 * (used + n) > 3 << slot_bits:
                        slot_bits += 1
                    if 3 << slot_bits > slots.size:
                        slots = np.zeros(3 << slot_bits, np.uint64)
                    address = np.int64(slots.ctypes.data)
                    for k in range(total, total + used):
                        counted = np.int64(out.lengths[k]) << 32 | np.int64(out.counts[k])
                        _add(address, slot_bits, out.hashes[k], out.starts[k], counted)
                used += _add_block(m, n, np.int64(slots.ctypes.data), slot_bits)
            out = _with_room(out, total, used + 1)
            _drain(slots, slot_bits, out, total)
            _insertion_sort(out, total, total + used)
            total += used
            bounds[text + 1] = total
        return bounds, out, total

    @njit(cache=True)
    def lex_text(data: UInt8Array, lexer: int, syntax: SyntaxTables, words: WordTables) -> Block:
        """Every token of one text in order, for people and tests.

        Args:
            data: UTF-8 of the text.
            lexer: its code, see `lexers`.
            syntax: descriptions of the languages.
            words: tables of all characters.

        Returns:
            As many tokens as there are.
        """
        state = np.empty(STATE_WORDS if sources >= 0 else 0, np.int64)
        block = new_block(data.size)
        begin_text(0, lexer, syntax, state)
        _, n = lex(machine(data, data.size, lexer, syntax, words, state, block), 0, lexer)
        return Block(block.hashes[:n], block.starts[:n], block.ends[:n], block.classes[:n])

    return count_texts, lex_text


count_texts, lex_text = _entries(sources_number())
