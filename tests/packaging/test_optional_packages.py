"""No package decides rows by being there: what is optional is refused where it is missing, or changes no row."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from spark_jobs.sources.config.source_config import FilesSource
from spark_jobs.sources.reading import built_in

PRODUCT = ("blender_service", "dagster_project", "headrace_features", "spark_jobs")
MISSING = {"ImportError", "ModuleNotFoundError", "PackageNotFoundError"}
REFUSED = "refused where it is missing, with the package and the mend"
USER_CODE = "the module is a user's own; that it is not there is said"
ALLOWED = {
    "dagster_project/tracing.py:_traces": "traces are not rows; a warning says that there are none",
    "dagster_project/resources.py:": "a base class of Dagster's, without an influence on rows",
    "dagster_project/project/diagnosis.py:_component": USER_CODE,
    "dagster_project/cli/begin/init.py:init": REFUSED,
    "dagster_project/command.py:main": REFUSED,
    "blender_service/tables/conversation_texts.py:conversation_texts": REFUSED,
    "spark_jobs/text/texts.py:texts": REFUSED,
    "spark_jobs/features.py:features": REFUSED,
    "spark_jobs/features.py:missing_extras": "what `headrace features` prints",
    "spark_jobs/lake/engine/choice.py:missing_sail": "Spark computes the same rows; its start says which engine it is",
    "spark_jobs/lake/session/java.py:_bundled_home": "Java, no package of Python; there is one or a session is refused",
    "spark_jobs/tokens/fast/fast_encoder.py:_version": "ids are the reference's: a certificate says where it is so",
    "dagster_project/cli/begin/init.py:_origin": "headrace itself, from a checkout",
    "spark_jobs/lake/session/python_workers.py:main": "where workers find PySpark, which is required",
    "spark_jobs/lake/session/jars.py:require_spark": "where PySpark's jars are, which is required",
    "headrace_features/models/clusters/proxy_config.py:require_torch": REFUSED,
    "spark_jobs/filters/languages/languages.py:installed_model_path": REFUSED,
    "headrace_features/privacy/profanity/profanity.py:_installed": REFUSED,
    "headrace_features/synthetic/fetch.py:require_packages": REFUSED,
    "headrace_features/synthetic/generated_config.py:_is_a_schema": "checked before asking, and refused without it",
    "spark_jobs/sources/reading/built_in.py:missing_package": REFUSED,
    "spark_jobs/sources/opening/parser_process.py:serve": REFUSED,
    "spark_jobs/sources/reading/record_files.py:_records": REFUSED,
    "spark_jobs/sources/files.py:checked": REFUSED,
    "spark_jobs/importing.py:import_faults": "who asks refuses, or says what mends it",
    "spark_jobs/importing.py:_mend": "which command brings what is missing",
    "spark_jobs/importing.py:unmet_requirements": "likewise",
    "headrace_features/formats/pages/line_hyphens.py:_stop_lists": REFUSED,
    "headrace_features/conversations/registered.py:packaged_template": REFUSED,
}
"""Functions that may ask whether a package is there, or go on without it, each with why no row depends on it.

What catches a missing package only to raise an error of this project needs no reason.
"""
INSIDE_LIBRARIES = (
    "brotli",
    "cchardet",
    "faust_cchardet",
    "py3langid",
    "pycurl",
    "selectolax",
    "bs4",
    "html5lib",
    "psutil",
)
"""Packages that trafilatura, htmldate, resiliparse and the like use where they are there."""


def _optional_imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Functions of a file that go on without a package or ask for one; whether what they catch always raises."""
    tree = ast.parse(path.read_text("utf-8"))
    holders = {
        id(inner): node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        is_asked = isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            ("find_spec", "packages_distributions")
        )
        is_suppressed = (
            isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress") and _names(node) & MISSING
        )
        is_caught = isinstance(node, ast.ExceptHandler) and node.type is not None and _names(node.type) & MISSING
        if is_asked or is_suppressed or is_caught:
            raises = isinstance(node, ast.ExceptHandler) and isinstance(node.body[-1], ast.Raise)
            yield holders.get(id(node), ""), raises


def _names(node: ast.AST) -> set[str]:
    """Names in an expression."""
    return {
        ast.unparse(inner).rpartition(".")[2] for inner in ast.walk(node) if isinstance(inner, ast.Name | ast.Attribute)
    }


