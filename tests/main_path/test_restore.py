"""The drill of docs/operate/backup.md: catalogue and bucket are restored under other names, the old ones are gone."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.catalogue import open_catalogue
from blender_service.exceptions import CatalogueError
from blender_service.server.blender import Blender
from blender_service.wire.row_batch import encode
from tests.main_path.services import lake_environment, object_store, postgres
from tests.main_path.test_one_run import GOLDEN, write
from tests.main_path.test_production import found_versions, project_run

pytestmark = pytest.mark.nightly
_WAREHOUSE = "PYICEBERG_CATALOG__LAKE__WAREHOUSE"


def test_a_lake_is_restored_under_other_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing opens before the relocation; after it every version is as it was, and a blend goes on at its offset."""
    source, objects = tmp_path / "source", tmp_path / "objects"
    source.mkdir()
    write(source)
    with postgres("lake") as database, object_store(objects) as store:
        environment = {**os.environ, **lake_environment(database, store), "DAGSTER_HOME": str(tmp_path)}
        done = project_run(source, environment)
        assert done.returncode == 0, done.stdout[-4000:]
        assert found_versions(environment) == GOLDEN
        blender = Blender(opened(environment, monkeypatch))
        blend = blender.create(BlendSpec((SourceSpec("main.packed_tools_256", max_epochs=0),), seed=3)).blend_id
        following = read(blender, blend, 3, 40)

        database.run("pg_dump", "-h", "127.0.0.1", *of(database.port), "-Fc", "-f", "lake.dump", "lake")
        shutil.copytree(objects / "lake", objects / "restored")
        database.run("createdb", "-h", "127.0.0.1", *of(database.port), "restored")
        database.run("pg_restore", "-h", "127.0.0.1", *of(database.port), "-d", "restored", "lake.dump")

        copied = {**environment, **lake_environment(database, store, "restored"), _WAREHOUSE: "s3://lake/lake"}
        assert "belongs to another catalogue" in command(copied, "table", "show", status=2)
        versions = found_versions(environment)

        database.run("dropdb", "-h", "127.0.0.1", *of(database.port), "--force", "lake")
        (objects / "lake").rename(tmp_path / "gone")
        restored = {**copied, _WAREHOUSE: "s3://restored/lake"}
        relocation = "headrace relocate --from s3://lake/lake --to s3://restored/lake"
        for words in (("table", "show"), ("maintain", "--only", "orphans"), ("doctor",)):
            assert relocation in command(restored, *words, status=2)
        with pytest.raises(CatalogueError, match="a lake in s3://lake/lake, s3://restored/lake is open"):
            opened(restored, monkeypatch)
        before = listed(objects / "restored")
        assert "nothing was written" in command(restored, *relocation.split()[1:], "--dry-run")
        assert listed(objects / "restored") == before
        assert "tables led there" in command(restored, *relocation.split()[1:])
        findings = {one["subject"]: one for one in json.loads(command(restored, "doctor", "--json", status=None))}
        assert findings["lake"]["state"] == "ok" and "opens" in findings["lake"]["text"]
        assert found_versions(restored) == versions
        assert read(Blender(opened(restored, monkeypatch)), blend, 3, 40) == following
        done = project_run(source, restored)
        assert done.returncode == 0, done.stdout[-4000:]
        assert found_versions(restored) == versions


def of(port: int) -> tuple[str, ...]:
    """Options of Postgres's programs: where the server listens, and as whom."""
    return "-p", str(port), "-U", "lake"


def command(environment: dict[str, str], *words: str, status: int | None = 0) -> str:
    """Run a command of headrace; gives what it says on both streams, JSON alone on standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "dagster_project.cli", *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert status is None or done.returncode == status, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout if "--json" in words else done.stdout + done.stderr


def opened(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """The catalogue as a server of Blender opens it."""
    for name, value in environment.items():
        if name.startswith("PYICEBERG_"):
            monkeypatch.setenv(name, value)
    return open_catalogue()


def read(blender: Blender, blend: str, offset: int, count: int) -> list[str]:
    """Digests of a blend's batches from an offset, as they go over the wire."""
    batches = blender.open(blend).read(offset, count, max_batch_rows=7)
    return [hashlib.sha256(encode(batch)).hexdigest() for batch in batches]


def listed(folder: Path) -> dict[str, int]:
    """Sizes of all files of a bucket."""
    return {str(one.relative_to(folder)): one.stat().st_size for one in folder.rglob("*") if one.is_file()}
