"""What is imported is declared where it is needed, and what is declared is used."""

import ast
import importlib.metadata
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PRODUCT = ("blender_service", "dagster_project", "headrace_features", "spark_jobs", "headrace")
OWN = {"blender_service", "dagster_project", "headrace", "headrace_features", "spark_jobs", "tests"}
CLIENT = ("blender_service.client", "blender_service.torch", "headrace_features.rollouts.writer")
# Extras that product code may import from; the others are for tests and benchmarks.
OPTIONAL = (
    "lineage",
    "rights",
    *("dagster-pyspark", "filters", "ingest", "java", "ocr", "postgres", "privacy", "s3", "telemetry", "torch"),
    "experiments",
    "explore",
    "generate",
    "harness",
    "mcp",
    "names",
    "transformers",
)
NOT_IMPORTED = {
    "dagster-webserver": "a program, which `headrace ui` starts",
}
# No extra has them: GLiNER brings a torch of its own, and whoever asks for frames of the others has installed them.
USERS_OWN = {"datasets", "gliner", "polars"}
LOADED_BY_NAME = "tree-sitter-"


@pytest.fixture(scope="module")
def declared(repository: Path) -> dict[str, set[str]]:
    """Names of distributions by extra; what needs none is under the empty name."""
    project = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]
    lists = {"": project["dependencies"], **project["optional-dependencies"]}
    return {extra: {canonicalize_name(Requirement(line).name) for line in lines} for extra, lines in lists.items()}


def imports(path: Path) -> Iterator[str]:
    """Give the modules that a file imports, anywhere in it; of `from a import b` both `a` and `a.b`."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def distributions(modules: set[str]) -> set[str]:
    """Name the distributions that foreign modules come from.

    Several distributions share the package `google`: there the one counts that has the module's file.
    """
    holders = importlib.metadata.packages_distributions()
    found = set()
    for module in modules:
        top = module.partition(".")[0]
        if top in OWN | USERS_OWN or top in sys.stdlib_module_names:
            continue
        assert top in holders, f"{module} is imported and not installed"
        names = set(holders[top])
        if len(names) > 1:
            stem = module.replace(".", "/")
            names = {name for name in names if _has_module(name, stem)}
        found |= {canonicalize_name(name) for name in names}
    return found


def _has_module(name: str, stem: str) -> bool:
    files = importlib.metadata.files(name) or ()
    return any(str(file) in (f"{stem}.py", f"{stem}/__init__.py") for file in files)


def _imported_by(repository: Path, *folders: str) -> set[str]:
    files = [path for folder in folders for path in (repository / folder).rglob("*.py")]
    assert files
    return distributions({module for path in files for module in imports(path)})


def _client_modules(repository: Path) -> set[str]:
    """Everything that the client's modules import, through modules of this repository."""
    waiting, seen = list(CLIENT), set[str]()
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        stem = repository / module.replace(".", "/")
        for path in (stem.with_suffix(".py"), stem / "__init__.py"):
            if path.exists():
                waiting += imports(path)
    return seen


def test_client_imports_what_an_installation_without_extras_has(
    repository: Path, declared: dict[str, set[str]]
) -> None:
    """The modules of a training job import the base requirements, all of them, and torch; nothing else."""
    assert distributions(_client_modules(repository)) == declared[""] | {"torch"}


def test_product_code_declares_what_it_imports(repository: Path, declared: dict[str, set[str]]) -> None:
    """No import works only because some other package happens to bring the module."""
    known = declared[""].union(declared["platform"], *(declared[extra] for extra in OPTIONAL))
    assert _imported_by(repository, *PRODUCT) - known == set()


@pytest.mark.nightly
def test_tests_declare_what_they_import(repository: Path, declared: dict[str, set[str]]) -> None:
    """All extras together are enough for the tests."""
    assert _imported_by(repository, "tests") - set().union(*declared.values()) == set()


def test_platform_asks_for_what_it_uses(repository: Path, declared: dict[str, set[str]]) -> None:
    """Each requirement of the platform is imported by product code, loaded by name, or has a reason here."""
    unused = declared["platform"] - _imported_by(repository, *PRODUCT)
    assert {name for name in unused if not name.startswith(LOADED_BY_NAME)} == set(NOT_IMPORTED)
