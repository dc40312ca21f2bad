"""What of a step's tables is due, and what is upcoming: due in the steps before it, and not computed yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from spark_jobs.lake.ledger.materialization import Materialization, TableSlice
from spark_jobs.lake.plan.binding import Binding, tables_of
from spark_jobs.lake.plan.reads import Reads, covers


@dataclass(frozen=True)
class Due:
    """A place that a run computes for certain, or perhaps.

    Attributes:
        place: where its rows go.
        increment: of the driving table or the source; None for a table without increments.
        reason: why, in words.
        certain: False where it is computed only if rows of its inputs come out differently.
        exists: whether the table holds the place now.
        reads: what it reads; None where an earlier step of the run makes an input.
        chained: of a numbered table, the step key of the increment before.
        decided: of an increment that leaves quarantine, the decision.
        listing: what `Step.discover` listed, for steps at the source of data.
        key: step key of `reads`.
    """

    place: TableSlice
    increment: int | None
    reason: str
    certain: bool = True
    exists: bool = False
    reads: Reads | None = None
    chained: str = ""
    decided: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    listing: pa.Table | None = None
    key: str = ""


@dataclass(frozen=True)
class ForecastPlace:
    """Forecast of a due place: why, and how much it takes.

    Attributes:
        place: increment or partition; empty for a whole table.
        reason: as in `Due`, and so are the next two.
        certain: see there.
        exists: see there.
        rows: estimate; None where nothing is known.
        files: of a source, how many are new or changed; None for other tables, and where the source does not say.
        seconds: estimate, of wall-clock time; None where nothing is known.
    """

    place: str
    reason: str
    certain: bool
    exists: bool
    rows: int | None = None
    files: int | None = None
    seconds: float | None = None


@dataclass
class Upcoming:
    """What a run will have computed of the steps before: places by table, and the increments that a table will have.

    It is empty while a step is run, since the ledger knows what was computed.
    """

    places: dict[str, dict[str, ForecastPlace]] = field(default_factory=dict)
    increments: dict[str, list[int]] = field(default_factory=dict)

    def again(self, row: Materialization) -> list[str]:
        """Inputs of a ledger's row that exist and may be computed again, as `table[place]`."""
        return [
            f"{table}[{place}]" if place else table
            for table, facts in row.inputs.items()
            for place, forecast_place in self.places.get(table, {}).items()
            if forecast_place.exists and covers(facts, place)
        ]

    def new(self, binding: Binding, certain: bool = False) -> list[str]:
        """Places of a step's inputs, and of its driving table, that do not exist yet, as `table[place]`."""
        return [
            f"{table}[{forecast_place.place}]"
            for table in input_tables(binding)
            for forecast_place in self.places.get(table, {}).values()
            if not forecast_place.exists and (forecast_place.certain or not certain)
        ]


def input_tables(binding: Binding) -> list[str]:
    """Input tables of a step, and its driving table, each once."""
    return [*dict.fromkeys(tables_of(*binding.inputs.values(), binding.driving_table or ()))]
