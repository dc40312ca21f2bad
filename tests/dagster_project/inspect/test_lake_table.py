"""Rows of a table that are chosen before they are read, and the forms in which they come."""

from __future__ import annotations

from pathlib import Path

import polars
import pyarrow as pa
import pytest

from dagster_project.exceptions import CommandError
from dagster_project.inspect.opened_lake import OpenedLake
from headrace.tables.settings import settings_at
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.files import lookups
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue

NOTES = Table("notes", "numbers", (Column("n!", "long", "number"), Column("name", "string", "its name")))
ROWS = [{"n": number, "name": None if number % 5 == 4 else f"name {number}"} for number in range(100)]


@pytest.fixture
def lake(tmp_path: Path) -> OpenedLake:
    """A lake with a table in several files."""
    catalogue = open_catalogue(settings_at(tmp_path))
    table = ensure_table(catalogue, "mill.notes", NOTES, {})
    for first in range(0, 100, 40):
        table.append(pa.Table.from_pylist(ROWS[first : first + 40], schema=table.schema().as_arrow()))
    return OpenedLake(catalogue)


def test_columns_rows_and_a_number_of_them(lake: OpenedLake) -> None:
    """Chosen one after another, in any order; each choice leaves the former as it was."""
    notes = lake["mill.notes"]
    assert len(notes) == 100 and sorted(row["n"] for row in notes.to_arrow().to_pylist()) == list(range(100))
    some = notes.where("n >= 10").where("name is not null").select("name")
    assert some.to_arrow().column_names == ["name"] and len(some) == 72
    assert len(some.head(7)) == len(some.head(7).to_arrow()) == len(some.head(9).head(7)) == 7
    assert repr(some.head(7)) == "mill.notes: name of 100 rows where (n >= 10) and (name is not null), at most 7 rows"
    assert len(notes.head(3)) == 3 and len(notes) == 100
    assert repr(lake).endswith('of 1 tables: mill 1; lake["mill.notes"] is one, lake.tables() names all')


def test_rows_come_in_the_forms_that_people_use(lake: OpenedLake) -> None:
    """pandas, Polars, Hugging Face and a stream, each with the same rows and types."""
    some = lake["mill.notes"].where("n < 50")
    expected = some.to_arrow().sort_by("n")
    assert some.schema == expected.schema
    assert pa.table(some).sort_by("n") == expected
    assert some.to_polars().sort("n").to_arrow().to_pylist() == expected.to_pylist()
    assert polars.DataFrame(some).sort("n")["n"].to_list() == expected["n"].to_pylist()
    assert some.to_pandas().sort_values("n")["n"].tolist() == expected["n"].to_pylist()
    assert sorted(some.to_hf()["n"]) == expected["n"].to_pylist()
    assert lake.table("mill.notes", ["n"], "n < 50").num_rows == 50
    assert (
        lake["mill.notes"].where("n < 0").to_arrow().num_rows
        == len(list(lake["mill.notes"].where("n < 0").batches()))
        == 0
    )


def test_a_stream_opens_files_as_it_is_read(lake: OpenedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first rows are there before the second file was opened."""
    opened = []
    read = lookups.pq.ParquetFile

    def counted(*arguments: object, **options: object) -> object:
        opened.append(arguments)
        return read(*arguments, **options)

    monkeypatch.setattr(lookups.pq, "ParquetFile", counted)
    batches = lake["mill.notes"].batches()
    assert next(batches).num_rows and len(opened) == 1
    assert sum(batch.num_rows for batch in batches) < 100 and len(opened) == 3


def test_what_is_not_there_is_said_at_once(lake: OpenedLake) -> None:
    """A table, a column, a condition, with the nearest name; nothing was read."""
    with pytest.raises(CommandError, match=r"mill\.note"):
        lake["mill.note"]
    with pytest.raises(CommandError, match="has no column nam; did you mean 'name'"):
        lake["mill.notes"].select("nam")
    with pytest.raises(CommandError, match="no column m"):
        lake["mill.notes"].where("m > 1")
