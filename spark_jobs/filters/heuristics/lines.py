"""Measure the lines of texts, in compiled code: what C4, FineWeb and Gopher ask of lines, lists, tables, logs, traces.

A text is read once, from one break to the next; the automaton of `phrases` goes along. Two notions of a line meet:
Gopher's bullets and C4 break at whatever `str.splitlines` breaks at (*pieces* here), FineWeb and Gopher's repetition at
LF alone (*lines*, which one or more pieces make).

The kernels write counts of a text into a row, in the order of the constants below, and the hash, length and place of
each line that is not empty into arrays, the source of duplicates and paragraphs.
"""

from __future__ import annotations

from typing import Final

from headrace.kernels.compiling import inner
from headrace.kernels.memory import byte_at, four_bytes_at
from headrace.kernels.mixing import plain_hash
from spark_jobs.arrays import Int32Array, Int64Array, UInt64Array
from spark_jobs.filters.heuristics import character_flags as flag
from spark_jobs.filters.heuristics import phrases
from spark_jobs.filters.heuristics.contractions import hash_points, hash_step
from spark_jobs.filters.heuristics.text_memory import (
    AT,
    FIRST_OUTPUT,
    FOLDS,
    MOVES,
    OUTPUTS,
    ROOM,
    STARTS,
    KernelAddresses,
    flags_at,
    held,
    point_at,
)
from spark_jobs.filters.heuristics.words import count_sentences
from spark_jobs.lexing.machine import U64

_LONG_WORD: Final = 1000  # C4's bound
_SHORT_LINE: Final = 30  # FineWeb's
_XML_HEAD: Final = 100
_CLOCK_REACH: Final = 32  # a line of a log opens with level, date and time, in any order


@inner
def measure_lines(  # noqa: PLR0912 - one pass over the characters
    r: KernelAddresses,
    start: int,
    end: int,
    word_count: int,
    row: Int64Array,
    hashes: UInt64Array,
    lengths: Int32Array,
    starts: Int32Array,
) -> int:
    """Count what a text's lines have; the number of kept nonempty lines.

    Args:
        r: the reader; its words are those of this text.
        start: position of the text.
        end: position behind it.
        word_count: its words, as `find_words` says.
        row: zeros, the counts, at `AT`.
        hashes: (L,) hash of each nonempty line.
        lengths: (L,) its characters, negative where all are white space.
        starts: (L,) where it begins.
    """
    words, word_starts = min(word_count, held(r, ROOM)), held(r, STARTS)
    folds, moves, outputs = held(r, FOLDS), held(r, MOVES), held(r, OUTPUTS)
    first_output = held(r, FIRST_OUTPUT)
    line, line_hash, line_filled, kept, word, i = start, U64(0), False, 0, 0, start
    letters = capitals = links = 0
    dots_end = start
    while i < end:
        piece, h, state, phrases_met, link_end = i, U64(0), 0, 0, start
        point = 0
        while i < end:
            before = point
            point = point_at(r, i)
            flags = four_bytes_at(r.flags + 4 * point)
            if flags & flag.BREAK:
                break
            h = hash_step(h, point)
            letters += flags & flag.ALPHA
            capitals += (flags & flag.UPPER) >> 1
            i += 1
            if point >= 128:
                state = 0
                if point == 0x2026:
                    row[AT.ellipses] += 1
                elif _is_mojibake(before, point):
                    row[AT.mojibake] += 1
                continue
            state = four_bytes_at(moves + 4 * (64 * state + byte_at(folds + point)))
            if state >= first_output:
                output = four_bytes_at(outputs + 4 * state)
                phrases_met |= output
                if output & phrases.HASH:
                    row[AT.hashes] += 1
                elif output & phrases.DOTS:
                    if i - 3 >= dots_end:  # six dots are two, as `str.count` has it
                        row[AT.ellipses] += 1
                        dots_end = i
                elif output & phrases.LINK and i > link_end:
                    first, link_end = link_span(r, piece, i, end)
                    links += link_end - first
                if output & phrases.PLACEHOLDER:
                    row[AT.placeholders] += 1
                if output & phrases.XML and i - start <= _XML_HEAD:
                    row[AT.xml_head] = 1
        while word < words and four_bytes_at(word_starts + 4 * word) < piece:
            word += 1
        filled = _measure_piece(r, piece, i, word, words, phrases_met, row)
        line_filled = line_filled or filled
        # form feed stands for whatever break parts pieces of a line
        line_hash = h if line == piece else hash_step(line_hash, 0x0C) ^ h
        if i < end and point_at(r, i) == 0x0D and i + 1 < end and point_at(r, i + 1) == 0x0A:
            line_hash = hash_step(line_hash, 0x0D)
            i += 1  # CR LF is one break, and the CR belongs to the line
        if i >= end or point_at(r, i) == 0x0A:
            row[AT.lf] += i < end
            if i > line:
                _measure_line(r, line, i, line_filled, row)
                if kept < len(hashes):
                    hashes[kept] = line_hash
                    lengths[kept] = i - line if line_filled else line - i
                    starts[kept] = line
                    kept += 1
            line, line_filled = i + 1, False
        i += 1
    row[AT.letters], row[AT.capitals], row[AT.link_characters] = letters, capitals, links
    return kept


