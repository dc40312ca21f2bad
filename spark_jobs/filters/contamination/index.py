"""The index of all items of all registered eval sets: their words, n-grams and seeds, and which of them count.

An *n-gram* is the shortest run of words of an item, from a given word on, that has `ngram_words` words (letters of
scripts without spaces count as parts of one, see `folding.word_weights`) and three letters, in bytes, for each. Digits
are no letters here: rows of numbers, such as the first primes, are nobody's. An item with fewer words is one n-gram as
a whole if it has `min_words`, and is not searched for otherwise. N-grams that are *common* do not count: those that
more than `max_item_count` items of one set hold (the stem of a multiple-choice question, the head of a test).

A *seed* is the first 20 letters from a word on. Every counting n-gram holds a kept one, so it cannot be missed. Seeds
in more than 64 places, such as those of an item with one word again and again, are not kept; n-grams and items with no
other seed do not count, and `IndexContents` counts these items.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from spark_jobs.arrays import BoolArray, Int64Array, UInt8Array, UInt64Array
from spark_jobs.exceptions import InputError
from spark_jobs.filters.contamination.eval_set import EvalSet
from spark_jobs.filters.contamination.folding import WORD, fold_tables, word_weights
from spark_jobs.lake.declare.step import ConfigModel
from spark_jobs.text.text_columns import utf8_arrays

if TYPE_CHECKING:
    from spark_jobs.filters.contamination.seeds import EvalTextIndex

Array = npt.NDArray[Any]

MOST_PLACES: Final = 64
"""A seed in more places of the items than this is not kept."""
_NEAR_PLACES: Final = 8
_LETTERS_OF_A_WORD: Final = 3
_BITS_OF_A_SEED: Final = 16  # in the filter: one letter in about 70 that begins no seed passes it


class ContaminationConfig(ConfigModel):
    """What counts as an item of an eval set in a document."""

    ngram_words: int = Field(13, ge=7, description="words of an n-gram (GPT-3, Brown et al. 2020, appendix C: 13)")
    min_words: int = Field(8, ge=7, description="fewest words of an item that is searched for (GPT-3: 8)")
    max_item_count: int = Field(10, ge=1, description="most items of a set that hold an n-gram; others are ignored")
    near_seeds: int = Field(2, ge=1, description="shared runs of 20 letters from which on two texts are compared")
    min_near_words: int = Field(20, ge=1, description="fewest words of an item whose near copies are looked for")
    min_similarity: float = Field(
        0.55, gt=0, le=1, description="least weighted Jaccard similarity of the words of a near copy and the item"
    )


class IndexContents(NamedTuple):
    """An index, and what it was made of.

    Attributes:
        config: what counts.
        arrays: what compiled code reads; None where no item is searched for.
        eval_sets: names by number.
        holders: struct<eval_set, item> of every item searched for, by text.
        holder_starts: (T + 1,) the first holder of each text.
        short_count: items with fewer than `min_words` words.
        common_count: items in too many places to be searched for.
    """

    config: ContaminationConfig
    arrays: EvalTextIndex | None
    eval_sets: tuple[str, ...]
    holders: pa.StructArray
    holder_starts: Int64Array
    short_count: int
    common_count: int

    @property
    def byte_count(self) -> int:
        """Memory of the arrays of the index."""
        return sum(array.nbytes for array in self.arrays or ())

    def __str__(self) -> str:
        """One line on what is searched for, and what is not."""
        searched = f"{len(self.holders):,} items of {len(self.eval_sets)} eval sets in {self.byte_count:,} bytes"
        return f"{searched}; {self.short_count:,} are too short and {self.common_count:,} too common to be searched for"


class _DistinctTexts(NamedTuple):
    """Distinct texts in letters and words, as in `seeds.EvalTextIndex`.

    `letter_counts` has the letters without digits, before each word.
    """

    letters: UInt8Array
    word_starts: Int64Array
    text_words: Int64Array
    letter_counts: Int64Array
    gram_ends: Int64Array

    @property
    def grams(self) -> Int64Array:
        """The first words of n-grams."""
        return np.flatnonzero(self.gram_ends < len(self.word_starts))

    @property
    def word_texts(self) -> Int64Array:
        """The text of every word."""
        return np.repeat(np.arange(len(self.text_words) - 1), np.diff(self.text_words))


def index_of(eval_sets: Sequence[EvalSet], config: ContaminationConfig | None = None) -> IndexContents:
    """Index all items of eval sets; the same text in several is searched for once.

    Raises:
        InputError: two sets have one name.
    """
    config = config or ContaminationConfig()
    names = [eval_set.name for eval_set in eval_sets]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise InputError(f"index of eval sets: {sorted(repeated)[0]} is there twice; give each set a name of its own")
    holders = sorted((eval_set.name, item.item_id, item.text) for eval_set in eval_sets for item in eval_set.items)
    texts = {identity: text for _, identity, text in holders}
    words = _words(list(texts.values()), config)
    places = {identity: place for place, identity in enumerate(texts)}
    holding = sorted({(places[identity], name, identity) for name, identity, _ in holders})
    text_of_holder = np.array([place for place, _, _ in holding], dtype=np.int64)
    set_of_holder = np.array([names.index(name) for _, name, _ in holding], dtype=np.int64)
    index, searched, short = _index(words, config, text_of_holder, set_of_holder)
    kept = [(name, identity) for place, name, identity in holding if searched[place]]
    # Texts that are not searched for keep their place, without holders, so that numbers of texts stay.
    starts = np.searchsorted(text_of_holder[searched[text_of_holder]], np.arange(len(texts) + 1))
    struct = pa.StructArray.from_arrays(
        [pa.array([row[k] for row in kept], type=pa.string()) for k in (0, 1)], names=["eval_set", "item"]
    )
    short_count = int(short[text_of_holder].sum())
    common_count = len(holding) - len(kept) - short_count
    return IndexContents(config, index, tuple(names), struct, starts.astype(np.int64), short_count, common_count)


def _words(texts: list[str], config: ContaminationConfig) -> _DistinctTexts:
    """Fold texts and find their n-grams."""
    from headrace.kernels.utf8 import code_points_at
    from spark_jobs.filters.contamination.folded_document import fold_items

    letters, starts, text_words = fold_items(*utf8_arrays(pa.array(texts, type=pa.large_string())), fold_tables())
    word_count = len(starts) - 1
    weights = np.concatenate([[0], np.cumsum(word_weights(code_points_at(letters, starts[:-1])))])
    digits = (letters >= ord("0")) & (letters <= ord("9"))
    letter_counts = np.concatenate([[0], np.cumsum(~digits)])[starts]
    ends = _run_ends(weights, letter_counts, config.ngram_words)
    text_ends = np.repeat(text_words[1:], np.diff(text_words))
    ends = np.where(ends <= text_ends, ends, word_count + 1)
    firsts = text_words[:-1][np.diff(text_words) > 0]
    lacking = firsts[ends[firsts] > word_count]
    whole = lacking[_run_ends(weights, letter_counts, config.min_words)[lacking] <= text_ends[lacking]]
    ends[whole] = text_ends[whole]
    return _DistinctTexts(letters, starts, text_words, letter_counts, ends)


def _run_ends(weights: Int64Array, letter_counts: Int64Array, word_count: int) -> Int64Array:
    """(W,) the word after the shortest run, from each word on, with so many words and the letters needed by these.

    Args:
        weights: (W + 1,) of all words before each.
        letter_counts: (W + 1,) letters, without digits, before each word.
        word_count: words a run must have.
    """
    by_words = np.searchsorted(weights, weights[:-1] + WORD * word_count)
    by_letters = np.searchsorted(letter_counts, letter_counts[:-1] + _LETTERS_OF_A_WORD * word_count)
    return np.maximum(by_words, by_letters)


def _index(
    words: _DistinctTexts,
    config: ContaminationConfig,
    text_of_holder: Int64Array,
    set_of_holder: Int64Array,
) -> tuple[EvalTextIndex | None, BoolArray, BoolArray]:
    """The index, (T,) texts searched for, and (T,) those too short."""
    from spark_jobs.filters.contamination.seeds import SEED_LETTERS, hash_spans

    text_count, starts, word_texts = len(words.text_words) - 1, words.word_starts, words.word_texts
    grams = words.grams
    short = ~np.isin(np.arange(text_count), word_texts[grams])
    gram_ends = starts[words.gram_ends[grams]]
    gram_hashes = hash_spans(words.letters, starts[grams], gram_ends)
    counts = np.ones(len(grams), dtype=bool)
    for number in range(int(set_of_holder.max(initial=-1)) + 1):
        in_set = np.isin(word_texts[grams], text_of_holder[set_of_holder == number])
        pair_hashes, _, _ = _distinct_pairs(gram_hashes[in_set], word_texts[grams[in_set]])
        hashes, item_counts = np.unique(pair_hashes, return_counts=True)
        counts &= ~np.isin(gram_hashes, hashes[item_counts > config.max_item_count])

    seeded = np.flatnonzero(starts[:-1] + SEED_LETTERS <= starts[words.text_words[1:]][word_texts])
    seeded = seeded[~short[word_texts[seeded]]]
    hashes = hash_spans(words.letters, starts[seeded], starts[seeded] + SEED_LETTERS)
    distinct, inverse, place_counts = np.unique(hashes, return_inverse=True, return_counts=True)
    kept = place_counts <= MOST_PLACES
    places, inverse = seeded[kept[inverse]], inverse[kept[inverse]]
    searched: BoolArray = np.isin(np.arange(text_count), word_texts[places])
    if not searched.any():
        return None, searched, short
    last = np.searchsorted(starts[places], gram_ends - SEED_LETTERS, side="right")
    counts &= last > np.searchsorted(places, grams)  # a kept seed lies inside
    counting = np.zeros(len(starts), dtype=np.int64)
    counting[grams[counts] + 1] = 1
    postings = places[np.argsort(inverse, kind="stable")]
    index = _assembled(words, np.cumsum(counting), distinct[kept], place_counts[kept], postings)
    return index, searched, short


def _assembled(
    words: _DistinctTexts, counting: Int64Array, hashes: UInt64Array, place_counts: Int64Array, postings: Int64Array
) -> EvalTextIndex:
    """Put the index together: the filter, the hash table and the weights of words."""
    from spark_jobs.filters.contamination.seeds import EvalTextIndex, add_to_filter, hash_spans
    from spark_jobs.filters.contamination.similar_window import NUMBER_WEIGHT

    bloom = np.zeros(_power_of_two(_BITS_OF_A_SEED * len(hashes) // 64), dtype=np.uint64)
    slots = np.full(_power_of_two(2 * len(hashes)), -1, dtype=np.int32)
    add_to_filter(bloom, slots, hashes)
    word_hashes = hash_spans(words.letters, words.word_starts[:-1], words.word_starts[1:])
    texts, text_hashes, counts = _distinct_pairs(words.word_texts, word_hashes)
    vocabulary, text_counts = np.unique(text_hashes, return_counts=True)
    text_count = len(words.text_words) - 1
    # Hundredths of the natural logarithm: whole numbers, whose sums do not depend on their order.
    weights = np.maximum(np.round(100 * np.log((text_count + 1) / text_counts)), 1).astype(np.int64)
    numbers = word_hashes[words.letter_counts[1:] == words.letter_counts[:-1]]
    weights[np.searchsorted(vocabulary, numbers)] = NUMBER_WEIGHT
    return EvalTextIndex(
        letters=words.letters,
        word_starts=words.word_starts,
        text_words=words.text_words,
        word_texts=words.word_texts.astype(np.int32),
        gram_ends=words.gram_ends,
        counting=counting,
        seed_hashes=hashes,
        seed_starts=np.concatenate([[0], np.cumsum(place_counts)]),
        postings=postings,
        near_seeds=place_counts <= _NEAR_PLACES,
        slots=slots,
        bloom=bloom,
        vocabulary=vocabulary,
        weights=weights,
        unknown_weight=np.array([round(100 * math.log(text_count + 1))], dtype=np.int64),
        text_vocabulary=np.searchsorted(texts, np.arange(text_count + 1)),
        text_hashes=text_hashes,
        text_counts=counts,
        text_weights=weights[np.searchsorted(vocabulary, text_hashes)],
    )


def _distinct_pairs(first: Array, second: Array) -> tuple[Array, Array, Int64Array]:
    """Distinct pairs, ascending, and how often each is there."""
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    new = np.ones(len(first), dtype=bool)
    new[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    starts = np.flatnonzero(new)
    return first[starts], second[starts], np.diff(np.append(starts, len(first)))


def _power_of_two(least: int) -> int:
    return 1 << max(least, 1).bit_length()
