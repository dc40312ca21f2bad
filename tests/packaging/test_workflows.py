"""Workflows, issue templates and hooks say what is there: the programs that read them run elsewhere."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
from ruamel.yaml import YAML

from dagster_project.cli import headrace

_ROOT = Path(__file__).parents[2]
_WORKFLOWS = sorted((_ROOT / ".github" / "workflows").glob("*.yml"))
_NEW_PROJECT = _ROOT / "dagster_project/cli/begin/new_project"
_RECIPES = _ROOT / "dagster_project/cli/begin/recipes"
_TEMPLATE = _NEW_PROJECT / "workflows/rerun.yml.template"

_VENV = "python3 -m venv .venv && . .venv/bin/activate"


def _read(file: Path) -> Any:
    return YAML(typ="safe").load(file.read_text("utf-8"))


def _targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (_ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def _require_known(command: str) -> None:
    """Refuse a command that is not there: targets of the Makefile, commands of headrace with their options, gh."""
    words = [word for word in shlex.split(command.partition(">")[0], comments=True) if "${{" not in word]
    program = words[0].rpartition("/")[2]
    if program == "make":
        assert words[1:] and set(words[1:]) <= _targets(), command
    elif program == "headrace":
        context = click.Context(headrace)
        found = headrace.get_command(context, words[1])
        assert found is not None
        found.make_context(words[1], words[2:], parent=context)
    elif program == "pip" and "-e" in words:
        project = tomllib.loads((_NEW_PROJECT / "pyproject.toml.template").read_text("utf-8"))["project"]
        extras = re.fullmatch(r"\.\[(.+)\]", words[-1])
        assert extras and set(extras[1].split(",")) <= set(project["optional-dependencies"]), command
    else:
        assert program in ("cd", "gh", "pip", "pytest") or command == _VENV, command


@pytest.mark.parametrize(
    "file",
    [*(_RECIPES / name / "README.md.template" for name in ("own", "known")), _ROOT / "docs/start/projects.md"],
    ids=["own", "known", "docs"],
)
def test_the_commands_that_begin_a_project_are_there(file: Path) -> None:
    """Those of the README that `headrace init` writes, and of the page; a nightly test runs the README's as typed."""
    text = re.sub(r"^```.*?^```", "", file.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    commands = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    assert _VENV in commands and not any("'headrace[" in line and " @ " not in line for line in commands)
    for command in commands:
        for one in [command] if command == _VENV else command.split(" && "):
            _require_known(one)


@pytest.mark.parametrize("file", [*_WORKFLOWS, _TEMPLATE], ids=lambda file: file.stem)
def test_the_commands_of_a_workflow_are_there_and_its_token_may_only_read(file: Path) -> None:
    """Actions have a major version, jobs have a limit; the token reads, and may comment where a plan is told."""
    workflow = _read(file)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] > 0
        for step in job["steps"]:
            if "run" in step:
                _require_known(step["run"])
            else:
                assert re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"]), step["uses"]
            if step.get("uses", "").startswith("actions/cache@"):
                assert "hashFiles('requirements.lock')" in step["with"]["key"]
        comments = any("gh pr comment" in step.get("run", "") for step in job["steps"])
        assert (job.get("permissions", {}).get("pull-requests") == "write") == comments


def test_every_workflow_is_there() -> None:
    """On every change, every night, for the site; and a lake's plan and rerun."""
    assert [file.stem for file in _WORKFLOWS] == ["docs", "nightly", "plan", "rerun", "test"]
    assert "schedule" in _read(_ROOT / ".github/workflows/nightly.yml")["on"]


def test_issue_templates_are_forms() -> None:
    """Each has a name, a description, and fields with labels."""
    for file in (_ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = _read(file)
        assert form["name"] and form["description"]
        assert all("label" in part["attributes"] for part in form["body"] if part["type"] != "markdown"), file


def test_the_hook_before_a_commit_is_make_lint() -> None:
    """No second list of programs or settings that could differ from the Makefile's."""
    [repository] = _read(_ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in repository["hooks"]] == ["make lint"]
