"""A folder for the Hub has the rows of its tables, the same bytes each time, and nothing that may not leave."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyiceberg.catalog import Catalog
from ruamel.yaml import YAML

from blender_service.auth.visibility import Visibility
from dagster_project.cli import headrace as commands
from dagster_project.exceptions import CommandError
from headrace.tables.settings import load_settings
from headrace_features.hub import hub_folder
from headrace_features.hub.hub_folder import write_folder
from spark_jobs.lake.plan.excisions import record_excisions
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.sources.documents import DOCUMENTS
from spark_jobs.text.texts import TEXTS as TEXTS_TABLE
from tests.dagster_project.inspect.test_lake_status import put
from tests.dagster_project.traced_lake import PACKED, TracedLake, add_masks, make
from tests.tiers import sampled

DATASET = PACKED.rpartition("packed_")[2].rpartition("_")[0]
TEXTS = f"{DATASET}.texts"
CORPUS = PACKED.partition(".")[0]
MB = 1_000_000


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> TracedLake:
    """The lake, made once; nobody changes it."""
    return make(tmp_path_factory.mktemp("for_hub"))


@pytest.fixture
def plain_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card without the ledger that this lake lacks."""

    def card(catalogue: Catalog, name: str, header: dict[str, Any]) -> str:
        return f"---\n{json.dumps(header)}\n---\n# {name}\n"

    monkeypatch.setattr(hub_folder, "card", card)


def rows_of(catalogue: Catalog, table: str) -> list[dict[str, Any]]:
    """Rows of a table without the columns of its layout, in any order."""
    rows = catalogue.load_table(table).scan().to_arrow()
    return sorted(rows.drop_columns([n for n in ("increment", "shard") if n in rows.column_names]).to_pylist(), key=str)


