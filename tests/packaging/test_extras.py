"""An extra installs what its code imports: by what packages say of themselves, and by environments made with pip."""

import ast
import importlib.metadata
import os
import re
import subprocess
import tomllib
import venv
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from spark_jobs.features import features
from spark_jobs.sources.reading.built_in import PARTS, READERS
from tests.packaging.test_requirements import OPTIONAL, PRODUCT, distributions, imports
from tests.tiers import sampled

ROOT = Path(__file__).resolve().parents[2]
EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]
OF_READERS = {name: of for name, of in {**READERS, **PARTS}.items() if of.function.startswith("headrace_features.")}
# Extras that code of headrace imports from, but for those that bring torch or a Java, which are gigabytes.
INSTALLED = sorted(
    {*OPTIONAL, *(of.extra for of in OF_READERS.values()), "encodings"} - {"torch", "transformers", "java"}
)
PIPS = ("pip==23.2.1", "pip")  # what Python 3.11 brings, which takes names of extras as they are written; the newest


def named(*extras: str) -> set[str]:
    """The distributions that extras name, with those of every installation of the platform."""
    base = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    lines = [*base, *EXTRAS["platform"], *(line for extra in extras for line in EXTRAS[extra])]
    return {canonicalize_name(Requirement(line).name) for line in lines}


def imported_first(module: str) -> tuple[set[str], set[str]]:
    """Modules that come with the import of a feature's module, and the files of features among them."""
    waiting, seen, foreign = [module], set[str](), set[str]()
    while waiting:
        name = waiting.pop()
        if not name.startswith("headrace_features."):
            foreign.add(name)
            continue
        stem = ROOT / name.replace(".", "/")
        path = next((each for each in (stem.with_suffix(".py"), stem / "__init__.py") if each.exists()), None)
        if path is None or str(path) in seen:
            continue
        seen.add(str(path))
        for node in _run_at_import(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                waiting += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                waiting += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return foreign, seen


def _run_at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """Statements outside of functions, and of what is for type checkers alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from _run_at_import(node)


@sampled(3)
@pytest.mark.parametrize("reader", OF_READERS)
def test_a_reader_imports_what_its_extra_brings(reader: str) -> None:
    """All that its module imports; what it imports later is of an extra of its feature too."""
    of = OF_READERS[reader]
    foreign, files = imported_first(of.function.partition(":")[0])
    assert distributions(foreign) <= named(of.extra), reader
    later = {name for path in files for name in imports(Path(path))}
    assert distributions(later) <= named("ingest", "ocr"), reader


@sampled(3)
@pytest.mark.parametrize("feature", features())
def test_a_feature_imports_what_its_extras_bring(feature: str) -> None:
    """Wherever in its folder; `headrace features` names these extras."""
    files = [*(ROOT / "headrace_features" / feature).rglob("*.py")]
    assert distributions({name for path in files for name in imports(path)}) <= named(*features()[feature].extras)


@sampled(6)
@pytest.mark.parametrize("extra", [*INSTALLED, "platform"])
def test_no_package_of_an_extra_needs_a_newer_pip(extra: str) -> None:
    """Before 23.3 pip finds `lxml[html_clean]` only where lxml writes it so too; then the extra names what that brings.

    Justext asks for it, lxml calls it `html-clean`, and without lxml-html-clean trafilatura is there and fails.
    """
    waiting, seen = [Requirement(line) for line in EXTRAS[extra]], set[tuple[str, frozenset[str]]]()
    while waiting:
        wanted = waiting.pop()
        key = canonicalize_name(wanted.name), frozenset(wanted.extras)
        if key in seen:
            continue
        seen.add(key)
        try:
            there = importlib.metadata.distribution(wanted.name)
        except importlib.metadata.PackageNotFoundError:
            continue  # of another platform or Python; what is locked is there (test_lock.py)
        written = {
            re.sub(r"[^A-Za-z0-9.-]+", "_", each).lower() for each in there.metadata.get_all("Provides-Extra") or ()
        }
        for requirement in map(Requirement, there.requires or ()):
            marker = requirement.marker
            if marker is None or marker.evaluate({"extra": ""}):
                waiting.append(requirement)
                continue
            for asked in wanted.extras:
                if marker.evaluate({"extra": asked}):
                    waiting.append(requirement)
                    assert asked in written or canonicalize_name(requirement.name) in named(extra), (
                        wanted,
                        requirement,
                    )


def modules_of(extra: str) -> list[str]:
    """What product code imports of the packages that an extra names."""
    names = {canonicalize_name(Requirement(line).name) for line in EXTRAS[extra]}
    files = [path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")]
    foreign = {name for path in files for name in imports(path)}
    here = {
        name for name in foreign if name.partition(".")[0] not in ("headrace", "headrace_features", "tests", *PRODUCT)
    }
    return sorted(name for name in here if _is_module(name) and distributions({name}) & names)


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


@pytest.mark.nightly
@pytest.mark.parametrize("pip", PIPS)
@pytest.mark.parametrize("extra", INSTALLED)
def test_what_an_extra_installs_can_be_imported(extra: str, pip: str, wheel: Path, tmp_path: Path) -> None:
    """In an environment that pip makes, with what the packages require, and with nothing else."""
    modules = modules_of(extra)
    venv.create(tmp_path / "bare", with_pip=True, symlinks=True)
    python = tmp_path / "bare" / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def run(*words: str) -> str:
        done = subprocess.run(
            [python, "-I", *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode and "Failed to establish a new connection" in done.stderr:
            pytest.skip("no package index answers")
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    run("-m", "pip", "install", "--quiet", "--upgrade", pip)
    run("-m", "pip", "install", "--quiet", f"headrace[{extra}] @ {wheel.as_uri()}")
    run("-c", f"import importlib\nfor name in {modules!r}: importlib.import_module(name)")
