"""Encode and decode the file of one block: rows of a packed table in fixed-width arrays, to be memory-mapped.

A block is a range of consecutive ordinals of one data file. Its file is named by the hash of all that decides its
content (`BlockKey.name`); data files of a lake never change, so neither does a block. Everything is little-endian::

    0    xxh3-128 of all that follows          16 bytes
    16   magic "HRBLOCK2", the key's SHA-256   40
    56   start, rows R, window_tokens L, token_bytes, segments S, bytes of document ids D   6 x int64
    104  0 up to 128
         segment_starts (R+1) int64 | document_starts (S) int64 | doc_id_starts (S+1) int64 | row_digests (R) int64
         token_counts (R) int32 | segment_token_counts (S) int32 | window_starts (S) int32
         document ids (D) bytes
         0 up to a multiple of 4,096, then input_ids (R, L) uint16 or uint32

One checksum covers the whole file, the header's lengths included, which checksums per array would leave out. It is
checked whenever a file is mapped. Rows have digests besides, compared whenever one is served (`row_digests`).
"""

from __future__ import annotations

import functools
import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from blender_service.arrays import Int32Array, Int64Array
from blender_service.exceptions import DamagedBlockError
from blender_service.tables.row_digests import digest_rows

MAGIC: Final = b"HRBLOCK2"
HEADER: Final = struct.Struct("<16s8s32s6q")
HEADER_BYTES: Final = 128
DIGEST_BYTES: Final = 16
PAGE_BYTES: Final = 4096


class BlockKey(NamedTuple):
    """All that decides the content of a block.

    Attributes:
        path: the data file.
        start: first ordinal.
        end: ordinal after the last.
        window_tokens: length L of a row.
        token_bytes: width of a token id, 2 or 4.
        vocabulary_size: every id of the block is below it.
    """

    path: str
    start: int
    end: int
    window_tokens: int
    token_bytes: int
    vocabulary_size: int

    def digest(self) -> bytes:
        """SHA-256 of the key; with the magic's version it identifies the bytes of the file."""
        return hashlib.sha256("\0".join([MAGIC.decode(), *map(str, self)]).encode()).digest()

    @property
    def name(self) -> str:
        """Name of the block's file."""
        return _name_of(self)


@functools.lru_cache(4096)
def _name_of(key: BlockKey) -> str:
    """Give the name of a block's file; a stream asks for that of each block thousands of times."""
    return key.digest().hex() + ".block"


@dataclass(frozen=True, eq=False)
class Block:
    """R rows of a packed table with their S segments; the arrays may be views of a mapped file.

    Attributes:
        start: first ordinal.
        input_ids: (R, L) token ids, uint16 or uint32.
        token_counts: (R,) tokens before the padding, int32.
        segment_starts: (R + 1,) first segment of each row in the arrays below, int64.
        doc_id_bytes: (D,) UTF-8 document ids, one after the other, uint8.
        doc_id_starts: (S + 1,) first byte of each document id, int64.
        document_starts: (S,) first token, in the document, int64.
        segment_token_counts: (S,) tokens, int32.
        window_starts: (S,) first token, in the window, int32.
        row_digests: (R,) digest of each row, int64; computed where they are not given.
    """

    start: int
    input_ids: NDArray[np.unsignedinteger]
    token_counts: Int32Array
    segment_starts: Int64Array
    doc_id_bytes: NDArray[np.uint8]
    doc_id_starts: Int64Array
    document_starts: Int64Array
    segment_token_counts: Int32Array
    window_starts: Int32Array
    row_digests: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __post_init__(self) -> None:
        if not self.row_digests.size:
            digests = digest_rows(self._addresses(), self.rows, self.input_ids[0].nbytes)
            object.__setattr__(self, "row_digests", digests)

    @property
    def rows(self) -> int:
        """Number of rows R."""
        return len(self.input_ids)

    @functools.cached_property
    def addresses(self) -> Int64Array:
        """(11,) addresses and lengths by which compiled code reads the block, int64; columns as in `row_digests`."""
        return self._addresses()

    def _addresses(self) -> Int64Array:
        """Give where the arrays lie, in the order above, and how many segments and bytes of document ids there are."""
        arrays = (
            self.input_ids,
            self.token_counts,
            self.segment_starts,
            self.doc_id_bytes,
            self.doc_id_starts,
            self.document_starts,
            self.segment_token_counts,
            self.window_starts,
            self.row_digests,
        )
        addresses = [array.__array_interface__["data"][0] for array in arrays]
        return np.array([*addresses, len(self.document_starts), len(self.doc_id_bytes)], dtype=np.int64)


