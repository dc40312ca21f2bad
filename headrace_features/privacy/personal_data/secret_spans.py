"""Where secrets are: values assigned to a name such as `password`, and keys with a prefix such as `ghp_`."""

from __future__ import annotations

from typing import Any, Final

from headrace.kernels.compiling import inner
from headrace.kernels.memory import byte_at
from headrace.kernels.mixing import FNV_BASIS, FNV_PRIME
from headrace_features.privacy.personal_data import rules
from headrace_features.privacy.personal_data.scan_words import (
    ALNUM,
    DIGIT,
    KEY_PREFIX,
    U64,
    ScanTables,
    is_class,
    slot_of,
    words_in,
)

_LONGEST_PREFIX: Final = 10
_SHORTEST_RUN: Final = 12


@inner
def assigned_value(t: ScanTables, data: int, i: int, low: int, high: int) -> Any:
    """The span of the value assigned by the = or : at i to a name such as `password`; (0, 0) if there is none.

    `password = "hunter22"` has one between quotes, `api_key=abcd1234` one without. A value after a colon or a blank
    and without quotes counts only where it has 16 bytes and ends its line, since `password: required` is prose.
    """
    e = i
    while e > low and i - e < 2 and byte_at(data + e - 1) in (32, 34, 39, 93):
        e -= 1
    s = e
    while s > low and e - s < 32 and (is_class(data, s - 1, ALNUM) or byte_at(data + s - 1) in (95, 45)):
        s -= 1
    if e - s < 3:
        return 0, 0
    mask = words_in(t, data, s, e)
    if not (mask & rules.SECRET_NAME or (mask & rules.KEY_NAME and mask & rules.KEY_OF)):
        return 0, 0
    j = i + 1
    while j < high and j - i < 3 and byte_at(data + j) in (32, 61):
        j += 1
    quote = byte_at(data + j) if j < high and byte_at(data + j) in (34, 39, 96) else 0
    start = j + 1 if quote else j
    is_loose = quote == 0 and (j > i + 1 or byte_at(data + i) == 58)
    end = start
    while (
        end < high
        and end - start < 129
        and byte_at(data + end) > 32
        and byte_at(data + end) != quote
        and byte_at(data + end) < 127
    ):
        if quote == 0 and not (is_class(data, end, ALNUM) or byte_at(data + end) in (95, 45, 43, 47, 33)):
            break
        end += 1
    if end - start > 128 or (quote and (end == high or byte_at(data + end) != quote)):
        return 0, 0
    if is_loose and (end - start < 16 or (end < high and byte_at(data + end) not in (10, 13))):
        return 0, 0
    if quote == 0 and end < high and byte_at(data + end) > 32 and byte_at(data + end) not in (38, 44, 59, 34, 39):
        return 0, 0
    return start, end