@pytest.mark.nightly
def test_every_optional_import_is_refused_or_has_a_reason(repository: Path) -> None:
    """All functions that ask for a package or catch that it is missing, and no reason is left of one that is gone."""
    asking = set[str]()
    for folder in PRODUCT:
        for path in (repository / folder).rglob("*.py"):
            for function, raises in _optional_imports(path):
                if not raises:
                    asking.add(f"{path.relative_to(repository)}:{function}")
    assert asking == set(ALLOWED)


@pytest.mark.parametrize("reader", [name for name, of in built_in.READERS.items() if of.packages])
def test_a_file_is_refused_without_any_package_of_its_reader(reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each package of a reader, and those of its extractors, one at a time; with all of them none is missing."""
    source = FilesSource(path="x", extractor="both")
    packages = set(built_in.READERS[reader].packages)
    if reader in ("html", "warc"):
        packages |= {"resiliparse", "trafilatura", "justext", "lxml_html_clean"}
    for hidden in packages:
        with monkeypatch.context() as patch:
            patch.setattr(importlib.util, "find_spec", lambda name, hidden=hidden: None if name == hidden else sys)
            assert built_in.missing_package(reader, source) == hidden
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: sys)
    assert built_in.missing_package(reader, source) is None


SCRIPT = """
import importlib.abc, importlib.metadata, json, sys
hidden = set(json.loads(sys.argv[1]))
class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hide())
from spark_jobs.plugins import attribute
from spark_jobs.sources.config.file_reading import OcrRules
from tests.packaging.optional_inputs import inputs
texts = {}
for name, (function, arguments) in inputs().items():
    try:
        found = attribute(function)(*arguments)
        texts[name] = found[0] if isinstance(found[0], str) else [layer.text for layer in found[0]]
    except ImportError as error:
        texts[name] = f"missing {error.name}"
print(json.dumps(texts))
"""


def texts_without(repository: Path, *hidden: str) -> dict[str, object]:
    """The texts of some files, read by a Python without these packages."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(repository), str(repository / "protos")))}
    command = [sys.executable, "-c", SCRIPT, json.dumps(hidden)]
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=True)
    texts: dict[str, object] = json.loads(done.stdout)
    return texts


@pytest.mark.nightly
def test_texts_are_the_same_without_packages_that_libraries_only_use_if_present(repository: Path) -> None:
    """Pages by each extractor, a mail, a Word document, a PDF with a compound that its language's list decides."""
    pytest.importorskip("trafilatura")
    pytest.importorskip("pypdfium2")
    whole = texts_without(repository)
    assert not [text for text in whole.values() if str(text).startswith("missing")]
    assert texts_without(repository, *INSIDE_LIBRARIES) == whole
    without = texts_without(repository, "lxml_html_clean", "lxml", "docx")
    assert without["pdf"] == whole["pdf"] == ["a well-known one and the example"]
    assert without["word"] == whole["word"]
    changed = {name for name in whole if without[name] != whole[name]}  # `both` asks trafilatura where it is unsure
    assert {"page by trafilatura"} <= changed <= {"page by trafilatura", "page by both"}
    assert all(str(without[name]).startswith("missing ") for name in changed)


def test_the_stop_lists_are_those_that_justext_gives() -> None:
    """They are read without importing it, which needs more than a list of words does."""
    justext = pytest.importorskip("justext")
    from headrace_features.formats.pages.line_hyphens import _stop_lists

    assert _stop_lists() == tuple(justext.get_stoplist(name) for name in sorted(justext.get_stoplists()))


def test_packages_of_readers_are_installed_by_their_extras(repository: Path) -> None:
    """Each package that a file is refused without is named by the extra that its refusal names."""
    import tomllib

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    extras = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    holders = packages_distributions()
    for name, of in built_in.READERS.items():
        needed = {*of.packages, *(("trafilatura", "justext", "lxml_html_clean") if name in ("html", "warc") else ())}
        named = {canonicalize_name(Requirement(line).name) for line in extras[of.extra]}
        for package in needed - {package for package in needed if package not in holders}:
            assert named & {canonicalize_name(holder) for holder in holders[package]}, (name, package, of.extra)
