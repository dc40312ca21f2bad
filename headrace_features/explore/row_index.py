"""An index of a dataset's documents for lists: counts, narrow columns, first words and failed rules in files.

It is built on demand in a thread, for one version of the dataset's tables, which the files' names say; pages show what
there is while it is built. Rows come by key (sort value, row), never by offset, and every query has a budget of time.
It holds candidates and counts: texts are read from the lake.
"""

from __future__ import annotations

import functools
import sqlite3
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import And, EqualTo, In

from blender_service.recently_used import RecentlyUsed
from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.document_lookup import is_prefix
from headrace_features.explore.dataset_at import DatasetAt, DatasetVersion
from headrace_features.explore.facet_columns import CHARTS, Counts, FacetColumns, Mask, build_columns
from headrace_features.explore.index_files import BUILDS, NARROW, build_rows, build_texts, quoted, scores_of
from headrace_features.explore.indexed_texts import IndexedTexts
from headrace_features.explore.row_query import (
    FACETS,
    Answer,
    Columns,
    RowQuery,
    damaged,
    numbers_of,
    stretches,
    where,
    within_budget,
)
from headrace_features.explore.word_index import WordIndex
from spark_jobs.arrays import Float64Array
from spark_jobs.lake.files.lookups import EVERYTHING, first_rows
from spark_jobs.lake.files.scans import scan_of

PAGE: Final = 50
_FORMAT: Final = 4
_KEPT_FILES: Final = 12  # of the indexes of a dataset; the least recently opened are deleted
_LAST: Final = (1 << 63) - 1
_COMMON: Final = 20_000  # from so many matches on, rows are read in the sorted order, else sorted
_NO_FILES: Final[Mapping[str, Path]] = {}
_MOST_WIDE: Final = 4  # numeric columns, and masks of selections, that are at hand
_MOST_SHOWN: Final = 10_000  # documents of first rows whose partition is remembered


