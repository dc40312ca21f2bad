"""The package that users import: all they need, loaded when it is asked for, and the only one that the docs name."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import headrace
from spark_jobs.features import brought

_ROOT = Path(__file__).parents[1]
_TEMPLATES = _ROOT / "dagster_project" / "cli" / "new_project"
_WRITTEN = [
    _ROOT / "README.md",
    *(_ROOT / "docs").rglob("*.md"),
    *(_ROOT / "examples").rglob("*.py"),
    *_TEMPLATES.rglob("*.template"),
]


@pytest.mark.parametrize("name", headrace.__all__)
def test_each_name_is_there(name: str) -> None:
    """And listed for whoever looks; another name is an error of attribute."""
    assert getattr(headrace, name) is getattr(headrace, name) and name in dir(headrace)


def test_editors_see_the_same_names() -> None:
    """What type checkers read, what `import *` gives and what is found at run time are one list."""
    nodes = ast.parse(Path(headrace.__file__).read_text()).body
    checked = next(node for node in nodes if isinstance(node, ast.If))
    lines = [line for line in checked.body if isinstance(line, ast.ImportFrom)]
    imported = [alias.asname or alias.name for line in lines for alias in line.names]
    assert sorted(imported) == sorted(headrace.__all__)
    assert sorted(headrace.__all__) == sorted([*headrace._MODULES, *brought("names")])


def test_another_name_is_an_attribute_error() -> None:
    """As of any module, so that `hasattr` and `from headrace import nothing` work."""
    assert not hasattr(headrace, "Tabel")
    with pytest.raises(ImportError, match="cannot import name 'Tabel'"):
        exec("from headrace import Tabel")


def test_a_training_job_loads_nothing_of_the_platform() -> None:
    """Names are imported one by one: those of a client bring gRPC, protobuf, NumPy and torch."""
    code = (
        "import sys, headrace; few = set(sys.modules); headrace.connect_blender, headrace.BlendDataset;"
        "headrace.RolloutWriter; import json;"
        "print(json.dumps([sorted({'grpc', 'numpy'} & few), sorted({'pyarrow', 'pyiceberg', 'dagster', 'pyspark',"
        " 'pydantic', 'numba'} & set(sys.modules))]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=_ROOT)
    assert done.stdout.strip() == "[[], []]"


@pytest.mark.parametrize("file", _WRITTEN, ids=lambda file: str(file.relative_to(_ROOT)))
def test_documents_import_nothing_else(file: Path) -> None:
    """Examples import from `headrace` alone, and only names that it has."""
    text = file.read_text()
    inner = "spark_jobs|dagster_project|blender_service|headrace_features"
    deep = re.findall(rf"^\s*(?:from|import) (?:{inner})\b.*", text, re.MULTILINE)
    assert deep == []
    for names in re.findall(r"^\s*from headrace import ([^(\n]+|\([^)]*\))", text, re.MULTILINE):
        for name in re.findall(r"\w+", names):
            assert hasattr(headrace, name), f"headrace.{name}"
    for name in re.findall(r"type: headrace\.(\w+)", text):
        assert name in headrace.__all__
