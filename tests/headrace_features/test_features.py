"""The table of features: what pyproject declares, and things that are there."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from spark_jobs.features import PACKAGE, features
from spark_jobs.plugins import attribute
from spark_jobs.registry import declared_step, step_names

_ROOT = Path(__file__).parents[2]
_DECLARED = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))["project"]
_ENTRIES = [place for feature in features().values() for group in feature.entries.values() for place in group.values()]


def test_the_table_is_that_of_the_entry_points() -> None:
    """Who reads the metadata of the package finds what headrace reads from its table."""
    table: dict[str, dict[str, str]] = {}
    for feature in features().values():
        for group, entries in feature.entries.items():
            table.setdefault(f"headrace.{group}", {}).update(entries)
    assert table == _DECLARED["entry-points"]


def test_each_folder_has_an_entry_and_each_entry_a_folder() -> None:
    """And its extras are extras of headrace."""
    folders = {path.parent.name for path in (_ROOT / PACKAGE).glob("*/__init__.py")}
    assert folders == features().keys() and all(feature.is_there for feature in features().values())
    assert all(feature.extras.keys() <= _DECLARED["optional-dependencies"].keys() for feature in features().values())


@pytest.mark.parametrize("place", _ENTRIES)
def test_each_entry_is_there(place: str) -> None:
    """In the folder of its feature, where deletion takes it away."""
    assert place.split(".")[0] == PACKAGE
    attribute(place)


def test_every_step_of_headrace_runs_on_either_engine() -> None:
    """Those of features too: else a run with one of them would start Spark where Sail is enough."""
    needing = {name for name in step_names() if name != "packed" and declared_step(name).needs_spark}
    assert needing == set()
