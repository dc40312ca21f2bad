"""Seeds: runs of `SEED_LETTERS` letters from the start of a word of an eval item on, looked up by a rolling hash.

A Bloom filter with two bits for each seed is asked first. At nearly every letter of a document it answers that the last
letters are no seed, so that the larger hash table is rarely read.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from headrace.kernels.compiling import compiled, inner
from headrace.kernels.hash_tables import entry_slot
from headrace.kernels.mixing import FIRST_MULTIPLIER, GOLDEN
from spark_jobs.arrays import BoolArray, Int32Array, Int64Array, UInt8Array, UInt64Array

SEED_LETTERS: Final = 20
BASE: Final = FIRST_MULTIPLIER
_S6: Final = np.uint64(6)
_S12: Final = np.uint64(12)
SHIFT_32: Final = np.uint64(32)
_LOW6: Final = np.uint64(63)
_ONE: Final = np.uint64(1)


class EvalTextIndex(NamedTuple):
    """The distinct texts of all eval sets, as compiled code reads them.

    T texts have W words, their letters one after another; a word ends where the next begins.

    Attributes:
        letters: the letters of all texts.
        word_starts: (W + 1,) where a word begins in `letters`.
        text_words: (T + 1,) the first word of each text.
        word_texts: (W,) the text of a word.
        gram_ends: (W,) the word after the n-gram beginning at a word; beyond all words where none does.
        counting: (W + 1,) counting n-grams, before each word.
        seed_hashes: (S,) hashes of the seeds, ascending.
        seed_starts: (S + 1,) the first posting of each seed.
        postings: (P,) the first words of seeds.
        near_seeds: (S,) whether a seed is rare enough to make a candidate for *near*.
        slots: hash table of seeds, a power of two in size; -1 is free.
        bloom: words of 64 bits of the filter, a power of two in number.
        vocabulary: hashes of all words, ascending.
        weights: their weights.
        unknown_weight: weight of a word in no item, in an array of one.
        text_vocabulary: (T + 1,) the first entry of each text in the next three.
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


@compiled
def hash_spans(letters: UInt8Array, starts: Int64Array, ends: Int64Array) -> UInt64Array:
    """(N,) polynomial hashes of runs of letters, the same as roll over documents."""
    hashes = np.empty(starts.size, dtype=np.uint64)
    for n in range(starts.size):
        value = np.uint64(0)
        for k in range(starts[n], ends[n]):
            value = value * BASE + letters[k]
        hashes[n] = value
    return hashes


@compiled
def add_to_filter(bloom: UInt64Array, slots: Int32Array, hashes: UInt64Array) -> None:
    """Enter the seeds into the filter and the hash table."""
    for seed in range(hashes.size):
        mixed = hashes[seed] * GOLDEN
        bloom[(mixed >> SHIFT_32) & np.uint64(bloom.size - 1)] |= bits_of(mixed)
        slots[entry_slot(slots, hashes, mixed >> _S12, hashes[seed])] = seed


@inner
def bits_of(mixed: np.uint64) -> np.uint64:
    """The two bits of a seed in its word of the filter.

    They come from the top 12 bits of the mixed hash; bits 32 and up choose the word, bits 12 and up the slot.
    """
    top = mixed >> np.uint64(52)
    return (_ONE << (top & _LOW6)) | (_ONE << (top >> _S6))


@inner
def seed_of(index: EvalTextIndex, value: np.uint64, mixed: np.uint64) -> int:
    """The number of the seed with a hash; -1 if there is none."""
    return index.slots[entry_slot(index.slots, index.seed_hashes, mixed >> _S12, value)]
