"""Score texts by a fastText model in compiled code: tokens, hashes, rows and losses as fastText defines them.

A text is a bag of rows of the input matrix, and its vector is their mean:

    text        "a fox"                  tokens split at white space and NUL, then </s> for the end of the line
    words       row(a), row(fox)         if the vocabulary knows them
    subwords    <f fo ox x> <fo fox ox>  minn to maxn characters of <fox>, hashed by FNV-1a into buckets
    word pairs  "a fox", "fox </s>"      up to word_ngrams words, hashed into the same buckets

Source: Joulin et al. 2017, "Bag of Tricks for Efficient Text Classification"; Joulin et al. 2016, "FastText.zip" (for
pruned and quantized models); hashes and layout as in version 0.9.2 of the program, whose quirks are kept: bytes above
127 are hashed as negative numbers, and every logarithm of a probability is that of p + 1e-5. One is not: there a token
`</s>` in a text ends it, and one that begins with `__label__` is left out. Here they are words that no model knows.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np

from headrace.kernels.compiling import compiled, inner
from spark_jobs.arrays import Float32Array, Float64Array, Int32Array, Int64Array, UInt8Array, UInt32Array, UInt64Array

HIERARCHICAL, NEGATIVE, SOFTMAX, ONE_VS_ALL = 1, 2, 3, 4  # the file's numbers
_END: Final = np.frombuffer(b"</s>", np.uint8)
_U64: Final = np.uint64
_ONE: Final = _U64(1)
_M32: Final = _U64(0xFFFFFFFF)
_FNV_BASIS, _FNV_PRIME = _U64(2166136261), _U64(16777619)  # of FNV-1a with 32 bits
_WORD_STEP: Final = _U64(116049371)  # fastText's, of n-grams of words
_SIGN: Final = _U64(0xFFFFFFFF00000000)  # fastText keeps hashes of words in 32 bits with a sign, and widens them
_ROWS: Final = 1024  # n-grams whose rows are summed in one go
_EPSILON: Final = 1e-5


class ModelArrays(NamedTuple):
    """A model's arrays for the kernels; W words, E entries (words, then L labels), R rows of H numbers.

    Attributes:
        word_count: W.
        bucket: buckets that n-grams are hashed into; 0 where the model has no n-grams.
        min_characters: fewest characters of a subword.
        max_characters: most of them; 0 where the model has no subwords.
        word_ngrams: most words of a word n-gram.
        loss: the loss, by its number in the file.
        entry_bytes: all entries, one after another.
        entry_starts: (E + 1,) where each begins.
        slots: open addressing by the hash of an entry, a power of two of them; -1 is free.
        is_pruned: whether only some buckets have a row.
        kept_bits: bucket b has a row where bit b % 64 of word b // 64 is set.
        kept_before: number of buckets with a row before each 64-bit word of `kept_bits`.
        rows: (R, H) the input matrix: the words, then the buckets that have a row, in their order.
        word_sums: (W, H) sum of the rows of each word: its own and those of its subwords.
        word_rows: (W,) number of rows in that sum.
        output: (L, H) the output matrix.
        left: (2 L - 1,) left child of each node in the Huffman tree of the labels; empty for other losses.
        right: right child of each.
    """

    word_count: int
    bucket: int
    min_characters: int
    max_characters: int
    word_ngrams: int
    loss: int
    entry_bytes: UInt8Array
    entry_starts: Int64Array
    slots: Int32Array
    is_pruned: bool
    kept_bits: UInt64Array
    kept_before: Int32Array
    rows: Float32Array
    word_sums: Float32Array
    word_rows: Int32Array
    output: Float32Array
    left: Int32Array
    right: Int32Array


class Scratch(NamedTuple):
    """Memory that is reused from text to text.

    Attributes:
        word: the current token as <token>.
        buckets: of n-grams whose rows wait to be added.
        partial: hashes of the word n-grams that the next token continues, the shortest first.
        hidden: (H,) the vector of the text.
        block: (H,) sum of the rows of some n-grams.
        scores: (2 L - 1,) scores of the labels, then of the inner nodes of their tree.
    """

    word: UInt8Array
    buckets: UInt32Array
    partial: UInt64Array
    hidden: Float64Array
    block: Float32Array
    scores: Float64Array


@inner(inline="always")
def _fnv(h: Any, byte: Any) -> Any:
    """One step of FNV-1a in 32 bits; the byte is a signed char there."""
    wide = _U64(byte)
    if byte >= 128:
        wide |= _U64(0xFFFFFF00)
    return ((h ^ wide) * _FNV_PRIME) & _M32


@inner(inline="always")
def _is_space(byte: Any) -> bool:
    return byte == 32 or (9 <= byte <= 13) or byte == 0


@inner
def hash_entry(data: UInt8Array, start: int, end: int) -> Any:
    """FNV-1a of the bytes from start to end."""
    h = _FNV_BASIS
    for i in range(start, end):
        h = _fnv(h, data[i])
    return h


@inner
def _find(slots: Int32Array, starts: Int64Array, entries: UInt8Array, h: Any, word: UInt8Array, length: int) -> int:
    """Number of the entry equal to the token in `word`, or -1; `length` is the token's, without < and >."""
    mask = slots.size - 1
    slot = np.int64(h) & mask
    while slots[slot] >= 0:
        entry = np.int64(slots[slot])
        first = starts[entry]
        if starts[entry + 1] - first == length:
            i = 0
            while i < length and entries[first + i] == word[1 + i]:
                i += 1
            if i == length:
                return entry
        slot = (slot + 1) & mask
    return -1


