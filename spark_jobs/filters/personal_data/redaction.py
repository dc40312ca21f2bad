"""Replace personal data by placeholders, with edits that lead every byte of the new text back to the old one.

    text       Ada <ada@x.org> wrote to bo@x.org, and ADA@X.ORG answered
    new text   Ada <<MAIL_1>> wrote to <MAIL_2>, and <MAIL_1> answered

A placeholder is stable inside a document: values that differ only in case, blanks and punctuation get one number.
Numbers count by kind from 1 in order of appearance, past those of placeholders that the text itself holds.

Edits are as those of the table `texts` (see `spark_jobs.text.normalization`), with the rule `redacted`. `compose` makes
one list of two, so that a text that was normalized and then redacted still leads back to its source.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from spark_jobs.arrays import Int64Array
from spark_jobs.filters.personal_data.find import Span
from spark_jobs.text.normalization import NO_EDITS, REDACTED, Edits, source_positions, source_spans


def redact(content: str, spans: Sequence[Span]) -> tuple[str, Edits]:
    """Replace spans by placeholders.

    Args:
        content: a text.
        spans: personal data in it, by start, none overlapping.

    Returns:
        The text with placeholders, and the edits that lead back to `content`.
    """
    if not spans:
        return content, NO_EDITS
    source = content.encode("utf-8")
    placeholders: dict[tuple[str, str], bytes] = {}
    taken = {name.encode() for name in re.findall(r"<[A-Z_]+_\d+>", content)}
    next_number: dict[str, int] = {}
    pieces, lengths, last = [], [], 0
    for span in spans:
        value = source[span.start : span.end].decode("utf-8").casefold()
        key = (span.kind, re.sub(r"[\W_]", "", value) or value)
        while key not in placeholders:
            number = next_number[span.kind] = next_number.get(span.kind, 0) + 1
            placeholder = f"<{span.kind.upper()}_{number}>".encode()
            if placeholder not in taken:
                placeholders[key] = placeholder
        pieces += [source[last : span.start], placeholders[key]]
        lengths.append(len(placeholders[key]))
        last = span.end
    starts, ends = (np.array([getattr(span, name) for span in spans], dtype=np.int64) for name in ("start", "end"))
    edits = Edits(np.full(len(spans), REDACTED, dtype=np.int64), starts, ends, np.array(lengths, dtype=np.int64))
    return b"".join([*pieces, source[last:]]).decode("utf-8"), edits


def compose(first: Edits, second: Edits) -> Edits:
    """One list of edits from the source to the last text, of two that were made one after the other.

    Edits of the second that overlap what the first put in become one edit with it, which replaces all that they did.

    Args:
        first: edits that lead from the middle text back to the source.
        second: edits that lead from the last text back to the middle one.

    Returns:
        Edits by start, not overlapping; one made of both has the rule of the second.
    """
    if not len(first) or not len(second):
        return first if len(first) else second
    text_start = first.text_start
    start = np.concatenate([text_start, second.start])
    end = np.concatenate([text_start + first.replacement_length, second.end])
    order = np.lexsort([end, start])
    start, end = start[order], end[order]
    is_second = order >= len(first)
    rule = np.concatenate([first.rule, second.rule])[order]
    growth = np.concatenate([np.zeros(len(first), np.int64), second.replacement_length - (second.end - second.start)])
    reach = np.maximum.accumulate(end)
    heads = np.flatnonzero(np.concatenate([[True], start[1:] >= reach[:-1]]))
    tails = np.append(heads[1:], len(order)) - 1
    low, high = start[heads], reach[tails]
    # A group of one deletion has no byte in the middle text; all others have a first and a last one.
    deleted = low == high
    source_start = np.where(is_second[heads], source_positions(first, low), _own(first.start, order, heads))
    last_end = source_spans(first, np.maximum(high - 1, 0), np.maximum(high, 1))[1]
    source_end = np.where(deleted, _own(first.end, order, heads), last_end)
    length = high - low + np.add.reduceat(growth[order], heads)
    seconds = np.maximum.reduceat(np.where(is_second, rule, -1), heads)
    return Edits(np.where(seconds >= 0, seconds, rule[heads]), source_start, source_end, length)


def _own(values: Int64Array, order: Int64Array, heads: Int64Array) -> Int64Array:
    """What the first edit of each group has in the source; anything where the second list made it."""
    own: Int64Array = values[np.minimum(order[heads], len(values) - 1)]
    return own
