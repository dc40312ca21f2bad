"""Read the foreign parts of a Word document (`altChunk`): pages, web archives, texts and Rich Text Format."""

from __future__ import annotations

import email
import email.policy
import re
from email.message import EmailMessage

from spark_jobs.sources.refusals import Refusal

_RTF_TOKEN = re.compile(
    rb"\\([a-zA-Z]+)(-?\d+)? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z'])|([{}])|[\r\n]+|([^\\{}\r\n]+)", re.DOTALL
)
_RTF_SIGNS = {
    **dict.fromkeys(("par", "line", "row", "sect", "page"), "\n"),
    **dict.fromkeys(("tab", "cell"), "\t"),
    **{"emdash": "—", "endash": "–", "bullet": "•", "lquote": "‘", "rquote": "’", "ldblquote": "“", "rdblquote": "”"},
}
_RTF_HIDDEN = frozenset(
    (
        *("fonttbl", "colortbl", "stylesheet", "info", "pict", "object", "fldinst", "themedata", "datastore"),
        *("header", "headerl", "headerr", "headerf", "footer", "footerl", "footerr", "footerf"),
        *("listtable", "listoverridetable", "xmlnstbl"),
    )
)
_RTF_SYMBOLS = {b"~": "\xa0", b"_": "-", b"\\": "\\", b"{": "{", b"}": "}", b"\n": "\n", b"\r": "\n"}


def chunk_text(data: bytes, content_type: str, name: str) -> str | None:
    """The text of a part that is no Word document.

    Args:
        data: its bytes.
        content_type: what the package says that it is.
        name: its name, whose extension counts where the content type says nothing.

    Returns:
        The text; None where the form is not known or the bytes are not of it.
    """
    extension, start = name.lower().rpartition(".")[2], data.lstrip()[:512].lower()
    if start.startswith(b"{\\rtf"):
        return _rtf_text(data)
    if start.startswith((b"mime-version:", b"from:", b"content-type:")) or extension in ("mht", "mhtml", "eml"):
        return _archive_text(data)
    if (
        "html" in content_type
        or extension in ("html", "htm", "xhtml")
        or start.startswith((b"<!doctype html", b"<html"))
    ):
        return _page_text(data)
    if content_type.startswith("text/plain") or extension == "txt":
        return _decoded(data)
    return None


def _decoded(data: bytes, charset: str | None = None) -> str | None:
    """A text in the encoding that is stated or told."""
    from spark_jobs.sources.encodings.page_encoding import decode_page

    page = decode_page(data, charset)
    return None if isinstance(page, Refusal) else page.text


def _page_text(data: bytes, charset: str | None = None) -> str | None:
    """All that a page shows."""
    from resiliparse.parse.html import HTMLTree

    from spark_jobs.sources.formats.main_text import whole_text

    page = _decoded(data, charset)
    return None if page is None else whole_text(HTMLTree.parse(page))


def _archive_text(data: bytes) -> str | None:
    """The page of a web archive of one page (MHTML)."""
    archive = email.message_from_bytes(data.lstrip(), _class=EmailMessage, policy=email.policy.default)
    for part in archive.walk():
        body = part.get_payload(decode=True)
        if part.get_content_type() == "text/html" and isinstance(body, bytes):
            return _page_text(body, part.get_content_charset())
    return None


def _rtf_text(data: bytes) -> str:
    """The text of Rich Text Format 1.9: characters of groups that are shown, tables of fonts and the like aside."""
    codec, skip, stack, pieces = "cp1252", 1, list[tuple[bool, int]](), list[str]()
    is_hidden, owed, pending = False, 0, bytearray()

    def flush() -> None:
        pieces.append(pending.decode(codec, "replace"))
        pending.clear()

    for token in _RTF_TOKEN.finditer(data):
        word, number, byte, sign, brace, text = token.groups()
        if byte:
            if owed:
                owed -= 1
            elif not is_hidden:
                pending.append(int(byte, 16))
            continue
        flush()
        if brace == b"{":
            stack.append((is_hidden, skip))
        elif brace == b"}":
            is_hidden, skip = stack.pop() if stack else (False, 1)
        elif word == b"ansicpg" and number:
            codec = _codec(int(number))
        elif word == b"uc" and number:
            skip = int(number)
        elif sign == b"*" or (word and word.decode() in _RTF_HIDDEN) or (word == b"v" and number != b"0"):
            is_hidden = True
        elif word == b"u" and number:
            pieces.append("" if is_hidden else chr(int(number) % 65536))
            owed = skip
        elif text and owed:
            pieces.append("" if is_hidden else text[owed:].decode(codec, "replace"))
            owed = 0
        elif not is_hidden:
            pieces.append(text.decode(codec, "replace") if text else _rtf_sign(word, sign))
    flush()
    return "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16", "replace").strip()


def _rtf_sign(word: bytes | None, sign: bytes | None) -> str:
    """What a control word or a control symbol of RTF stands for; nothing where it sets the form alone."""
    return _RTF_SIGNS.get(word.decode(), "") if word else _RTF_SYMBOLS.get(sign or b"", "")


def _codec(page: int) -> str:
    """Python's codec of a code page, as far as it has one."""
    try:
        b"".decode(f"cp{page}")
    except LookupError:
        return "cp1252"
    return f"cp{page}"