@inner
def is_end_of_line(word: UInt8Array, length: int) -> bool:
    """Whether <token> is the token that ends a text."""
    return length == _END.size and bool((word[1 : 1 + length] == _END).all())


@inner(error_model="numpy")
def hash_subwords(
    word: UInt8Array, first: int, length: int, low: int, high: int, bucket: Any, out: UInt32Array, used: int
) -> tuple[int, int]:
    """Append the buckets of the subwords of <token> that begin at `first` or later, as long as there is room.

    Returns:
        The position to go on from (`length` at the end), and the used size of `out`.
    """
    i = first
    while i < length and used + high <= out.size:  # at most `high` subwords begin at a character
        h = _FNV_BASIS
        j = i
        n = 1
        while j < length and n <= high:
            h = _fnv(h, word[j])
            j += 1
            while j < length and word[j] & 0xC0 == 0x80:
                h = _fnv(h, word[j])
                j += 1
            if n >= low and not (n == 1 and (i == 0 or j == length)):  # < and > alone are none
                out[used] = np.uint32(h) % bucket
                used += 1
            n += 1
        i += 1
        while i < length and word[i] & 0xC0 == 0x80:
            i += 1
    return i, used


@inner(inline="always")
def _bit_count(bits: Any) -> Any:
    bits = bits - ((bits >> _U64(1)) & _U64(0x5555555555555555))
    bits = (bits & _U64(0x3333333333333333)) + ((bits >> _U64(2)) & _U64(0x3333333333333333))
    bits = (bits + (bits >> _U64(4))) & _U64(0x0F0F0F0F0F0F0F0F)
    return (bits * _U64(0x0101010101010101)) >> _U64(56)


@inner
def add_rows(t: ModelArrays, s: Scratch, used: int) -> int:
    """Add the rows of the first `used` buckets to `s.hidden`, summed in 32 bits first; the number that have a row."""
    rows, bits, before, buckets = t.rows, t.kept_bits, t.kept_before, s.buckets
    word_count, block, hidden = t.word_count, s.block, s.hidden
    width = block.size
    if t.is_pruned:
        ngram_count = 0
        for k in range(used):  # without a branch: whether a bucket has a row cannot be predicted
            bucket = np.int64(buckets[k])
            some = bits[bucket >> 6]
            bit = _U64(bucket & 63)
            buckets[ngram_count] = np.int64(before[bucket >> 6]) + np.int64(_bit_count(some & ((_ONE << bit) - _ONE)))
            ngram_count += int((some >> bit) & _ONE)
        used = ngram_count
    block[:] = 0
    for k in range(used):
        row = word_count + np.int64(buckets[k])
        for d in range(width):
            block[d] += rows[row, d]
    for d in range(width):
        hidden[d] += block[d]
    return used


@inner(error_model="numpy")
def embed(t: ModelArrays, s: Scratch, data: UInt8Array, start: int, end: int) -> bool:  # noqa: PLR0912 (one loop, whole)
    """Put the vector of a text into `s.hidden`; false if the model has no row for it: fastText gives no label then."""
    word, hidden, partial, buckets = s.word, s.hidden, s.partial, s.buckets
    slots, starts, entries, sums, row_counts = t.slots, t.entry_starts, t.entry_bytes, t.word_sums, t.word_rows
    low, high, bucket, word_count = t.min_characters, t.max_characters, np.uint32(t.bucket), t.word_count
    ngrams = t.word_ngrams if t.bucket > 0 else 1
    hidden[:] = 0
    word[0] = ord("<")
    i = start
    used = row_count = live = 0
    is_end = False
    while not is_end:
        while i < end and _is_space(data[i]):
            i += 1
        h = _FNV_BASIS
        length = 0
        is_end = i >= end
        if is_end:
            for k in range(_END.size):
                h = _fnv(h, _END[k])
                word[1 + k] = _END[k]
            length = _END.size
        while i < end and not _is_space(data[i]):
            h = _fnv(h, data[i])
            length += 1
            word[length] = data[i]
            i += 1
        word[1 + length] = ord(">")
        entry = _find(slots, starts, entries, h, word, length)
        if entry >= word_count or (entry >= 0 and not is_end and is_end_of_line(word, length)):
            entry = -1
        if entry >= 0:
            for d in range(hidden.size):
                hidden[d] += sums[entry, d]
            row_count += row_counts[entry]
        elif high > 0 and bucket > 0 and not is_end:
            at = 0
            while at < length + 2:
                at, used = hash_subwords(word, at, length + 2, low, high, bucket, buckets, used)
                if at < length + 2:
                    row_count += add_rows(t, s, used)
                    used = 0
        if ngrams > 1:
            signed = h | _SIGN if h >> _U64(31) else h
            if used + live > buckets.size:
                row_count += add_rows(t, s, used)
                used = 0
            for k in range(live):
                partial[k] = partial[k] * _WORD_STEP + signed
                buckets[used] = partial[k] % _U64(bucket)
                used += 1
            live = min(live + 1, ngrams - 1)
            for k in range(live - 1, 0, -1):
                partial[k] = partial[k - 1]
            partial[0] = signed
    row_count += add_rows(t, s, used)
    for d in range(hidden.size):
        hidden[d] /= max(row_count, 1)
    return row_count > 0


