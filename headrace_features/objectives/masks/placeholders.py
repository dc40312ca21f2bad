"""The rule `personal`: what a redaction wrote in place of personal data, such as `<MAIL_1>`.

The edits of a text say where it did, so that the same letters in a source are trained on.

    text      Ada <MAIL_1> wrote                edits: redacted, 8 bytes at byte 4
    cut       <MAIL_1> wrote                    the corpus cut bytes 0 to 4: the placeholder is at byte 0 now
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from headrace_features.objectives.masks.rules import MaskedText, mask_rule
from spark_jobs.arrays import Int64Array
from spark_jobs.text.normalization import REDACTED
from spark_jobs.text.text_columns import edits_of

Rows = Iterable[Mapping[str, Any]]


@mask_rule(version="1", reads="edits")
def personal(document: MaskedText) -> Iterator[tuple[int, int]]:
    """Placeholders of personal data."""
    yield from document.placeholders


def placeholders_of(text: str, edits: Rows, cuts: Rows | None) -> list[tuple[int, int]]:
    """Characters of the placeholders in a text.

    Args:
        text: after the cuts.
        edits: of the row in `texts`.
        cuts: of the row in the texts that a selection cut; None where it has none.
    """
    made = edits_of(edits)
    redacted = made.rule == REDACTED
    starts, lengths = made.text_start[redacted], made.replacement_length[redacted]
    if not len(starts):
        return []
    places = _after(cuts or (), np.concatenate([starts, starts + lengths]))
    before = np.cumsum(np.frombuffer(text.encode(), np.uint8) & 0xC0 != 0x80)  # letters begun up to each byte
    letters = np.append(0, before)[places].reshape(2, -1)
    return [(start, end) for start, end in letters.T.tolist() if start < end]


def _after(cuts: Rows, places: Int64Array) -> Int64Array:
    """Places in bytes after the bytes of cuts are gone."""
    left = places.copy()
    for cut in cuts:
        left -= np.clip(places, cut["start"], cut["end"]) - cut["start"]
    return left
