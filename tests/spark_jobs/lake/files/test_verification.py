"""Rows that changed behind the back of headrace are found, whatever columns the table got meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.types import StringType

from spark_jobs.exceptions import InputError, StepRunError
from spark_jobs.lake.files.verification import recount
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.run.materialize import Lake, materialize
from tests.spark_jobs.lake.steps import FolderConfig, bind, land, numbers


def changed(lake: Lake) -> dict[str, DataVersion]:
    """What differs from the ledger in `demo.numbers`."""
    lake.ledger.refresh()
    table = lake.catalogue.load_table("demo.numbers")
    return dict(recount(lake.session(), "demo.numbers", table, lake.ledger.places("demo.numbers")).changed)


def test_rows_of_another_program_and_lost_files_are_found(lake: Lake, folder: Path) -> None:
    """Nothing differs where a column came after the increments; then a row is doubled, then the file of one is gone."""
    land(folder, "b.txt", [3, 4])
    materialize(lake, bind(numbers, FolderConfig(folder=str(folder))))
    with lake.catalogue.load_table("demo.numbers").update_schema() as update:
        update.add_column("later", StringType())
    assert changed(lake) == {}
    expected = lake.ledger.places("demo.numbers")
    table = lake.catalogue.load_table("demo.numbers")
    table.append(table.scan("increment = 1", limit=1).to_arrow())
    [(place, found)] = recount(lake.session(), "demo.numbers", table, expected).changed.items()
    assert place == "1" and found.count == expected["1"].row_count + 1
    Path(next(iter(table.scan("increment = 0").plan_files())).file.file_path.removeprefix("file://")).unlink()
    with pytest.raises((InputError, StepRunError), match="does not exist"):  # of Sail, of Spark with the table's name
        recount(lake.session(), "demo.numbers", table, expected)
