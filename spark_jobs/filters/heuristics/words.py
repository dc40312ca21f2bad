"""Find the words of texts as spaCy's English tokenizer does, in compiled code.

A *run* is a sequence of characters without white space. Prefixes and suffixes (`affixes`) are cut off a run, one at
each end in turn, until none is left or the rest is in a table of rules (`contractions`). If the rest is in no table and
is no web address, it is cut at infixes. Last, neighbours making an emoticon or an abbreviation are joined again:

    (see:don't)   ( see:don't )   ( see : don't )   `don't` is not cut to `do n't`: rules hold for a rest as a whole
    "I can't."    " I can't . "   " I ca n't . "

Most runs are one word and are not looked at again: only one with a character flagged `SPECIAL` may be more.

Scripts without spaces between words are cut between two characters with a hash below a threshold: once in 5/3 (Han,
kana), 4 (Thai, Lao) or 5 (Khmer, Burmese) letters on average. The parts are not the words of the language, but about as
many, and a repeated phrase is cut in the same way wherever it stands, so that n-grams find the repetition.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from headrace.kernels.compiling import inner
from headrace.kernels.memory import byte_at, eight_bytes_at, four_bytes_at, store
from spark_jobs.filters.heuristics import character_flags as flag
from spark_jobs.filters.heuristics.affixes import infix_length, is_address, prefix_length, suffix_length
from spark_jobs.filters.heuristics.contractions import LONGEST, hash_points, hash_step, look_up
from spark_jobs.filters.heuristics.text_memory import (
    AFTER_SPACES,
    AT,
    BOUNDS,
    ENDS_SENTENCE,
    HASHES,
    IS_PUNCTUATION,
    KINDS,
    LENGTHS,
    ROOM,
    RUN_POINTS,
    STARTS,
    TOTALS,
    KernelAddresses,
    add,
    flags_at,
    held,
    point_at,
)
from spark_jobs.lexing.machine import U64

_EMOTICON_POINTS: Final = 6
_SEAM: Final = U64(0xD6E8FEB86659FD93)


@inner
def find_words(r: KernelAddresses, start: int, end: int) -> int:
    """Write the words of a text, as many as fit, and its totals; returns the number of all words."""
    n, i, after_spaces = 0, start, 0
    while i < end:
        # One visit of each character both hashes the run and joins the flags, so that most runs need no second one.
        h, word_flags, first, last = U64(0), 0, i, 0
        stop = min(end, i + RUN_POINTS)
        while i < stop:
            point = point_at(r, i)
            flags = four_bytes_at(r.flags + 4 * point)
            if flags & flag.SPACE:
                break
            h = hash_step(h, point)
            word_flags |= flags
            last = flags
            i += 1
        if i > first:
            if word_flags & (flag.SPECIAL | flag.SPACELESS) or (word_flags & flag.DIGIT and not last & flag.DIGIT):
                n = _split_run(r, n, first, i, after_spaces)
            else:
                rule = look_up(r.rules, h) if i - first <= LONGEST else 0
                if rule & 0xFF > 1:
                    n = _write_rule(r, n, first, i, rule, after_spaces)
                else:
                    n = _write(r, n, first, i, h, word_flags, after_spaces, rule)
        after_spaces = 0
        gap = i
        while i < end and flags_at(r, i) & flag.SPACE:
            i += 1
        if i - gap > 1 or (i > gap and point_at(r, gap) != 32):
            after_spaces = AFTER_SPACES
    store(held(r, TOTALS), np.int64(n))
    return n


@inner
def _write(
    r: KernelAddresses, n: int, start: int, stop: int, h: np.uint64, word_flags: int, kind: int, rule: int
) -> int:
    """Write one word; returns the new number of words."""
    totals = held(r, TOTALS)
    if word_flags & flag.CONTENT:
        add(totals, AT.content_words, 1)
        add(totals, AT.content_characters, stop - start)
    if word_flags & flag.ALPHA:
        add(totals, AT.alphabetic_words, 1)
    if rule >> 24:
        place = totals + 8 * AT.stop_words
        store(place, np.int64(eight_bytes_at(place)) | np.int64(1) << (rule >> 24))
    if n < held(r, ROOM):
        store(held(r, HASHES) + 8 * n, h)
        store(held(r, STARTS) + 4 * n, np.int32(start))
        store(held(r, LENGTHS) + 4 * n, np.int32(stop - start))
        store(held(r, KINDS) + n, np.uint8(kind))
    return n + 1


@inner
def _write_part(r: KernelAddresses, n: int, start: int, stop: int, kind: int) -> int:
    """Write the word from start to stop, or several where its script has no spaces; returns the new number of words."""
    h, part_flags, common, before, first = U64(0), 0, flag.PUNCTUATION, 0, start
    for i in range(start, stop):
        point = point_at(r, i)
        flags = four_bytes_at(r.flags + 4 * point)
        if (flags | before) & flag.SPACELESS and i > first and _is_seam(r, i, before, flags):
            add(held(r, TOTALS), AT.spaceless_words, 1 if before & flag.SPACELESS else 0)
            n = _write(r, n, first, i, h, part_flags, kind, 0)
            h, part_flags, kind, first = U64(0), 0, 0, i
        h = hash_step(h, point)
        part_flags |= flags
        common &= flags
        before = flags
    add(held(r, TOTALS), AT.spaceless_words, 1 if before & flag.SPACELESS else 0)
    if common:
        kind |= IS_PUNCTUATION
    if part_flags & flag.SENTENCE_END and stop - first == 1:
        kind |= ENDS_SENTENCE
    rule = look_up(r.rules, h) if stop - first <= 4 else 0
    n = _write(r, n, first, stop, h, part_flags, kind, rule)
    return n


@inner
def _is_seam(r: KernelAddresses, i: int, before: int, flags: int) -> bool:
    """Whether a word of a script without spaces ends, or begins, before the character at i."""
    script = flags & flag.SPACELESS
    if script != before & flag.SPACELESS:
        return True
    mixed = (U64(point_at(r, i - 1)) << U64(32) | U64(point_at(r, i))) * _SEAM
    share = np.int64((mixed ^ mixed >> U64(32)) * _SEAM >> U64(40))  # 24 bits
    letters = script >> flag.SPACELESS_SHIFT
    # In sixtieths: 3/5, 1/4 and 1/5 of the boundaries, the inverses of 5/3, 4 and 5 letters a word.
    return bool(share * 60 < (36 if letters == 1 else 15 if letters == 2 else 12) << 24)


@inner
def _write_rule(r: KernelAddresses, n: int, start: int, stop: int, rule: int, kind: int) -> int:
    """Write the two or three words made of a run by a rule, such as `do` and `n't`; returns their new number."""
    second = start + (rule >> 8 & 0xFF)
    n = _write_part(r, n, start, second, kind)
    if rule & 0xFF == 3:
        third = second + (rule >> 16 & 0xFF)
        n = _write_part(r, n, second, third, 0)
        second = third
    return _write_part(r, n, second, stop, 0) if second < stop else n


@inner
def _rule(r: KernelAddresses, start: int, stop: int) -> int:
    """The entry of the table of rules for the characters from start to stop; 0 if there is none."""
    length = stop - start
    if not 2 <= length <= LONGEST:
        return 0
    # Only where rules of this length have both the first and the last character is the hash worth computing.
    shape = four_bytes_at(r.shapes + 4 * (point_at(r, start) & 127))
    if not (shape & four_bytes_at(r.shapes + 512 + 4 * (point_at(r, stop - 1) & 127))) >> length & 1:
        return 0
    rule = look_up(r.rules, hash_points(r.points, start, stop, U64(0)))
    return rule if (rule >> 24) == 0 else 0  # a stop word is no rule


@inner
def _split_run(r: KernelAddresses, n: int, start: int, stop: int, kind: int) -> int:
    """Cut a run and write its words; returns the new number of words."""
    lo, hi, count, suffixes, rule = start, stop, 0, 0, 0
    ends = held(r, BOUNDS) + 8 * RUN_POINTS
    while lo < hi:
        rule = _rule(r, lo, hi)
        if rule:
            break
        prefix = prefix_length(r, lo, hi)
        if prefix and _rule(r, lo + prefix, hi):
            count = _bound(r, count, lo, lo + prefix)
            lo += prefix
            rule = _rule(r, lo, hi)
            break
        suffix = suffix_length(r, lo + prefix, hi)
        if prefix + suffix == 0:
            break
        if suffix:
            store(ends + 4 * suffixes, np.int32(hi))
            suffixes += 1
            hi -= suffix
            if prefix:
                rule = _rule(r, lo, hi)
                if rule:
                    break
        if prefix:
            count = _bound(r, count, lo, lo + prefix)
            lo += prefix
    rest = -1
    if lo < hi:
        rest = count
        count = _bound(r, count, lo, hi) if rule else _cut_infixes(r, count, lo, hi)
    while suffixes:
        suffixes -= 1
        end = four_bytes_at(ends + 4 * suffixes)
        count = _bound(r, count, hi, end)
        hi = end
    n = _write_bounds(r, n, count, rest, rule, kind)
    return n


@inner
def _bound(r: KernelAddresses, count: int, start: int, stop: int) -> int:
    """Add a word of a run to `BOUNDS`, written once all words are known; returns the new number of words."""
    store(held(r, BOUNDS) + 8 * count, np.int32(start))
    store(held(r, BOUNDS) + 8 * count + 4, np.int32(stop))
    return count + 1


@inner
def _write_bounds(r: KernelAddresses, n: int, count: int, rest: int, rule: int, kind: int) -> int:
    """Write the words of a run, and neighbours making an emoticon or an abbreviation as one word.

    Args:
        r: see there.
        n: words of the text so far.
        count: words of the run.
        rest: index of the word left between prefixes and suffixes; -1 if nothing is.
        rule: entry of the table of rules for this word; 0 if there is none.
        kind: flags of the first word.
    """
    k = 0
    while k < count:
        start, stop = four_bytes_at(held(r, BOUNDS) + 8 * k), four_bytes_at(held(r, BOUNDS) + 8 * k + 4)
        if k == rest and rule & 0xFF > 1:
            n = _write_rule(r, n, start, stop, rule, kind)
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


@inner
def _cut_infixes(r: KernelAddresses, count: int, lo: int, hi: int) -> int:
    """Add the words between infixes, and the infixes, to `BOUNDS`; returns the new number of words."""
    first, i, is_looked_up = lo, lo + 1, False
    while i < hi:
        length = infix_length(r, i, hi)
        if length == 0:
            i += 1
            continue
        if not is_looked_up:
            is_looked_up = True
            if is_address(r, lo, hi):
                break
        if i > first:
            count = _bound(r, count, first, i)
        count = _bound(r, count, i, i + length)
        i += length
        first = i
    return _bound(r, count, first, hi) if first < hi else count


@inner
def count_sentences(r: KernelAddresses, first: int, stop: int) -> int:
    """The number of sentences in the words from first to stop.

    After the last word of a sentence a new one begins at the first word neither an end nor punctuation, so that
    `"Really?!" she said` is cut before `she`; at any word after a line break or several spaces.
    """
    sentences, ended = 1, False
    for k in range(first, stop):
        kind = byte_at(held(r, KINDS) + k)
        if ended and ((kind & AFTER_SPACES and k > first) or not kind & (ENDS_SENTENCE | IS_PUNCTUATION)):
            sentences += 1
            ended = False
        if kind & ENDS_SENTENCE:
            ended = True
    return sentences
