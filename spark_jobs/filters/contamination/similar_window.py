"""The part of a document most similar to an item, by weighted Jaccard similarity of their words.

A word weighs its inverse document frequency among the items, so that rare words decide. A window that falls short is
looked at again for typos: a word of the item that is missing, and a word of the window that no item has, are one where
a letter more, less, other, or two swapped make the difference (Damerau 1964), in words of five letters or more.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from headrace.kernels.compiling import inner
from spark_jobs.arrays import BoolArray, Int64Array, UInt64Array
from spark_jobs.filters.contamination.folded_document import FoldedDocument, traced
from spark_jobs.filters.contamination.seeds import BASE, EvalTextIndex

_LEAST_LETTERS: Final = 5  # of a word with a typo: of shorter ones too many are one letter apart (toma, loma, roma)
NUMBER_WEIGHT: Final = 1
"""Weight of a word of digits, the smallest there is: a question is the same when only its numbers are changed."""


@inner
def words_between(document: FoldedDocument, first: int, last: int) -> Any:
    """The words in the blocks of letters first to last of a document.

    Returns:
        (W,) their hashes, (W,) first bytes, (W,) ends, (W,) whether they are made of digits; the letters of the blocks
        and (W + 1,) where words begin in them.
    """
    places = document.marks[:, 1]
    block = max(np.searchsorted(places, first, side="right") - 1, 0)
    letters, firsts, lasts, fresh = traced(document, block, np.searchsorted(places, last))
    size = fresh.sum()
    hashes = np.zeros(size, dtype=np.uint64)
    starts, ends = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    numeric = np.ones(size, dtype=np.bool_)
    places_of_words = np.full(size + 1, letters.size)
    word = -1
    for k in range(letters.size):
        if fresh[k]:
            word += 1
            starts[word], places_of_words[word] = firsts[k], k
        if word >= 0:
            hashes[word] = hashes[word] * BASE + letters[k]
            ends[word] = lasts[k]
            numeric[word] &= 48 <= letters[k] <= 57
    return hashes, starts, ends, numeric, letters, places_of_words


@inner
def best_window(hashes: UInt64Array, numeric: BoolArray, index: EvalTextIndex, text: int) -> tuple[int, int, int, int]:
    """The window of a document's words with the largest weighted Jaccard similarity to a text.

    A window with as many words as the text moves over the document. Of the first window with the largest similarity,
    words missing in the text, or less often in it, are then taken off both ends.

    Returns:
        The shared weight and the weight of both, with the similarity as their quotient; the window's first word and
        the word after its last.
    """
    begin, end = index.text_vocabulary[text], index.text_vocabulary[text + 1]
    text_hashes, counts = index.text_hashes[begin:end], index.text_counts[begin:end]
    own_weight = (index.text_weights[begin:end] * counts).sum()
    ranks, weights = np.empty(hashes.size, dtype=np.int64), np.empty(hashes.size, dtype=np.int64)
    for k in range(hashes.size):
        at = np.searchsorted(text_hashes, hashes[k])
        ranks[k] = at if at < text_hashes.size and text_hashes[at] == hashes[k] else -1
        any_at = np.searchsorted(index.vocabulary, hashes[k])
        is_in_vocabulary = any_at < index.vocabulary.size and index.vocabulary[any_at] == hashes[k]
        weights[k] = (
            index.weights[any_at] if is_in_vocabulary else NUMBER_WEIGHT if numeric[k] else index.unknown_weight[0]
        )
    size = index.text_words[text + 1] - index.text_words[text]
    in_window = np.zeros(text_hashes.size, dtype=np.int64)
    shared, weight, best, best_last = 0, 0, -1.0, 0
    for k in range(hashes.size):
        shared += _enter(in_window, counts, ranks[k], weights[k])
        weight += weights[k]
        if k >= size:
            shared -= _leave(in_window, counts, ranks[k - size], weights[k - size])
            weight -= weights[k - size]
        if shared / (weight + own_weight - shared) > best:
            best, best_last = shared / (weight + own_weight - shared), k + 1
    first, last = max(best_last - size, 0), best_last
    in_window[:] = 0
    shared, weight = 0, 0
    for k in range(first, last):
        shared += _enter(in_window, counts, ranks[k], weights[k])
        weight += weights[k]
    while first < last and (ranks[first] < 0 or in_window[ranks[first]] > counts[ranks[first]]):
        shared -= _leave(in_window, counts, ranks[first], weights[first])
        weight -= weights[first]
        first += 1
    while first < last and (ranks[last - 1] < 0 or in_window[ranks[last - 1]] > counts[ranks[last - 1]]):
        last -= 1
        shared -= _leave(in_window, counts, ranks[last], weights[last])
        weight -= weights[last]
    return shared, weight + own_weight - shared, first, last


@inner
def _enter(in_window: Int64Array, counts: Int64Array, rank: int, weight: int) -> int:
    """Count a word entering the window; returns how much this adds to the weight shared with the text."""
    if rank < 0:
        return 0
    in_window[rank] += 1
    return weight if in_window[rank] <= counts[rank] else 0


@inner
def _leave(in_window: Int64Array, counts: Int64Array, rank: int, weight: int) -> int:
    """Count a word leaving the window; returns how much this takes from the weight shared with the text."""
    if rank < 0:
        return 0
    in_window[rank] -= 1
    return weight if in_window[rank] < counts[rank] else 0


@inner
def with_typos(
    hashes: UInt64Array, numeric: BoolArray, letters: Any, word_starts: Int64Array, index: EvalTextIndex, text: int,
    window: tuple[int, int, int, int],
) -> tuple[int, int]:  # fmt: skip
    """The shared weight and the weight of both, of what `best_window` gave, with words that a typo tells apart as one.

    Args:
        hashes: of the document's words.
        numeric: whether they are made of digits.
        letters: of the document's words.
        word_starts: (W + 1,) where they begin.
        index: of the items.
        text: the item.
        window: what `best_window` returned.
    """
    shared, both, first, last = window
    begin, end = index.text_vocabulary[text], index.text_vocabulary[text + 1]
    text_hashes, left = index.text_hashes[begin:end], index.text_counts[begin:end].copy()
    strange = np.empty(last - first, np.int64)
    count = 0
    for k in range(first, last):
        at = np.searchsorted(text_hashes, hashes[k])
        if at < text_hashes.size and text_hashes[at] == hashes[k] and left[at] > 0:
            left[at] -= 1
        elif word_starts[k + 1] - word_starts[k] >= _LEAST_LETTERS and not numeric[k] and _is_unknown(hashes[k], index):
            strange[count] = k
            count += 1
    for word in range(index.text_words[text], index.text_words[text + 1]):
        item_first, item_last = index.word_starts[word], index.word_starts[word + 1]
        value = np.uint64(0)
        for k in range(item_first, item_last):
            value = value * BASE + index.letters[k]
        at = np.searchsorted(text_hashes, value)
        if left[at] <= 0:
            continue
        for k in range(count):
            number = strange[k]
            if number < 0:
                continue
            start, stop = word_starts[number], word_starts[number + 1]
            if abs((stop - start) - (item_last - item_first)) <= 1 and _one_typo(
                letters, start, stop, index.letters, item_first, item_last
            ):
                shared += index.text_weights[begin + at]
                both -= index.unknown_weight[0]
                strange[k] = -1
                left[at] -= 1
                break
    return shared, both


@inner
def _is_unknown(value: np.uint64, index: EvalTextIndex) -> bool:
    """Whether no item has a word."""
    at = np.searchsorted(index.vocabulary, value)
    return at == index.vocabulary.size or index.vocabulary[at] != value


@inner
def _one_typo(left: Any, a: int, a_end: int, right: Any, b: int, b_end: int) -> bool:
    """Whether two words become equal by a letter more, less, other, or by swapping two that are neighbours."""
    while a < a_end and b < b_end and left[a] == right[b]:
        a, b = a + 1, b + 1
    while a < a_end and b < b_end and left[a_end - 1] == right[b_end - 1]:
        a_end, b_end = a_end - 1, b_end - 1
    rest, other = a_end - a, b_end - b
    swapped = rest == 2 and other == 2 and left[a] == right[b + 1] and left[a + 1] == right[b]
    return swapped or (rest <= 1 and other <= 1)
