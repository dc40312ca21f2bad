"""Extract the text of mails.

It is the text of its shown parts, in order; of alternatives the plain text, else the page. Senders and
receivers are left out. Attachments are not read, nor files standing in a text as uuencode or yEnc; both are counted.

This module is imported in the child of parser_process.py, and needs the extra `ingest`.
"""

from __future__ import annotations

import email
import email.policy
import platform
from email.message import EmailMessage
from importlib.metadata import version
from typing import NamedTuple, cast

from spark_jobs.sources.encodings.page_encoding import DecodedPage, decode_declared, decode_page
from spark_jobs.sources.languages import EXTRACTED_BY
from spark_jobs.sources.records.extracted import Extracted, cleaned_facts
from spark_jobs.sources.refusals import Reason, Refusal


class _Leaf(NamedTuple):
    """A part of a mail without parts of its own, and whether it is a text to be read."""

    part: EmailMessage
    is_text: bool


def extract_mail(data: bytes) -> Extracted | Refusal:
    """The text of one mail (RFC 5322), by its own declarations of encodings."""
    mail = email.message_from_bytes(data, _class=EmailMessage, policy=email.policy.default)
    if not mail.keys():
        return Refusal(Reason.CORRUPT_FILE, "not a mail: there is no header in it")
    leaves, pages = _shown(mail), list[DecodedPage]()
    attachment_count = sum(not leaf.is_text for leaf in leaves)
    for leaf in leaves:
        decoded, file_count = _decoded_leaf(leaf.part) if leaf.is_text else (None, 0)
        attachment_count += file_count
        if isinstance(decoded, Refusal):
            return decoded
        if decoded is not None:
            pages.append(decoded)
    if not pages:
        return Refusal(Reason.EMPTY, "the mail has no text")
    text = pages[0].text if len(pages) == 1 else "\n\n".join(page.text.strip("\r\n") for page in pages) + "\n"
    facts = {"title": mail["Subject"], "published": mail["Date"], "message_id": mail["Message-ID"]}
    decoding = {
        "attachment_count": str(attachment_count),
        "source_encoding": ", ".join(dict.fromkeys(page.encoding for page in pages)),
        "source_encoding_by": ", ".join(dict.fromkeys(page.named_by for page in pages)),
        EXTRACTED_BY: f"email (Python {platform.python_version()}) and resiliparse {version('resiliparse')}",
    }
    return Extracted(text, {**cleaned_facts(facts), **decoding})


def _shown(part: EmailMessage) -> list[_Leaf]:
    """The leaves of a mail in order; of several alternative forms, those of the best one."""
    parts, of = part.get_payload(), part.get_content_type()
    if part.is_attachment() or not isinstance(parts, list) or of == "message/delivery-status":
        return [_Leaf(part, _is_text(part))]
    forms = [_shown(cast("EmailMessage", child)) for child in parts]
    if of == "multipart/alternative":
        return min(forms, key=_rank, default=[])
    if of == "multipart/related":  # behind the root stands what it names, such as a style sheet
        forms[1:] = [
            [leaf._replace(is_text=leaf.is_text and not _is_named(leaf)) for leaf in form] for form in forms[1:]
        ]
    return [leaf for form in forms for leaf in form]


def _rank(leaves: list[_Leaf]) -> int:
    """Which form of a text is taken: one beginning as plain text, as a page, as another text, one without text."""
    types = [part.get_content_type() for part, is_text in leaves if is_text and str(part.get_payload()).strip()]
    return {"text/plain": 0, "text/html": 1, "text/enriched": 2, "text/richtext": 2}.get(types[0], 3) if types else 4


def _is_named(leaf: _Leaf) -> bool:
    """Whether another part can refer to this one, by its id or location."""
    return "Content-ID" in leaf.part or "Content-Location" in leaf.part


def _is_text(part: EmailMessage) -> bool:
    """Whether a leaf is a text to be shown; one of unfindable parts is (RFC 2046, 5.1.1), headers are not."""
    is_text = part.get_content_maintype() in ("text", "multipart") and isinstance(part.get_payload(), str)
    return is_text and not part.is_attachment() and part.get_content_type() != "text/rfc822-headers"


def _decoded_leaf(part: EmailMessage) -> tuple[DecodedPage | Refusal | None, int]:
    """The text of a leaf, all that a page shows; None where there is none in it. And the count of files in it."""
    from headrace_features.formats.mail_parts import part_bytes, without_files

    kind, charset, file_count = part.get_content_type(), part.get_content_charset(), 0
    texts = list[DecodedPage]()
    for data in part_bytes(part):
        body, count = without_files(data) if kind == "text/plain" else (data, 0)
        file_count += count
        if body.strip():
            decoded = decode_declared(body, charset) or decode_page(body, charset)
            if isinstance(decoded, Refusal):
                return decoded, file_count
            texts.append(decoded)
    if not texts:
        return None, file_count
    text = "\n\n".join([*(piece.text.rstrip("\r\n") for piece in texts[:-1]), texts[-1].text])
    text = _rendered(text, part)
    return texts[0]._replace(text=text) if text.strip() else None, file_count


def _rendered(text: str, part: EmailMessage) -> str:
    """What is read of the text of a part by its type."""
    from headrace_features.formats.mail_parts import enriched_text, flowed_text, richtext_text

    kind = part.get_content_type()
    if kind == "text/html" and "<" in text:
        return _page_text(text)
    if kind == "text/enriched":
        return enriched_text(text)
    if kind == "text/richtext":
        return richtext_text(text)
    if kind == "text/plain" and str(part.get_param("format", "")).lower() == "flowed":
        return flowed_text(text, str(part.get_param("delsp", "")).lower() == "yes")
    return text


def _page_text(markup: str) -> str:
    """All that a page shows."""
    from resiliparse.parse.html import HTMLTree

    from headrace_features.formats.web.hidden_parts import remove_hidden
    from headrace_features.formats.web.main_text import whole_text

    tree = HTMLTree.parse(markup)
    remove_hidden(tree)
    return whole_text(tree)
