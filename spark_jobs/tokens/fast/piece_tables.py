"""Make the tables that pieces are cut and merged by, from a tokenizer in the format of Hugging Face."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from headrace.kernels.compiling import compiled
from headrace.kernels.utf8 import Integer, code_point, width
from spark_jobs.arrays import Int32Array, Int64Array, UInt8Array, UInt64Array
from spark_jobs.tokens.fast.id_cache import KEY_BYTES, ZERO, keep, key_of, padded_copy, probed_slot
from spark_jobs.tokens.fast.piece_merging import (
    EMPTY,
    LEFT,
    LONGEST_PIECE,
    PART,
    RIGHT,
    Tables,
    bit_of,
    merge,
    pair_slot,
)
from spark_jobs.tokens.fast.pre_tokenization import BYTE_NAMES, splitting_name
from spark_jobs.tokens.fast.word_ends import MOST_NUMBERS, character_classes

MOST_IDS: Final = 1 << 20  # an id takes 20 bits of a pair, a rank the 24 that are left
_KEPT: Final = 1 << 16  # entries of 64 bytes: 4 MiB


def read_tables(declared: dict[str, Any]) -> Tables:
    """Make the tables of a parsed tokenizer.json.

    Raises:
        ValueError: it has added tokens that are not special, or more ids than `MOST_IDS`.
    """
    model = declared["model"]
    vocabulary: dict[str, int] = model["vocab"]
    if not all(token.get("special") for token in declared.get("added_tokens") or []):
        raise ValueError("it has added tokens that are not special")
    if max(vocabulary.values()) >= MOST_IDS:
        raise ValueError(f"it has an id beyond {MOST_IDS - 1}")
    # Names of tokens that are not spelled in the alphabet of bytes become zeros, which sets bits that are never read.
    alphabet = np.zeros(0x110000, dtype=np.uint8)
    alphabet[[ord(name) for name in BYTE_NAMES]] = np.arange(256)
    names = np.frombuffer("".join(vocabulary).encode("utf-32-le"), dtype=np.uint32)
    spelled, padded = padded_copy(alphabet[names])
    ends = np.cumsum([len(name) for name in vocabulary], dtype=np.int64)
    ids = np.array(list(vocabulary.values()), dtype=np.int32)
    named = [pair if isinstance(pair, list) else pair.split(" ") for pair in model["merges"]]
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
        pairs=np.full(_power_of_two(2 * len(ranks)), EMPTY),
        merged=merged,
        marks_words=ignores,
        irregular=np.zeros((_power_of_two(2 * len(vocabulary)) if ignores else 1, 8), dtype=np.uint64),
        longest=LONGEST_PIECE,
        kept=np.full((_KEPT, 8), ZERO),
        symbols=np.zeros(LONGEST_PIECE, dtype=np.int32),
        ranks=np.zeros(LONGEST_PIECE, dtype=np.int32),
    )
    _set_joined(spelled, ends, tables)
    _set_pairs(lefts, rights, order, tables)
    longest = _set_tokens(spelled, padded, ends, ids, are_ordered, ignores, tables)
    return tables._replace(longest=longest)


def _power_of_two(least: int) -> int:
    return 1 << max(6, (least - 1).bit_length())


@compiled(nogil=False, _nrt=False)
def _set_joined(spelled: UInt8Array, ends: Int64Array, tables: Tables) -> None:
    """Set the bit of every two characters that stand side by side in a token.

    A token that begins or ends inside a character has only a byte of it: this byte and `PART` stand for the character,
    and `parts` says that there are such tokens. Bits that invalid UTF-8 sets are never read.
    """
    start = 0
    for end in ends:
        for at in range(start + 1, end):
            if spelled[at] & 0xC0 == 0x80:
                continue
            lead = at - 1
            while lead > start and spelled[lead] & 0xC0 == 0x80:
                lead -= 1
            before = np.int64(PART | spelled[at - 1])
            if spelled[lead] & 0xC0 != 0x80 and lead + width(spelled[lead]) == at:
                before = code_point(spelled, lead)
            else:
                tables.parts[spelled[at - 1]] |= LEFT
            after = np.int64(PART | spelled[at])
            if at + width(spelled[at]) <= end:
                after = code_point(spelled, at)
            else:
                tables.parts[spelled[at]] |= RIGHT
            if before >= 0x80 or after >= 0x80:
                bit = bit_of(before, after, tables.joined)
                tables.joined[bit >> 3] |= 1 << (bit & 7)
        start = end


@compiled(nogil=False, _nrt=False)
def _set_pairs(lefts: Int64Array, rights: Int64Array, ranks: Int64Array, tables: Tables) -> None:
    """Enter the merges into `pairs`."""
    for number in range(len(ranks)):
        pair = np.uint64(lefts[number]) << np.uint64(20) | np.uint64(rights[number])
        tables.pairs[pair_slot(pair, tables.pairs)] = pair << np.uint64(24) | np.uint64(ranks[number])


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
    """Fill `whole`, and `irregular` where the tokenizer ignores merges, by merging every token from its bytes.

    Returns:
        Bytes of the longest piece that may be encoded here: 31 if an irregular token is too long for `irregular`.
    """
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
            is_made = merge(size, tables) == 1 and tables.symbols[0] == ids[number]
            if is_made and is_character and (are_ordered or size == 1):
                tables.whole[code_point(spelled, start)] = ids[number]
            if ignores and not is_made:
                if size > KEY_BYTES:
                    longest = KEY_BYTES
                else:
                    key = key_of(padded, start, size, True)
                    tables.symbols[0] = ids[number]
                    keep(tables.irregular, probed_slot(tables.irregular, key), key, tables.symbols, 1)
        elif ignores and size > LONGEST_PIECE:
            longest = KEY_BYTES
        start = end
    return longest
