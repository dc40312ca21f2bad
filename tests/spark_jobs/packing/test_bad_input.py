"""What packing does with input that should not be: an error that says where and how to mend, and a table as it was."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from spark_jobs.exceptions import SparkJobsError, TableMismatchError
from spark_jobs.lake.run.binding import Binding
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.packing.packed import packed_step
from spark_jobs.packing.packed_table import PackedConfig
from tests.conftest import LakeAt
from tests.spark_jobs.packing.test_excise import TABLE, rows, written
from tests.spark_jobs.packing.test_packed import Corpus, L, corpus


def pack(lake: Lake, folder: Path, made: Corpus, increment: int) -> None:
    """Materialize an increment of the packed table."""
    config = PackedConfig(dataset="code", window_tokens=L)
    inputs = written(folder, made, increment)
    materialize(lake, Binding(packed_step("code", L), "main", inputs, config, only=increment))


def test_bad_input_is_refused_by_name_and_the_table_stays_as_it_was(lake_at: LakeAt, tmp_path: Path) -> None:
    """A document without tokens, an id outside the vocabulary, a table of another length: the message names each."""
    lake, good = lake_at(tmp_path / "lake"), corpus(1, documents=20)
    pack(lake, tmp_path, good, 0)
    before = rows(lake.catalogue)
    lost = good.tokens[3]
    without = dataclasses.replace(good, tokens=[row for row in good.tokens if row != lost])
    strange = (*lost[:3], [*lost[3], 100_000], lost[4] + 1)
    outside = dataclasses.replace(good, tokens=[strange if row == lost else row for row in good.tokens])
    for number, (made, said) in enumerate(
        [
            (without, f"document {lost[2]} survived and is in ordered, but tokens has no row of it"),
            (outside, f"document {lost[2]} has token id 100000, the vocabulary ends at 99999"),
        ]
    ):
        (tmp_path / str(number)).mkdir()
        with pytest.raises(SparkJobsError, match=said):
            pack(lake, tmp_path / str(number), made, 1)
        assert rows(lake.catalogue) == before
    table = lake.catalogue.load_table(TABLE)
    table.transaction().set_properties({"headrace.window-tokens": "32"}).commit_transaction()
    with pytest.raises(TableMismatchError, match=r"headrace.window-tokens of the table is 32, of the new rows 16"):
        pack(lake, tmp_path, good, 2)
    assert rows(lake.catalogue) == before


def test_an_empty_dataset_makes_a_table_without_rows_that_can_grow(lake_at: LakeAt, tmp_path: Path) -> None:
    """The table has its properties; the next increment begins at ordinal 0."""
    lake = lake_at(tmp_path / "lake")
    pack(lake, tmp_path, Corpus([], []), 0)
    assert rows(lake.catalogue) == {}
    assert lake.catalogue.load_table(TABLE).properties["headrace.window-tokens"] == str(L)
    pack(lake, tmp_path, corpus(1, documents=20), 1)
    found = rows(lake.catalogue)
    assert sorted(found) == list(range(len(found))) and found
