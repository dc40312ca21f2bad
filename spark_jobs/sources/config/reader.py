"""Readers of formats unknown to headrace: from the bytes of a file to its documents.

    @reader(extensions=(".srt",), version="1")
    def subtitles(data: bytes) -> Iterator[Document | Refusal]:
        yield Document(" ".join(line for line in data.decode().splitlines() if line.strip() and not is_time(line)))

A package declares it as an entry point of the group `headrace.readers`, and takes files with these extensions from then
on; inside a project `format: mill.readers:subtitles` does for one source. It runs in a process of its own, ended where
a file takes too much time (`extract_seconds`) or memory; an error raised by it refuses that file alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from spark_jobs.exceptions import StepDeclarationError
from spark_jobs.plugins import declared, load
from spark_jobs.sources.refusals import Refusal
from spark_jobs.threads import made_once

if TYPE_CHECKING:
    from spark_jobs.sources.config.file_reading import FileReading

OWN_FORMATS: Final = (
    *("parquet", "jsonl", "json", "csv", "tsv", "text", "markdown", "html", "xhtml", "mhtml", "epub", "warc", "pdf"),
    "picture",
    *("docx", "mail", "archive", "mbox", "notebook", "xml", "log"),
)
"""What `format` may name beside `auto` and readers of packages."""


class BuiltIn(NamedTuple):
    """A reader of headrace.

    Attributes:
        gives: one of the kinds in the docstring of `reading.built_in`.
        function: module and name of the reading function; it is imported when a file is read.
        packages: foreign packages needed by it; a file is refused without one, so none decides rows by being there.
        extra: the extra of headrace to install them; `ingest` installs all but `ocr`.
        apart: whether the function is called in another process.
        recoded: whether it reads lines of text, in any encoding with `encoding: detect`.
        has_columns: whether its records have named columns, listed by `names_in` of the same module.
        unit: what the numbers of its records count.
        nothing: why a file without records holds none.
        options: what of the source the function is given in another process, behind the bytes.
        needs: further packages needed by it, by what the source chose.
        check: module and name of a function to refuse settings of a source of such files.
    """

    gives: Literal["text", "document", "records", "files", "facts", "content"]
    function: str = ""
    packages: tuple[str, ...] = ()
    extra: str = "ingest"
    apart: bool = True
    recoded: bool = False
    has_columns: bool = False
    unit: str = "line"
    nothing: str = "the file holds no record"
    options: Callable[[FileReading], tuple[Any, ...]] | None = None
    needs: Callable[[FileReading], tuple[str, ...]] | None = None
    check: str = ""


class ColumnReading(NamedTuple):
    """How values of a column that are no text, such as messages, become texts of documents.

    Attributes:
        version: of the rule; it is part of the step key of sources with such a column.
        function: module and name of a function from the value, that of the column beside it, and whether null may stand
            for what is not there, to the text and more metadata; a ValueError refuses the record.
    """

    version: str
    function: str


@dataclass(frozen=True)
class Document:
    """A document in a file, as its reader gives it.

    Attributes:
        text: of it.
        name: of its part of the file, behind `#` in its path; empty where the file is one document.
        metadata: what the file says about it, kept in the map `metadata`.
        kind: code, prose, markup or data.
        language: of code as Linguist names it, of prose as a code such as `en`.
        media_type: without parameters.
    """

    text: str
    name: str = ""
    metadata: Mapping[str, str] | None = None
    kind: str = "prose"
    language: str | None = None
    media_type: str = "text/plain"


@dataclass(frozen=True)
class Reader:
    """The reading function of a format.

    Attributes:
        function: from the bytes of a file, decompressed, to its documents and what of it cannot be read.
        extensions: of its files, with their dot, in lower case.
        version: is written into the metadata of its documents.
    """

    function: Callable[[bytes], Iterable[Document | Refusal]]
    extensions: tuple[str, ...]
    version: str

    def __call__(self, data: bytes) -> Iterable[Document | Refusal]:
        """Call the function."""
        return self.function(data)


def reader(
    *, extensions: Sequence[str], version: str
) -> Callable[[Callable[[bytes], Iterable[Document | Refusal]]], Reader]:
    """Declare the reading function of a format.

    Args:
        extensions: of its files, such as `.srt`.
        version: changed whenever its documents change.

    Raises:
        StepDeclarationError: an extension has no dot or an upper-case letter.
    """
    if wrong := next(
        (extension for extension in extensions if not extension.startswith(".") or extension != extension.lower()), None
    ):
        raise StepDeclarationError(f"reader: extension {wrong!r} is not one; write it as .{wrong.strip('.').lower()}")
    return lambda function: Reader(function, tuple(extensions), version)


def require_reader(name: str) -> str:
    """The name or reference of an importable reader.

    Raises:
        ConfigError: it cannot.
    """
    load("readers", name, Reader, OWN_FORMATS)
    return name


def reader_by_extension(extension: str) -> str | None:
    """The name of an installed package's reader for an extension; of several the first by name."""
    return _by_extension().get(extension)


@made_once
def _by_extension() -> dict[str, str]:
    names = sorted(declared("readers"), reverse=True)
    return {extension: name for name in names for extension in load("readers", name, Reader).extensions}
