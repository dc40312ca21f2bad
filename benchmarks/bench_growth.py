"""What one more small increment costs once there are many, without Spark.

    python benchmarks/bench_growth.py --runs 200 [--tables 43] [--by-count]
    python benchmarks/bench_growth.py --ledger 1000 10000 [--tables 43]

`--runs` publishes a row in each of some tables so many times: what commits and the ledger alone cost. A line every so
many runs: CPU seconds of one, of reading the ledger after it, KB of the largest table's metadata, files and MB that it
added. Snapshots of the last day stay, so that their number is bounded only after one; `--by-count` lets the newest 100
alone stay.

`--ledger` writes the ledger of a lake whose tables have so many increments each, every other one of a step that reads
history, and plans in a process of its own: seconds of reading the ledger and of the forecast, and the process's memory.
Both are measured unless one is named.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import command
from cpu_time import peak_mib

if TYPE_CHECKING:
    from spark_jobs.lake.ledger.ledger import Ledger
    from spark_jobs.lake.ledger.materialization import Materialization
    from spark_jobs.lake.plan.binding import Binding


def files_below(folder: Path) -> tuple[int, int]:
    """How many files there are, and their bytes."""
    sizes = [os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names]
    return len(sizes), sum(sizes)


def largest_metadata(warehouse: Path) -> int:
    """Bytes of the largest metadata file of a table."""
    return max(file.stat().st_size for file in warehouse.rglob("*.metadata.json"))


def commit_runs(runs: int, tables: int, every: int) -> None:
    """Publish a row in each of some tables again and again, and print what a run costs without Spark."""
    import pyarrow as pa

    from headrace.tables.settings import settings_at
    from spark_jobs.lake.files.branches import Written, branch_at_head, publish
    from spark_jobs.lake.ledger.data_version import DataVersion
    from spark_jobs.lake.ledger.lease import writer_branch
    from spark_jobs.lake.ledger.ledger import Ledger
    from spark_jobs.lake.ledger.materialization import Materialization
    from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, ensure_table, open_catalogue

    with tempfile.TemporaryDirectory() as folder:
        catalogue = open_catalogue(settings_at(Path(folder)))
        ledger, bindings = Ledger.fresh(catalogue), chain(tables)
        for binding in bindings:
            made = ensure_table(catalogue, binding.tables[0], binding.step.table, {SCOPE_PROPERTY: "increment"})
            made.append(made.schema().as_arrow().empty_table())
        print("      run      CPU s  read CPU s  metadata KB  files added   MB added")
        files = size = 0
        for number in range(runs):
            started = time.process_time()
            ledger.refresh()
            for identifier in (binding.tables[0] for binding in bindings):
                branch = writer_branch()
                table, base = branch_at_head(catalogue, identifier, branch)
                rows = pa.Table.from_pylist([{"increment": number, "n": number}], schema=table.schema().as_arrow())
                table.append(rows, branch=branch)
                head = catalogue.load_table(identifier).snapshot_by_name(branch)
                assert head is not None
                version, place = DataVersion(1, number, number), (head.snapshot_id, head.sequence_number or 0)
                where = (*place, str(table.metadata.table_uuid))
                facts = (str(number), "step", f"{number:064}", version, "1", "{}", {}, *where, 1, 1000, 1.0, "r", None)
                row = Materialization(identifier, *facts)
                publish(catalogue, Written(identifier, branch, base, *where, version, 1, 1000, ()), row, {}, None)
                record(ledger, row)
            ledger.write()
            spent = time.process_time() - started
            now = files_below(Path(folder))
            if number % every == every - 1:
                started = time.process_time()
                Ledger.fresh(catalogue)
                read = time.process_time() - started
                kb, added, mb = largest_metadata(Path(folder)) / 1e3, now[0] - files, (now[1] - size) / 1e6
                print(f"{number:>9} {spent:>10.2f} {read:>11.2f} {kb:>12.0f} {added:>12} {mb:>10.2f}", flush=True)
            files, size = now


def record(ledger: Ledger, row: Materialization) -> None:
    """Tell the ledger of a publish as `materialize` does, and let old snapshots go."""
    from spark_jobs.lake.session import tidiness

    ledger.make_room([row.table])
    ledger.gather([row])
    table = ledger.table(row.table)
    assert table is not None
    tidiness.expire_surplus(ledger.catalogue, table, tidiness.KEPT_SNAPSHOTS, tidiness.KEPT_SECONDS)


def write_ledger(folder: Path, tables: int, increments: int) -> None:
    """Write the ledger of a chain of tables with so many increments, all of them up to date."""
    from headrace.tables.settings import settings_at
    from spark_jobs.lake.ledger.data_version import DataVersion
    from spark_jobs.lake.ledger.ledger import Ledger
    from spark_jobs.lake.ledger.materialization import Materialization
    from spark_jobs.lake.ledger.step_key import config_json
    from spark_jobs.lake.plan import plan
    from spark_jobs.lake.plan.reads import reads_of
    from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, ensure_table, open_catalogue

    catalogue = open_catalogue(settings_at(folder))
    ledger = Ledger.fresh(catalogue)
    for binding in chain(tables):
        step, name = binding.step, binding.tables[0]
        table = ensure_table(catalogue, name, step.table, {SCOPE_PROPERTY: step.scope.value})
        table.append(table.schema().as_arrow().empty_table())
        head = table.current_snapshot()
        assert head is not None
        facts = {"table": name, "step": step.name, "code_version": step.version, "config": config_json(binding.config)}
        facts |= {"table_uuid": str(table.metadata.table_uuid), "row_count": 20, "byte_count": 9000, "seconds": 1.0}
        facts |= {"run_id": "bench", "git_commit": None, "step_key": "first", "inputs": {}}
        rows = [
            Materialization(
                place=str(number),
                data_version=DataVersion(20, hash((name, number)), number),
                snapshot_id=head.snapshot_id if number == increments - 1 else number,
                sequence_number=1 if number == increments - 1 else 0,
                **facts,
            )
            for number in range(increments)
        ]
        if binding.inputs:
            ledger.gather(rows)  # not written: what reads its own history finds its rows
            made = []
            for number, row in enumerate(rows):
                reads = reads_of(binding, ledger, number)
                task = plan.Task(
                    plan.TableSlice.increment(number), number, plan._key(binding, reads, str(number)), reads
                )
                made.append(replace(row, step_key=task.key, inputs=task.inputs))
            rows, ledger._gathered = made, []
        ledger.record(rows)


def chain(tables: int) -> list[Binding]:
    """Steps of which each reads the table before; every other one all increments up to its own."""
    from spark_jobs.lake.declare.step import NoConfig, Scope, step
    from spark_jobs.lake.declare.tables import Column, Table
    from spark_jobs.lake.plan.binding import Binding

    found = []
    for number in range(tables):
        made = Table(f"t{number}", "rows", (Column("n!", "long", "number"),), partition=("increment",))
        scope = Scope.HISTORY if number % 2 else Scope.INCREMENT

        def compute(before: object) -> None:
            raise NotImplementedError

        declared = step(version="1", scope=scope, tables=(made,), config=NoConfig)(compute)
        inputs = {"before": f"sim.t{number - 1}"} if number else {}
        found.append(Binding(declared, "sim", inputs, NoConfig(), driving_table="sim.t0", unbound=not number))
    return found


def plan_ledger(folder: Path, tables: int) -> None:
    """Read the ledger and forecast a run, and print what that took."""
    from headrace.tables.settings import settings_at
    from spark_jobs.lake.ledger.ledger import Ledger
    from spark_jobs.lake.ledger.ledger_table import LEDGER
    from spark_jobs.lake.plan.forecast import forecast
    from spark_jobs.lake.session.catalogue import open_catalogue

    catalogue = open_catalogue(settings_at(folder))
    started, before = time.process_time(), peak_mib()
    ledger = Ledger.fresh(catalogue)
    read = time.process_time()
    idle = [one.is_idle for one in forecast(ledger, chain(tables)[1:])]
    assert all(idle) and len(idle) == tables - 1
    done, size = (
        time.process_time(),
        sum(task.file.file_size_in_bytes for task in catalogue.load_table(LEDGER).scan().plan_files()),
    )
    print(f"{read - started:>10.2f} {done - read:>10.2f} {peak_mib() - before:>10.0f} {size / 1e6:>10.1f}", flush=True)


def main() -> None:
    """Measure growth with the number of runs, and with the length of the ledger; one of them where it is chosen."""
    parser = command.parser(__doc__)
    parser.add_argument("--every", type=int, default=10, help="runs between two lines")
    parser.add_argument("--by-count", action="store_true", help="let snapshots go whatever their age")
    parser.add_argument("--runs", type=int, help="runs that publish a row in each table; 130 by default")
    parser.add_argument("--ledger", type=int, nargs="+", help="increments of each table; 1000 and 10000 by default")
    parser.add_argument("--tables", type=int, default=43, help="of each")
    parser.add_argument("--look", type=Path, help=argparse.SUPPRESS)
    given = command.read(parser, runs=3, every=1, ledger=[5, 10], tables=3)
    if given.look:
        plan_ledger(given.look, given.tables)
        return
    if not given.runs and not given.ledger:
        given.runs, given.ledger = 130, [1000, 10_000]
    if given.by_count:
        from spark_jobs.lake.run import materialize
        from spark_jobs.lake.session import tidiness

        materialize.KEPT_SECONDS = tidiness.KEPT_SECONDS = tidiness._SYSTEM_SECONDS = 0.0
    if given.ledger:
        print("increments  read CPU s  plan CPU s   MB memory   MB ledger")
    for number in given.ledger or ():
        with tempfile.TemporaryDirectory() as folder:
            write_ledger(Path(folder), given.tables, number)
            print(f"{number:>10}", end=" ", flush=True)
            more = ["--look", folder, "--tables", str(given.tables)]
            subprocess.run([sys.executable, __file__, *more], check=True)
    if given.runs:
        commit_runs(given.runs, given.tables, given.every)


if __name__ == "__main__":
    main()
