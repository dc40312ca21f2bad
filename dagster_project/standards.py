"""The commands that write a dataset, corpus or packed table in standards, where the feature with them is there."""

from __future__ import annotations

from spark_jobs.features import brought

_FEATURE = "rights"


def standards(name: str) -> str:
    """What to type for Croissant and SPDX of a dataset, corpus or packed table; empty without the feature."""
    if _FEATURE not in brought("commands"):
        return ""
    return f"Croissant 1.1: `headrace {_FEATURE} croissant {name}`; SPDX 3.0: `headrace {_FEATURE} spdx {name}`."


def standards_of_table(identifier: str) -> str:
    """The same for the page of a table, where it is the documents of a dataset or packed."""
    space, _, table = identifier.partition(".")
    if table.startswith("packed_"):
        return standards(identifier)
    return standards(space) if table == "documents" else ""
