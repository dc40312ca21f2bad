"""What the scan for personal data knows of bytes: their classes, known words near a span, and where numbers may end.

All texts lie in one buffer at the address `data`; positions are bytes of it, `low` and `high` the ends of the text.
"""

from __future__ import annotations

import unicodedata
from typing import Any, Final, NamedTuple

import numpy as np

from headrace.kernels.compiling import inner
from headrace.kernels.hash_tables import key_slot
from headrace.kernels.memory import byte_at
from headrace.kernels.mixing import FNV_BASIS, FNV_PRIME
from headrace_features.privacy.personal_data.rules import KEY_PREFIXES, OTHER_WORDS, PHONE_INTERNATIONAL, RULES
from spark_jobs.arrays import Int64Array, UInt8Array, UInt64Array
from spark_jobs.threads import made_once

KEY_PREFIX: Final = 1 << 62
"""Mask of the words of `KEY_PREFIXES`."""
_SLOTS: Final = 1 << 14
_CONTEXT_BYTES: Final = 48
_LONGEST_WORD: Final = 40
_LONGEST_UNSPACED: Final = 7  # characters
SPACED, UNSPACED = 1, 2
U64 = np.uint64
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
    for trigger, members in enumerate((b"0123456789", b"@", b":", b"=", b"_-.", b"GBIJ~"), start=1):
        triggers[list(members)] = trigger
    return classes, triggers


_CLASSES, TRIGGERS = _byte_tables()  # compiled in as constants


class ScanTables(NamedTuple):
    """What the scan knows of words and shapes.

    Attributes:
        keys: (2, 16384) hashes of words and shapes, each at the first free slot from its own on.
        alone: (16384,) rules taking the shape in the slot wherever it stands.
        masks: (2, 16384) rules of the word, or of the shape beside their words, in the slot.
    """

    keys: UInt64Array
    alone: Int64Array
    masks: Int64Array


@made_once
def scan_tables() -> ScanTables:
    """The tables of `RULES`."""
    words: dict[str, int] = {}
    shapes: dict[str, tuple[int, int]] = {}
    for bit, rule in enumerate(RULES):
        for word in _all_forms(rule.words):
            words[word] = words.get(word, 0) | 1 << bit
        for shape in {*rule.alone, *rule.beside_words}:
            alone, beside = shapes.get(shape, (0, 0))
            shapes[shape] = (alone | (shape in rule.alone) << bit, beside | 1 << bit)
    for mask, text in {**OTHER_WORDS, KEY_PREFIX: KEY_PREFIXES}.items():
        for word in _all_forms(text):
            words[word] = words.get(word, 0) | mask
    tables = ScanTables(
        np.zeros((2, _SLOTS), np.uint64),
        np.zeros(_SLOTS, np.int64),
        np.zeros((2, _SLOTS), np.int64),
    )
    for table, entries in enumerate((list(words), list(shapes))):
        for text in entries:
            h = int(FNV_BASIS)
            for byte in text.encode("utf-8"):
                h = (h ^ byte) * int(FNV_PRIME) & (1 << 64) - 1
            slot = key_slot.py_func(tables.keys[table], h >> 20, h)
            tables.keys[table, slot] = h
            tables.masks[table, slot] = words[text] if table == 0 else shapes[text][1]
            if table == 1:
                tables.alone[slot] = shapes[text][0]
    return tables


_ARABIC: Final = str.maketrans("يك", "یک")
"""Letters that Arabic and Persian keyboards write otherwise."""
_FOLDED: Final = {point: chr(point).lower() for point in (*range(0x41, 0x5B), *range(0xC0, 0xDF), *range(0x410, 0x430))}
"""Capitals that `_hashed` takes for small letters."""


def _all_forms(words: str) -> set[str]:
    return {form for word in words.split() for form in _forms(word)}


def _forms(word: str) -> set[str]:
    """A word as it is written: with capitals that `_hashed` does not fold, in Greek capitals without marks, decomposed.

    `τηλέφωνο` is `Τηλέφωνο` and `ΤΗΛΕΦΩΝΟ` as well, `thoại` also `THOẠI`; of Arabic letters there are two sets.
    """
    if word.isascii():
        return {word}
    bare = "".join(letter for letter in unicodedata.normalize("NFD", word) if not unicodedata.combining(letter))
    is_greek = "\u0370" <= bare[0] <= "\u03ff"
    forms = {word, word.capitalize(), word.upper(), word.translate(_ARABIC), unicodedata.normalize("NFD", word)}
    forms |= {bare.upper(), bare.capitalize()} if is_greek else set()
    return {form.translate(_FOLDED) for form in forms}


