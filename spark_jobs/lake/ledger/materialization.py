"""A row of the ledger: the facts of one computed place (an increment, a partition or a whole table)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.expressions import AlwaysTrue, BooleanExpression, EqualTo, GreaterThanOrEqual

from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.step_key import canonical_json


@dataclass(frozen=True)
class TableSlice:
    """The part of a table written by one materialization.

    Attributes:
        key: name in the ledger: an increment, a partition, or empty for the whole table.
        predicate: SQL condition of every written row.
        replaced: the replaced rows, at times more than those written; whole data files meet it.
    """

    key: str
    predicate: str
    replaced: BooleanExpression

    @classmethod
    def increment(cls, number: int, and_later: bool = False) -> TableSlice:
        """Increment `number`; with `and_later`, writing it also removes all later ones."""
        replaced = GreaterThanOrEqual if and_later else EqualTo
        return cls(str(number), f"increment = {number}", replaced("increment", number))

    @classmethod
    def whole(cls) -> TableSlice:
        """The whole table."""
        return cls("", "true", AlwaysTrue())


FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True)
class Materialization:
    """One row of the ledger; fields as in `ledger_table.MATERIALIZATIONS`, `inputs` decoded."""

    table: str
    place: str
    step: str
    step_key: str
    data_version: DataVersion
    code_version: str
    config: str
    inputs: Mapping[str, Any]
    snapshot_id: int
    sequence_number: int
    table_uuid: str
    row_count: int
    byte_count: int
    seconds: float
    run_id: str
    git_commit: str | None
    core_seconds: float | None = None
    engine: str | None = None

    def to_json(self) -> str:
        """All facts as one line, for the table's property."""
        return canonical_json({**dataclasses.asdict(self), "data_version": str(self.data_version)})

    @classmethod
    def from_json(cls, text: str) -> Materialization:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        return cls(**{**values, "data_version": DataVersion.parse(values["data_version"])})

    @property
    def increment(self) -> int:
        """The place as an increment."""
        return int(self.place)

    @property
    def is_withdrawal(self) -> bool:
        """Whether the row says that its snapshot was rolled back."""
        return not self.step_key

    @property
    def is_forgotten(self) -> bool:
        """Whether the place is marked to be computed anew, though its rows are still there."""
        return self.step_key == FORGOTTEN


def forgotten(row: Materialization) -> Materialization:
    """The ledger row to mark the place of `row` for another computation."""
    return dataclasses.replace(row, step_key=FORGOTTEN)


def withdrawn(row: Materialization) -> Materialization:
    """The ledger row about the rollback of the snapshot of `row`."""
    return dataclasses.replace(row, step_key="", data_version=DataVersion(), inputs={}, row_count=0, byte_count=0)