@inner
def _is_mojibake(before: int, point: int) -> bool:
    """Whether two characters are UTF-8 read as Latin-1 or Windows-1252, or the sign of lost characters."""
    if point == 0xFFFD:
        return True
    if 0x80 <= point <= 0xBF:
        return before in (0xC2, 0xC3)
    # 80, 82, 86 in Windows-1252: quotes, dashes, arrows begin so
    return before == 0xE2 and point in (0x20AC, 0x201A, 0x2020)


@inner
def link_span(r: KernelAddresses, piece: int, i: int, end: int) -> tuple[int, int]:
    """First and last position of the link with a scheme or `www.` ending before i."""
    first = i - 4  # behind `www.`
    if point_at(r, i - 1) == 0x2F:
        first = i - 3  # behind `://`, with the letters of the scheme before
        while first > piece and flags_at(r, first - 1) & flag.ALPHA:
            first -= 1
    stop = i
    while stop < end:
        point = point_at(r, stop)
        # quotes, angle and closing brackets end a link in HTML, Markdown and prose
        if four_bytes_at(r.flags + 4 * point) & flag.SPACE or point in (0x22, 0x27, 0x3C, 0x3E, 0x60, 0x29, 0x5D, 0x7D):
            break
        stop += 1
    return first, stop


@inner
def _measure_line(r: KernelAddresses, start: int, stop: int, filled: bool, row: Int64Array) -> None:
    """Count a line that is not empty, as FineWeb does."""
    row[AT.lines] += 1
    if filled:
        row[AT.filled_lines] += 1
        row[AT.terminal_lines] += flags_at(r, stop - 1) & flag.TERMINAL != 0
        row[AT.short_lines] += stop - start <= _SHORT_LINE


@inner
def _measure_piece(
    r: KernelAddresses, start: int, stop: int, word: int, words: int, phrases_met: int, row: Int64Array
) -> bool:
    """Count a piece; whether it has content."""
    row[AT.pieces] += 1
    first, last = start, stop
    while first < last and flags_at(r, first) & flag.SPACE:
        first += 1
    while last > first and flags_at(r, last - 1) & flag.SPACE:
        last -= 1
    if first == last:
        return False
    row[AT.filled_pieces] += 1
    opening = point_at(r, first)
    row[AT.bullet_pieces] += opening in (0x2D, 0x2022)  # Gopher's two
    dots = last - first >= 3 and _is_dot(r, last - 1) and _is_dot(r, last - 2) and _is_dot(r, last - 3)
    row[AT.ellipsis_pieces] += dots or point_at(r, last - 1) == 0x2026
    listed = is_list(r, first, last)
    row[AT.list_pieces] += listed
    row[AT.table_pieces] += not listed and is_table(r, first, last)
    row[AT.log_pieces] += phrases_met & phrases.LEVEL != 0 or _has_clock(r, first, last)
    row[AT.trace_pieces] += phrases_met & phrases.TRACE != 0 or _is_call(r, first, last)
    if not dots and _ends_sentence(r, first, last) and _has_words(r, first, last):
        _judge_as_c4(r, last, word, words, phrases_met, row)
    return True


@inner
def _judge_as_c4(r: KernelAddresses, stop: int, word: int, words: int, phrases_met: int, row: Int64Array) -> None:
    """Count a piece ending like a sentence, with enough words, in the order of C4's rules."""
    if phrases_met & phrases.LOREM:
        row[AT.lorem] += 1
    elif phrases_met & phrases.JAVASCRIPT:
        row[AT.javascript] += 1
    elif phrases_met & phrases.BRACE:
        row[AT.braces] += 1
    elif phrases_met & phrases.POLICY:
        row[AT.policy] += 1
    else:
        behind = word
        while behind < words and four_bytes_at(held(r, STARTS) + 4 * behind) < stop:
            behind += 1
        row[AT.kept_pieces] += 1
        row[AT.sentences] += count_sentences(r, word, behind)


@inner
def _is_dot(r: KernelAddresses, i: int) -> bool:
    """Whether a dot is at i."""
    return bool(point_at(r, i) == 0x2E)


@inner
def _ends_sentence(r: KernelAddresses, first: int, last: int) -> bool:
    """Whether a piece ends in . ? ! " or ', once citations such as [12], [edit] are left out."""
    while last > first and point_at(r, last - 1) == 0x5D:
        opening = last - 2
        # as long as [citation needed]
        while opening >= first and last - opening < 18 and point_at(r, opening) != 0x5B:
            opening -= 1
        if opening < first or point_at(r, opening) != 0x5B or not _is_citation(r, opening + 1, last - 1):
            return False
        last = opening
    dots = last - first >= 3 and _is_dot(r, last - 1) and _is_dot(r, last - 2) and _is_dot(r, last - 3)
    return last > first and not dots and point_at(r, last - 1) in (0x2E, 0x3F, 0x21, 0x22, 0x27)


