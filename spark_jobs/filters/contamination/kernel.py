"""Find the items of an index in texts: seeds by a rolling hash, extended letter by letter, then verified.

A document is folded to letters (`folding`), and a hash of the last `SEED_LETTERS` letters rolls over them. Where an
item has the same letters from the start of a word on (a *seed*), document and item are compared letter by letter to
both sides, to the longest common run:

    item      ..  how many eggs | does Janet sell every day at the market | how much ..
    document  ..  They asked us | Does Janet sell, every-day at the Mar-ket | then we ..
                                  ^ seed: doesjanetselleveryda

If the run holds all words of the item, the finding is *exact*; if it holds a counting n-gram (`index`), it is of kind
*ngram*. Several seeds of one item close together are also a candidate for *near*: of all windows of the document there,
the one with the largest weighted Jaccard similarity with the item decides (`similar_window`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from headrace.kernels.compiling import compiled, inner
from headrace.kernels.mixing import GOLDEN
from spark_jobs.arrays import Int64Array, UInt8Array
from spark_jobs.filters.contamination.folded_document import BLOCK, FoldedDocument, Settings, fold, locate
from spark_jobs.filters.contamination.folding import FoldTables
from spark_jobs.filters.contamination.seeds import BASE, SEED_LETTERS, SHIFT_32, EvalTextIndex, bits_of, seed_of
from spark_jobs.filters.contamination.similar_window import best_window, with_typos, words_between

EXACT: Final = 0
NGRAM: Final = 1
NEAR: Final = 2
ROW_FIELDS: Final = 9
"""Columns of a finding: document, text of the index, kind, first byte and end in the document, first word and end in
the text; for NEAR the two weights whose quotient is the similarity, else 0."""

_LEAVING: Final = np.uint64(pow(int(BASE), SEED_LETTERS, 1 << 64))  # weight of the letter that leaves the rolling hash
_NEVER: Final = -(1 << 60)
_HOPELESS: Final = 0.5  # of the least similarity: below it no typos are looked for, one in three words would be one
_LONGEST_CLUSTER: Final = 8  # lengths of the item
# The state of a text of the index while one document is searched: the number of this document; of the open cluster of
# seeds the first and last letter, the number of seeds and the word of the last one; the letter at which the last exact
# finding begins; the number of rows so far, and the letter at which the longest of their runs ends.
_DOCUMENT, _FIRST, _LAST, _SEEDS, _WORD, _EXACT, _ROWS, _REACH = range(8)
_STATE_FIELDS: Final = 8
# A direct-mapped cache of shared runs (document, text, shift, end), so that the many seeds of one run extend it once.
# A run that another one has displaced is extended again, and `findings` merges rows that are alike.
_RUNS: Final = 1 << 12
MOST_ROWS: Final = 64
"""Rows that a text may have in a document, and one more for as many letters; from then on no seed inside a run of the
rows is extended.