@inner(fastmath={"reassoc", "contract"})
def _dot(matrix: Float32Array, row: int, hidden: Float64Array) -> float:
    product = 0.0
    for d in range(hidden.size):
        product += matrix[row, d] * hidden[d]
    return product


@inner
def label_scores(t: ModelArrays, s: Scratch, only_best: bool) -> None:
    """Turn `s.hidden` into the probabilities of the labels, in the first L of `s.scores`.

    Args:
        t: the model.
        s: `hidden` is read, `scores` are written.
        only_best: whether only the best label needs its probability: branches of the Huffman tree that cannot beat
            it are skipped, and their labels get 0.
    """
    scores, hidden, output, left, right = s.scores, s.hidden, t.output, t.left, t.right
    label_count = output.shape[0]
    if t.loss == HIERARCHICAL:
        scores[2 * label_count - 2] = 1.0  # the root is the last node
        best = 0.0
        for node in range(2 * label_count - 2, label_count - 1, -1):
            near, other = left[node], right[node]
            if only_best and scores[node] <= best:
                scores[near] = scores[other] = 0.0
                continue
            f = 1.0 / (1.0 + math.exp(-_dot(output, node - label_count, hidden)))
            scores[near] = scores[node] * (1.0 - f + _EPSILON)
            scores[other] = scores[node] * (f + _EPSILON)
            if near < label_count:
                best = max(best, scores[near])
            if other < label_count:
                best = max(best, scores[other])
        return
    for label in range(label_count):
        scores[label] = _dot(output, label, hidden)
    if t.loss == SOFTMAX:
        top = scores[:label_count].max()
        total = 0.0
        for label in range(label_count):
            scores[label] = math.exp(scores[label] - top)
            total += scores[label]
        for label in range(label_count):
            scores[label] = scores[label] / total + _EPSILON
        return
    for label in range(label_count):  # fastText reads the logistic function from a table of 512 steps over [-8, 8]
        x = scores[label]
        step = math.floor((min(max(x, -8.0), 8.0) + 8.0) * 32.0)
        p = 1.0 / (1.0 + math.exp(8.0 - step / 32.0))
        scores[label] = (0.0 if x < -8 else 1.0 if x > 8 else p) + _EPSILON


@inner
def new_scratch(t: ModelArrays, longest: int) -> Scratch:
    """Memory for texts of at most `longest` bytes."""
    return Scratch(
        np.empty(max(longest, _END.size) + 2, np.uint8),
        np.empty(max(_ROWS, t.max_characters, t.word_ngrams), np.uint32),
        np.empty(max(t.word_ngrams, 1), np.uint64),
        np.zeros(t.rows.shape[1], np.float64),
        np.zeros(t.rows.shape[1], np.float32),
        np.zeros(max(2 * t.output.shape[0] - 1, 1), np.float64),
    )


@inner
def best_label(t: ModelArrays, s: Scratch) -> int:
    """Number of the label with the highest score."""
    best = 0
    for label in range(1, t.output.shape[0]):
        if s.scores[label] > s.scores[best]:
            best = label
    return best


@compiled
def score_texts(
    t: ModelArrays,
    data: UInt8Array,
    offsets: Int64Array,
    wanted: Int64Array,
    probabilities: Float32Array,
    best: Int32Array,
    of_best: Float32Array,
) -> None:
    """Fill (D, W) `probabilities` of wanted labels, (D,) `best` label and (D,) its `of_best`; NaN, -1, NaN for none."""
    longest = np.int64(0)
    for text in range(offsets.size - 1):
        longest = max(longest, offsets[text + 1] - offsets[text])
    s = new_scratch(t, longest)
    for text in range(offsets.size - 1):
        if not embed(t, s, data, offsets[text], offsets[text + 1]):
            probabilities[text], best[text], of_best[text] = np.nan, -1, np.nan
            continue
        label_scores(t, s, wanted.size == 0)
        for k in range(wanted.size):
            probabilities[text, k] = s.scores[wanted[k]]
        best[text] = best_label(t, s)
        of_best[text] = s.scores[best[text]]
