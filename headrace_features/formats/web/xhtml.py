"""Read XHTML by a parser of XML, as browsers do: `<script/>`, `<title/>` and `<a id="x"/>` end where they begin.

What it holds is written as markup of HTML, and goes the way of every page. Elements are told by their namespace, not
by their prefix: those of other vocabularies are transparent in the body and left out of the head. CDATA is text.

    <p>a<br/><![CDATA[b < c]]>&nbsp;<svg:svg>..    becomes    <p>a<br>b &lt; c <svg>..

HTML's names of characters are known whatever the file declares. No other file is read; what the file
declares for itself is expanded within the bounds of expat. What is not well-formed is read as HTML, and says so;
its CDATA is text too, and what ends where it begins ends there.

This module needs the extra `ingest`.
"""

from __future__ import annotations

import codecs
import re
from html import escape, unescape
from html.entities import html5
from typing import Final, NamedTuple
from xml.etree import ElementTree
from xml.parsers import expat

from headrace_features.formats.web.html import extract_page
from headrace_features.formats.web.markup import VOID
from spark_jobs.sources.encodings.page_encoding import DecodedPage, decode_page
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.refusals import Refusal

_XHTML: Final = ("http://www.w3.org/1999/xhtml", "", "http://www.daisy.org/z3986/2005/dtbook/")
_FOREIGN: Final = ("http://www.w3.org/2000/svg", "http://www.w3.org/1998/Math/MathML")
_SWITCH: Final = "http://www.idpf.org/2007/ops"
_PREFIXES: Final = {
    _SWITCH: "epub:",
    "http://www.w3.org/1999/xlink": "xlink:",
    "http://www.w3.org/XML/1998/namespace": "",
}
_TEXT_ONLY: Final = ("title", "textarea", "script", "style")
_NO_MARKUP: Final = ("script", "style")
_LINES: Final = {"pre": "pre", "listing": "listing", "xmp": "pre", "plaintext": "pre"}
_DECLARATION = re.compile(r"\s*<\?xml\s[^>]*\?>")
_DOCTYPE_CHARACTERS: Final = 100_000
_DOCTYPE = re.compile(r"<!DOCTYPE\s[^<>\[]*\[((?:[^\]\"']|\"[^\"]*\"|'[^']*')*)\]\s*>", re.IGNORECASE)
_ENTITY = re.compile(r"""<!ENTITY\s+([\w:.-]+)\s+(?:"([^"<%]*)"|'([^'<%]*)')\s*>""")
_REFERENCE = re.compile(r"&([\w:.-]+);")
_DECLARED_ENCODING = re.compile(rb"""<\?xml\s[^>]*?encoding\s*=\s*["']([\w.:-]+)""")
_DECLARATION_BYTES: Final = 200
_NOTE = re.compile(r"(?:foot|end|rear)?note\b")
_BARE = re.compile(r"&(?!#?\w+;)")
_NAMED = re.compile(  # what does not end is skipped as a whole: to look for its end again and again takes long
    r"<!--(?:.*?-->|.*)|<!\[CDATA\[(?:.*?\]\]>|.*)|<\?(?:.*?\?>|.*)|&([A-Za-z][A-Za-z0-9]*;)", re.DOTALL
)
_CDATA: Final = "<![CDATA["
_EMPTY = re.compile(r"""<([a-zA-Z][\w:.-]*)((?:\s+[^\s"'<>/=]+(?:\s*=\s*(?:"[^"]*"|'[^']*'))?)*)\s*/>""")
_KNOWN_TO_XML: Final = ("amp;", "lt;", "gt;", "quot;", "apos;")
_NO_MARKS: Final = {b"<\0": codecs.BOM_UTF16_LE, b"\0<": codecs.BOM_UTF16_BE}  # how UTF-16 begins without its mark


class XmlMarkup(NamedTuple):
    """Markup of HTML, the encoding of its file and what named that, and why it is not from XML."""

    markup: str
    encoding: str
    named_by: str
    fault: str | None