def encode_block(block: Block, key: BlockKey) -> list[memoryview]:
    """Give the bytes of a block's file, in pieces to be written one after the other."""
    segments, doc_id_bytes = len(block.document_starts), len(block.doc_id_bytes)
    layout = _Layout.of(block.rows, key.window_tokens, key.token_bytes, segments, doc_id_bytes)
    facts = (key.start, block.rows, key.window_tokens, key.token_bytes, segments, doc_id_bytes)
    header = HEADER.pack(bytes(DIGEST_BYTES), MAGIC, key.digest(), *facts).ljust(HEADER_BYTES, b"\0")
    arrays = (
        (block.segment_starts, "<i8"),
        (block.document_starts, "<i8"),
        (block.doc_id_starts, "<i8"),
        (block.row_digests, "<i8"),
        (block.token_counts, "<i4"),
        (block.segment_token_counts, "<i4"),
        (block.window_starts, "<i4"),
        (block.doc_id_bytes, "u1"),
    )
    small = b"".join([header, *(array.astype(dtype, copy=False).tobytes() for array, dtype in arrays)])
    small = small.ljust(layout.input_ids, b"\0")
    ids = np.ascontiguousarray(block.input_ids, dtype=f"<u{key.token_bytes}")
    pieces = [memoryview(small)[DIGEST_BYTES:], memoryview(ids.reshape(-1).view(np.uint8).data)]
    return [memoryview(_digest(pieces)), *pieces]


def decode_block_file(content: memoryview, key: BlockKey) -> Block:
    """Check the bytes of a block's file and give its arrays as read-only views of them.

    Raises:
        DamagedBlockError: the checksum, the key or the length is wrong; the message says which.
    """
    if len(content) < HEADER_BYTES:
        raise DamagedBlockError(f"has {len(content)} bytes, a header alone has {HEADER_BYTES}")
    digest, magic, key_digest, *facts = HEADER.unpack_from(content)
    actual = _digest([content[DIGEST_BYTES:]])
    if actual != digest:
        raise DamagedBlockError(f"has xxh3 {actual.hex()}, {digest.hex()} was written")
    start, rows, window_tokens, token_bytes, segments, doc_id_bytes = facts
    if magic != MAGIC or key_digest != key.digest() or (start, start + rows) != (key.start, key.end):
        raise DamagedBlockError(f"is another block than {key.path} rows {key.start}..{key.end}")
    at = _Layout.of(rows, window_tokens, token_bytes, segments, doc_id_bytes)
    if len(content) != at.end:
        raise DamagedBlockError(f"has {len(content)} bytes, its header says {at.end}")

    def array(dtype: str, count: int, offset: int) -> NDArray[np.generic]:
        return np.frombuffer(content, dtype, count, offset)

    return Block(
        start=start,
        input_ids=array(f"<u{token_bytes}", rows * window_tokens, at.input_ids).reshape(rows, window_tokens),  # type: ignore[arg-type]
        token_counts=array("<i4", rows, at.token_counts),  # type: ignore[arg-type]
        segment_starts=array("<i8", rows + 1, HEADER_BYTES),  # type: ignore[arg-type]
        doc_id_bytes=array("u1", doc_id_bytes, at.doc_id_bytes),  # type: ignore[arg-type]
        doc_id_starts=array("<i8", segments + 1, at.doc_id_starts),  # type: ignore[arg-type]
        document_starts=array("<i8", segments, at.document_starts),  # type: ignore[arg-type]
        segment_token_counts=array("<i4", segments, at.segment_token_counts),  # type: ignore[arg-type]
        window_starts=array("<i4", segments, at.window_starts),  # type: ignore[arg-type]
        row_digests=array("<i8", rows, at.row_digests),  # type: ignore[arg-type]
    )


class _Layout(NamedTuple):
    """Where the arrays of a block's file begin, and where the file ends; segment_starts follow the header."""

    document_starts: int
    doc_id_starts: int
    row_digests: int
    token_counts: int
    segment_token_counts: int
    window_starts: int
    doc_id_bytes: int
    input_ids: int
    end: int

    @classmethod
    def of(cls, rows: int, window_tokens: int, token_bytes: int, segments: int, doc_id_bytes: int) -> _Layout:
        """Lay the arrays out one after the other, the wide ones first so that all are aligned."""
        sizes = (8 * (rows + 1), 8 * segments, 8 * (segments + 1), 8 * rows, 4 * rows, 4 * segments, 4 * segments)
        starts: list[int] = np.cumsum([HEADER_BYTES, *sizes]).tolist()
        input_ids = -(-(starts[-1] + doc_id_bytes) // PAGE_BYTES) * PAGE_BYTES
        return cls._make([*starts[1:], input_ids, input_ids + rows * window_tokens * token_bytes])


def _digest(pieces: Sequence[memoryview]) -> bytes:
    """xxh3-128 of pieces, one after the other."""
    state = xxhash.xxh3_128()
    for piece in pieces:
        state.update(piece)
    return state.digest()