Otherwise a document and an item that both repeat one line would give a row for every pair of the repetitions. No seed
has more postings than this, so all runs through the first repetition are still found.
"""


@inner
def _shared_run(document: FoldedDocument, letter: int, word: int) -> tuple[int, int]:
    """The longest run around a seed, at a letter of the document and a word of the index, that both share.

    Returns:
        Its first letter and its end in the letters of the index; the same twice if only the hashes of the seed agree.
    """
    letters, count, index = document.letters, document.letter_count, document.searched
    start, text = index.word_starts[word], index.word_texts[word]
    first = index.word_starts[index.text_words[text]]
    last = index.word_starts[index.text_words[text + 1]]
    after = 0
    while letter + after < count and start + after < last and letters[letter + after] == index.letters[start + after]:
        after += 1
    if after < SEED_LETTERS:  # only the hashes agree
        return start, start
    before = 0
    while (
        letter > before and start - before > first and letters[letter - before - 1] == index.letters[start - before - 1]
    ):
        before += 1
    return start - before, start + after


@inner
def _covered(index: EvalTextIndex, text: int, first: int, last: int) -> tuple[int, int]:
    """The first word of a text, and the word after the last, that lie completely in a run of its letters."""
    begin, end = index.text_words[text], index.text_words[text + 1]
    starts = index.word_starts[begin : end + 1]
    return begin + np.searchsorted(starts, first), begin + np.searchsorted(starts, last, side="right") - 1


@inner
def _is_finding(index: EvalTextIndex, text: int, first: int, last: int) -> bool:
    """Whether words `first` to `last` of a text are all of it, or hold a counting n-gram."""
    if last <= first:
        return False
    begin, end = index.text_words[text], index.text_words[text + 1]
    after = first + np.searchsorted(index.gram_ends[first:end], last, side="right")
    return (first == begin and last == end) or index.counting[after] > index.counting[first]


@inner
def _verified(document: FoldedDocument, text: int, shift: int, run: Any) -> tuple[int, int, int, int]:
    """Check a shared run against the words of the document: at the ends of the run, `eggs` is not in `eggshells`.

    Args:
        document: the document.
        text: text of the index.
        shift: letter of the document minus letter of the index.
        run: first letter and end of the run in the letters of the index.

    Returns:
        First byte and end in the document, first word and end in the text; the same word twice if it is no finding.
    """
    index = document.searched
    first, last = _covered(index, text, run[0], run[1])
    if not _is_finding(index, text, first, last):
        return 0, 0, first, first
    if index.word_starts[first] == run[0] and not locate(document, run[0] + shift)[2]:
        first += 1
    after = run[1] + shift
    if index.word_starts[last] == run[1] and after < document.letter_count and not locate(document, after)[2]:
        last -= 1
    if not _is_finding(index, text, first, last):
        return 0, 0, first, first
    start, _, _ = locate(document, index.word_starts[first] + shift)
    _, end, _ = locate(document, index.word_starts[last] - 1 + shift)
    return start, end, first, last


@compiled
def find(
    data: UInt8Array, offsets: Int64Array, tables: FoldTables, index: EvalTextIndex, settings: Settings
) -> Int64Array:
    """Find the items of an index in texts.

    Args:
        data: texts in UTF-8, one after another.
        offsets: (D + 1,) where they begin in it.
        tables: the folds of all code points.
        index: of the items.
        settings: what makes a finding of kind NEAR.

    Returns:
        (F, ROW_FIELDS) findings, in the order in which they are row_count.
    """
    rows = np.empty((256, ROW_FIELDS), dtype=np.int64)
    text_count = index.text_words.size - 1
    state = np.zeros((text_count, _STATE_FIELDS), dtype=np.int64)
    state[:, _DOCUMENT] = -1
    runs = np.full((_RUNS, 4), -1, dtype=np.int64)
    touched = np.empty(text_count, dtype=np.int64)
    letters, row_count = np.empty(1 << 16, dtype=np.uint8), 0
    leaving = np.arange(256).astype(np.uint64) * _LEAVING
    bloom_mask = np.uint64(index.bloom.size - 1)
    for doc in range(offsets.size - 1):
        end = offsets[doc + 1]
        marks = np.empty(((end - offsets[doc]) // BLOCK + 1, 2), dtype=np.int64)
        letters, count, blocks = fold(data, offsets[doc], end, tables, letters, marks, True)
        document = FoldedDocument(doc, data, end, letters, count, marks[:blocks], tables, index, settings)
        touched_count, value = 0, np.uint64(0)
        for k in range(count):
            value = value * BASE + letters[k]
            if k >= SEED_LETTERS:
                value -= leaving[letters[k - SEED_LETTERS]]
            mixed = value * GOLDEN
            bits = bits_of(mixed)
            if index.bloom[(mixed >> SHIFT_32) & bloom_mask] & bits != bits or k < SEED_LETTERS - 1:
                continue
            seed = seed_of(index, value, mixed)
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
                letter = k + 1 - SEED_LETTERS
                if k >= state[text, _REACH] or state[text, _ROWS] < MOST_ROWS + letter // MOST_ROWS:
                    shift = letter - index.word_starts[word]
                    run = np.int64((np.uint64(text) * GOLDEN + np.uint64(shift)) & np.uint64(_RUNS - 1))
                    if runs[run, 0] != doc or runs[run, 1] != text or runs[run, 2] != shift or runs[run, 3] <= letter:
                        rows = _with_room(rows, row_count)
                        row_count = _follow(document, word, letter, state[text], runs[run], rows, row_count)
                if index.near_seeds[seed]:
                    rows = _with_room(rows, row_count)
                    row_count = _gather(document, word, letter, state[text], rows, row_count)
        for k in range(touched_count):
            rows = _with_room(rows, row_count)
            row_count = _close(document, touched[k], state[touched[k]], rows, row_count)
    return rows[:row_count].copy()


@inner
def _with_room(rows: Int64Array, row_count: int) -> Int64Array:
    """The rows, copied to an array of double the size if two more would not fit."""
    return rows if row_count + 2 <= rows.shape[0] else np.concatenate((rows, np.empty_like(rows)))


@inner
def _follow(
    document: FoldedDocument,
    word: int,
    letter: int,
    state: Int64Array,
    followed: Int64Array,
    rows: Int64Array,
    row_count: int,
) -> int:
    """Extend a seed to a shared run, note the run as followed, and write a row if it is a finding."""
    index = document.searched
    text = np.int64(index.word_texts[word])
    shift = letter - index.word_starts[word]
    run = _shared_run(document, letter, word)
    if run[0] == run[1]:
        return row_count
    followed[0], followed[1], followed[2], followed[3] = document.number, text, shift, run[1] + shift
    start, end, first, last = _verified(document, text, shift, run)
    if first == last:
        return row_count
    is_exact = last - first == index.text_words[text + 1] - index.text_words[text]
    if is_exact:
        state[_EXACT] = run[0] + shift
    state[_ROWS] += 1
    state[_REACH] = max(state[_REACH], run[1] + shift)
    rows[row_count] = (document.number, text, EXACT if is_exact else NGRAM, start, end, first, last, 0, 0)
    return row_count + 1


@inner
def _gather(
    document: FoldedDocument, word: int, letter: int, state: Int64Array, rows: Int64Array, row_count: int
) -> int:
    """Add a seed to the open cluster of its text, or close the cluster and open another if the seed is too far away."""
    index = document.searched
    text = np.int64(index.word_texts[word])
    length = index.word_starts[index.text_words[text + 1]] - index.word_starts[index.text_words[text]]
    # Where a document repeats a phrase of the item all over, the cluster is closed after a few lengths of the item,
    # which bounds the memory of `words_between`.
    if state[_SEEDS] > 0 and (letter - state[_LAST] > length or letter - state[_FIRST] > _LONGEST_CLUSTER * length):
        row_count = _close(document, text, state, rows, row_count)
    if state[_SEEDS] == 0:
        state[_FIRST], state[_WORD] = letter, -1
    state[_LAST] = letter
    state[_SEEDS] += state[_WORD] != word
    state[_WORD] = word
    return row_count


@inner
def _close(document: FoldedDocument, text: int, state: Int64Array, rows: Int64Array, row_count: int) -> int:
    """Close a cluster of seeds, and write a row if it is a near copy of the text and holds no exact one."""
    index, settings = document.searched, document.settings
    enough, state[_SEEDS] = state[_SEEDS] >= settings.near_seeds, 0
    begin, end = index.text_words[text], index.text_words[text + 1]
    length = index.word_starts[end] - index.word_starts[begin]
    if not enough or end - begin < settings.min_near_words or state[_EXACT] >= state[_FIRST] - length:
        return row_count
    hashes, starts, ends, numeric, letters, places = words_between(
        document, state[_FIRST] - length, state[_LAST] + SEED_LETTERS + length
    )
    shared, both, first, last = best_window(hashes, numeric, index, text)
    if shared / both < settings.min_similarity and shared / both >= _HOPELESS * settings.min_similarity:
        shared, both = with_typos(hashes, numeric, letters, places, index, text, (shared, both, first, last))
    if shared / both < settings.min_similarity or first == last:
        return row_count
    rows[row_count] = (document.number, text, NEAR, starts[first], ends[last - 1], begin, end, shared, both)
    return row_count + 1
