"""Where the time of one small materialization goes: fixed costs of branch, write, audit, publish and ledger.

    python benchmarks/bench_lake.py [--repeat 10]

A table of 1,000 rows is computed again and again under new keys in a warm session on `local[2]`; seconds are medians.
`publish` and `ledger` are commits through PyIceberg; `write` is Spark's pass with the digest observed in it;
`unchanged` is a run in which the key is known, in a process that has looked before.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import command
from lakes import lake_at

from spark_jobs.lake.declare.step import NoConfig, Scope, step
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.files import write
from spark_jobs.lake.ledger import ledger as ledger_module
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.run import materialize as engine
from spark_jobs.lake.run.materialize import materialize

ROWS = Table(
    name="rows",
    comment="one row per number",
    columns=(Column("n!", "long", "number"), Column("text!", "string", "its name")),
    key=("n",),
    sort=("n",),
)


@step(version="0", scope=Scope.WHOLE, tables=(ROWS,))
def rows(spark, config: NoConfig):  # type: ignore[no-untyped-def]
    """A thousand numbers."""
    return spark.range(1000).selectExpr("id AS n", "cast(id AS string) AS text")


def shifted(number: int) -> Callable[..., Any]:
    """A step function whose rows differ for every number."""

    def compute(spark, config: NoConfig):  # type: ignore[no-untyped-def]
        return spark.range(1000).selectExpr(f"id + {number} AS n", "cast(id AS string) AS text")

    return compute


def timed(owner: Any, name: str, label: str, spent: dict[str, float]) -> None:
    """Add the seconds of a function's calls to `spent`."""
    call: Callable[..., Any] = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        try:
            return call(*args, **kwargs)
        finally:
            spent[label] += time.perf_counter() - started

    setattr(owner, name, wrapped)


@contextlib.contextmanager
def clock(seconds: list[float]) -> Iterator[None]:
    """Append the seconds of a block."""
    started = time.perf_counter()
    yield
    seconds.append(time.perf_counter() - started)


def main() -> None:
    """Print a line per part."""
    parser = command.parser(__doc__)
    parser.add_argument("--repeat", type=int, default=10, help="materializations measured, after three that warm up")
    repeat = command.read(parser, repeat=1).repeat
    with tempfile.TemporaryDirectory() as folder:
        lake = lake_at(Path(folder), "local[2]")
        spark = lake.session()
        binding = Binding(rows, "bench", {}, NoConfig())
        spent: dict[str, float] = defaultdict(float)
        timed(write, "_start_branch", "branch", spent)
        timed(engine, "write_to_branch", "branch + write + audit", spent)
        timed(write, "key_check", "audit of keys", spent)
        timed(engine, "publish", "publish", spent)
        timed(ledger_module.Ledger, "write", "ledger: write", spent)
        timed(ledger_module.Ledger, "refresh", "ledger: refresh", spent)
        timed(engine, "ensure_table", "table as declared", spent)
        timed(type(lake.catalogue), "load_table", "(all loads of tables)", spent)
        parts: dict[str, list[float]] = defaultdict(list)
        whole: list[float] = []
        idle: list[float] = []
        for number in range(repeat + 3):
            spent.clear()
            changed = dataclasses.replace(
                rows,
                version=str(number),
                function=shifted(number),
            )
            with clock(whole):
                materialize(lake, dataclasses.replace(binding, step=changed))
            for name, seconds in spent.items():
                parts[name].append(seconds)
            with clock(idle):
                materialize(lake, dataclasses.replace(binding, step=changed))
        print(f"{'part':<26} {'seconds':>8} {'share':>6}")
        total = statistics.median(whole[3:])
        for name, seconds in {**parts, "one materialization": whole, "unchanged": idle}.items():
            print(f"{name:<26} {statistics.median(seconds[3:]):>8.3f} {statistics.median(seconds[3:]) / total:>6.0%}")
        spark.stop()


if __name__ == "__main__":
    main()
