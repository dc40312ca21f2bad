"""Extract the text of Word documents and mails.

A Word document's is that of its paragraphs and tables in order. A mail's is its plain text, or that of its page where
it has no other; senders and receivers are left out. Attachments are not read.

This module is imported in the child of parser_process.py, and needs the extra `ingest`.
"""

from __future__ import annotations

import email
import email.policy
import io
import platform
from collections.abc import Iterator
from email.message import EmailMessage
from importlib.metadata import version
from typing import Any

from spark_jobs.sources.formats.extraction import Extracted, cleaned_facts
from spark_jobs.sources.reading.languages import EXTRACTED_BY
from spark_jobs.sources.refusals import Reason, Refusal


def extract_docx(data: bytes) -> Extracted | Refusal:
    """The paragraphs and tables of a Word document, a line each; cells of a row have a tab between them."""
    import docx

    document = docx.Document(io.BytesIO(data))
    text = "\n".join(_lines(document.iter_inner_content())).strip()
    if not text:
        return Refusal(Reason.EMPTY, "the document has no text")
    about = document.core_properties
    facts = {"title": about.title, "language": about.language, "published": about.created and about.created.isoformat()}
    return Extracted(text, {**cleaned_facts(facts), EXTRACTED_BY: f"python-docx {version('python-docx')}"})


def _lines(blocks: Iterator[Any]) -> Iterator[str]:
    """Lines of paragraphs and tables, in order."""
    for block in blocks:
        if hasattr(block, "rows"):
            for row in block.rows:
                yield "\t".join(" ".join(cell.text.split()) for cell in row.cells)
        else:
            yield block.text


def extract_mail(data: bytes) -> Extracted | Refusal:
    """The text of one mail (RFC 5322), by its own declaration of the encoding."""
    from spark_jobs.sources.formats.html import extract_page, extract_text

    mail = email.message_from_bytes(data, _class=EmailMessage, policy=email.policy.default)
    if not mail.keys():
        return Refusal(Reason.CORRUPT_FILE, "not a mail: there is no header in it")
    part = mail.get_body(("plain", "html"))
    body = part.get_payload(decode=True) if part is not None else None
    if part is None or not isinstance(body, bytes) or not body.strip():
        return Refusal(Reason.EMPTY, "the mail has no text")
    charset = part.get_content_charset()
    is_page = part.get_content_type() == "text/html"
    found = extract_page(body, "resiliparse", charset) if is_page else extract_text(body, charset, False)
    if isinstance(found, Refusal):
        return found
    by = f"email (Python {platform.python_version()}) and {found.metadata[EXTRACTED_BY]}"
    facts = {"title": mail["Subject"], "published": mail["Date"], "message_id": mail["Message-ID"]}
    attachments = {"attachment_count": str(sum(1 for _ in mail.iter_attachments()))}
    return Extracted(found.text, {**found.metadata, **cleaned_facts(facts), **attachments, EXTRACTED_BY: by})
