"""Where a number with an inner structure ends: IPv4 addresses, IBANs, phone numbers and their extensions.

The arguments are those of `scan_words`: `data` is the address of the buffer, positions are bytes of it, and `high` is
the end of the text. Bytes are compared with their ASCII codes, spelled out in a comment.
"""

from __future__ import annotations

from typing import Any

from headrace.kernels.compiling import inner
from headrace.kernels.memory import byte_at
from headrace_features.privacy.personal_data.scan_words import (
    ALNUM,
    DIGIT,
    is_class,
    mark_at,
)


@inner
def ipv4_end(data: int, start: int, high: int) -> int:
    """The end of an IPv4 address at `start`, four numbers up to 255 joined by points; 0 if there is none."""
    i = start
    for part in range(4):
        first, value = i, 0
        while i < high and i - first < 4 and is_class(data, i, DIGIT):
            value = 10 * value + byte_at(data + i) - 48
            i += 1
        if i == first or i - first > 3 or value > 255 or (byte_at(data + first) == 48 and i - first > 1):
            return 0
        if part < 3:
            if i >= high or byte_at(data + i) != 46:
                return 0
            i += 1
    return i


@inner
def iban_end(data: int, start: int, high: int) -> int:
    """The end of the longest IBAN at `start`, by its checksum; 0 if there is none.

    Blanks and dashes may stand between groups of four: `DE89 3704 0044 0532 0130 00`.

    Source: ISO 7064, MOD 97-10. Letters count as 10 to 35, and the number, with its first four characters moved to the
    end, is 1 modulo 97. The country and check digits (`head`) are therefore computed apart and added at every length.
    """
    i, count, rest, end = start + 4, 4, 0, 0
    head = 0
    for k in range(start, start + 4):
        value = byte_at(data + k) - 48 if is_class(data, k, DIGIT) else (byte_at(data + k) | 32) - 87
        head = (head * (10 if value < 10 else 100) + value) % 97
    while i < high and count < 34:  # the longest that ISO 13616 allows
        mark, size = mark_at(data, i, high)
        if mark in (32, 45) and i + size < high and is_class(data, i + size, ALNUM) and count % 4 == 0:
            i += size
        if not is_class(data, i, ALNUM):
            break
        value = byte_at(data + i) - 48 if is_class(data, i, DIGIT) else (byte_at(data + i) | 32) - 87
        rest = (rest * (10 if value < 10 else 100) + value) % 97
        count += 1
        i += 1
        # The two letters and two digits of the head make six decimal digits; the shortest IBAN, Norway's, has 15.
        if count >= 15 and (rest * 1000000 + head) % 97 == 1 and (i == high or not is_class(data, i, ALNUM)):
            end = i
    return end


@inner
def extension_end(data: int, i: int, high: int) -> int:
    """The end of an extension of a phone number (`x12`, ` x12`, ` ext. 12`) at i; i if there is none."""
    j = i + 1 if i < high and byte_at(data + i) == 32 else i
    if (
        j + 3 < high and byte_at(data + j) | 32 == 101 and byte_at(data + j + 1) == 120 and byte_at(data + j + 2) == 116
    ):  # ext
        j += 3
        while j < high and byte_at(data + j) in (32, 46):
            j += 1
    elif j < high and byte_at(data + j) == 120:
        j += 1
    else:
        return i
    first = j
    while j < high and j - first < 6 and is_class(data, j, DIGIT):
        j += 1
    return j if 1 <= j - first <= 5 else i


@inner
def phone_end(data: int, start: int, high: int) -> Any:
    """The end of groups of digits joined by one or two marks, such as `30) 1234-56`.

    Returns:
        The end, the number of digits and of groups, and whether a parenthesis opened before `start` closes.
    """
    i, digits, groups, end = start, 0, 0, start
    opened, closed, last_closed = False, False, False
    while i < high:
        first = i
        while i < high and is_class(data, i, DIGIT):
            i += 1
        after = extension_end(data, i, high)
        # E.164 allows 15 digits.
        if i == first or digits + i - first > 15 or (after == i and i < high and is_class(data, i, ALNUM)):
            break
        digits, groups, end = digits + i - first, groups + 1, after
        if after > i:
            break
        marks = 0
        while i < high and marks < 2:
            mark, size = mark_at(data, i, high)
            if mark == 0:
                break
            opened |= mark == 40
            closed |= mark == 41 and not opened
            i += size
            marks += 1
        last_closed, closed = last_closed | (closed and i < high and is_class(data, i, DIGIT)), False
    return end, digits, groups, last_closed
