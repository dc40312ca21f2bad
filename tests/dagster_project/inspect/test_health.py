"""Each fault of a machine or a lake is one finding that says how to mend it; nothing is left behind."""

from __future__ import annotations

import importlib.util
import shutil
import socket
from pathlib import Path

import pytest

from dagster_project.cli import run_command
from dagster_project.inspect.lake import health
from headrace.process.memory_limit import Memory
from headrace.tables.settings import LakeSettings, settings_at
from spark_jobs import importing
from spark_jobs.lake.engine import memory
from spark_jobs.lake.session.jars import CORE, locked_jars
from tests.dagster_project.conftest import WriteDefs
from tests.tiers import sampled

Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def roomy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where nothing was set, with room on its disk, whatever other tests left there."""
    monkeypatch.delenv("HEADRACE_ENGINE", raising=False)
    free = shutil.disk_usage(Path.cwd())._replace(free=100 << 30)
    monkeypatch.setattr(health.shutil, "disk_usage", lambda _: free)


def findings(settings: LakeSettings) -> dict[str, tuple[str, str]]:
    """State and text by subject."""
    return {one.subject: (one.state, one.text) for one in health.examine(settings)}


def test_a_lake_that_works_has_no_fault_and_keeps_its_files(tmp_path: Path) -> None:
    """The object that was written to try the store is gone again."""
    found = findings(settings_at(tmp_path))
    assert {subject: text for subject, (state, text) in found.items() if state == "fault"} == {}
    looks = {
        "engine",
        "java",
        "jars",
        "memory",
        "disk",
        "spark",
        "catalogue",
        "store",
        "lake",
        "port 3000",
        "port 7170",
    }
    assert looks == set(found)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("catalog.db")] == []


def test_memory_is_that_of_the_least_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says which file tells it, and what each engine would take of it."""
    group = Memory(2 << 30, 1800 << 20, "/sys/fs/cgroup/memory.max")
    for module in (health, memory):
        monkeypatch.setattr(module, "memory_limit", lambda: group)
    monkeypatch.setattr(memory, "resident_bytes", lambda: 248 << 20)
    for name in ("HEADRACE_SPARK_MEMORY", "HEADRACE_EMBEDDED_MEMORY", "HEADRACE_SPARK_MASTER"):
        monkeypatch.delenv(name, raising=False)
    state, text = findings(settings_at(tmp_path))["memory"]
    assert state == "ok" and text == (
        "1.8 GiB are free, by /sys/fs/cgroup/memory.max; a run on Sail takes up to 1.8, Spark on this machine 1.6; "
        "that is little for Spark, so runs take Sail whatever they read"
    )


def test_each_fault_is_told_with_its_mend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jars that are missing, a master that is down, a taken port, a clock that is off, memory that is no number."""
    monkeypatch.setenv("HEADRACE_JARS", str(tmp_path / "none"))
    monkeypatch.setenv("HEADRACE_SPARK_MEMORY", "much")
    monkeypatch.setattr(health.time, "time", lambda: 1_000_000.0)
    with socket.socket() as taken, socket.socket() as closed:
        taken.bind(("127.0.0.1", 0))
        closed.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        monkeypatch.setitem(health.PORTS, "headrace ui", taken.getsockname()[1])
        monkeypatch.setenv("HEADRACE_SPARK_MASTER", f"spark://127.0.0.1:{closed.getsockname()[1]}")
        taken.listen()
        found = findings(settings_at(tmp_path / "lake"))
        port = f"port {taken.getsockname()[1]}"
    assert found["jars"][0] == "warning" and found["jars"][1].startswith("the first run on Spark will fetch ")
    assert found["memory"] == ("fault", "HEADRACE_SPARK_MEMORY is 'much'; write e.g. 512m or 3g")
    assert found["spark"][0] == "fault" and "correct HEADRACE_SPARK_MASTER" in found["spark"][1]
    assert found["store"][0] == "fault" and "set both by NTP" in found["store"][1]
    assert found[port] == ("warning", "Address already in use; start `headrace ui` with another --port")
    assert found["catalogue"][0] == "ok"


def test_doctor_ends_with_2_where_something_is_at_fault(
    lake_env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The last line names the first fault; the lines above it are those of all looks. Small runs may need no jars."""
    monkeypatch.setenv("HEADRACE_JARS", str(tmp_path / "jars"))
    (tmp_path / "jars").mkdir()
    for jar in locked_jars(CORE):
        (tmp_path / "jars" / jar.file_name).write_text("another jar")
    monkeypatch.setenv("HEADRACE_ENGINE", "spark")
    assert run_command(["doctor"]) == 2
    out, err = capfd.readouterr()
    assert err.startswith("headrace: 1 of 13 are at fault; first jars: ") and err.count("\n") == 1
    assert out.splitlines()[0].startswith("ok       engine ") and out.splitlines()[-1].startswith(
        "ok       declarations"
    )


@sampled()
@pytest.mark.parametrize("words", [["run"], ["run", "--dry-run"], ["plan", "--json"], ["doctor"]])
def test_an_engine_that_does_not_exist_is_refused_at_once(
    lake_env: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """By one line, whether there is anything to compute or not; doctor goes on with its other looks."""
    monkeypatch.setenv("HEADRACE_ENGINE", "sial")
    monkeypatch.setenv("HEADRACE_SPARK_MEMORY", "much")
    assert run_command(words) == 2
    out, err = capfd.readouterr()
    said = "HEADRACE_ENGINE=sial: there is no such engine; did you mean 'sail'?; set spark, sail, auto"
    assert err.splitlines()[-1].endswith(said)
    assert out == "" or (said in out.splitlines()[0] and "declarations" in out.splitlines()[-1])


PAGES = "type: headrace.Dataset\nattributes: {name: pages, source: {kind: files, path: %s}}\n"


@sampled()
@pytest.mark.parametrize("fault", ["absent", "broken", "none"])
def test_doctor_imports_what_sources_need(
    declare: WriteDefs, lake_env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Said, fault: str
) -> None:
    """By the names of their files: a package that is there and does not import is told, with the mend that works."""
    pytest.importorskip("trafilatura")
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "a.html").write_text("<p>A page")
    declare("pages", PAGES % (tmp_path / "pages"))
    importing._importable.clear()
    if fault == "absent":
        find = importlib.util.find_spec
        hidden = "trafilatura"
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, *of: None if name == hidden else find(name, *of))
    if fault == "broken":
        (tmp_path / "trafilatura").mkdir()
        (tmp_path / "trafilatura/__init__.py").write_text("import no_such_package")
        monkeypatch.syspath_prepend(tmp_path)
    assert run_command(["doctor"]) == (0 if fault == "none" else 2)
    importing._importable.clear()
    told = [line.split(maxsplit=2) for line in capfd.readouterr().out.splitlines() if " packages " in line]
    assert (
        told
        == {
            "none": [
                [
                    "ok",
                    "packages",
                    "justext, lxml_html_clean, resiliparse, trafilatura can be imported, as sources need them",
                ]
            ],
            "absent": [["fault", "packages", "trafilatura: it is not installed; run: pip install 'headrace[html]'"]],
            "broken": [
                [
                    "fault",
                    "packages",
                    "trafilatura: it cannot be imported (ModuleNotFoundError: No module named 'no_such_package'); run: "
                    "pip install --force-reinstall --no-deps trafilatura",
                ]
            ],
        }[fault]
    )
