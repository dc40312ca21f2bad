"""Exports hold the rows of the table, the same bytes each time; and the table opens in other readers as it is."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from dagster_project.cli import run_command
from dagster_project.exceptions import CommandError
from dagster_project.inspect.lake.exports import export_table
from spark_jobs.exceptions import ConfigError
from tests.dagster_project.traced_lake import PACKED, SIZE, TracedLake, make

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> TracedLake:
    """The lake, made once; nobody changes it."""
    return make(tmp_path_factory.mktemp("exported"))


@pytest.fixture(scope="module")
def rows(lake: TracedLake) -> Rows:
    """The windows by ordinal, without their increment."""
    found = lake.catalogue.load_table(PACKED).scan().to_arrow().drop_columns(["increment"]).to_pylist()
    return sorted(found, key=lambda row: int(row["ordinal"]))


def files_of(lake: TracedLake) -> list[str]:
    """Paths of the table's data files."""
    tasks = lake.catalogue.load_table(PACKED).scan().plan_files()
    return sorted(task.file.file_path.removeprefix("file://") for task in tasks)


@pytest.mark.parametrize("kind", ["parquet", "webdataset", "pt"])
def test_the_manifest_lists_every_shard_with_its_checksum(lake: TracedLake, tmp_path: Path, kind: str) -> None:
    """Sizes, rows and SHA-256 are those of the files; twice the same table gives the same bytes."""
    if kind == "pt":
        pytest.importorskip("torch", reason="torch is an extra")
    manifests = [export_table(lake.catalogue, PACKED, tmp_path / name, kind, shard_rows=4) for name in ("a", "b")]
    assert manifests[0] == manifests[1] == json.loads((tmp_path / "a" / "manifest.json").read_text())
    shards = manifests[0]["shards"]
    assert [shard["first_ordinal"] for shard in shards] == [4 * number for number in range(len(shards))]
    assert {shard["rows"] for shard in shards[:-1]} == {4}
    for shard in shards:
        data = (tmp_path / "a" / shard["file"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (shard["bytes"], shard["sha256"])
    assert manifests[0]["properties"]["headrace.window-tokens"] == str(SIZE)
    assert {file.name for file in (tmp_path / "a").iterdir()} == {*(s["file"] for s in shards), "manifest.json"}


def test_parquet_shards_hold_the_rows_in_order(lake: TracedLake, rows: Rows, tmp_path: Path) -> None:
    """Read by Arrow one after the other, they are the table by ordinal."""
    manifest = export_table(lake.catalogue, PACKED, tmp_path / "p", "parquet", shard_rows=3)
    found = [row for shard in manifest["shards"] for row in pq.read_table(tmp_path / "p" / shard["file"]).to_pylist()]
    assert found == rows


def test_webdataset_shards_hold_the_rows_in_order(lake: TracedLake, rows: Rows, tmp_path: Path) -> None:
    """Each key has its array and its JSON, side by side as readers want them."""
    manifest = export_table(lake.catalogue, PACKED, tmp_path / "w", "webdataset", shard_rows=3)
    found = []
    for shard in manifest["shards"]:
        with tarfile.open(tmp_path / "w" / shard["file"]) as tar:
            members = tar.getmembers()
            for array, about in zip(members[::2], members[1::2], strict=True):
                assert array.name.split(".")[0] == about.name.split(".")[0]
                row = json.loads(tar.extractfile(about).read())  # type: ignore[union-attr]
                ids = np.load(io.BytesIO(tar.extractfile(array).read()))  # type: ignore[union-attr]
                assert ids.dtype == np.int32
                found.append({**row, "input_ids": ids.tolist()})
    assert found == rows


def test_torch_shards_hold_the_rows_in_order(lake: TracedLake, rows: Rows, tmp_path: Path) -> None:
    """Read with weights_only, the tensors and the segments are those of the table."""
    torch = pytest.importorskip("torch", reason="torch is an extra")
    manifest = export_table(lake.catalogue, PACKED, tmp_path / "t", "pt")
    (shard,) = manifest["shards"]
    found = torch.load(tmp_path / "t" / shard["file"], weights_only=True)
    assert found["input_ids"].tolist() == [row["input_ids"] for row in rows]
    assert found["ordinal"].tolist() == [row["ordinal"] for row in rows]
    segments = [segment for row in rows for segment in row["segments"]]
    assert found["segment_counts"].tolist() == [len(row["segments"]) for row in rows]
    assert found["doc_id"] == [segment["doc_id"] for segment in segments]
    for tensor, name in (("document_start",) * 2, ("window_start",) * 2, ("segment_token_count", "token_count")):
        assert found[tensor].tolist() == [segment[name] for segment in segments]


def test_what_cannot_be_exported_is_refused(lake: TracedLake, tmp_path: Path) -> None:
    """A folder in use, a table that is not there, and one that is not packed."""
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    with pytest.raises(CommandError, match="is not empty"):
        export_table(lake.catalogue, PACKED, tmp_path / "used", "parquet")
    with pytest.raises(CommandError, match="not in the lake"):
        export_table(lake.catalogue, "main.nowhere", tmp_path / "new", "parquet")
    with pytest.raises(ConfigError, match="is not packed"):
        export_table(lake.catalogue, "main.tokens", tmp_path / "new", "parquet")


def test_the_command_says_what_it_wrote(
    lake: TracedLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One line with rows, shards and the manifest."""
    for name, value in lake.environment.items():
        monkeypatch.setenv(name, value)
    assert run_command(["export", PACKED, str(tmp_path / "out"), "--format", "webdataset"]) == 0
    assert "windows in 1 shards" in capfd.readouterr().out


def test_pyarrow_opens_the_table_as_it_is(lake: TracedLake, rows: Rows) -> None:
    """Its data files are a dataset."""
    found = ds.dataset(files_of(lake), format="parquet").to_table(columns=list(rows[0])).to_pylist()
    assert sorted(found, key=lambda row: int(row["ordinal"])) == rows


def test_pyiceberg_opens_the_table_as_it_is(lake: TracedLake, rows: Rows) -> None:
    """A row is found by its ordinal; no other file is read."""
    table = lake.catalogue.load_table(PACKED)
    found = table.scan("ordinal = 3", selected_fields=tuple(rows[0])).to_arrow().to_pylist()
    assert found == [rows[3]]


def test_polars_opens_the_table_as_it_is(lake: TracedLake, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through its own reader of Iceberg."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # its faster planner is another package
    polars = pytest.importorskip("polars", reason="polars is not installed: pip install -e .[readers]")
    frame = polars.scan_iceberg(lake.catalogue.load_table(PACKED)).select(list(rows[0])).sort("ordinal").collect()
    assert frame.to_dicts() == rows


def test_duckdb_opens_the_table_as_it_is(lake: TracedLake, rows: Rows) -> None:
    """Its data files, by SQL (the Iceberg extension of DuckDB is a download of its own)."""
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed: pip install -e .[readers]")
    found = duckdb.connect().execute(
        "SELECT ordinal, token_count, input_ids, segments FROM read_parquet(?) ORDER BY ordinal", [files_of(lake)]
    )
    names = [column[0] for column in found.description]
    assert [dict(zip(names, row, strict=True)) for row in found.fetchall()] == rows


def test_hugging_face_datasets_opens_the_files_as_they_are(
    lake: TracedLake, rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its data files, without any script."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets", reason="datasets is not installed: pip install -e .[readers]")
    made = datasets.Dataset.from_parquet(files_of(lake), cache_dir=str(tmp_path))
    found = made.select_columns(list(rows[0])).to_list()
    assert sorted(found, key=lambda row: int(row["ordinal"])) == rows
