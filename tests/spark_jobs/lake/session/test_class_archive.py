"""The archive of classes that local sessions start from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.tables.settings import settings_at
from spark_jobs.lake.session.jars import CORE, archive_options, archive_path, jar_paths
from spark_jobs.lake.session.session import spark_properties

SESSION = """
import sys
from pathlib import Path
from spark_jobs.lake.session.session import start_session
from headrace.tables.settings import settings_at

session = start_session(settings_at(Path(sys.argv[1])), master="local[1]")
session.sql("CREATE NAMESPACE lake.a")
mapped = Path(f"/proc/{session.sparkContext._gateway.proc.pid}/maps").read_text()
print(any(line.endswith(".jsa") and "headrace" in line for line in mapped.splitlines()), session.range(5).count())
"""


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the jars and no archive."""
    folder = tmp_path / "headrace" / "jars"
    folder.mkdir(parents=True)
    for path in jar_paths():
        (folder / path.name).symlink_to(path)
    monkeypatch.setenv("HEADRACE_JARS", str(folder))
    return folder


def test_a_session_uses_the_archive_that_is_there(jars: Path, tmp_path: Path) -> None:
    """With it the jars are on the JVM's own class path; without, or on a cluster, all is as ever."""
    settings = settings_at(tmp_path)
    before = spark_properties(settings)
    assert archive_options(CORE) == "" and "spark.driver.extraClassPath" not in before
    archive_path().touch()
    now = spark_properties(settings)
    assert f"-XX:SharedArchiveFile={archive_path()}" in now["spark.driver.extraJavaOptions"]
    assert now["spark.driver.extraClassPath"].split(":") == before["spark.jars"].split(",")
    assert "spark.jars" not in now
    assert spark_properties(settings, "spark://master:7077")["spark.jars"] == before["spark.jars"]


def test_an_archive_is_for_the_jars_that_it_was_made_of(jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java would refuse it for another class path."""
    mine = archive_path()
    monkeypatch.delenv("HEADRACE_JARS")
    assert archive_path().name != mine.name


@pytest.mark.nightly
def test_the_archive_that_is_made_is_mapped(jars: Path, tmp_path: Path) -> None:
    """One that is no archive is left aside without a word."""

    def run(*arguments: str) -> str:
        done = subprocess.run([sys.executable, *arguments], env=os.environ, capture_output=True, text=True, check=True)
        return done.stdout

    archive_path().write_bytes(b"no archive")
    assert run("-c", SESSION, str(tmp_path / "one")) == "False 5\n"
    run("-m", "spark_jobs.lake.session.class_archive")
    assert [path.name for path in jars.iterdir() if path.suffix == ".jsa"] == [archive_path().name]
    assert run("-c", SESSION, str(tmp_path / "two")) == "True 5\n"
