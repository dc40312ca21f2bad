"""The declared encoding of a page, found as browsers find it before they parse the page.

A declaration counts where it is one: not in a comment, in the text of another element's attribute, or in the `content`
of a `meta` other than `http-equiv=content-type`. The declaration of XML counts where no `meta` does.
Source: the HTML Standard, 13.2.3.2, "prescan a byte stream to determine its encoding" and "get an XML encoding".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from resiliparse.parse.encoding import map_encoding_to_html5

_MARKUP = re.compile(rb"<!--|<meta(?=[\t\n\f\r /])|</?[a-z][^\t\n\f\r >]*|<[!/?]", re.I)
_ATTRIBUTE = re.compile(
    rb"""[\t\n\f\r /]*([^\t\n\f\r />][^\t\n\f\r />=]*)"""
    rb"""(?:[\t\n\f\r ]*=[\t\n\f\r ]*(?:"([^"]*)(?:"|\Z)|'([^']*)(?:'|\Z)|([^\t\n\f\r >]*)))?"""
)
_CHARSET = re.compile(rb"""charset[\t\n\f\r ]*=[\t\n\f\r ]*(?:"([^"]*)"|'([^']*)'|["']|([^\t\n\f\r ;]*))""", re.I)
_XML = re.compile(rb"""<\?xml[^>]*?encoding[\0- ]*=[\0- ]*(?:"([^"]*)"|'([^']*)')""")
_ENDS = {b"<!--": b"-->", b"<!": b">", b"</": b">", b"<?": b">"}
_UTF_16 = ("utf-16-le", "utf-16-be")


def declared_codec(head: bytes) -> str | None:
    """Python's codec for what the first bytes of a page declare; None where they declare no known one."""
    at = 0
    while match := _MARKUP.search(head, at):
        markup, at = match[0].lower(), match.end()
        if markup in _ENDS:
            end = head.find(_ENDS[markup], match.start() + 2)  # `<!-->` is a whole comment
            at = len(head) if end < 0 else end + len(_ENDS[markup])
        elif attributes := list(_attributes(head, at)):
            at = attributes[-1].end()
            codec = _of_meta(attributes) if markup == b"<meta" else None
            if codec is not None:
                return codec
    declared = _XML.match(head)
    return _codec(declared[1] or declared[2] or b"") if declared else None


def _attributes(head: bytes, at: int) -> Iterator[re.Match[bytes]]:
    """The attributes of a tag, from behind its name to its end."""
    while match := _ATTRIBUTE.match(head, at):
        yield match
        at = match.end()


def _of_meta(attributes: list[re.Match[bytes]]) -> str | None:
    """The codec declared in a `meta` by its `charset`, or by its `content` where `http-equiv` is Content-Type."""
    values = dict[bytes, bytes]()
    for attribute in attributes:  # of one name the first counts
        values.setdefault(attribute[1].lower(), attribute[2] or attribute[3] or attribute[4] or b"")
    if b"charset" in values:
        return _codec(values[b"charset"])
    inside = _CHARSET.search(values.get(b"content", b""))
    if inside is None or values.get(b"http-equiv", b"").lower() != b"content-type":
        return None
    return _codec(inside[1] or inside[2] or inside[3] or b"")


def _codec(label: bytes) -> str | None:
    """The codec of a label; a readable label is in no UTF-16, and means UTF-8 then."""
    text = label.decode("latin-1").strip("\t\n\f\r ").lower()
    codec = "cp1252" if text == "x-user-defined" else map_encoding_to_html5(text, fallback_utf8=False)
    return "utf-8" if codec in _UTF_16 else codec
