"""A project that was copied with its lake: no command of the copy writes, moves or deletes a file of the original."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.catalogue import open_catalogue as open_in_blender
from blender_service.server.blender import Blender
from dagster_project.cli import run_command
from headrace.tables.settings import settings_at
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.run.maintenance import tables_of
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.conftest import WriteDefs
from tests.headrace_features.privacy.test_quarantine import dataset, lake
from tests.kept_folder import KeptFolder

__all__ = ["lake"]
Said = pytest.CaptureFixture[str]
_YES = ("--yes", "--reason", "asked to")
_TASKS = ("ledger", "compaction", "expiry", "orphans", "freezing", "retention")


def deleting(documents: str, table: str, packed: str, cold: Path) -> Iterator[tuple[str, ...]]:
    """Every command that removes or rewrites something, mildest first."""
    yield from (("maintain", "--only", task, "--days", "0") for task in _TASKS)
    yield "maintain", "--days", "0"
    yield "maintain", "--only", "compaction", table
    yield "maintain", "--only", "expiry", table, "--days", "0"
    yield "dataset", "archive", "web", "--days", "0", "--to", str(cold)
    yield "doc", "excise", "--superseded", "small", "--yes"
    yield "quarantine", "refuse", "held", "--increment", "0", "--reason", "looked at"
    yield "doc", "excise", documents, "--table", packed, "--yes"
    yield "dataset", "delete", "web", "--increment", "1", *_YES
    yield "table", "delete", table, "--yes"
    yield "dataset", "delete", "held", *_YES


def contents(root: Path) -> dict[str, bytes]:
    """All files of a folder but SQLite's, which tidies them when it opens them, and logs."""
    files = (one for one in root.rglob("*") if one.is_file() and not one.name.startswith("catalog.db"))
    return {str(one.relative_to(root)): one.read_bytes() for one in files if not {"dagster", "logs"} & set(one.parts)}


def age(root: Path) -> None:
    """Make all files look years old, as those of a backup are."""
    for one in root.rglob("*"):
        os.utime(one, (1_500_000_000, 1_500_000_000))


def point_at(root: Path, patch: pytest.MonkeyPatch) -> None:
    """Have the commands open the lake in a folder."""
    for name, value in settings_at(root).properties.items():
        patch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)


@pytest.mark.nightly
def test_no_command_of_a_copy_opens_it(
    declare: WriteDefs,
    lake: Catalog,
    kept_waiting: KeptFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: Said,
) -> None:
    """Each ends with one line that names both places and the command that makes it a lake of its own."""
    declare("web", dataset())
    root, copy = kept_waiting.folder, tmp_path / "copy"
    shutil.copytree(root, copy)
    age(copy)
    point_at(copy, monkeypatch)
    before = contents(root), contents(copy)
    for words in (
        ("table", "show"),
        ("run", "web"),
        *deleting("0" * 32, "web_quarantine.documents", "small.packed_web_128", tmp_path / "cold"),
    ):
        status = run_command(list(words))
        said = capfd.readouterr()
        assert status == 2 and str(root) in said.err and str(copy) in said.err, (words, said)
        assert len(said.err.strip().splitlines()) == 1, (words, said)
    state, text = look(capfd)
    assert state == "fault" and f"headrace relocate --from {root} --to {copy}" in text
    assert (contents(root), contents(copy)) == before and not (tmp_path / "cold").exists()
    assert run_command(["relocate", "--from", str(root), "--to", str(copy)]) == 0
    state, text = look(capfd)
    assert state == "ok" and "system.materializations opens" in text
    assert contents(root) == before[0]


def look(capfd: Said) -> tuple[str, str]:
    """What `headrace doctor` says of the lake."""
    capfd.readouterr()
    run_command(["doctor", "--json"])
    (found,) = [one for one in json.loads(capfd.readouterr().out) if one["subject"] == "lake"]
    return found["state"], found["text"]


