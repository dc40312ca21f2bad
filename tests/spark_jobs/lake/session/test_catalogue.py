"""Commits through the catalogue: again when another commit came between, after pauses that grow and differ."""

from __future__ import annotations

import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.serializers import FromInputFile

from headrace.tables.catalogue import commit
from headrace.tables.settings import settings_at
from spark_jobs.lake.session.catalogue import open_catalogue


class Contended:
    """A catalogue in which another commit always comes between."""

    def __init__(self) -> None:
        self.tried = 0

    def load_table(self, identifier: str) -> Any:
        """A table without anything."""
        return SimpleNamespace(metadata=None)

    def commit_table(self, *_: object) -> None:
        """Lose."""
        self.tried += 1
        raise CommitFailedException("another commit came between")


def test_those_who_clash_wait_longer_each_time_and_not_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two writers that lose 20 times: pauses up to a bound that doubles, at most 3 s, and none twice."""
    monkeypatch.setattr(random, "uniform", random.Random(7).uniform)
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    catalogue: Any = Contended()
    for _ in range(2):
        with pytest.raises(CommitFailedException):
            commit(catalogue, "a.b", lambda _: (), lambda _: (SimpleNamespace(),))  # type: ignore[arg-type, return-value]
    assert catalogue.tried == 40 and len(pauses) == 38, "no pause after the last"
    bounds = [min(0.1 * 2**attempt, 3.0) for attempt in range(19)] * 2
    assert all(0 < pause <= bound for pause, bound in zip(pauses, bounds, strict=True))
    assert len(set(pauses)) == len(pauses)
    assert sum(pauses[:5]) < sum(pauses[14:19]) and 5 < sum(pauses[:19]) < 60


def test_a_commit_that_is_tried_again_is_no_news(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """PyIceberg rebases what came second; the user, who has nothing to mend, reads nothing."""
    catalogue = open_catalogue(settings_at(tmp_path))
    catalogue.create_namespace("demo")
    rows = pa.table({"x": [1]})
    catalogue.create_table("demo.numbers", rows.schema)
    first, second = (catalogue.load_table("demo.numbers") for _ in range(2))
    first.append(rows)
    second.append(rows)
    assert second.scan().to_arrow().num_rows == 2 and not caplog.records


def test_a_file_of_metadata_is_parsed_once_and_a_new_one_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process's commit writes another file, which the next load reads."""
    reader, writer = (open_catalogue(settings_at(tmp_path)) for _ in range(2))
    writer.create_namespace("demo")
    table = writer.create_table("demo.numbers", pa.schema([("n", pa.int64())]))
    parsed: list[str] = []
    real = FromInputFile.table_metadata

    def table_metadata(file: Any) -> Any:
        parsed.append(file.location)
        return real(file)

    monkeypatch.setattr(FromInputFile, "table_metadata", table_metadata)
    assert [reader.load_table("demo.numbers").metadata_location for _ in range(3)] == [table.metadata_location] * 3
    assert parsed == [table.metadata_location]
    table.append(pa.table({"n": [1, 2]}))
    assert reader.load_table("demo.numbers").scan().to_arrow()["n"].to_pylist() == [1, 2]
    assert reader.load_table("demo.numbers").metadata == table.metadata
