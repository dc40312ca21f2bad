"""One module knows what PyIceberg does not publish, and a release that moves it is told here."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.reader import DoubleReader
from pyiceberg.expressions import visitors
from pyiceberg.io import pyarrow
from pyiceberg.table.update import snapshot

_ROOT = Path(__file__).parents[4]
_CORE = "spark_jobs/lake/session/pyiceberg_core.py"
_PRODUCER = snapshot._OverwriteFiles
# Each private name with the parameters that it is called with, or that a method in its place is given.
_PRIVATE = {
    "_OverwriteFiles": (_PRODUCER, "self operation transaction io commit_uuid snapshot_properties branch"),
    "_ManifestMergeManager": (
        snapshot._ManifestMergeManager,
        "self target_size_bytes min_count_to_merge merge_enabled snapshot_producer",
    ),
    "_StrictMetricsEvaluator": (
        visitors._StrictMetricsEvaluator,
        "self schema expr case_sensitive include_empty_files",
    ),
    "_dataframe_to_data_files": (pyarrow._dataframe_to_data_files, "table_metadata df io write_uuid counter"),
    "_commit": (_PRODUCER._commit, "self"),
    "_clean_all_uncommitted": (_PRODUCER._clean_all_uncommitted, "self"),
    "_process_manifests": (_PRODUCER._process_manifests, "self manifests"),
    "_build_manifest_evaluator": (_PRODUCER._build_manifest_evaluator, "self spec_id"),
    "_build_delete_files_partition_predicate": (_PRODUCER._build_delete_files_partition_predicate, "self"),
}
_ATTRIBUTES = {"_deleted_data_files"}  # that objects have, set when they are made
_OF_OTHERS = re.compile(r"pyiceberg(\.\w+)*")


def sources() -> list[Path]:
    """The modules of the project but the one."""
    packages = ("spark_jobs", "dagster_project", "blender_service", "headrace", "headrace_features")
    files = (file for package in packages for file in (_ROOT / package).rglob("*.py"))
    return [file for file in files if file != _ROOT / _CORE]


def private_names(tree: ast.Module) -> set[str]:
    """Private names of PyIceberg that a module imports, calls on something else than itself, or defines anew."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and _OF_OTHERS.fullmatch(node.module or ""):
            found |= {alias.name for alias in node.names if alias.name.startswith("_")}
        if isinstance(node, ast.Attribute) and node.attr in {*_PRIVATE, *_ATTRIBUTES}:
            own = isinstance(node.value, ast.Name) and node.value.id == "self"
            found |= set() if own else {node.attr}
    return found


def overridden(file: Path) -> set[str]:
    """Private methods of PyIceberg's classes that classes of a module define anew."""
    text = file.read_text()
    if "pyiceberg" not in text or "class " not in text:
        return set()
    module = importlib.import_module(".".join(file.relative_to(_ROOT).with_suffix("").parts))
    found = set()
    for made in vars(module).values():
        if inspect.isclass(made) and made.__module__ == module.__name__:
            foreign = [base for base in made.__mro__ if base.__module__.startswith("pyiceberg.")]
            names = {name for name in vars(made) if re.match(r"_[a-z]", name)}
            found |= {name for name in names if any(name in vars(base) for base in foreign)} - {
                "_is_protocol",
                "_abc_impl",
            }
    return found - {"_is_protocol", "_abc_impl"}  # what Python itself sets


def test_private_names_are_used_in_one_module() -> None:
    """A release that moves one is mended there alone."""
    found = {file: private_names(ast.parse(file.read_text())) for file in sources()}
    assert {str(file.relative_to(_ROOT)): names for file, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "path",
    ["headrace/tables/catalogue.py", "spark_jobs/lake/files/scans.py", "blender_service/tables/current_table.py"],
)
def test_classes_of_other_modules_keep_to_public_methods(path: str) -> None:
    """Those that derive from PyIceberg's."""
    assert overridden(_ROOT / path) == set()


@pytest.mark.parametrize("name", _PRIVATE)
def test_each_private_name_is_there_as_it_is_used(name: str) -> None:
    """With the parameters that are given to it, in this order."""
    thing, expected = _PRIVATE[name]
    signature = inspect.signature(thing.__init__ if inspect.isclass(thing) else thing)  # type: ignore[misc]
    assert list(signature.parameters) == expected.split()
    assert name in (_ROOT / _CORE).read_text()


def test_what_objects_are_asked_for_is_set_when_they_are_made() -> None:
    """An attribute has no signature; that it is set can be seen in the source."""
    made = inspect.getsource(snapshot._SnapshotProducer.__init__)
    assert all(f"self.{name}" in made for name in _ATTRIBUTES)


def test_doubles_are_read_whole() -> None:
    """Whatever PyIceberg's compiled decoder does; where it does the same, the reader in its place can go."""
    number = 0.1
    content = bytes.fromhex("9a9999999999b93f")
    assert DoubleReader().read(new_decoder(content)) == number
    assert new_decoder(content).read_double() != number, "PyIceberg reads doubles now: its own reader does"