class RowIndex:
    """Rows of one version of a dataset; many threads may ask while one builds it.

    Attributes:
        dataset: its name.
        version: of its tables.
        scores: numeric signals.
        total: documents that it has when it is whole.
        texts_total: texts likewise.
        texts: where its texts are, and their first words.
        words: of its texts.
        failure: why it could not be built; empty where nothing went wrong.
    """

    def __init__(self, at: DatasetAt, folder: Path, with_text: bool = True) -> None:
        """Open the files of an index, or begin to build them in a thread."""
        self._at, self.dataset, self.version = at, at.name, at.version
        self._narrow, self._rows, self._texts = (
            file_of(folder, at.name, at.version, kind) for kind in ("columns", "rows", "texts")
        )
        self._with_text = with_text
        self.scores = scores_of(at)
        self._columns = Columns(at.name, ("byte_count", *self.scores))
        self.texts = IndexedTexts(at, self._texts if with_text else None, self._columns, self._ask)
        files = {"worded": file_of(folder, at.name, at.version, "words"), "placed": self._texts, "listed": self._rows}
        self.words = WordIndex(at, files, self._columns)
        self.total, self.texts_total = at.summed("documents"), at.summed("texts")
        self.failure = ""
        self._counted, self._listed, self._searchable = (threading.Event() for _ in range(3))
        self._facets: FacetColumns | None = None
        self._wide = RecentlyUsed[str, Float64Array](_MOST_WIDE)
        self._masks = RecentlyUsed[Hashable, Mask](_MOST_WIDE)
        self._shares = [0.0, 0.0]
        self._shown = RecentlyUsed[str, tuple[int, int]](_MOST_SHOWN)
        for file, event in self._events:
            if file.exists():
                event.set()
                file.touch()
        if not all(event.is_set() for _, event in self._events):
            threading.Thread(target=self._build_safely, name=f"index-{at.name}", daemon=True).start()

    @property
    def numeric(self) -> list[str]:
        """Columns that can be sorted and ranged by."""
        return [*self._columns.numeric]

    @property
    def narrow(self) -> list[str]:
        """Those of them that counts have without the rows."""
        return self.numeric[:CHARTS]

    @property
    def is_usable(self) -> bool:
        """Whether it may still be asked: it did not fail, and nobody deleted its files."""
        return not self.failure and all(file.exists() for file, done in self._events if done.is_set())

    @property
    def _events(self) -> list[tuple[Path, threading.Event]]:
        """The files of the index, each with what is set when it is there or cannot be written."""
        files = [(self._narrow, self._counted), (self._rows, self._listed), (self._texts, self._searchable)]
        return files if self._with_text else files[:2]

    def wait_for_counts(self, seconds: float) -> bool:
        """Wait until selections that need no row can be counted; say whether they can."""
        self._counted.wait(seconds)
        return self._narrow.exists()

    def wait(self, seconds: float) -> bool:
        """Wait until its rows can be listed; say whether they can.

        Raises:
            CommandError: it could not be built.
        """
        self._listed.wait(seconds)
        if self.failure and not self._rows.exists():
            raise CommandError(f"{self.dataset}: its rows cannot be listed: {self.failure}")
        return self._rows.exists()

    def wait_for_texts(self, seconds: float) -> bool:
        """Wait until it knows first words and where texts are; say whether it does."""
        if self._with_text:
            self._searchable.wait(seconds)
        return self._with_text and self._texts.exists()

    @property
    def progress(self) -> float:
        """The share of rows that were read."""
        return self._shares[0]

    @property
    def text_progress(self) -> float:
        """The share of texts that were read."""
        return self._shares[1]

    @property
    def earlier(self) -> DatasetVersion | None:
        """The newest other version whose rows are at hand."""
        others = [file for file in self._files(f".rows.{_FORMAT}") if file != self._rows]
        newest = max(others, key=lambda file: file.stat().st_mtime, default=None)
        return (
            DatasetVersion.parse(newest.name.removeprefix(f"{self.dataset}.").split(".")[0])
            if newest is not None
            else None
        )

    def rows(self, wanted: RowQuery, count: int = PAGE) -> list[dict[str, Any]]:
        """A page of documents; those without a value of the sorted column are the last.

        Raises:
            CommandError: a column or rule is not known, or the query took longer than its budget.
        """
        wheres, values, joins = self._columns.conditions(wanted)
        key = self._columns.key(wanted)
        if wanted.sort and not wanted.rule:  # what many rows meet is looked at in the sorted order; few are sorted
            valued = zip(wheres, values, strict=False)  # the conditions of one value come first
            common = {term for term, value in valued if term.endswith(" = ?") and self._is_common(term, value)}
            wheres = [f"+{term}" if term in common else term for term in wheres]
        shown = "r.*, f.rule, f.value, f.threshold, f.distance" if wanted.rule else "r.*"
        shown += ", g.level, g.witness, g.similarity" if wanted.removed else ""
        rows: list[dict[str, Any]] = []
        for more, bounds, order in stretches(wanted, key, self._place):
            if len(rows) < count:
                query = (
                    f"SELECT {shown}, {key} AS sort_key FROM {joins}{where([*wheres, *more])} ORDER BY {order} LIMIT ?"
                )
                rows += self._ask(query, [*values, *bounds, count - len(rows)], gone=wanted.attached)
        return rows

    def named(self, name: str) -> list[tuple[int, int]]:
        """(increment, shard) of the documents that have a doc_id, its first digits, or a path."""
        query = "SELECT DISTINCT increment, shard FROM rows WHERE"
        rows: list[dict[str, Any]] = []
        if is_prefix(name):
            ends = [bytes.fromhex(name.lower().ljust(32, digit)) for digit in "0f"]
            rows = self._ask(f"{query} doc_id BETWEEN ? AND ?", ends)
        rows = rows or self._ask(f"{query} path = ?", [name])
        return [(row["increment"], row["shard"]) for row in rows]

    def by_id(self, doc_ids: Sequence[str], wait_seconds: float = 0.3) -> dict[str, dict[str, Any]]:
        """Path, first words and verdict of some documents by doc_id; of none while the index is being built."""
        if not doc_ids or not self.wait(wait_seconds):
            return {}
        rows = self.rows(RowQuery(ids=tuple(doc_ids)), len(doc_ids))
        self.wait_for_texts(wait_seconds)
        words = self.texts.previews(rows)
        return {
            row["doc_id"]: {"path": row["path"], "preview": words.get(row["n"]), "kept": row["kept"]} for row in rows
        }

    def failed(self, doc_id: str) -> list[dict[str, Any]]:
        """The rules that a document failed: rule, value, threshold, distance."""
        query = (
            "SELECT f.rule, f.value, f.threshold, f.distance FROM rows r JOIN failed f ON f.n = r.n WHERE doc_id = ?"
        )
        return self._ask(query, [bytes.fromhex(doc_id)])

    @property
    def has_words(self) -> bool:
        """Whether lists are searched by the index of words, as of a large dataset."""
        return self.words.is_large and self.wait_for_texts(0) and self.words.wait(0)

    def first_rows(self, wanted: RowQuery, count: int = PAGE) -> list[dict[str, Any]]:
        """Rows of the table itself while the index is being built, in no order; none where the selection needs it."""
        documents = self._at.table("documents")
        needs = bool(wanted.sort or wanted.rule or wanted.path or wanted.ranges or wanted.seed or wanted.within)
        needs = needs or "verdict" in wanted.equal
        if documents is None or needs or wanted.after:
            return []
        head = documents[0].current_snapshot()
        if wanted.ids == () or head is None or head.snapshot_id != documents[1]:
            return []
        equal = [EqualTo(name, value) for name, value in wanted.equal.items()]
        named = [In("doc_id", wanted.ids)] if wanted.ids is not None else []
        condition = functools.reduce(And, [*equal, *named], EVERYTHING)
        if wanted.ids is None:
            rows = first_rows(documents[0], ("doc_id", *NARROW), count, condition).to_pylist()
        else:
            rows = scan_of(documents[0], condition, ("doc_id", *NARROW)).to_arrow().to_pylist()[:count]
        for row in rows:
            self._shown.put(row["doc_id"], (row["increment"], row["shard"]))
        return [{"n": 0, "kept": None, "sort_key": None, **row} for row in rows]

    def shown(self, doc_id: str) -> list[tuple[int, int]]:
        """The partition of a document that was among first rows; none of others."""
        place = self._shown.get(doc_id)
        return [] if place is None else [place]

    def ids(self, wanted: RowQuery) -> list[str]:
        """The documents of a selection, in no order."""
        wheres, values, joins = self._columns.conditions(wanted)
        rows = self._ask(f"SELECT r.doc_id FROM {joins}{where(wheres)}", values, gone=wanted.attached)
        return [row["doc_id"] for row in rows]

    def count(self, wanted: RowQuery) -> int:
        """How many documents there are."""
        return self.counts(wanted).total

    def counts(self, wanted: RowQuery, among: Mask | None = None) -> Counts:
        """Counts of a selection, or of its documents among some; only a selection that needs rows waits for these.

        Raises:
            CommandError: a column is not known, rows are still being read, or they took longer than their budget.
        """
        columns, masks = self._columns_there(), [] if among is None else [among]
        for name, value in wanted.equal.items():
            masks.append(columns.meet(self._columns.known(name, FACETS), value))
        if wanted.rule:
            masks.append(columns.meet("rule", wanted.rule))
        for name, bounds in wanted.ranges.items():
            masks.append(columns.between(self._columns.known(name, self.numeric), *bounds))
        if wanted.path or wanted.ids is not None or wanted.attached:
            some = RowQuery(path=wanted.path, ids=wanted.ids, removed=wanted.removed, within=wanted.within)
            masks.append(self._mask(some))
        return Counts(columns, functools.reduce(np.logical_and, masks) if masks else None, wanted.rule, self._columns)

    def quantile(self, name: str, share: float) -> float | None:
        """The value below which so much of a numeric column lies."""
        column = quoted(self._columns.known(name, self.numeric))
        last = self._ask(f"SELECT count({column}) AS there FROM rows", [])[0]["there"] - 1
        at = min(max(int(share * (last + 1)), 0), last)
        way, offset = ("", at) if 2 * at < last else (" DESC", last - at)  # from the nearer end
        query = f"SELECT {column} AS v FROM rows WHERE {column} IS NOT NULL ORDER BY {column}{way} LIMIT 1 OFFSET ?"
        values = self._ask(query, [offset])
        return values[0]["v"] if values else None

    def _columns_there(self) -> FacetColumns:
        if self._facets is None:
            try:
                self._facets = FacetColumns(self._narrow, self._numbers)
            except pa.ArrowInvalid as error:
                raise damaged(self.dataset, self._narrow) from error
        return self._facets

    def _numbers(self, name: str) -> Float64Array:
        """(N) values of a numeric column in the order of `n`, NaN where there is none."""

        def read() -> Float64Array:
            return self._run(f"SELECT {quoted(name)} FROM rows ORDER BY n", [], numbers_of)

        return self._wide.find(name, read)

    def _mask(self, wanted: RowQuery) -> Mask:
        """The documents of a selection that the index alone knows, in the order of `n`."""

        def read() -> Mask:
            wheres, values, joins = self._columns.conditions(wanted)
            mask = np.zeros(len(self._columns_there()), np.bool_)
            numbers = self._run(f"SELECT r.n FROM {joins}{where(wheres)}", values, numbers_of, gone=wanted.attached)
            mask[numbers.astype(np.int64) - 1] = True
            return mask

        return self._masks.find((wanted.path, wanted.ids, wanted.removed, wanted.within), read)

    def _place(self, doc_id: bytes, descending: bool) -> int:
        """The row of a doc_id; if that is gone, of the one before it, or after it in descending order."""
        sign, way, end = (">=", "", _LAST) if descending else ("<=", " DESC", 0)
        numbers = self._ask(f"SELECT n FROM rows WHERE doc_id {sign} ? ORDER BY doc_id{way} LIMIT 1", [doc_id])
        return int(numbers[0]["n"]) if numbers else end

    def _is_common(self, condition: str, value: Any) -> bool:
        query = f"SELECT count(*) AS n FROM (SELECT 1 FROM rows r WHERE {condition} LIMIT {_COMMON})"
        return bool(self._ask(query, [value])[0]["n"] == _COMMON)

    def _ask(
        self, query: str, values: Sequence[Any], file: Path | None = None, gone: Mapping[str, Path] = _NO_FILES
    ) -> list[dict[str, Any]]:
        """Rows of a query as dictionaries, within the budget, as `_run` says."""
        rows = self._run(query, values, lambda cursor: [dict(row) for row in cursor], file, gone)
        for row in rows:
            if isinstance(row.get("doc_id"), bytes):
                row["doc_id"] = row["doc_id"].hex()
        return rows

    def _run(
        self,
        query: str,
        values: Sequence[Any],
        read: Callable[[sqlite3.Cursor], Answer],
        file: Path | None = None,
        gone: Mapping[str, Path] = _NO_FILES,
    ) -> Answer:
        """What `read` makes of the rows of a query.

        Args:
            query: in SQL.
            values: for its `?`.
            read: called with the rows, `sqlite3.Row` each.
            file: the database asked; by default that of rows, which else is attached as `listed`.
            gone: further databases, by the name that each is attached as.

        Raises:
            CommandError: rows are still being read, it took longer, or nobody waits for it any more.
        """
        if not self._rows.exists():
            raise CommandError(f"{self.dataset}: its rows are still being read; this comes when that is done")
        further = {**gone, "listed": self._rows} if file is not None else gone
        return within_budget(self.dataset, file or self._rows, further, query, values, read)

    def _files(self, suffix: str) -> list[Path]:
        """Files of all versions of the dataset."""
        return [*self._rows.parent.glob(f"{self.dataset}.*{suffix}")]

    def _build_safely(self) -> None:
        with BUILDS:
            self._build()

    def _build(self) -> None:
        try:
            if not self._narrow.exists():
                build_columns(self._at, self._narrow)
            self._counted.set()
            if not self._rows.exists():
                build_rows(self._at, self._rows, self._read_so_far(0))
            self._listed.set()
            if self._with_text and not self._texts.exists():
                build_texts(self._at, self._rows, self._texts, self._read_so_far(1))
            if self._with_text and self.words.is_large:
                self.words.wait(0)
            kept = sorted(self._files(f".{_FORMAT}"), key=lambda file: file.stat().st_mtime)[-_KEPT_FILES:]
            for file in self._files(".[0-9]*"):
                if file not in kept and file.suffix != ".tmp":
                    file.unlink(missing_ok=True)
        except Exception as error:  # noqa: BLE001 (a page says it; the server goes on)
            self.failure = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        finally:
            for _, event in self._events:
                event.set()

    def _read_so_far(self, at: int) -> Callable[[float], None]:
        return lambda share: self._shares.__setitem__(at, share)


def file_of(folder: Path, dataset: str, version: DatasetVersion, kind: str) -> Path:
    """The file of an index: of `columns`, `rows`, `texts` or `words`."""
    return folder / f"{dataset}.{version}.{kind}.{_FORMAT}"
