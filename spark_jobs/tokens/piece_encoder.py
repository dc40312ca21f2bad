"""The fast encoder for scripts without spaces: cut words into independent pieces, and merge byte pairs in each.

Han characters follow one another without a space, so a word of the pre-tokenizer is a whole clause: rarely seen before,
slow to merge, not worth caching. But every merge makes a token, so no merge crosses a boundary that no token spans.
Words are cut at such boundaries:

    word     电影院在哪里      a token spans 电影, 影院, 哪里; none spans 院在 or 在哪
    pieces   电影院 | 在 | 哪里

    joined      pairs of characters that are not cut apart: some token of the vocabulary holds them side by side, or
                could, if it begins or ends inside a character. Kept as bits by a hash; a collision costs only time.
    exact       the pieces on both sides of a boundary that no token spans are merged independently of each other, so
                the ids are those of the whole word
    cached      ids of words and pieces of up to 31 bytes, in a table of a fixed size: the newest of a slot stays

A piece that is not cached is merged by the pair of least rank, the leftmost first, as the reference does, except that
it starts from whole characters instead of bytes. The result is the same if every pair ranks behind the merges that make
its parts (this is checked) and no token joins bytes of the character with bytes of a neighbour.

Nothing here counts references to arrays (`_nrt=False`): counting takes half the time. The GIL is kept, because threads
that share an encoder share its tables.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from headrace.kernels.compiling import compiled
from headrace.kernels.mixing import GOLDEN
from headrace.kernels.utf8 import Integer, code_point, width
from spark_jobs.arrays import Int32Array, Int64Array, UInt8Array, UInt64Array
from spark_jobs.tokens.pre_tokenization import BYTE_NAMES, splitting_name
from spark_jobs.tokens.word_ends import MOST_NUMBERS, character_classes, word_end

Key = tuple[np.uint64, np.uint64, np.uint64, np.uint64]

LONGEST_PIECE: Final = 512  # merging takes time by the square of the length
MOST_IDS: Final = 1 << 20  # an id takes 20 bits of a pair, a rank the 24 that are left
_BLOCK: Final = 1 << 18
_KEY_BYTES: Final = 31  # an entry of the cache has 32 bytes for its key, of which one holds length and kind
_KEPT_IDS: Final = 7  # and 32 bytes for the number of ids and the ids, 4 bytes each
_KEPT: Final = 1 << 16  # entries of 64 bytes: 4 MiB
_PART: Final = 1 << 21  # marks the one byte that is known of a character, which is no code point then
_LEFT: Final = 1
_RIGHT: Final = 2
_NO_RANK: Final = 1 << 24  # above all ranks, which have 24 bits
_EMPTY: Final = np.uint64(0xFFFFFFFFFFFFFFFF)
_ZERO: Final = np.uint64(0)


class Tables(NamedTuple):
    """What the loops read, made from a tokenizer (V ids, M merges).

    Attributes:
        classes: (0x110000,) class of every code point.
        most_numbers: see `word_ends.MOST_NUMBERS`.
        joined: (B,) bits by a hash of two characters: set where a token may span the boundary between them.
        parts: (256,) whether a token may begin (1) behind a byte or end (2) with it, inside a character.
        whole: (0x110000,) id of a character alone; -1 where it is several, or must begin as bytes.
        byte_ids: (256,) id of each byte.
        pairs: (P,) left id, right id and rank of each merge, by a hash of the ids.
        merged: (M,) id that each rank makes.
        marks_words: whether a word that is a token becomes it without merges (`ignore_merges`).
        irregular: (N, 8) such words that merges would make something else, laid out as `kept`.
        longest: bytes of the longest piece that is encoded here.
        kept: (K, 8) the cache: bytes and ids of words and pieces, in slots by a hash.
        symbols: (longest,) ids of the piece that is merged.
        ranks: (longest,) rank of each of them with the next one.
    """

    classes: UInt8Array
    most_numbers: int
    joined: UInt8Array
    parts: UInt8Array
    whole: Int32Array
    byte_ids: Int32Array
    pairs: UInt64Array
    merged: Int32Array
    marks_words: bool
    irregular: UInt64Array
    longest: int
    kept: UInt64Array
    symbols: Int32Array
    ranks: Int32Array


class PieceEncoder:
    """Ids of whole documents, equal to the reference's where a certificate says so; its memory does not grow."""

    def __init__(self, file_text: str) -> None:
        """Read a tokenizer.

        Raises:
            ValueError: it has added tokens that are not special, or more ids than `MOST_IDS`.
        """
        self._tables = _read(json.loads(file_text))

    def encode(self, data: bytes) -> Int32Array | None:
        """Encode a document.

        Args:
            data: its text as valid UTF-8.

        Returns:
            (T,) ids; None where a stretch of more than `LONGEST_PIECE` bytes is one piece.
        """
        text, padded = _padded(np.frombuffer(data, np.uint8))
        found = []
        at = end_of_word = 0
        while at < len(text):
            ids = np.empty(min(len(text) - at, _BLOCK) + LONGEST_PIECE, np.int32)
            at, end_of_word, count = _encode(text, padded, at, end_of_word, self._tables, ids)
            if at < 0:
                return None
            found.append(ids[:count].copy() if len(text) > _BLOCK else ids[:count])
        return found[0] if len(found) == 1 else np.concatenate(found) if found else np.empty(0, np.int32)


