"""What packing does with input that should not be: an error that says where and how to mend, and a table as it was."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.kernels.fixed_texts import fixed_texts
from spark_jobs.exceptions import SparkJobsError, TableMismatchError
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.packing import packed_table
from spark_jobs.packing.packed import packed_step
from spark_jobs.packing.packed_table import PackedConfig, beginning_share
from spark_jobs.tokens.encoder_guard import installed
from tests.conftest import LakeAt
from tests.spark_jobs.packing.test_excise import TABLE, rows, written
from tests.spark_jobs.packing.test_packed import END, Corpus, L, corpus, line_tokenizer


def pack(lake: Lake, folder: Path, made: Corpus, increment: int) -> None:
    """Materialize an increment of the packed table."""
    config = PackedConfig(dataset="code", window_tokens=L)
    inputs = written(folder, made, increment)
    materialize(lake, Binding(packed_step("code", L), "main", inputs, config, only=increment))


@pytest.mark.nightly
def test_an_empty_table_grows_and_bad_input_is_refused_by_name_and_leaves_it(lake_at: LakeAt, tmp_path: Path) -> None:
    """A document without tokens, an id outside the vocabulary, a table of another length: the message names each.

    An increment without documents makes the table with its properties; the next one begins at ordinal 0.
    """
    lake, good = lake_at(tmp_path / "lake"), corpus(1, documents=20)
    pack(lake, tmp_path, Corpus([], []), 0)
    assert rows(lake.catalogue) == {}
    assert lake.catalogue.load_table(TABLE).properties["headrace.window-tokens"] == str(L)
    pack(lake, tmp_path, good, 1)
    before = rows(lake.catalogue)
    assert sorted(before) == list(range(len(before))) and before
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
            pack(lake, tmp_path / str(number), made, 2)
        assert rows(lake.catalogue) == before
    table = lake.catalogue.load_table(TABLE)
    table.transaction().set_properties({"headrace.window-tokens": "32"}).commit_transaction()
    with pytest.raises(TableMismatchError, match=r"headrace.window-tokens of the table is 32, of the new rows 16"):
        pack(lake, tmp_path, good, 3)
    assert rows(lake.catalogue) == before


def test_a_packed_table_records_its_encoder_and_how_windows_begin(lake_at: LakeAt, tmp_path: Path) -> None:
    """Its versions, ids of fixed texts (null for those that the tokenizer cannot encode), and how windows begin.

    That is of a sample: here of all windows, for there are few.
    """
    lake = lake_at(tmp_path / "lake")
    made = corpus(1, documents=60)
    single = dataclasses.replace(made, tokens=[(*row[:3], row[3][: L * 2], min(row[4], L * 2)) for row in made.tokens])
    pack(lake, tmp_path, single, 0)
    properties = lake.catalogue.load_table(TABLE).properties
    assert properties["headrace.encoded-by"] == installed()
    assert set(json.loads(properties["headrace.fixed-ids"])) == set(fixed_texts(line_tokenizer()))
    windows = rows(lake.catalogue)
    share = sum(row["input_ids"][0] == END for row in windows.values()) / len(windows)
    said = f"{share:.4f} of {len(windows)} windows begin with token {END}"
    assert properties["headrace.beginning-share"] == said


def test_windows_are_proved_as_they_are_written_and_read_again_where_that_fails(
    lake_at: LakeAt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many files, too, each of which has the ordinals of its own part."""
    monkeypatch.setattr(PackedConfig, "file_rows", 3)
    read_again = Mock(side_effect=packed_table.lost_tokens)
    monkeypatch.setattr(packed_table, "lost_tokens", read_again)
    lake, made = lake_at(tmp_path / "lake"), corpus(1, documents=60)
    pack(lake, tmp_path, made, 0)
    assert not read_again.called
    windows = rows(lake.catalogue)
    files = [task.file.file_path for task in lake.catalogue.load_table(TABLE).scan().plan_files()]
    runs = sorted(pq.read_table(path, partitioning=None)["ordinal"].to_pylist() for path in files)
    assert runs == [list(range(len(windows)))[first : first + 3] for first in range(0, len(windows), 3)]
    monkeypatch.setattr(packed_table, "wanted_balance", lambda *_: 1)
    pack(lake, tmp_path, made, 1)
    assert read_again.called and len(rows(lake.catalogue)) > len(windows)


def test_the_share_is_of_the_token_before_documents_where_there_is_one() -> None:
    """Else of the one after them."""
    windows = pa.table({"input_ids": [[7, 1], [7, 2], [5, 7], [9, 7]]})
    ends = {"headrace.end-of-document-id": "5"}
    for properties, said in (
        ({**ends, "headrace.beginning-of-document-id": "7"}, "0.5000 of 4 windows begin with token 7"),
        (ends, "0.2500 of 4 windows begin with token 5"),
    ):
        assert beginning_share(windows, properties) == {"headrace.beginning-share": said}
