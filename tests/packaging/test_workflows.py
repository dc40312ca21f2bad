"""Workflows, issue templates and hooks say what is there: the programs that read them run elsewhere."""

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

_ROOT = Path(__file__).parents[2]
_WORKFLOWS = sorted((_ROOT / ".github" / "workflows").glob("*.yml"))


def _read(file: Path) -> Any:
    return YAML(typ="safe").load(file.read_text("utf-8"))


def _targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (_ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


@pytest.mark.parametrize("file", _WORKFLOWS, ids=lambda file: file.stem)
def test_a_workflow_runs_targets_of_the_makefile_and_may_only_read(file: Path) -> None:
    """Commands are `make TARGET`, actions have a major version, the token reads unless a job says more."""
    workflow = _read(file)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] > 0
        for step in job["steps"]:
            if "run" in step:
                word, target = step["run"].split()
                assert word == "make" and target in _targets(), step["run"]
            else:
                assert re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"]), step["uses"]
            if step.get("uses", "").startswith("actions/cache@"):
                assert "hashFiles('requirements.lock')" in step["with"]["key"]


def test_every_workflow_is_there() -> None:
    """One on every change, one every night, one for the site."""
    assert [file.stem for file in _WORKFLOWS] == ["docs", "nightly", "test"]
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
