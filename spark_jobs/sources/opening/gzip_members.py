"""Decompress a gzip file of any number of members, and say where each begins.

Of a damaged file all bytes before the damage are given first; a member ending early is damaged too. The standard
library's GzipFile raises at once, loses what it has decompressed, and does not say where members begin.
"""

from __future__ import annotations

import zlib
from collections import deque

from spark_jobs.sources.opening.streams import Stream

_CHUNK_BYTES = 1 << 16
_GZIP_WITH_HEADER = 31  # of zlib's wbits: a gzip header and checksum, the largest window


class GzipMembers:
    """The decompressed bytes of an open gzip file, in bounded memory."""

    def __init__(self, file: Stream) -> None:
        self._file, self._held = file, b""
        self._taken = self._given = 0  # bytes read from the file, bytes given to the caller
        self._member: zlib._Decompress | None = None
        self._starts = deque[tuple[int, int]]()

    def read(self, size: int, /) -> bytes:
        """At most `size` of the next bytes; none at the end.

        Raises:
            OSError: here the file is damaged, or ends inside of a member.
        """
        while self._member is not None or self._next_member():
            assert self._member is not None
            try:
                data = self._member.decompress(self._held, size)
            except zlib.error as error:
                raise OSError(f"damaged gzip: {error}") from error
            self._held = self._member.unconsumed_tail or self._member.unused_data
            if self._member.eof:
                self._member = None
            elif not data and not self._fill():
                raise OSError(f"ends inside of a gzip member, after {self._taken} bytes")
            if data:
                self._given += len(data)
                return data
        return b""

    def tell(self) -> int:
        """How many bytes were given."""
        return self._given

    def member_start(self, position: int) -> int:
        """Offset in the file of the member behind the decompressed byte at a position; positions must ascend."""
        while len(self._starts) > 1 and self._starts[1][0] <= position:
            self._starts.popleft()
        return self._starts[0][1]

    def _next_member(self) -> bool:
        """Begin a member, past null bytes padding the one before; false at the end of the file."""
        self._held = self._held.lstrip(b"\0") if self._given else self._held
        while not self._held:
            if not self._fill():
                return False
            self._held = self._held.lstrip(b"\0") if self._given else self._held
        self._member = zlib.decompressobj(_GZIP_WITH_HEADER)
        self._starts.append((self._given, self._taken - len(self._held)))
        return True

    def _fill(self) -> bool:
        """Read more of the file; false at its end."""
        more = self._file.read(_CHUNK_BYTES)
        self._taken += len(more)
        self._held += more
        return bool(more)