@inner
def _is_citation(r: KernelAddresses, first: int, last: int) -> bool:
    """Whether what stands in brackets is a number, nothing, `edit` or `citation needed`."""
    digits = True
    for i in range(first, last):
        digits = digits and flags_at(r, i) & flag.DIGIT != 0
    h = hash_points(r.points, first, last, U64(0))
    return digits or h == _EDIT or h == _CITATION_NEEDED  # noqa: PLR1714 - compiled to two compares


@inner
def _has_words(r: KernelAddresses, first: int, last: int) -> bool:
    """Whether a piece has three words between white space, and none of more than 1,000 characters."""
    words, run = 0, 0
    for i in range(first, last):
        if flags_at(r, i) & flag.SPACE:
            run = 0
        else:
            words += run == 0
            run += 1
            if run > _LONG_WORD:
                return False
        if words > 2 and last - first <= _LONG_WORD:
            return True
    return words > 2


@inner
def is_list(r: KernelAddresses, first: int, last: int) -> bool:
    """Whether a piece opens with a bullet, or with up to three digits or a letter and `.` or `)`, and white space."""
    point = point_at(r, first)
    if point in (0x2D, 0x2A, 0x2B, 0x2022, 0x2023, 0x25E6, 0xB7, 0x2013, 0x25AA, 0x25CF):
        return first + 1 < last and flags_at(r, first + 1) & flag.SPACE != 0
    i = first + (point == 0x28)
    if i >= last:
        return False
    if flags_at(r, i) & flag.ALPHA:
        i += 1
    else:
        while i < last and i - first < 4 and flags_at(r, i) & flag.DIGIT:
            i += 1
        if i == first + (point == 0x28):
            return False
    closed = i + 1 < last and point_at(r, i) in (0x2E, 0x29)
    return closed and flags_at(r, i + 1) & flag.SPACE != 0


@inner
def is_table(r: KernelAddresses, first: int, last: int) -> bool:
    """Whether a piece has three cells between |, tabs or three or more spaces, or is a rule of + - = and |."""
    gaps, bars, run, ruled = 0, 0, 0, last - first > 2
    for i in range(first, last):
        point = point_at(r, i)
        if point == 9:
            gaps += 1
        elif point == 32:
            run += 1
            gaps += run == 3
        else:
            run = 0
            bars += point == 0x7C
            ruled = ruled and point in (0x2B, 0x2D, 0x3D, 0x7C)
        if gaps > 1 or bars > 1:
            return True
    return ruled and gaps == 0 and (point_at(r, first) == 0x2B or point_at(r, first) == 0x7C)


@inner
def _has_clock(r: KernelAddresses, first: int, last: int) -> bool:
    """Whether a time of day (two digits, colon, twice, two digits) stands in the first characters of a piece."""
    for i in range(first + 2, min(last, first + _CLOCK_REACH) - 5):
        if point_at(r, i) == 0x3A and point_at(r, i + 3) == 0x3A:
            digits = flags_at(r, i - 2) & flags_at(r, i - 1) & flags_at(r, i + 1) & flags_at(r, i + 2)
            if digits & flags_at(r, i + 4) & flags_at(r, i + 5) & flag.DIGIT:
                return True
    return False


@inner
def _is_call(r: KernelAddresses, first: int, last: int) -> bool:
    """Whether a piece is a call of a Java or JavaScript trace: `at name (file:12)`."""
    if last - first < 8 or point_at(r, first) != 0x61 or point_at(r, first + 1) != 0x74 or point_at(r, first + 2) != 32:
        return False
    return bool(point_at(r, last - 1) == 0x29 and flags_at(r, last - 2) & flag.DIGIT)


_EDIT: Final = U64(plain_hash(map(ord, "edit")))
_CITATION_NEEDED: Final = U64(plain_hash(map(ord, "citation needed")))


@inner
def paragraphs(r: KernelAddresses, kept: int, hashes: UInt64Array, lengths: Int32Array, starts: Int32Array) -> int:
    """Join lines to paragraphs, in place; the number of paragraphs.

    A paragraph is what two or more LF in a row separate in the text without the white space around it.
    """
    first, last = 0, kept - 1
    while first < kept and lengths[first] < 0:
        first += 1
    while last > first and lengths[last] < 0:
        last -= 1
    count, behind = 0, -1
    for k in range(first, last + 1):
        begin, length, h = starts[k], abs(lengths[k]), hashes[k]
        stop = begin + length
        if k in (first, last):
            while k == first and flags_at(r, begin) & flag.SPACE:
                begin += 1
            while k == last and flags_at(r, stop - 1) & flag.SPACE:
                stop -= 1
            if stop - begin < length:
                h = hash_points(r.points, begin, stop, U64(0))
        if begin == behind + 1 and count:
            hashes[count - 1] = hash_step(hashes[count - 1], 0x0A) ^ h
            lengths[count - 1] += 1 + stop - begin
        else:
            hashes[count] = h
            lengths[count] = stop - begin
            count += 1
        behind = stop
    return count
