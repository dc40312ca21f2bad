"""What the scan for personal data knows of bytes: their classes, known words near a span, and where numbers may end.

All texts lie in one buffer at the address `data`; positions are bytes of it, `low` and `high` the ends of the text.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from spark_jobs.arrays import Int64Array, UInt8Array, UInt64Array
from spark_jobs.filters.personal_data.rules import KEY_PREFIXES, OTHER_WORDS, RULES
from spark_jobs.lexing.machine import byte_at

KEY_PREFIX: Final = 1 << 62
"""Mask of the words of `KEY_PREFIXES`."""
_SLOTS: Final = 4096
_CONTEXT_BYTES: Final = 48
_LONGEST_WORD: Final = 40
U64 = np.uint64
SEED = np.uint64(0xCBF29CE484222325)
PRIME = np.uint64(0x100000001B3)
DIGIT, UPPER, LOWER, HIGH, DOMAIN, LOCAL = 1, 2, 4, 8, 16, 32
ALNUM: Final = DIGIT | UPPER | LOWER
LETTER: Final = UPPER | LOWER | HIGH


def _byte_tables() -> tuple[UInt8Array, UInt8Array]:
    """(256,) the classes of each byte, and (256,) what to try at it, 0 for nothing."""
    classes, triggers = np.zeros(256, np.uint8), np.zeros(256, np.uint8)
    for flag, members in (
        (DIGIT, b"0123456789"),
        (UPPER, bytes(range(65, 91))),
        (LOWER, bytes(range(97, 123))),
        (HIGH, bytes(range(128, 256))),
    ):
        classes[list(members)] |= flag
    classes[(classes & ALNUM) > 0] |= DOMAIN | LOCAL
    classes[list(b".-")] |= DOMAIN
    classes[list(b"._%+-'")] |= LOCAL
    for trigger, members in enumerate((b"0123456789", b"@", b":", b"=", b"_-", b"GBIJ"), start=1):
        triggers[list(members)] = trigger
    return classes, triggers


_CLASSES, TRIGGERS = _byte_tables()  # compiled in as constants


class ScanTables(NamedTuple):
    """What the scan knows of words and shapes.

    Attributes:
        keys: (2, 4096) hashes of words and shapes, each at the first free slot from its own on.
        alone: (4096,) rules that take the shape in the slot wherever it stands.
        masks: (2, 4096) rules of the word, or of the shape beside their words, in the slot.
    """

    keys: UInt64Array
    alone: Int64Array
    masks: Int64Array


@cache
def scan_tables() -> ScanTables:
    """The tables of `RULES`."""
    words: dict[str, int] = {}
    shapes: dict[str, tuple[int, int]] = {}
    for bit, rule in enumerate(RULES):
        for word in rule.words.split():
            words[word] = words.get(word, 0) | 1 << bit
        for shape in {*rule.alone, *rule.beside_words}:
            alone, beside = shapes.get(shape, (0, 0))
            shapes[shape] = (alone | (shape in rule.alone) << bit, beside | 1 << bit)
    for mask, text in {**OTHER_WORDS, KEY_PREFIX: KEY_PREFIXES}.items():
        for word in text.split():
            words[word] = words.get(word, 0) | mask
    tables = ScanTables(
        np.zeros((2, _SLOTS), np.uint64),
        np.zeros(_SLOTS, np.int64),
        np.zeros((2, _SLOTS), np.int64),
    )
    for table, entries in enumerate((list(words), list(shapes))):
        for text in entries:
            h = int(SEED)
            for byte in text.encode("utf-8"):
                h = (h ^ byte) * int(PRIME) & (1 << 64) - 1
            slot = (h >> 20) % _SLOTS
            while tables.keys[table, slot]:
                slot = (slot + 1) % _SLOTS
            tables.keys[table, slot] = h
            tables.masks[table, slot] = words[text] if table == 0 else shapes[text][1]
            if table == 1:
                tables.alone[slot] = shapes[text][0]
    return tables


@njit
def slot_of(keys: UInt64Array, h: Any) -> int:
    """The slot that holds a hash, or -1."""
    slot = np.int64((h >> U64(20)) % U64(_SLOTS))
    while keys[slot] != 0:
        if keys[slot] == h:
            return slot
        slot = (slot + 1) % _SLOTS
    return -1


@njit
def is_class(data: int, i: int, flags: int) -> bool:
    """Whether the byte at i is of one of these classes."""
    return _CLASSES[byte_at(data + i)] & flags != 0


@njit
def words_in(t: ScanTables, data: int, start: int, end: int) -> int:
    """The masks of all known words in a span; a blank line, and a line end after a number, forget what stands before.

    Words end where no letter follows, and between a small letter and a capital: `cardNumber` is two words.
    """
    mask, digits = np.int64(0), 0
    i = start
    while i < end:
        if not is_class(data, i, LETTER):
            digits += is_class(data, i, DIGIT)
            if byte_at(data + i) == 10 and (digits >= 7 or (i + 1 < end and byte_at(data + i + 1) == 10)):
                mask = np.int64(0)
            i += 1
            continue
        digits = 0
        h, first, was_lower = SEED, i, False
        while i < end and is_class(data, i, LETTER) and not (was_lower and is_class(data, i, UPPER)):
            was_lower = is_class(data, i, LOWER)
            h = (h ^ U64(byte_at(data + i) | 32 if is_class(data, i, UPPER) else byte_at(data + i))) * PRIME
            i += 1
        if i - first <= _LONGEST_WORD:
            slot = slot_of(t.keys[0], h)
            if slot >= 0:
                mask |= t.masks[0, slot]
    return mask


@njit
def context_of(t: ScanTables, data: int, low: int, start: int) -> int:
    """Known words in the bytes before `start`; one that is cut is left out."""
    first = max(low, start - _CONTEXT_BYTES)
    while low < first < start and is_class(data, first, LETTER) and is_class(data, first - 1, LETTER):
        first += 1
    return words_in(t, data, first, start)


@njit
def line_after(t: ScanTables, data: int, end: int, high: int) -> int:
    """Known words in the few bytes after `end`, of the same line and before any digit."""
    last = end
    while last < high and last - end < 20 and byte_at(data + last) != 10 and not is_class(data, last, DIGIT):
        last += 1
    while end < last < high and is_class(data, last, LETTER) and is_class(data, last - 1, LETTER):
        last -= 1
    return words_in(t, data, end, last)


@njit
def _has_digit_run(data: int, i: int, step: int, low: int, high: int) -> bool:
    """Whether the run of letters and digits that goes from i in a direction has a digit in 12 bytes."""
    for _ in range(12):
        if i < low or i >= high or not is_class(data, i, ALNUM):
            return False
        if is_class(data, i, DIGIT):
            return True
        i += step
    return True


@njit
def begins_well(data: int, start: int, low: int, high: int) -> bool:
    """Whether a number can begin here: it goes on no identifier, path, decimal, amount or group of digits."""
    if start == low:
        return True
    before = byte_at(data + start - 1)
    if is_class(data, start - 1, ALNUM) or before in (95, 37, 36, 47, 64, 92):  # _ % $ / @ \
        return False
    if before in (45, 46):  # - .
        return not _has_digit_run(data, start - 2, -1, low, high)
    if before == 32 and start - 5 >= low and is_class(data, start - 5, UPPER) and is_class(data, start - 4, UPPER):
        return not (
            is_class(data, start - 3, DIGIT) and is_class(data, start - 2, DIGIT)
        )  # the groups after an IBAN's first
    return not (before == 35 and start - 2 >= low and byte_at(data + start - 2) == 38)  # &#


@njit
def ends_well(data: int, end: int, low: int, high: int) -> bool:
    """Whether a number can end here."""
    if end == high:
        return True
    after = byte_at(data + end)
    if is_class(data, end, ALNUM) or after in (95, 37, 47):
        return False
    if after == 45:
        return not _has_digit_run(data, end + 1, 1, low, high)
    if after in (46, 58):  # . :
        return not (end + 1 < high and is_class(data, end + 1, DIGIT))
    return True
