"""Which tables are quarantined: those of a namespace `<dataset>_quarantine`, also after they are renamed.

The namespace makes it so when a table is made (`session.catalogue.ensure_table`), and a property of the table keeps it
so after a rename. Whatever reads tables asks here: steps (`run.reads`), commands, and Blender by the same two facts.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import Final

SUFFIX: Final = "_quarantine"
QUARANTINE_PROPERTY: Final = "headrace.quarantine"
_S3 = re.compile("^s3[an]$")  # Hadoop's schemes of S3
_NOTHING: Final[Mapping[str, str]] = {}


def quarantine_of(dataset: str) -> str:
    """The namespace in which a quarantined dataset lands."""
    return f"{dataset}{SUFFIX}"


def is_quarantine(namespace: str) -> bool:
    """Whether a namespace is the quarantine of a dataset."""
    return namespace.endswith(SUFFIX)


def quarantine_that_holds(identifier: str, properties: Mapping[str, str] = _NOTHING) -> str:
    """The quarantine that a table belongs to, by its properties or its namespace; empty where it belongs to none."""
    space = identifier.partition(".")[0]
    return properties.get(QUARANTINE_PROPERTY) or (space if is_quarantine(space) else "")


def quarantine_of_path(warehouse: str, paths: Iterable[str]) -> str:
    """The first of some paths that lies in a quarantine's folder of the warehouse; empty where none does."""
    if not warehouse:  # a REST catalogue that does not tell where it keeps tables
        return ""
    folders = re.compile(rf"{re.escape(absolute(warehouse))}/[a-z][a-z0-9_]*{SUFFIX}(/|$)")
    return next((path for path in paths if folders.match(absolute(path))), "")


def absolute(path: str) -> str:
    """One spelling of a location: `file:///a/../b/` -> `/b`, links followed; `s3a://bucket/x/` -> `s3://bucket/x`."""
    path = path.removeprefix("file://").rstrip("/")
    scheme, mark, rest = path.partition("://")
    return f"{_S3.sub('s3', scheme)}://{posixpath.normpath(rest)}" if mark else os.path.realpath(path)
