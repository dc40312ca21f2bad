"""The documentation is a site: it builds without a warning, and its reference has everything that it is made of."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly  # the documentation's own workflow builds it at every push


@pytest.fixture(scope="module")
def site(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it, in a folder of its own."""
    pytest.importorskip("mkdocs", reason="mkdocs is in the extra docs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def headings(site: Path, page: str) -> set[str]:
    """Anchors of a page's headings."""
    return set(re.findall(r'<h\d id="([^"]+)"', (site / page / "index.html").read_text("utf-8")))


def test_every_step_and_table_is_in_the_reference(site: Path) -> None:
    """The pages are made of what the registry knows, so nothing can be left out or be out of date."""
    from spark_jobs.registry import step_names

    assert set(step_names()) <= headings(site, "reference/steps")
    assert {"documents", "removals", "packed_notes_2048", "materializations"} <= headings(site, "reference/tables")


def test_every_command_is_in_the_reference(site: Path) -> None:
    """Groups and their commands, each with what `--help` prints."""
    from dagster_project.cli import headrace

    named = {
        f"headrace-{name}" for name in headrace.list_commands(headrace.make_context("headrace", ["--debug", "run"]))
    }
    assert named | {"headrace-doc-why", "headrace-blend-create"} <= headings(site, "reference/commands")
    assert "--stall-seconds" in (site / "reference/commands/index.html").read_text("utf-8")


def test_calls_and_classes_are_in_the_reference(site: Path) -> None:
    """The protos and the Python client, with their comments and docstrings."""
    assert {"blendservice", "rowservice", "rowbatch", "onexhausted"} <= headings(site, "reference/protocol")
    client = (site / "reference/client/index.html").read_text("utf-8")
    assert all(f"blender_service.client.BlenderClient.{name}" in client for name in ("read", "create_blend"))


def test_no_page_asks_another_server_for_anything(site: Path) -> None:
    """Fonts and scripts are part of the site, so that it can be read where there is no network."""
    for page in site.rglob("*.html"):
        foreign = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)', page.read_text("utf-8"))
        assert foreign == [], page
