"""Decompress a stream by its codec, in bounded memory; of a damaged one all bytes before the damage are given first.

The codec is told by the extension or by the first bytes. Streams that follow each other in one file are one stream.
"""

from __future__ import annotations

import bz2
import io
import lzma
import os
import struct
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import pyarrow as pa
import zstandard

from spark_jobs.sources.opening.gzip_members import GzipMembers
from spark_jobs.sources.opening.streams import HashedFile, Stream

CODECS: Final = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2", ".xz": "xz"}
"""Codec by the last extension of a name."""
ZIP_MAGIC: Final = (b"PK\x03\x04", b"PK\x05\x06")
"""How a zip archive begins; the second is that of an empty one."""
_MAGIC: Final = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"BZh": "bz2",
    b"\xfd7zXZ": "xz",
}
_SKIPPED = struct.Struct("<LL")
"""Mark and length of a skippable frame, which holds no data: zstd and lz4 allow it first, and pzstd writes one."""
_SKIPPED_MARK, _SKIPPED_MASK = 0x184D2A50, 0xFFFFFFF0
_LOOKED_AT = 1 << 20  # bytes of skippable frames; behind longer ones zstd is expected
_CHUNK_BYTES = 1 << 16
_FED_BYTES = 1 << 12  # to zstd at once: 4 bytes may stand for 128 KB, and a damage loses what comes of them
_XZ_MEMORY = 128 << 20  # xz -9 needs 65 MB; a header may ask for 4 GB


class _Decoder(Protocol):
    """A decompressor of the standard library for one stream."""

    @property
    def eof(self) -> bool:
        """Whether the stream has ended."""

    @property
    def needs_input(self) -> bool:
        """Whether there is nothing more to give without more bytes."""

    @property
    def unused_data(self) -> bytes:
        """What follows the end of the stream."""

    def decompress(self, data: bytes, max_length: int = -1, /) -> bytes:
        """At most so many of the next bytes."""


def codec_of(file: HashedFile) -> str | None:
    """The codec of a file by its first bytes behind skippable frames; None where it is not compressed."""
    at, head = 0, file.head(_SKIPPED.size)
    while len(head) == _SKIPPED.size and _SKIPPED.unpack(head)[0] & _SKIPPED_MASK == _SKIPPED_MARK:
        at += _SKIPPED.size + _SKIPPED.unpack(head)[1]
        head = file.head(at + _SKIPPED.size)[at:] if at < _LOOKED_AT else b""
    found = next((codec for magic, codec in _MAGIC.items() if head.startswith(magic)), None)
    return "zstd" if at and found is None else found


def decompressed(file: Stream, codec: str) -> Stream:
    """The decompressed bytes of an open file.

    Its `read` may give less than it is asked for, and raises OSError (or pa.ArrowException) where the file is damaged
    or ends early.
    """
    if codec == "gzip":
        return GzipMembers(file)
    if codec in _DECODERS:
        return _Decoded(file, _DECODERS[codec])
    native = file if isinstance(file, pa.NativeFile) else pa.PythonFile(file, mode="r")
    stream: Stream = pa.CompressedInputStream(native, codec)
    return stream


def decompressed_by_name(file: Stream, location: str) -> Stream:
    """The stream of an open file, decompressed by its extension."""
    codec = CODECS.get(os.path.splitext(location.lower())[1])
    return file if codec is None else decompressed(file, codec)


class _ZstdFrame:
    """One frame of zstd, with the methods of the decompressors of the standard library."""

    def __init__(self) -> None:
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._fed, self._given = io.BytesIO(), io.BytesIO()  # what is to be decompressed, what is to be given

    @property
    def eof(self) -> bool:
        return self._frame.eof and not _is_left(self._given)

    @property
    def needs_input(self) -> bool:
        return not (_is_left(self._fed) or _is_left(self._given))

    @property
    def unused_data(self) -> bytes:
        return self._frame.unused_data + self._fed.read()

    def decompress(self, data: bytes, max_length: int = -1, /) -> bytes:
        if data:
            self._fed = io.BytesIO(data)
        if not (_is_left(self._given) or self._frame.eof):
            self._given = io.BytesIO(self._frame.decompress(self._fed.read(_FED_BYTES)))
        return self._given.read(max_length)


def _is_left(held: io.BytesIO) -> bool:
    """Whether a buffer has bytes that were not read."""
    return held.tell() < held.getbuffer().nbytes


_DECODERS: Final[dict[str, Callable[[], _Decoder]]] = {
    "bz2": bz2.BZ2Decompressor,
    "xz": partial(lzma.LZMADecompressor, memlimit=_XZ_MEMORY),
    "zstd": _ZstdFrame,
}


class _Decoded:
    """Streams of bzip2 or xz, or frames of zstd, one after the other."""

    def __init__(self, file: Stream, decoder: Callable[[], _Decoder]) -> None:
        self._file, self._new = file, decoder
        self._decoder: _Decoder | None = None
        self._held = b""

    def read(self, size: int, /) -> bytes:
        """At most `size` of the next bytes; none at the end.

        Raises:
            OSError: here the file is damaged, or ends inside of a stream.
        """
        while True:
            if self._decoder is None:
                self._held = self._held.lstrip(b"\0") or self._file.read(_CHUNK_BYTES).lstrip(b"\0")
                if not self._held:
                    return b""
                self._decoder = self._new()
            given = b""
            if self._decoder.needs_input:
                given = self._held or self._file.read(_CHUNK_BYTES)
                self._held = b""
                if not given:
                    raise OSError("ends inside of a compressed stream")
            try:
                data = self._decoder.decompress(given, size)
            except (OSError, EOFError, lzma.LZMAError, zstandard.ZstdError) as error:
                raise OSError(f"damaged: {error}") from error
            if self._decoder.eof:
                self._held, self._decoder = self._decoder.unused_data, None
            if data:
                return data
