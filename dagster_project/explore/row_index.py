"""An index of a dataset's documents for lists: narrow columns, first words and failed rules in a SQLite file.

It is built on demand, a part of the dataset at a time, for one version of its tables, which the file's name says; pages
show what there is while it is built. Rows come by key (sort value, doc_id), never by offset, and every query has a
budget of time. It holds candidates and counts: texts are read from the lake.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression

from dagster_project.exceptions import CommandError
from spark_jobs.exceptions import did_you_mean
from spark_jobs.lake.files.lookups import parts
from spark_jobs.lake.session.catalogue import load_table

BUDGET_SECONDS: Final = 5.0
PREVIEW: Final = 300
PAGE: Final = 50
TABLES: Final = ("documents", "texts", "signals", "verdicts")
NARROW: Final = ("doc_id", "increment", "path", "repository", "kind", "language", "licence", "byte_count")
FACETS: Final = ("verdict", "rule", "kind", "language", "licence", "repository", "increment")
_WIDE: Final = 50
_MOST_VALUES: Final = 20
_MOST_DISTINCT: Final = 1001
_FORMAT: Final = 2
_NUMBERS: Final = ("int", "long", "float", "double")
_STEPS: Final = 20_000  # of SQLite's machine, after which the clock is looked at


class Version(NamedTuple):
    """Snapshots of a dataset's tables `documents`, `texts`, `signals` and `verdicts`; 0 for one that is not there."""

    documents: int
    texts: int
    signals: int
    verdicts: int

    @classmethod
    def newest(cls, catalogue: Catalog, dataset: str) -> Version:
        """As they are now."""
        tables = (load_table(catalogue, f"{dataset}.{name}") for name in TABLES)
        heads = (table.current_snapshot() if table is not None else None for table in tables)
        return cls(*(head.snapshot_id if head is not None else 0 for head in heads))

    @classmethod
    def parse(cls, given: str) -> Version:
        """From an address.

        Raises:
            CommandError: it is of another form.
        """
        try:
            return cls(*(int(part, 36) for part in given.split("-")))
        except (TypeError, ValueError) as error:
            raise CommandError(f"at={given} is no version of a dataset; leave it out for the newest") from error

    def __str__(self) -> str:
        return "-".join(_base36(one) for one in self)


@dataclass(frozen=True)
class Wanted:
    """Which documents of a list, in which order.

    Attributes:
        equal: value of a column by its name: kind, language, licence, repository, increment, verdict (kept, rejected).
        rule: documents that failed it; empty for all.
        ranges: least and greatest value of a numeric column, either None.
        path: what the path contains.
        ids: these documents alone; None for all.
        removed: file of what deduplication removed from a corpus (`removed_index`): these documents alone.
        sort: numeric column, `path`, or `distance` (to the threshold of the rule; of removed ones their similarity);
            empty for a fixed order by doc_id.
        descending: the greatest first.
        after: (sort value, doc_id) of the row before the page.
        seed: a random sample instead of an order; empty for none.
    """

    equal: Mapping[str, str] = field(default_factory=dict)
    rule: str = ""
    ranges: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    path: str = ""
    ids: tuple[str, ...] | None = None
    removed: Path | None = None
    sort: str = ""
    descending: bool = False
    after: tuple[Any, str] | None = None
    seed: str = ""


