"""Decompress a stream by its codec, in bounded memory; of a damaged one all bytes before the damage are given first.

The codec is told by the extension or by the first bytes. Streams one after the other in one file are one stream.
"""

from __future__ import annotations

import bz2
import hashlib
import io
import lzma
import os
import struct
import zlib
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

import pyarrow as pa
import zstandard

from spark_jobs.sources.opening.gzip_members import GzipMembers
from spark_jobs.sources.opening.limits import ArchiveLimits
from spark_jobs.sources.opening.streams import HashedFile, Stream, read_up_to
from spark_jobs.sources.refusals import Reason, RefusedError, first_line, reason_of

CODECS: Final = {
    **{".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2", ".bz": "bz2"},
    **{".xz": "xz", ".lzma": "xz", ".lz4": "lz4", ".deflate": "zlib"},
}
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
# Frames that decoders skip have 16 marks (RFC 8878, 3.1.2); one of them brings a WARC file's dictionary.
_SKIPPED_MARK, _SKIPPED_MASK = 0x184D2A50, 0xFFFFFFF0
_LOOKED_AT = 1 << 20  # bytes of skippable frames; behind longer ones zstd is expected
_CHUNK_BYTES = 1 << 16
_FED_BYTES = 1 << 12  # to zstd at once: 4 bytes may stand for 128 KB, and a damage loses what comes of them
_ZSTD_MAGIC, _TRAINED = b"\x28\xb5\x2f\xfd", b"\x37\xa4\x30\xec"
_DICTIONARY_MARK, _DICTIONARY_BYTES = 0x184D2A5D, 64 << 20
_MOST_WINDOW = 1 << 31  # of the library
_LACKS: Final = {  # by the words of its libraries
    "Memory usage limit exceeded": "its xz dictionary needs more memory than may be taken; {limit}, raise it",
    "requires too much memory": "its zstd window is larger than the memory that may be taken; {limit}, raise it (zstd "
    "itself ends at 2048)",
    "Dictionary mismatch": "it was compressed with a zstd dictionary that is not in it; unpack it by zstd -D, or put "
    "the dictionary into its first skippable frame, as .warc.zst has it",
    "Invalid or unsupported options": "its xz filters are none that the library knows; unpack it before",
    "Unsupported integrity check": "its xz checksum is none that the library knows; unpack it before",
    "Version not supported": "it was written by a zstd before 0.8; unpack it before",
}


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
    named_codec = next((codec for magic, codec in _MAGIC.items() if head.startswith(magic)), None)
    return "zstd" if at and named_codec is None else named_codec


def decompressed(file: Stream, codec: str, limits: ArchiveLimits | None = None) -> Stream:
    """The decompressed bytes of an open file.

    Its `read` may give less than it is asked for, and raises OSError (or pa.ArrowException) where the file is damaged,
    ends early, or needs more than the limits allow.
    """
    memory_mb = (limits or ArchiveLimits()).max_memory_mb
    limit = f"archives.max_memory_mb is {memory_mb}"
    if codec == "gzip":
        return GzipMembers(file)
    if codec == "zstd":
        return _zstd(file, memory_mb)
    if codec == "xz":
        return _Decoded(file, partial(lzma.LZMADecompressor, memlimit=memory_mb << 20), limit)
    if codec in ("bz2", "zlib"):
        return _Decoded(file, bz2.BZ2Decompressor if codec == "bz2" else _Deflated, limit)
    native = file if isinstance(file, pa.NativeFile) else pa.PythonFile(file, mode="r")
    stream: Stream = pa.CompressedInputStream(native, codec)
    return stream


def decompressed_by_name(file: Stream, location: str, limits: ArchiveLimits | None = None) -> Stream:
    """The stream of an open file, decompressed by its extension."""
    codec = CODECS.get(os.path.splitext(location.lower())[1])
    return file if codec is None else decompressed(file, codec, limits)


def unpacked(path: str) -> str:
    """A name without the extension of its compression."""
    stem, extension = os.path.splitext(path)
    return stem if extension.lower() in CODECS else path


class WholeFile(NamedTuple):
    """The bytes of a file, decompressed.

    Attributes:
        name: of the file, without the extension of its compression.
        data: the bytes, or as many as were asked for.
        content_sha256: of the bytes, in lower-case hex.
        sha256: of the file as it is.
    """

    name: str
    data: bytes
    content_sha256: str
    sha256: str


