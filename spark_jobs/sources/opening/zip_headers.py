"""Members of a zip file by the headers before each of them, and what directories and extra fields say beside names."""

from __future__ import annotations

import struct
import zipfile
import zlib
from typing import IO

from spark_jobs.sources.opening.compression import ZIP_MAGIC
from spark_jobs.sources.opening.limits import ArchiveLimits

FREE_BYTES = 16 << 20
"""What a stream may unpack to whatever its ratio, which says nothing about a small one."""
_HEADER = struct.Struct("<4s2xHH4xLLLHH")
# Bits 3 and 11 of the flags, the size that sends readers to the field of ZIP64, Info-ZIP's field of names (APPNOTE 4).
_SIZES_FOLLOW, _UTF8_NAME = 0x8, 0x800
_ZIP64, _CHUNK_BYTES = 0xFFFFFFFF, 1 << 18
_END_BYTES = 22 + 0xFFFF  # of the end of a directory, with the longest comment
_UNICODE_PATH, _LONGEST_NAME = 0x7075, 4096
_NEWEST_VERSION, _NEWEST_METHOD = 63, 99  # that a reader needs; how a member is packed
_ENDS = (b"PK\x01\x02", b"PK\x05\x06")  # a directory, or the end of an empty one


def check_directory(file: IO[bytes], place: int) -> bool:
    """Check that a directory of members belongs to this zip file.

    A cut zip file may end with a zip file stored as a member of it, and a reader finds that one's directory. A
    directory states its own place, counted from where its zip file begins: this tells the two apart. Where the file
    does not begin as a zip file does, a program to unpack it stands there, and often is not counted.

    Returns:
        Whether the file begins as a zip file does.

    Raises:
        zipfile.BadZipFile: the directory at this place says that it is elsewhere; so it is in concatenated files.
    """
    file.seek(0)
    begins = file.read(4) in ZIP_MAGIC
    file.seek(max(file.seek(0, 2) - _END_BYTES, 0))
    tail = file.read(_END_BYTES)
    (stated,) = struct.unpack_from("<L", tail, tail.rfind(b"PK\x05\x06") + 16)
    if stated not in (place, _ZIP64) and (begins or stated > place):
        raise zipfile.BadZipFile(f"that at {place} is of a zip file inside of it or after it")
    return begins


def holds_header(file: IO[bytes], end: int) -> bool:
    """Whether the header of a member stands before an offset, where a program to unpack the file may stand.

    Programs hold the mark of a header too, so that what stands behind it counts.
    """
    at, window = 0, b""
    while at < end:
        file.seek(at)
        data = file.read(min(_CHUNK_BYTES, end - at))
        if not data:
            return False
        at += len(data)
        window += data
        offset = window.find(ZIP_MAGIC[0])
        while 0 <= offset <= len(window) - _HEADER.size - 1:
            if _is_header(window[offset : offset + _HEADER.size + _LONGEST_NAME]):
                return True
            offset = window.find(ZIP_MAGIC[0], offset + 1)
        window = window[-_HEADER.size - _LONGEST_NAME :]
    return False


def _is_header(data: bytes) -> bool:
    """Whether this begins as the header of a member does: with valid numbers, and a name on one line."""
    version = int.from_bytes(data[4:6], "little")
    _, _, method, _, _, _, name_bytes, _ = _HEADER.unpack_from(data)
    name = data[_HEADER.size : _HEADER.size + name_bytes]
    is_named = 0 < len(name) == name_bytes <= _LONGEST_NAME and min(name) >= ord(" ")
    return is_named and version <= _NEWEST_VERSION and method <= _NEWEST_METHOD


def unicode_path(info: zipfile.ZipInfo) -> str | None:
    """The name of a member by its extra field 0x7075, unless that was made for another name (APPNOTE 4.6.9)."""
    extra, at = info.extra, 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, at)
        data = extra[at + 4 : at + 4 + size]
        if kind == _UNICODE_PATH and len(data) == size > 5 and data[0] == 1:
            raw = info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8_NAME else "cp437", "surrogateescape")
            if int.from_bytes(data[1:5], "little") == zlib.crc32(raw):
                return data[5:].decode(errors="surrogateescape")
        at += 4 + size
    return None


def members_by_headers(file: IO[bytes], limits: ArchiveLimits) -> tuple[list[zipfile.ZipInfo], bool]:
    """The members in the order of their offsets, and whether a directory follows them: else the file was cut.

    Names marked as UTF-8 by mistake have lone surrogates.
    """
    members, at = list[zipfile.ZipInfo](), 0
    while len(members) <= limits.max_members:
        file.seek(at)
        head = file.read(_HEADER.size)
        if head[:4] != b"PK\x03\x04" or len(head) < _HEADER.size:
            return members, head[:4] in _ENDS
        _, flags, method, crc, packed_bytes, size, name_bytes, extra_bytes = _HEADER.unpack(head)
        name, extra = file.read(name_bytes), file.read(extra_bytes)
        if len(extra) < extra_bytes:
            return members, False
        at += _HEADER.size + name_bytes + extra_bytes
        info = zipfile.ZipInfo(name.decode("utf-8" if flags & _UTF8_NAME else "cp437", "surrogateescape"))
        if flags & _SIZES_FOLLOW and method != zipfile.ZIP_DEFLATED:
            return members, False  # nothing says where it ends
        if flags & _SIZES_FOLLOW:
            packed_bytes, size, crc = _measured(file, limits.max_ratio)
        elif extra[:2] == b"\1\0" and packed_bytes == _ZIP64 and extra_bytes >= 20:
            size, packed_bytes = struct.unpack_from("<QQ", extra, 4)
        info.header_offset = at - _HEADER.size - name_bytes - extra_bytes
        info.flag_bits, info.compress_type, info.extra = flags, method, extra
        info.compress_size, info.file_size, info.CRC = packed_bytes, size, crc
        members.append(info)
        at += packed_bytes
        if flags & _SIZES_FOLLOW:
            file.seek(at)
            follows = file.read(28)
            at += next((end for end in (16, 24, 12, 20) if follows[end : end + 2] == b"PK"), 16)
    return members, False


def _measured(file: IO[bytes], max_ratio: int) -> tuple[int, int, int]:
    """Packed size, size and checksum of the member beginning here; up to where it breaks off or becomes too much."""
    start, decompressor, size, crc = file.tell(), zlib.decompressobj(-zlib.MAX_WBITS), 0, 0
    data = b""
    while not decompressor.eof and (data := decompressor.unconsumed_tail or file.read(_CHUNK_BYTES)):
        try:
            text = decompressor.decompress(data, _CHUNK_BYTES)
        except zlib.error:
            break
        size, crc = size + len(text), zlib.crc32(text, crc)
        if size > max(FREE_BYTES, max_ratio * (file.tell() - start)):
            break
    beyond = int(not decompressor.eof)  # so that a member which breaks off is not taken for a whole one
    return file.tell() - start - len(decompressor.unused_data) + beyond, size + beyond, crc
