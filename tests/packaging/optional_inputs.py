"""Files that are read with and without packages, in a process of their own."""

from __future__ import annotations

from typing import Any

from spark_jobs.sources.config.file_reading import OcrRules
from tests.headrace_features.formats.made_pdf import pdf
from tests.headrace_features.formats.made_word import p, r, word_package

_MENU = "<ul>" + "".join(f'<li><a href="/{n}">Entry {n} of the menu</a></li>' for n in range(12)) + "</ul>"
_BODY = "".join(f"<p>Paragraph {n} of the article, which says enough to be one, né à Zürich.</p>" for n in range(12))
_PAGE = f"<html><head><title>T</title></head><body>{_MENU}<article>{_BODY}</article>{_MENU}</body></html>"


def inputs() -> dict[str, tuple[str, tuple[Any, ...]]]:
    """Functions that extract texts, with their arguments, by what they read."""
    page = "headrace_features.formats.web.html:extract_page"
    lines = "BT /F1 12 Tf 14 TL 72 700 Td (a well-) Tj T* (known one and the exam-) Tj T* (ple) Tj ET"
    return {
        **{
            f"page by {extractor}": (page, (_PAGE.encode("cp1252"), extractor))
            for extractor in ("resiliparse", "trafilatura", "both")
        },
        "mail": ("headrace_features.formats.mail:extract_mail", (b"Subject: x\n\nText of a mail\n",)),
        "word": ("headrace_features.formats.word:extract_docx", (word_package(p(r("Text"))),)),
        "pdf": ("headrace_features.formats.pages.pdf:layers", (pdf("600 800", lines), OcrRules())),
    }
