"""Prefixes, suffixes and infixes of words, as the rules of spaCy's English tokenizer cut them off.

($5          prefixes `(` and `$`                 are asked for at the start of what is left of a run
10km.        suffixes `.` and `km`                at its end
well-known   infix `-`                            inside the rest, unless it is a web or mail address
"""

from __future__ import annotations

from headrace.kernels.compiling import inner
from headrace.kernels.memory import four_bytes_at
from spark_jobs.filters.heuristics import character_flags as flag
from spark_jobs.filters.heuristics.contractions import UNIT_SEED, hash_points, look_up
from spark_jobs.filters.heuristics.text_memory import (
    KernelAddresses,
    flags_at,
    point_at,
)


@inner
def _dots(r: KernelAddresses, start: int, stop: int) -> int:
    """The number of consecutive dots at start."""
    i = start
    while i < stop and point_at(r, i) == 0x2E:
        i += 1
    return i - start


@inner
def prefix_length(r: KernelAddresses, lo: int, hi: int) -> int:
    """Characters of the prefix at lo; 0 if there is none."""
    point = point_at(r, lo)
    if four_bytes_at(r.flags + 4 * point) & flag.PREFIX:
        return 1
    if lo + 1 < hi and point in (0x41, 0x43, 0x55):  # A$, C$, US$
        dollar = lo + 2 if point == 0x55 and point_at(r, lo + 1) == 0x53 else lo + 1
        if dollar < hi and point_at(r, dollar) == 0x24 and (point != 0x55 or dollar == lo + 2):
            return dollar + 1 - lo
    if point == 0x2E:
        dots = _dots(r, lo, hi)
        return dots if dots > 1 else 0
    if point == 0x2B:
        return 0 if lo + 1 < hi and flags_at(r, lo + 1) & flag.DIGIT else 1
    return 0


@inner
def suffix_length(r: KernelAddresses, lo: int, hi: int) -> int:
    """Characters of the suffix before hi; 0 if there is none."""
    if lo >= hi:
        return 0
    point = point_at(r, hi - 1)
    flags = four_bytes_at(r.flags + 4 * point)
    before = flags_at(r, hi - 2) if hi - 2 >= lo else 0
    if flags & flag.SUFFIX:
        return 1
    if point == 0x2E:
        first = hi - 1
        while first > lo and point_at(r, first - 1) == 0x2E:
            first -= 1
        if first < hi - 1:
            return hi - first
        both_upper = before & flag.UPPER_CASE and hi - 3 >= lo and flags_at(r, hi - 3) & flag.UPPER_CASE
        return 1 if before & flag.DOT_FOLLOWS or both_upper else 0
    if point in (0x73, 0x53) and before & flag.QUOTE and point_at(r, hi - 2) in (0x27, 0x2019):
        return 2
    if before & flag.DIGIT and (point == 0x2B or flags & flag.CURRENCY):
        return 1
    if flags & flag.UNIT_END:
        for i in range(hi - 2, max(lo, hi - 5) - 1, -1):  # the longest units, such as km/h, have four characters
            if flags_at(r, i) & flag.DIGIT:
                rule = look_up(r.rules, hash_points(r.points, i + 1, hi, UNIT_SEED))
                return hi - i - 1 if rule else 0
    return 0


@inner
def infix_length(r: KernelAddresses, i: int, hi: int) -> int:  # noqa: PLR0911 - one for each kind of infix
    """Characters of the infix at i, 0 if there is none; a character of the same word stands before i."""
    point = point_at(r, i)
    flags = four_bytes_at(r.flags + 4 * point)
    if not flags & flag.INFIX:
        return 0
    dots: int = _dots(r, i, hi) if point == 0x2E else 0
    if dots > 1:
        return dots
    if point == 0x2026 or flags & flag.ICON:
        return 1
    if i + 1 >= hi:
        return 0
    before, after, next_point = flags_at(r, i - 1), flags_at(r, i + 1), point_at(r, i + 1)
    if point == 0x2E:
        return 1 if before & (flag.LOWER_CASE | flag.QUOTE) and after & (flag.UPPER_CASE | flag.QUOTE) else 0
    if point in (0x2B, 0x2D, 0x2A, 0x5E) and before & flag.DIGIT and (after & flag.DIGIT or next_point == 0x2D):
        return 1
    if point == 0x2C:
        return 1 if before & flag.LETTER and after & flag.LETTER else 0
    if point in (0x2B, 0x2A, 0x5E) or not before & (flag.LETTER | flag.DIGIT):
        return 0
    if after & flag.LETTER:
        return 1
    if next_point != point or point not in (0x2D, 0x2014):
        return 0
    hyphens = 2
    while i + hyphens < hi and point_at(r, i + hyphens) == point:
        hyphens += 1
    fits = hyphens <= (3 if point == 0x2D else 2) and i + hyphens < hi  # spaCy's infixes -- --- and ——
    return hyphens if fits and flags_at(r, i + hyphens) & flag.LETTER else 0


@inner
def is_address(r: KernelAddresses, lo: int, hi: int) -> bool:
    """Whether the characters are a web or mail address: [scheme://] [user@] labels.domain [:port] [/ ? # and more]."""
    host = lo
    for i in range(lo, hi - 2):
        if point_at(r, i) == 0x3A and point_at(r, i + 1) == 0x2F and point_at(r, i + 2) == 0x2F and i - lo > 1:
            host = i + 3
            break
        if not (flags_at(r, i) & (flag.ALPHA | flag.DIGIT) or point_at(r, i) in (0x2B, 0x2D, 0x2E, 0x5F)):
            break
    if _is_host(r, host, hi):
        return True
    for i in range(host + 1, hi):  # noqa: SIM110 - compiled
        if point_at(r, i) == 0x40 and _is_host(r, i + 1, hi):
            return True
    return False


@inner
def _is_host(r: KernelAddresses, lo: int, hi: int) -> bool:
    """Whether labels with dots, the last two or more lower-case letters, lead to the end, a port or a path."""
    label, labels, i, lower = lo, 0, lo, True
    while i < hi:
        point = point_at(r, i)
        flags = four_bytes_at(r.flags + 4 * point)
        if point == 0x2E:
            if i == label or point_at(r, i - 1) in (0x2D, 0x5F) or point_at(r, label) in (0x2D, 0x5F):
                return False
            labels, label, lower = labels + 1, i + 1, True
        elif 0xA1 <= point <= 0xFFFF or point in (0x2D, 0x5F) or (point < 0x80 and flags & (flag.ALPHA | flag.DIGIT)):
            lower = lower and flags & flag.LOWER_CASE != 0
        else:
            break
        i += 1
    if labels == 0 or not lower or i - label < 2:
        return False
    if i < hi and point_at(r, i) == 0x3A:
        port = i + 1
        while port < hi and flags_at(r, port) & flag.DIGIT:
            port += 1
        if not 2 <= port - i - 1 <= 5:  # digits of a port in spaCy's pattern, as the range of letters above
            return False
        i = port
    return i == hi or point_at(r, i) in (0x2F, 0x3F, 0x23)
