"""Scans of ours plan what PyIceberg's plan, and read each file of metadata once."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    Not,
    Or,
    StartsWith,
)
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table as IcebergTable
from pyiceberg.types import ListType, LongType

from headrace.tables.settings import settings_at
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.files import scans
from spark_jobs.lake.files.scans import scan_of
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue

WORDS = Table(
    "words",
    "Words.",
    (
        Column("increment!", "int", "partition"),
        Column("word!", "string", "it"),
        Column("size", "long", "of it; none of some"),
    ),
    key=(),
    partition=("increment",),
)


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A lake with a table of eight snapshots."""
    made = open_catalogue(settings_at(tmp_path_factory.mktemp("scans")))
    table = ensure_table(made, "notes.words", WORDS, {})
    for increment in range(8):
        words = [f"{letter}{increment % 3}" for letter in "abc"]
        rows = {"increment": [increment] * 3, "word": words, "size": [increment, None, 10 * increment]}
        table.append(pa.table(rows, schema=table.schema().as_arrow()))
    table.delete(EqualTo("word", "b1"))
    return made


def condition(chance: random.Random, depth: int = 2) -> BooleanExpression:
    """Any condition."""
    if depth and chance.random() < 0.6:
        one, other = condition(chance, depth - 1), condition(chance, depth - 1)
        return chance.choice([And(one, other), Or(one, other), Not(one)])
    return chance.choice(
        [
            EqualTo("increment", chance.randrange(9)),
            In("increment", {chance.randrange(9), chance.randrange(9)}),
            GreaterThanOrEqual("size", chance.randrange(80)),
            LessThan("size", chance.randrange(80)),
            IsNull("size"),
            StartsWith("word", chance.choice("abcd")),
            EqualTo("word", chance.choice(["a0", "b1", "c2", "d"])),
        ]
    )


def planned(scan: object) -> list[tuple[str, int, str]]:
    """Files, deleted rows and what is left to ask of each row."""
    tasks = scan.plan_files()  # type: ignore[attr-defined]
    return sorted((task.file.file_path, len(task.delete_files), str(task.residual)) for task in tasks)


def test_as_pyiceberg_plans_and_reads(catalogue: Catalog) -> None:
    """Over random conditions, columns and snapshots."""
    table, chance = catalogue.load_table("notes.words"), random.Random(1)
    snapshots = [None, *(one.snapshot_id for one in table.snapshots())]
    for _ in range(60):
        wanted, at = condition(chance), chance.choice(snapshots)
        columns = tuple(chance.sample(["increment", "word", "size"], chance.randint(1, 3)))
        theirs = table.scan(wanted, selected_fields=columns, snapshot_id=at)
        ours = scan_of(table, wanted, columns, at)
        assert planned(ours) == planned(theirs)
        order = [(name, "ascending") for name in theirs.to_arrow().column_names]
        assert ours.to_arrow().sort_by(order).equals(theirs.to_arrow().sort_by(order))


def test_columns_are_those_of_the_table_whatever_a_file_calls_them(catalogue: Catalog) -> None:
    """A column that was renamed has its old values, one of an old name that is new has none."""
    table = ensure_table(catalogue, "notes.changed", WORDS, {})
    rows = {"increment": [0, 0, 1], "word": ["a", "b", "c"], "size": [1, 2, 3]}
    table.append(pa.table(rows, schema=table.schema().as_arrow()))
    with table.update_schema() as update:
        update.rename_column("size", "length")
    with table.update_schema() as update:
        update.add_column("size", LongType())
        update.add_column("numbers", ListType(9, LongType()))
    later = {"increment": [1], "word": ["d"], "length": [4], "size": [5], "numbers": [[6, 7]]}
    table.append(pa.table(later, schema=table.schema().as_arrow()))
    for wanted in (EqualTo("word", "b"), GreaterThanOrEqual("length", 2), IsNull("size"), EqualTo("increment", 1)):
        for columns in (("word", "length"), ("size",), ("numbers", "size"), ("numbers.element", "word")):
            ours, theirs = scan_of(table, wanted, columns), table.scan(wanted, selected_fields=columns)
            assert ours.to_arrow().to_pylist() == theirs.to_arrow().to_pylist()


def test_other_columns_are_decoded_where_a_row_is_wanted(catalogue: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five row groups that may hold the row, one."""
    table = ensure_table(catalogue, "notes.many", WORDS, {"write.parquet.row-group-limit": "10"})
    words = [f"{number * 7 % 50:02}" for number in range(50)]
    rows = {"increment": [0] * 50, "word": words, "size": range(50)}
    table.append(pa.table(rows, schema=table.schema().as_arrow()))
    decoded: list[tuple[int, list[str]]] = []
    whole = pq.ParquetFile.read_row_group

    def read(self: pq.ParquetFile, group: int, columns: list[str]) -> pa.Table:
        decoded.append((group, columns))
        return whole(self, group, columns)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", read)
    assert scan_of(table, EqualTo("word", "21"), ("size",)).to_arrow().to_pylist() == [{"size": 3}]
    assert [columns for _, columns in decoded].count(["word"]) == 5
    assert [group for group, columns in decoded if columns != ["word"]] == [0]


def test_a_table_without_rows(catalogue: Catalog) -> None:
    """Nothing is planned."""
    table = ensure_table(catalogue, "notes.none", WORDS, {})
    assert list(scan_of(table).plan_files()) == [] and len(scan_of(table).to_arrow()) == 0


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Manifests that are read from now on; nothing is kept from before."""
    found: list[str] = []
    whole = ManifestFile.fetch_manifest_entry

    def fetched(self: ManifestFile, *given: object) -> object:
        found.append(self.manifest_path)
        return whole(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", fetched)
    monkeypatch.setattr(scans, "_KEPT", {})
    return found


def test_each_manifest_is_read_once(catalogue: Catalog, read: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by tables that are loaded anew; a commit adds its own."""
    for _ in range(3):
        scan_of(catalogue.load_table("notes.words"), EqualTo("increment", 1)).to_arrow()
        scan_of(catalogue.load_table("notes.words")).to_arrow()
    assert len(read) == len(set(read)) > 1
    before = len(read)
    table = catalogue.load_table("notes.words")
    table.append(pa.table({"increment": [9], "word": ["z"], "size": [1]}, schema=table.schema().as_arrow()))
    assert scan_of(table, EqualTo("word", "z"), ("size",)).to_arrow().to_pylist() == [{"size": 1}]
    assert len(read) == len(set(read)) and before < len(read)


def test_what_is_kept_has_a_bound(catalogue: Catalog, read: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What was used last stays, and answers stay right."""
    monkeypatch.setattr(scans, "_MOST_ENTRIES", 6)
    table: IcebergTable = catalogue.load_table("notes.words")
    for _ in range(2):
        for number in range(8):
            assert len(scan_of(table, EqualTo("increment", number)).to_arrow()) == (2 if number % 3 == 1 else 3)
            assert sum(1 + len(kept) for kept in scans._KEPT.values()) <= 6 or len(scans._KEPT) == 1
    assert len(read) > len(set(read))
