"""How the rows of a document are laid out, in words: whole, or which lines are filled in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression

from headrace.tables.catalogue import load_table
from headrace.tables.window_facts import mask_rules
from spark_jobs.corpus_stages import cut_texts_of
from spark_jobs.lake.files.lookups import read_rows
from spark_jobs.packing.windows.masks import MASK_RULE
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
    is_cut = _is_cut(catalogue, corpus, document)
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


def untrained(catalogue: Catalog, corpus: str, document: BooleanExpression, text: str) -> tuple[str, dict[str, Any]]:
    """Tokens without loss by rule, in words with lines, and as facts: counts, and the spans that rules found.

    Args:
        catalogue: the lake's.
        corpus: its name.
        document: the condition on its row.
        text: of it, before the corpus cut it; of a text that was cut neither lines nor spans are given.
    """
    table = load_table(catalogue, f"{corpus}.tokens")
    names = [] if table is None else mask_rules(table.properties)
    if not names:
        return "", {}
    (row,) = read_rows(catalogue, f"{corpus}.tokens", (MASK_RULE, "masked", "no_header"), document)
    spans = [] if _is_cut(catalogue, corpus, document) else row["masked"]
    counts = {name: row[MASK_RULE].count(number) for number, name in enumerate(names, 1)}
    said = []
    for number, name in enumerate(names, 1):
        found = [_line_range(text, span) for span in spans if span["rule"] == number]
        lines = ", ".join([*dict.fromkeys(found[:_MOST_ROWS]), *([".."] if len(found) > _MOST_ROWS else [])])
        said += [f"{counts[name]:,} by {name}" + f" ({lines})" * bool(lines)] if counts[name] else []
    reasons = [f"{sum(counts.values()):,} without loss: {', '.join(said)}"] if said else []
    reasons += [f"no header: {row['no_header']}"] if row["no_header"] else []
    return "; ".join(reasons), {
        "without_loss": counts,
        "masked": [{**span, "rule": names[span["rule"] - 1]} for span in spans],
    }


def _is_cut(catalogue: Catalog, corpus: str, document: BooleanExpression) -> bool:
    cut = cut_texts_of(catalogue, corpus)
    return cut is not None and bool(read_rows(catalogue, cut, ("doc_id",), document))


def _line_range(text: str, span: Mapping[str, int]) -> str:
    first, last = (text.count("\n", 0, place) + 1 for place in (span["start"], span["end"] - 1))
    return f"lines {first:,} to {last:,}" if last > first else f"line {first:,}"
