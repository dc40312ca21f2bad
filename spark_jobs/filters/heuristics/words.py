"""Find the words of texts as spaCy's English tokenizer does, in compiled code.

A *run* is what stands between white space. From a run prefixes and suffixes are cut off, one at each end in turn, until
none is left or the rest is in a table of rules (`contractions`); a web address stays whole; else the rest is cut at
infixes. Last, neighbours that make an emoticon or an abbreviation become one word again:

    (see:don't)   ( see:don't )   ( see : don't )   the rule for `don't` is asked of whole rests only
    "I can't."    " I can't . "   " I ca n't . "

A run that loses nothing is a word, and most are: one flag of a character (`SPECIAL`) tells which may be more.

Scripts without spaces between words are cut where a hash of the two characters at the seam says so, once in 5/3 (Han,
kana), 4 (Thai, Lao) or 5 (Khmer, Burmese) letters on average. These words are no words of the language, but there are
as many of them, and a repeated phrase is cut alike wherever it stands, so that n-grams see it.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Final, NamedTuple

import numpy as np
from numba import njit

from headrace.kernels.memory import byte_at, eight_bytes_at, four_bytes_at, store
from spark_jobs.filters.heuristics import character_flags as flag
from spark_jobs.filters.heuristics.contractions import LONGEST, UNIT_SEED, hash_points, hash_step, look_up
from spark_jobs.lexing.machine import U64

RUN_POINTS: Final = 1024
"""A longer run is cut into parts of so many characters, so that a text without spaces takes no more memory."""
ENDS_SENTENCE, IS_PUNCTUATION, AFTER_SPACES = 1, 2, 4
"""What is kept of a word beside its hash, place and length."""
_Counts = namedtuple(
    "_Counts",
    "words content_words content_characters spaceless_words alphabetic_words stop_words pieces bullet_pieces "
    "ellipsis_pieces filled_pieces list_pieces table_pieces log_pieces trace_pieces kept_pieces sentences "
    "javascript policy braces lorem lf lines filled_lines terminal_lines short_lines hashes ellipses letters "
    "capitals link_characters placeholders mojibake xml_head characters measured_characters line_elements "
    "duplicate_lines duplicate_line_characters filled_duplicate_characters paragraphs duplicate_paragraphs "
    "duplicate_paragraph_characters sample compressed",
)
AT: Final = _Counts(*range(len(_Counts._fields)))
"""Where each count stands in the row of a text; those of words come first."""
WORD_COUNTS: Final = 6
_EMOTICON_POINTS: Final = 6
_SEAM: Final = U64(0xD6E8FEB86659FD93)


class Reader(NamedTuple):
    """What the kernels read and write, as addresses (`headrace.kernels.memory` says why): few enough for registers.

    Attributes:
        points: uint32 code points of all texts of a chunk.
        flags: `character_flags`.
        rules: `rule_table`; shapes: `rule_shapes`.
        memory: int64 addresses, in the order of the constants below.
    """

    points: int
    flags: int
    rules: int
    shapes: int
    memory: int


HASHES, STARTS, LENGTHS, KINDS, ROOM, BOUNDS, TOTALS, FOLDS, MOVES, OUTPUTS, FIRST_OUTPUT = range(11)
"""The words of a text (uint64, int32, int32, uint8; how many fit); (3 * RUN_POINTS,) int32 for the bounds of the words
of a run and the ends of its suffixes; int64 counts of words of the text; the parts of `phrases.automaton`."""


@njit
def held(r: Reader, place: int) -> np.int64:
    """The address or number at a place of the memory."""
    return np.int64(eight_bytes_at(r.memory + 8 * place))


@njit
def point_at(r: Reader, i: int) -> int:
    """Code point at i."""
    point: int = four_bytes_at(r.points + 4 * i)
    return point


@njit
def flags_at(r: Reader, i: int) -> int:
    """Flags of the code point at i."""
    flags: int = four_bytes_at(r.flags + 4 * four_bytes_at(r.points + 4 * i))
    return flags


@njit
def add(address: int, place: int, number: int) -> None:
    """Add to an int64 at a place."""
    store(address + 8 * place, np.int64(eight_bytes_at(address + 8 * place)) + np.int64(number))


@njit
def find_words(r: Reader, start: int, end: int) -> int:
    """Write the words of a text and its totals; their number, of which the first `room` are kept."""
    n, i, after_spaces = 0, start, 0
    while i < end:
        h, seen, first, last = U64(0), 0, i, 0
        stop = min(end, i + RUN_POINTS)
        while i < stop:
            point = point_at(r, i)
            flags = four_bytes_at(r.flags + 4 * point)
            if flags & flag.SPACE:
                break
            h = hash_step(h, point)
            seen |= flags
            last = flags
            i += 1
        if i > first:
            if seen & (flag.SPECIAL | flag.SPACELESS) or (seen & flag.DIGIT and not last & flag.DIGIT):
                n = _split_run(r, n, first, i, after_spaces)
            else:
                known = look_up(r.rules, h) if i - first <= LONGEST else 0
                if known & 0xFF > 1:
                    n = _write_rule(r, n, first, i, known, after_spaces)
                else:
                    n = _write(r, n, first, i, h, seen, after_spaces, known)
        after_spaces = 0
        gap = i
        while i < end and flags_at(r, i) & flag.SPACE:
            i += 1
        if i - gap > 1 or (i > gap and point_at(r, gap) != 32):
            after_spaces = AFTER_SPACES
    store(held(r, TOTALS), np.int64(n))
    return n


@njit
def _write(r: Reader, n: int, start: int, stop: int, h: np.uint64, seen: int, kind: int, known: int) -> int:
    """Write one word; the new number of words."""
    totals = held(r, TOTALS)
    if seen & flag.CONTENT:
        add(totals, AT.content_words, 1)
        add(totals, AT.content_characters, stop - start)
    if seen & flag.ALPHA:
        add(totals, AT.alphabetic_words, 1)
    if known >> 24:
        place = totals + 8 * AT.stop_words
        store(place, np.int64(eight_bytes_at(place)) | np.int64(1) << (known >> 24))
    if n < held(r, ROOM):
        store(held(r, HASHES) + 8 * n, h)
        store(held(r, STARTS) + 4 * n, np.int32(start))
        store(held(r, LENGTHS) + 4 * n, np.int32(stop - start))
        store(held(r, KINDS) + n, np.uint8(kind))
    return n + 1


@njit
def _write_part(r: Reader, n: int, start: int, stop: int, kind: int) -> int:
    """Write the word from start to stop, cut up where its script has no spaces."""
    h, seen, common, before, first = U64(0), 0, flag.PUNCTUATION, 0, start
    for i in range(start, stop):
        point = point_at(r, i)
        flags = four_bytes_at(r.flags + 4 * point)
        if (flags | before) & flag.SPACELESS and i > first and _is_seam(r, i, before, flags):
            add(held(r, TOTALS), AT.spaceless_words, 1 if before & flag.SPACELESS else 0)
            n = _write(r, n, first, i, h, seen, kind, 0)
            h, seen, kind, first = U64(0), 0, 0, i
        h = hash_step(h, point)
        seen |= flags
        common &= flags
        before = flags
    add(held(r, TOTALS), AT.spaceless_words, 1 if before & flag.SPACELESS else 0)
    if common:
        kind |= IS_PUNCTUATION
    if seen & flag.SENTENCE_END and stop - first == 1:
        kind |= ENDS_SENTENCE
    known = look_up(r.rules, h) if stop - first <= 4 else 0
    n = _write(r, n, first, stop, h, seen, kind, known)
    return n


@njit
def _is_seam(r: Reader, i: int, before: int, flags: int) -> bool:
    """Whether a word of a script without spaces ends, or begins, before the character at i."""
    script = flags & flag.SPACELESS
    if script != before & flag.SPACELESS:
        return True
    mixed = (U64(point_at(r, i - 1)) << U64(32) | U64(point_at(r, i))) * _SEAM
    share = np.int64((mixed ^ mixed >> U64(32)) * _SEAM >> U64(40))  # 24 bits
    letters = script >> flag.SPACELESS_SHIFT
    return bool(share * 60 < (36 if letters == 1 else 15 if letters == 2 else 12) << 24)


@njit
def _write_rule(r: Reader, n: int, start: int, stop: int, known: int, kind: int) -> int:
    """Write the words of a rule."""
    second = start + (known >> 8 & 0xFF)
    n = _write_part(r, n, start, second, kind)
    if known & 0xFF == 3:
        third = second + (known >> 16 & 0xFF)
        n = _write_part(r, n, second, third, 0)
        second = third
    return _write_part(r, n, second, stop, 0) if second < stop else n


@njit
def _rule(r: Reader, start: int, stop: int) -> int:
    """What the table of rules says of the characters from start to stop."""
    length = stop - start
    if not 2 <= length <= LONGEST:
        return 0
    shape = four_bytes_at(r.shapes + 4 * (point_at(r, start) & 127))
    if not (shape & four_bytes_at(r.shapes + 512 + 4 * (point_at(r, stop - 1) & 127))) >> length & 1:
        return 0
    known = look_up(r.rules, hash_points(r.points, start, stop, U64(0)))
    return known if (known >> 24) == 0 else 0  # a stop word is no rule


@njit
def _split_run(r: Reader, n: int, start: int, stop: int, kind: int) -> int:
    """Write the words of a run; the new number of words."""
    lo, hi, count, suffixes, known = start, stop, 0, 0, 0
    ends = held(r, BOUNDS) + 8 * RUN_POINTS
    while lo < hi:
        known = _rule(r, lo, hi)
        if known:
            break
        prefix = _prefix_length(r, lo, hi)
        if prefix and _rule(r, lo + prefix, hi):
            count = _bound(r, count, lo, lo + prefix)
            lo += prefix
            known = _rule(r, lo, hi)
            break
        suffix = _suffix_length(r, lo + prefix, hi)
        if prefix + suffix == 0:
            break
        if suffix:
            store(ends + 4 * suffixes, np.int32(hi))
            suffixes += 1
            hi -= suffix
            if prefix:
                known = _rule(r, lo, hi)
                if known:
                    break
        if prefix:
            count = _bound(r, count, lo, lo + prefix)
            lo += prefix
    rest = -1
    if lo < hi:
        rest = count
        count = _bound(r, count, lo, hi) if known else _cut_infixes(r, count, lo, hi)
    while suffixes:
        suffixes -= 1
        end = four_bytes_at(ends + 4 * suffixes)
        count = _bound(r, count, hi, end)
        hi = end
    n = _write_bounds(r, n, count, rest, known, kind)
    return n


@njit
def _bound(r: Reader, count: int, start: int, stop: int) -> int:
    """Note a word of the run."""
    store(held(r, BOUNDS) + 8 * count, np.int32(start))
    store(held(r, BOUNDS) + 8 * count + 4, np.int32(stop))
    return count + 1


@njit
def _write_bounds(r: Reader, n: int, count: int, rest: int, known: int, kind: int) -> int:
    """Write the words of a run, those that make an emoticon or an abbreviation as one."""
    k = 0
    while k < count:
        start, stop = four_bytes_at(held(r, BOUNDS) + 8 * k), four_bytes_at(held(r, BOUNDS) + 8 * k + 4)
        if k == rest and known & 0xFF > 1:
            n = _write_rule(r, n, start, stop, known, kind)
        else:
            last = k
            for other in range(k + 1, min(count, k + 5)):
                end = four_bytes_at(held(r, BOUNDS) + 8 * other + 4)
                if end - start > _EMOTICON_POINTS:
                    break
                if _rule(r, start, end) & 0xFF == 1:
                    last, stop = other, end
            n = _write_part(r, n, start, stop, kind)
            k = last
        kind = 0
        k += 1
    return n


@njit
def _dots(r: Reader, start: int, stop: int) -> int:
    """Dots from start on."""
    i = start
    while i < stop and point_at(r, i) == 0x2E:
        i += 1
    return i - start


@njit
def _prefix_length(r: Reader, lo: int, hi: int) -> int:
    """Characters of the prefix at lo."""
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


@njit
def _suffix_length(r: Reader, lo: int, hi: int) -> int:
    """Characters of the suffix before hi."""
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
        for i in range(hi - 2, max(lo, hi - 5) - 1, -1):
            if flags_at(r, i) & flag.DIGIT:
                known = look_up(r.rules, hash_points(r.points, i + 1, hi, UNIT_SEED))
                return hi - i - 1 if known else 0
    return 0


@njit
def _infix_length(r: Reader, i: int, hi: int) -> int:  # noqa: PLR0911 - one for each kind of infix
    """Characters of the infix at i, which is behind lo."""
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
    fits = hyphens <= (3 if point == 0x2D else 2) and i + hyphens < hi
    return hyphens if fits and flags_at(r, i + hyphens) & flag.LETTER else 0


@njit
def _cut_infixes(r: Reader, count: int, lo: int, hi: int) -> int:
    """Note the words between infixes, and the infixes."""
    first, i, asked = lo, lo + 1, False
    while i < hi:
        length = _infix_length(r, i, hi)
        if length == 0:
            i += 1
            continue
        if not asked:
            asked = True
            if _is_address(r, lo, hi):
                break
        if i > first:
            count = _bound(r, count, first, i)
        count = _bound(r, count, i, i + length)
        i += length
        first = i
    return _bound(r, count, first, hi) if first < hi else count


@njit
def _is_address(r: Reader, lo: int, hi: int) -> bool:
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


@njit
def _is_host(r: Reader, lo: int, hi: int) -> bool:
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
        if not 2 <= port - i - 1 <= 5:
            return False
        i = port
    return i == hi or point_at(r, i) in (0x2F, 0x3F, 0x23)


@njit
def count_sentences(r: Reader, first: int, stop: int) -> int:
    """Sentences among the words from first to stop: one begins after an end that no punctuation follows."""
    sentences, ended = 1, False
    for k in range(first, stop):
        kind = byte_at(held(r, KINDS) + k)
        if ended and ((kind & AFTER_SPACES and k > first) or not kind & (ENDS_SENTENCE | IS_PUNCTUATION)):
            sentences += 1
            ended = False
        if kind & ENDS_SENTENCE:
            ended = True
    return sentences