def extract_xhtml(
    data: bytes, extractor: str, ruby: str = "brackets", charset: str | None = None, cut: bool = False
) -> Extracted | Refusal:
    """The main text of a page of XHTML; as `extract_page`, with `xml_fault` in the metadata where it is no XML."""
    page = xml_markup(data, charset, cut)
    if isinstance(page, Refusal):
        return page
    extracted = extract_page(codecs.BOM_UTF8 + page.markup.encode() if page.markup.strip() else b"", extractor, ruby)
    if isinstance(extracted, Refusal):
        return extracted
    facts = {"xml_fault": page.fault} if page.fault else {}
    codec = {"source_encoding": page.encoding, "source_encoding_by": page.named_by}
    return Extracted(extracted.text, {**extracted.metadata, **codec, **facts})


def xml_markup(data: bytes, charset: str | None = None, cut: bool = False) -> XmlMarkup | Refusal:
    """The markup of a file of XHTML, or of one that was meant to be; arguments as of `extract_page`."""
    page = _decoded(data, charset, cut)
    if isinstance(page, Refusal):
        return page
    try:
        return XmlMarkup(html_of_xml(page.text), page.encoding, page.named_by, None)
    except expat.ExpatError as error:
        return XmlMarkup(_mended(page.text), page.encoding, page.named_by, str(error))


def _decoded(data: bytes, charset: str | None = None, cut: bool = False) -> DecodedPage | Refusal:
    """The text of a file of XML; what its declaration says counts as what a server says, which goes before."""
    declared = _DECLARED_ENCODING.match(data.lstrip()[:_DECLARATION_BYTES])
    label = charset or (declared[1].decode() if declared else None)
    page = decode_page(with_mark(data), label, cut)
    if isinstance(page, Refusal) or page.named_by != "http" or charset:
        return page
    return page._replace(named_by="xml")


def _mended(text: str) -> str:
    """The markup of a page that is no XML: CDATA is text, `<x/>` ends, declared entities are expanded."""
    begin = text[:_DOCTYPE_CHARACTERS].upper().find("<!DOCTYPE")
    doctype = _DOCTYPE.match(text, begin) if begin >= 0 else None
    if doctype:
        declared = {name: escape(unescape(first or second)) for name, first, second in _ENTITY.findall(doctype[1])}
        text = text[: doctype.start()] + text[doctype.end() :]
        text = _REFERENCE.sub(lambda match: declared.get(match[1], match[0]), text)
    pieces = text.split(_CDATA)
    for number, piece in enumerate(pieces[1:], 1):
        inside, end, behind = piece.partition("]]>")
        pieces[number] = escape(inside, quote=False) + behind if end else _CDATA + piece
    text = "".join(pieces)
    return _EMPTY.sub(
        lambda match: match[0] if match[1].lower() in VOID else f"<{match[1]}{match[2]}></{match[1]}>", text
    )


def html_of_xml(text: str) -> str:
    """The markup of HTML for a text of XHTML.

    Raises:
        expat.ExpatError: it is not well-formed.
    """
    writer = _Writer()
    parser = expat.ParserCreate("utf-8", " ")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = writer.start, writer.end
    parser.CharacterDataHandler, parser.SkippedEntityHandler = writer.characters, writer.unknown
    parser.Parse(_prepared(text), True)
    return "".join(["<!DOCTYPE html>\n", *writer.pieces])


def xml_tree(data: bytes) -> ElementTree.Element | None:
    """The root of a small file of XML such as the package document of a book, or None where it is not well-formed.

    An ampersand beginning no name is taken for itself.
    """
    text = _decoded(data)
    if isinstance(text, Refusal):
        return None
    try:
        return ElementTree.fromstring(_prepared(_BARE.sub("&amp;", text.text)))
    except (ElementTree.ParseError, ValueError):
        return None


def with_mark(data: bytes) -> bytes:
    """Bytes beginning with a tag in UTF-16, with their missing mark; others as they are."""
    return _NO_MARKS.get(data[:2], b"") + data


