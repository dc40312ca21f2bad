"""What documents are divided by: the dimensions of cells as declared, and the columns that they read."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from pydantic import Field, field_validator, model_validator

from spark_jobs.dedup.graph.threshold_pairs import KindThreshold
from spark_jobs.exceptions import InputError, did_you_mean
from spark_jobs.lake.declare.step import ConfigModel

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,40}")
_WORDS: Final = frozenset({"and", "in", "none", "not"})  # of the grammar of choices (`headrace.tables.cells`)
_COLUMN: Final = re.compile(r"[a-z][a-z0-9_]*(\.\w[^.]*)?\.\w.*")
_VALUES: Final = ("string", "int", "long", "boolean")
_NUMBERS: Final = ("int", "long", "float", "double")
_TEXTS: Final = "map<string, string>"


class Place(NamedTuple):
    """Where the values of a dimension are: table, column, and the key of a column that is a map of texts."""

    table: str
    column: str
    key: str | None


class Duplicates(ConfigModel):
    """Cells by how many documents a survivor stands for, itself among them."""

    most: int = Field(ge=2, le=1000, description="the last cell: so many or more")
    scale: Literal["count", "log2"] = Field(
        "count", description="count: 1, 2, 3, ..; log2: 1 for one document, 2 for 2 or 3, 3 for 4 to 7, .."
    )


class Dimension(ConfigModel):
    """One dimension of cells: a column by its values, bounds or quantiles, or how many copies were removed."""

    column: str | None = Field(
        None, description="TABLE.COLUMN of the corpus or its datasets; metadata.KEY is what a source says of documents"
    )
    datasets: tuple[str, ...] | None = Field(
        None, description="datasets with the table; documents of others have no value; default: all"
    )
    bounds: tuple[float, ...] | None = Field(
        None, min_length=1, description="ascending; a value below the first is in 0, one equal to it in 1"
    )
    quantiles: int | None = Field(
        None, ge=2, le=1000, description="number of parts with as many documents each, 0 the lowest"
    )
    duplicates: Duplicates | None = Field(None, description="{most: 3, scale: count}: by removed duplicates")

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, given: Any) -> Any:
        """`clusters.coarse` is `{column: clusters.coarse}`."""
        return {"column": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _is_one(self) -> Dimension:
        """Refuse what names no column or two ways."""
        ways = [name for name in ("bounds", "quantiles", "datasets") if getattr(self, name) is not None]
        if (self.column is None) == (self.duplicates is None):
            raise ValueError("give column: TABLE.COLUMN, or duplicates: {most: 3}")
        if self.duplicates is not None and ways:
            raise ValueError(f"duplicates takes no {ways[0]}; take it out")
        if "bounds" in ways and "quantiles" in ways:
            raise ValueError("has both bounds and quantiles; give one of them")
        if self.column is not None and _COLUMN.fullmatch(self.column) is None:
            raise ValueError(f"{self.column!r} is no column; write TABLE.COLUMN, such as quality.score")
        numbers = self.bounds or ()
        if not all(map(math.isfinite, numbers)) or list(numbers) != sorted({*numbers}):
            raise ValueError(f"bounds {list(numbers)} do not ascend; write each number once, the lowest first")
        return self

    @property
    def is_binned(self) -> bool:
        """Whether its values are numbers of bins."""
        return self.bounds is not None or self.quantiles is not None

    @property
    def place(self) -> Place | None:
        """Where its values are; None for copies."""
        if self.column is None:
            return None
        table, _, column = self.column.partition(".")
        if table == "metadata":
            return Place("documents", "metadata", column)
        column, dot, key = column.partition(".")
        return Place(table, column, key if dot else None)


class CellsConfig(ConfigModel):
    """The dimensions of cells."""

    by: dict[str, Dimension] = Field(
        default_factory=dict, validate_default=True, min_length=1, description="dimensions by name"
    )
    threshold: KindThreshold = Field(
        KindThreshold(), description="threshold at which near-duplicates are removed; counts for duplicates alone"
    )

    @field_validator("by")
    @classmethod
    def _named(cls, by: dict[str, Dimension]) -> dict[str, Dimension]:
        """Refuse names that a choice of cells could not name; sort, since cells are written so."""
        for name in by:
            if _NAME.fullmatch(name) is None or name in _WORDS:
                raise ValueError(f"{name!r} is no name of a dimension; write lower-case letters, digits and _")
        return dict(sorted(by.items()))

    @property
    def places(self) -> dict[str, Place]:
        """Where the values of each dimension are, but for copies."""
        return {name: place for name, one in self.by.items() if (place := one.place) is not None}

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables with values, each once."""
        return tuple(dict.fromkeys(place.table for place in self.places.values()))

    @property
    def binned(self) -> CellsConfig | None:
        """The dimensions by bounds or quantiles alone; None without any."""
        binned = {name: one for name, one in self.by.items() if one.is_binned}
        return CellsConfig(by=binned) if binned else None

    @property
    def duplicates(self) -> tuple[str, Duplicates] | None:
        """The dimension of copies; None without one."""
        return next(((name, one.duplicates) for name, one in self.by.items() if one.duplicates is not None), None)


def require_values(config: CellsConfig, columns: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse a column that the tables lack, or whose values are no cells (`Step.refuse_types`).

    Args:
        config: the dimensions.
        columns: type of each column, by table.

    Raises:
        InputError: names the dimension.
    """
    for name, (table, column, key) in config.places.items():
        there, where = columns.get(table, {}), f"by.{name}"
        if column not in there:
            raise InputError(f"{where}: {table} has no column {column!r}{did_you_mean(column, sorted(there))}")
        kind, called = there[column].replace("!", ""), f"{table}.{column}"
        if (key is None) == (kind == _TEXTS):
            need = "is a map of texts; name a key" if key is None else f"is {kind} and has no keys; write"
            raise InputError(f"{where}: {called} {need}: {called}{'.KEY' * (key is None)}")
        if key is None and config.by[name].is_binned and kind not in _NUMBERS:
            raise InputError(f"{where}: {called} is {kind}; bounds and quantiles are of numbers, leave them out")
        if key is None and not config.by[name].is_binned and kind not in _VALUES:
            instead = "give bounds or quantiles" if kind in _NUMBERS else f"name a column of {', '.join(_VALUES)}"
            raise InputError(f"{where}: {called} is {kind}; {instead}")
