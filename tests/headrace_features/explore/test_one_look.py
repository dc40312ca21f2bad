"""A page sees one state of the lake, but for what it writes; between pages nothing old is seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table as IcebergTable

from blender_service.recently_used import RecentlyUsed
from headrace_features.explore.one_look import OneLook
from spark_jobs.exceptions import WrongLakeError
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


Lakes = tuple[Callable[[], OneLook], Catalog]


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    """What looks at the catalogue for a page, and the catalogue of another process."""
    read, other = (open_catalogue(settings_at(tmp_path)) for _ in range(2))
    assert isinstance(read, SqlCatalog)
    append(other, "notes.numbers", 1)
    parsed = RecentlyUsed[str, IcebergTable](8)
    return lambda: OneLook(read, parsed), other


def test_a_page_sees_one_state_and_the_next_page_the_next(lakes: Lakes) -> None:
    """What others write while it is made comes with the next."""
    look, other = lakes
    page = look()
    assert numbers(page) == [1]
    append(other, "notes.numbers", 2)
    append(other, "words.numbers", 3)
    assert numbers(page) == [1]
    assert page.list_namespaces() == [("notes",)] and page.list_tables("notes") == [("notes", "numbers")]
    with pytest.raises(NoSuchTableError):
        page.load_table("notes.letters")
    after = look()
    assert numbers(after) == [1, 2] and numbers(after, "words.numbers") == [3]
    assert after.list_namespaces() == [("notes",), ("words",)]
    assert after.list_tables(("words",)) == [("words", "numbers")]


def test_what_a_page_writes_is_lost_to_no_other_writer(lakes: Lakes) -> None:
    """It writes on top of what others wrote since its look, and sees its own rows."""
    look, other = lakes
    page = look()
    assert numbers(page) == [1]
    append(other, "notes.numbers", 2)
    append(page, "notes.numbers", 3)
    append(page, "letters.numbers", 4)
    assert numbers(page) == [1, 2, 3] and numbers(page, "letters.numbers") == [4]
    assert numbers(other) == [1, 2, 3]
    append(look(), "notes.numbers", 5)
    assert numbers(look()) == numbers(other) == [1, 2, 3, 5]


def test_metadata_that_is_known_is_not_read_again(lakes: Lakes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over pages: one read for each state of a table."""
    from pyiceberg.serializers import FromInputFile

    look, other = lakes
    parsed: list[str] = []
    whole = FromInputFile.table_metadata
    monkeypatch.setattr(
        FromInputFile, "table_metadata", lambda given, *more: (parsed.append(given.location), whole(given, *more))[1]
    )
    for _ in range(3):
        page = look()
        for _ in range(5):
            page.load_table("notes.numbers")
    assert len(parsed) == 1
    append(other, "notes.numbers", 2)
    parsed.clear()
    page = look()
    for _ in range(5):
        page.load_table("notes.numbers")
    assert len(parsed) == 1


def test_a_page_writes_through_the_guard_of_its_lake(lakes: Lakes, tmp_path: Path) -> None:
    """As the catalogue itself does: a lake that was copied is not written."""
    look, _ = lakes
    (tmp_path / "headrace-lake.json").write_text('{"lake": "another", "warehouse": "w", "catalogue": "c"}')
    with pytest.raises(WrongLakeError):
        append(look(), "notes.numbers", 2)