def _prepared(text: str) -> bytes:
    """A text of XML in UTF-8 without its declaration, numbers in place of HTML's names of characters (`&nbsp;`)."""
    text = _DECLARATION.sub("", text, count=1).lstrip()
    return (_NAMED.sub(_numbered, text) if "&" in text else text).encode("utf-8", "surrogatepass")


def _numbered(match: re.Match[str]) -> str:
    """What stands for a name; comments and CDATA stay."""
    if match[1] is None or match[1] in _KNOWN_TO_XML or match[1] not in html5:
        return match[0]
    return "".join(f"&#{ord(character)};" for character in html5[match[1]])


class _Writer:
    """Handlers of the parser for writing its findings as HTML."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._ends: list[str] = []  # what closes each open element
        self._switches: list[bool] = []  # of each open `epub:switch`, whether a case of it is taken
        self._left_out = self._head = self._text_only = 0  # depth of the element that is so, 0 for none
        self._no_markup = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """An element begins."""
        self._ends.append("")
        space, _, tag = name.rpartition(" ")
        if self._left_out or self._text_only:
            return
        if self._is_left_out(space, tag, attributes):
            self._left_out = len(self._ends)
        elif space in _XHTML:
            self._start_html(tag, attributes)
        elif space in _FOREIGN:
            self._open(tag, attributes)
        elif self._head:
            self._left_out = len(self._ends)
        elif space == _SWITCH and tag == "switch":
            self._switches.append(False)
        elif space != _SWITCH:
            self._open("span", {})

    def _start_html(self, tag: str, attributes: dict[str, str]) -> None:
        """An element of HTML begins."""
        if tag == "head":
            self._head = len(self._ends)
        if tag in _TEXT_ONLY:
            self._text_only, self._no_markup = len(self._ends), tag in _NO_MARKUP
        self._open(_LINES.get(tag, tag), attributes)
        if tag in _LINES or tag == "textarea":
            self.pieces.append("\n")  # which HTML takes away

    def _open(self, tag: str, attributes: dict[str, str]) -> None:
        """Write a start tag, and keep its end tag."""
        self.pieces.append(f"<{tag}")
        for name, value in attributes.items():
            space, _, local = name.rpartition(" ")
            prefix = _PREFIXES.get(space) if space else ""
            if local == "hidden" and _NOTE.search(attributes.get(f"{_SWITCH} type", "")):
                continue  # a reader shows a note where it is asked for
            if prefix is not None and not (space.endswith("/namespace") and local in attributes):
                self.pieces.append(f' {prefix}{local}="{escape(value)}"')
        self.pieces.append(">")
        self._ends[-1] = "" if tag in VOID else f"</{tag}>"

    def _is_left_out(self, space: str, tag: str, attributes: dict[str, str]) -> bool:
        """Whether an element is a number of a printed page, or a form of a text taken in another form."""
        if "pagebreak" in attributes.get(f"{_SWITCH} type", "") or attributes.get("role") == "doc-pagebreak":
            return True
        if space != _SWITCH or tag not in ("case", "default") or not self._switches:
            return False
        is_read = tag == "default" or attributes.get("required-namespace") in (*_XHTML, *_FOREIGN)
        is_taken, self._switches[-1] = self._switches[-1], self._switches[-1] or is_read
        return is_taken or not is_read

    def end(self, name: str) -> None:
        """An element ends."""
        depth = len(self._ends)
        end = self._ends.pop()
        if self._left_out:
            self._left_out *= self._left_out != depth
            return
        self._text_only *= self._text_only != depth
        self._no_markup &= self._text_only > 0
        self._head *= self._head != depth
        if name == f"{_SWITCH} switch":
            self._switches.pop()
        self.pieces.append(end)

    def characters(self, data: str) -> None:
        """Text between tags; in scripts and styles it is no markup, and must not end them."""
        if not self._left_out:
            self.pieces.append(data.replace("</", "<\\/") if self._no_markup else escape(data, quote=False))

    def unknown(self, name: str, is_parameter: bool) -> None:
        """An entity declared elsewhere: it stays as it stands."""
        if not is_parameter:
            self.characters(f"&{name};")
