"""A page sees one state of the lake, but for what it writes; between pages nothing old is seen."""

from __future__ import annotations

import contextvars
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError

from dagster_project.explore.one_look import begin_look, look_once
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue
from spark_jobs.lake.session.settings import settings_at

NUMBERS = Table("numbers", "Numbers.", (Column("number!", "long", "one"),), key=())


def append(catalogue: Catalog, name: str, number: int) -> None:
    """Write a row."""
    table = ensure_table(catalogue, name, NUMBERS, {})
    table.append(pa.table({"number": pa.array([number], pa.int64())}, schema=table.schema().as_arrow()))


def numbers(catalogue: Catalog, name: str = "notes.numbers") -> list[int]:
    """All rows."""
    return sorted(catalogue.load_table(name).scan().to_arrow()["number"].to_pylist())


@pytest.fixture
def lakes(tmp_path: Path) -> tuple[Catalog, Catalog]:
    """The catalogue that pages read, and another process's."""
    read, other = (open_catalogue(settings_at(tmp_path)) for _ in range(2))
    append(other, "notes.numbers", 1)
    look_once(read)
    look_once(read)
    return read, other


def in_a_page(test: Any, *given: Any) -> None:
    """Run with a look of its own, as a request has its own context."""
    contextvars.copy_context().run(lambda: (begin_look(), test(*given)))


def test_a_page_sees_one_state_and_the_next_page_the_next(lakes: tuple[Catalog, Catalog]) -> None:
    """What others write while it is made comes with the next; outside of pages it is there at once."""
    read, other = lakes

    def page() -> None:
        assert numbers(read) == [1]
        append(other, "notes.numbers", 2)
        append(other, "words.numbers", 3)
        assert numbers(read) == [1]
        assert read.list_namespaces() == [("notes",)] and read.list_tables("notes") == [("notes", "numbers")]
        with pytest.raises(NoSuchTableError):
            read.load_table("notes.letters")

    in_a_page(page)
    assert numbers(read) == [1, 2]

    def next_page() -> None:
        assert numbers(read) == [1, 2] and numbers(read, "words.numbers") == [3]
        assert read.list_namespaces() == [("notes",), ("words",)] and read.list_tables(("words",)) == [
            ("words", "numbers")
        ]

    in_a_page(next_page)


def test_what_a_page_writes_is_lost_to_no_other_writer(lakes: tuple[Catalog, Catalog]) -> None:
    """It writes on top of what others wrote since its look, and sees its own rows."""
    read, other = lakes

    def page() -> None:
        assert numbers(read) == [1]
        append(other, "notes.numbers", 2)
        append(read, "notes.numbers", 3)
        append(read, "letters.numbers", 4)
        assert numbers(read) == [1, 2, 3] and numbers(read, "letters.numbers") == [4]

    in_a_page(page)
    assert numbers(other) == [1, 2, 3]
    in_a_page(lambda: append(read, "notes.numbers", 5))
    assert numbers(read) == numbers(other) == [1, 2, 3, 5]


def test_metadata_that_is_known_is_not_read_again(
    lakes: tuple[Catalog, Catalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over pages: one read for each state of a table."""
    from pyiceberg.serializers import FromInputFile

    read, other = lakes
    parsed: list[str] = []
    whole = FromInputFile.table_metadata
    monkeypatch.setattr(
        FromInputFile, "table_metadata", lambda given, *more: (parsed.append(given.location), whole(given, *more))[1]
    )
    for _ in range(3):
        in_a_page(lambda: [read.load_table("notes.numbers") for _ in range(5)])
    assert len(parsed) == 1
    append(other, "notes.numbers", 2)
    parsed.clear()
    in_a_page(lambda: [read.load_table("notes.numbers") for _ in range(5)])
    assert len(parsed) == 1
