"""Benchmarks still run: each has a small size, a page that quotes it, and helpers that something imports."""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
FOLDER = REPOSITORY / "benchmarks"
BENCHMARKS = sorted(FOLDER.glob("bench_*.py"))
HELPERS = sorted(set(FOLDER.glob("*.py")) - set(BENCHMARKS))
every_benchmark = pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
_IMPORT = re.compile(
    r"from ((?:headrace|headrace_features|spark_jobs|dagster_project|blender_service)[.\w]*) import ([\w, ]+)"
)
# A row has a figure; what is left out, and the name of a part, have none that counts.
_ROW = re.compile(r"^(?!left out|made texts|-- |== ).*\d", re.MULTILINE)


@functools.cache
def _nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text("utf-8"))))


@every_benchmark
def test_every_benchmark_reads_its_arguments_where_small_is_one(path: Path) -> None:
    """`command.parser` adds `--small`, and `command.read` takes what is small."""
    called = {ast.unparse(node.func) for node in _nodes(path) if isinstance(node, ast.Call)}
    assert {"command.parser", "command.read"} <= called


@every_benchmark
def test_every_benchmark_is_quoted_by_a_page(path: Path) -> None:
    """What no page quotes goes: its figures are nobody's claim."""
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]
    assert any(re.search(rf"\b{path.stem}\b", page.read_text("utf-8")) for page in pages)


@pytest.mark.parametrize("path", HELPERS, ids=lambda path: path.stem)
def test_every_helper_serves_a_benchmark(path: Path) -> None:
    """It is imported, or run as a program of its own under its name."""
    imported: set[object] = set()
    for node in (node for other in FOLDER.glob("*.py") if other != path for node in _nodes(other)):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module)
        elif isinstance(node, ast.Constant):
            imported.add(node.value)
    assert {path.stem, path.name} & imported


@pytest.mark.parametrize("path", [*BENCHMARKS, *HELPERS], ids=lambda path: path.stem)
def test_programs_in_strings_import_what_is_there(path: Path) -> None:
    """No linter looks into `python -c`: a module that moved would be missed only when the benchmark is run."""
    for node in _nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for module, names in _IMPORT.findall(node.value):
                there = importlib.import_module(module)
                for name in re.findall(r"\w+", names):
                    assert hasattr(there, name) or importlib.util.find_spec(f"{module}.{name}"), (
                        f"{module} has no {name}"
                    )


@pytest.mark.nightly
@every_benchmark
def test_every_benchmark_runs_on_little_data(path: Path) -> None:
    """It ends well, says at least one figure, and `--help` names `--small`."""
    environment = {name: value for name, value in os.environ.items() if name != "HEADRACE_ENGINE"}
    for option in ("--help", "--small"):
        command = [sys.executable, str(path), option]
        done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        if option == "--help":
            assert "--small" in done.stdout
        elif not _ROW.search(done.stdout):
            assert "left out: " in done.stdout
            pytest.skip(done.stdout)
