"""Header blocks of HTTP/2 without a table that changes: for who announces that it keeps none, and keeps none itself.

Source: RFC 7541
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final

# Appendix A: names and, after a bar, values; ~ for a blank.
_KNOWN: Final = (
    ":authority :method|GET :method|POST :path|/ :path|/index.html :scheme|http :scheme|https :status|200 "
    ":status|204 :status|206 :status|304 :status|400 :status|404 :status|500 accept-charset "
    "accept-encoding|gzip,~deflate accept-language accept-ranges accept access-control-allow-origin age allow "
    "authorization cache-control content-disposition content-encoding content-language content-length "
    "content-location content-range content-type cookie date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified link location max-forwards "
    "proxy-authenticate proxy-authorization range referer refresh retry-after server set-cookie "
    "strict-transport-security transfer-encoding user-agent vary via www-authenticate "
)
_STATIC: Final = [
    (name.encode(), value.replace("~", " ").encode())
    for name, _, value in (one.partition("|") for one in _KNOWN.split())
]
# Appendix B: the lengths of the codes of bytes 0 to 255 and of the end, a for 5 bits, z for 30; the codes follow from
# these, as they do in any canonical Huffman code.
_LENGTHS: Final = (
    "isxxxxxxxtzxxzxxxxxxxxzxxxxxxxxxbffhibdgffdgdbbbaaabbbbbbbcdkbhf"
    "ibccccccccccccccccccccccdcdioijbkabababbbaccbbbabcbaabccccckgjix"
    "prpprrrsrssssststtrstssssqrsrsstrqprrssqsrrtqrssqqrqsrssprrrsrrs"
    "vvporsruvvvwwvtuoqvwwvwtqqvvxwwwptpqrqqsrruuttvsvwvvwwwwwxwwwwwv"
    "z"
)
_LITERAL: Final = b"\x10"  # name and value follow, to be kept in no table
_END: Final = 256


class HeaderBlockError(ValueError):
    """A header block cannot be read."""


def write_headers(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Write headers as they are."""
    return b"".join(_LITERAL + _written(name) + _written(value) for name, value in headers)


def read_headers(block: bytes) -> list[tuple[bytes, bytes]]:
    """Read headers.

    Raises:
        HeaderBlockError: the block breaks off, or needs a table.
    """
    found = []
    at = 0
    while at < len(block):
        first = block[at]
        if first & 0x80:  # one of the known ones
            index, at = _integer(block, at, 7)
            found.append(_known(index))
        elif first & 0xE0 == 0x20:
            size, at = _integer(block, at, 5)
            if size:
                raise HeaderBlockError(f"a table of {size} bytes, none is kept")
        else:  # a table of no bytes keeps nothing, also where it is asked to
            index, at = _integer(block, at, 6 if first & 0x40 else 4)
            if index:
                name = _known(index)[0]
            else:
                name, at = _string(block, at)
            value, at = _string(block, at)
            found.append((name, value))
    return found


def _written(content: bytes) -> bytes:
    """Write a string: its length, in 7 bits and then in groups of 7, and its bytes."""
    size = len(content)
    if size < 0x7F:
        return bytes((size,)) + content
    groups = [0x7F]
    size -= 0x7F
    while size >= 0x80:
        groups.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((*groups, size)) + content


def _known(index: int) -> tuple[bytes, bytes]:
    if not 1 <= index <= len(_STATIC):
        raise HeaderBlockError(f"header {index} of a table of {len(_STATIC)}")
    return _STATIC[index - 1]


def _integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """Read a number that begins in the low bits of a byte; give it with the place after it."""
    most = (1 << bits) - 1
    value = block[at] & most
    at += 1
    if value < most:
        return value, at
    for shift in range(0, 35, 7):
        if at == len(block):
            break
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise HeaderBlockError("a number that does not end")


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    """Read a string; give it with the place after it."""
    if at == len(block):
        raise HeaderBlockError("it ends where a string should be")
    is_packed = block[at] & 0x80
    size, at = _integer(block, at, 7)
    if at + size > len(block):
        raise HeaderBlockError(f"a string of {size} bytes, {len(block) - at} are there")
    content = block[at : at + size]
    return (_unpacked(content) if is_packed else content), at + size


@functools.cache
def _codes() -> dict[tuple[int, int], int]:
    """Give the symbol of each code, known by its length and its bits."""
    lengths = [ord(letter) - ord("a") + 5 for letter in _LENGTHS]
    found: dict[tuple[int, int], int] = {}
    code = before = 0
    for symbol in sorted(range(len(lengths)), key=lambda one: (lengths[one], one)):
        code <<= lengths[symbol] - before
        before = lengths[symbol]
        found[before, code] = symbol
        code += 1
    return found


def _unpacked(content: bytes) -> bytes:
    """Read Huffman's code."""
    codes = _codes()
    found = bytearray()
    code = length = 0
    for byte in content:
        for place in range(7, -1, -1):
            code = code << 1 | byte >> place & 1
            length += 1
            symbol = codes.get((length, code))
            if symbol is None:
                continue
            if symbol == _END:
                raise HeaderBlockError("the end inside a string")
            found.append(symbol)
            code = length = 0
    if length > 7 or code != (1 << length) - 1:
        raise HeaderBlockError("a string that breaks off")
    return bytes(found)
