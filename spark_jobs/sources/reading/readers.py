"""Tell by a file's name, or by its content where the name says nothing, its reader and what its documents are."""

from __future__ import annotations

import os

from spark_jobs.features import missing
from spark_jobs.sources.config.file_reading import FileReading
from spark_jobs.sources.config.reader import reader_by_extension
from spark_jobs.sources.languages import PAGE_START, PLAIN_TEXT, Language, language_columns, language_of
from spark_jobs.sources.opening.compression import CODECS, ZIP_MAGIC, unpacked
from spark_jobs.sources.reading.built_in import COLUMN_READERS, READERS
from spark_jobs.sources.reading.content_types import content_type
from spark_jobs.sources.refusals import Reason, Refusal

_READERS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".jsonlines": "jsonl",
    ".json": "json",  # with a text_column
    ".csv": "csv",
    ".tsv": "tsv",
    ".warc": "warc",
    ".wet": "warc",
    ".mbox": "mbox",
    ".xml": "xml",  # with an xml_element
    ".log": "log",  # with a line_pattern
    ".pdf": "pdf",
    ".docx": "docx",
    ".docm": "docx",
    ".dotx": "docx",
    ".dotm": "docx",
    ".epub": "epub",
    ".mhtml": "mhtml",
    ".mht": "mhtml",
    ".eml": "mail",
    ".ipynb": "notebook",
    ".text": "text",
}
_PICTURE_EXTENSIONS = (".png", ".jpg", ".jpeg", ".tif", ".tiff")
_PAGE_READERS = {".html": "html", ".htm": "html", ".xhtml": "xhtml", ".xht": "xhtml"}
_EPUB, _FIRST_NAME = b"mimetypeapplication/epub+zip", 30  # its first member is stored, behind a header of 30 bytes
_ARCHIVE_EXTENSIONS = (".zip", ".tar", ".tgz", ".tzst", ".txz", ".tbz2", ".tbz")


def reader_by_name(path: str, source: FileReading, stated: str) -> tuple[str | None, Language]:
    """The reader of a file, by its stated format or its extension, and what its documents are; see `FileReading`."""
    reader = _reader_of(path, source, stated)
    if reader is None and source.unknown == "detect":
        reader = "detect"
    language = Language(source.record_kind, None, "") if reader in COLUMN_READERS else language_of(unpacked(path))
    is_reader = reader in READERS or reader in missing("readers")
    if is_reader and reader != "text" and reader not in COLUMN_READERS:
        language = PLAIN_TEXT
    if stated == "markdown":
        language = Language("prose", None, "text/markdown")
    return reader, language or PLAIN_TEXT


def columns_by_content(head: bytes, source: FileReading) -> dict[str, str | None] | Refusal:
    """Columns of the listing of a file not identified by its name, by its beginning, and what it was taken for.

    What the content is makes the name of a file (`x.py`), told by its name. A text in a language without a name in this
    project is a text; records without a `text_column` are the text of one document.
    """
    if PAGE_START.match(head):  # the model takes short ones for much else
        name = "x.xhtml" if head.lstrip().startswith(b"<?xml") else "x.html"
        reader, language = reader_by_name(name, source, "auto")
        return {"detected": "html", **language_columns(reader or "html", language)}
    if head.startswith(ZIP_MAGIC) and head[_FIRST_NAME:].startswith(_EPUB):
        return {"detected": "epub", **language_columns("epub", PLAIN_TEXT)}
    detected = content_type(head)
    by = {"detected": f"{detected.label} (magika {detected.version})"}
    for extension in detected.extensions:
        reader, language = reader_by_name(f"x.{extension}", source, "auto")
        if reader == "archive" and detected.label not in ("tar", "zip"):
            continue  # what is compressed says nothing about what is in it
        if reader in COLUMN_READERS and source.body_column is None:
            reader, language = "text", language_of(f"x.{extension}") or language
        if reader not in (None, "detect") and (reader != "text" or detected.text_kind):
            return by | language_columns(reader, (detected.language or language) if reader == "text" else language)
    if head.startswith(ZIP_MAGIC):  # the model takes small ones for much else
        return by | language_columns("archive", PLAIN_TEXT)
    if detected.text_kind is not None:
        return by | language_columns("text", Language(detected.text_kind, None, "text/plain"))
    return Refusal(Reason.UNKNOWN_CONTENT, f"no reader for what its content is: {detected.label}")


def _reader_of(path: str, source: FileReading, stated: str) -> str | None:
    """The reader for a file, by the stated format, else by the extension."""
    stem, extension = os.path.splitext(path.lower())
    if stated == "html" or (stated == "auto" and extension in _PAGE_READERS):
        return "text" if source.extractor == "none" else _PAGE_READERS.get(extension, "html")
    if stated != "auto":
        return "text" if stated in ("text", "markdown") else stated
    if extension in _ARCHIVE_EXTENSIONS:
        return "archive"
    if extension in CODECS:
        if os.path.splitext(stem)[1] == ".tar":
            return "archive"
        reader = _reader_of(stem, source, "auto")
        return None if reader == "archive" else reader
    if is_picture(path) and source.ocr.engine != "none":
        return "picture"
    has_columns = source.body_column is not None  # as for .jsonl, whatever is declared for .xml and .log beside
    lacking = {".xml": source.xml_element is None, ".log": source.line_pattern is None, ".json": not has_columns}
    if not lacking.get(extension, False) and (reader := _READERS.get(extension)):
        return reader
    return reader_by_extension(extension) or ("text" if language_of(path) else None)


def is_picture(path: str) -> bool:
    """Whether a file is a picture, perhaps of a page."""
    return path.lower().endswith(_PICTURE_EXTENSIONS)
