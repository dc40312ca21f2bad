"""Find the encoding of a text that is neither UTF-8 nor in the encoding that it declares (`encoding: detect`).

    null bytes          UTF-16 without a byte order mark, or no text
    declared            what a page or an XML text says of itself
    resiliparse         its detector is the best of those that were measured for encodings of one byte a character
    charset-normalizer  where resiliparse knows none: it has Korean, and encodings of DOS and the Macintosh

A codec counts only if its text encodes to the same bytes again and reads like a text: hardly any character that is a
control, unassigned or for private use. A text that is UTF-8 with a few wrong bytes is not taken for another encoding.
docs/ingest_texts.md has what was measured. It runs in the child of parser_process.py, and needs the extra `ingest`.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from typing import Final

from charset_normalizer import from_bytes
from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

from spark_jobs.sources.formats.extraction import Extracted
from spark_jobs.sources.formats.page_encoding import DECLARED, DECLARED_BYTES, SUPERSETS
from spark_jobs.sources.refusals import Reason, Refusal

_SAMPLE_BYTES: Final = 1 << 20  # by which an encoding is told
_MAX_STRANGE_FRACTION: Final = 0.001
_OF_ONE_FAMILY: Final = {
    **SUPERSETS,
    "iso8859-1": "cp1252",
    "iso8859-11": "cp874",
    "iso8859-13": "cp1257",
    "koi8-r": "koi8-u",  # differs in eight signs for drawing boxes, which are letters of Ukrainian there
}
_CONTROLS_OF_TEXT: Final = "\t\n\r\f\x1a\x1b"
_LIKELY: Final = re.compile(r"[\n\r\t -~]")


def decode_legacy(data: bytes, stated: str, is_sample: bool = False) -> Extracted | Refusal:
    """The text of bytes in a legacy encoding, with `source_encoding` and what told it, or why there is none.

    Args:
        data: the bytes.
        stated: the codec that the source states, or `detect`.
        is_sample: whether they are a part of a file, of which single wrong bytes count as strange characters.
    """
    if refusal := _broken_utf8(data):
        return refusal
    tried = list[str]()
    for encoding, named_by in _candidates(data) if stated == "detect" else [(stated, "the source's config")]:
        if encoding in tried:
            continue
        tried.append(encoding)
        try:
            text = data.decode(encoding, "surrogateescape" if is_sample else "strict")
            is_lossless = is_sample or text.encode(encoding) == data
        except (UnicodeError, LookupError):
            continue
        if is_lossless and _reads_like_text(text):
            codec = {"source_encoding": encoding, "source_encoding_by": named_by}
            return Extracted("" if is_sample else text, codec)
    return Refusal(Reason.UNDECODABLE, f"its bytes are no text in any encoding ({', '.join(tried) or 'none'} tried)")


def _candidates(data: bytes) -> Iterator[tuple[str, str]]:
    """Codecs to try, each with what named it."""
    sample = data[:_SAMPLE_BYTES]
    if len(data) > len(sample):  # not in the middle of a character, where there are lines
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    if b"\0" in sample:
        yield from ((codec, "null bytes") for codec in _by_null_bytes(sample))
        return
    found = DECLARED.search(sample[:DECLARED_BYTES])
    if found:
        label = (found[1] or found[2]).decode("ascii", "replace").lower()
        declared = map_encoding_to_html5(label, fallback_utf8=False)
        if declared:
            yield SUPERSETS.get(declared, declared), "declared"
    detected = detect_encoding(sample)
    if detected not in (None, "utf-8"):  # utf-8 is what it says when it knows none
        yield _OF_ONE_FAMILY.get(detected, detected), "detected"
        yield detected, "detected"
    elif best := from_bytes(sample).best():
        yield best.encoding.replace("_", "-"), "detected"


def _by_null_bytes(sample: bytes) -> list[str]:
    """Both orders of UTF-16, the one first in which more characters are ASCII."""

    def likely(codec: str) -> int:
        return len(_LIKELY.findall(sample.decode(codec, "replace")))

    return sorted(("utf-16-le", "utf-16-be"), key=likely, reverse=True)


def _broken_utf8(data: bytes) -> Refusal | None:
    """The refusal of UTF-8 with wrong bytes: more characters beyond ASCII are right than bytes are wrong."""
    if b"\0" in data[:_SAMPLE_BYTES]:
        return None
    text = data[:_SAMPLE_BYTES].decode("utf-8", "surrogateescape")
    wrong_count = len(re.findall("[\udc80-\udcff]", text))
    right_count = len(re.findall("[^\x00-\x7f\udc80-\udcff]", text))
    if right_count <= wrong_count:
        return None
    return Refusal(Reason.UNDECODABLE, f"UTF-8 with {wrong_count} wrong bytes beside {right_count} characters")


def _reads_like_text(text: str) -> bool:
    """Whether hardly any character is one that texts do not hold."""
    sample = text[:_SAMPLE_BYTES]
    strange = sum(
        count
        for character, count in Counter(sample).items()
        if character not in _CONTROLS_OF_TEXT and unicodedata.category(character) in ("Cc", "Cn", "Co", "Cs")
    )
    return strange <= len(sample) * _MAX_STRANGE_FRACTION and "\0" not in sample
