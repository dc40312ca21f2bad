"""Which documents of an index are asked for, in which order, and the SQL that says so, within a budget of time."""

from __future__ import annotations

import contextlib
import hashlib
import math
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from dagster_project.exceptions import CommandError
from headrace_features.explore.browser_left import HAS_LEFT
from headrace_features.explore.index_files import quoted
from spark_jobs.arrays import Float64Array
from spark_jobs.exceptions import did_you_mean

FACETS: Final = ("verdict", "rule", "kind", "language", "licence", "repository", "increment")
BUDGET_SECONDS: Final = 5.0
_STEPS: Final = 20_000  # instructions of SQLite's virtual machine between two looks at the clock
_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}  # as SQLite's lower() has it
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Within:
    """Documents of a further SQLite file alone, such as those with a tag.

    Attributes:
        file: with a table docs(doc_id, ..).
        condition: about columns of that table, in SQL.
        values: for its `?`.
    """

    file: Path
    condition: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class RowQuery:
    """Which documents of a list, in which order.

    Attributes:
        equal: value of a column by its name: kind, language, licence, repository, increment, verdict (kept, rejected).
        rule: documents that failed it; empty for all.
        ranges: least and greatest value of a numeric column, either None.
        path: what the path contains.
        ids: these documents alone; None for all.
        removed: file of what deduplication removed from a corpus (`removed_index`): these documents alone.
        within: further conditions, each by a file.
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
    within: tuple[Within, ...] = ()
    sort: str = ""
    descending: bool = False
    after: tuple[Any, str] | None = None
    seed: str = ""

    @property
    def attached(self) -> dict[str, Path]:
        """The further files that its SQL reads, by the name of each there."""
        gone = {"gone": self.removed} if self.removed is not None else {}
        return gone | {f"within{at}": one.file for at, one in enumerate(self.within)}

    def needs_rows(self, narrow: Sequence[str]) -> bool:
        """Whether the index of rows is needed to count it, besides facets and some numeric columns."""
        return bool(self.path or self.ids is not None or self.attached or set(self.ranges) - {*narrow})


@dataclass(frozen=True)
class Columns:
    """The columns of a dataset's index; checks the names that come from an address before they are put into SQL.

    Attributes:
        dataset: name of the dataset, for errors.
        numeric: columns that can be sorted and ranged by.
    """

    dataset: str
    numeric: Sequence[str]

    def known(self, name: str, names: Sequence[str]) -> str:
        """Give a column's name, if it is among some names.

        Raises:
            CommandError: it is not.
        """
        if name not in names:
            raise CommandError(f"{self.dataset} has no column {name}{did_you_mean(name, names)}")
        return name

    def conditions(self, wanted: RowQuery) -> tuple[list[str], list[Any], str]:
        """SQL conditions, the values for their `?`, and the tables that they read.

        Raises:
            CommandError: a column is not known.
        """
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
            self.known(name, FACETS)
            if name == "verdict":
                wheres.append("r.kept = ?")
                values.append({"kept": 1, "rejected": 0}.get(value, -1))
            else:
                wheres.append(f"r.{name} = ?")
                values.append(value)
        for name, (low, high) in wanted.ranges.items():
            column = f"r.{quoted(self.known(name, self.numeric))}"
            wheres += [f"{column} {sign} ?" for sign, bound in ((">=", low), ("<=", high)) if bound is not None]
            values += [bound for bound in (low, high) if bound is not None]
        if wanted.path:
            wheres.append("instr(lower(r.path), ?) > 0")
            values.append(wanted.path.translate(_LOWER))
        if wanted.ids is not None:
            wheres.append(f"r.doc_id IN ({', '.join('?' * len(wanted.ids))})")
            values += [bytes.fromhex(doc_id) for doc_id in wanted.ids]
        for at, one in enumerate(wanted.within):
            wheres.append(f"r.doc_id IN (SELECT doc_id FROM within{at}.docs WHERE {one.condition})")
            values += one.values
        return wheres, values, joins

    def key(self, wanted: RowQuery) -> str:
        """The SQL expression that rows are ordered by; equal ones are in the order of `n`.

        Raises:
            CommandError: a column is not known, or a distance has no rule.
        """
        if wanted.seed or not wanted.sort:
            return "r.n"
        if wanted.sort == "distance":
            if not wanted.rule:
                if wanted.removed:
                    return "g.similarity"
                raise CommandError("sort=distance needs a rule, to whose threshold it is the distance; choose one")
            return "f.distance"
        return f"r.{quoted(self.known(wanted.sort, ('path', *self.numeric)))}"


def stretches(
    wanted: RowQuery, key: str, place_of: Callable[[bytes, bool], int]
) -> list[tuple[list[str], list[Any], str]]:
    """Split a page's order into queries to run one after the other: conditions, their values, ORDER BY.

    Documents without a value of the sorted column are the last query. A random sample goes from a row to the end, then
    from the first row to that one.

    Args:
        wanted: the order.
        key: what rows are ordered by, of `Columns.key`.
        place_of: the row of a doc_id, or of its neighbour if it is gone, called with doc_id and `descending`.
    """
    row = "f.n" if wanted.rule else "r.n"
    if wanted.seed:  # a doc_id is a hash, so documents from any point on are a random sample
        point = hashlib.sha256(wanted.seed.encode(errors="replace")).digest()[:16]
        first = place_of(point, False)
        return [([f"{row} > ?"], [first], row), ([f"{row} <= ?"], [first], row)]
    way, sign = (" DESC", "<") if wanted.descending else ("", ">")
    value, doc_id = wanted.after or (None, "")
    place = place_of(bytes.fromhex(doc_id), wanted.descending) if wanted.after is not None else None
    behind: tuple[list[str], list[Any]] = ([f"{row} {sign} ?"], [place]) if place is not None else ([], [])
    if key == "r.n":
        return [(*behind, f"{row}{way}")]
    empty = [f"{key} IS NULL"]
    if place is not None and value is None:
        return [([*empty, *behind[0]], behind[1], f"{row}{way}")]
    within = ([f"({key}, {row}) {sign} (?, ?)"], [value, place]) if place is not None else ([f"{key} IS NOT NULL"], [])
    return [(*within, f"{key}{way}, {row}{way}"), (empty, [], f"{row}{way}")]


def where(conditions: Sequence[str]) -> str:
    """The WHERE of a query; empty without conditions."""
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def within_budget(
    dataset: str,
    file: Path,
    further: Mapping[str, Path],
    query: str,
    values: Sequence[Any],
    read: Callable[[sqlite3.Cursor], Answer],
) -> Answer:
    """What `read` makes of the rows of a query, `sqlite3.Row` each.

    Args:
        dataset: whose rows they are, for the error.
        file: the database.
        further: databases that are attached, by name.
        query: in SQL.
        values: for its `?`.
        read: called with the rows.

    Raises:
        CommandError: it took longer, or nobody waits for it any more.
    """
    deadline = time.monotonic() + BUDGET_SECONDS
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as opened:
        opened.row_factory = sqlite3.Row
        has_left = HAS_LEFT.get()
        try:
            for name, other in further.items():
                opened.execute(f"ATTACH ? AS {name}", [f"file:{other}?mode=ro&immutable=1"])
            opened.set_progress_handler(lambda: time.monotonic() > deadline or has_left(), _STEPS)
            return read(opened.execute(query, values))
        except sqlite3.DatabaseError as error:
            if "interrupted" in str(error):
                raise CommandError(
                    f"{dataset}: this takes longer than {BUDGET_SECONDS:g} s; narrow the list by a filter"
                ) from error
            # an empty file has no table; the other subclasses are mistakes of a query
            if type(error) is not sqlite3.DatabaseError and "no such table" not in str(error):
                raise
            raise damaged(dataset, file, *further.values()) from error


def damaged(dataset: str, *files: Path) -> CommandError:
    """Delete files that cannot be read, one of which is damaged as by a power cut; the error that says so."""
    for file in files:
        file.unlink(missing_ok=True)
    return CommandError(f"{dataset}: an index was damaged and is built anew; open this page again in a moment")


def numbers_of(cursor: sqlite3.Cursor) -> Float64Array:
    """The first column of all rows, NaN where it has no value."""
    return np.fromiter((math.nan if value is None else value for (value,) in cursor), np.float64)