@inner
def slot_of(keys: UInt64Array, h: Any) -> int:
    """The slot of a hash, or -1."""
    slot = key_slot(keys, h >> U64(20), h)
    return np.int64(slot) if keys[slot] == h else -1


@inner
def is_class(data: int, i: int, flags: int) -> bool:
    """Whether the byte at i is of one of these classes."""
    return _CLASSES[byte_at(data + i)] & flags != 0


@inner
def _character(data: int, i: int) -> Any:
    """The bytes of the character at i, and what it is: 0 no letter, SPACED or UNSPACED a letter of such a script."""
    lead = byte_at(data + i)
    if lead < 0x80:
        return 1, SPACED if is_class(data, i, UPPER | LOWER) else 0
    if lead < 0xC0:  # the rest of a character that was cut
        return 1, 0
    second = byte_at(data + i + 1)
    if lead < 0xE0:
        is_mark = (lead == 0xC2 and second not in (0xAA, 0xB5, 0xBA)) or (
            lead == 0xD8 and second in (0x8C, 0x9B, 0x9F)  # the Arabic comma, semicolon and question mark
        )
        return 2, 0 if is_mark else SPACED
    if lead >= 0xF0:
        return 4, 0
    is_mark = (
        (lead == 0xE2 and second < 0xB0)
        or (lead == 0xE3 and second == 0x80)
        or (
            lead == 0xEF and second in (0xBB, 0xBC, 0xBD)  # a byte order mark, full-width forms
        )
    )
    if is_mark or (lead == 0xE0 and second == 0xA5 and byte_at(data + i + 2) in (0xA4, 0xA5)):  # danda
        return 3, 0
    return 3, UNSPACED if lead == 0xE0 or 0xE3 <= lead <= 0xED else SPACED


@inner
def _is_phone_sign(data: int, i: int, size: int) -> bool:
    """Whether the character at i is a sign for phones: ☎ ☏ ✆ 📞 📟 📠 📱 📲."""
    lead, second, last = byte_at(data + i), byte_at(data + i + 1), byte_at(data + i + size - 1)
    if size == 3:
        return lead == 0xE2 and ((second == 0x98 and last in (0x8E, 0x8F)) or (second == 0x9C and last == 0x86))
    is_of_block = size == 4 and second == 0x9F and byte_at(data + i + 2) == 0x93
    return is_of_block and (0x9E <= last <= 0xA0 or 0xB1 <= last <= 0xB2)


@inner
def _hashed(h: Any, data: int, i: int, size: int) -> Any:
    """A hash with the character at i added, in its small form where that is of Latin or Cyrillic."""
    lead = byte_at(data + i)
    if size == 1:  # of ASCII
        return (h ^ U64(lead | 32 if is_class(data, i, UPPER) else lead)) * FNV_PRIME
    second = byte_at(data + i + 1)
    if size == 2 and ((lead == 0xC3 and 0x80 <= second <= 0x9E) or (lead == 0xD0 and 0x90 <= second <= 0x9F)):
        second += 32
    elif size == 2 and lead == 0xD0 and 0xA0 <= second <= 0xAF:
        lead, second = 0xD1, second - 32
    h = (((h ^ U64(lead)) * FNV_PRIME) ^ U64(second)) * FNV_PRIME
    return (h ^ U64(byte_at(data + i + 2))) * FNV_PRIME if size == 3 else h


@inner
def _unspaced_words(t: ScanTables, data: int, i: int, end: int) -> int:
    """The masks of the known words beginning at i, in a script writing words one after another."""
    mask, h, count = np.int64(0), FNV_BASIS, 0
    while i < end and count < _LONGEST_UNSPACED:
        size, kind = _character(data, i)
        if kind != UNSPACED or i + size > end:
            break
        h, i, count = _hashed(h, data, i, size), i + size, count + 1
        slot = slot_of(t.keys[0], h) if count > 1 else -1
        if slot >= 0:
            mask |= t.masks[0, slot]
    return mask


