"""A lake that an earlier version made is brought up to date: the run says nothing is to be mended, its rows are right.

`golden_lake_<commit>.tar.xz` holds the files of `test_one_run.write` and the lake that the commit made of them, two
corpora, by `project.run`. Tables and arrivals name absolute places, so it is unpacked where it was made. Another
commit's lake is made by the same two functions in a checkout of it.
"""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from headrace.tables.settings import settings_at
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.main_path.project import point_at, run

pytestmark = pytest.mark.nightly
LAKES = sorted(Path(__file__).parent.glob("golden_lake_*.tar.xz"))
PLACE = Path("/dev/shm/headrace-golden")


@pytest.fixture(params=LAKES, ids=lambda path: path.name.split(".")[0])
def lake(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The lake of an earlier version, beside the files that it was made of."""
    PLACE.mkdir()  # fails where another test uses it
    try:
        with tarfile.open(request.param) as archive:
            archive.extractall(PLACE.parent, filter="data")
        yield PLACE / "lake"
    finally:
        shutil.rmtree(PLACE)


def rows(catalogue: Catalog) -> dict[str, list[str]]:
    """All rows of all tables that hold data, each as text, sorted."""
    tables = [".".join(name) for (space,) in catalogue.list_namespaces() for name in catalogue.list_tables(space)]
    return {
        table: sorted(map(repr, map(_plain, catalogue.load_table(table).scan().to_arrow().to_pylist())))
        for table in tables
        if not table.startswith("system.")
    }


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: sorted(value) if isinstance(value, list) and value and isinstance(value[0], tuple) else value
        for name, value in row.items()
    }


def test_a_lake_of_before_has_the_rows_of_a_new_one(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step fails, no dataset gets an increment, nothing is left to do, and every row is the one of a fresh lake."""
    source = PLACE / "source"
    for root in (tmp_path / "fresh", lake):
        for name, value in point_at(root).items():
            monkeypatch.setenv(name, value)
        outcome = run(source, both=True)
        assert outcome.failures == () and outcome.success
    again = run(source, both=True)
    assert again.success and again.computed == {}
    upgraded, fresh = (open_catalogue(settings_at(root)) for root in (lake, tmp_path / "fresh"))
    expected, there = rows(fresh), rows(upgraded)
    assert there.keys() == expected.keys()
    differing = {table for table in there if there[table] != expected[table]}
    # Certificates stay with the tokenizers that they are of; the config of a source, in `provenance`, gets new fields.
    assert {table.partition(".")[2] for table in differing} <= {"tokenizer_certificate", "provenance"}
    ledger = Ledger.fresh(upgraded)
    assert {row.place for table in there for row in ledger.places(table).values()} <= {"0", ""}
