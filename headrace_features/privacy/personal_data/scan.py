"""Find candidates of personal data in bytes, in one pass, stopping only at digits and a few marks.

Most bytes cost one look into a table of triggers. These bytes are triggers:

    digit        its run of letters and digits, then the runs joined to it by one blank or mark: shapes, phones, IPv4
    @            a mail address, or the password of a URL before a host
    :            an IPv6 or MAC address; with = also the value assigned to a name such as `password`
    _ - . G B I J ~  marks of keys (`ghp_`, `xoxb-`, `hvs.`, `SG.`, `-----BEGIN`, `AIza`, `eyJ`, `8Q~`)

A candidate must have the right boundaries and, where its rule says so, one of the rule's words before it. The exact
checks (checksums, dates, ranges) are in `checks.py`, for the few remaining candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from headrace.kernels.compiling import compiled, inner
from headrace.kernels.memory import byte_at
from headrace.kernels.mixing import FNV_BASIS, FNV_PRIME
from headrace_features.privacy.personal_data import rules, secret_spans
from headrace_features.privacy.personal_data.number_ends import extension_end, iban_end, ipv4_end, phone_end
from headrace_features.privacy.personal_data.scan_words import (
    ALNUM,
    DIGIT,
    DOMAIN,
    HIGH,
    LETTER,
    LOCAL,
    LOWER,
    TRIGGERS,
    U64,
    UPPER,
    ScanTables,
    begins_well,
    context_of,
    ends_well,
    is_class,
    line_after,
    mark_at,
    scan_tables,
    slot_of,
    words_in,
)
from spark_jobs.arrays import Int64Array, UInt8Array

TEXT, START, END, RULE, BESIDE_WORDS, CONTEXT = range(6)
"""Columns of a candidate: row of the text, byte span in the buffer, index into `RULES`, whether a word of the rule
stands before it, and the mask of the words of all rules there."""

_BLOCK: Final = 8192  # candidates
_MOST_AT_ONCE: Final = 512  # no trigger gives more: 12 windows of at most 20 rules, and a few
_LONGEST_KEY: Final = 8192  # bytes; a private key in PEM form has a few thousand
_LONGEST_SHAPE: Final = 32  # bytes; the longest shapes have 23 characters, of which a mark may take three bytes
_LONGEST_START: Final = 128  # bytes of a run before its first digit; keys of letters and digits have some by then
_PHONE_BIT: Final = 1 << rules.PHONE_INTERNATIONAL


@inner
def _emit(out: Int64Array, n: int, row: int, start: int, end: int, rule: int, beside: bool, context: int) -> int:
    """Add a candidate; returns the new count. `_scan_into` has made sure that there is room."""
    out[n, 0], out[n, 1], out[n, 2], out[n, 3], out[n, 4], out[n, 5] = row, start, end, rule, beside, context
    return n + 1


@inner
def _phone(t: ScanTables, data: int, s: int, low: int, high: int, row: int, out: Int64Array, n: int) -> int:
    """Add the phone number with its first group of digits at s, if there is one; returns the new count."""
    before = byte_at(data + s - 1) if s > low else 0
    end, digits, groups, is_closed = phone_end(data, s, high)
    start = s - 1 if before == 40 and is_closed else s  # (
    if digits < 7 or not ends_well(data, end, low, high):
        return n
    if start > low and byte_at(data + start - 1) == 43:  # +
        if byte_at(data + s) != 48 and (start - 1 == low or not is_class(data, start - 2, ALNUM)):
            words = context_of(t, data, low, start - 1)
            opened = is_closed and start - 2 >= low and byte_at(data + start - 2) == 40  # (+49)
            return _emit(
                out, n, row, start - 1 - opened, end, rules.PHONE_INTERNATIONAL, words & _PHONE_BIT != 0, words
            )
        return n
    # National numbers: at most 13 digits with trunk prefix and extension; no year in front, as of 2024-05-17.
    if digits > 13 or not begins_well(data, start, low, high):
        return n
    is_date = (
        s + 4 < high
        and byte_at(data + s + 4) in (45, 47, 46)
        and byte_at(data + s) in (49, 50)
        and byte_at(data + s + 1) in (57, 48)
    )
    if is_date or (groups == 1 and digits > 11):
        return n
    words = context_of(t, data, low, start)
    after = end
    while after < high and after - end < 3 and byte_at(data + after) in (32, 44, 45, 58, 92, 40):
        after += 1
    last = after
    while last < high and last - after < 12 and is_class(data, last, LOWER | UPPER):
        last += 1
    following = words_in(t, data, after, last)
    strong = (words | following) & _PHONE_BIT != 0 or (following & rules.PLACE_OF_PHONE != 0 and groups > 1)
    called = words & rules.CALLING != 0 and words & rules.NUMBER_OF_A_THING == 0
    if strong or (called and digits <= 12 and (groups > 1 or digits == 10)):
        return _emit(out, n, row, start, end, rules.PHONE_NATIONAL, strong, words)
    follows_digits = before == 32 and s - 2 >= low and is_class(data, s - 2, DIGIT)
    if byte_at(data + s) == 48 and byte_at(data + s + 1) == 48 and groups > 1 and digits >= 10 and not follows_digits:
        return _emit(out, n, row, start, end, rules.PHONE_INTERNATIONAL, False, words)
    return n


@inner
def _shapes(t: ScanTables, data: int, s: int, low: int, high: int, row: int, out: Int64Array, n: int) -> int:
    """Add the candidates of all rules with shapes beginning at s; returns the new count.

    A shape is a sequence of letters, digits and marks: a hash rolls over it, and every end of a run of letters and
    digits is looked up, so that `123-45-6789` is asked for as `123`, `123-45` and `123-45-6789`.
    """
    h, i, words, has_words = FNV_BASIS, s, np.int64(0), False
    mark, size = 0, 0
    last = min(high, s + _LONGEST_SHAPE)
    while i < last:
        while i < last and is_class(data, i, ALNUM):
            h = (h ^ U64(68 if is_class(data, i, DIGIT) else 76)) * FNV_PRIME  # D or L
            i += 1
        slot = slot_of(t.keys[1], h)
        if slot >= 0 and ends_well(data, i, low, high):
            if not has_words:
                words, has_words = context_of(t, data, low, s) | line_after(t, data, i, high), True
            taken = t.alone[slot] | (t.masks[1, slot] & words)
            rule = 0
            while taken:
                if taken & 1:
                    end = extension_end(data, i, high) if rule == rules.PHONE_NORTH_AMERICA else i
                    n = _emit(out, n, row, s, end, rule, (words >> rule) & 1 != 0, words)
                taken >>= 1
                rule += 1
        marks = 0
        while i < last and marks < 2:
            mark, size = mark_at(data, i, high)
            if mark == 0:
                break
            h = (h ^ U64(mark)) * FNV_PRIME
            i += size
            marks += 1
        if marks == 0 or i == last or not is_class(data, i, ALNUM):
            break
    return n


@inner
def _at_digit(t: ScanTables, data: int, i: int, low: int, high: int, row: int, out: Int64Array, n: int) -> Any:
    """Add all candidates beginning with the run of letters and digits around i; returns its end and the new count."""
    s = i
    while s > low and i - s < _LONGEST_START and is_class(data, s - 1, ALNUM):
        s -= 1
    e, letters = s, 0
    while e < high and is_class(data, e, ALNUM):
        letters += is_class(data, e, LETTER)
        e += 1
    if s > low and is_class(data, s - 1, ALNUM):
        return e, n
    if e - s in (4, 12):
        n = _joined_mac(t, data, s, e, low, high, row, out, n)
    if letters == 0:
        if e - s <= 3 and e < high and byte_at(data + e) == 46:
            end = ipv4_end(data, s, high)
            begins = s == low or not (
                byte_at(data + s - 1) in (46, 95) or (byte_at(data + s - 1) == 45 and is_class(data, s - 2, DIGIT))
            )
            ends = end == high or not (is_class(data, end, ALNUM) or byte_at(data + end) in (95, 45))
            goes_on = end + 1 < high and byte_at(data + end) == 46 and is_class(data, end + 1, ALNUM)
            if end and begins and ends and not goes_on:
                words = context_of(t, data, low, s)
                return e, _emit(out, n, row, s, end, rules.IPV4, (words >> rules.IPV4) & 1 != 0, words)
        if e - s > 19:
            return e, n
        n = _phone(t, data, s, low, high, row, out, n)
    else:
        is_iban = i == s + 2 and e - s >= 4 and is_class(data, s + 3, DIGIT) and (e - s == 4 or e - s >= 15)
        if is_iban and (s == low or byte_at(data + s - 1) != 95):
            end = iban_end(data, s, high)
            goes_on = end + 1 < high and byte_at(data + end) == 45 and is_class(data, end + 1, ALNUM)
            if end and not goes_on and (end == high or byte_at(data + end) != 95):
                words = context_of(t, data, low, s)
                n = _emit(out, n, row, s, end, rules.IBAN, (words >> rules.IBAN) & 1 != 0, words)
        if (
            e - s == 20 and byte_at(data + s) == 65 and byte_at(data + s + 2) in (73, 67, 84)
        ):  # the ids of AWS keys: A..I, ACC, A3T
            n = _emit(out, n, row, s, e, rules.KNOWN_KEY, False, 0)
        if secret_spans.begins_key(t, data, s, e):
            n = _emit(out, n, row, s, min(high, s + _LONGEST_KEY), rules.KNOWN_KEY, False, 0)
        if e - s < 8 or e - s > 18 or letters > 14:
            return e, n
    if begins_well(data, s, low, high):
        n = _shapes(t, data, s, low, high, row, out, n)
    return e, n


@inner
def _at_sign(data: int, i: int, low: int, high: int, row: int, out: Int64Array, n: int) -> int:
    """Add the mail address around the @ at i, or the password of a URL before it; returns the new count."""
    s = i
    while s > low and i - s < 65:  # RFC 5321 allows 64 bytes before the @ and 255 after it; 65 are seen to be too long
        if is_class(data, s - 1, LOCAL):
            s -= 1
        elif s - 2 >= low and 0xC3 <= byte_at(data + s - 2) <= 0xD4 and 0x80 <= byte_at(data + s - 1) < 0xC0:
            s -= 2  # a letter with a mark, or of Greek or Cyrillic
        else:
            break
    while s < i and not is_class(data, s, ALNUM | HIGH):
        s += 1
    e, point = i + 1, 0
    while e < high and e - i < 255 and is_class(data, e, DOMAIN | HIGH):
        if byte_at(data + e) == 46:
            point = e
        e += 1
    while e > i + 1 and not is_class(data, e - 1, ALNUM | HIGH):
        e -= 1
    if s < i and i + 1 < point and i - s <= 64:
        n = _emit(out, n, row, s, e, rules.MAIL, False, 0)
    s = i
    while s > low and i - s < 160 and byte_at(data + s - 1) > 32 and byte_at(data + s - 1) not in (34, 39, 47, 64):
        s -= 1
    if (
        s - 3 >= low
        and byte_at(data + s - 1) == 47
        and byte_at(data + s - 2) == 47
        and byte_at(data + s - 3) == 58
        and s < i
    ):
        n = _emit(out, n, row, s - 3, i + 1, rules.PASSWORD_IN_URL, False, 0)
    return n


@inner
def _at_colon(t: ScanTables, data: int, i: int, low: int, high: int, row: int, out: Int64Array, n: int) -> Any:
    """Add the IPv6 or MAC address with its first colon at i; returns where to go on, and the new count."""
    s = i
    while s > low and i - s < 5 and _is_hex(byte_at(data + s - 1)):
        s -= 1
    e, colons, doubled = i, 0, False
    while (
        e < high
        and e - s < 48
        and (_is_hex(byte_at(data + e)) or byte_at(data + e) == 58 or (byte_at(data + e) == 46 and colons >= 2))
    ):
        if byte_at(data + e) == 58:
            colons += 1
            doubled |= e + 1 < high and byte_at(data + e + 1) == 58
        e += 1
    go_on = e
    while e > i + 2 and (byte_at(data + e - 1) == 46 or (byte_at(data + e - 1) == 58 and byte_at(data + e - 2) != 58)):
        e -= 1
    begins = s == low or not (is_class(data, s - 1, ALNUM) or byte_at(data + s - 1) in (58, 95, 46))
    if not begins and colons > 2 and _is_hex(byte_at(data + i + 1)) and byte_at(data + s - 1) != 58:
        s, begins, colons = i + 1, True, colons - 1  # `MAC:00:1a:..`: what is before the colon is no part of it
    if not begins or (e < high and (is_class(data, e, ALNUM) or byte_at(data + e) in (95, 58))):
        return max(i + 1, go_on - 4), n
    if colons >= 2 and e - s >= 6 and (doubled or colons >= 7):
        words = context_of(t, data, low, s)
        n = _emit(out, n, row, s, e, rules.IPV6, (words >> rules.IPV6) & 1 != 0, words)
    elif colons == 5 and e - s == 17:
        words = context_of(t, data, low, s)
        n = _emit(out, n, row, s, e, rules.MAC, (words >> rules.MAC) & 1 != 0, words)
    return max(i + 1, go_on - 4), n


@inner
def _are_hex(data: int, start: int, end: int) -> bool:
    """Whether all bytes of a span are hexadecimal digits."""
    while start < end and _is_hex(byte_at(data + start)):
        start += 1
    return start == end


@inner
def _joined_mac(
    t: ScanTables, data: int, s: int, e: int, low: int, high: int, row: int, out: Int64Array, n: int
) -> int:
    """Add the MAC address in one of two forms of which s to e is a run; returns the new count.

    It is all of `001a2b3c4d5e`, and the first group with a digit of `001a.2b3c.4d5e`; of the groups before it, which
    have letters alone, the scan did not stop at any.
    """
    if e - s == 12:
        words = context_of(t, data, low, s) if _are_hex(data, s, e) else 0
        return _emit(out, n, row, s, e, rules.MAC, True, words) if (words >> rules.MAC) & 1 else n
    start = s
    while start - 5 >= low and byte_at(data + start - 1) == 46 and _are_hex(data, start - 5, start - 1):
        for k in range(start - 5, start - 1):
            if is_class(data, k, DIGIT):
                return n
        start -= 5
    end = start + 14
    if end > high or byte_at(data + start + 4) != 46 or byte_at(data + start + 9) != 46:
        return n
    if not (_are_hex(data, start, start + 4) and _are_hex(data, start + 5, start + 9) and _are_hex(data, end - 4, end)):
        return n
    return _mac_between(t, data, start, end, low, high, row, out, n)


@inner
def _mac_between(
    t: ScanTables, data: int, start: int, end: int, low: int, high: int, row: int, out: Int64Array, n: int
) -> int:
    """Add a span with the form of a MAC address, unless it is part of something longer; returns the new count."""
    if start > low and (is_class(data, start - 1, ALNUM) or byte_at(data + start - 1) in (45, 46, 95)):
        return n
    if end < high and (is_class(data, end, ALNUM) or byte_at(data + end) in (45, 95)):
        return n
    if end + 1 < high and byte_at(data + end) == 46 and is_class(data, end + 1, ALNUM):
        return n
    words = context_of(t, data, low, start)
    return _emit(out, n, row, start, end, rules.MAC, (words >> rules.MAC) & 1 != 0, words)


@inner
def _dashed_mac(t: ScanTables, data: int, i: int, low: int, high: int, row: int, out: Int64Array, n: int) -> int:
    """Add the MAC address `00-1A-2B-3C-4D-5E` with its first dash at i; returns the new count."""
    start, end = i - 2, i + 15
    if start < low or end > high:
        return n
    for k in range(6):
        if not _are_hex(data, start + 3 * k, start + 3 * k + 2) or (k and byte_at(data + start + 3 * k - 1) != 45):
            return n
    return _mac_between(t, data, start, end, low, high, row, out, n)


@inner
def _is_hex(byte: int) -> bool:
    """Whether a byte is a hexadecimal digit."""
    return 48 <= byte <= 57 or 97 <= byte | 32 <= 102


@compiled
def _scan_into(source: UInt8Array, offsets: Int64Array, t: ScanTables, row: int, i: int, out: Int64Array) -> Any:
    """Scan from byte i of a text on, until all is seen or `out` is nearly full.

    Returns:
        The row and byte where to go on, and the number of candidates in `out`.
    """
    data = np.int64(source.ctypes.data)
    n, room = 0, len(out) - _MOST_AT_ONCE
    while row < len(offsets) - 1:
        low, high = offsets[row], offsets[row + 1]
        i = max(i, low)
        while i < high:
            trigger = TRIGGERS[byte_at(data + i)]
            if trigger == 0:
                i += 1
                continue
            if n > room:
                return row, i, n
            if trigger == 1:
                i, n = _at_digit(t, data, i, low, high, row, out, n)
            elif trigger == 2:
                n = _at_sign(data, i, low, high, row, out, n)
                i += 1
            elif trigger >= 5:
                if byte_at(data + i) == 45 and i + 6 < high and byte_at(data + i + 3) == 45 == byte_at(data + i + 6):
                    n = _dashed_mac(t, data, i, low, high, row, out, n)
                start = secret_spans.key_start(t, data, i, low, high)
                if start >= low:
                    n = _emit(out, n, row, start, min(high, start + _LONGEST_KEY), rules.KNOWN_KEY, False, 0)
                i += 1
            else:
                start, end = secret_spans.assigned_value(t, data, i, low, high)
                if end - start >= 8:
                    n = _emit(out, n, row, start, end, rules.ASSIGNED_SECRET, False, 0)
                start = secret_spans.unprefixed_start(data, i, low, high)
                if start >= low:
                    n = _emit(out, n, row, start, min(high, start + _LONGEST_KEY), rules.KNOWN_KEY, False, 0)
                if trigger == 3:
                    i, n = _at_colon(t, data, i, low, high, row, out, n)
                else:
                    i += 1
        row += 1
    return row, i, n


def scan(data: UInt8Array, offsets: Int64Array) -> Iterator[Int64Array]:
    """All candidates in texts lying one after another, in blocks.

    Args:
        data: (B,) bytes of the texts.
        offsets: (D + 1,) where each begins, and the end of the last.

    Yields:
        (C, 6) rows of `TEXT, START, END, RULE, BESIDE_WORDS, CONTEXT`, by text.
    """
    source, starts = data[:], offsets.astype(np.int64)
    source.flags.writeable = False  # one signature, compiled once
    row, i = 0, 0
    while row < len(offsets) - 1:
        out = np.empty((_BLOCK, 6), np.int64)
        row, i, n = _scan_into(source, starts, scan_tables(), row, i, out)
        yield out[:n]
