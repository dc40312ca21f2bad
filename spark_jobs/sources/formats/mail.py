"""Extract the text of mails.

It is that of its parts that are shown, in order; of alternatives the plain text, else the page. Senders and
receivers are left out. Attachments are not read.

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
    """A part of a mail that has no parts, and whether it is a text to be read."""

    part: EmailMessage
    is_text: bool


def extract_mail(data: bytes) -> Extracted | Refusal:
    """The text of one mail (RFC 5322), by its own declarations of encodings."""
    mail = email.message_from_bytes(data, _class=EmailMessage, policy=email.policy.default)
    if not mail.keys():
        return Refusal(Reason.CORRUPT_FILE, "not a mail: there is no header in it")
    leaves, found = _shown(mail), list[DecodedPage]()
    for leaf in leaves:
        decoded = _decoded_leaf(leaf.part) if leaf.is_text else None
        if isinstance(decoded, Refusal):
            return decoded
        if decoded is not None:
            found.append(decoded)
    if not found:
        return Refusal(Reason.EMPTY, "the mail has no text")
    text = found[0].text if len(found) == 1 else "\n\n".join(one.text.strip("\r\n") for one in found) + "\n"
    facts = {"title": mail["Subject"], "published": mail["Date"], "message_id": mail["Message-ID"]}
    decoding = {
        "attachment_count": str(sum(not leaf.is_text for leaf in leaves)),
        "source_encoding": ", ".join(dict.fromkeys(one.encoding for one in found)),
        "source_encoding_by": ", ".join(dict.fromkeys(one.named_by for one in found)),
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
    """Which form of a text is taken: one that begins as plain text, as a page, as another text, one without text."""
    types = [part.get_content_type() for part, is_text in leaves if is_text and str(part.get_payload()).strip()]
    return {"text/plain": 0, "text/html": 1}.get(types[0], 2) if types else 3


def _is_named(leaf: _Leaf) -> bool:
    """Whether another part can refer to this one, by its id or location."""
    return "Content-ID" in leaf.part or "Content-Location" in leaf.part


def _is_text(part: EmailMessage) -> bool:
    """Whether a leaf is a text to be shown; one of parts that cannot be found is (RFC 2046, 5.1.1), headers are not."""
    is_text = part.get_content_maintype() in ("text", "multipart") and isinstance(part.get_payload(), str)
    return is_text and not part.is_attachment() and part.get_content_type() != "text/rfc822-headers"


def _decoded_leaf(part: EmailMessage) -> DecodedPage | Refusal | None:
    """The text of a leaf, all that a page shows; None where there is none in it."""
    from resiliparse.parse.html import HTMLTree

    from spark_jobs.sources.formats.mail_parts import enriched_text, part_bytes, remove_hidden, richtext_text
    from spark_jobs.sources.formats.main_text import whole_text

    body, charset = part_bytes(part), part.get_content_charset()
    if body is None or not body.strip():
        return None
    decoded = decode_declared(body, charset) or decode_page(body, charset)
    if isinstance(decoded, Refusal):
        return decoded
    if part.get_content_type() == "text/html" and "<" in decoded.text:
        tree = HTMLTree.parse(decoded.text)
        remove_hidden(tree)
        decoded = decoded._replace(text=whole_text(tree))
    rendered = {"text/enriched": enriched_text, "text/richtext": richtext_text}.get(part.get_content_type())
    decoded = decoded._replace(text=rendered(decoded.text)) if rendered else decoded
    return decoded if decoded.text.strip() else None
