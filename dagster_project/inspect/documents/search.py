"""Search the texts of datasets: a scan of their tables, file by file, that ends when enough is found.

No index is kept. Each document with "mill race" is given with its path and the words around the first hit.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import In

from dagster_project.exceptions import CommandError
from headrace.tables.catalogue import load_table
from spark_jobs.lake.files.lookups import read_rows
from spark_jobs.lake.files.wide_values import placed_batches

_BATCH_ROWS = 512  # texts that are searched at once
_AROUND = 40
_SPACE = "[\\s\u00a0\u2000-\u200a\u202f\u3000]+"


@dataclass(frozen=True)
class Hit:
    """A document with the words in its text: the characters before, of and behind the first hit, in one line."""

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
        searched: documents read.
        total: documents with a text.
    """

    hits: list[Hit]
    searched: int
    total: int


class Scan:
    """Reads the texts of a dataset one batch after the other, in the order of its files, for those with a pattern.

    Attributes:
        total: documents with a text.
    """

    def __init__(self, catalogue: Catalog, dataset: str, snapshot_id: int | None = None) -> None:
        """Look the table `texts` up, at a snapshot or as it is now."""
        self._table = load_table(catalogue, f"{dataset}.texts")
        there = None if self._table is None else self._table.current_snapshot()
        if self._table is not None and snapshot_id:
            there = self._table.snapshot_by_id(snapshot_id)
        self._snapshot = None if there is None else there.snapshot_id
        self.total = int(there.summary["total-records"] or 0) if there is not None and there.summary is not None else 0

    def matches(
        self, pattern: str, ignore_case: bool, start: int = 0
    ) -> Iterator[tuple[int, int, list[tuple[int, str, str]]]]:
        """Texts with a pattern.

        Args:
            pattern: a regular expression of RE2.
            ignore_case: whether upper and lower case are one.
            start: texts to leave out at the beginning.

        Yields:
            How many texts were read or left out by the end of a batch; its increment; of each match the same number,
            doc_id and text.

        Raises:
            pyarrow.ArrowInvalid: it is no expression.
        """
        if self._table is None or self._snapshot is None:
            return
        columns = ("increment", "doc_id", "content")
        for _, _, batch in placed_batches(self._table, self._snapshot, columns, _BATCH_ROWS, start):
            holds = pc.match_substring_regex(batch.column("content"), pattern, ignore_case=ignore_case)
            places = pc.indices_nonzero(holds)
            hits = batch.select(columns[1:]).take(places)
            numbers = [start + 1 + place for place in places.to_pylist()]
            start += len(batch)
            yield (
                start,
                batch.column("increment")[0].as_py(),
                [*zip(numbers, *(column.to_pylist() for column in hits.columns), strict=True)],
            )


def search(catalogue: Catalog, dataset: str, words: str, limit: int, is_regex: bool = False) -> Searched:
    """Find documents of a dataset by their text, in any case of letters.

    Args:
        catalogue: of the lake.
        dataset: with a table `texts`.
        words: as they stand in the text, any white space between them, or a regular expression of RE2.
        limit: most hits; the rest is not read.
        is_regex: whether `words` is an expression.

    Raises:
        CommandError: it is no expression.
    """
    scan = Scan(catalogue, dataset)
    pattern = words if is_regex else pattern_of(words)
    texts: dict[str, str] = {}
    searched = 0
    try:
        for searched, _, matches in scan.matches(pattern, ignore_case=True):  # noqa: B007
            texts |= {doc_id: text for _, doc_id, text in matches[: limit - len(texts)]}
            if len(texts) >= limit:
                break
    except pa.ArrowInvalid as error:
        raise CommandError(f"search --regex {words}: {error}; mend the expression, or leave --regex out") from error
    rows = read_rows(catalogue, f"{dataset}.documents", ("doc_id", "path"), In("doc_id", {*texts, ""}))
    paths = {row["doc_id"]: row["path"] for row in rows}
    try:
        compiled = re.compile(pattern, re.IGNORECASE)
    except re.error:  # RE2 alone can read it
        compiled = None
    hits = [Hit(dataset, doc_id, paths.get(doc_id, ""), *around(text, compiled)) for doc_id, text in texts.items()]
    return Searched(hits, searched, max(scan.total, searched))


def pattern_of(words: str) -> str:
    """The expression, for RE2 and for Python, of words as they stand in a text, with any white space between them."""
    return _SPACE.join(map(re.escape, unicodedata.normalize("NFC", words).split()))


def spans_of(text: str, words: str, most: int) -> list[tuple[int, int]]:
    """(start, end) of the first `most` occurrences of words in a text, in any case of letters."""
    if not words.strip():
        return []
    matches = re.finditer(pattern_of(words), text, re.IGNORECASE)
    return [occurrence.span() for occurrence in itertools.islice(matches, most)]


def around(text: str, pattern: re.Pattern[str] | None) -> tuple[str, str, str]:
    """What stands before, in and behind the first hit; the beginning where Python's expressions find none."""
    hit = pattern.search(text) if pattern is not None else None
    start, end = hit.span() if hit is not None else (0, 0)
    parts = text[max(0, start - _AROUND) : start], text[start:end][: 2 * _AROUND], text[end : end + _AROUND]
    before, words, behind = (re.sub(r"\s+", " ", part) for part in parts)
    return before, words, behind
