"""The readers of headrace by name: what each gives, which function reads, and which packages that needs.

    text       the file is the document
    document   a text is extracted: by a function from bytes to `Extracted` in another process, and where it is not
               `apart` by one from its name, bytes and source
    records    any number of documents: by a function from a `RecordFile` to its records
    files      an archive, each member of which is read by its own reader
    facts      no document: what is known about repositories
    content    the reader is chosen by the content of the file

What is extracted is no part of the file, byte for byte. So the document is the text itself: content_sha256 and
byte_count are of its UTF-8, and its metadata names what extracted it (`headrace.extracted_by`). The hash and size of
the file that it came from are in its arrival. Readers of packages (`config.reader`) give any number of such documents.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from spark_jobs.plugins import attribute
from spark_jobs.sources.opening.parser_process import run_apart
from spark_jobs.sources.records.extracted import Extracted, call_extractor
from spark_jobs.sources.refusals import Reason, Refusal

if TYPE_CHECKING:
    from spark_jobs.sources.config.file_reading import FileReading


class BuiltIn(NamedTuple):
    """A reader of headrace.

    Attributes:
        gives: one of the kinds in the docstring of the module.
        function: module and name of the function that reads; it is imported when a file is read.
        packages: foreign packages that it needs; a file is refused without one, so none decides rows by being there.
        extra: the extra of headrace that installs them; `ingest` installs all but `ocr`.
        apart: whether the function is called in another process.
        recoded: whether it reads lines of text, which `encoding: detect` may find to be in any encoding.
        has_columns: whether its records have named columns, which `names_in` of the same module gives.
        unit: what the numbers of its records count.
        nothing: why a file without records holds none.
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


_PAGES: Final = "spark_jobs.sources.formats.pages.ocr:read_pages"
_RAPIDOCR: Final = ("rapidocr", "onnxruntime", "cv2", "PIL")
_TRAFILATURA: Final = ("trafilatura", "justext", "lxml_html_clean")  # it imports the others
READERS: Final[Mapping[str, BuiltIn]] = {
    "text": BuiltIn("text", recoded=True),
    "docstring": BuiltIn("document", "spark_jobs.sources.repositories.modules:module_docstring", apart=False),
    "description": BuiltIn("document", "spark_jobs.sources.repositories.modules:long_description", apart=False),
    "html": BuiltIn("document", "spark_jobs.sources.formats.web.html:extract_page", ("resiliparse",), "html"),
    "xhtml": BuiltIn("document", "spark_jobs.sources.formats.web.xhtml:extract_xhtml", ("resiliparse",), "html"),
    "mhtml": BuiltIn("document", "spark_jobs.sources.formats.web.mhtml:extract_mhtml", ("resiliparse",), "html"),
    "epub": BuiltIn("document", "spark_jobs.sources.formats.web.epub:extract_epub", ("resiliparse",), "html"),
    "docx": BuiltIn("document", "spark_jobs.sources.formats.word:extract_docx", ("resiliparse",), "office"),
    "mail": BuiltIn("document", "spark_jobs.sources.formats.mail:extract_mail", ("resiliparse",), "mail"),
    "notebook": BuiltIn("document", "spark_jobs.sources.formats.notebooks:extract_notebook"),
    "pdf": BuiltIn(
        "document", "spark_jobs.sources.formats.pages.ocr:read_pages", ("pypdfium2", "justext"), "pdf", apart=False
    ),
    "picture": BuiltIn("document", "spark_jobs.sources.formats.pages.ocr:read_pages", ("PIL",), "ocr", apart=False),
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
    "log": BuiltIn("records", "spark_jobs.sources.formats.log_lines:read_log", ("re2",), "logs", recoded=True),
    "mbox": BuiltIn("records", "spark_jobs.sources.formats.mailboxes:read_mailbox", ("resiliparse",), "mail"),
    "xml": BuiltIn(
        "records",
        "spark_jobs.sources.formats.xml_elements:read_xml",
        unit="element",
        nothing="no element of the file has the name that xml_element gives",
    ),
    "warc": BuiltIn(
        "records",
        "spark_jobs.sources.formats.web_archives:read_archive",
        ("fastwarc", "resiliparse"),
        "warc",
        unit="offset",
        nothing="no record of the archive is a response, a conversion, or a resource of the web",
    ),
    "page": BuiltIn("records", "spark_jobs.sources.paged.page_records:read_page", unit="item"),
    "archive": BuiltIn("files"),
    "package": BuiltIn("files"),
    "repositories": BuiltIn("facts"),
    "git": BuiltIn("facts"),
    "detect": BuiltIn("content", packages=("magika",)),
}
_TELLS: Final = ("resiliparse", "charset_normalizer")
PARTS: Final[Mapping[str, BuiltIn]] = {
    "web_text": BuiltIn("document", "spark_jobs.sources.formats.web.html:extract_text"),
    "front_matter": BuiltIn("document", "spark_jobs.sources.formats.notebooks:extract_front_matter"),
    "legacy": BuiltIn("document", "spark_jobs.sources.formats.legacy_encoding:tell_encoding", _TELLS, "encodings"),
}
"""What readers call for parts of a file: texts in web archives, what stands above Markdown, bytes in any encoding."""
PAGE_READERS: Final = ("html", "xhtml", "mhtml")
"""Readers of pages; the source names the extractor of their main text."""
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
        reader: one that gives a document, or of PARTS.
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
        if reader in PAGE_READERS:
            extractor = "both" if source.extractor == "none" else source.extractor  # of pages in web archives
            options = (extractor, source.ruby, *options)
        elif reader == "epub":
            options = (source.ruby, source.archives, *options)
        elif reader == "legacy":
            options = (source.encoding, *options)
        extracted = run_apart(call_extractor, source.extract_seconds, of.function, data, *options)
        return extracted if isinstance(extracted, Refusal) else Extracted(extracted[0].decode(), *extracted[1:])
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        return Refusal(Reason.UNDECODABLE, f"lone surrogate at {error.start} of the extracted text")


def missing_package(reader: str, source: FileReading) -> str | None:
    """A package that a reader needs and that is not installed, if there is one."""
    of = READERS.get(reader, BuiltIn("document"))
    needed = of.packages
    if reader in ("pdf", "picture"):
        engine = source.ocr.engine.partition(":")[0]
        needed += {"none": (), "rapidocr": _RAPIDOCR}.get(engine, (engine.partition(".")[0],))
    if reader in (*PAGE_READERS, "warc"):
        for extractor in source.extractors:
            needed += _TRAFILATURA if extractor == "trafilatura" else (extractor,)
    if of.recoded and source.encoding != "strict":
        needed += PARTS["legacy"].packages
    return next((name for name in needed if importlib.util.find_spec(name) is None), None)
