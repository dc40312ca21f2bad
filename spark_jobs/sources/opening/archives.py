"""Read the members of zip and tar archives one by one, within limits, whatever the archive claims.

    zip   by its central directory, in the order of the members' places; every member is checked for itself
    tar   plain or packed by gzip, zstd, xz or bzip2, as one stream from its start to its end

Nothing is extracted to a disk. Sizes are those measured while bytes are unpacked, never those claimed in a header: a
stream ends with a refusal where it has become more than its limits allow. Which form an archive has is told by its
first bytes, since names are often wrong; what is neither compressed nor a tar may be a zip file behind a program to
unpack it.
"""

from __future__ import annotations

import contextlib
import io
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, NamedTuple, cast

import pyarrow as pa

from spark_jobs.sources.opening.compression import ZIP_MAGIC, codec_of, decompressed
from spark_jobs.sources.opening.limits import ArchiveLimits
from spark_jobs.sources.opening.streams import HashedFile, Stream
from spark_jobs.sources.opening.zip_headers import (
    FREE_BYTES,
    check_directory,
    holds_header,
    members_by_headers,
    unicode_path,
)
from spark_jobs.sources.refusals import Reason, Refusal, RefusedError, first_line
from spark_jobs.threads import without_warnings

_CHUNK_BYTES = 1 << 18
_BLOCK = 512  # of tar
_HEADER_BYTES = 1 << 20  # of a tar member's long name and attributes
_ENTRY_BYTES = 160  # of a zip's directory, for one member
_UTF8_NAME = 0x800  # bit 11 of a ZIP entry's flags; bit 0 is the next
_ENCRYPTED = 0x1
_LOCAL_HEADER_BYTES = 30
_DAMAGES = (  # what libraries raise at bytes that they did not expect
    *(OSError, pa.ArrowException, zipfile.BadZipFile, zlib.error, struct.error),
    *(EOFError, LookupError, OverflowError, RuntimeError, ValueError),
)


class Member(NamedTuple):
    """A file in an archive: its name, its claimed size and its bytes, or why it is not read.

    Read its bytes before you ask for the next member. A member without a name has the refusal of the rest.
    """

    name: str | None
    byte_count: int | None = None
    stream: Stream | None = None
    refusal: Refusal | None = None


class Unpacking:
    """What may still be unpacked of one archive, archives inside of it included."""

    def __init__(self, limits: ArchiveLimits) -> None:
        self.limits = limits
        self.bytes_left, self._members_left = limits.max_unpacked_bytes, limits.max_members

    def count_member(self) -> None:
        """Count one member.

        Raises:
            RefusedError: there are too many.
        """
        self._members_left -= 1
        if self._members_left < 0:
            raise _bomb(f"more than {self.limits.max_members} members, the max_members")

    def charge(self, size: int) -> None:
        """Count unpacked bytes.

        Raises:
            RefusedError: there are too many.
        """
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise _bomb(f"more than {self.limits.max_unpacked_bytes} bytes, the max_unpacked_bytes")


def archive_members(source: HashedFile, packed_bytes: int | None, unpacking: Unpacking) -> Iterator[Member]:
    """The members of an archive; where damage or a limit hides the rest, the last one has no name.

    Args:
        source: the archive.
        packed_bytes: its size, where that is known.
        unpacking: what may still be unpacked of the outermost archive.
    """
    head = source.head(_BLOCK)
    try:
        codec = codec_of(source)
        if head.startswith(ZIP_MAGIC) or (codec is None and not _may_be_tar(head)):
            yield from _zip_members(source.random_access(unpacking.limits.max_temporary_bytes), unpacking)
        else:
            stream = (
                source
                if codec is None
                else _Unpacked(decompressed(source, codec, unpacking.limits), packed_bytes, unpacking)
            )
            yield from _tar_members(stream, unpacking)
    except RefusedError as error:
        yield Member(None, refusal=error.refusal)


def _may_be_tar(head: bytes) -> bool:
    """Whether a first block is one of tar: a header, or zeros."""
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError):
        return not any(head)
    return True


class _Unpacked:
    """The bytes of a packed stream, counted while they are unpacked; damage of any kind is a `RefusedError`."""

    def __init__(self, stream: Stream, packed_bytes: int | None, unpacking: Unpacking) -> None:
        self._stream, self._unpacking, self._given = stream, unpacking, 0
        ratio = unpacking.limits.max_ratio
        self._most = None if packed_bytes is None else max(FREE_BYTES, packed_bytes * ratio)
        self._why = f"more than {ratio} times its {packed_bytes} packed bytes, the max_ratio"
        self._fault: RefusedError | None = None

    def read(self, size: int, /) -> bytes:
        """At most `size` of the next bytes; none at the end.

        Raises:
            RefusedError: they cannot be unpacked, or are too many; again with every later call.
        """
        if self._fault is None:
            try:
                data = bytes(self._stream.read(size))
                self._given += len(data)
                self._unpacking.charge(len(data))
                if self._most is not None and self._given > self._most:
                    raise _bomb(self._why)
                return data
            except RefusedError as error:
                self._fault = error
            except _DAMAGES as error:
                self._fault = _damage(f"after {self._given} bytes: {first_line(error)}")
        raise self._fault


