"""What a part of a mail shows: base64 with a footer behind it, text/enriched, pages without their hidden parts."""

from __future__ import annotations

import base64
import re
from email.message import EmailMessage

from resiliparse.parse.html import HTMLTree

_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_COMMAND = re.compile(r"<<|<(/?)([A-Za-z0-9-]{1,60})>")
_HIDDEN = re.compile(
    r"display:none|visibility:hidden|(?<![\w-])font-size:0(?:px|pt|em|%)?(?![\d.])|max-height:0(?:px|em|%)?(?![\d.])|"
    r"mso-hide:all|(?<![\w-])opacity:0(?:\.0*)?(?![\d.])"
)


def part_bytes(part: EmailMessage) -> bytes | None:
    """The bytes of a part, with the plain text that a mailing list put behind its base64."""
    body, raw = part.get_payload(decode=True), part.get_payload()
    if str(part.get("Content-Transfer-Encoding", "")).strip().lower() != "base64" or not isinstance(raw, str):
        return body if isinstance(body, bytes) else None
    lines = [line.strip() for line in raw.splitlines()]
    end = next((at for at, line in enumerate(lines) if not _BASE64.fullmatch(line)), len(lines))
    if end == len(lines):
        return body if isinstance(body, bytes) else None
    while end and "" in lines[:end] and lines[end - 1] and len(lines[end - 1]) % 4:  # a word of the footer
        end -= 1
    code = "".join(lines[:end]).replace("=", "")
    code = code[: len(code) - (len(code) % 4 == 1)]
    decoded = base64.b64decode(code + "=" * (-len(code) % 4))
    footer = raw.encode("ascii", "surrogateescape").splitlines()[end:]
    return decoded.rstrip(b"\r\n") + b"\n\n" + b"\n".join(footer) + b"\n"


def enriched_text(markup: str) -> str:
    """The text of text/enriched (RFC 1896): n line ends in a row are n - 1, commands and parameters are left out."""
    markup = re.sub(r"\n+", lambda run: "\n" * (len(run[0]) - 1) or " ", markup.replace("\r\n", "\n"))
    markup = re.sub(r"(?is)<param>.*?</param>", "", markup)
    return _COMMAND.sub(lambda command: "<" if command[0] == "<<" else "", markup)


def richtext_text(markup: str) -> str:
    """The text of text/richtext (RFC 1341): lines end at `<nl>`, `<lt>` is a `<`, comments are left out."""
    markup = re.sub(r"(?is)<comment>.*?</comment>", "", re.sub(r"\s*\n", " ", markup))
    names = {"lt": "<", "nl": "\n", "np": "\n", "paragraph": "\n"}
    return re.sub(r"<(/?)([A-Za-z0-9-]{1,60})>", lambda command: names.get(command[2].lower(), ""), markup)


def remove_hidden(tree: HTMLTree) -> None:
    """Take the elements out of a page that its own attributes hide, such as preheaders."""
    for node in tree.body.query_selector_all("[style], [hidden]") if tree.body else ():
        style = re.sub(r"\s+", "", node.get_attribute("style") or "").lower()
        if node.has_attribute("hidden") or _HIDDEN.search(style):
            node.decompose()