def whole_file(file: Stream, name: str, most_bytes: int, limits: ArchiveLimits | None = None) -> WholeFile:
    """Read a file, decompressed by its name, in one go.

    Args:
        file: at its start.
        name: of it.
        most_bytes: that are held.
        limits: of decompression.

    Raises:
        OSError: it cannot be read.
    """
    with HashedFile(file) as source:
        plain = decompressed_by_name(source, name, limits)
        try:
            data = read_up_to(plain, most_bytes)
        except (OSError, pa.ArrowException) as error:
            if plain is source:
                raise
            raise RefusedError(reason_of(error, Reason.CORRUPT_ARCHIVE), f"damaged: {first_line(error)}") from error
        sha256 = source.sha256_to_end()
    content_sha256 = sha256 if plain is source else hashlib.sha256(data).hexdigest()
    return WholeFile(unpacked(name), data, content_sha256, sha256)


class _ZstdFrame:
    """One frame of zstd, with the methods of the decompressors of the standard library."""

    def __init__(self, frames: zstandard.ZstdDecompressor) -> None:
        self._frame = frames.decompressobj()
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


def _is_left(unused: io.BytesIO) -> bool:
    """Whether a buffer has unread bytes."""
    return unused.tell() < unused.getbuffer().nbytes


def _zstd(file: Stream, memory_mb: int) -> _Decoded:
    """The frames of a file, with the dictionary in its first frame, if there is one.

    Source: the format of .warc.zst, iipc.github.io/warc-specifications: a skippable frame, in it the dictionary,
    perhaps compressed itself.
    """
    head, dictionary = read_up_to(file, _SKIPPED.size), None
    mark, size = _SKIPPED.unpack(head) if len(head) == _SKIPPED.size else (0, 0)
    if mark & _SKIPPED_MASK == _SKIPPED_MARK and size <= _DICTIONARY_BYTES:
        frame = read_up_to(file, size)
        head, dictionary = head + frame, _dictionary(frame, mark == _DICTIONARY_MARK)
    window = min(max(memory_mb << 20, 1 << 10), _MOST_WINDOW)
    frames = zstandard.ZstdDecompressor(dict_data=dictionary, max_window_size=window)
    return _Decoded(file, lambda: _ZstdFrame(frames), f"archives.max_memory_mb is {memory_mb}", head)


def _dictionary(frame: bytes, may_be_raw: bool) -> zstandard.ZstdCompressionDict | None:
    """The dictionary in a skippable frame; None where it holds none, or cannot be read.

    Args:
        frame: its content.
        may_be_raw: whether any bytes are a dictionary, trained or not.
    """
    data = frame
    if frame.startswith(_ZSTD_MAGIC):
        try:
            data = zstandard.ZstdDecompressor().decompressobj().decompress(frame)
        except zstandard.ZstdError:
            return None
    is_trained = data.startswith(_TRAINED)
    return zstandard.ZstdCompressionDict(data) if data and (is_trained or may_be_raw) else None


_ZLIB_WITH_HEADER: Final = 15


class _Deflated:
    """A stream of zlib, as Hadoop names `.deflate`, with the methods of the other decompressors."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_ZLIB_WITH_HEADER)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def needs_input(self) -> bool:
        return not self._stream.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int = -1, /) -> bytes:
        return self._stream.decompress(data or self._stream.unconsumed_tail, max(0, max_length))


class _Decoded:
    """Streams of bzip2, xz or zlib, or frames of zstd, one after the other.

    Args:
        file: the compressed file.
        decoder: makes a decompressor for one stream.
        limit: the setting to bound its memory, for messages.
        held: what was read of the file already.
    """

    def __init__(self, file: Stream, decoder: Callable[[], _Decoder], limit: str, read_before: bytes = b"") -> None:
        self._file, self._new, self._limit = file, decoder, limit
        self._decoder: _Decoder | None = None
        self._held = read_before

    def read(self, size: int, /) -> bytes:
        """At most `size` of the next bytes; none at the end.

        Raises:
            OSError: here the file is damaged, or ends inside of a stream; or it needs what its decompressor lacks.
        """
        while True:
            if self._decoder is None:
                self._held = self._held.lstrip(b"\0") or self._file.read(_CHUNK_BYTES).lstrip(b"\0")
                if not self._held:
                    return b""
                self._decoder = self._new()
            chunk = b""
            if self._decoder.needs_input:
                chunk = self._held or self._file.read(_CHUNK_BYTES)
                self._held = b""
                if not chunk:
                    raise OSError("ends inside of a compressed stream")
            try:
                data = self._decoder.decompress(chunk, size)
            except (OSError, EOFError, lzma.LZMAError, zstandard.ZstdError, zlib.error) as error:
                message = str(error)
                if lack := next((lack for words, lack in _LACKS.items() if words in message), None):
                    detail = f"whole, but not unpacked: {lack.format(limit=self._limit)}"
                    raise RefusedError(Reason.NOT_UNPACKED, detail) from error
                raise OSError(f"damaged: {error}") from error
            if self._decoder.eof:
                self._held, self._decoder = self._decoder.unused_data, None
            if data:
                return data
