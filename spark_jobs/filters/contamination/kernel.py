"""Find the items of an index in texts: seeds by a rolling hash, extended letter by letter, then verified.

A document is folded to letters (`folding`). A hash of the last `SEED_LETTERS` rolls over them, and a Bloom filter of
two bits tells at nearly every letter that no item has these. Where an item does, at a word `q`, both are compared
letter by letter to both sides, which gives the longest run that they share:

    item      ..  how many eggs | does Janet sell every day at the market | how much ..
    document  ..  They asked us | Does Janet sell, every-day at the Mar-ket | then we ..
                                  ^ seed: doesjanetselleveryda

The whole words of the item in that run decide: all of them make an *exact* finding, a counting n-gram one of kind
*ngram*. Nothing is found by a hash alone. Seeds of an item that are close together, though their runs may be short, are
a candidate for *near*: the window of the document is found whose words have the largest weighted Jaccard similarity
(each word weighs its inverse document frequency among the items) with those of the item.

Offsets of documents are bytes of the source, and of letters are bytes of the fold. Marks, one for about every
`_BLOCK` bytes of the source, lead from one to the other.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from headrace.kernels.compiling import compiled
from headrace.kernels.hash_tables import entry_slot
from headrace.kernels.mixing import FIRST_MULTIPLIER, GOLDEN
from headrace.kernels.utf8 import code_point, width
from spark_jobs.arrays import BoolArray, Int32Array, Int64Array, UInt8Array, UInt64Array
from spark_jobs.filters.contamination.folding import FoldTables

SEED_LETTERS: Final = 20
EXACT: Final = 0
NGRAM: Final = 1
NEAR: Final = 2
NUMBER_WEIGHT: Final = 1
"""Weight of a word of digits in the similarity of NEAR, the smallest: a question with other numbers is the same."""
ROW_FIELDS: Final = 9
"""Of a row of findings: document, text, kind, first and last byte, first and last word of the item that is covered; of
NEAR the weights whose quotient is the similarity, else 0."""

_BASE: Final = FIRST_MULTIPLIER
_LEAVING: Final = np.uint64(pow(int(_BASE), SEED_LETTERS, 1 << 64))
_BLOCK: Final = 1024
_MOST_LETTERS: Final = 12  # bytes of a fold for a byte of the source: U+FDFA, a phrase of eighteen letters
_SPACE: Final = 32
_NEVER: Final = -(1 << 60)
_LONGEST_CLUSTER: Final = 8
# What is known of a text in the document at hand: this document; the first and last letter of the open cluster of
# seeds, their number, and the word of the last one; the letter of its last exact finding; its rows, and the letter
# that they reach.
_DOCUMENT, _FIRST, _LAST, _SEEDS, _WORD, _EXACT, _ROWS, _REACH = range(8)
_STATE_FIELDS: Final = 8
# Runs that were followed last: document, text, shift and end of each, in a row that text and shift choose.
_RUNS: Final = 1 << 12
MOST_ROWS: Final = 64
"""Rows of a text in a document, and as many letters for each one more; then no seed is followed inside of what is told.

