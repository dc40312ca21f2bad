"""Which extractor serves a reader: its function, the packages it needs, and what it gives.

What is extracted is no part of the file, byte for byte. So the document is the text itself: content_sha256 and
byte_count are of its UTF-8, and its metadata names what extracted it (`headrace.extracted_by`). The hash and size of
the file that it came from are in its arrival.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spark_jobs.sources.formats.extracted import Extracted, call_extractor
from spark_jobs.sources.opening.parser_process import run_apart
from spark_jobs.sources.refusals import Reason, Refusal

if TYPE_CHECKING:
    from spark_jobs.sources.config.file_reading import FileReading

PACKAGES: Final = {
    "resiliparse": ("resiliparse",),
    "trafilatura": ("trafilatura",),
    "both": ("resiliparse", "trafilatura"),
}
"""Which packages extract the text of a page, by the extractor that a source chooses."""


class _Extractor(NamedTuple):
    """Module and function, called in another process, and the packages that are imported there."""

    module: str
    function: str
    packages: tuple[str, ...]


_EXTRACTORS: Final = {
    "html": _Extractor("formats.html", "extract_page", ("resiliparse",)),
    "web_text": _Extractor("formats.html", "extract_text", ("resiliparse",)),
    "docx": _Extractor("formats.office", "extract_docx", ("docx",)),
    "mail": _Extractor("formats.office", "extract_mail", ("resiliparse",)),
    "notebook": _Extractor("formats.notebooks", "extract_notebook", ()),
    "front_matter": _Extractor("formats.notebooks", "extract_front_matter", ()),
    "legacy": _Extractor("formats.legacy_encoding", "tell_encoding", ("resiliparse", "charset_normalizer")),
}


def extract(reader: str, data: bytes, source: FileReading, *options: Any) -> Extracted | Refusal:
    """Extract the text of one document, in a process of its own.

    Args:
        reader: of the format.
        data: bytes of the document.
        source: what the user chose.
        options: what else is known about it, by format.
    """
    try:
        if reader in ("pdf", "picture"):
            from spark_jobs.sources.formats.pages.ocr import read_pages

            pages = read_pages(reader, data, source.ocr, source.extract_seconds)
            if isinstance(pages, Extracted):
                pages.text.encode()
            return pages
        by = "both" if source.extractor == "none" else source.extractor  # pages of web archives are never markup
        chosen = {"html": (by, *options), "legacy": (source.encoding, *options)}.get(reader, options)
        of = _EXTRACTORS[reader]
        found = run_apart(call_extractor, source.extract_seconds, of.module, of.function, data, *chosen)
        return found if isinstance(found, Refusal) else Extracted(found[0].decode(), *found[1:])
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        return Refusal(Reason.UNDECODABLE, f"lone surrogate at {error.start} of the extracted text")


EXTRA_OF: Final = {
    "html": "html",
    "warc": "warc",
    "pdf": "pdf",
    "picture": "ocr",
    "docx": "office",
    "mail": "mail",
    "mbox": "mail",
    "log": "logs",
}
"""The extra of headrace that brings what a reader needs; `ingest` brings all of them but `ocr`."""


def missing_package(reader: str, source: FileReading) -> str | None:
    """A package that a reader needs and that is not installed, if there is one."""
    from spark_jobs.sources.config.file_reading import PAGED_READERS, RECODED_READERS

    needed = _EXTRACTORS[reader].packages if reader in _EXTRACTORS else ()
    if reader == "warc":
        needed = ("fastwarc", *_EXTRACTORS["html"].packages)
    if reader == "detect":
        needed = ("magika",)
    if reader in PAGED_READERS:
        needed = {"pdf": ("pypdfium2",), "picture": ("PIL",)}[reader]
        engine = source.ocr.engine.partition(":")[0]
        needed += {"none": (), "rapidocr": ("rapidocr", "onnxruntime", "PIL")}.get(engine, (engine.partition(".")[0],))
    elif reader in ("mbox", "log"):
        needed = _EXTRACTORS["mail"].packages if reader == "mbox" else ("re2",)
    if source.encoding != "strict" and reader in ("text", *RECODED_READERS):
        needed = (*needed, *_EXTRACTORS["legacy"].packages)
    if reader in ("html", "warc"):
        needed = (*needed, *PACKAGES.get(source.extractor, PACKAGES["both"]))
    return next((name for name in needed if importlib.util.find_spec(name) is None), None)
