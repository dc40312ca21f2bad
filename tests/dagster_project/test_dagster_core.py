"""One module knows what Dagster does not publish."""

from __future__ import annotations

import ast
from pathlib import Path

_PACKAGE = Path(__file__).parents[2] / "dagster_project"


def private_imports(file: Path) -> list[str]:
    """Modules of Dagster with an underscore that a file imports."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    named = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    named += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return [name for name in named if name.startswith(("dagster._", "dagster_shared"))]


def test_private_parts_of_dagster_are_imported_in_one_module() -> None:
    """A release that moves one is mended there alone."""
    found = {file.relative_to(_PACKAGE).as_posix() for file in _PACKAGE.rglob("*.py") if private_imports(file)}
    assert found == {"dagster_core.py"}
