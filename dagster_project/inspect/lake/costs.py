"""The cost of tables: seconds of all that was ever computed, and bytes of what is there now, summed from the ledger.

Seconds are wall-clock seconds of steps, during which a step has all cores of its session; steps of one run do not
overlap. Core seconds are those that tasks of Spark took, on all machines together; the driver's own work is not in
them, and increments that headrace computed before it measured them have none. A step that writes several tables counts
once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, GreaterThanOrEqual

from spark_jobs.lake.files.lookups import read_columns
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.ledger_table import LEDGER


@dataclass
class Cost:
    """A sum over some tables.

    Attributes:
        name: step, namespace or team.
        places: computed increments and partitions.
        seconds: of computing them.
        core_seconds: of its tasks; None where they were not measured of all of them.
        byte_count: of the tables' present data files.
    """

    name: str
    places: int = 0
    seconds: float = 0.0
    core_seconds: float | None = 0.0
    byte_count: int = 0


def costs(catalogue: Catalog, by: str, teams: Mapping[str, str], since: datetime | None = None) -> list[Cost]:
    """Costs by step, namespace or team, the dearest first.

    Args:
        catalogue: the lake's.
        by: `step`, `namespace` or `team`.
        teams: by table, for `team`.
        since: leave out what was computed before this time.
    """
    condition = AlwaysTrue() if since is None else GreaterThanOrEqual("recorded_at", since.isoformat())
    ledger = Ledger.fresh(catalogue)
    columns = ("table", "place", "step", "step_key", "seconds", "core_seconds")
    rows = read_columns(catalogue, LEDGER, columns, condition)
    by_name: dict[str, Cost] = {}
    names: dict[str, str] = {}
    counted: set[tuple[str, str, str, str]] = set()
    for row in rows.to_pylist() if rows is not None else []:
        table, namespace = row["table"], row["table"].partition(".")[0]
        name = {"step": row["step"], "namespace": namespace}.get(by) or teams.get(table, "nobody")
        names[table] = name
        cost = by_name.setdefault(name, Cost(name))
        key = (namespace, row["step"], row["step_key"], row["place"])
        if key not in counted and row["seconds"]:
            counted.add(key)
            cost.places += 1
            cost.seconds += row["seconds"]
            spent = row["core_seconds"]
            cost.core_seconds = None if spent is None or cost.core_seconds is None else cost.core_seconds + spent
    sizes: dict[str, int] = defaultdict(int)
    for table, name in names.items():
        sizes[name] += sum(place.byte_count for place in ledger.places(table).values())
    for name, size in sizes.items():
        by_name[name].byte_count = size
    return sorted(by_name.values(), key=lambda cost: -cost.seconds)