def _zip_members(file: IO[bytes], unpacking: Unpacking) -> Iterator[Member]:
    """The members of a zip file.

    Raises:
        RefusedError: its directory cannot be used, after the members found without it; a limit is reached.
    """
    guarded, fault = _GuardedFile(file, unpacking.limits.max_members * _ENTRY_BYTES), None
    try:
        with without_warnings():  # of extra fields, which are read below
            archive = zipfile.ZipFile(guarded)
        begins = check_directory(file, archive.start_dir)
        members = sorted(archive.infolist(), key=lambda info: info.header_offset)
        if not begins and holds_header(file, members[0].header_offset if members else archive.start_dir):
            fault = _damage("a member before those of its directory, as of another zip file; it is not read")
    except RefusedError:
        raise
    except _DAMAGES as error:
        members, is_whole = members_by_headers(file, unpacking.limits)
        if not (is_whole and isinstance(error, UnicodeDecodeError)):  # of a name, whose member is refused below
            fault = _damage(f"no tar, and no directory of a zip file: {first_line(error)}")
        archive = zipfile.ZipFile(io.BytesIO(b"PK\x05\x06" + bytes(18)))
        archive.fp = cast("IO[bytes]", guarded)
    overlapping = _overlapping(members)
    for info in members:
        unpacking.count_member()
        if info.orig_filename.endswith("/"):
            continue
        refusal = _zip_refusal(info)
        if refusal is None and info.header_offset in overlapping:
            refusal = Refusal(Reason.CORRUPT_ARCHIVE, "its bytes are those of another member too")
        stream = None
        if refusal is None:
            try:
                stream = _Unpacked(archive.open(info), info.compress_size, unpacking)
            except _DAMAGES as error:
                refusal = Refusal(Reason.CORRUPT_ARCHIVE, first_line(error))
        yield Member(_zip_name(info), info.file_size, stream, refusal)
        unpacking.charge(0)
    if fault is not None:
        raise fault


class _GuardedFile(io.RawIOBase):
    """A file refusing to give too many bytes at once: zipfile would hold a directory of any length in memory."""

    def __init__(self, file: IO[bytes], most_bytes: int) -> None:
        super().__init__()
        self._file, self._most = file, most_bytes

    def seekable(self) -> bool:
        """Always true; the base class requires it."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a byte.

        Raises:
            OSError: it is before the first; zipfile expects this error.
        """
        try:
            return self._file.seek(offset, whence)
        except pa.ArrowException as error:
            raise OSError(str(error)) from error

    def tell(self) -> int:
        """The position of the next byte."""
        return self._file.tell()

    def read(self, size: int = -1) -> bytes:
        """The next bytes.

        Raises:
            RefusedError: they are too many.
        """
        if size > self._most:
            raise _bomb(f"a directory of {size} bytes; max_members allows {self._most}")
        return bytes(self._file.read(self._most if size < 0 else size))


def _overlapping(members: list[zipfile.ZipInfo]) -> set[int]:
    """Offsets of members with overlapping bytes, as in bombs (Fifield 2019)."""
    offsets, reach, at = set[int](), 0, -1
    for info in members:
        if info.header_offset < reach or info.header_offset == at:
            offsets |= {at, info.header_offset}
        end = info.header_offset + _LOCAL_HEADER_BYTES + len(info.orig_filename) + info.compress_size
        if end >= reach:
            reach, at = end, info.header_offset
    return offsets


def _zip_refusal(info: zipfile.ZipInfo) -> Refusal | None:
    """Why a member of a zip file is not read, by its entry in the directory."""
    mode = info.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        return Refusal(Reason.NOT_A_FILE, "a link or a device, not a file")
    if info.flag_bits & _ENCRYPTED:
        return Refusal(Reason.ENCRYPTED, "it needs a password; unpack it first")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return Refusal(Reason.UNKNOWN_FORMAT, f"packed by method {info.compress_type} of zip; use deflate")
    return None


def _zip_name(info: zipfile.ZipInfo) -> str:
    """The name of a member; where its encoding is not declared, UTF-8 before that of DOS."""
    if (stated := unicode_path(info)) is not None:
        return stated
    with contextlib.suppress(UnicodeError):
        if not info.flag_bits & _UTF8_NAME:
            return info.orig_filename.encode("cp437").decode()
    return info.orig_filename


