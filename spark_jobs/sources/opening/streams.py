"""Streams of bytes, read once, from start to end, and hashed on the way."""

from __future__ import annotations

import hashlib
import io
import tempfile
from typing import IO, Protocol, cast

from spark_jobs.sources.refusals import Reason, RefusedError

BATCH_BYTES = 16 << 20


class Stream(Protocol):
    """Bytes of a file, decompressed."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none at the end."""


class HashedFile(io.RawIOBase):
    """A file, or a member of an archive, that is hashed while it is read from start to end."""

    def __init__(self, file: Stream) -> None:
        super().__init__()
        self.file = file
        self._hash = hashlib.sha256()
        self._given = 0
        self._head = b""
        self._copy: IO[bytes] | None = None

    def close(self) -> None:
        """Remove the temporary file, where there is one; the file itself stays open."""
        if self._copy is not None:
            self._copy.close()
        super().close()

    def readable(self) -> bool:
        """Always true; the base class requires it."""
        return True

    def head(self, size: int) -> bytes:
        """The first bytes, given by `read` too."""
        self._head += read_up_to(self.file, size - len(self._head))
        return self._head[:size]

    def read(self, size: int = -1) -> bytes:
        """The next bytes, fewer than asked for only where they come in pieces or at the end; without a size all."""
        if size < 0:
            return b"".join(iter(lambda: self.read(BATCH_BYTES), b""))
        data, self._head = self._head[:size], self._head[size:]
        data = data or bytes(self.file.read(size))
        self._hash.update(data)
        self._given += len(data)
        return data

    def tell(self) -> int:
        """How many bytes were read."""
        return self._given

    def random_access(self, most_bytes: int) -> IO[bytes]:
        """The same bytes, readable at any offset: the file itself, or a temporary copy of a member.

        Raises:
            OSError: the member is damaged, or larger than such a file may be.
        """
        if (file := _seekable(self.file)) is not None:
            file.seek(0)
            self._head = b""
            return file
        self._copy = tempfile.TemporaryFile()  # noqa: SIM115 - `close` ends it
        while data := self.read(BATCH_BYTES):
            if self._given > most_bytes:
                raise RefusedError(Reason.TOO_LARGE, f"more than {most_bytes} bytes, the max_temporary_bytes")
            self._copy.write(data)
        self._copy.seek(0)
        return self._copy

    def sha256_to_end(self) -> str:
        """SHA-256 of the whole file, reading what is left; what was read at random offsets is read once more."""
        if not self._given and (file := _seekable(self.file)) is not None:
            file.seek(0)
        while self.read(BATCH_BYTES):
            pass
        return self._hash.hexdigest()


def _seekable(file: Stream) -> IO[bytes] | None:
    """The file, if it can be read at any offset; else None."""
    return cast("IO[bytes]", file) if getattr(file, "seekable", bool)() else None


def read_up_to(stream: Stream, size: int) -> bytes:
    """The next bytes of a stream, perhaps given in pieces; fewer only at its end."""
    pieces, left = list[bytes](), size
    while left > 0 and (piece := stream.read(min(left, BATCH_BYTES))):
        pieces.append(bytes(piece))
        left -= len(piece)
    return b"".join(pieces)
