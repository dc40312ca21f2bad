"""Replace personal data by placeholders, with edits that lead every byte of the new text back to the old one.

    text       Ada <ada@x.org> wrote to bo@x.org, and ADA@X.ORG answered
    new text   Ada <<MAIL_1>> wrote to <MAIL_2>, and <MAIL_1> answered

A placeholder is stable inside a document: values that differ only in case, blanks and punctuation get one number.
Numbers count by kind from 1 in order of appearance, past those of placeholders that the text itself holds.

Edits are as those of the table `texts` (see `spark_jobs.text.normalization`), with the rule `redacted`; its `compose`
makes one list of two, so that a text that was normalized and then redacted still leads back to its source.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from spark_jobs.filters.personal_data.find import Span
from spark_jobs.text.normalization import NO_EDITS, REDACTED, Edits


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
