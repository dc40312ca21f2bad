"""The arithmetic of the tagger: tokens, features, the best path of labels, and training.

An averaged perceptron over label sequences. Source: Collins 2002, "Discriminative Training Methods for Hidden Markov
Models: Theory and Experiments with Perceptron Algorithms". Features are hashed into the rows of the weights (Weinberger
et al. 2009, "Feature Hashing for Large Scale Multitask Learning").
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from headrace.kernels.compiling import compiled
from headrace.kernels.mixing import FNV_BASIS, FNV_PRIME, GOLDEN
from spark_jobs.arrays import Float64Array, Int64Array, UInt8Array, UInt64Array

ROWS: Final = 1 << 16
"""Rows of the weights, a power of two."""
_TEMPLATES: Final = 20
_U64 = np.uint64
_EDGE = np.uint64(7)  # stands for tokens before the first and after the last
_HASHES: Final = 5
_WORD, _SHAPE, _PREFIX, _SUFFIX, _PLACE, LISTS = range(_HASHES + 1)


@compiled
def tokenize(data: UInt8Array, spans: Int64Array) -> int:
    """Split a text into runs of letters (bytes above 127 among them), runs of digits, and single marks.

    Args:
        data: (B,) bytes of a text.
        spans: (>= B, 2) is filled with first byte and the byte after the last of each token.

    Returns:
        The number of tokens; white space is in none.
    """
    n, i = 0, 0
    while i < len(data):
        kind = _kind(data[i])
        first = i
        i += 1
        if kind == 0:
            continue
        while kind <= 2 and i < len(data) and _kind(data[i]) == kind:
            i += 1
        spans[n, 0], spans[n, 1] = first, i
        n += 1
    return n


@njit
def _kind(byte: int) -> int:
    """0 white space, 1 letter, 2 digit, 3 mark."""
    if byte <= 32:
        return 0
    if 65 <= byte <= 90 or 97 <= byte <= 122 or byte >= 128:
        return 1
    return 2 if 48 <= byte <= 57 else 3


@njit
def _is_capital(lead: int, second: int) -> bool:
    """Whether two bytes of UTF-8 are a capital of Latin-1, Latin Extended-A (nearly), Greek or Cyrillic."""
    if lead == 0xC3:
        return second < 0x9F
    if lead in (0xC4, 0xC5):
        return second % 2 == ((lead == 0xC4 and second > 0xB8) or (lead == 0xC5 and (second < 0x89 or second > 0xB8)))
    return (lead == 0xCE and 0x86 <= second < 0xAC) or (lead == 0xD0 and second < 0xB0)


@compiled
def token_hashes(data: UInt8Array, spans: Int64Array) -> UInt64Array:
    """(N, 5) hashes of each token: its word in small letters, shape, beginning, end, and place in its line."""
    out = np.empty((len(spans), _HASHES), np.uint64)
    line_head, blank_lines = _EDGE, 0
    for k in range(len(spans)):
        start, end = spans[k]
        word, shape, prefix, suffix = FNV_BASIS, FNV_BASIS, FNV_BASIS, FNV_BASIS
        last_class = -1
        for i in range(start, end):
            byte = data[i]
            is_upper = 65 <= byte <= 90 or (byte >= 0xC3 and i + 1 < end and _is_capital(byte, data[i + 1]))
            lower = _U64(byte | 32 if 65 <= byte <= 90 else byte)
            word = (word ^ lower) * FNV_PRIME
            char_class = 1 if is_upper else (2 if _kind(byte) == 1 else (3 if _kind(byte) == 2 else int(byte)))
            # Runs of one class count as two of it at most, except digits, whose number tells years from postcodes.
            if char_class != last_class or char_class == 3 or i == start + 1:
                shape = (shape ^ _U64(char_class)) * FNV_PRIME
            last_class = char_class
            if i < start + 3:
                prefix = (prefix ^ lower) * FNV_PRIME
            if i >= end - 3:
                suffix = (suffix ^ lower) * FNV_PRIME
        lines = 0
        for i in range(spans[k - 1, 1] if k else 0, start):
            lines += data[i] == 10
        is_head = lines > 0 or k == 0
        if is_head:
            line_head, blank_lines = word, min(lines, 2)
        out[k, 0], out[k, 1], out[k, 2], out[k, 3] = word, shape, prefix, suffix
        out[k, 4] = (line_head ^ _U64(is_head)) * FNV_PRIME + _U64(blank_lines)
    return out


@njit
def _at(hashes: UInt64Array, k: int, column: int) -> Any:
    """A hash of a token, or `_EDGE` outside the text."""
    return hashes[k, column] if 0 <= k < len(hashes) else _EDGE


@njit
def _features(hashes: UInt64Array, k: int, out: Int64Array) -> None:
    """The rows of the weights that say something about token k, one a template; two more where there are lists."""
    W, S = _WORD, _SHAPE
    found = (
        _at(hashes, k, W),
        _at(hashes, k - 1, W),
        _at(hashes, k + 1, W),
        _at(hashes, k - 2, W),
        _at(hashes, k + 2, W),
        _at(hashes, k, S),
        _at(hashes, k - 1, S) * FNV_PRIME ^ _at(hashes, k, S),
        _at(hashes, k, S) * FNV_PRIME ^ _at(hashes, k + 1, S),
        (_at(hashes, k - 1, S) * FNV_PRIME ^ _at(hashes, k, S)) * FNV_PRIME ^ _at(hashes, k + 1, S),
        _at(hashes, k, _PREFIX),
        _at(hashes, k, _SUFFIX),
        _at(hashes, k - 1, W) * FNV_PRIME ^ _at(hashes, k, W),
        _at(hashes, k, W) * FNV_PRIME ^ _at(hashes, k + 1, W),
        _at(hashes, k - 1, W) * FNV_PRIME ^ _at(hashes, k, S),
        _at(hashes, k, S) * FNV_PRIME ^ _at(hashes, k + 1, W),
        (_at(hashes, k - 2, W) * FNV_PRIME ^ _at(hashes, k - 1, W)) * FNV_PRIME ^ _at(hashes, k, S),
        (_at(hashes, k + 1, W) * FNV_PRIME ^ _at(hashes, k + 2, W)) * FNV_PRIME ^ _at(hashes, k, S),
        _at(hashes, k, _PLACE) * FNV_PRIME ^ _at(hashes, k, S),
        _at(hashes, k - 1, _SUFFIX) * FNV_PRIME ^ _at(hashes, k, S),
        FNV_BASIS,
    )
    for template, h in enumerate(found):
        out[template] = _row(h, template)
    if hashes.shape[1] > LISTS:
        out[_TEMPLATES] = _row(hashes[k, LISTS], _TEMPLATES)
        out[_TEMPLATES + 1] = _row(hashes[k, LISTS] * FNV_PRIME ^ hashes[k, S], _TEMPLATES + 1)


@njit
def _row(h: Any, template: int) -> int:
    """The row of the weights of a feature."""
    mixed = (h ^ _U64(template + 1) * GOLDEN) * _U64(0xFF51AFD7ED558CCD)
    return np.int64((mixed >> _U64(33)) % _U64(ROWS))


@njit
def _room(hashes: UInt64Array) -> Int64Array:
    """Room for the rows of a token."""
    return np.empty(_TEMPLATES + (2 if hashes.shape[1] > LISTS else 0), np.int64)


@compiled
def best_labels(
    hashes: UInt64Array, weights: NDArray[np.float32], moves: NDArray[np.float32], allowed: NDArray[np.bool_]
) -> tuple[Int64Array, Float64Array]:
    """The sequence of labels with the highest sum of weights (Viterbi).

    Args:
        hashes: (N, 5) of `token_hashes`, or (N, 6) with the lists that a token is in.
        weights: (ROWS, L) of each feature for each label.
        moves: (L + 1, L) of each label after each other; the last row is for the first token.
        allowed: (L + 1, L) which labels may follow.

    Returns:
        (N,) labels, and (N,) by how much each token's label leads the next best of that token, moves left out.
    """
    count, width = len(hashes), weights.shape[1]
    back = np.zeros((count, width), np.int64)
    emitted = np.zeros((count, width), np.float64)
    total, rows = np.zeros(width), _room(hashes)
    for k in range(count):
        _features(hashes, k, rows)
        for row in rows:
            for label in range(width):
                emitted[k, label] += weights[row, label]
        following = np.full(width, -1e18)
        for label in range(width):
            for before in range(width if k else 1):
                came_from = before if k else width
                if allowed[came_from, label]:
                    value = (total[before] if k else 0.0) + moves[came_from, label]
                    if value > following[label]:
                        following[label], back[k, label] = value, before
            following[label] += emitted[k, label]
        total = following
    labels, lead = np.zeros(count, np.int64), np.zeros(count)
    if count:
        labels[count - 1] = np.argmax(total)
        for k in range(count - 1, 0, -1):
            labels[k - 1] = back[k, labels[k]]
    for k in range(count):
        rival = -1e18
        for label in range(width):
            if label != labels[k]:
                rival = max(rival, emitted[k, label])
        lead[k] = emitted[k, labels[k]] - rival
    return labels, lead


@compiled
def add_differences(
    hashes: UInt64Array,
    truth: Int64Array,
    guess: Int64Array,
    step: int,
    weights: NDArray[np.float32],
    moves: NDArray[np.float32],
    sums: Float64Array,
    move_sums: Float64Array,
) -> None:
    """Move the weights from a wrong guess towards the truth; `sums` is what the average subtracts at the end."""
    rows, width = _room(hashes), weights.shape[1]
    for k in range(len(hashes)):
        if truth[k] != guess[k]:
            _features(hashes, k, rows)
            for row in rows:
                weights[row, truth[k]] += 1
                weights[row, guess[k]] -= 1
                sums[row, truth[k]] += step
                sums[row, guess[k]] -= step
        true_before = truth[k - 1] if k else width
        guessed_before = guess[k - 1] if k else width
        moves[true_before, truth[k]] += 1
        moves[guessed_before, guess[k]] -= 1
        move_sums[true_before, truth[k]] += step
        move_sums[guessed_before, guess[k]] -= step
