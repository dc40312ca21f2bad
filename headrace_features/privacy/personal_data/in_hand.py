"""Personal data of texts in hand: the findings of the table `personal_data`, in characters of the text itself.

    find_personal_data("Mail ada@lovelace.org")    [Finding(mail, 5, 21, "ada@lovelace.org", .95)]

The table counts in bytes of the normalized text; here each finding lies where it stands in the text that came in, with
its line ends and its accents.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace_features.privacy.personal_data.find import DetectedSpan, found_spans, resolve
from headrace_features.privacy.personal_data.personal_data import PersonalDataConfig
from spark_jobs.exceptions import InputError
from spark_jobs.in_hand.frames import frame_of
from spark_jobs.text.normalization import Edits, source_spans
from spark_jobs.text.text_columns import edits_of, normalized


class Finding(NamedTuple):
    """Personal data in a text.

    Attributes:
        kind: mail, phone, card, iban, ip, mac, national_number or secret.
        start: its first character in the text.
        end: the character after its last one.
        text: what stands there.
        confidence: how sure it is, from 0 to 1: a judgement, no frequency.
        rule: that found it.
    """

    kind: str
    start: int
    end: int
    text: str
    confidence: float
    rule: str


def find_personal_data(data: Any, column: str | None = "text", *, min_confidence: float | None = None) -> Any:
    """Find mail addresses, numbers and secrets of people, by patterns with checksums.

    Args:
        data: a text, or as of `deduplicate`.
        column: of the texts, where the data has columns.
        min_confidence: least confidence of a finding; that of the scorer `personal_data` by default.

    Returns:
        The findings of a text by `start`, none overlapping; of several texts a list of such lists.

    Raises:
        InputError: a missing column, no texts, or a confidence outside 0 to 1.
    """
    least = PersonalDataConfig().min_confidence if min_confidence is None else min_confidence
    if not 0 <= least <= 1:
        raise InputError(f"find_personal_data: min_confidence {least} is not between 0 and 1")
    frame = frame_of([data] if isinstance(data, str) else data, column)
    findings = [found for texts in frame.batches() for found in _findings(texts, least)]
    return findings[0] if isinstance(data, str) else findings


def _findings(texts: pa.Array, least: float) -> Iterator[list[Finding]]:
    """The findings of each text."""
    content, edits = normalized(texts.cast(pa.string()))
    for text, spans, row in zip(texts, map(resolve, found_spans(content, least)), edits, strict=True):
        yield _in_characters(text.as_py(), spans, edits_of(row.as_py())) if spans else []


def _in_characters(text: str, spans: list[DetectedSpan], edits: Edits) -> list[Finding]:
    """Spans of bytes of a normalized text as findings in its original text."""
    source = text.encode()
    places = np.array([(span.start, span.end) for span in spans], np.int64)
    starts, ends = source_spans(edits, places[:, 0], places[:, 1])
    if len(source) != len(text):
        begins = (np.frombuffer(source, np.uint8) & 0xC0) != 0x80
        before = np.concatenate([[0], np.cumsum(begins)])
        starts, ends = before[starts], before[ends]
    return [
        Finding(span.kind, start, end, text[start:end], span.confidence, span.rule)
        for span, start, end in zip(spans, starts.tolist(), ends.tolist(), strict=True)
    ]
