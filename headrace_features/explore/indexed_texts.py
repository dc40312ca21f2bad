"""Texts of an index: which rows have one, where each lies in the lake, its first words; no whole text."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from headrace_features.explore.dataset_at import DatasetAt
from headrace_features.explore.row_query import Columns, RowQuery, where
from spark_jobs.lake.files.wide_values import placed_values, read_placed_values

Ask = Callable[..., list[dict[str, Any]]]  # `RowIndex`: rows of a query, its values, the file, attached files
_RULES: Final = "(SELECT group_concat(o.rule) FROM failed o WHERE o.n = r.n) AS rules"


class _Selection(NamedTuple):
    """Which rows: tables, conditions and values for their `?`."""

    tables: str
    wheres: list[str]
    values: list[Any]


@dataclass(frozen=True)
class IndexedTexts:
    """Queries of the database `texts`; while that is being written there are no first words.

    Attributes:
        at: the dataset.
        file: the database; None where texts are hidden.
        columns: of the index.
        ask: runs a query.
    """

    at: DatasetAt
    file: Path | None
    columns: Columns
    ask: Ask

    def previews(self, rows: Sequence[Mapping[str, Any]]) -> dict[int, str]:
        """The first words of rows, by their `n`; of none where they are hidden or still being read."""
        if self.file is None or not self.file.exists():
            return {}
        marks = ", ".join("?" * len(rows))
        query = f"SELECT n, preview FROM texts WHERE n IN ({marks})"
        return {row["n"]: row["preview"] for row in self.ask(query, [row["n"] for row in rows], self.file)}

    def number(self, doc_id: str) -> int | None:
        """The number of a document's text; None where it has none."""
        query = "SELECT x.t FROM texts x JOIN rows r ON r.n = x.n WHERE r.doc_id = ?"
        rows = self.ask(query, [bytes.fromhex(doc_id)], self.file)
        return rows[0]["t"] if rows else None

    def numbered(self, numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Documents by the numbers of their texts: rows of a list, with the text's place and first words."""
        marks = ", ".join("?" * len(numbers))
        query = f"SELECT r.*, x.* FROM texts x JOIN rows r ON r.n = x.n WHERE x.t IN ({marks})"
        return {row["t"]: row for row in self.ask(query, [*numbers], self.file)}

    def read(self, places: Sequence[tuple[int, int, int]]) -> dict[int, str]:
        """Texts by number, read at `places`: (number, file, row) as the database has them."""
        table = self.at.table("texts")
        assert table is not None
        paths = self._paths()
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
        rows = self._selection(wanted)
        bounds = (start, start + count)
        if self.file is None:
            return self._with_rules(wanted, rows, "r.n", bounds)
        # text by text, unless few are named
        sides = (rows.tables, "texts x") if wanted.ids is not None else ("texts x", rows.tables)
        with_text = _Selection(" CROSS JOIN ".join(sides), [*rows.wheres, "r.n = x.n"], rows.values)
        return self._with_rules(wanted, with_text, "x.t", bounds, ", x.file, x.row")

    def without_text(self, wanted: RowQuery, start: int, count: int) -> list[dict[str, Any]]:
        """Rows of a selection among some documents, with rules, that have no text yet; none where texts are hidden."""
        if self.file is None or self._document_count == self.at.summed("documents"):
            return []
        rows = self._selection(wanted)
        textless = "NOT EXISTS (SELECT 1 FROM texts x WHERE x.n = r.n)"
        return self._with_rules(wanted, rows._replace(wheres=[*rows.wheres, textless]), "r.n", (start, start + count))

    def each(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], str | None]]:
        """Rows of `placed` and `without_text` with their texts, of which few are in memory at a time."""
        table = self.at.table("texts")
        paths = self._paths()
        for file, some in itertools.groupby(rows, key=lambda row: row.get("file")):
            if file is None or table is None:
                yield from ((row, None) for row in some)
                continue
            at = {row["row"]: row for row in some}
            yield from ((at[place], text) for place, text in placed_values(table[0], paths[file], "content", at))

    def _paths(self) -> dict[int, str]:
        """Paths of the data files by their numbers."""
        return {row["file"]: row["path"] for row in self.ask("SELECT file, path FROM files", [], self.file)}

    @functools.cached_property
    def _document_count(self) -> int:
        """How many documents have a text."""
        return int(self.ask("SELECT count(DISTINCT n) AS there FROM texts", [], self.file)[0]["there"])

    def _selection(self, wanted: RowQuery) -> _Selection:
        wheres, values, tables = self.columns.conditions(replace(wanted, rule=""))
        if wanted.rule:  # looked up for each row; SQLite would begin with all rows of the rule
            wheres.append("EXISTS (SELECT 1 FROM failed f WHERE f.n = r.n AND +f.rule = ?)")
            values.append(wanted.rule)
        return _Selection(tables, wheres, values)

    def _with_rules(
        self, wanted: RowQuery, rows: _Selection, at: str, bounds: tuple[int, int], more: str = ""
    ) -> list[dict[str, Any]]:
        """Rows with `more` columns and the rules that each failed, where `at` is within bounds, in its order."""
        within = where([*rows.wheres, f"{at} >= ?", f"{at} < ?"])
        query = f"SELECT r.*{more}, {_RULES} FROM {rows.tables}{within} ORDER BY {at}"
        return self.ask(query, [*rows.values, *bounds], self.file, wanted.attached)
