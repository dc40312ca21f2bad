"""One module knows what Dagster does not publish."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import dagster as dg
import pytest

from dagster_project import dagster_core

_ROOT = Path(__file__).parents[2]
_MOST = 39


def private_imports(file: Path) -> list[str]:
    """Modules of Dagster with an underscore that a file imports, or names in a string."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    named = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    named += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    named += [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [name for name in named if re.match(r"dagster(\.\w+)*\._\w[\w.]*$|dagster_shared", name)]


def test_private_parts_of_dagster_are_imported_in_one_module() -> None:
    """A release that moves one is mended there alone."""
    files = [file for folder in ("dagster_project", "headrace_features") for file in (_ROOT / folder).rglob("*.py")]
    found = {file.relative_to(_ROOT).as_posix() for file in files if private_imports(file)}
    assert found == {"dagster_project/dagster_core.py"}


@pytest.mark.nightly
def test_they_become_fewer() -> None:
    """What `dagster` itself has is taken from there, and each name has a user."""
    assert len(dagster_core.__all__) <= _MOST
    assert [name for name in dagster_core.__all__ if hasattr(dg, name)] == []
    texts = "".join(file.read_text() for file in (_ROOT / "dagster_project").rglob("*.py"))
    assert [name for name in dagster_core.__all__ if len(re.findall(rf"\b{name}\b", texts)) < 4] == []
