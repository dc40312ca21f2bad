"""The texts of a corpus after a selection with cuts: cut texts in the place of the whole ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

from spark_jobs.spark_sql import DataFrame

TEXT_COLUMNS: Final = ["dataset", "shard", "doc_id", "kind", "language", "content"]


def with_cuts(texts: DataFrame, cut_texts: DataFrame | None) -> DataFrame:
    """The texts of a corpus (`TEXT_COLUMNS`), its cut texts in the place of the whole ones."""
    if cut_texts is None:
        return texts
    whole = texts.join(cut_texts.select("doc_id"), "doc_id", "left_anti")
    return whole.select(TEXT_COLUMNS).unionByName(cut_texts.select(TEXT_COLUMNS))


def without(text: str, spans: Sequence[tuple[int, int]], rule: str) -> tuple[str, list[dict[str, Any]]]:
    """A text without some spans, and the edits on record.

    Args:
        text: before.
        spans: first character and character after the last of each, by start, apart from one another.
        rule: by which they are cut.
    """
    ends = [0, *(place for span in spans for place in span), len(text)]
    pieces = [text[start:end].encode() for start, end in pairwise(ends)]
    places = list(accumulate(map(len, pieces)))
    edits = [
        {"rule": rule, "start": start, "end": end, "replacement_length": 0}
        for start, end in zip(places[:-1:2], places[1::2], strict=True)
    ]
    return b"".join(pieces[::2]).decode(), edits