@inner
def words_in(t: ScanTables, data: int, start: int, end: int) -> int:
    """The masks of all known words in a span; a blank line, and a line end after a number, forget what stands before.

    Words end where no letter follows, and between a small letter and a capital: `cardNumber` is two words. Those of
    scripts without blanks between words are found inside of others.
    """
    mask, digits, size, kind = np.int64(0), 0, 1, 0
    i = start
    while i < end:
        if not is_class(data, i, LETTER):
            digits += is_class(data, i, DIGIT)
            if byte_at(data + i) == 10 and (digits >= 7 or (i + 1 < end and byte_at(data + i + 1) == 10)):
                mask = np.int64(0)
            i += 1
            continue
        digits = 0
        if is_class(data, i, HIGH):
            size, kind = _character(data, i)
            if kind != SPACED or i + size > end:
                if kind == UNSPACED:
                    mask |= _unspaced_words(t, data, i, end)
                elif i + size <= end and _is_phone_sign(data, i, size):
                    mask |= 1 << PHONE_INTERNATIONAL
                i += size
                continue
        h, first, was_lower = FNV_BASIS, i, False
        while i < end and is_class(data, i, LETTER) and not (was_lower and is_class(data, i, UPPER)):
            was_lower, size = is_class(data, i, LOWER), 1
            if is_class(data, i, HIGH):
                size, kind = _character(data, i)
                if kind != SPACED or i + size > end:
                    break
            h, i = _hashed(h, data, i, size), i + size
        if i - first <= _LONGEST_WORD:
            slot = slot_of(t.keys[0], h)
            if slot >= 0:
                mask |= t.masks[0, slot]
    return mask


@inner
def context_of(t: ScanTables, data: int, low: int, start: int) -> int:
    """Known words in the bytes before `start`; a cut one is left out."""
    first = max(low, start - _CONTEXT_BYTES)
    while low < first < start and 0x80 <= byte_at(data + first) < 0xC0:
        first += 1
    before = first - 1
    while before > low and 0x80 <= byte_at(data + before) < 0xC0:
        before -= 1
    if first > low and _character(data, before)[1] == SPACED:
        size, kind = _character(data, first)
        while first < start and kind == SPACED:
            first += size
            size, kind = _character(data, first)
    return words_in(t, data, first, start)


@inner
def line_after(t: ScanTables, data: int, end: int, high: int) -> int:
    """Known words in the few bytes after `end`, of the same line and before any digit."""
    last = end
    while last < high and last - end < 20 and byte_at(data + last) != 10 and not is_class(data, last, DIGIT):
        last += 1
    if last < high and _character(data, last)[1] == SPACED:
        while end < last and is_class(data, last - 1, LETTER):
            last -= 1
    return words_in(t, data, end, last)


@inner
def mark_at(data: int, i: int, high: int) -> Any:
    """The mark between groups of a number at i in its ASCII form, one of ` ()-./` or 0, and its bytes."""
    byte = byte_at(data + i)
    if byte < 0x80:
        return (byte, 1) if byte in (32, 40, 41, 45, 46, 47) else (0, 1)
    if byte == 0xC2:
        return (32, 2) if i + 1 < high and byte_at(data + i + 1) == 0xA0 else (0, 2)
    if i + 2 >= high or byte not in (0xE2, 0xE3, 0xEF):
        return 0, 1
    second, third = byte_at(data + i + 1), byte_at(data + i + 2)
    mark = 0
    if second == 0x80 and ((byte == 0xE2 and (third <= 0x8A or third == 0xAF)) or (byte == 0xE3 and third == 0x80)):
        mark = 32  # blanks of all widths
    elif byte == 0xE2 and ((second == 0x80 and 0x90 <= third <= 0x93) or (second == 0x88 and third == 0x92)):
        mark = 45  # hyphens, the en dash, the minus
    elif byte == 0xEF and second == 0xBC and third in (0x88, 0x89, 0x8D, 0x8E):
        mark = third - 0x88 + 40  # full-width ( ) - .
    return mark, 3


@inner
def _has_digit_run(data: int, i: int, step: int, low: int, high: int) -> bool:
    """Whether the run of letters and digits from i in a direction has a digit in 12 bytes."""
    for _ in range(12):
        if i < low or i >= high or not is_class(data, i, ALNUM):
            return False
        if is_class(data, i, DIGIT):
            return True
        i += step
    return True


@inner
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


@inner
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