def digests(folder: Path) -> dict[str, str]:
    """The hash of every file below a folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@sampled()
@pytest.mark.parametrize("table", [PACKED, TEXTS])
@pytest.mark.parametrize("shard_bytes", [1, 500 * MB])
def test_a_folder_has_the_rows_of_the_table(
    plain_card: None, lake: TracedLake, tmp_path: Path, table: str, shard_bytes: int
) -> None:
    """However many shards; twice the same snapshot gives the same names and bytes."""
    for name in ("a", "b"):
        (written,) = write_folder(lake.catalogue, [table], tmp_path / name, shard_bytes)
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    shards = sorted((tmp_path / "a" / table.partition(".")[2]).iterdir())
    rows = [row for shard in shards for row in pq.read_table(shard).to_pylist()]
    assert sorted(rows, key=str) == rows_of(lake.catalogue, table) and written.rows == len(rows)
    assert written.shards == len(shards)
    if table == PACKED:
        assert [row["ordinal"] for row in rows] == list(range(len(rows)))


def test_masks_go_along(plain_card: None, tmp_path: Path) -> None:
    """A packed table with masks is trained on by them, wherever it is."""
    lake = make(tmp_path / "lake")
    masks = add_masks(lake)
    write_folder(lake.catalogue, [PACKED], tmp_path / "a", MB)
    (shard,) = (tmp_path / "a").rglob("*.parquet")
    assert {row["ordinal"]: row["trainable"] for row in pq.read_table(shard).to_pylist()} == masks


def test_rows_are_written_in_groups(
    plain_card: None, lake: TracedLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a bounded number of rows and bytes, each a shard where a shard holds no more."""
    monkeypatch.setattr(hub_folder, "_BATCH_ROWS", 2)
    monkeypatch.setattr(hub_folder, "_GROUP_ROWS", 4)
    (written,) = write_folder(lake.catalogue, [PACKED], tmp_path / "a", 1)
    shards = sorted((tmp_path / "a").rglob("*.parquet"))
    assert written.shards == len(shards) == -(-written.rows // 4)
    assert {pq.ParquetFile(shard).metadata.num_row_groups for shard in shards} == {1}


def test_the_card_names_a_config_for_each_table(lake_env: Path, tmp_path: Path) -> None:
    """With splits, size and licence where it is known, as the Hub reads them; the command says what is next."""
    catalogue = open_catalogue(load_settings())
    ids = [f"{number:032x}" for number in range(3)]
    put(catalogue, "notes", DOCUMENTS, 0, [{"doc_id": one, "licence": "MIT", "content": one} for one in ids])
    put(catalogue, "notes", TEXTS_TABLE, 0, [{"doc_id": one, "content": f"text {one}"} for one in ids])
    shown = CliRunner().invoke(commands, ["export", "hub", "notes.texts", "notes.documents", str(tmp_path / "out")])
    assert shown.exit_code == 0 and "notes.texts: 3 rows in 1 shards" in shown.output
    assert f"hf upload OWNER/NAME {tmp_path / 'out'} --repo-type dataset" in shown.output
    _, head, body = (tmp_path / "out" / "README.md").read_text().split("---\n", 2)
    header = YAML(typ="safe").load(head)
    assert header["configs"] == [
        {"config_name": name, "data_files": [{"split": "train", "path": f"{name}/train-*.parquet"}]}
        for name in ("texts", "documents")
    ]
    assert header["size_categories"] == ["n<1K"] and header["license"] == ["mit"] and header["pretty_name"] == "notes"
    assert "## Provenance" in body
    datasets = pytest.importorskip("datasets", reason="of the extra readers")
    for name in ("texts", "documents"):
        loaded = datasets.load_dataset(str(tmp_path / "out"), name, split="train", cache_dir=str(tmp_path / "cache"))
        rows = [hub_folder._plain(pa.table(catalogue.load_table(f"notes.{name}").scan().to_arrow())).to_pylist()]
        expected = [{key: value for key, value in row.items() if key in loaded.column_names} for row in rows[0]]
        assert sorted(loaded.to_list(), key=str) == sorted(expected, key=str)


def test_excised_documents_never_leave(plain_card: None, tmp_path: Path) -> None:
    """Texts go without them; windows that still hold one are refused, and nothing of them stays in the folder."""
    catalogue = make(tmp_path / "lake").catalogue
    doc_id = rows_of(catalogue, TEXTS)[0]["doc_id"]
    record_excisions(catalogue, None, {doc_id}, "by hand")
    (written,) = write_folder(catalogue, [TEXTS], tmp_path / "texts", 500 * MB)
    rows = [row for file in (tmp_path / "texts").rglob("*.parquet") for row in pq.read_table(file).to_pylist()]
    expected = [row for row in rows_of(catalogue, TEXTS) if row["doc_id"] != doc_id]
    assert written.excised == 1 and sorted(rows, key=str) == expected
    with pytest.raises(CommandError, match="still holds excised documents; run headrace doc excise"):
        write_folder(catalogue, [PACKED], tmp_path / "packed", 500 * MB)
    assert not list((tmp_path / "packed").rglob("*"))


def test_mistakes_are_one_line(plain_card: None, lake: TracedLake, tmp_path: Path) -> None:
    """Nothing is written."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    cases = {
        (f"{CORPUS}.packed_nothing_64",): "is not in the lake",
        (PACKED, TEXTS): "have a card each; export tables of one of them at a time",
        (f"{CORPUS}.tokens",): "is neither packed nor has it doc_id and content",
    }
    for tables, expected in cases.items():
        with pytest.raises(CommandError, match=expected):
            write_folder(lake.catalogue, tables, tmp_path / "none", MB)
    with pytest.raises(CommandError, match="is not empty"):
        write_folder(lake.catalogue, [TEXTS], tmp_path / "full", MB)


def test_maps_become_lists(tmp_path: Path) -> None:
    """`datasets` reads no map."""
    rows = pa.table({"m": pa.array([[("a", "1")], None, []], pa.map_(pa.string(), pa.string()))})
    plain = hub_folder._plain(rows)
    assert plain["m"].to_pylist() == [[{"key": "a", "value": "1"}], None, []]
    assert not pa.types.is_map(plain.schema.field("m").type)


def test_the_command_is_below_export() -> None:
    """`headrace export` keeps its own words, and names the others."""
    shown = CliRunner().invoke(commands, ["export", "--help"])
    assert "headrace export hub --help" in shown.output and "TABLE DIR" in shown.output
    shown = CliRunner().invoke(commands, ["export", "hub", "--help"])
    assert "export hub [OPTIONS] TABLE... DIR" in shown.output and "--shard-mb" in shown.output


@pytest.mark.parametrize("table", [PACKED, TEXTS])
@pytest.mark.parametrize("kind", ["restricted", "on_device"])
def test_what_is_not_public_does_not_leave(
    plain_card: None, lake: TracedLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, kind: str
) -> None:
    """A dataset, and a corpus that was made of it; nothing is written."""
    teams = frozenset({"research"}) if kind == "restricted" else frozenset[str]()
    hidden = {DATASET: Visibility(kind, teams)}
    monkeypatch.setattr(hub_folder, "recorded_visibility", lambda catalogue: hidden)
    with pytest.raises(CommandError, match=f"^{DATASET} is .*a folder for the Hub is for everybody"):
        write_folder(lake.catalogue, [table], tmp_path / "out", MB)
    assert not (tmp_path / "out").exists()