A document and an item that repeat one line would else show a run for every two places of it. No seed stands in more
places of the items, so all runs through the first one are told.
"""
_S6: Final = np.uint64(6)
_S12: Final = np.uint64(12)
_S32: Final = np.uint64(32)
_LOW6: Final = np.uint64(63)
_ONE: Final = np.uint64(1)


class Index(NamedTuple):
    """The distinct texts of all eval sets, as compiled code reads them.

    T texts have W words, whose letters stand one after another; a word ends where the next begins.

    Attributes:
        letters: the letters of all texts.
        word_starts: (W + 1,) where a word begins in `letters`.
        text_words: (T + 1,) the first word of each text.
        word_texts: (W,) the text of a word.
        gram_ends: (W,) the word after the n-gram that begins at a word; beyond all words where none does.
        counting: (W + 1,) n-grams that count, before each word.
        seed_hashes: (S,) hashes of the seeds, ascending.
        seed_starts: (S + 1,) the first posting of each seed.
        postings: (P,) the words at which seeds begin.
        near_seeds: (S,) whether a seed is rare enough to make a candidate for *near*.
        slots: hash table of seeds, a power of two in size; -1 is free.
        bloom: words of 64 bits of the filter, a power of two in number.
        vocabulary: hashes of all words, ascending.
        weights: their weights.
        unknown_weight: weight of a word that no item has, in an array of one.
        text_vocabulary: (T + 1,) the first entry of each text in the three that follow.
        text_hashes: hashes of the distinct words of each text, ascending within it.
        text_counts: how often the text has them.
        text_weights: their weights.
    """

    letters: UInt8Array
    word_starts: Int64Array
    text_words: Int64Array
    word_texts: Int32Array
    gram_ends: Int64Array
    counting: Int64Array
    seed_hashes: UInt64Array
    seed_starts: Int64Array
    postings: Int64Array
    near_seeds: BoolArray
    slots: Int32Array
    bloom: UInt64Array
    vocabulary: UInt64Array
    weights: Int64Array
    unknown_weight: Int64Array
    text_vocabulary: Int64Array
    text_hashes: UInt64Array
    text_counts: Int64Array
    text_weights: Int64Array


class Settings(NamedTuple):
    """What makes a finding of kind NEAR.

    Attributes:
        near_seeds: seeds of an item that make a candidate, each within the item's length of the last.
        min_near_words: fewest words of an item that is looked for.
        min_similarity: least weighted Jaccard similarity.
    """

    near_seeds: int
    min_near_words: int
    min_similarity: float


class Document(NamedTuple):
    """A document as it is searched: number, bytes in `data`, letters, the way back from these, and for what."""

    number: int
    data: UInt8Array
    end: int
    letters: UInt8Array
    letter_count: int
    marks: Int64Array
    tables: FoldTables
    searched: Index
    settings: Settings


@njit
def _fold(
    data: UInt8Array, begin: int, end: int, tables: FoldTables, letters: UInt8Array, marks: Int64Array
) -> tuple[UInt8Array, int, int]:
    """Fold a text to letters; `letters` grows as it must. Returns it, the number of letters and that of marks."""
    i, count, blocks = begin, 0, 0
    while i < end:
        if count + _MOST_LETTERS * (_BLOCK + 4) > letters.size:
            grown = np.empty(2 * letters.size + _MOST_LETTERS * (_BLOCK + 4), dtype=np.uint8)
            grown[:count] = letters[:count]
            letters = grown
        marks[blocks, 0] = i
        marks[blocks, 1] = count
        blocks += 1
        stop = min(i + _BLOCK, end)
        while i < stop:
            fold = tables.quick[data[i]]
            if fold > 1:
                letters[count] = fold
                count += fold != _SPACE
                i += 1
            elif fold == 1:
                i = _after_escape(data, i, end)
            else:
                point = code_point(data, i)
                i += width(data[i])
                for k in range(tables.starts[point], tables.starts[point + 1]):
                    letters[count] = tables.pool[k]
                    count += tables.pool[k] != _SPACE
    return letters, count, blocks


@njit
def _after_escape(data: UInt8Array, i: int, end: int) -> int:
    """Where the text goes on after a backslash, which takes an n, r or t along."""
    i += 1
    return i + 1 if i < end and (data[i] == 110 or data[i] == 114 or data[i] == 116) else i


@njit
def _trace(data: UInt8Array, begin: int, end: int, tables: FoldTables, at_start: bool) -> Any:
    """Fold a part of a text, slowly, with the origin of each letter.

    Returns:
        (L,) letters, (L,) the first byte and (L,) the byte after the character that each came from, and (L,) whether a
        word begins with it; at the first letter this is `at_start`.
    """
    marks = np.empty(((end - begin) // _BLOCK + 1, 2), dtype=np.int64)
    _, size, _ = _fold(data, begin, end, tables, np.empty(0, dtype=np.uint8), marks)
    letters, fresh = np.empty(size, dtype=np.uint8), np.empty(size, dtype=np.bool_)
    firsts, lasts = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    i, count, separated = begin, 0, at_start
    while i < end:
        first, point = i, code_point(data, i)
        i = _after_escape(data, i, end) if point == 92 else i + width(data[i])
        for k in range(tables.starts[point], tables.starts[point + 1]):
            if tables.pool[k] == _SPACE:
                separated = True
            else:
                letters[count], fresh[count], firsts[count], lasts[count] = tables.pool[k], separated, first, i
                count += 1
                separated = False
    return letters, firsts, lasts, fresh


@compiled
def fold_items(data: UInt8Array, offsets: Int64Array, tables: FoldTables) -> tuple[UInt8Array, Int64Array, Int64Array]:
    """Fold texts to letters and words.

    Returns:
        The letters of all texts, (W + 1,) where words begin in them, (T + 1,) the first word of each text.
    """
    letters = np.empty(1 << 16, dtype=np.uint8)
    starts = np.empty(1 << 16, dtype=np.int64)
    text_words = np.zeros(offsets.size, dtype=np.int64)
    count, words = 0, 0
    for text in range(offsets.size - 1):
        part, _, _, fresh = _trace(data, offsets[text], offsets[text + 1], tables, True)
        while count + part.size > letters.size:
            letters = np.concatenate((letters, np.empty_like(letters)))
        while words + part.size + 1 > starts.size:
            starts = np.concatenate((starts, np.empty_like(starts)))
        for k in range(part.size):
            if fresh[k]:
                starts[words] = count + k
                words += 1
        letters[count : count + part.size] = part
        count += part.size
        text_words[text + 1] = words
    starts[words] = count
    return letters[:count].copy(), starts[: words + 1].copy(), text_words


@compiled
def hash_spans(letters: UInt8Array, starts: Int64Array, ends: Int64Array) -> UInt64Array:
    """(N,) polynomial hashes of runs of letters; that of a seed is the one that rolls over documents."""
    hashes = np.empty(starts.size, dtype=np.uint64)
    for n in range(starts.size):
        value = np.uint64(0)
        for k in range(starts[n], ends[n]):
            value = value * _BASE + letters[k]
        hashes[n] = value
    return hashes


@compiled
def add_to_filter(bloom: UInt64Array, slots: Int32Array, hashes: UInt64Array) -> None:
    """Enter the seeds into the filter and the hash table."""
    for seed in range(hashes.size):
        mixed = hashes[seed] * GOLDEN
        bloom[(mixed >> _S32) & np.uint64(bloom.size - 1)] |= _bits(mixed)
        slots[entry_slot(slots, hashes, mixed >> _S12, hashes[seed])] = seed


@njit
def _bits(mixed: np.uint64) -> np.uint64:
    """The two bits of a seed in its word of the filter, from the top bits of its mixed hash."""
    top = mixed >> np.uint64(52)
    return (_ONE << (top & _LOW6)) | (_ONE << (top >> _S6))


@njit
def _seed_of(index: Index, value: np.uint64, mixed: np.uint64) -> int:
    """The seed with a hash, or -1."""
    return index.slots[entry_slot(index.slots, index.seed_hashes, mixed >> _S12, value)]


@njit
def _locate(document: Document, letter: int) -> tuple[int, int, bool]:
    """The first byte, and the byte after the character, that a letter came from; whether it begins a word."""
    block = max(np.searchsorted(document.marks[:, 1], letter) - 1, 0)  # the last mark with a letter before this one
    _, firsts, lasts, fresh = _traced(document, block, np.searchsorted(document.marks[:, 1], letter, side="right"))
    k = letter - document.marks[block, 1]
    return firsts[k], lasts[k], fresh[k]


@njit
def _traced(document: Document, block: int, stop_block: int) -> Any:
    """What `_trace` gives of some blocks of a document."""
    marks = document.marks
    stop = marks[stop_block, 0] if stop_block < len(marks) else document.end
    return _trace(document.data, marks[block, 0], stop, document.tables, block == 0)


@njit
def _shared_run(document: Document, place: int, word: int) -> tuple[int, int]:
    """The longest run around a seed that a document (at `place`) and an item (at `word`) share, in letters of items."""
    letters, count, index = document.letters, document.letter_count, document.searched
    start, text = index.word_starts[word], index.word_texts[word]
    first = index.word_starts[index.text_words[text]]
    last = index.word_starts[index.text_words[text + 1]]
    after = 0
    while place + after < count and start + after < last and letters[place + after] == index.letters[start + after]:
        after += 1
    if after < SEED_LETTERS:  # only the hashes agree
        return start, start
    before = 0
    while (
        place > before and start - before > first and letters[place - before - 1] == index.letters[start - before - 1]
    ):
        before += 1
    return start - before, start + after


@njit
def _covered(index: Index, text: int, first: int, last: int) -> tuple[int, int]:
    """The first and the word after the last of a text that stand whole in a run of its letters."""
    begin, end = index.text_words[text], index.text_words[text + 1]
    starts = index.word_starts[begin : end + 1]
    return begin + np.searchsorted(starts, first), begin + np.searchsorted(starts, last, side="right") - 1


@njit
def _tells(index: Index, text: int, first: int, last: int) -> bool:
    """Whether words `first` to `last` of a text are all of it, or hold an n-gram that counts."""
    if last <= first:
        return False
    begin, end = index.text_words[text], index.text_words[text + 1]
    after = first + np.searchsorted(index.gram_ends[first:end], last, side="right")
    return (first == begin and last == end) or index.counting[after] > index.counting[first]


@njit
def _verified(document: Document, text: int, shift: int, run: Any) -> tuple[int, int, int, int]:
    """What a shared run shows: first and last byte, and covered words; the same word twice where it shows nothing.

    A word at the end of the run is covered only if it is a word of the document too: `eggs` is not in `eggshells`.
    """
    index = document.searched
    first, last = _covered(index, text, run[0], run[1])
    if not _tells(index, text, first, last):
        return 0, 0, first, first
    if index.word_starts[first] == run[0] and not _locate(document, run[0] + shift)[2]:
        first += 1
    after = run[1] + shift
    if index.word_starts[last] == run[1] and after < document.letter_count and not _locate(document, after)[2]:
        last -= 1
    if not _tells(index, text, first, last):
        return 0, 0, first, first
    start, _, _ = _locate(document, index.word_starts[first] + shift)
    _, end, _ = _locate(document, index.word_starts[last] - 1 + shift)
    return start, end, first, last


@njit
def _words_between(document: Document, first: int, last: int) -> Any:
    """Hashes, first bytes and end bytes of the words in the blocks of a document that hold letters first to last.

    The fourth array tells the words that are made of digits.
    """
    places = document.marks[:, 1]
    block = max(np.searchsorted(places, first, side="right") - 1, 0)
    letters, firsts, lasts, fresh = _traced(document, block, np.searchsorted(places, last))
    size = fresh.sum()
    hashes = np.zeros(size, dtype=np.uint64)
    starts, ends = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    numeric = np.ones(size, dtype=np.bool_)
    word = -1
    for k in range(letters.size):
        if fresh[k]:
            word += 1
            starts[word] = firsts[k]
        if word >= 0:
            hashes[word] = hashes[word] * _BASE + letters[k]
            ends[word] = lasts[k]
            numeric[word] &= 48 <= letters[k] <= 57
    return hashes, starts, ends, numeric


@njit
def _best_window(hashes: UInt64Array, numeric: BoolArray, index: Index, text: int) -> tuple[int, int, int, int]:
    """The window of a document's words with the largest weighted Jaccard similarity to a text.

    Windows have as many words as the text. Of the first of the best ones, words are taken off both ends as long as this
    raises the similarity.

    Returns:
        The weight shared and the weight of both, whose quotient is the similarity, the first word and the one after the
        last.
    """
    begin, end = index.text_vocabulary[text], index.text_vocabulary[text + 1]
    own, counts = index.text_hashes[begin:end], index.text_counts[begin:end]
    own_weight = (index.text_weights[begin:end] * counts).sum()
    ranks, weights = np.empty(hashes.size, dtype=np.int64), np.empty(hashes.size, dtype=np.int64)
    for k in range(hashes.size):
        at = np.searchsorted(own, hashes[k])
        ranks[k] = at if at < own.size and own[at] == hashes[k] else -1
        any_at = np.searchsorted(index.vocabulary, hashes[k])
        known = any_at < index.vocabulary.size and index.vocabulary[any_at] == hashes[k]
        weights[k] = index.weights[any_at] if known else NUMBER_WEIGHT if numeric[k] else index.unknown_weight[0]
    size = index.text_words[text + 1] - index.text_words[text]
    seen = np.zeros(own.size, dtype=np.int64)
    shared, weight, best, best_last = 0, 0, -1.0, 0
    for k in range(hashes.size):
        shared += _enter(seen, counts, ranks[k], weights[k])
        weight += weights[k]
        if k >= size:
            shared -= _leave(seen, counts, ranks[k - size], weights[k - size])
            weight -= weights[k - size]
        if shared / (weight + own_weight - shared) > best:
            best, best_last = shared / (weight + own_weight - shared), k + 1
    first, last = max(best_last - size, 0), best_last
    seen[:] = 0
    shared, weight = 0, 0
    for k in range(first, last):
        shared += _enter(seen, counts, ranks[k], weights[k])
        weight += weights[k]
    while first < last and (ranks[first] < 0 or seen[ranks[first]] > counts[ranks[first]]):
        shared -= _leave(seen, counts, ranks[first], weights[first])
        weight -= weights[first]
        first += 1
    while first < last and (ranks[last - 1] < 0 or seen[ranks[last - 1]] > counts[ranks[last - 1]]):
        last -= 1
        shared -= _leave(seen, counts, ranks[last], weights[last])
        weight -= weights[last]
    return shared, weight + own_weight - shared, first, last


@njit
def _enter(seen: Int64Array, counts: Int64Array, rank: int, weight: int) -> int:
    """What a word that enters the window adds to the weight that it shares."""
    if rank < 0:
        return 0
    seen[rank] += 1
    return weight if seen[rank] <= counts[rank] else 0


@njit
def _leave(seen: Int64Array, counts: Int64Array, rank: int, weight: int) -> int:
    """What a word that leaves the window takes from the weight that it shares."""
    if rank < 0:
        return 0
    seen[rank] -= 1
    return weight if seen[rank] < counts[rank] else 0


@compiled
def find(data: UInt8Array, offsets: Int64Array, tables: FoldTables, index: Index, settings: Settings) -> Int64Array:
    """Find the items of an index in texts.

    Args:
        data: texts in UTF-8, one after another.
        offsets: (D + 1,) where they begin in it.
        tables: the folds of all code points.
        index: of the items.
        settings: what makes a finding of kind NEAR.

    Returns:
        (F, ROW_FIELDS) findings, in the order in which they are made.
    """
    rows = np.empty((256, ROW_FIELDS), dtype=np.int64)
    text_count = index.text_words.size - 1
    state = np.zeros((text_count, _STATE_FIELDS), dtype=np.int64)
    state[:, _DOCUMENT] = -1
    runs = np.full((_RUNS, 4), -1, dtype=np.int64)
    touched = np.empty(text_count, dtype=np.int64)
    letters, made = np.empty(1 << 16, dtype=np.uint8), 0
    leaving = np.arange(256).astype(np.uint64) * _LEAVING
    bloom_mask = np.uint64(index.bloom.size - 1)
    for doc in range(offsets.size - 1):
        end = offsets[doc + 1]
        marks = np.empty(((end - offsets[doc]) // _BLOCK + 1, 2), dtype=np.int64)
        letters, count, blocks = _fold(data, offsets[doc], end, tables, letters, marks)
        document = Document(doc, data, end, letters, count, marks[:blocks], tables, index, settings)
        touched_count, value = 0, np.uint64(0)
        for k in range(count):
            value = value * _BASE + letters[k]
            if k >= SEED_LETTERS:
                value -= leaving[letters[k - SEED_LETTERS]]
            mixed = value * GOLDEN
            bits = _bits(mixed)
            if index.bloom[(mixed >> _S32) & bloom_mask] & bits != bits or k < SEED_LETTERS - 1:
                continue
            seed = _seed_of(index, value, mixed)
            if seed < 0:
                continue
            for posting in range(index.seed_starts[seed], index.seed_starts[seed + 1]):
                word = index.postings[posting]
                text = np.int64(index.word_texts[word])
                if state[text, _DOCUMENT] != doc:
                    state[text] = 0
                    state[text, _DOCUMENT], state[text, _EXACT] = doc, _NEVER
                    touched[touched_count] = text
                    touched_count += 1
                place = k + 1 - SEED_LETTERS
                if k >= state[text, _REACH] or state[text, _ROWS] < MOST_ROWS + place // MOST_ROWS:
                    shift = place - index.word_starts[word]
                    run = np.int64((np.uint64(text) * GOLDEN + np.uint64(shift)) & np.uint64(_RUNS - 1))
                    if runs[run, 0] != doc or runs[run, 1] != text or runs[run, 2] != shift or runs[run, 3] <= place:
                        rows = _with_room(rows, made)
                        made = _follow(document, word, place, state[text], runs[run], rows, made)
                if index.near_seeds[seed]:
                    rows = _with_room(rows, made)
                    made = _gather(document, word, place, state[text], rows, made)
        for k in range(touched_count):
            rows = _with_room(rows, made)
            made = _close(document, touched[k], state[touched[k]], rows, made)
    return rows[:made].copy()


@njit
def _with_room(rows: Int64Array, made: int) -> Int64Array:
    """Rows with room for two more."""
    return rows if made + 2 <= rows.shape[0] else np.concatenate((rows, np.empty_like(rows)))


@njit
def _follow(
    document: Document, word: int, place: int, own: Int64Array, followed: Int64Array, rows: Int64Array, made: int
) -> int:
    """Extend a seed that lies in no run of its text already, and write a row if the run shows something."""
    index = document.searched
    text = np.int64(index.word_texts[word])
    shift = place - index.word_starts[word]
    run = _shared_run(document, place, word)
    if run[0] == run[1]:
        return made
    followed[0], followed[1], followed[2], followed[3] = document.number, text, shift, run[1] + shift
    start, end, first, last = _verified(document, text, shift, run)
    if first == last:
        return made
    whole = last - first == index.text_words[text + 1] - index.text_words[text]
    if whole:
        own[_EXACT] = run[0] + shift
    own[_ROWS] += 1
    own[_REACH] = max(own[_REACH], run[1] + shift)
    rows[made] = (document.number, text, EXACT if whole else NGRAM, start, end, first, last, 0, 0)
    return made + 1


@njit
def _gather(document: Document, word: int, place: int, own: Int64Array, rows: Int64Array, made: int) -> int:
    """Take a seed into the open cluster of its text, or end that one and open another."""
    index = document.searched
    text = np.int64(index.word_texts[word])
    length = index.word_starts[index.text_words[text + 1]] - index.word_starts[index.text_words[text]]
    # A document may repeat a phrase of the item without end: what is verified at once stays a few items long.
    if own[_SEEDS] > 0 and (place - own[_LAST] > length or place - own[_FIRST] > _LONGEST_CLUSTER * length):
        made = _close(document, text, own, rows, made)
    if own[_SEEDS] == 0:
        own[_FIRST], own[_WORD] = place, -1
    own[_LAST] = place
    own[_SEEDS] += own[_WORD] != word
    own[_WORD] = word
    return made


@njit
def _close(document: Document, text: int, own: Int64Array, rows: Int64Array, made: int) -> int:
    """End a cluster of seeds, and write a row if it is a near copy of the text and holds no exact one."""
    index, settings = document.searched, document.settings
    enough, own[_SEEDS] = own[_SEEDS] >= settings.near_seeds, 0
    begin, end = index.text_words[text], index.text_words[text + 1]
    length = index.word_starts[end] - index.word_starts[begin]
    if not enough or end - begin < settings.min_near_words or own[_EXACT] >= own[_FIRST] - length:
        return made
    hashes, starts, ends, numeric = _words_between(document, own[_FIRST] - length, own[_LAST] + SEED_LETTERS + length)
    shared, both, first, last = _best_window(hashes, numeric, index, text)
    if shared / both < settings.min_similarity or first == last:
        return made
    rows[made] = (document.number, text, NEAR, starts[first], ends[last - 1], begin, end, shared, both)
    return made + 1