@inner
def key_start(t: ScanTables, data: int, i: int, low: int, high: int) -> int:
    """Where a key with a known prefix begins; -1 if there is none.

    Args:
        t: tables of words.
        data: address of the buffer.
        i: position of the prefix byte stopping the scan: the `_` of `ghp_`, the B of `-----BEGIN`.
        low: start of the text.
        high: end of the text.
    """
    byte = byte_at(data + i)
    if byte in (95, 45, 46):  # _ - .
        if byte == 46 and (i + 1 >= high or not is_class(data, i + 1, ALNUM)):
            return -1  # the end of a sentence
        s = i
        while s > low and i - s < _LONGEST_PREFIX + 1 and is_class(data, s - 1, ALNUM):
            s -= 1
        if not 2 <= i - s <= _LONGEST_PREFIX:
            return -1
        if s - 1 > low and byte_at(data + s - 1) in (95, 45) and is_class(data, s - 2, ALNUM):
            return -1  # the end of a longer name
        h = FNV_BASIS
        for k in range(s, i + (byte == 46)):
            h = (h ^ U64(byte_at(data + k))) * FNV_PRIME
        slot = slot_of(t.keys[0], h)
        return s if slot >= 0 and t.masks[0, slot] & KEY_PREFIX else -1
    if i + 2 >= high or i == low:
        return -1
    if byte == 126:  # ..8Q~.., secrets of Entra applications
        s = i - 5
        is_secret = byte_at(data + i - 1) == 81 and s >= low and is_class(data, i - 2, DIGIT)
        return s if is_secret and (s == low or not is_class(data, s - 1, ALNUM)) else -1
    before, after = byte_at(data + i - 1), byte_at(data + i + 1)
    if byte == 66:  # -----BEGIN
        return i - 5 if before == 45 and after == 69 and byte_at(data + i + 2) == 71 and i - 5 >= low else -1
    s = i - 1
    if byte == 71:  # SG.
        is_key = before == 83 and after == 46
    elif byte == 73 and after == 65:  # AKIA, ASIA
        s = i - 2
        is_key = before in (75, 83) and s >= low and byte_at(data + s) == 65
    elif byte == 73:  # AIza
        is_key = before == 65 and after == 122 and byte_at(data + i + 2) == 97
    else:  # eyJ
        s = i - 2
        is_key = before == 121 and s >= low and byte_at(data + s) == 101
    return s if is_key and (s == low or not is_class(data, s - 1, ALNUM)) else -1


@inner
def _spells(data: int, i: int, a: int, b: int, c: int, d: int) -> bool:
    """Whether four bytes stand at i."""
    return (
        byte_at(data + i) == a
        and byte_at(data + i + 1) == b
        and byte_at(data + i + 2) == c
        and byte_at(data + i + 3) == d
    )


@inner
def begins_key(t: ScanTables, data: int, s: int, e: int) -> bool:
    """Whether a run of letters and digits begins as keys do that have no mark after their first letters.

    Those of Azure have one inside: JQQJ9 after 52 letters and digits, AZDO after 76.
    """
    if e - s < _SHORTEST_RUN:
        return False
    if e - s >= 80 and (_spells(data, s + 76, 65, 90, 68, 79) or _spells(data, s + 52, 74, 81, 81, 74)):  # AZDO, JQQJ
        return True
    h = FNV_BASIS
    for k in range(s, s + 4):
        h = (h ^ U64(byte_at(data + k))) * FNV_PRIME
    slot = slot_of(t.keys[0], h)
    return slot >= 0 and t.masks[0, slot] & KEY_PREFIX != 0


@inner
def unprefixed_start(data: int, i: int, low: int, high: int) -> int:
    """Where a key begins that nothing but the : or = at i tells; -1 if there is none."""
    return _bot_start(data, i, low, high) if byte_at(data + i) == 58 else _padded_start(data, i, low, high)


@inner
def _bot_start(data: int, i: int, low: int, high: int) -> int:
    """Where a token of a Telegram bot with its colon at i begins: eight to ten digits, then AA..; -1 for none."""
    if i + 36 > high or byte_at(data + i + 1) != 65 or byte_at(data + i + 2) != 65:
        return -1
    s = i
    while s > low and i - s < 11 and is_class(data, s - 1, DIGIT):
        s -= 1
    return s if 8 <= i - s <= 10 and (s == low or not is_class(data, s - 1, ALNUM)) else -1


@inner
def _padded_start(data: int, i: int, low: int, high: int) -> int:
    """Where a base64 of 32 or 64 bytes with its first = at i begins, or what follows `sig=`; -1 for none."""
    if i - 3 >= low and byte_at(data + i - 3) == 115 and byte_at(data + i - 2) == 105 and byte_at(data + i - 1) == 103:
        return i + 1 if i + 40 < high and (i - 3 == low or not is_class(data, i - 4, ALNUM)) else -1
    s = i
    while s > low and i - s < 88 and (is_class(data, s - 1, ALNUM) or byte_at(data + s - 1) in (43, 47)):
        s -= 1
    padding = 2 if i + 1 < high and byte_at(data + i + 1) == 61 else 1
    return s if (i - s, padding) == (86, 2) or (i - s, padding) == (43, 1) else -1
