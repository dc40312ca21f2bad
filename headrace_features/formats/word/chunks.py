"""Read the foreign parts of a Word document (`altChunk`): pages, web archives, texts and Rich Text Format."""

from __future__ import annotations

import re

from spark_jobs.sources.refusals import Refusal

_MAIL = re.compile(rb"(?:[a-z][a-z-]*:[^\n]*\n(?:[ \t][^\n]*\n)*)*?(?:mime-version|content-type):")
_HEAD_BYTES = 4096
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
    """The text of a part other than a Word document.

    Args:
        data: its bytes.
        content_type: what the package says that it is.
        name: its name; the extension counts where the content type says nothing.

    Returns:
        The text; None where the form is not known or the bytes are not of it.
    """
    from headrace_features.formats.web.mhtml import saved_markup
    from headrace_features.formats.web.xhtml import xml_markup

    extension, start = name.lower().rpartition(".")[2], data.lstrip()[:512].lower()
    if start.startswith(b"{\\rtf"):
        return _rtf_text(data)
    if _MAIL.match(start) or content_type == "message/rfc822" or extension in ("mht", "mhtml", "eml"):
        markup = saved_markup(data)
        return None if isinstance(markup, Refusal) else _shown(markup)
    is_xml = "xhtml" in content_type or extension in ("xhtml", "xht") or start.startswith(b"<?xml")
    if is_xml and b"<html" in data[:_HEAD_BYTES].lower():
        page = xml_markup(data)
        return None if isinstance(page, Refusal) else _shown(page.markup)
    is_page = "html" in content_type or extension in ("html", "htm", "xhtml", "xht")
    if is_page or start.startswith((b"<!doctype html", b"<html")):
        text = _decoded(data)
        return None if text is None else _shown(text)
    if content_type.startswith(("text/plain", "application/txt", "application/text")) or extension in ("txt", "text"):
        return _decoded(data)
    return None


def _decoded(data: bytes) -> str | None:
    """A text in the stated encoding."""
    from spark_jobs.sources.encodings.page_encoding import decode_page

    page = decode_page(data, None)
    return None if isinstance(page, Refusal) else page.text


def _shown(markup: str) -> str:
    """All that a page shows."""
    from resiliparse.parse.html import HTMLTree

    from headrace_features.formats.web.main_text import whole_text

    return whole_text(HTMLTree.parse(markup))


def _rtf_text(data: bytes) -> str:
    """The text of Rich Text Format 1.9: characters of shown groups, tables of fonts and the like aside."""
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
