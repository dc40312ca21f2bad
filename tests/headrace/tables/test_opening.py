"""Whoever opens the lake opens the same: from the same settings, the same tables, with the same guard."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import IcebergTables
from pyiceberg.exceptions import NoSuchTableError
from sqlalchemy import update

from blender_service import exceptions as served
from blender_service.blend.lake_sources import pin_snapshot
from blender_service.catalogue import open_catalogue as open_served
from headrace.tables.catalogue import SqlLake, load_table, metadata_locations, open_lake, tables_in
from headrace.tables.exceptions import CatalogueError
from headrace.tables.identity import noted_in_catalogue
from headrace.tables.settings import LakeSettings, settings_at
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.blender_service.packed_tables import create_packed


def test_a_folder_of_a_project_has_the_project_s_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blender looked for ./warehouse alone, so a server that was started in `defs/` found no lake."""
    (tmp_path / "pyproject.toml").write_text("[tool.dg.project]\n")
    (tmp_path / "defs").mkdir()
    open_catalogue(settings_at(tmp_path / "warehouse"))
    monkeypatch.chdir(tmp_path / "defs")
    assert open_served().properties["warehouse"] == str(tmp_path / "warehouse")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"URI": "sqlite:///c.db"}, "warehouse is not set"),  # Blender opened it, and failed at the first blend
        ({"URI": "sqlite:///gone/c.db", "WAREHOUSE": "/w"}, "gone/c.db does not exist"),
        ({"URI": "thrift://host", "WAREHOUSE": "/w", "TYPE": "hive"}, "type 'hive' is not supported"),
    ],
)
def test_settings_that_make_no_lake_are_refused(
    values: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, for the server as for a run."""
    for name, value in values.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", value)
    with pytest.raises(served.CatalogueError, match=message):
        open_served()


def test_settings_of_sqlite_wait_for_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """30 s on both sides; an empty variable, as of a secret that CI lacks, is none. Blender waited 5 s."""
    open_catalogue(settings_at(tmp_path))
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", str(tmp_path))
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__S3__ENDPOINT", "")
    properties = open_served().properties
    assert properties["uri"].endswith("timeout=30") and "s3.endpoint" not in properties


def test_a_driver_that_is_not_installed_is_told_in_one_line() -> None:
    """The run that writes ended with a trace of modules."""
    settings = LakeSettings({"uri": "postgresql+pg8000://me@host/db", "warehouse": "/w"}, embedded=False)
    with pytest.raises(CatalogueError, match="No module named 'pg8000'"):
        open_lake(settings)


def test_a_view_is_no_table(tmp_path: Path) -> None:
    """Other programs write views into the same database; a look at all places took them for tables."""
    catalogue = open_catalogue(settings_at(tmp_path))
    assert isinstance(catalogue, SqlLake)
    catalogue.create_namespace("demo")
    for name in ("numbers", "seen"):
        catalogue.create_table(f"demo.{name}", pa.schema([("n", pa.int64())]))
    with catalogue.engine.begin() as connection:
        connection.execute(update(IcebergTables).where(IcebergTables.table_name == "seen").values(iceberg_type="VIEW"))
    assert list(metadata_locations(catalogue)) == tables_in(catalogue, "demo") == ["demo.numbers"]
    assert load_table(catalogue, "demo.seen") is None and not catalogue.table_exists("demo.seen")
    with pytest.raises(NoSuchTableError):
        catalogue.at_one_look().load_table("demo.seen")


def test_a_pin_is_a_write_like_others(tmp_path: Path) -> None:
    """The first write notes the identity, a table with a path elsewhere is not written; Blender looked at neither."""
    open_lake(settings_at(tmp_path))
    catalogue = open_served(tmp_path)
    packed = create_packed(catalogue, "main.packed_code_16").append(3, seed=1)
    with packed.table.transaction() as change:
        change.set_properties({"write.data.path": str(tmp_path.parent)})
    head = packed.table.metadata.snapshots[-1].snapshot_id
    with pytest.raises(served.CatalogueError, match="lies outside of the lake's warehouse"):
        pin_snapshot(packed.table, head)
    assert noted_in_catalogue(catalogue) is not None and packed.table.refresh().refs().keys() == {"main"}
