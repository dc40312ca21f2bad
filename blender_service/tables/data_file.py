"""Open a data file of a table, packed or of text: every page with its checksum, and what is wrong in one line.

Arrow raises OSError for damaged content as well as for a store that does not answer, so what the store raises is
marked: damage is a `PackedTableError`, which another try does not mend, all else may succeed later.

Spark and headrace write a checksum into every page. PyArrow and PyIceberg write none by default; pages without one are
read unchecked, and what a bit changes in them is found by its other rules alone, or by a digest of the rows that was
noted before (`text_table`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from blender_service.exceptions import (
    EXHAUSTED,
    BlenderError,
    PackedTableError,
    ServerExhaustedError,
    ServerUnavailableError,
)

# Damaged metadata gives columns of other names, types and sizes, so that errors of Python come up as well as Arrow's.
FAULTS: Final = (OSError, pa.ArrowException, LookupError, ValueError, TypeError, AttributeError, MemoryError)
PAGE_HEADER_BYTES: Final = 32  # more than the fields up to the checksum can take
OF_PACKED: Final = (
    "a bit that flips in the store is served unnoticed; pack the table again with this version of headrace"
)
OF_TEXTS: Final = (
    "a bit that flipped in the store before its first blend was made is served unnoticed; write it with them "
    "(write_page_checksum=True of PyArrow)"
)
COMPACT_INT32: Final = 0x15  # Thrift's compact protocol: an i32 follows, its field is the next one

logger = logging.getLogger(__name__)


class StoreError(Exception):
    """The store does not give a file's bytes, whatever they are."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class StoredFile:
    """A file of a store, with marked errors.

    Attributes:
        seconds: spent in the store.
        byte_count: bytes given by it.
    """

    closed = False

    def __init__(self, file_io: FileIO, path: str) -> None:
        """Open it.

        Raises:
            FileNotFoundError: it is not there.
            StoreError: the store does not answer.
        """
        self.seconds, self.byte_count = 0.0, 0
        began = time.monotonic()
        try:
            self._stream = file_io.new_input(path).open()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreError(error) from error
        self.seconds = time.monotonic() - began

    def read(self, size: int = -1) -> bytes:
        """Give the next bytes."""
        began = time.monotonic()
        try:
            content = self._stream.read(size)
        except OSError as error:
            raise StoreError(error) from error
        self.seconds += time.monotonic() - began
        self.byte_count += len(content)
        return content

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place."""
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        """Give the place."""
        return self._stream.tell()

    def close(self) -> None:
        """Close it."""
        self.closed = True
        self._stream.close()


@contextmanager
def opened_parquet(file_io: FileIO, path: str) -> Iterator[tuple[pq.ParquetFile, StoredFile]]:
    """Open a data file; what it raises and what reading it raises is for `told`."""
    with (
        closing(StoredFile(file_io, path)) as stream,
        pq.ParquetFile(stream, page_checksum_verification=True) as file,
    ):
        yield file, stream


def told(where: str, error: Exception) -> BlenderError:
    """Make the error of a service of one that came up while a data file was read.

    Args:
        where: the table and the file.
        error: a `StoreError`, or one of `FAULTS`.
    """
    if isinstance(error, StoreError):
        if error.reason.errno in EXHAUSTED:
            return ServerExhaustedError(
                f"{where}: {error.reason.strerror}; raise that limit, or read from another replica"
            )
        return ServerUnavailableError(f"{where}: its store does not answer: {error}; see that it runs, and read again")
    if isinstance(error, MemoryError):
        return ServerExhaustedError(f"{where}: no memory to read it: {error}; lower --cache-memory")
    text = " ".join(str(error).split())  # Thrift's has several lines
    return PackedTableError(f"{where} cannot be read: {text}; restore the file")


def warn_without_checksums(where: str, file_io: FileIO, paths: Sequence[str], consequence: str) -> None:
    """Log a warning about a table of whose first or last file the pages have no checksums."""
    if not all(has_page_checksums(file_io, path) for path in {*paths[:1], *paths[-1:]}):
        logger.warning("%s has files whose Parquet pages have no checksums, so %s", where, consequence)


def has_page_checksums(file_io: FileIO, path: str) -> bool:
    """Say whether the pages of a data file have checksums, judged by its first page.

    An unreadable file counts as having them: reading its rows will tell what is wrong with it.
    """
    try:
        with opened_parquet(file_io, path) as (file, stream):
            column = file.metadata.row_group(0).column(0)
            stream.seek(column.dictionary_page_offset or column.data_page_offset)
            header = stream.read(PAGE_HEADER_BYTES)
    except (StoreError, *FAULTS):
        return True
    # Fields 1 to 3 of a page's header (its kind and two sizes) are i32 and always there; 4, the checksum, may not be.
    at = 0
    for _ in range(3):
        at += 2 + next((length for length, byte in enumerate(header[at + 1 :]) if byte < 0x80), 0)
    return header[at : at + 1] == bytes([COMPACT_INT32])
