"""Find structured personal data in a column of texts.

One worked example, with `min_confidence` .5:

    text     Mail ada@lovelace.org, order 4111111111111111
    spans    {5, 21, mail, mail, .95}; the order's number passes as a card, but is named an order: .3, left out
    counts   mail 1
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from headrace_features.privacy.personal_data.checks import Candidate, findings
from headrace_features.privacy.personal_data.digits import has_other_digits, with_ascii_digits
from headrace_features.privacy.personal_data.rules import KINDS, RULES
from headrace_features.privacy.personal_data.scan import TEXT, scan
from spark_jobs.arrays import Int64Array, UInt8Array
from spark_jobs.text.text_columns import utf8_buffer

SPAN_TYPE: Final = pa.struct(
    [
        pa.field("start", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("rule", pa.string(), nullable=False),
        pa.field("confidence", pa.float64(), nullable=False),
    ]
)
SPANS_TYPE: Final = pa.list_(pa.field("element", SPAN_TYPE, nullable=False))
_BEFORE_BYTES: Final = 48


class DetectedSpan(NamedTuple):
    """Personal data in a text.

    Attributes:
        start: first byte of the text's UTF-8.
        end: byte after the last one.
        kind: what it is.
        rule: what found it.
        confidence: from 0 to 1.
    """

    start: int
    end: int
    kind: str
    rule: str
    confidence: float


def score(content: pa.Array, min_confidence: float = 0.5) -> dict[str, pa.Array]:
    """Find personal data in each text.

    Args:
        content: (D,) strings, none of them null.
        min_confidence: findings below it are left out; their spans hide no others.

    Returns:
        `spans`: (D,) lists of struct<start, end, kind, rule, confidence>, by start, none overlapping; and for each of
        `KINDS` its `<kind>_count`, (D,) int64.
    """
    return spans_with_counts([resolve(spans) for spans in found_spans(content, min_confidence)])


def spans_with_counts(spans: list[list[DetectedSpan]]) -> dict[str, pa.Array]:
    """Spans of D texts as columns: `spans`, and for each of `KINDS` its `<kind>_count`."""
    counts = np.zeros((len(KINDS), len(spans)), dtype=np.int64)
    for row, of_text in enumerate(spans):
        for span in of_text:
            if span.kind in KINDS:
                counts[KINDS.index(span.kind), row] += 1
    return {"spans": spans_column(spans)} | {f"{kind}_count": pa.array(counts[k]) for k, kind in enumerate(KINDS)}


def resolve(spans: list[DetectedSpan]) -> list[DetectedSpan]:
    """Those of a text kept where some overlap: the longest, then the surest, then by kind, rule and start.

    Each is weighed against those overlapping it and kept themselves, so their order says nothing.
    """
    if len(spans) < 2:
        return spans
    kept: list[DetectedSpan] = []
    touching: list[DetectedSpan] = []
    reach = 0
    for span in [*sorted(spans), None]:
        if touching and (span is None or span.start >= reach):
            kept += _resolve_touching(touching)
            touching = []
        if span is not None:
            touching.append(span)
            reach = max(reach, span.end) if len(touching) > 1 else span.end
    return kept


def _resolve_touching(spans: list[DetectedSpan]) -> list[DetectedSpan]:
    """The same for connected spans.

    None is longer than one kept before it, so it overlaps such a one where its first or its last byte does.
    """
    first = min(span.start for span in spans)
    taken = bytearray(max(span.end for span in spans) - first)
    kept: list[DetectedSpan] = []
    for span in sorted(spans, key=lambda s: (s.start - s.end, -s.confidence, s.kind, s.rule, s.start)):
        if not taken[span.start - first] and not taken[span.end - first - 1]:
            taken[span.start - first : span.end - first] = b"\1" * (span.end - span.start)
            kept.append(span)
    return sorted(kept)


def spans_column(spans: list[list[DetectedSpan]]) -> pa.ListArray:
    """Spans of D texts as (D,) lists of `SPAN_TYPE`."""
    offsets = np.zeros(len(spans) + 1, dtype=np.int32)
    np.cumsum([len(of_text) for of_text in spans], out=offsets[1:])
    columns = zip(*(span for of_text in spans for span in of_text), strict=True)
    fields = list(SPAN_TYPE)
    arrays = [pa.array(values, type=field.type) for values, field in zip(columns, fields, strict=False)]
    arrays = arrays or [pa.array([], type=field.type) for field in fields]
    return pa.ListArray.from_arrays(
        pa.array(offsets), pa.StructArray.from_arrays(arrays, fields=fields), type=SPANS_TYPE
    )


def found_spans(content: pa.Array, min_confidence: float) -> list[list[DetectedSpan]]:
    """Findings of each text, overlapping ones among them; digits of every script are digits."""
    offsets, signed = utf8_buffer(content)
    data = np.frombuffer(signed.cast("B"), np.uint8)
    folded = {
        row: with_ascii_digits(data[offsets[row] : offsets[row + 1]])
        for row in np.flatnonzero(has_other_digits(data, offsets)).tolist()
    }
    if folded:
        bounds = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        texts = [folded[row][0] if row in folded else data[low:high] for row, (low, high) in enumerate(bounds)]
        data, offsets = np.concatenate(texts), np.cumsum([0, *map(len, texts)])
    spans = _scanned(data, offsets, min_confidence)
    for row, (_, places) in folded.items():
        spans[row] = [span._replace(start=int(places[span.start]), end=int(places[span.end])) for span in spans[row]]
    return spans


def _scanned(data: UInt8Array, offsets: Int64Array, min_confidence: float) -> list[list[DetectedSpan]]:
    """Findings of each text by digits of ASCII.

    Args:
        data: (B,) bytes of the texts.
        offsets: (D + 1,) where each begins, and the end of the last.
        min_confidence: findings below it are left out.
    """
    buffer = data.data
    spans: list[list[DetectedSpan]] = [[] for _ in range(len(offsets) - 1)]
    for block in scan(data, offsets):
        bounds = zip(offsets[block[:, TEXT]].tolist(), offsets[block[:, TEXT] + 1].tolist(), strict=True)
        for (row, start, end, number, beside_words, context), (low, high) in zip(block.tolist(), bounds, strict=True):
            # One character a byte, so that positions in it are bytes.
            first = max(low, start - _BEFORE_BYTES)
            around = str(buffer[first : min(end + 1, high)], "latin-1")
            before, value = around[: start - first], around[start - first : end - first]
            before = before[before.rfind("\n") + 1 :]
            rule = RULES[number]
            candidate = Candidate(rule, value, before, around[end - first :], bool(beside_words), context)
            for finding in findings(number, candidate):
                if finding.confidence >= min_confidence:
                    span = (start - low + finding.start, start - low + finding.end)
                    spans[row].append(DetectedSpan(*span, rule.kind, finding.rule, finding.confidence))
    return spans
