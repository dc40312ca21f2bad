"""How the rows of a document are laid out, in words: whole, or which lines are filled in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression

from headrace.tables.catalogue import load_table
from spark_jobs.corpus_stages import cut_texts_of
from spark_jobs.lake.files.lookups import read_rows
from spark_jobs.tokens.pieces import PIECES

_MOST_ROWS = 4


def laid_out(catalogue: Catalog, corpus: str, document: BooleanExpression, text: str) -> str:
    """Form, cut and lines of each row of a document; empty where a corpus encodes texts as they are.

    Args:
        catalogue: the lake's.
        corpus: its name.
        document: the condition on its row.
        text: of it, before the corpus cut it.
    """
    table = load_table(catalogue, f"{corpus}.tokens")
    if table is None or PIECES not in table.schema().column_names:
        return ""
    cut = cut_texts_of(catalogue, corpus)
    is_cut = cut is not None and bool(read_rows(catalogue, cut, ("doc_id",), document))
    (row,) = read_rows(catalogue, f"{corpus}.tokens", (PIECES, "row_starts", "forms", "cuts"), document)
    rows = [*_rows(row, None if is_cut else text.encode())]
    return "; ".join([*rows[:_MOST_ROWS], *([f"{len(rows):,} rows"] if len(rows) > _MOST_ROWS else [])])


def _rows(row: Mapping[str, Any], text: bytes | None) -> Iterator[str]:
    """In words each row; the last piece of one that is cut in three is its middle."""
    bounds = [0, *row["row_starts"], 1 << 31]
    for (first, stop), form, cut in zip(pairwise(bounds), row["forms"], row["cuts"], strict=True):
        if form == "whole":
            yield form
            continue
        middle = [piece for piece in row[PIECES] if first <= piece["token"] < stop and piece["start"] >= 0][-1]
        begin, end = (0 if text is None else text[: middle[at]].count(b"\n") + 1 for at in ("start", "end"))
        lines = f" lines {begin:,} to {end:,}" if end > begin else f" line {begin:,}"
        yield f"{form}, its middle{lines * (text is not None)} by {cut}"