def _read(declared: dict[str, Any]) -> Tables:
    """Tables of a parsed tokenizer.json."""
    model = declared["model"]
    vocabulary: dict[str, int] = model["vocab"]
    if not all(token.get("special") for token in declared.get("added_tokens") or []):
        raise ValueError("it has added tokens that are not special")
    if max(vocabulary.values()) >= MOST_IDS:
        raise ValueError(f"it has an id beyond {MOST_IDS - 1}")
    alphabet = np.zeros(0x110000, dtype=np.uint8)  # a name that stands for no bytes sets bits too, which is harmless
    alphabet[[ord(name) for name in BYTE_NAMES]] = np.arange(256)
    names = np.frombuffer("".join(vocabulary).encode("utf-32-le"), dtype=np.uint32)
    spelled, padded = _padded(alphabet[names])
    ends = np.cumsum([len(name) for name in vocabulary], dtype=np.int64)
    ids = np.array(list(vocabulary.values()), dtype=np.int32)
    named = [merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"]]
    ranks = {(left, right): rank for rank, (left, right) in enumerate(named)}
    merged = np.array([vocabulary[left + right] for left, right in named], dtype=np.int32)
    lefts, rights = (np.array([vocabulary[pair[side]] for pair in ranks], dtype=np.int64) for side in (0, 1))
    made = np.full(MOST_IDS, -1, dtype=np.int64)
    made[merged] = np.arange(len(merged))
    order = np.array(list(ranks.values()), dtype=np.int64)
    are_ordered = bool((order > np.maximum(made[lefts], made[rights])).all())
    ignores = bool(model.get("ignore_merges"))
    name = splitting_name(declared)
    assert name is not None, "the certificate refuses it first"
    tables = Tables(
        classes=character_classes(),
        most_numbers=MOST_NUMBERS[name],
        joined=np.zeros(_power_of_two(len(spelled) // 8), dtype=np.uint8),
        parts=np.zeros(256, dtype=np.uint8),
        whole=np.full(0x110000, -1, dtype=np.int32),
        byte_ids=np.array([vocabulary[name] for name in BYTE_NAMES], dtype=np.int32),
        pairs=np.full(_power_of_two(2 * len(ranks)), _EMPTY),
        merged=merged,
        marks_words=ignores,
        irregular=np.zeros((_power_of_two(2 * len(vocabulary)) if ignores else 1, 8), dtype=np.uint64),
        longest=LONGEST_PIECE,
        kept=np.full((_KEPT, 8), _ZERO),
        symbols=np.zeros(LONGEST_PIECE, dtype=np.int32),
        ranks=np.zeros(LONGEST_PIECE, dtype=np.int32),
    )
    _set_joined(spelled, ends, tables)
    _set_pairs(lefts, rights, order, tables)
    longest = _set_tokens(spelled, padded, ends, ids, are_ordered, ignores, tables)
    return tables._replace(longest=longest)


def _padded(data: UInt8Array) -> tuple[UInt8Array, UInt64Array]:
    """A copy of some bytes that can be read in words of 8, beyond its end too; and those words."""
    padded = np.zeros((len(data) >> 3) + 6, dtype=np.uint64)
    text = padded.view(np.uint8)[: len(data)]
    text[:] = data
    return text, padded


def _power_of_two(least: int) -> int:
    return 1 << max(6, (least - 1).bit_length())


@compiled(nogil=False, _nrt=False)
def _set_joined(spelled: UInt8Array, ends: Int64Array, tables: Tables) -> None:
    """Set the bits of the boundaries that tokens span. Bits that bytes outside UTF-8 set are never read."""
    start = 0
    for end in ends:
        for at in range(start + 1, end):
            if spelled[at] & 0xC0 == 0x80:
                continue
            lead = at - 1
            while lead > start and spelled[lead] & 0xC0 == 0x80:
                lead -= 1
            before = np.int64(_PART | spelled[at - 1])
            if spelled[lead] & 0xC0 != 0x80 and lead + width(spelled[lead]) == at:
                before = code_point(spelled, lead)
            else:
                tables.parts[spelled[at - 1]] |= _LEFT
            after = np.int64(_PART | spelled[at])
            if at + width(spelled[at]) <= end:
                after = code_point(spelled, at)
            else:
                tables.parts[spelled[at]] |= _RIGHT
            if before >= 0x80 or after >= 0x80:
                bit = _bit(before, after, tables.joined)
                tables.joined[bit >> 3] |= 1 << (bit & 7)
        start = end


@compiled(nogil=False, _nrt=False)
def _set_pairs(lefts: Int64Array, rights: Int64Array, ranks: Int64Array, tables: Tables) -> None:
    """Enter the merges into `pairs`."""
    for number in range(len(ranks)):
        pair = np.uint64(lefts[number]) << np.uint64(20) | np.uint64(rights[number])
        tables.pairs[_slot(pair, tables.pairs)] = pair << np.uint64(24) | np.uint64(ranks[number])


@compiled(nogil=False, _nrt=False)
def _set_tokens(
    spelled: UInt8Array,
    padded: UInt64Array,
    ends: Int64Array,
    ids: Int32Array,
    are_ordered: bool,
    ignores: bool,
    tables: Tables,
) -> Integer:
    """Enter characters that are one token, and tokens that merges do not make; gives the bytes of the longest piece."""
    longest = LONGEST_PIECE
    start = 0
    for number in range(len(ends)):
        end = ends[number]
        size = end - start
        is_character = size > 0 and spelled[start] & 0xC0 != 0x80 and width(spelled[start]) == size
        for at in range(start + 1, end):
            is_character = is_character and spelled[at] & 0xC0 == 0x80
        if 0 < size <= LONGEST_PIECE and (is_character or ignores):
            for index in range(size):
                tables.symbols[index] = tables.byte_ids[spelled[start + index]]
            is_made = _merge(size, tables) == 1 and tables.symbols[0] == ids[number]
            if is_made and is_character and (are_ordered or size == 1):
                tables.whole[code_point(spelled, start)] = ids[number]
            if ignores and not is_made:
                if size > _KEY_BYTES:
                    longest = _KEY_BYTES
                else:
                    key = _key(padded, start, size, True)
                    tables.symbols[0] = ids[number]
                    _keep(tables.irregular, _irregular_slot(key, tables), key, tables.symbols, 1)
        elif ignores and size > LONGEST_PIECE:
            longest = _KEY_BYTES
        start = end
    return longest


@njit(_nrt=False, inline="always")
def _bit(before: int, after: int, joined: UInt8Array) -> Integer:
    """Index of the bit of two characters."""
    mixed = (np.uint64(before) << np.uint64(22) | np.uint64(after)) * GOLDEN
    return np.int64(mixed >> np.uint64(32)) & (len(joined) * 8 - 1)


@njit(_nrt=False, inline="always")
def _has_bit(before: int, after: int, joined: UInt8Array) -> bool:
    """Whether a token may hold two characters side by side."""
    bit = _bit(before, after, joined)
    return bool((joined[bit >> 3] >> (bit & 7)) & 1)


@njit(_nrt=False, inline="always")
def _is_torn(data: UInt8Array, at: int, before: int, after: int, tables: Tables) -> bool:
    """Whether a token may span the boundary between two characters and begin or end inside one of them."""
    left = tables.parts[data[at - 1]] & _LEFT != 0
    right = tables.parts[data[at]] & _RIGHT != 0
    return bool(
        (left and _has_bit(_PART | data[at - 1], after, tables.joined))
        or (right and _has_bit(before, _PART | data[at], tables.joined))
        or (left and right and _has_bit(_PART | data[at - 1], _PART | data[at], tables.joined))
    )


@njit(_nrt=False, inline="always")
def _piece_end(data: UInt8Array, at: int, end_of_word: int, tables: Tables) -> Integer:
    """End of the piece that begins at a byte; two ASCII characters are never cut apart."""
    end = at + width(data[at])
    before = code_point(data, at)
    while end < end_of_word:
        after = code_point(data, end)
        if (
            (before >= 0x80 or after >= 0x80)
            and not _has_bit(before, after, tables.joined)
            and not _is_torn(data, end, before, after, tables)
        ):
            break
        before = after
        end += width(data[end])
    return end


@njit(_nrt=False, inline="always")
def _begin(data: UInt8Array, start: int, end: int, tables: Tables) -> Integer:
    """Write the symbols that the merging of a piece starts from; gives their number."""
    count = 0
    at = start
    here = code_point(data, at)
    torn = False
    while at < end:
        following = at + width(data[at])
        after = np.int64(0)
        torn_after = False
        if following < end:
            after = code_point(data, following)
            torn_after = (here >= 0x80 or after >= 0x80) and _is_torn(data, following, here, after, tables)
        if torn or torn_after or tables.whole[here] < 0:
            for index in range(at, following):
                tables.symbols[count] = tables.byte_ids[data[index]]
                count += 1
        else:
            tables.symbols[count] = tables.whole[here]
            count += 1
        at, here, torn = following, after, torn_after
    return count


@njit(_nrt=False, inline="always")
def _slot(pair: np.uint64, pairs: UInt64Array) -> Integer:
    """Slot of a pair, or the free one where it would be; the rank lies in the low bits of the entry."""
    slot = np.int64((pair * GOLDEN) >> np.uint64(30)) & (len(pairs) - 1)
    while pairs[slot] != _EMPTY and pairs[slot] >> np.uint64(24) != pair:
        slot = (slot + 1) & (len(pairs) - 1)
    return slot


@njit(_nrt=False, inline="always")
def _rank(left: int, right: int, pairs: UInt64Array) -> np.int32:
    """Rank of a merge; `_NO_RANK` where there is none."""
    found = pairs[_slot(np.uint64(left) << np.uint64(20) | np.uint64(right), pairs)]
    return np.int32(_NO_RANK) if found == _EMPTY else np.int32(found & np.uint64(_NO_RANK - 1))


@njit(_nrt=False, inline="always")
def _merge(count: int, tables: Tables) -> Integer:
    """Merge the first symbols of the tables until no merge is left; gives the number of symbols then."""
    symbols, ranks, pairs = tables.symbols, tables.ranks, tables.pairs
    for index in range(count - 1):
        ranks[index] = _rank(symbols[index], symbols[index + 1], pairs)
    while count > 1:
        least = ranks[0]
        at = 0
        for index in range(1, count - 1):
            if ranks[index] < least:
                least = ranks[index]
                at = index
        if least == _NO_RANK:
            break
        symbols[at] = tables.merged[least]
        count -= 1
        for index in range(at + 1, count):
            symbols[index] = symbols[index + 1]
            ranks[index] = ranks[index + 1]
        if at > 0:
            ranks[at - 1] = _rank(symbols[at - 1], symbols[at], pairs)
        if at < count - 1:
            ranks[at] = _rank(symbols[at], symbols[at + 1], pairs)
    return count


@njit(_nrt=False, inline="always")
def _load(padded: UInt64Array, at: int, size: int) -> Integer:
    """Up to 8 bytes from a position on as one number, the first byte lowest; those beyond `size` are 0."""
    shift = np.uint64(8 * (at & 7))
    found = padded[at >> 3] >> shift | (padded[(at >> 3) + 1] << (np.uint64(63) - shift)) << np.uint64(1)
    return found & ((np.uint64(1) << np.uint64(8 * size)) - np.uint64(1)) if size < 8 else found


@njit(_nrt=False, inline="always")
def _key(padded: UInt64Array, at: int, size: int, is_word: bool) -> Key:
    """Up to 31 bytes, their number, and whether they are a word: a word and a piece of the same bytes may differ."""
    return (
        _load(padded, at, size),
        _load(padded, at + 8, size - 8) if size > 8 else _ZERO,
        _load(padded, at + 16, size - 16) if size > 16 else _ZERO,
        (_load(padded, at + 24, size - 24) if size > 24 else _ZERO) | np.uint64(2 * size + is_word) << np.uint64(56),
    )


@njit(_nrt=False, inline="always")
def _hash(key: Key) -> Integer:
    """A number below 2^24 that all bytes of a key decide."""
    mixed = ((key[0] * GOLDEN ^ key[1]) * GOLDEN ^ key[2]) * GOLDEN ^ key[3]
    return np.int64(mixed * GOLDEN >> np.uint64(40))


@njit(_nrt=False, inline="always")
def _is_at(entries: UInt64Array, slot: int, key: Key) -> bool:
    """Whether the entry in a slot has a key."""
    return bool(
        entries[slot, 0] == key[0]
        and entries[slot, 1] == key[1]
        and entries[slot, 2] == key[2]
        and entries[slot, 3] == key[3]
    )


@njit(_nrt=False, inline="always")
def _recall(entries: UInt64Array, slot: int, ids: Int32Array, count: int) -> Integer:
    """Write the ids of an entry from `ids[count]` on; gives their number."""
    first = entries[slot, 4]
    kept = np.int64(first & np.uint64(0xFFFFFFFF))
    ids[count] = np.int32(first >> np.uint64(32))
    for index in range(2, kept + 1):
        ids[count + index - 1] = np.int32(
            entries[slot, 4 + (index >> 1)] >> np.uint64(32 * (index & 1)) & np.uint64(0xFFFFFFFF)
        )
    return kept


@njit(_nrt=False, inline="always")
def _keep(entries: UInt64Array, slot: int, key: Key, ids: Int32Array, count: int) -> None:
    """Write an entry: 31 bytes and their number, the number of ids and up to seven ids."""
    for index in range(4):
        entries[slot, index] = key[index]
    entries[slot, 4] = np.uint64(count)
    for index in range(5, 8):
        entries[slot, index] = _ZERO
    for index in range(1, count + 1):
        entries[slot, 4 + (index >> 1)] |= np.uint64(ids[index - 1]) << np.uint64(32 * (index & 1))


@njit(_nrt=False, inline="always")
def _irregular_slot(key: Key, tables: Tables) -> Integer:
    """Slot of a word in `irregular`, or the free slot where it would be."""
    slot = _hash(key) & (len(tables.irregular) - 1)
    while tables.irregular[slot, 3] != _ZERO and not _is_at(tables.irregular, slot, key):
        slot = (slot + 1) & (len(tables.irregular) - 1)
    return slot


@njit(_nrt=False, inline="always")
def _remembered(
    data: UInt8Array, padded: UInt64Array, at: int, end: int, is_word: bool, tables: Tables, ids: Int32Array, count: int
) -> Integer:
    """Write the ids of a character that is one token, or of a cached word or piece; gives their number, else 0."""
    size = end - at
    if size == width(data[at]):
        number = tables.whole[code_point(data, at)]
        if number >= 0:
            ids[count] = number
            return 1
    if size > _KEY_BYTES:
        return 0
    key = _key(padded, at, size, is_word and tables.marks_words)
    slot = _hash(key) & (len(tables.kept) - 1)
    return _recall(tables.kept, slot, ids, count) if _is_at(tables.kept, slot, key) else 0


@njit(_nrt=False, inline="always")
def _made(
    data: UInt8Array, padded: UInt64Array, at: int, end: int, is_word: bool, tables: Tables, ids: Int32Array, count: int
) -> Integer:
    """Merge a piece, write its ids and cache them; gives their number."""
    size = end - at
    key = _key(padded, at, min(size, _KEY_BYTES), is_word and tables.marks_words)
    if is_word and tables.marks_words and size <= _KEY_BYTES:
        slot = _irregular_slot(key, tables)
        if tables.irregular[slot, 3] != _ZERO:
            return _recall(tables.irregular, slot, ids, count)
    found = _merge(_begin(data, at, end, tables), tables)
    for index in range(found):
        ids[count + index] = tables.symbols[index]
    if size <= _KEY_BYTES and found <= _KEPT_IDS:
        _keep(tables.kept, _hash(key) & (len(tables.kept) - 1), key, tables.symbols, found)
    return found


@compiled(nogil=False, _nrt=False)  # keeps the GIL: the tables are working memory, which tasks of Sail share as threads
def _encode(
    data: UInt8Array, padded: UInt64Array, at: int, end_of_word: int, tables: Tables, ids: Int32Array
) -> tuple[Integer, Integer, Integer]:
    """Encode until the text ends or `ids` is full.

    Args:
        data: (B,) a text as valid UTF-8.
        padded: the same bytes in words of 8.
        at: first byte that is not encoded.
        end_of_word: end of the word that it belongs to; not above `at` where it begins one.
        tables: see there.
        ids: where they are written.

    Returns:
        First byte that is not encoded, -1 for a piece that is too long; the end of its word; number of ids written.
    """
    count = 0
    start_of_word = -1
    while at < len(data) and count <= len(ids) - LONGEST_PIECE:
        found = 0
        end = at
        if at >= end_of_word:
            start_of_word = at
            end = end_of_word = word_end(data, at, tables.classes, tables.most_numbers)
            found = _remembered(data, padded, at, end, True, tables, ids, count)
        if found == 0:
            end = _piece_end(data, at, end_of_word, tables)
            is_word = at == start_of_word and end == end_of_word
            if not is_word:
                found = _remembered(data, padded, at, end, False, tables, ids, count)
            if found == 0:
                if end - at > tables.longest:
                    return -1, end_of_word, count
                found = _made(data, padded, at, end, is_word, tables, ids, count)
        count += found
        at = end
    return at, end_of_word, count
