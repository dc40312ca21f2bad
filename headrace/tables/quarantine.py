"""The quarantined tables: those of a namespace `<dataset>_quarantine`, also after they are renamed.

The namespace makes it so when a table is made, and a property of the table keeps it so after a rename. Whatever reads
tables asks here: steps, commands, and Blender.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from headrace.tables.locations import real

SUFFIX: Final = "_quarantine"
QUARANTINE_PROPERTY: Final = "headrace.quarantine"
_NOTHING: Final[Mapping[str, str]] = {}


def quarantine_of(dataset: str) -> str:
    """The namespace of a quarantined dataset."""
    return f"{dataset}{SUFFIX}"


def is_quarantine(namespace: str) -> bool:
    """Whether a namespace is the quarantine of a dataset."""
    return namespace.endswith(SUFFIX)


def quarantine_that_holds(identifier: str, properties: Mapping[str, str] = _NOTHING) -> str:
    """The quarantine of a table, by its properties or its namespace; empty without any."""
    space = identifier.partition(".")[0]
    return properties.get(QUARANTINE_PROPERTY) or (space if is_quarantine(space) else "")


def quarantine_of_path(warehouse: str, paths: Iterable[str]) -> str:
    """The first of some paths in a quarantine's folder of the warehouse; empty without any."""
    if not warehouse:  # a REST catalogue that does not tell where it keeps tables
        return ""
    folders = re.compile(rf"{re.escape(real(warehouse))}/[a-z][a-z0-9_]*{SUFFIX}(/|$)")
    return next((path for path in paths if folders.match(real(path))), "")
