"""Which extractor serves a reader: its function, the packages it needs, and what it gives.

What is extracted is no part of the file, byte for byte. So the document is the text itself: content_sha256 and
byte_count are of its UTF-8, and its metadata names what extracted it (`headrace.extracted_by`). The hash and size of
the file that it came from are in its arrival.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from spark_jobs.sources.formats.parser_process import run_apart
from spark_jobs.sources.refusals import Refusal
from spark_jobs.sources.source_config import FilesSource


class Extracted(NamedTuple):
    """The text of a document, and what its source says about it."""

    text: str
    metadata: dict[str, str]


def _page(data: bytes, *options: Any) -> Extracted | Refusal:
    """The main text of an HTML page."""
    from spark_jobs.sources.formats.html import extract_page

    return extract_page(data, *options)


def _web_text(data: bytes, *options: Any) -> Extracted | Refusal:
    """A plain text from the web."""
    from spark_jobs.sources.formats.html import extract_text

    return extract_text(data, *options)


class _Extractor(NamedTuple):
    """A function, called in another process, and the packages that it imports there."""

    function: Callable[..., Extracted | Refusal]
    packages: tuple[str, ...]


_EXTRACTORS: Final = {
    "html": _Extractor(_page, ("resiliparse",)),
    "web_text": _Extractor(_web_text, ("resiliparse",)),
}


def extract(reader: str, data: bytes, source: FilesSource, *options: Any) -> Extracted | Refusal:
    """Extract the text of one document, in a process of its own.

    Args:
        reader: of the format.
        data: bytes of the document.
        source: what the user chose.
        options: what else is known about it, by format.
    """
    by = "trafilatura" if source.extractor == "trafilatura" else "resiliparse"
    chosen = (by, *options) if reader == "html" else options
    found: Extracted | Refusal = run_apart(_EXTRACTORS[reader].function, source.extract_seconds, data, *chosen)
    return found


def missing_package(reader: str, source: FilesSource) -> str | None:
    """A package that a reader needs and that is not installed, if there is one."""
    needed = _EXTRACTORS[reader].packages if reader in _EXTRACTORS else ()
    if reader == "warc":
        needed = ("fastwarc", *_EXTRACTORS["html"].packages)
    if reader in ("html", "warc") and source.extractor == "trafilatura":
        needed = (*needed, "trafilatura")
    return next((name for name in needed if importlib.util.find_spec(name) is None), None)