_WEB = """\
type: headrace.Dataset
attributes:
  name: {name}
  source: {{kind: files, path: {source}/{name}, text_column: body, id_column: id}}
  policy: {{extends: [headrace], set: {{prose.too_few_words: 5}}}}
  {more}
"""
_SMALL = """\
type: headrace.Corpus
attributes:
  name: small
  datasets: [web]
  tokenizer: {train: {vocabulary_size: 400, sample_bytes: 100000}}
  window_tokens: [128]
"""
_TABLE, _PACKED = "web.signals", "small.packed_web_128"


def land(source: Path, increment: int) -> None:
    """Write a file of records."""
    draw = random.Random(increment)
    words = ["water", "wheel", "mill", "race", "river", "stone", "grain", "flour", "sluice", "dam", "level", "gear"]
    records = [
        {"id": f"{increment}-{number}", "body": " ".join(draw.choice(words) for _ in range(40 + number))}
        for number in range(30)
    ]
    source.mkdir(parents=True, exist_ok=True)
    (source / f"{increment}.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in records))


def versions(root: Path) -> dict[str, str]:
    """Data version of every table, from the ledger."""
    ledger = Ledger.fresh(open_catalogue(settings_at(root)))
    tables = tables_of(Lake(ledger.catalogue, ledger, lambda: None, "look"))  # type: ignore[arg-type, return-value]
    places = {table: ledger.places(table).values() for table in tables if not table.startswith("system.")}
    return {table: str(sum((row.data_version for row in rows), DataVersion())) for table, rows in places.items()}


@pytest.mark.nightly
def test_every_command_works_in_a_relocated_copy_alone(
    declare: WriteDefs, lake_env: Path, spark: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Said
) -> None:
    """Versions and a blend's rows are as in the original, whose files stay byte for byte whatever the copy deletes."""
    copy, cold = tmp_path / "copy", tmp_path / "cold"
    declare("web", _WEB.format(name="web", source=tmp_path / "source", more="landing: copy"))
    declare("held", _WEB.format(name="held", source=tmp_path / "source", more="trust: quarantine"))
    declare("small", _SMALL)
    for increment in range(2):
        land(tmp_path / "source" / "web", increment)
        land(tmp_path / "source" / "held", increment + 5)
        assert run_command(["run"]) == 0, capfd.readouterr().err
    assert run_command(["dataset", "archive", "web", "--days", "0", "--to", str(cold)]) == 0
    blender = Blender(open_in_blender(lake_env))
    blend = blender.create(BlendSpec((SourceSpec(_PACKED, max_epochs=0),), seed=3)).blend_id
    rows = [batch.input_ids.tobytes() for batch in blender.open(blend).read(5, 20, max_batch_rows=3)]
    shutil.copytree(lake_env, copy)
    age(copy)
    before, recorded, frozen = contents(lake_env), versions(lake_env), contents(cold)

    point_at(copy, monkeypatch)
    monkeypatch.setenv("DAGSTER_HOME", str(copy / "dagster"))
    assert run_command(["relocate", "--from", str(lake_env), "--to", str(copy)]) == 0
    age(copy)
    assert versions(copy) == recorded
    served = Blender(open_in_blender(copy)).open(blend)
    assert [batch.input_ids.tobytes() for batch in served.read(5, 20, max_batch_rows=3)] == rows
    assert run_command(["run"]) == 0 and versions(copy) == recorded
    assert run_command(["dataset", "verify", "web"]) == 0, capfd.readouterr().err
    capfd.readouterr()
    for words in deleting(windowed(copy), _TABLE, _PACKED, tmp_path / "cold_of_copy"):
        assert run_command(list(words)) == 0, (words, capfd.readouterr().err)
        assert contents(lake_env) == before and contents(cold) == frozen, words
    assert run_command(["run", "web"]) == 0, capfd.readouterr().err
    assert contents(lake_env) == before and contents(cold) == frozen
    point_at(lake_env, monkeypatch)
    assert versions(lake_env) == recorded and run_command(["dataset", "verify", "web"]) == 0


def windowed(root: Path) -> str:
    """A document of the packed table."""
    table = open_catalogue(settings_at(root)).load_table(_PACKED).scan().to_arrow()
    return str(table["segments"][0].as_py()[0]["doc_id"])
