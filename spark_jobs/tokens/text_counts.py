"""Compiled counts for `token_statistics`: characters and words of texts, and which ids of the vocabulary occur.

One pass over the bytes, without Python's lock and without memory for parts of texts. Imported by workers only: Numba
takes half a second to load.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.kernels.compiling import compiled
from headrace.kernels.utf8 import code_point, width
from spark_jobs.arrays import BoolArray, Int32Array, Int64Array

# White space of Unicode, as `str.split` and Arrow have it; no code point beyond the last one is any.
_IS_SPACE: Final = np.array([chr(code).isspace() for code in range(0x3001)] + [False])
_NO_SPACE: Final = len(_IS_SPACE) - 1


def character_and_word_counts(data: npt.NDArray[np.uint8], starts: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Count code points and words, maximal runs without white space.

    Args:
        data: UTF-8 of D texts.
        starts: (D + 1,) where each begins.

    Returns:
        (D,) code points, and (D,) words.
    """
    characters, words = np.zeros((2, len(starts) - 1), dtype=np.int64)
    _count(data, starts, _IS_SPACE, characters, words)
    return characters, words


@compiled
def _count(
    data: npt.NDArray[np.uint8], starts: Int64Array, is_space: BoolArray, characters: Int64Array, words: Int64Array
) -> None:
    for text in range(len(starts) - 1):
        at, end = starts[text], starts[text + 1]
        count = word_count = 0
        in_word = False
        while at < end:
            code = code_point(data, at)
            at += width(data[at])
            if is_space[min(code, _NO_SPACE)]:
                in_word = False
            elif not in_word:
                in_word = True
                word_count += 1
            count += 1
        characters[text], words[text] = count, word_count


@compiled
def mark_used(ids: Int32Array, groups: Int64Array, counts: Int64Array, used: BoolArray) -> None:
    """Note which ids the documents of each group have.

    Args:
        ids: token ids of D documents, one after the other.
        groups: (D,) row of `used` for each.
        counts: (D,) ids of each.
        used: (G, V) set where an id occurs.

    Raises:
        IndexError: an id is not in the vocabulary.
    """
    at = 0
    for document in range(len(groups)):
        row = used[groups[document]]
        for place in range(at, at + counts[document]):
            token = ids[place]
            if token < 0 or token >= row.size:
                raise IndexError("a token id is not in the vocabulary")
            row[token] = True
        at += counts[document]
