"""An index of a dataset's documents for lists: narrow columns, first words and failed rules in SQLite files.

It is built on demand in a thread, for one version of the dataset's tables, which the files' names say; pages show what
there is while it is built. Rows come by key (sort value, row), never by offset, and every query has a budget of time.
It holds candidates and counts: texts are read from the lake.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pyiceberg.expressions import And, EqualTo, In

from blender_service.recently_used import RecentlyUsed
from dagster_project.exceptions import CommandError
from dagster_project.inspect.bins import bin_edges, is_spread
from dagster_project.inspect.documents.document_lookup import is_prefix
from headrace_features.explore.browser_left import HAS_LEFT
from headrace_features.explore.dataset_at import DatasetAt, DatasetVersion
from headrace_features.explore.index_files import NARROW, build_rows, build_texts, quoted, scores_of
from headrace_features.explore.row_query import FACETS, Columns, RowQuery, match_all, stretches, where
from spark_jobs.lake.files.lookups import EVERYTHING, first_rows, placed_values, read_placed_values
from spark_jobs.lake.files.scans import scan_of

BUDGET_SECONDS: Final = 5.0
PAGE: Final = 50
_MOST_VALUES: Final = 20
_MOST_DISTINCT: Final = 1001
_FORMAT: Final = 3
_KEPT_FILES: Final = 6  # indexes kept of a dataset; the least recently opened are deleted
_STEPS: Final = 20_000  # instructions of SQLite's virtual machine between two looks at the clock
_LAST: Final = (1 << 63) - 1
_COMMON: Final = 20_000  # from so many matches on, rows are read in the sorted order, else sorted
_NO_FILES: Final[Mapping[str, Path]] = {}
_MOST_SHOWN: Final = 10_000  # documents of first rows whose partition is remembered


class RowIndex:
    """Rows of one version of a dataset; many threads may ask while one builds it.

    Attributes:
        dataset: its name.
        version: of its tables.
        scores: numeric signals.
        total: documents that it has when it is whole.
        texts_total: texts likewise.
        failure: why it could not be built; empty where nothing went wrong.
    """

    def __init__(self, at: DatasetAt, folder: Path, with_text: bool = True) -> None:
        """Open the files of an index, or begin to build them in a thread."""
        self._at, self.dataset, self.version = at, at.name, at.version
        self._rows, self._texts = (file_of(folder, at.name, at.version, kind) for kind in ("rows", "texts"))
        self._with_text = with_text
        self.scores = scores_of(at)
        self._columns = Columns(at.name, ("byte_count", *self.scores))
        self.total, self.texts_total = at.summed("documents"), at.summed("texts")
        self.failure = ""
        self._listed, self._searchable = threading.Event(), threading.Event()
        self._shares = [0.0, 0.0]
        self._shown = RecentlyUsed[str, tuple[int, int]](_MOST_SHOWN)
        if self._rows.exists():
            self._listed.set()
        if self._texts.exists() or not with_text:
            self._searchable.set()
        for file in (self._rows, self._texts):
            if file.exists():
                file.touch()
        if not (self._listed.is_set() and self._searchable.is_set()):
            threading.Thread(target=self._build_safely, name=f"index-{at.name}", daemon=True).start()

    @property
    def numeric(self) -> list[str]:
        """Columns that can be sorted and ranged by."""
        return [*self._columns.numeric]

    @property
    def is_usable(self) -> bool:
        """Whether it may still be asked: it did not fail, and nobody deleted its files."""
        files = ((self._listed, self._rows), (self._searchable, self._texts))
        wanted = files if self._with_text else files[:1]
        return not self.failure and all(file.exists() for done, file in wanted if done.is_set())

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
        others = [file for file in self._files(self._rows.suffix) if file != self._rows]
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

    def previews(self, rows: Sequence[Mapping[str, Any]]) -> dict[int, str]:
        """The first words of rows, by their `n`; of none where they are hidden or still being read."""
        if not self.wait_for_texts(0):
            return {}
        marks = ", ".join("?" * len(rows))
        query = f"SELECT n, preview FROM texts WHERE n IN ({marks})"
        return {row["n"]: row["preview"] for row in self._ask(query, [row["n"] for row in rows], self._texts)}

    def by_id(self, doc_ids: Sequence[str], wait_seconds: float = 0.3) -> dict[str, dict[str, Any]]:
        """Path, first words and verdict of some documents by doc_id; of none while the index is being built."""
        if not doc_ids or not self.wait(wait_seconds):
            return {}
        rows = self.rows(RowQuery(ids=tuple(doc_ids)), len(doc_ids))
        self.wait_for_texts(wait_seconds)
        words = self.previews(rows)
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
        """Whether its texts are indexed by their words, as from 1 GB of them on."""
        if not self.wait_for_texts(0):
            return False
        return bool(self._ask("SELECT 1 AS one FROM sqlite_master WHERE name = 'words'", [], self._texts))

    def with_words(self, terms: Sequence[str], wanted: RowQuery, start: int, count: int) -> list[dict[str, Any]]:
        """Candidates of a search, from `start` on: `t`, `file` and `row` of texts that have all terms.

        Raises:
            CommandError: the query took longer than its budget.
        """
        wheres, values, joins = self._columns.conditions(wanted)
        of = ["words MATCH ?", "w.rowid >= ?", "x.t = w.rowid", "r.n = x.n", *wheres]
        query = f"SELECT x.t, x.file, x.row, r.doc_id FROM words w CROSS JOIN texts x CROSS JOIN {joins}{where(of)}"
        arguments = [match_all(terms), start, *values, count]
        return self._ask(f"{query} ORDER BY w.rowid LIMIT ?", arguments, self._texts, wanted.attached)

    def count_with_words(self, terms: Sequence[str]) -> int:
        """How many texts have all terms."""
        query = "SELECT count(*) AS n FROM words WHERE words MATCH ?"
        return int(self._ask(query, [match_all(terms)], self._texts)[0]["n"])

    def first_rows(self, wanted: RowQuery, count: int = PAGE) -> list[dict[str, Any]]:
        """Rows of the table itself while the index is being built, in no order; none where the selection needs it."""
        documents = self._at.table("documents")
        needs = wanted.sort or wanted.rule or wanted.path or wanted.ranges or wanted.seed or "verdict" in wanted.equal
        if documents is None or needs or wanted.after or wanted.within:
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

    def texts_of(self, places: Sequence[tuple[int, int, int]]) -> dict[int, str]:
        """Texts by number, read at `places`: (number, file, row) as the database `texts` has them."""
        table = self._at.table("texts")
        assert table is not None
        paths = {row["file"]: row["path"] for row in self._ask("SELECT file, path FROM files", [], self._texts)}
        texts: dict[int, str] = {}
        for file in {file for _, file, _ in places}:
            numbers = {row: number for number, at, row in places if at == file}
            for row, text in read_placed_values(table[0], paths[file], "content", numbers).items():
                texts[numbers[row]] = text
        return texts

    def placed(self, wanted: RowQuery, start: int, count: int) -> list[dict[str, Any]]:
        """Rows of a selection among some texts of the dataset, in the order of their files, with file, row and rules.

        Args:
            wanted: the selection; its order means nothing.
            start: the first text; where texts are hidden, the first row.
            count: texts that are looked at.
        """
        wheres, values, joins = self._columns.conditions(replace(wanted, rule=""))
        if wanted.rule:  # looked up for each row; SQLite would begin with all rows of the rule
            wheres.append("EXISTS (SELECT 1 FROM failed f WHERE f.n = r.n AND +f.rule = ?)")
            values.append(wanted.rule)
        at, file = ("x.t", self._texts) if self._with_text else ("r.n", None)
        if file is not None:  # text by text, unless few are named
            joins = f"texts x CROSS JOIN {joins}" if wanted.ids is None else f"{joins} CROSS JOIN texts x"
            wheres.append("r.n = x.n")
        shown = f"r.*{', x.file, x.row' if file is not None else ''}"
        rules = "(SELECT group_concat(o.rule) FROM failed o WHERE o.n = r.n) AS rules"
        of = where([*wheres, f"{at} >= ?", f"{at} < ?"])
        query = f"SELECT {shown}, {rules} FROM {joins}{of} ORDER BY {at}"
        return self._ask(query, [*values, start, start + count], file, wanted.attached)

    def ids(self, wanted: RowQuery) -> list[str]:
        """The documents of a selection, in no order."""
        wheres, values, joins = self._columns.conditions(wanted)
        rows = self._ask(f"SELECT r.doc_id FROM {joins}{where(wheres)}", values, gone=wanted.attached)
        return [row["doc_id"] for row in rows]

    def each_text(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], str]]:
        """Rows of `placed` with their texts, of which few are in memory at a time."""
        table = self._at.table("texts")
        assert table is not None
        paths = {row["file"]: row["path"] for row in self._ask("SELECT file, path FROM files", [], self._texts)}
        for file, some in itertools.groupby(rows, key=lambda row: row["file"]):
            at = {row["row"]: row for row in some}
            yield from ((at[place], text) for place, text in placed_values(table[0], paths[file], "content", at))

    def count(self, wanted: RowQuery) -> int:
        """How many documents there are."""
        wheres, values, joins = self._columns.conditions(wanted)
        query = f"SELECT count(*) AS n FROM {joins}{where(wheres)}"
        return int(self._ask(query, values, gone=wanted.attached)[0]["n"])

    def facet(self, name: str, wanted: RowQuery) -> tuple[list[tuple[str, int]], int]:
        """The most frequent values of a column with their documents, at most twenty, and the documents of all others.

        Raises:
            CommandError: there is no such column, or the query took longer than its budget.
        """
        wheres, values, joins = self._columns.conditions(wanted)
        if name == "rule":
            of = f"{joins} JOIN failed f ON f.n = r.n" if wheres else "failed f"
            joins = joins if wanted.rule else of
            column = "f.rule"
        elif name == "verdict":
            column = "r.kept"  # as its index has it
        else:
            column = f"r.{self._columns.known(name, FACETS)}"
        counted = self._ask(
            f"SELECT {column} AS value, count(*) AS n FROM {joins}{where(wheres)} GROUP BY 1 ORDER BY 2 DESC "
            f"LIMIT {_MOST_DISTINCT}",
            values,
            gone=wanted.attached,
        )
        if len(counted) == _MOST_DISTINCT:
            raise CommandError(f"{name} has more than {_MOST_DISTINCT - 1:,} values; they are not counted")
        shown = {1: "kept", 0: "rejected"}.get if name == "verdict" else str
        first = [
            (str(shown(row["value"])), int(row["n"])) for row in counted[:_MOST_VALUES] if row["value"] is not None
        ]
        return first, sum(int(row["n"]) for row in counted[_MOST_VALUES:])

    def histogram(self, name: str, wanted: RowQuery, bins: int = 40) -> tuple[list[float], list[int], list[int]]:
        """How the values of a numeric column are spread.

        Returns:
            (bins + 1) edges between the .5% and 99.5% quantile, the first and last bin with what lies outside; (bins)
            documents; (bins) of these that were rejected.
        """
        column = f"r.{quoted(self._columns.known(name, self.numeric))}"
        bounds = self._bounds(name)
        edges = bin_edges(*bounds, bins).tolist()
        low, high = edges[0], edges[-1]
        if is_spread(*bounds):
            low, high, column = math.log1p(low), math.log1p(high), f"ln(1 + max({column}, 0))"
        wheres, values, joins = self._columns.conditions(wanted)
        place = f"max(0, min({bins - 1}, CAST(({column} - ?) * ? AS INT)))"
        counted = self._ask(
            f"SELECT {place} AS bin, count(*) AS n, sum(r.kept = 0) AS rejected FROM {joins}"
            f"{where([*wheres, f'r.{quoted(name)} IS NOT NULL'])} GROUP BY 1",
            [low, bins / (high - low), *values],
            gone=wanted.attached,
        )
        all_of, rejected = [0] * bins, [0] * bins
        for row in counted:
            all_of[row["bin"]], rejected[row["bin"]] = row["n"], row["rejected"] or 0
        return edges, all_of, rejected

    def quantile(self, name: str, share: float) -> float | None:
        """The value below which so much of a numeric column lies."""
        column = quoted(self._columns.known(name, self.numeric))
        counted = self._ask("SELECT there FROM bounds WHERE name = ?", [name])
        last = counted[0]["there"] - 1 if counted else 0
        at = min(max(int(share * (last + 1)), 0), last)
        way, offset = ("", at) if 2 * at < last else (" DESC", last - at)  # from the nearer end
        query = f"SELECT {column} AS v FROM rows WHERE {column} IS NOT NULL ORDER BY {column}{way} LIMIT 1 OFFSET ?"
        values = self._ask(query, [offset])
        return values[0]["v"] if values else None

    def _bounds(self, name: str) -> tuple[float, float]:
        bounds = self._ask("SELECT low, high FROM bounds WHERE name = ?", [name])
        return (bounds[0]["low"], bounds[0]["high"]) if bounds else (0.0, 1.0)

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
        """Rows of a query as dictionaries, within the budget.

        Args:
            query: in SQL.
            values: for its `?`.
            file: the database asked; by default that of rows, which else is attached as `listed`.
            gone: further databases, by the name that each is attached as.

        Raises:
            CommandError: it took longer, or nobody waits for it any more.
        """
        deadline = time.monotonic() + BUDGET_SECONDS
        with contextlib.closing(sqlite3.connect(f"file:{file or self._rows}?mode=ro&immutable=1", uri=True)) as opened:
            opened.row_factory = sqlite3.Row
            if file is not None:
                opened.execute("ATTACH ? AS listed", [f"file:{self._rows}?mode=ro&immutable=1"])
            for name, further in gone.items():
                opened.execute(f"ATTACH ? AS {name}", [f"file:{further}?mode=ro&immutable=1"])
            has_left = HAS_LEFT.get()
            opened.set_progress_handler(lambda: time.monotonic() > deadline or has_left(), _STEPS)
            try:
                rows = [dict(row) for row in opened.execute(query, values)]
            except sqlite3.OperationalError as error:
                if "interrupted" in str(error):
                    raise CommandError(
                        f"{self.dataset}: this takes longer than {BUDGET_SECONDS:g} s; narrow the list by a filter"
                    ) from error
                raise
        for row in rows:
            if isinstance(row.get("doc_id"), bytes):
                row["doc_id"] = row["doc_id"].hex()
        return rows

    def _files(self, suffix: str) -> list[Path]:
        """Files of all versions of the dataset."""
        return [*self._rows.parent.glob(f"{self.dataset}.*{suffix}")]

    def _build_safely(self) -> None:
        try:
            if not self._rows.exists():
                build_rows(self._at, self._rows, self._read_so_far(0))
            self._listed.set()
            if self._with_text and not self._texts.exists():
                build_texts(self._at, self._rows, self._texts, self._read_so_far(1))
            kept = sorted(self._files(f".{_FORMAT}"), key=lambda file: file.stat().st_mtime)[-_KEPT_FILES:]
            for file in self._files(".[0-9]*"):
                if file not in kept and file.suffix != ".tmp":
                    file.unlink(missing_ok=True)
        except Exception as error:  # noqa: BLE001 (a page says it; the server goes on)
            self.failure = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        finally:
            self._listed.set()
            self._searchable.set()

    def _read_so_far(self, at: int) -> Callable[[float], None]:
        return lambda share: self._shares.__setitem__(at, share)


def file_of(folder: Path, dataset: str, version: DatasetVersion, kind: str) -> Path:
    """The file of an index, of `rows` or of `texts`."""
    return folder / f"{dataset}.{version}.{kind}.{_FORMAT}"
