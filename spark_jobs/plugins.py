"""What other packages bring (sources, readers, scorers, selections, commands, ..), by the entry points of these groups.

    [project.entry-points."headrace.sources"]
    sql = "mill.sources:SqlSource"

makes `source: {kind: sql, ..}` possible where the package is installed. Inside a project, which need not be installed,
the reference alone does: `kind: mill.sources:SqlSource`.

headrace's features declare what they bring in the same groups, and are read from a table of their own (`features`):
looking through the metadata of some 300 installed packages takes .1 s, and happens only where a name is not one of
headrace's, which no package can take. Features alone bring what stands below the first line of GROUPS.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, TypeVar

from spark_jobs.exceptions import ConfigError, did_you_mean, nearest
from spark_jobs.features import PACKAGE, brought, missing

GROUPS: Final = (
    *("sources", "readers", "scorers", "selections", "commands", "pages", "services", "exports"),
    *("kinds", "steps", "names", "parts", "reader_parts", "columns", "corpus_commands", "derivations", "declarations"),
    *("permissions", "run_ends", "notices"),
)
T = TypeVar("T")


@functools.cache
def declared(group: str) -> dict[str, str]:
    """The references that installed packages declare in a group, by name.

    Raises:
        ConfigError: two packages declare one name.
    """
    found: dict[str, EntryPoint] = {}
    for one in entry_points(group=f"headrace.{group}"):
        if one.module.startswith(f"{PACKAGE}."):
            continue
        other = found.setdefault(one.name, one)
        if other.value != one.value:
            raise ConfigError(
                f"headrace.{group}: {_package(other)} and {_package(one)} both declare {one.name!r}; uninstall one"
            )
    return {name: one.value for name, one in sorted(found.items())}


def added(group: str) -> dict[str, str]:
    """The references that features, then installed packages declare in a group, by name."""
    return {**brought(group), **{name: place for name, place in declared(group).items() if name not in brought(group)}}


def _package(one: EntryPoint) -> str:
    return one.dist.name if one.dist is not None else one.value


def reference(group: str, name: str, own: Iterable[str]) -> str:
    """The `package.module:attribute` that a name stands for; a reference stands for itself.

    Args:
        group: of GROUPS.
        name: what a user wrote.
        own: headrace's names in the group, for the suggestion.

    Raises:
        ConfigError: no package declares the name; the message suggests the nearest.
    """
    if ":" in name:
        return name
    if place := brought(group).get(name):
        return place
    known, absent = declared(group), missing(group)
    if name in absent:
        raise ConfigError(
            f"{group[:-1]} {name!r} is of the feature {absent[name]}, which is not installed here; install headrace "
            "whole, or name another (headrace features lists what is there)"
        )
    if name not in known:
        near = did_you_mean(name, dict.fromkeys([*own, *brought(group), *known, *absent]))
        raise ConfigError(
            f"{group[:-1]} {name!r} is not known{near}; install the package that brings it, or write "
            "package.module:name for one of yours"
        )
    return known[name]


def attribute(reference: str) -> Any:
    """What `package.module:attribute` stands for.

    Raises:
        Exception: of any kind, where the module cannot be imported or has no such attribute.
    """
    place, _, name = reference.partition(":")
    module = importlib.import_module(place)
    if not hasattr(module, name):
        raise AttributeError(f"{place} has no {name!r}{nearest(name, vars(module))}")
    return getattr(module, name)


def load(group: str, name: str, of: type[T], own: Iterable[str] = ()) -> T:
    """What a name or reference stands for.

    Args:
        group: of GROUPS.
        name: what a user wrote.
        of: its type, or the class that it must be a subclass of.
        own: as of `reference`.

    Raises:
        ConfigError: there is none, its module cannot be imported, or it is something else.
    """
    place = reference(group, name, own)
    try:
        found = attribute(place)
    except Exception as error:  # somebody's module may fail in any way when it is imported
        raise ConfigError(f"{group[:-1]} {name!r}: {error}; correct the name, or mend the module") from error
    if not (isinstance(found, of) or (isinstance(found, type) and issubclass(found, of))):
        kind = found.__name__ if isinstance(found, type) else type(found).__name__
        raise ConfigError(f"{group[:-1]} {name!r} is a {kind}; it has to be a {of.__name__} (docs/extend/extending.md)")
    return found  # type: ignore[return-value]
