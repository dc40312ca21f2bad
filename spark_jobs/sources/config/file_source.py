"""Sources of files: their listing and their bytes; the base of every source in other packages.

    class SqlSource(Source):                       # headrace.Source
        path: str = Field(description="SQLite file")

        def entries(self) -> Iterator[FoundFile]:
            for number, size, changed in rows_of(self.path):
                yield FoundFile(f"{self.path}#{number}", f"{number}.txt", size, changed)

        def open(self, location: str) -> IO[bytes]:
            return io.BytesIO(text_of(location))

What is new, changed or gone follows from comparing the entries with those of the run before. How bytes become documents
is declared by the fields of `FileReading`, part of every such source: formats, encodings, columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from pydantic import Field

from spark_jobs.sources.config.file_reading import FileReading
from spark_jobs.sources.config.permissions import Asking
from spark_jobs.sources.opening.file_trees import FoundFile


class FileSource(FileReading):
    """A source of files: a pydantic model of its fields, with two methods."""

    kind: str = Field("", description="name or package.module:Class by which it was declared")
    rights: Asking = Field(
        Asking(), description="who is asked what may be taken; docs/operate/rights.md", exclude_if=Asking().__eq__
    )

    @property
    def listed_as(self) -> str:
        """The kind (`sources.kinds`) with the code to list and open it."""
        return "files"

    @property
    def lake_tables(self) -> tuple[str, ...]:
        """Its input tables in this lake; its documents are closed to those refused there."""
        return ()

    def entries(self) -> Iterator[FoundFile]:
        """Every file of the present, in any order.

        Called on the driver, once a run. A file is read again where its size or time is another than in the run before;
        one not coming any more is gone. Yield a `refusal` with what is there and cannot be read.

        Raises:
            InputError: the source cannot be reached, or what it names does not exist; the run ends with the message.
        """
        raise NotImplementedError(f"{type(self).__name__}.entries")

    def open(self, location: str) -> IO[bytes] | Any:
        """The bytes of a file.

        Called on the workers, with the `location` of an entry.

        Raises:
            OSError: they cannot be read; the file is refused with the message, the others go on.
        """
        raise NotImplementedError(f"{type(self).__name__}.open")
