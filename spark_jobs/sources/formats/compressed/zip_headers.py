"""List the members of a zip file that has no directory of its own, by the headers before each of them."""

from __future__ import annotations

import struct
import zipfile
import zlib
from typing import IO

from spark_jobs.sources.source_config import ArchiveLimits

FREE_BYTES = 16 << 20
"""What a stream may unpack to whatever its ratio, which says nothing about a small one."""
_HEADER = struct.Struct("<4s2xHH4xLLLHH")
_SIZES_FOLLOW, _UTF8_NAME = 0x8, 0x800
_ZIP64, _CHUNK_BYTES = 0xFFFFFFFF, 1 << 18
_END_BYTES = 22 + 0xFFFF  # of the end of a directory, with the longest comment
_ENDS = (b"PK\x01\x02", b"PK\x05\x06")  # a directory, or the end of an empty one


def check_directory(file: IO[bytes], place: int) -> None:
    """Check that a directory of members belongs to this zip file.

    A zip file that was cut may end with a zip file that is a stored member of it, and a reader finds that one's
    directory. A directory states its own place, counted from where its zip file begins, which tells the two apart.

    Raises:
        zipfile.BadZipFile: the directory at this place says that it is elsewhere; so it is in concatenated files.
    """
    file.seek(max(file.seek(0, 2) - _END_BYTES, 0))
    tail = file.read(_END_BYTES)
    (stated,) = struct.unpack_from("<L", tail, tail.rfind(b"PK\x05\x06") + 16)
    if stated not in (place, _ZIP64):
        raise zipfile.BadZipFile(f"that at {place} is of a zip file inside of it or after it")


def members_by_headers(file: IO[bytes], limits: ArchiveLimits) -> tuple[list[zipfile.ZipInfo], bool]:
    """The members in the order of their places, and whether they go up to a directory: else the file was cut.

    Names that say that they are UTF-8 and are not have lone surrogates.
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
        info.header_offset, info.flag_bits, info.compress_type = (
            at - _HEADER.size - name_bytes - extra_bytes,
            flags,
            method,
        )
        info.compress_size, info.file_size, info.CRC = packed_bytes, size, crc
        members.append(info)
        at += packed_bytes
        if flags & _SIZES_FOLLOW:
            file.seek(at)
            follows = file.read(28)
            at += next((end for end in (16, 24, 12, 20) if follows[end : end + 2] == b"PK"), 16)
    return members, False


def _measured(file: IO[bytes], max_ratio: int) -> tuple[int, int, int]:
    """Packed size, size and checksum of the member that begins here; up to where it breaks off or becomes too much."""
    start, one, size, crc = file.tell(), zlib.decompressobj(-zlib.MAX_WBITS), 0, 0
    data = b""
    while not one.eof and (data := one.unconsumed_tail or file.read(_CHUNK_BYTES)):
        try:
            text = one.decompress(data, _CHUNK_BYTES)
        except zlib.error:
            break
        size, crc = size + len(text), zlib.crc32(text, crc)
        if size > max(FREE_BYTES, max_ratio * (file.tell() - start)):
            break
    beyond = int(not one.eof)  # so that a member which breaks off is not taken for a whole one
    return file.tell() - start - len(one.unused_data) + beyond, size + beyond, crc
