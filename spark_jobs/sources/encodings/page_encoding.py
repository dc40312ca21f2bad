"""Decode the bytes of a page from the web, strictly: every byte becomes its character in the codec.

What pages and servers declare is often not true, so the first of these codecs to decode all bytes counts:

    byte order mark   if there is one, no other codec is tried
    UTF-8             by its bytes alone: other encodings of more than a few characters are hardly ever valid UTF-8
    http, meta        what the server and the page declare, by the labels of the WHATWG Encoding Standard
    detected          what resiliparse's detector makes of the bytes

A page decoded by none of them is refused. A mail may be in an encoding unknown to the web, or not any more in use
there: of those, one of ASCII bytes alone (UTF-7, HZ, ISO-2022-KR) is never told by them, so what a mail declares
counts. Pages are not read by it, as in browsers: a text in UTF-7 can hide a script. The codecs are Python's; where a
web browser takes a label for a larger character set than Python does (GBK, Shift_JIS, EUC-KR, Big5), its superset is
used.
Source: encoding.spec.whatwg.org.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

from spark_jobs.sources.encodings.decoding import binary_refusal, decode, marked_encoding, null_byte_refusal
from spark_jobs.sources.encodings.prescan import declared_codec
from spark_jobs.sources.refusals import Reason, Refusal

DECLARED_BYTES = 4096  # the standard looks at 1,024; many pages have comments and scripts first
SUPERSETS = {"gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949", "big5": "big5hkscs"}
OF_ONE_FAMILY: Final = {
    **SUPERSETS,
    "iso8859-1": "cp1252",
    "iso8859-11": "cp874",
    "iso8859-13": "cp1257",
    "koi8-r": "koi8-u",  # differs in eight signs for drawing boxes, which are letters of Ukrainian there
}
"""What is tried in place of a codec that was detected."""
_ESCAPE = b"\x1b"  # ISO-2022-JP switches character sets by it, and is ASCII else
_CUT_BYTES = 3  # at most so many bytes of a character are left where a page was cut


class DecodedPage(NamedTuple):
    """A page's text, its codec, and what named the codec."""

    text: str
    encoding: str
    named_by: str


def decode_page(data: bytes, charset: str | None = None, cut: bool = False) -> DecodedPage | Refusal:
    """Decode one page.

    Args:
        data: its bytes.
        charset: label declared by the server.
        cut: whether a crawler stopped inside of the page, so that its last character may be incomplete.
    """
    if marked_encoding(data) is not None:
        marked = decode(data)
        if isinstance(marked, Refusal):
            return marked
        return DecodedPage(marked.text.removeprefix("\ufeff"), marked.encoding, "byte order mark")
    if refusal := null_byte_refusal(data):
        return refusal
    tried = list[str]()
    for encoding, named_by in _candidates(data, charset):
        if encoding not in tried:
            tried.append(encoding)
            text = _decoded(data, encoding, cut)
            if text is not None:
                return DecodedPage(text, encoding, named_by)
    return Refusal(Reason.UNDECODABLE, f"its bytes are not valid {', nor '.join(tried)}")


def decode_declared(data: bytes, label: str | None) -> DecodedPage | Refusal | None:
    """Decode a text of a mail by its declared encoding, where the web knows no such label.

    Returns:
        The text; None where the label is one of the web's or says nothing, so that `decode_page` decides; or why no
        codec can read what its label and its bytes say.
    """
    if not label or map_encoding_to_html5(label, fallback_utf8=False):
        return None
    try:
        if not _writes_ascii(label) if data.isascii() else _decoded(data, "utf-8", cut=False) is not None:
            return None
        text = data.decode(label)
        text.encode()  # UTF-7 can make lone surrogates
        return binary_refusal(text) or DecodedPage(text, label, "mail")
    except LookupError:
        if label.startswith("iso-2022") and _ESCAPE in data:
            return Refusal(Reason.UNDECODABLE, f"there is no codec for {label}, which it declares")
        return None
    except ValueError:  # a UnicodeError, or a null in the label
        return None


@lru_cache(64)
def _writes_ascii(label: str) -> bool:
    """Whether a codec of Python writes the letter a, and letters of other scripts, in bytes of ASCII.

    Raises:
        LookupError: there is no such codec.
    """
    for letter in "éあ中가":
        try:
            if f"a{letter}".encode(label).isascii():  # a is 0x81 in EBCDIC
                return True
        except UnicodeError:
            continue
    return False


def _candidates(data: bytes, charset: str | None) -> Iterator[tuple[str, str]]:
    """Codecs to try, each with what named it."""
    if _ESCAPE not in data:
        yield "utf-8", "its bytes"
    sent = charset and map_encoding_to_html5(charset.strip(" \"'").lower(), fallback_utf8=False)
    for encoding, named_by in ((sent, "http"), (declared_codec(data[:DECLARED_BYTES]), "meta")):
        if encoding and not encoding.startswith("utf-16"):  # a page in UTF-16 without its mark has null bytes
            yield SUPERSETS.get(encoding, encoding), named_by
    detected = detect_encoding(data)
    if detected != "iso2022_jp":
        yield "utf-8", "its bytes"
    if detected is not None:
        yield OF_ONE_FAMILY.get(detected, detected), "detected"
        yield detected, "detected"


def _decoded(data: bytes, encoding: str, cut: bool) -> str | None:
    """The text by one codec, or None where a byte does not fit it."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        if not cut or error.start < len(data) - _CUT_BYTES:
            return None
        return data[: error.start].decode(encoding)
    except LookupError:
        return None
