"""`headrace init` makes a project that loads and runs outside of the checkout, and changes nothing that is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

import pytest

from dagster_project.cli import run_command
from dagster_project.deletion.retention import TASKS

Said = pytest.CaptureFixture[str]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Said) -> Path:
    """A fresh project."""
    monkeypatch.chdir(tmp_path)
    assert run_command(["init", "mill"]) == 0
    assert "  headrace run" in capfd.readouterr().out.splitlines()
    return tmp_path / "mill"


def test_the_project_is_whole(project: Path) -> None:
    """Every file of the templates is there under its name, and no placeholder is left in any."""
    files = {str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()}
    assert {"pyproject.toml", ".gitignore", ".github/workflows/rerun.yml", "mill/defs/notes/defs.yaml"} <= files
    folders = (Path(__file__).parents[2] / "dagster_project/cli/begin" / one for one in ("new_project", "recipes/own"))
    assert len(files) == sum(len(list(folder.rglob("*.template"))) for folder in folders)
    assert not [path for path in files if "PACKAGE" in path or "PACKAGE" in (project / path).read_text()]


@pytest.mark.parametrize(
    ("recorded", "origin"),
    [
        (None, ""),
        ({"url": "file:///srv/headrace-0.1.0-py3-none-any.whl"}, " @ file:///srv/headrace-0.1.0-py3-none-any.whl"),
        (
            {"url": "https://host/headrace", "vcs_info": {"vcs": "git", "commit_id": "5f1c"}},
            " @ git+https://host/headrace@5f1c",
        ),
    ],
    ids=["index", "wheel", "git"],
)
def test_it_takes_headrace_from_where_this_one_is_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: dict[str, Any] | None, origin: str
) -> None:
    """As pip recorded it when it installed headrace (PEP 610); only an index needs no address."""
    folder = tmp_path / "site" / "headrace-0.1.0.dist-info"
    folder.mkdir(parents=True)
    if recorded is not None:
        (folder / "direct_url.json").write_text(json.dumps(recorded))
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: PathDistribution(folder))
    assert run_command(["init", "mill", "--at", str(tmp_path / "mill")]) == 0
    project = tomllib.loads((tmp_path / "mill" / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == [f"headrace[java,platform]{origin}"]
    # pip finds no solution for an address and the name alone once headrace is installed.
    assert project["optional-dependencies"]["lake"] == [f"headrace[postgres,s3]{origin}"]


@pytest.mark.nightly
def test_its_declarations_load(project: Path, tmp_path: Path) -> None:
    """By the module that its workspace.yaml names."""
    environment = os.environ | {"PYTHONPATH": str(project), "DAGSTER_HOME": str(tmp_path)}
    program = (
        "from mill.definitions import definitions; print(len(list(definitions.load_fn().resolve_all_asset_specs())))"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) == 32 + len(TASKS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["Mill"], "Mill: no name of a Python package; use small letters, digits and underscores"),
        (["tests"], "tests: a package of this name is there already; choose another"),
        (["mill"], "mill: is there already and not empty; choose another name, or --at another folder"),
    ],
)
def test_what_is_there_stays_as_it_is(project: Path, capfd: Said, arguments: list[str], said: str) -> None:
    """One line, and status 2."""
    (project / "README.md").write_text("mine")
    assert run_command(["init", *arguments]) == 2
    assert said in capfd.readouterr().err and (project / "README.md").read_text() == "mine"


def test_outside_of_a_project_headrace_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Said) -> None:
    """Where headrace is installed as a package, there is no checkout to fall back to."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dagster_project.project.loading._SHIPPED", tmp_path / "site-packages" / "dagster_project")
    assert run_command(["dataset", "show"]) == 2
    assert "no project is here; make one with `headrace init NAME`, or set HEADRACE_PROJECT" in capfd.readouterr().err
    monkeypatch.setenv("HEADRACE_PROJECT", str(tmp_path))
    assert run_command(["dataset", "show"]) == 2
    assert "has no pyproject.toml with [tool.dg.project]; correct it" in capfd.readouterr().err
    (tmp_path / "pyproject.toml").write_text("[tool.dg.project\n")
    assert run_command(["dataset", "show"]) == 2
    assert capfd.readouterr().err.endswith("; mend the file\n")


@pytest.mark.nightly
def test_a_source_of_ones_own_comes_with_its_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`--source`: the test is green as written, and the dataset's documents are what the source opens."""
    monkeypatch.chdir(tmp_path)
    assert run_command(["init", "mill", "--source"]) == 0
    monkeypatch.chdir(tmp_path / "mill")
    environment = os.environ | {"HEADRACE_ENGINE": "sail"}
    tested = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_sources.py"]
    subprocess.run(tested, env=environment, check=True, capture_output=True, text=True)
    command = "from dagster_project.command import main; main()"
    for words in (["run", "letters.documents"], ["table", "show", "letters.documents", "--json", "--rows", "5"]):
        done = subprocess.run(
            [sys.executable, "-c", command, *words], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert {row["path"] for row in json.loads(done.stdout)} == {"to_the_miller.txt", "to_the_smith.txt"}
