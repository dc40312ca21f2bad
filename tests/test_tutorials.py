"""The tutorials are true: their files are written, their commands run, and they print what the pages show."""

from __future__ import annotations

import doctest
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_readme import Checkout

_TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
_PAGES = re.findall(r"\((\S+\.md)\)", (_TUTORIALS / "README.md").read_text())
_BLOCK = re.compile(r'^```(\w+)(?: title="([^"\n]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_END = "=== end of a command ==="
_SECONDS = 1800
_PROGRESS = re.compile(
    r"^(loading the project|engine: |starting (?:Spark|Sail)|still computing|server \S+: failed to connect).*\n",
    re.MULTILINE,
)


def test_the_tutorials_are_listed_in_the_order_of_the_site() -> None:
    """Each page goes on where the one before ends, so the list is the order in which they are run."""
    navigation = re.findall(r"- tutorials/(\S+)", (_TUTORIALS.parents[1] / "mkdocs.yml").read_text())
    assert navigation == ["README.md", *_PAGES]
    assert sorted(navigation) == sorted(page.name for page in _TUTORIALS.glob("*.md"))


@pytest.mark.nightly
def test_every_command_of_the_tutorials_prints_what_they_show(tmp_path: Path) -> None:
    """All pages from top to bottom as one shell session; `...` stands for anything, white space for any other."""
    checkout = Checkout(tmp_path)
    type_commands("".join((_TUTORIALS / page).read_text() for page in _PAGES), checkout.root, checkout.environment)


def type_commands(page: str, folder: Path, environment: dict[str, str]) -> None:
    """Type the commands of a page in a folder, and compare what they print with what it shows."""
    script, expected = as_script(page)
    path = f"{Path(sys.executable).parent}:{environment['PATH']}"
    for port in ("7170", "8117"):  # others on this machine may have them
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            script = script.replace(port, str(free.getsockname()[1]))
            expected = [(one, shown.replace(f":{port}", ":...")) for one, shown in expected]
    done = subprocess.run(
        ["bash"],
        input=script,
        cwd=folder,
        env={**environment, "PATH": path, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    said = _PROGRESS.sub("", done.stdout).split(f"{_END}\n")
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for (command, shown), printed in zip(expected, said, strict=False):
        told = f"$ {command}\n{printed}"
        assert doctest.OutputChecker().check_output(f"{shown}\n", printed, flags), f"{told}\nthe page shows:\n{shown}"
    assert done.returncode == 0 and len(said) == len(expected) + 1, said[-1]


def as_script(text: str) -> tuple[str, list[tuple[str, str]]]:
    """A page as a shell script that stops at the first error, and each of its commands with what is shown below it."""
    lines = ["exec 2>&1", "set -e", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    expected = []
    for language, title, body in _BLOCK.findall(text):
        if title:
            lines += [f"mkdir -p {shlex.quote(str(Path(title).parent))}", f"cat > {shlex.quote(title)} <<'END_OF_FILE'"]
            lines += [f"{body}END_OF_FILE"]
        if language == "console":
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, _, shown = part.partition("\n")
                expected.append((command, shown.strip()))
                lines += [command, f"echo '{_END}'"]
    return "\n".join(lines) + "\n", expected
