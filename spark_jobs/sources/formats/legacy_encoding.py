"""Find the encoding of a text neither in UTF-8 nor in its declared encoding (`encoding: detect`).

    null bytes          UTF-16 without a byte order mark; few of them in UTF-8 are no text
    declared            the declared encoding of a page or an XML text
    resiliparse         its detector is the best of those measured for encodings of one byte a character
    charset-normalizer  where resiliparse knows none: it has Korean, and encodings of DOS and the Macintosh

A codec counts only if its text encodes to the same bytes again (checked by the caller for what is longer than the
sample) and reads like a text: hardly any control, unassigned character or one for private use. A text in UTF-8 with a
few wrong bytes is not taken for another encoding.
It runs in the child of parser_process.py, and needs the extra `ingest`; docs/prepare/ingest_texts.md has its figures.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from typing import Final

from charset_normalizer import from_bytes
from resiliparse.parse.encoding import detect_encoding

from spark_jobs.sources.encodings.page_encoding import DECLARED_BYTES, OF_ONE_FAMILY, SUPERSETS
from spark_jobs.sources.encodings.prescan import declared_codec
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.refusals import Reason, Refusal

_MAX_STRANGE_FRACTION: Final = 0.001
_SIBLINGS: Final = {"iso8859-2": "cp1250", "iso8859-7": "cp1253", "iso8859-9": "cp1254", "iso8859-15": "cp1252"}
"""Windows has quotes and letters where the others have controls; these are tried where there are such controls."""
_CONTROLS_OF_TEXT: Final = "\t\n\r\f\x1a\x1b"
_LIKELY: Final = re.compile(r"[\n\r\t -~]")


def tell_encoding(sample: bytes, stated: str, is_whole: bool) -> Extracted | Refusal:
    """Find the encoding of a text: an empty text with it in the metadata (`source_encoding`), or why none fits.

    Args:
        sample: the text, or its beginning.
        stated: the codec stated by the source, or `detect`.
        is_whole: whether there is no more of it; else single wrong bytes count as strange characters.
    """
    if not is_whole:  # not in the middle of a character, where there are lines
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    if refusal := _broken_utf8(sample):
        return refusal
    tried = list[str]()
    for encoding, named_by in _candidates(sample) if stated == "detect" else [(stated, "the source's config")]:
        if encoding in tried:
            continue
        tried.append(encoding)
        try:
            text = sample.decode(encoding, "strict" if is_whole else "replace")
            is_lossless = not is_whole or text.encode(encoding) == sample
        except (UnicodeError, LookupError):
            continue
        if is_lossless and _strange_count(text) <= len(text) * _MAX_STRANGE_FRACTION + (not is_whole):
            return Extracted("", {"source_encoding": encoding, "source_encoding_by": named_by})
    return Refusal(Reason.UNDECODABLE, f"its bytes are no text in any encoding ({', '.join(tried) or 'none'} tried)")


def _candidates(sample: bytes) -> Iterator[tuple[str, str]]:
    """Codecs to try, each with what named it."""
    if b"\0" in sample:
        yield from ((codec, "null bytes") for codec in _by_null_bytes(sample))
        return
    if declared := declared_codec(sample[:DECLARED_BYTES]):
        yield SUPERSETS.get(declared, declared), "declared"
    detected = detect_encoding(sample)
    if detected not in (None, "utf-8"):  # utf-8 is what it says when it knows none
        yield OF_ONE_FAMILY.get(detected, detected), "detected"
        yield detected, "detected"
        if detected in _SIBLINGS:
            yield _SIBLINGS[detected], "detected"
    elif best := from_bytes(sample).best():
        yield best.encoding.replace("_", "-"), "detected"


def _by_null_bytes(sample: bytes) -> list[str]:
    """Both byte orders of UTF-16, the likelier (more ASCII) first; none where it is UTF-8 with null bytes.

    Of UTF-16 a quarter of the bytes or more are null, or the others are no UTF-8 or hold controls: its high bytes.
    """
    rest = sample.replace(b"\0", b"").decode("utf-8", "replace")
    is_utf8 = _strange_count(rest) <= len(rest) * _MAX_STRANGE_FRACTION + 1  # the last character may be cut
    if is_utf8 and sample.count(0) * 4 < len(sample):
        return []

    def likely(codec: str) -> int:
        return len(_LIKELY.findall(sample.decode(codec, "replace")))

    return sorted(("utf-16-le", "utf-16-be"), key=likely, reverse=True)


def _broken_utf8(sample: bytes) -> Refusal | None:
    """The refusal of UTF-8 with wrong bytes: more characters beyond ASCII are right than bytes are wrong."""
    if b"\0" in sample:
        return None
    text = sample.decode("utf-8", "surrogateescape")
    wrong_count = len(re.findall("[\udc80-\udcff]", text))
    right_count = len(re.findall("[^\x00-\x7f\udc80-\udcff]", text))
    if right_count <= wrong_count:
        return None
    return Refusal(Reason.UNDECODABLE, f"UTF-8 with {wrong_count} wrong bytes beside {right_count} characters")


def _strange_count(text: str) -> int:
    """Count characters absent from any text, and replacement characters; all characters where one is null."""
    counts = Counter(text)
    if "\0" in counts:
        return len(text) + 2
    return sum(
        count
        for character, count in counts.items()
        if character == "\ufffd"
        or (character not in _CONTROLS_OF_TEXT and unicodedata.category(character) in ("Cc", "Cn", "Co", "Cs"))
    )
