"""The readers of the feature, by the names of formats; their code is imported when a file is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from spark_jobs.sources.config.reader import BuiltIn

if TYPE_CHECKING:
    from spark_jobs.sources.config.file_reading import FileReading

_RAPIDOCR: Final = ("rapidocr", "onnxruntime", "cv2", "PIL")
_TRAFILATURA: Final = ("trafilatura", "justext", "lxml_html_clean")  # it imports the others


def _page_options(source: FileReading) -> tuple[Any, ...]:
    """The extractor of the main text, that of pages in web archives where pages stay markup; readings of words."""
    return ("both" if source.extractor == "none" else source.extractor), source.ruby


def _page_packages(source: FileReading) -> tuple[str, ...]:
    """Packages of the extractors named by the source."""
    return tuple(
        package
        for extractor in source.extractors
        for package in (_TRAFILATURA if extractor == "trafilatura" else (extractor,))
    )


def _ocr_packages(source: FileReading) -> tuple[str, ...]:
    """Packages of the engine to recognise text."""
    engine = source.ocr.engine.partition(":")[0]
    return {"none": (), "rapidocr": _RAPIDOCR}.get(engine, (engine.partition(".")[0],))


HTML: Final = BuiltIn(
    "document",
    "headrace_features.formats.web.html:extract_page",
    ("resiliparse",),
    "html",
    options=_page_options,
    needs=_page_packages,
)
XHTML: Final = HTML._replace(function="headrace_features.formats.web.xhtml:extract_xhtml")
MHTML: Final = HTML._replace(function="headrace_features.formats.web.mhtml:extract_mhtml")
EPUB: Final = BuiltIn(
    "document",
    "headrace_features.formats.web.epub:extract_epub",
    ("resiliparse",),
    "html",
    options=lambda source: (source.ruby, source.archives),
)
DOCX: Final = BuiltIn("document", "headrace_features.formats.word:extract_docx", ("resiliparse",), "office")
MAIL: Final = BuiltIn("document", "headrace_features.formats.mail:extract_mail", ("resiliparse",), "mail")
NOTEBOOK: Final = BuiltIn("document", "headrace_features.formats.notebooks:extract_notebook")
PDF: Final = BuiltIn(
    "document",
    "headrace_features.formats.pages.ocr:read_pages",
    ("pypdfium2", "justext"),
    "pdf",
    apart=False,
    needs=_ocr_packages,
)
PICTURE: Final = PDF._replace(packages=("PIL",), extra="ocr")
LOG: Final = BuiltIn(
    "records",
    "headrace_features.formats.log_lines:read_log",
    ("re2",),
    "logs",
    recoded=True,
    check="headrace_features.formats.log_lines:compiled_pattern",
)
MBOX: Final = BuiltIn("records", "headrace_features.formats.mailboxes:read_mailbox", ("resiliparse",), "mail")
XML: Final = BuiltIn(
    "records",
    "headrace_features.formats.xml_elements:read_xml",
    unit="element",
    nothing="no element of the file has the name that xml_element gives",
)
WARC: Final = BuiltIn(
    "records",
    "headrace_features.formats.web_archives:read_archive",
    ("fastwarc", "resiliparse"),
    "warc",
    unit="offset",
    nothing="no record of the archive is a response, a conversion, or a resource of the web",
    needs=_page_packages,
)
WEB_TEXT: Final = BuiltIn("document", "headrace_features.formats.web.html:extract_text")
