"""Search the texts of datasets: a scan of their tables, file by file, that ends when enough is found.

No index is kept. Of 20 documents that hold "mill race" each is told with its path and the words around the first hit.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import In

from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.side_by_side import printable
from spark_jobs.lake.files.lookups import EVERYTHING, read_rows, scan_batches
from spark_jobs.lake.session.catalogue import load_table

_BATCH_ROWS = 512  # texts that are searched at once, and at most so many too many
_AROUND = 40
_SPACE = "[\\s\u00a0\u2000-\u200a\u202f\u3000]+"


@dataclass(frozen=True)
class Hit:
    """A document whose text has the words: the characters before, of and behind the first hit, in one line."""

    dataset: str
    doc_id: str
    path: str
    before: str
    words: str
    behind: str


@dataclass(frozen=True)
class Searched:
    """Hits of one dataset.

    Attributes:
        hits: in the order of the table's files.
        searched: documents that were read.
        total: documents with a text.
    """

    hits: list[Hit]
    searched: int
    total: int


def search(catalogue: Catalog, dataset: str, words: str, limit: int, is_regex: bool = False) -> Searched:
    """Find documents of a dataset by their text, in any case of letters.

    Args:
        catalogue: of the lake.
        dataset: with a table `texts`.
        words: as they stand in the text, or a regular expression of RE2.
        limit: most hits; the rest is not read.
        is_regex: whether `words` is an expression.

    Raises:
        CommandError: it is no expression.
    """
    table = load_table(catalogue, f"{dataset}.texts")
    snapshot = table.current_snapshot() if table is not None else None
    if table is None or snapshot is None:
        return Searched([], 0, 0)
    total = int(snapshot.summary["total-records"] or 0) if snapshot.summary is not None else 0
    found: dict[str, str] = {}
    searched = 0
    pattern = words if is_regex else re.escape(words)
    for batch in scan_batches(table, ("doc_id", "content"), EVERYTHING, _BATCH_ROWS):
        try:
            holds = _holds(batch.column("content"), words, is_regex)
        except pa.ArrowInvalid as error:
            raise CommandError(f"search --regex {words}: {error}; mend the expression, or leave --regex out") from error
        searched += len(batch)
        hits = batch.filter(holds).slice(0, limit - len(found))
        found |= zip(hits.column("doc_id").to_pylist(), hits.column("content").to_pylist(), strict=True)
        if len(found) >= limit:
            break
    rows = read_rows(catalogue, f"{dataset}.documents", ("doc_id", "path"), In("doc_id", {*found, ""}))
    paths = {row["doc_id"]: row["path"] for row in rows}
    hits_found = [Hit(dataset, one, paths.get(one, ""), *_excerpt(text, pattern)) for one, text in found.items()]
    return Searched(hits_found, searched, max(total, searched))


def pattern_of(words: str) -> str:
    """The expression, for RE2 and for Python, of words as they stand in a text, with any white space between them."""
    return _SPACE.join(map(re.escape, unicodedata.normalize("NFC", words).split()))


def spans_of(text: str, words: str, most: int) -> list[tuple[int, int]]:
    """Where words stand in a text, in any case of letters; at most so many places, the first."""
    if not words.strip():
        return []
    found = re.finditer(pattern_of(words), text, re.IGNORECASE)
    return [one.span() for one in itertools.islice(found, most)]


def _holds(texts: pa.Array, words: str, is_regex: bool) -> pa.Array:
    match = pc.match_substring_regex if is_regex else pc.match_substring
    return match(texts, words, ignore_case=True)


def _excerpt(text: str, pattern: str) -> tuple[str, str, str]:
    """What stands before, in and behind the first hit; the beginning where Python's expressions find none."""
    try:
        hit = re.search(pattern, text, re.IGNORECASE)
    except re.error:
        hit = None
    start, end = hit.span() if hit is not None else (0, 0)
    parts = text[max(0, start - _AROUND) : start], text[start:end][: 2 * _AROUND], text[end : end + _AROUND]
    before, words, behind = (printable(re.sub(r"\s+", " ", part)) for part in parts)
    return before, words, behind
