"""The features of headrace that are there, and what each brings: `headrace_features/features.toml` as values.

The core names no feature. It asks for what a group of entry points has (`brought`), and for the feature that would
bring a name where nothing else does (`missing`).
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

PACKAGE: Final = "headrace_features"
_TABLE: Final = "features.toml"


@dataclass(frozen=True)
class Feature:
    """A folder of `headrace_features`.

    Attributes:
        name: of the folder.
        about: what it is for, in a line.
        extras: of headrace that it can use, each with a module that is there once the extra is installed.
        entries: `package.module:attribute` by name, by group of entry points.
        is_there: whether the folder is.
    """

    name: str
    about: str
    extras: Mapping[str, str]
    entries: Mapping[str, Mapping[str, str]]
    is_there: bool

    @property
    def missing_extras(self) -> tuple[str, ...]:
        """The extras that are not installed."""
        return tuple(extra for extra, module in self.extras.items() if find_spec(module) is None)


@functools.cache
def features() -> Mapping[str, Feature]:
    """All features of this version of headrace by name, whether or not their folders are there."""
    package = find_spec(PACKAGE)
    if package is None or not package.submodule_search_locations:
        return {}
    folder = Path(next(iter(package.submodule_search_locations)))
    table = tomllib.loads((folder / _TABLE).read_text("utf-8"))
    return {name: _feature(name, fields, (folder / name / "__init__.py").is_file()) for name, fields in table.items()}


def _feature(name: str, fields: dict[str, object], is_there: bool) -> Feature:
    about, extras = str(fields.pop("about")), fields.pop("extras")
    return Feature(name, about, extras, fields, is_there)  # type: ignore[arg-type] # a test reads all of the table


@functools.cache
def brought(group: str) -> Mapping[str, str]:
    """What the features that are there bring to a group of entry points: `package.module:attribute` by name."""
    present = (feature for feature in features().values() if feature.is_there)
    return {name: place for feature in present for name, place in feature.entries.get(group, {}).items()}


def missing(group: str) -> Mapping[str, str]:
    """Names of a group that features would bring whose folders are not there, each with its feature."""
    absent = (feature for feature in features().values() if not feature.is_there)
    return {name: feature.name for feature in absent for name in feature.entries.get(group, {})}
