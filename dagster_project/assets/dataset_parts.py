"""Assets that a feature adds to a dataset which declares something under its name: entry points `headrace.parts`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

import dagster as dg

from dagster_project.table_asset import Presentation


class Part(NamedTuple):
    """What a field of a dataset's declaration, a mapping by name, adds to the dataset.

    Attributes:
        tables: names of the tables that an entry of the mapping adds.
        assets: makes them from the dataset, the mapping, tables of its scorers, and what it shows; refuses a mistake.
    """

    tables: Callable[[str], tuple[str, ...]]
    assets: Callable[
        [str, Mapping[str, Mapping[str, Any]], Collection[str], Presentation], Iterator[dg.AssetsDefinition]
    ]
