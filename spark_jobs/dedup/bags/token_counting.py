"""Count the features of texts, in compiled code, into arrays sorted by hash.

Tokens come in blocks from the lexers (`spark_jobs.lexing.lex`) and become features (`features`): tokens, pairs, runs,
n-grams. They are counted in a hash table with open addressing by the top bits of the hash, growing with the number
of distinct features of the text. So the table is sorted except among neighbours, and an insertion sort finishes. Only
as many slots are used, and cleared, as the text needs.

`count_texts` and `lex_text` are the only functions with cached code; call these, never the kernels below them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from headrace.kernels.compiling import compiled, inner
from headrace.kernels.hash_tables import key_address
from headrace.kernels.memory import byte_at, eight_bytes_at, store
from headrace.kernels.mixing import FIRST_MULTIPLIER
from spark_jobs.arrays import Int32Array, Int64Array, UInt8Array, UInt64Array
from spark_jobs.dedup.bags.features import (
    FIRST_WORDS,
    NUMBERS_OF,
    OFTEN,
    RUN_OFTEN,
    RUN_WORDS,
    STRUCTURE_TOKENS,
    WORD_PAIRS,
    WORD_RUNS,
    WORDS_AND_STRUCTURE,
)
from spark_jobs.lexing.language_syntax import SyntaxTables
from spark_jobs.lexing.lex import begin_text, lex, make_machine
from spark_jobs.lexing.machine import KEYWORD, STATE_WORDS, TEXT, U64, TokenBlock, new_block
from spark_jobs.lexing.word_characters import WordTables
from spark_jobs.lexing.words import (
    ONE,
    ZERO,
    finish,
    has_digit,
    hash_step,
)

_BLOCK_TOKENS: Final = 1024
_FEWEST_SLOT_BITS: Final = 6
_SLOT_BITS: Final = 12
# what the part that leaves an n-gram was multiplied by since it came
_LEAVING: Final = U64(pow(int(FIRST_MULTIPLIER), STRUCTURE_TOKENS, 1 << 64))
_STRUCTURE_SALT: Final = U64(0x5354525543545552)  # `STRUCTUR` in ASCII: an n-gram is no word


class FeatureCounts(NamedTuple):
    """Distinct features.

    Attributes:
        hashes: (T,) uint64 finished hashes.
        starts: (T,) int64 position of the first occurrence; of a pair or n-gram that of its last token.
        lengths: (T,) int32 bytes of it; 0 for pairs, runs and n-grams with their many spellings.
        counts: (T,) int32 occurrences.
    """

    hashes: UInt64Array
    starts: Int64Array
    lengths: Int32Array
    counts: Int32Array


@inner
def _new_counts(size: int) -> FeatureCounts:
    return FeatureCounts(
        np.empty(size, np.uint64), np.empty(size, np.int64), np.empty(size, np.int32), np.empty(size, np.int32)
    )


@inner
def _with_room(counts: FeatureCounts, used: int, more: int) -> FeatureCounts:
    """The counts, copied to larger arrays if `used + more` entries do not fit."""
    if used + more <= counts.hashes.size:
        return counts
    wider = _new_counts(max(2 * counts.hashes.size, used + more))
    wider.hashes[:used], wider.starts[:used] = counts.hashes[:used], counts.starts[:used]
    wider.lengths[:used], wider.counts[:used] = counts.lengths[:used], counts.counts[:used]
    return wider


@inner
def _add(slots: int, slot_bits: int, h: np.uint64, start: int, length_and_count: int) -> int:
    """Add occurrences of a token to the table; its count so far.

    A slot is three words: hash (0: free), start, length << 32 | count. The top bits of a hash are its slot, so the
    slots are nearly sorted. Whether a token is new is unpredictable, so nothing branches on it.
    """
    at = key_address(slots, 24, (ONE << U64(slot_bits)) - ONE, h >> U64(64 - slot_bits), h)
    first, sum_before = np.int64(eight_bytes_at(at + 8)), np.int64(eight_bytes_at(at + 16))
    is_counted = eight_bytes_at(at) == h
    total = sum_before + (length_and_count & 0xFFFFFFFF) if is_counted else length_and_count
    store(at, h)
    store(at + 8, first if is_counted else start)
    store(at + 16, total)
    return total & 0xFFFFFFFF


@inner
def _add_ngrams(ngrams: TokenBlock, n: int, slots: int, slot_bits: int) -> int:
    """Add the first n n-grams of a block to the table; the number of new ones."""
    new = 0
    for k in range(n):
        new += int(_add(slots, slot_bits, ngrams.hashes[k], ngrams.starts[k], 1) == 1)
    return new


@inner
def _add_words(
    block: TokenBlock, n: int, data: int, text_end: int, slots: int, slot_bits: int, tally: Int64Array
) -> int:
    """Add the first n tokens of a block to the table while the text has enough different ones; the number added.

    Args:
        block: words or pairs of words.
        n: number of tokens.
        data: address of the texts.
        text_end: position after the text.
        slots: address of the table.
        slot_bits: log2 of its slots.
        tally: four counts of the text so far: different tokens, those occurring OFTEN, those with a digit, and
            of these the ones with a non-digit first, occurring OFTEN.
    """
    different, often, numbered, labels, k = tally[0], tally[1], tally[2], tally[3], 0
    while k < n:
        is_numbered = different >= FIRST_WORDS and NUMBERS_OF * numbered >= different
        # 2/5 in whole numbers: no float stands for it exactly, and this decides which tokens count.
        if 5 * often > 2 * (different + 2) or (is_numbered and 5 * (often - labels) > 2 * (different - numbered + 2)):
            break
        start, end = block.starts[k], block.ends[k]
        # Length and count share a word, so that a slot is 24 bytes and one store writes both.
        count = _add(slots, slot_bits, block.hashes[k], start, (end - start) << 32 | 1)
        if count == 1:
            different += 1
            numbered += int(has_digit(data, start, end, text_end))
        elif count == OFTEN:
            often += 1
            labels += int(not 48 <= byte_at(data + start) <= 57 and has_digit(data, start, end, text_end))
        k += 1
    tally[0], tally[1], tally[2], tally[3] = different, often, numbered, labels
    return k


@inner
def _add_runs(block: TokenBlock, first: int, n: int, before: UInt64Array, slots: int, slot_bits: int) -> int:
    """Add to the table, for each token from `first` on, the run up to it; the number of new ones.

    Where a run has occurred more than RUN_OFTEN times, the next longer one is added too.
    """
    new, most = 0, before.size
    for k in range(first, n):
        h, size = ZERO, 0
        for wanted in RUN_WORDS:
            while size < wanted:
                at = k - size
                h = hash_step(h, block.hashes[at] if at >= 0 else before[most + at])
                size += 1
            count = _add(slots, slot_bits, finish(h, U64(wanted)), block.starts[k], 1)
            new += int(count == 1)
            if count <= RUN_OFTEN:
                break
    return new


@inner
def _remember(block: TokenBlock, n: int, before: UInt64Array) -> None:
    """Update `before`, the last 24 tokens of a text, by the first n of a block."""
    kept = max(before.size - n, 0)
    before[:kept] = before[before.size - kept :].copy()
    before[kept:] = block.hashes[n - (before.size - kept) : n]


@inner
def _drain(slots: UInt64Array, slot_bits: int, out: FeatureCounts, at: int) -> int:
    """Move the slots' contents to `out` from index `at` on, and free the slots; the index after the last.

    Which slots are free is unpredictable, so all are copied without a branch, and the next one overwrites a free one.
    The last may be copied to one index past the end: `_with_room` makes room for it.
    """
    hashes, starts, lengths, counts = out
    for word in range(0, 3 << slot_bits, 3):
        h, length_and_count = slots[word], slots[word + 2]
        hashes[at], starts[at] = h, np.int64(slots[word + 1])
        lengths[at], counts[at] = length_and_count >> U64(32), length_and_count & U64(0xFFFFFFFF)
        slots[word] = ZERO
        at += 1 if h != ZERO else 0
    return at


@inner
def _insertion_sort(out: FeatureCounts, first: int, last: int) -> None:
    """Sort the nearly sorted counts from `first` to `last` by hash."""
    hashes, starts, lengths, counts = out
    for i in range(first + 1, last):
        h = hashes[i]
        # The usual case, as slots are in order of the hash but for collisions; nothing is copied then.
        if hashes[i - 1] <= h:
            continue
        start, length, count = starts[i], lengths[i], counts[i]
        k = i
        while k > first and hashes[k - 1] > h:
            hashes[k], starts[k], lengths[k], counts[k] = hashes[k - 1], starts[k - 1], lengths[k - 1], counts[k - 1]
            k -= 1
        hashes[k], starts[k], lengths[k], counts[k] = h, start, length, count


@inner
def _finish_block(block: TokenBlock, n: int, salt: np.uint64) -> None:
    hashes = block.hashes
    for k in range(n):
        hashes[k] = finish(hashes[k], salt)


@inner
def _pair(block: TokenBlock, n: int, last: UInt64Array, token_number: int, ended: bool) -> int:
    """Replace the finished tokens of a block by the pairs ending in them; the number of pairs.

    Args:
        block: tokens; afterwards pairs.
        n: number of tokens.
        last: last[0] is the token before them, and is set to the last of them.
        token_number: tokens of the text before them.
        ended: whether the text ends here; a text of a single token has that alone as a pair.
    """
    pair_count, before = 0, last[0]
    for k in range(n):
        h = block.hashes[k]
        if token_number + k > 0:
            block.hashes[pair_count] = finish(hash_step(hash_step(ZERO, before), h), ZERO)
            block.starts[pair_count] = block.starts[k]
            pair_count += 1
        before = h
    last[0] = before
    if ended and token_number + n == 1:
        block.hashes[0] = finish(hash_step(ZERO, before), ZERO)
        pair_count = 1
    block.ends[:pair_count] = block.starts[:pair_count]
    return pair_count


@inner
def _structure(
    block: TokenBlock, n: int, ngrams: TokenBlock, window: UInt64Array, token_number: int, salt: np.uint64
) -> tuple[int, int]:
    """Collect the half of the n-grams of the parts of code with an even hash.

    A part is a token other than text; all identifiers are one part, so are all numbers and all strings. The hash of an
    n-gram is a polynomial of its parts: the next one adds one part and drops one (Karp and Rabin 1987, "Efficient
    randomized pattern-matching algorithms").

    Args:
        block: tokens before salt and mixing.
        n: number of tokens.
        ngrams: output block for the n-grams, with finished hashes; as long as `block`.
        window: the last STRUCTURE_TOKENS parts of the text in a ring, all 0 at its beginning, then the polynomial.
        token_number: parts of the text so far.
        salt: of the document's kind.

    Returns:
        Number of n-grams, and the new `token_number`.
    """
    polynomial, ngram_count = window[STRUCTURE_TOKENS], 0
    for k in range(n):
        kind = block.classes[k]
        if kind == TEXT:
            continue
        # + 1, because a step by 0 from 0 is 0, which stands for no part in an empty ring.
        part = block.hashes[k] if kind > TEXT else hash_step(ZERO, U64(kind + 1))
        slot = token_number % STRUCTURE_TOKENS
        polynomial = polynomial * FIRST_MULTIPLIER + part - window[slot] * _LEAVING
        window[slot] = part
        token_number += 1
        if token_number < STRUCTURE_TOKENS:
            continue
        h = finish(polynomial, salt ^ _STRUCTURE_SALT)
        ngrams.hashes[ngram_count], ngrams.starts[ngram_count], ngrams.ends[ngram_count] = (
            h,
            block.starts[k],
            block.starts[k],
        )
        ngram_count += 1 if h & ONE == ZERO else 0
    window[STRUCTURE_TOKENS] = polynomial
    return ngram_count, token_number


@inner
def _only_words(block: TokenBlock, n: int) -> int:
    """Keep only the words of a block; the number of them."""
    word_count = 0
    for k in range(n):
        block.hashes[word_count], block.starts[word_count], block.ends[word_count] = (
            block.hashes[k],
            block.starts[k],
            block.ends[k],
        )
        word_count += 1 if block.classes[k] < KEYWORD else 0
    return word_count


@compiled
def count_texts(
    data: UInt8Array,
    offsets: Int64Array,
    lexers: UInt8Array,
    salts: UInt64Array,
    features: UInt8Array,
    syntax: SyntaxTables,
    words: WordTables,
) -> tuple[Int64Array, FeatureCounts, int]:
    """Count the features of D texts.

    Memory beyond the result: two blocks of tokens, and slots for the distinct tokens of the largest text, 24 bytes
    each.

    Returns:
        (D + 1,) offsets into the counts (ascending in each text); the counts; the number of them.
    """
    texts = offsets.size - 1
    bounds = np.zeros(texts + 1, np.int64)
    block, ngrams, window = (
        new_block(_BLOCK_TOKENS),
        new_block(_BLOCK_TOKENS),
        np.zeros(STRUCTURE_TOKENS + 1, np.uint64),
    )
    tally, before = np.zeros(4, np.int64), np.zeros(RUN_WORDS[-1], np.uint64)
    state = np.empty(STATE_WORDS, np.int64)
    slots = np.zeros(3 << _SLOT_BITS, np.uint64)
    out = _new_counts(max(1024, (offsets[texts] - offsets[0]) // 8))
    total = 0
    for text in range(texts):
        i, end, lexer = offsets[text], offsets[text + 1], np.int64(lexers[text])
        structure = features[text] == WORDS_AND_STRUCTURE
        begin_text(i, lexer, structure, syntax, state)
        m = make_machine(data, end, lexer, syntax, words, state, block)
        used, token_number, ngram_count, slot_bits = 0, 0, 0, _FEWEST_SLOT_BITS
        window[:], before[:], tally[:] = ZERO, ZERO, 0
        while i < end:
            i, n = lex(m, i, lexer)
            if structure:
                ngram_count, token_number = _structure(block, n, ngrams, window, token_number, salts[text])
                n = _only_words(block, n)
            _finish_block(block, n, salts[text])
            if features[text] == WORD_PAIRS:
                token_count, n = n, _pair(block, n, window, token_number, i >= end)
                token_number += token_count
            new = n + ngram_count
            if 4 * (used + new) > 3 << slot_bits:  # three quarters full
                out = _with_room(out, total, used + 1)
                _drain(slots, slot_bits, out, total)
                while 4 * (used + new) > 3 << slot_bits:
                    slot_bits += 1
                if 3 << slot_bits > slots.size:
                    slots = np.zeros(3 << slot_bits, np.uint64)
                address = np.int64(slots.ctypes.data)
                for k in range(total, total + used):
                    counted = np.int64(out.lengths[k]) << 32 | np.int64(out.counts[k])
                    _add(address, slot_bits, out.hashes[k], out.starts[k], counted)
            address = np.int64(slots.ctypes.data)
            words_before = tally[0]
            added = _add_words(block, n, m.data, m.end, address, slot_bits, tally) if features[text] != WORD_RUNS else 0
            used += tally[0] - words_before + _add_ngrams(ngrams, ngram_count, address, slot_bits)
            used += _add_runs(block, added, n, before, address, slot_bits)
            _remember(block, n, before)
        out = _with_room(out, total, used + 1)
        _drain(slots, slot_bits, out, total)
        _insertion_sort(out, total, total + used)
        total += used
        bounds[text + 1] = total
    return bounds, out, total


@compiled
def lex_text(data: UInt8Array, lexer: int, structure: bool, syntax: SyntaxTables, words: WordTables) -> TokenBlock:
    """All tokens of one text in order, as a block of exactly that many; for benchmarks and tests."""
    state = np.empty(STATE_WORDS, np.int64)
    block = new_block(data.size)
    begin_text(0, lexer, structure, syntax, state)
    _, n = lex(make_machine(data, data.size, lexer, syntax, words, state, block), 0, lexer)
    return TokenBlock(block.hashes[:n], block.starts[:n], block.ends[:n], block.classes[:n])
