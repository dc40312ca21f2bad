"""The words of all texts of a dataset, in a file of SQLite's FTS5 that is begun when somebody first searches.

It has the places of words and no texts, so matches can be ranked by BM25 and phrases are found. 211,551 pieces of RFCs
(164 MB) take 4.2 s of a core, 62 MB of memory and 57 MB of disk, a third of the texts; without places, which FTS5 needs
to rank, 2.8 s and 19 MB. `the`, in 180,218 of them, is ranked in .22 s of a core, any rarer word in 4 ms
(`benchmarks/bench_word_index.py`); tantivy 0.27.0 has 24 MB, is built in 2.8 s and takes 1 ms, and is one package more.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dagster_project.exceptions import CommandError
from headrace_features.explore.dataset_at import DatasetAt
from headrace_features.explore.index_files import BUILDS, apart, quoted, written
from headrace_features.explore.row_query import Answer, Columns, RowQuery, where, within_budget
from spark_jobs.lake.files.wide_values import placed_batches

TOKENIZER: Final = "unicode61 remove_diacritics 0"
WORDS_FROM_BYTES: Final = 300_000_000  # of files of texts, about 1 GB of these
_TEXTS: Final = 2048  # that are Python objects at a time
_UNITS: Final = re.compile(r'"([^"]*)"|(\S+)')


class WordIndex:
    """The words of one version of a dataset; many threads may ask while one builds it.

    Attributes:
        is_large: whether a scan of all texts takes more than a few seconds.
        progress: the share of texts that was read.
        failure: why it could not be built; empty where nothing went wrong.
    """

    def __init__(self, dataset: DatasetAt, files: Mapping[str, Path], columns: Columns) -> None:
        """Begin nothing yet.

        Args:
            dataset: whose texts are read.
            files: its own database as `worded`, with a table words whose rows are numbered as those of `texts` in
                `placed`; and `listed`, with `rows`.
            columns: of `rows`.
        """
        self._dataset, self._files, self._columns = dataset, files, columns
        self.is_large = dataset.summed("texts", "total-files-size") >= WORDS_FROM_BYTES
        self.progress, self.failure = 0.0, ""
        self._begun: threading.Thread | None = None
        self._lock = threading.Lock()

    def wait(self, seconds: float) -> bool:
        """Begin to read the words where nobody has, wait until they are there, and say whether they are."""
        with self._lock:
            if self._begun is None and not self._files["worded"].exists():
                self._begun = threading.Thread(target=self._build_safely, name="words", daemon=True)
                self._begun.start()
        if self._begun is not None:
            self._begun.join(seconds)
        return self._files["worded"].exists()

    def candidates(self, terms: Sequence[str], wanted: RowQuery, start: int, count: int) -> list[dict[str, Any]]:
        """Candidates of a search, from `start` on: `t`, `file`, `row` and doc_id of texts that have all terms.

        Raises:
            CommandError: the query took longer than its budget.
        """
        wheres, values, joins = self._columns.conditions(wanted)
        of = where(["w.words MATCH ?", "w.rowid >= ?", "x.t = w.rowid", "r.n = x.n", *wheres])
        query = f"SELECT x.t, x.file, x.row, hex(r.doc_id) AS doc_id FROM words w CROSS JOIN texts x CROSS JOIN {joins}"
        arguments = [match_of(terms), start, *values, count]
        rows = self._run(f"{query}{of} ORDER BY w.rowid LIMIT ?", arguments, list, wanted.attached)
        return [{**row, "doc_id": row["doc_id"].lower()} for row in rows]

    def count(self, terms: Sequence[str]) -> int:
        """How many texts have all terms."""
        query = "SELECT count(*) FROM words WHERE words MATCH ?"
        return int(self._run(query, [match_of(terms)], lambda cursor: cursor.fetchone()[0]))

    def ranked(self, units: Sequence[str]) -> npt.NDArray[Any]:
        """The texts that have all words and phrases: number `t`, row `n` and `rank` of each, the lower the better.

        Raises:
            CommandError: the query took longer than its budget.
        """
        query = "SELECT w.rowid, x.n, w.rank FROM words w CROSS JOIN texts x ON x.t = w.rowid WHERE w.words MATCH ?"
        kind = [("t", np.int64), ("n", np.int64), ("rank", np.float64)]
        return self._run(query, [match_of(units)], lambda cursor: np.fromiter(map(tuple, cursor), kind))

    def _run(
        self,
        query: str,
        values: Sequence[Any],
        read: Callable[[sqlite3.Cursor], Answer],
        more: Mapping[str, Path] = MappingProxyType({}),
    ) -> Answer:
        files = {**self._files, **more}
        return within_budget(self._dataset.name, files.pop("worded"), files, query, values, read)

    def _build_safely(self) -> None:
        try:
            with BUILDS:
                self._build()
        except Exception as error:  # noqa: BLE001 (a page says it; the server goes on)
            self.failure = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"

    def _build(self) -> None:
        total, at, texts = self._dataset.summed("texts"), 0, self._dataset.table("texts")
        with written(self._files["worded"]) as (database, _):
            database.execute(f"CREATE VIRTUAL TABLE words USING fts5(content, content='', tokenize='{TOKENIZER}')")
            for _, _, batch in placed_batches(*texts, ("content",), _TEXTS) if texts is not None else ():
                words = ((at + place, apart(text)) for place, text in enumerate(batch.column(0).to_pylist()))
                database.executemany("INSERT INTO words (rowid, content) VALUES (?, ?)", words)
                at += len(batch)
                self.progress = at / max(total, at)
            database.commit()


def units_of(words: str) -> list[str]:
    """The words and "phrases in quotes" of a search.

    Raises:
        CommandError: there is none, only signs.
    """
    # as texts are: NFC, though a keyboard or a file name gave letters and accents apart; FTS5 takes no NUL
    units = [phrase or word for phrase, word in _UNITS.findall(unicodedata.normalize("NFC", words).replace("\0", " "))]
    units = [unit for unit in units if any(letter.isalnum() for letter in unit)]
    if not units:
        raise CommandError(f"{words[:80]!r} has no word to search; write some letters or digits")
    return units


def match_of(units: Sequence[str]) -> str:
    """All of some words and phrases, for FTS5: each is one string to it, whatever it is made of."""
    return " ".join(quoted(apart(unit)) for unit in units)
