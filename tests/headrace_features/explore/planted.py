"""A lake of planted rows and a client of its pages."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.types import DoubleType
from starlette.testclient import TestClient

from dagster_project.pages_guard import LOCAL_HOSTS
from headrace.tables.catalogue import load_table
from headrace.tables.settings import load_settings, settings_at
from headrace_features.explore.app import make_app
from headrace_features.explore.dataset_at import DatasetAt, DatasetVersion
from headrace_features.explore.explorer import Explorer
from headrace_features.explore.row_index import RowIndex
from spark_jobs.filters.verdicts import VERDICTS
from spark_jobs.lake.declare.tables import Table
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue
from spark_jobs.sources.documents import DOCUMENTS
from spark_jobs.text.signals import SIGNALS
from spark_jobs.text.texts import TEXTS
from tests.kept_folder import KeptFolder

TOKEN = "a-token"
ODD = ("order", "select", "Größe (%)", 'a"b', "value", "x'; DROP TABLE rows; --")
"""Names of signals that are words of SQL, or hold what ends a name in it."""


@dataclass
class Planted:
    """A lake with datasets of planted rows.

    Attributes:
        catalogue: of it.
        folder: of indexes.
        shown: datasets whose texts are shown.
        forbidden: namespaces that readers may not see.
    """

    catalogue: Catalog
    folder: Path
    shown: set[str] = field(default_factory=lambda: {"notes"})
    forbidden: set[str] = field(default_factory=set)

    def add(self, dataset: str, rows: list[dict[str, Any]], increment: int = 0, odd: bool = False) -> None:
        """Write documents; of what a row lacks (`content`, `scores`, `failed`) the table gets no row, or no value."""
        columns = ("doc_id", "shard", "path", "repository", "kind", "language", "licence", "byte_count")
        self.write(dataset, DOCUMENTS, increment, [_some(row, columns) for row in rows])
        texts = [_some(row, ("doc_id", "shard", "kind", "content", "edits")) for row in rows if "content" in row]
        if texts:
            self.write(dataset, TEXTS, increment, texts)
        if any("scores" in row for row in rows):
            scored = [row for row in rows if "scores" in row]
            if odd:
                self.write(dataset, SIGNALS, increment, [])
                with self.catalogue.load_table(f"{dataset}.signals").update_schema() as update:
                    for name in ODD:
                        update.add_column(name, DoubleType())
            values = [{**_some(row, ("doc_id", "shard", "kind")), **row["scores"]} for row in scored]
            self.write(dataset, SIGNALS, increment, values)
        judged = [{**_some(row, ("doc_id", "shard")), "failed": row["failed"]} for row in rows if "failed" in row]
        if judged:
            self.write(dataset, VERDICTS, increment, [{**row, "kept": not row["failed"]} for row in judged])

    def write(self, dataset: str, declared: Table, increment: int, rows: list[dict[str, Any]]) -> None:
        """Append rows to a table, made as it is declared; what a row lacks is filled."""
        identifier = f"{dataset}.{declared.name}"
        table = load_table(self.catalogue, identifier) or ensure_table(
            self.catalogue, identifier, declared, {"headrace.scope": "increment"}
        )
        filler: dict[str, Any] = {"string": "", "int": 0, "long": 0, "double": 0.0, "boolean": False}
        fields = table.schema().fields
        empty = {one.name: filler.get(str(one.field_type), []) if one.required else None for one in fields}
        values = [{**empty, "increment": increment, **row} for row in rows]
        table.append(pa.Table.from_pylist(values, schema=table.schema().as_arrow()))

    def index(self, dataset: str = "notes", version: DatasetVersion | None = None, with_text: bool = True) -> RowIndex:
        """The index of a dataset, whole."""
        at = DatasetAt(self.catalogue, dataset, version or DatasetVersion.newest(self.catalogue, dataset))
        found = RowIndex(at, self.folder, with_text)
        found.wait(60)
        found.wait_for_texts(60)
        return found

    def explorer(self) -> Explorer:
        """What pages share."""

        def reader(principal: str) -> Callable[[str], bool]:
            return lambda table: table.partition(".")[0] not in self.forbidden

        # Tests wait, however busy the machine.
        return Explorer(self.catalogue, self.folder, lambda name: name in self.shown, reader, patience=30)

    def client(self, headers: Mapping[str, str] | None = None, host: str = "localhost:4141") -> TestClient:
        """A client of the pages, with the token in a header unless told otherwise."""
        holder = {TOKEN: "ada"}.get
        app = make_app(self.explorer(), frozenset(LOCAL_HOSTS), lambda token: holder(token, ""))
        given = {"Authorization": f"Bearer {TOKEN}"} if headers is None else headers
        return TestClient(app, f"http://{host}", headers=given, follow_redirects=False, raise_server_exceptions=False)


class KeptLake:
    """A planted lake that was made once."""

    def __init__(self, root: Path, fill: Callable[[Planted], object]) -> None:
        """Make it in an empty folder."""
        self._made = Planted(open_catalogue(settings_at(root / "now")), root / "now" / "explore")
        fill(self._made)
        self._kept = KeptFolder(root / "now", root / "kept")

    def again(self) -> Planted:
        """The lake as it was made."""
        self._kept.again()
        return replace(self._made, shown={"notes"}, forbidden=set())


def plant(tmp_path: Path) -> Planted:
    """An empty lake of the environment (fixture `lake_env`)."""
    return Planted(open_catalogue(load_settings()), tmp_path / "explore")


def drawn(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Documents with ties, nulls, failed rules and odd signals, all of chance."""
    chance = random.Random(seed)
    rows = []
    for number in range(count):
        failed = [
            {"rule": rule, "value": chance.choice([None, 1.0, 2.5, 4.0]), "threshold": chance.choice([None, 0.0, 3.0])}
            for rule in chance.sample(["too_short", "too_long", "generated"], chance.choice([0, 0, 1, 2]))
        ]
        row: dict[str, Any] = {
            "doc_id": f"{chance.getrandbits(128):032x}",
            "shard": number % 2,
            "path": f"{chance.choice(['src', 'doc', 'Ä'])}/{number}.txt",
            "repository": chance.choice(["one", "two", None]),
            "kind": chance.choice(["prose", "code"]),
            "language": chance.choice([None, "English", "c++", "日本語"]),
            "licence": None,
            "byte_count": chance.choice([0, 5, 5, 5, 70, 10**6]),
            "content": f"text {number} of words",
        }
        if number % 7:
            row["scores"] = {
                "word_count": chance.choice([1, 2, 2, 3]),
                "mean_word_length": chance.choice([None, 0.5, 0.5, -1.0, 7.25]),
                **{name: chance.choice([None, 0.0, 1.5]) for name in ODD},
            }
        if number % 5:
            row["failed"] = failed
        rows.append(row)
    return rows


def _some(row: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: row[name] for name in names if name in row}
