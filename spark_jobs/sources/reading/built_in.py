"""The readers of headrace by name: what each gives, which function reads, and which packages that needs.

    text       the file is the document
    document   a text is extracted: by a function from bytes to `Extracted` in another process, and where it is not
               `apart` by one from its name, bytes and source
    records    any number of documents: by a function from a `RecordFile` to its records
    files      an archive, each member read by its own reader
    facts      no document: what is known about repositories
    content    the reader is chosen by the content of the file

What is extracted is no part of the file, byte for byte. So the document is the text itself: content_sha256 and
byte_count are of its UTF-8, and its metadata names what extracted it (`headrace.extracted_by`). The hash and size of
the original file are in its arrival. Readers of packages (`config.reader`) give any number of such documents.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.features import brought, missing
from spark_jobs.plugins import attribute
from spark_jobs.sources.config.reader import BuiltIn
from spark_jobs.sources.opening.parser_process import run_apart
from spark_jobs.sources.records.extracted import Extracted, call_extractor
from spark_jobs.sources.refusals import Reason, Refusal

if TYPE_CHECKING:
    from spark_jobs.sources.config.file_reading import FileReading


READERS: Final[Mapping[str, BuiltIn]] = {
    "text": BuiltIn("text", recoded=True),
    "docstring": BuiltIn("document", "spark_jobs.sources.repositories.modules:module_docstring", apart=False),
    "description": BuiltIn("document", "spark_jobs.sources.repositories.modules:long_description", apart=False),
    "parquet": BuiltIn(
        "records", "spark_jobs.sources.formats.parquet_records:read_parquet", has_columns=True, unit="row"
    ),
    "jsonl": BuiltIn("records", "spark_jobs.sources.formats.jsonl_records:read_jsonl", recoded=True, has_columns=True),
    "json": BuiltIn(
        "records",
        "spark_jobs.sources.formats.json_records:read_json",
        recoded=True,
        has_columns=True,
        unit="item",
        nothing="the file holds no object of JSON",
    ),
    "csv": BuiltIn("records", "spark_jobs.sources.formats.csv_records:read_csv", recoded=True, has_columns=True),
    "tsv": BuiltIn("records", "spark_jobs.sources.formats.csv_records:read_csv", recoded=True, has_columns=True),
    "page": BuiltIn("records", "spark_jobs.sources.paged.page_records:read_page", unit="item"),
    "archive": BuiltIn("files"),
    "package": BuiltIn("files"),
    "repositories": BuiltIn("facts"),
    "git": BuiltIn("facts"),
    "detect": BuiltIn("content", packages=("magika",)),
    **{name: attribute(place) for name, place in brought("readers").items()},
}
PARTS: Final[Mapping[str, BuiltIn]] = {
    "front_matter": BuiltIn("document", "spark_jobs.sources.formats.front_matter:extract_front_matter"),
    "legacy": BuiltIn(
        "document",
        "spark_jobs.sources.formats.legacy_encoding:tell_encoding",
        ("resiliparse", "charset_normalizer"),
        "encodings",
        options=lambda source: (source.encoding,),
    ),
    **{name: attribute(place) for name, place in brought("reader_parts").items()},
}
"""What readers call for parts of a file: texts in web archives, what stands above Markdown, bytes in any encoding."""
COLUMN_READERS: Final = tuple(name for name, of in READERS.items() if of.has_columns)
"""Readers of files of records with named columns, of which one holds the text."""
_WHOLE: Final = tuple(name for name, of in READERS.items() if of.gives in ("text", "document"))
COLUMNLESS_READERS: Final = ("warc", "mbox", *_WHOLE)
"""Readers for which a `text_column` says nothing: their documents are texts of no column."""
ONE_DOCUMENT_READERS: Final = tuple(name for name, of in READERS.items() if of.gives in ("text", "document", "facts"))
"""Readers of files that hold no more than one document; those that packages bring may find any number."""


def extract(reader: str, data: bytes, *options: Any, source: FileReading) -> Extracted | Refusal:
    """Extract the text of one document.

    Args:
        reader: one for a document, or of PARTS.
        data: bytes of the document.
        options: what else is known about it, by format.
        source: what the user chose.
    """
    of = READERS.get(reader) or PARTS[reader]
    try:
        if not of.apart:
            extracted = attribute(of.function)(reader, data, source)
            if isinstance(extracted, Extracted):
                extracted.text.encode()
            return extracted  # type: ignore[no-any-return]
        if of.options is not None:
            options = (*of.options(source), *options)
        extracted = run_apart(call_extractor, source.extract_seconds, of.function, data, *options)
        return extracted if isinstance(extracted, Refusal) else Extracted(extracted[0].decode(), *extracted[1:])
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        return Refusal(Reason.UNDECODABLE, f"lone surrogate at {error.start} of the extracted text")


def packages_of(reader: str, source: FileReading) -> tuple[str, ...]:
    """The foreign packages needed by a reader for the files of a source."""
    of = READERS.get(reader, BuiltIn("document"))
    needed = of.packages if of.needs is None else (*of.packages, *of.needs(source))
    if of.recoded and source.encoding != "strict":
        needed += PARTS["legacy"].packages
    return needed


def missing_package(reader: str, source: FileReading) -> str | None:
    """A package needed by a reader and not installed, if there is one."""
    return next((name for name in packages_of(reader, source) if importlib.util.find_spec(name) is None), None)


def not_installed(reader: str, package: str) -> Refusal:
    """The refusal of a file because its reader needs a package not installed."""
    mend = f"pip install 'headrace[{READERS[reader].extra}]' and run again"
    return Refusal(Reason.NOT_INSTALLED, f"its reader needs {package}, which is not installed; {mend}")


def not_there(reader: str | None) -> Refusal | None:
    """The refusal of a file with a reader of a missing feature."""
    feature = missing("readers").get(reader or "")
    if feature is None:
        return None
    detail = f"its reader {reader} is of the feature {feature}, which is not installed here; install headrace whole"
    return Refusal(Reason.NOT_INSTALLED, f"{detail} and run again")
