"""A run with nothing to do: from which note it says so, and what makes it look again."""

from __future__ import annotations

import importlib
import os
import py_compile
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dagster_project import unchanged_run
from dagster_project.unchanged_run import Idle, Reads, catalogue_state, noted_texts

TEXTS = ["unchanged tables: notes 10", "10 tables: 0 computed, 10 unchanged. Look: headrace ui"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a catalogue of one table, a declaration, texts and a folder whose names count; older than a run."""
    for name in ("warehouse/logs", "texts/more", "modules"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("defs.yaml", "texts/one.txt", "texts/more/two.txt", "modules/three.py"):
        (tmp_path / name).write_text(name)
    with sqlite3.connect(tmp_path / "warehouse" / "catalog.db") as database:
        database.execute("CREATE TABLE iceberg_tables (name, metadata_location)")
        database.execute("CREATE TABLE iceberg_namespace_properties (name, value)")
        database.execute("INSERT INTO iceberg_tables VALUES ('notes.documents', 'v1')")
    database.close()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(unchanged_run, "_TICK_NS", -60_000_000_000)  # what was just written counts as old
    return tmp_path


def read_all(project: Path) -> None:
    """What a process does till its plan is there."""
    (project / "defs.yaml").read_text()
    os.listdir(project / "modules")
    for folder in (project / "texts", project / "texts" / "more"):
        list(os.scandir(folder))
    (project / "warehouse" / "logs" / "of_the_lake.txt").write_text("is not looked at")


def noted(project: Path, *words: str, also: Callable[[], object] = lambda: None, assets: Any = ()) -> list[str] | None:
    """What the next run says after one that read all and something else, and found nothing to do."""
    line = ["run", *words]
    reads = Reads.begin(line)
    assert reads is not None
    read_all(project)
    also()
    reads.cover(assets)
    reads.end()
    reads.idle = Idle((), (), catalogue_state())
    reads.write(TEXTS)
    return noted_texts(line)


def append(path: Path) -> None:
    """Change a file, its length kept and its time put back, as archives and copies do."""
    before = path.stat()
    path.write_text(path.read_text()[:-1] + "!")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def publish(project: Path) -> None:
    """Have the table of the catalogue name another state."""
    with sqlite3.connect(project / "warehouse" / "catalog.db") as database:
        database.execute("UPDATE iceberg_tables SET metadata_location = 'v2'")
    database.close()


@pytest.mark.parametrize(
    "change",
    [
        lambda project: append(project / "defs.yaml"),
        lambda project: (project / "defs.yaml").unlink(),
        lambda project: append(project / "texts" / "one.txt"),
        lambda project: append(project / "texts" / "more" / "two.txt"),
        lambda project: (project / "texts" / "more" / "new.txt").write_text("new"),
        lambda project: (project / "texts" / "one.txt").unlink(),
        lambda project: (project / "texts" / "one.txt").rename(project / "texts" / "other.txt"),
        lambda project: (project / "modules" / "new.py").write_text("new"),
        lambda project: (project / "pyproject.toml").write_text("[tool.dg.project]"),
        lambda project: (project / ".pyiceberg.yaml").write_text("catalog: {}"),
        publish,
        lambda project: (project / "warehouse" / "catalog.db").unlink(),
        lambda project: (project / "warehouse" / "logs" / "unchanged.json").write_text("{"),
    ],
)
def test_a_note_counts_until_something_that_was_read_changes(project: Path, change: Callable[[Path], object]) -> None:
    """The note is there, and stays so while nothing changes; any change has the next run look for itself."""
    assert noted(project) == TEXTS
    time.sleep(0.02)
    assert noted_texts(["run"]) == TEXTS
    change(project)
    assert noted_texts(["run"]) is None


def test_a_note_is_of_one_command_line_and_environment(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another selection, setting, folder or hour has no note; what only a shell sets does not count."""
    assert noted(project, "notes") == TEXTS
    assert noted_texts(["run"]) is None and noted_texts(["run", "notes", "--json"]) is None
    assert noted_texts(["plan", "notes"]) is None and noted_texts(["run", "notes", "--dry-run"]) is None
    monkeypatch.setenv("SHLVL", "7")
    assert noted_texts(["run", "notes"]) == TEXTS
    with monkeypatch.context() as context:
        context.setenv("HEADRACE_ENGINE", "elsewhere")
        assert noted_texts(["run", "notes"]) is None
    with monkeypatch.context() as context:
        context.setattr(time, "time", lambda: time.time_ns() / 1e9 + 3700)
        assert noted_texts(["run", "notes"]) is None
    with monkeypatch.context() as context:
        context.chdir(project / "texts")
        assert noted_texts(["run", "notes"]) is None


def test_only_plain_runs_are_noted() -> None:
    """Whatever has an option is run in full."""
    for words in ([], ["plan"], ["run", "--watch"], ["run", "--last"], ["--debug", "run"], ["run", "--partition", "1"]):
        assert Reads.begin(words) is None


def asset(discovers: bool = True, partitions: object = None, **source: object) -> Any:
    """What `cover` asks of an asset."""
    step = SimpleNamespace(discover=discovers or None)
    config = SimpleNamespace(source=SimpleNamespace(**{"kind": "files", "repositories": None, **source}))
    return SimpleNamespace(partitions_def=partitions, step=step, config=config)


@pytest.mark.parametrize(
    "other",
    [
        asset(kind="api"),
        asset(kind="git"),
        asset(path="s3://bucket/texts"),
        asset(path="texts", repositories="facts.jsonl"),
        asset(path="texts", partitions="daily"),
        asset(discovers=False, partitions="daily"),
    ],
)
def test_what_cannot_be_seen_from_files_has_no_note(project: Path, other: Any) -> None:
    """Sources that are asked, files that are opened elsewhere than in Python, partitions."""
    assert noted(project, assets=[asset(path=str(project / "texts")), asset(discovers=False)]) == TEXTS
    assert noted(project, "notes", assets=[other]) is None


def test_a_single_file_of_a_source_is_looked_at(project: Path) -> None:
    """Nothing lists it, so it is named by the source."""
    single = project / "records.jsonl"
    single.write_text("{}")
    assert noted(project, assets=[asset(path=str(single))]) == TEXTS
    append(single)
    assert noted_texts(["run"]) is None


def test_a_module_counts_though_only_its_compiled_form_is_opened(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python asks for the time of the source and opens the cache; the cache may be written while the run lasts."""
    module = project / "modules" / "three.py"
    module.write_text("THREE = 3")
    py_compile.compile(str(module))
    monkeypatch.syspath_prepend(str(project / "modules"))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)

    def load() -> None:
        sys.modules.pop("three", None)
        assert importlib.import_module("three").THREE == 3

    assert noted(project, also=load) == TEXTS
    append(module)
    assert noted_texts(["run"]) is None


def test_a_process_that_asked_others_leaves_no_note(project: Path) -> None:
    """A program, a server, a name: their answers may change. Python itself asks two programs about the machine."""

    def connect() -> None:
        with socket.socket() as asking, pytest.raises(OSError, match="refused"):
            asking.connect(("127.0.0.1", 1))

    assert noted(project, also=lambda: subprocess.run(["uname"], check=True, capture_output=True)) == TEXTS
    assert noted(project, "a", also=connect) is None
    assert noted(project, "b", also=lambda: subprocess.run([sys.executable, "-V"], check=True)) is None


def test_what_changes_while_a_run_lasts_leaves_no_note(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that changed since the process began may have been read before; so may the catalogue."""
    monkeypatch.setattr(unchanged_run, "_TICK_NS", 0)
    time.sleep(0.02)
    assert noted(project) == TEXTS
    assert noted(project, "a", also=lambda: append(project / "texts" / "one.txt")) is None
    time.sleep(0.02)
    reads = Reads.begin(["run", "b"])
    assert reads is not None
    reads.idle = Idle((), (), catalogue_state())
    publish(project)
    reads.write(TEXTS)
    assert noted_texts(["run", "b"]) is None


def headrace(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command and give what it prints; on standard error what it imports as well."""
    command = [sys.executable, "-X", "importtime", "-m", "dagster_project.cli", *words]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)


@pytest.mark.nightly
def test_a_second_run_loads_nothing(tmp_path: Path) -> None:
    """After one that computed, it says what there is without Dagster, PyIceberg or an engine; a new text is taken."""
    headrace(tmp_path, "init", "mine")
    project = tmp_path / "mine"
    first = headrace(project, "run", "notes")
    assert " computed, 0 unchanged" in first.stdout
    second = headrace(project, "run", "notes")
    assert "0 computed" in second.stdout and "unchanged tables: notes " in second.stdout
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in second.stderr.splitlines()}
    assert imported.isdisjoint({"dagster", "pyiceberg", "pyarrow", "numpy", "pydantic", "sqlalchemy", "pyspark"})
    headrace(project, "run", "notes.documents")  # another selection takes the place of the note
    assert headrace(project, "run", "notes").stdout == second.stdout
    with (project / "data" / "notes.jsonl").open("a") as notes:
        notes.write('{"name": "another", "body": "The mill at the river was built by two brothers in a dry year."}\n')
    assert "+" in headrace(project, "run", "notes").stdout