class RowIndex:
    """Rows of one version of a dataset; many threads may ask while one builds it.

    Attributes:
        dataset: its name.
        version: of its tables.
        total: documents that it has when it is whole.
    """

    def __init__(
        self, catalogue: Catalog, dataset: str, version: Version, folder: Path, with_text: bool = True
    ) -> None:
        """Open the file of an index, or begin to build it in a thread."""
        self._catalogue, self.dataset, self.version = catalogue, dataset, version
        self._with_text = with_text
        self._file = folder / f"{dataset}.{version}.{'text' if with_text else 'ids'}.{_FORMAT}.sqlite"
        self._wide = {name: self._columns(name) for name in TABLES}
        self.scores = [
            name
            for name, kind in self._wide["signals"].items()
            if kind in _NUMBERS and name not in ("increment", "shard")
        ]
        self.total = self._records("documents")
        self.failure = ""
        self._done = threading.Event()
        self._rows_read = 0
        if self._file.exists():
            self._done.set()
        else:
            threading.Thread(target=self._build_safely, name=f"index-{dataset}", daemon=True).start()

    @property
    def numeric(self) -> list[str]:
        """Columns that can be sorted and ranged by."""
        return ["byte_count", *self.scores]

    def wait(self, seconds: float) -> bool:
        """Wait for the index to be whole; say whether it is.

        Raises:
            CommandError: it could not be built.
        """
        self._done.wait(seconds)
        if self.failure:
            raise CommandError(f"{self.dataset}: its rows cannot be listed: {self.failure}")
        return self._file.exists()

    @property
    def progress(self) -> float:
        """The share of rows that were read."""
        return min(1.0, self._rows_read / self.total) if self.total else 1.0

    def rows(self, wanted: Wanted, count: int = PAGE) -> list[dict[str, Any]]:
        """A page of documents.

        Raises:
            CommandError: a column or rule is not known, or the query took longer than its budget.
        """
        wheres, values, joins = self._conditions(wanted)
        key, order = self._order(wanted)
        if wanted.after is not None:
            value, doc_id = wanted.after
            sign = "<" if wanted.descending else ">"
            wheres.append(f"({key}, r.doc_id) {sign} (?, ?)")
            values += [bytes.fromhex(doc_id) if key == "r.doc_id" else value, bytes.fromhex(doc_id)]
        elif key != "r.doc_id":
            wheres.append(f"{key} IS NOT NULL")
        shown = "r.*, f.rule, f.value, f.threshold, f.distance" if wanted.rule else "r.*"
        shown += ", g.level, g.witness, g.similarity" if wanted.removed else ""

        def ask(more: list[str], given: list[Any], most: int) -> list[dict[str, Any]]:
            where = _where([*wheres, *more])
            query = f"SELECT {shown}, {key} AS sort_key FROM {joins}{where} ORDER BY {order} LIMIT ?"
            return self._ask(query, [*values, *given, most], wanted.removed)

        if not wanted.seed:
            return ask([], [], count)
        # A doc_id is a hash, so documents from any point on are a random sample.
        point = hashlib.sha256(wanted.seed.encode()).digest()[:16]
        found = ask(["r.doc_id >= ?"], [point], count)
        return found + (ask(["r.doc_id < ?"], [point], count - len(found)) if len(found) < count else [])

    def by_id(self, doc_ids: Sequence[str], wait_seconds: float = 0.3) -> dict[str, dict[str, Any]]:
        """Path, first words and verdict of some documents by doc_id; of none while the index is being built."""
        if not doc_ids or not self.wait(wait_seconds):
            return {}
        rows = self.rows(Wanted(ids=tuple(doc_ids)), len(doc_ids))
        return {row["doc_id"]: {name: row[name] for name in ("path", "preview", "kept")} for row in rows}

    def failed(self, doc_id: str) -> list[dict[str, Any]]:
        """The rules that a document failed: rule, value, threshold, distance."""
        query = (
            "SELECT f.rule, f.value, f.threshold, f.distance FROM rows r JOIN failed f ON f.n = r.n WHERE doc_id = ?"
        )
        return self._ask(query, [bytes.fromhex(doc_id)])

    def count(self, wanted: Wanted) -> int:
        """How many documents there are."""
        wheres, values, joins = self._conditions(wanted)
        query = f"SELECT count(*) AS n FROM {joins}{_where(wheres)}"
        return int(self._ask(query, values, wanted.removed)[0]["n"])

    def facet(self, name: str, wanted: Wanted) -> tuple[list[tuple[str, int]], int]:
        """The most frequent values of a column with their documents, at most twenty, and the documents of all others.

        Raises:
            CommandError: there is no such column, or the query took longer than its budget.
        """
        wheres, values, joins = self._conditions(wanted)
        if name == "rule":
            joins = joins if wanted.rule else f"{joins} JOIN failed f ON f.n = r.n"
            column = "f.rule"
        elif name == "verdict":
            column = "CASE r.kept WHEN 1 THEN 'kept' WHEN 0 THEN 'rejected' END"
        else:
            column = f"r.{self._known(name, FACETS)}"
        counted = self._ask(
            f"SELECT {column} AS value, count(*) AS n FROM {joins}{_where(wheres)} GROUP BY 1 ORDER BY 2 DESC "
            f"LIMIT {_MOST_DISTINCT}",
            values,
            wanted.removed,
        )
        if len(counted) == _MOST_DISTINCT:
            raise CommandError(f"{name} has more than {_MOST_DISTINCT - 1:,} values; they are not counted")
        first = [(str(row["value"]), int(row["n"])) for row in counted[:_MOST_VALUES] if row["value"] is not None]
        return first, sum(int(row["n"]) for row in counted[_MOST_VALUES:])

    def histogram(self, name: str, wanted: Wanted, bins: int = 40) -> tuple[list[float], list[int], list[int]]:
        """How the values of a numeric column are spread.

        Returns:
            (bins + 1) edges between the .5% and 99.5% quantile, the first and last bin with what lies outside; (bins)
            documents; (bins) of these that were rejected.
        """
        column = f"r.{self._known(name, self.numeric)}"
        low, high = self._bounds(name)
        high = high if high > low else low + 1
        # Sizes and counts spread over powers of ten: bins of one width would hold all of them in the first.
        is_wide = low >= 0 and high > _WIDE * (low + 1)
        if is_wide:
            low, high, column = math.log1p(low), math.log1p(high), f"ln(1 + {column})"
        wheres, values, joins = self._conditions(wanted)
        place = f"max(0, min({bins - 1}, CAST(({column} - ?) * ? AS INT)))"
        counted = self._ask(
            f"SELECT {place} AS bin, count(*) AS n, sum(r.kept = 0) AS rejected FROM {joins}"
            f"{_where([*wheres, f'{column} IS NOT NULL'])} GROUP BY 1",
            [low, bins / (high - low), *values],
            wanted.removed,
        )
        all_of, rejected = [0] * bins, [0] * bins
        for row in counted:
            all_of[row["bin"]], rejected[row["bin"]] = row["n"], row["rejected"] or 0
        edges = [low + (high - low) * at / bins for at in range(bins + 1)]
        return [math.expm1(edge) if is_wide else edge for edge in edges], all_of, rejected

    def quantile(self, name: str, share: float) -> float | None:
        """The value below which so much of a numeric column lies."""
        column = self._known(name, self.numeric)
        total = self._ask(f"SELECT count({column}) AS n FROM rows", [])[0]["n"]
        query = f"SELECT {column} AS v FROM rows WHERE {column} IS NOT NULL ORDER BY {column} LIMIT 1 OFFSET ?"
        found = self._ask(query, [min(max(int(share * total), 0), max(total - 1, 0))])
        return found[0]["v"] if found else None

    def _bounds(self, name: str) -> tuple[float, float]:
        found = self._ask("SELECT low, high FROM bounds WHERE name = ?", [name])
        return (found[0]["low"], found[0]["high"]) if found else (0.0, 1.0)

    def _conditions(self, wanted: Wanted) -> tuple[list[str], list[Any], str]:
        """Conditions, their values, and the tables that they are of."""
        wheres: list[str] = []
        values: list[Any] = []
        joins = "rows r"
        if wanted.rule:
            joins = "failed f JOIN rows r ON r.n = f.n"
            wheres.append("f.rule = ?")
            values.append(wanted.rule)
        if wanted.removed:
            joins += " JOIN gone.removed g ON g.doc_id = r.doc_id"
        for name, value in wanted.equal.items():
            self._known(name, FACETS)
            if name == "verdict":
                wheres.append("r.kept = ?")
                values.append({"kept": 1, "rejected": 0}.get(value, -1))
            else:
                wheres.append(f"r.{name} = ?")
                values.append(value)
        for name, (low, high) in wanted.ranges.items():
            column = f"r.{self._known(name, self.numeric)}"
            wheres += [f"{column} {sign} ?" for sign, bound in ((">=", low), ("<=", high)) if bound is not None]
            values += [bound for bound in (low, high) if bound is not None]
        if wanted.path:
            wheres.append("instr(lower(r.path), ?) > 0")
            values.append(wanted.path.lower())
        if wanted.ids is not None:
            wheres.append(f"r.doc_id IN ({', '.join('?' * len(wanted.ids))})")
            values += [bytes.fromhex(one) for one in wanted.ids]
        return wheres, values, joins

    def _order(self, wanted: Wanted) -> tuple[str, str]:
        """The key of an order, and its words."""
        way = " DESC" if wanted.descending and not wanted.seed else ""
        if wanted.seed or not wanted.sort:
            return "r.doc_id", f"r.doc_id{way}"
        if wanted.sort == "distance":
            if not wanted.rule:
                if wanted.removed:
                    return "g.similarity", f"g.similarity{way}, r.doc_id{way}"
                raise CommandError("sort=distance needs a rule, to whose threshold it is the distance; choose one")
            return "f.distance", f"f.distance{way}, r.doc_id{way}"
        column = f"r.{self._known(wanted.sort, ('path', *self.numeric))}"
        return column, f"{column}{way}, r.doc_id{way}"

    def _known(self, name: str, names: Sequence[str]) -> str:
        if name not in names:
            raise CommandError(f"{self.dataset} has no column {name}{did_you_mean(name, names)}")
        return name

    def _ask(self, query: str, values: Sequence[Any], attached: Path | None = None) -> list[dict[str, Any]]:
        """Rows of a query as dictionaries, within the budget; the tables of an attached file are in `gone`.

        Raises:
            CommandError: it took longer.
        """
        deadline = time.monotonic() + BUDGET_SECONDS
        with contextlib.closing(sqlite3.connect(f"file:{self._file}?mode=ro&immutable=1", uri=True)) as opened:
            opened.row_factory = sqlite3.Row
            if attached is not None:
                opened.execute("ATTACH ? AS gone", [f"file:{attached}?mode=ro&immutable=1"])
            opened.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
            try:
                found = [dict(row) for row in opened.execute(query, values)]
            except sqlite3.OperationalError as error:
                if "interrupted" in str(error):
                    raise CommandError(
                        f"{self.dataset}: this takes longer than {BUDGET_SECONDS:g} s; narrow the list by a filter"
                    ) from error
                raise
        for row in found:
            if isinstance(row.get("doc_id"), bytes):
                row["doc_id"] = row["doc_id"].hex()
        return found

    def _columns(self, name: str) -> dict[str, str]:
        """Columns of a table with their types; none where it is not there."""
        table = load_table(self._catalogue, f"{self.dataset}.{name}")
        return {} if table is None else {one.name: str(one.field_type) for one in table.schema().fields}

    def _records(self, name: str) -> int:
        table = load_table(self._catalogue, f"{self.dataset}.{name}")
        snapshot = table.snapshot_by_id(getattr(self.version, name)) if table is not None else None
        if snapshot is None or snapshot.summary is None:
            return 0
        return int(snapshot.summary["total-records"] or 0)

    def _build_safely(self) -> None:
        try:
            self._build()
        except Exception as error:  # noqa: BLE001 (a page says it; the server goes on)
            self.failure = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        finally:
            self._done.set()

    def _build(self) -> None:
        """Write the file beside its place, then move it there: one that can be opened is whole."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._file.with_suffix(f".{os.getpid()}.{id(self)}.tmp")
        unfinished.unlink(missing_ok=True)
        try:
            with contextlib.closing(sqlite3.connect(unfinished)) as made:
                made.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -200000")
                scores = "".join(f", {name} REAL" for name in self.scores)
                made.execute(
                    "CREATE TABLE rows (n INTEGER PRIMARY KEY, doc_id BLOB, increment INT, path TEXT, repository TEXT, "
                    f"kind TEXT, language TEXT, licence TEXT, byte_count INT, kept INT, preview TEXT{scores})"
                )
                made.execute("CREATE TABLE failed (n INT, rule TEXT, value REAL, threshold REAL, distance REAL)")
                self._fill(made)
                self._finish(made)
            unfinished.replace(self._file)
        finally:
            unfinished.unlink(missing_ok=True)

    def _fill(self, made: sqlite3.Connection) -> None:
        marks = ", ".join("?" * (11 + len(self.scores)))
        number = 0
        for condition in parts(self._catalogue, f"{self.dataset}.documents"):
            table = self._part(condition)
            kept = table.column("kept").to_pylist()
            columns = [table.column(name).to_pylist() for name in (*NARROW[1:],)]
            scores = [table.column(name).to_pylist() for name in self.scores]
            ids = [bytes.fromhex(one) for one in table.column("doc_id").to_pylist()]
            numbers = range(number, number + len(table))
            previews = table.column("preview").to_pylist()
            made.executemany(
                f"INSERT INTO rows VALUES ({marks})",
                zip(numbers, ids, *columns, kept, previews, *scores, strict=True),
            )
            made.executemany("INSERT INTO failed VALUES (?, ?, ?, ?, ?)", _failed(table, number))
            number += len(table)
            self._rows_read = number

    def _part(self, condition: BooleanExpression) -> pa.Table:
        """Some documents with what is known of them, by doc_id."""
        documents = self._read("documents", NARROW, condition)
        assert documents is not None
        text = self._read("texts", ("doc_id", "content"), condition) if self._with_text else None
        if text is not None:
            shown = pc.utf8_slice_codeunits(text.column("content"), 0, PREVIEW)
            text = pa.table({"doc_id": text.column("doc_id"), "preview": shown})
        others = (
            (text, {"preview": pa.string()}),
            (self._read("signals", ("doc_id", *self.scores), condition), dict.fromkeys(self.scores, pa.float64())),
            (
                self._read("verdicts", ("doc_id", "kept", "failed"), condition),
                {"kept": pa.bool_(), "failed": pa.list_(pa.struct([]))},
            ),
        )
        for other, columns in others:
            documents = _beside(documents, other, columns)
        return documents

    def _read(self, name: str, columns: Sequence[str], condition: BooleanExpression) -> pa.Table | None:
        snapshot = getattr(self.version, name)
        table = load_table(self._catalogue, f"{self.dataset}.{name}")
        if table is None or not snapshot:
            return None
        return table.scan(condition, selected_fields=tuple(columns), snapshot_id=snapshot).to_arrow()

    def _finish(self, made: sqlite3.Connection) -> None:
        """Indexes of the offered orders, and the bounds of histograms."""
        made.execute("CREATE INDEX by_doc_id ON rows (doc_id)")
        made.execute("CREATE INDEX by_path ON rows (path, doc_id)")
        made.execute("CREATE INDEX by_kept ON rows (kept, doc_id)")
        for name in self.numeric:
            made.execute(f"CREATE INDEX by_{name} ON rows ({name}, doc_id)")
        made.execute("CREATE INDEX by_rule ON failed (rule, distance, n)")
        made.execute("CREATE INDEX failed_of ON failed (n)")
        made.execute("CREATE TABLE bounds (name TEXT, low REAL, high REAL)")
        for name in self.numeric:
            (there,) = made.execute(f"SELECT count({name}) FROM rows").fetchone()
            if not there:
                continue
            query = f"SELECT {name} FROM rows WHERE {name} IS NOT NULL ORDER BY {name} LIMIT 1 OFFSET ?"
            low, high = (made.execute(query, [int(share * (there - 1))]).fetchone()[0] for share in (0.005, 0.995))
            made.execute("INSERT INTO bounds VALUES (?, ?, ?)", [name, low, high])
        made.commit()


def _failed(table: pa.Table, number: int) -> Iterator[tuple[int, str, float | None, float | None, float | None]]:
    """Failed rules of rows from a number on; the distance is the share of the threshold that was missed, else 0."""
    for at, rules in enumerate(table.column("failed").to_pylist()):
        for one in rules or ():
            value, threshold = one["value"], one["threshold"]
            distance = abs(value - threshold) / (abs(threshold) or 1) if None not in (value, threshold) else 0.0
            yield number + at, one["rule"], value, threshold, distance


def _beside(table: pa.Table, other: pa.Table | None, columns: Mapping[str, pa.DataType]) -> pa.Table:
    """Columns of another table beside the rows of one, by doc_id; nulls where it has no such row, or is not there."""
    if other is None:
        for name, kind in columns.items():
            table = table.append_column(name, pa.nulls(len(table), kind))
        return table
    place = pc.index_in(table.column("doc_id"), value_set=other.column("doc_id").combine_chunks())
    for name in columns:
        table = table.append_column(name, other.column(name).combine_chunks().take(place))
    return table


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _base36(value: int) -> str:
    digits = ""
    while value:
        value, rest = divmod(value, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[rest] + digits
    return digits or "0"
