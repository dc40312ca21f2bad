"""A project as a new user makes it: from the wheel, where no checkout is, by what its own README and workflow say."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from spark_jobs.lake.session.jars import jar_directory

# What GitHub puts in place of `${{ .. }}` where a repository has no secrets and nothing has asked for the job.
_FILLED = {"github.event.number": "7", "github.token": "a-token"}
# As typed, but for a port that is free and an end: until it answers, then Ctrl-C.
_UI = """\
headrace ui --port {port} &
ui=$!
until python -c 'import urllib.request as r; r.urlopen("http://127.0.0.1:{port}/server_info")' 2>/dev/null; do
  kill -0 $ui
  sleep 1
done
kill -TERM $ui
wait $ui
"""
_GH = '#!/bin/sh\necho "gh $@"\ntest -s plan.md\n'


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell in which nothing of headrace is installed; jars come from a mirror, by Ivy."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYICEBERG_", "HEADRACE_", "DAGSTER_", "VIRTUAL_ENV"))
    }
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="mirror"/><resolvers><filesystem name="mirror">'
        f'<artifact pattern="{jar_directory()}/[artifact]-[revision].[ext]"/></filesystem></resolvers></ivysettings>'
    )
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "python3").symlink_to(getattr(sys, "_base_executable", sys.executable))
    (programs / "gh").write_text(_GH)
    (programs / "gh").chmod(0o755)
    path = [one for one in kept["PATH"].split(":") if not Path(one).is_relative_to(sys.prefix)]
    return {**kept, "PATH": ":".join([str(programs), *path]), "HEADRACE_IVY_SETTINGS": str(settings)}


@pytest.fixture
def project(wheel: Path, environment: dict[str, str], tmp_path: Path) -> Path:
    """What `headrace init` of the installed wheel makes.

    The wheel is installed by pip without its dependencies, which are those of this environment; the project's own
    environment, which its README makes, gets them from the package index.
    """
    venv.create(tmp_path / "first", with_pip=True)
    python = tmp_path / "first" / "bin" / "python"
    answers = [str(python), "-m", "pip", "install", "--quiet", "--dry-run", "hatchling"]
    if subprocess.run(answers, env=environment, capture_output=True, check=False).returncode != 0:
        pytest.skip("no package index answers")
    subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", "--no-deps", str(wheel)], env=environment, check=True
    )
    [site] = (tmp_path / "first").glob("lib/python*/site-packages")
    (site / "others.pth").write_text("\n".join(one for one in sys.path if one.endswith("site-packages")))
    said = shell("first/bin/headrace init pond", tmp_path, environment)
    assert f"takes headrace from {wheel.as_uri()}; for other machines name an address there." in said
    return tmp_path / "pond"


def shell(script: str, folder: Path, environment: dict[str, str]) -> str:
    """What a script of bash prints, which ends at the first command that fails."""
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", f"exec 2>&1\n{script}"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


@pytest.mark.nightly
def test_a_new_project_does_what_its_readme_and_its_workflow_say(
    project: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    """Every command of both, in order and as typed; the workflow in a fresh copy, as a runner checks it out."""
    shutil.copytree(project, tmp_path / "checkout")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        ui = _UI.format(port=free.getsockname()[1])
    commands = re.findall(r"^    (\S.*)$", (project / "README.md").read_text(), flags=re.MULTILINE)
    assert len(commands) == 6
    said = shell(
        "\n".join(ui if command.startswith("headrace ui ") else command for command in commands), project, environment
    )
    assert f"32 tables in {project}/pond/defs" in said and "2 passed" in said
    assert "starting Sail" in said and "starting Spark" not in said
    assert "notes.texts                                     9 rows" in said
    assert "32 tables: 32 computed, 0 unchanged. Look: headrace ui" in said
    assert "Dagster on http://127.0.0.1:" in said

    there = {**environment, "PATH": f"{project}/.venv/bin:{environment['PATH']}"}
    workflow = YAML(typ="safe").load((tmp_path / "checkout" / ".github" / "workflows" / "rerun.yml").read_text())
    said = ""
    for job in workflow["jobs"].values():
        for step in (step for step in job["steps"] if "run" in step):
            own = {name: filled(value) for name, value in {**workflow["env"], **step.get("env", {})}.items()}
            said = shell(filled(step["run"]), tmp_path / "checkout", {**there, **own})
            assert not step["run"].startswith("gh ") or said.startswith("gh pr comment 7 --body-file plan.md")
    assert said.count('"status": "computed"') == 32 and "starting Spark" not in said


def filled(text: Any) -> str:
    """A text of a workflow with its expressions replaced; a secret that is not set is empty, as on GitHub."""
    return re.sub(r"\$\{\{ *(.*?) *\}\}", lambda found: _FILLED.get(found[1], ""), str(text))