def _tar_members(stream: Stream, unpacking: Unpacking) -> Iterator[Member]:
    """The members of a tar archive (ustar, GNU, pax).

    Raises:
        RefusedError: from here on it cannot be read, or a limit is reached.
    """
    attributes = dict[str, str]()
    while any(block := _exactly(stream, _BLOCK)):
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.HeaderError, ValueError) as error:
            raise _damage(f"no header of tar: {first_line(error)}") from error
        if info.size < 0:
            raise _damage("a member of a negative size")
        unpacking.count_member()
        if info.type in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME):
            if info.size > _HEADER_BYTES:
                raise _damage(f"a header of {info.size} bytes")
            data = _exactly(stream, info.size + -info.size % _BLOCK)[: info.size]
            attributes |= {"path": _text(data.rstrip(b"\0"))} if info.type == b"L" else _pax_attributes(data)
            continue
        if info.type in (tarfile.XGLTYPE, tarfile.GNUTYPE_LONGLINK):
            _TarMember(stream, info.size).skip()
            continue
        name = attributes.get("path", info.name)
        size = _size(attributes.get("size"), info)
        sparse = info.type == tarfile.GNUTYPE_SPARSE or any(key.startswith("GNU.sparse") for key in attributes)
        attributes = {}
        more = info.type == tarfile.GNUTYPE_SPARSE and block[482]
        while more:
            more = _exactly(stream, _BLOCK)[504]
        part = _TarMember(stream, size)
        if info.isreg() and not sparse:
            yield Member(name, size, part)
        elif not info.isdir():
            yield Member(name, refusal=Refusal(Reason.NOT_A_FILE, "a link, a device or a file with holes, not a file"))
        part.skip()
    while data := stream.read(_CHUNK_BYTES):
        if any(data):
            raise _damage("bytes after the mark of its end, such as another archive; they are not read")


class _TarMember:
    """The bytes of one member of a tar archive."""

    def __init__(self, stream: Stream, size: int) -> None:
        self._stream, self._left, self._padding = stream, size, -size % _BLOCK

    def read(self, size: int, /) -> bytes:
        """At most `size` of the next bytes; none at the end.

        Raises:
            RefusedError: the archive ends before.
        """
        if not self._left:
            return b""
        data = self._stream.read(min(size, self._left))
        self._left -= len(data)
        if not data:
            raise _damage(f"the archive ends {self._left} bytes before the end of this member")
        return bytes(data)

    def skip(self) -> None:
        """Read on to the next header."""
        self._left, self._padding = self._left + self._padding, 0
        while self.read(_CHUNK_BYTES):
            pass


def _size(stated: str | None, info: tarfile.TarInfo) -> int:
    """Bytes behind a header.

    Raises:
        RefusedError: the size is no number.
    """
    if not info.isreg() and info.type in tarfile.SUPPORTED_TYPES and info.type != tarfile.GNUTYPE_SPARSE:
        return 0
    if stated is None:
        return info.size
    if not (stated.isascii() and stated.isdigit() and len(stated) < 20):
        raise _damage(f"a member of the size {stated!r:.40}")
    return int(stated)


def _pax_attributes(data: bytes) -> dict[str, str]:
    """The attributes of an extended header, records `LENGTH KEY=VALUE` (POSIX pax).

    Raises:
        RefusedError: it cannot be read.
    """
    attributes, at = dict[str, str](), 0
    while at < len(data) and data[at]:
        length, space, _ = data[at : at + 20].partition(b" ")
        if not space or not length.isdigit() or not len(length) + 1 < int(length) <= len(data) - at:
            raise _damage("an extended header that is none")
        key, _, value = data[at + len(length) + 1 : at + int(length) - 1].partition(b"=")
        attributes[_text(key)] = _text(value)
        at += int(length)
    return attributes


def _text(data: bytes) -> str:
    """A name as Python has names of files: bytes other than UTF-8 become lone surrogates."""
    return data.decode(errors="surrogateescape")


def _exactly(stream: Stream, size: int) -> bytes:
    """The next bytes, exactly so many.

    Raises:
        RefusedError: the archive ends before.
    """
    data = b""
    while len(data) < size:
        more = stream.read(size - len(data))
        if not more:
            raise _damage("it ends without the mark of its end" if not data else "it ends inside of a header")
        data += more
    return data


def _damage(detail: str) -> RefusedError:
    """The error of an archive of which no more can be read."""
    return RefusedError(Reason.CORRUPT_ARCHIVE, detail)


def _bomb(detail: str) -> RefusedError:
    """An archive too large once unpacked."""
    return RefusedError(Reason.DECOMPRESSION_BOMB, f"it unpacks to {detail}")
