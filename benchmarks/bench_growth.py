"""What one more small increment costs once there are many: a lake that grows for real, and tables that are written.

    python benchmarks/bench_growth.py --increments 200 [--documents 20] [--every 10] [--dataset] [--by-count]
    python benchmarks/bench_growth.py --runs 200 [--tables 43] [--by-count]
    python benchmarks/bench_growth.py --ledger 1000 10000 [--tables 43]
    python benchmarks/bench_growth.py --files 1000000 [--increments 300]

The first lands 20 new files so many times, and brings a dataset and a corpus up to date as `headrace run` does, in one
process with one Spark session. A line every so many increments: CPU seconds of a run (this process, Java and workers,
the mean of the last five), of a plan after it, KB of the largest table's metadata, files and MB that the run added.
Snapshots of the last day stay, so that their number is bounded only after one; `--by-count` lets the newest 100 alone
stay.

`--runs` publishes a row in each of some tables so many times, without Spark: what commits and the ledger alone cost.
`--ledger` writes the ledger of a lake whose tables have so many increments each, every other one of a step that reads
history, and plans in a process of its own: seconds of reading the ledger and of the forecast, and the process's memory.
`--files` writes the arrivals of so many files, then of increments with 20 more each, and looks at a source that lists
them all, as a plan and a sensor do.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench_filters import cpu_seconds

if TYPE_CHECKING:
    from spark_jobs.lake.ledger.ledger import Ledger
    from spark_jobs.lake.ledger.materialization import Materialization
    from spark_jobs.lake.run.binding import Binding

_DOCUMENTS = 20
_MODIFIED = 1_700_000_000_000_000

_DEFS = {
    "notes": "type: headrace.Dataset\nattributes:\n  name: notes\n  source: {{kind: files, path: {folder}}}\n",
    "small": "type: headrace.Corpus\nattributes:\n  name: small\n  datasets: [notes]\n"
    "  tokenizer: {{train: {{vocabulary_size: 300}}}}\n  deduplication: {{levels: [exact]}}\n  window_tokens: [64]\n",
}


def project(root: Path, sources: Path, names: Sequence[str]) -> None:
    """Make a project with a dataset of files, and with a corpus of it where that is named too."""
    package = root / "grown"
    for name, text in ((name, _DEFS[name]) for name in names):
        (package / "defs" / name).mkdir(parents=True)
        (package / "defs" / name / "defs.yaml").write_text(text.format(folder=sources))
    (root / "pyproject.toml").write_text('[tool.dg.project]\nroot_module = "grown"\n')
    (package / "__init__.py").write_text("")
    (package / "defs" / "__init__.py").write_text("")
    (package / "definitions.py").write_text(
        "from pathlib import Path\n\nimport dagster as dg\n\nfrom dagster_project.definitions import load_project\n\n\n"
        "@dg.definitions\ndef definitions() -> dg.Definitions:\n    return load_project(Path(__file__).parent)\n"
    )


def files_below(folder: Path) -> tuple[int, int]:
    """How many files there are, and their bytes."""
    sizes = [os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names]
    return len(sizes), sum(sizes)


def largest_metadata(warehouse: Path) -> int:
    """Bytes of the largest metadata file of a table."""
    return max(file.stat().st_size for file in warehouse.rglob("*.metadata.json"))


def grow(increments: int, documents: int, every: int, names: Sequence[str]) -> None:
    """Print a line for every so many increments of a lake that grows."""
    from dagster_project.cli.plan import planned
    from dagster_project.cli.run import execute, require_done

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        sources, warehouse = root / "notes", root / "lake" / "warehouse"
        sources.mkdir()
        project(root, sources, names)
        os.environ |= {
            "HEADRACE_PROJECT": str(root),
            "PYICEBERG_CATALOG__LAKE__URI": f"sqlite:///{root}/lake/catalog.db",
            "PYICEBERG_CATALOG__LAKE__WAREHOUSE": str(warehouse),
            "DAGSTER_HOME": str(root / "dagster"),
        }
        sys.path.insert(0, str(root))
        print("increment  run CPU s  plan CPU s  metadata KB  files added   MB added")
        files = size = 0
        spent: list[float] = []
        for number in range(increments):
            for one in range(documents):
                words = " ".join(f"word{number * documents + one}x{i} of the note" for i in range(30))
                (sources / f"{number:05}_{one:03}.md").write_text(f"# Note {number} {one}\n\n{words}\n")
            before = cpu_seconds()
            require_done(execute((), None, lambda line: None), "headrace run")
            spent.append(cpu_seconds() - before)
            now = files_below(warehouse)
            if number % every == every - 1:
                before = time.process_time()
                planned((), None)
                plan = time.process_time() - before
                run = sum(spent[-5:]) / len(spent[-5:])
                kb, added, mb = largest_metadata(warehouse) / 1e3, now[0] - files, (now[1] - size) / 1e6
                print(f"{number:>9} {run:>10.2f} {plan:>11.2f} {kb:>12.0f} {added:>12} {mb:>10.2f}", flush=True)
            files, size = now


def commit_runs(runs: int, tables: int, every: int) -> None:
    """Publish a row in each of some tables again and again, and print what a run costs without Spark."""
    import pyarrow as pa

    from spark_jobs.lake.files.write import Written, branch_at_head, publish
    from spark_jobs.lake.ledger.data_version import DataVersion
    from spark_jobs.lake.ledger.lease import writer_branch
    from spark_jobs.lake.ledger.ledger import Ledger
    from spark_jobs.lake.ledger.materialization import Materialization
    from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, ensure_table, open_catalogue
    from spark_jobs.lake.session.settings import settings_at

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
                publish(catalogue, Written(identifier, branch, base, *where, version, 1, 1000, ()), row, {})
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
    from spark_jobs.lake.ledger.data_version import DataVersion
    from spark_jobs.lake.ledger.ledger import Ledger
    from spark_jobs.lake.ledger.materialization import Materialization
    from spark_jobs.lake.ledger.step_key import config_json
    from spark_jobs.lake.run import plan
    from spark_jobs.lake.run.reads import reads_of
    from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, ensure_table, open_catalogue
    from spark_jobs.lake.session.settings import settings_at

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
                task = plan.Task(plan.Place.increment(number), number, plan._key(binding, reads, str(number)), reads)
                made.append(replace(row, step_key=task.key, inputs=task.inputs))
            rows, ledger._gathered = made, []
        ledger.record(rows)


def chain(tables: int) -> list[Binding]:
    """Steps of which each reads the table before; every other one all increments up to its own."""
    from spark_jobs.lake.declare.step import NoConfig, Scope, step
    from spark_jobs.lake.declare.tables import Column, Table
    from spark_jobs.lake.run.binding import Binding

    found = []
    for number in range(tables):
        made = Table(f"t{number}", "rows", (Column("n!", "long", "number"),), partition=("increment",))
        scope = Scope.HISTORY if number % 2 else Scope.INCREMENT

        def compute(before: object) -> None:
            raise NotImplementedError

        declared = step(version="1", scope=scope, tables=(made,), config=NoConfig)(compute)
        inputs = {"before": f"sim.t{number - 1}"} if number else {}
        found.append(Binding(declared, "sim", inputs, NoConfig(), clock="sim.t0", unbound=not number))
    return found


def plan_ledger(folder: Path, tables: int) -> None:
    """Read the ledger and forecast a run, and print what that took."""
    from spark_jobs.lake.ledger.ledger import LEDGER, Ledger
    from spark_jobs.lake.run.forecast import forecast
    from spark_jobs.lake.session.catalogue import open_catalogue
    from spark_jobs.lake.session.settings import settings_at

    catalogue = open_catalogue(settings_at(folder))
    started, before = time.process_time(), memory_mb()
    ledger = Ledger.fresh(catalogue)
    read = time.process_time()
    idle = [one.is_idle for one in forecast(ledger, chain(tables)[1:])]
    assert all(idle) and len(idle) == tables - 1
    done, size = (
        time.process_time(),
        sum(task.file.file_size_in_bytes for task in catalogue.load_table(LEDGER).scan().plan_files()),
    )
    print(f"{read - started:>10.2f} {done - read:>10.2f} {memory_mb() - before:>10.0f} {size / 1e6:>10.1f}", flush=True)


def write_arrivals(folder: Path, files: int, increments: int) -> None:
    """Write the arrivals of so many files, then of increments with 20 more each."""
    import pyarrow as pa

    from spark_jobs.lake.ledger.data_version import DataVersion
    from spark_jobs.lake.ledger.ledger import Ledger
    from spark_jobs.lake.ledger.materialization import Materialization
    from spark_jobs.lake.ledger.step_key import config_json
    from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue
    from spark_jobs.lake.session.settings import settings_at
    from spark_jobs.sources.documents import ARRIVALS

    catalogue, made = open_catalogue(settings_at(folder)), source_binding()
    table, first = ensure_table(catalogue, "sim.arrivals", ARRIVALS, {}), 0
    rows = []
    for number in range(increments):
        count = files if number == 0 else _DOCUMENTS
        known = {
            "increment": pa.array([number] * count, pa.int32()),
            "location": [location(one) for one in range(first, first + count)],
            "path": [f"{one // 1000:04}/{one:07}.md" for one in range(first, first + count)],
            "content_sha256": [f"{one:064x}" for one in range(first, first + count)],
            "byte_count": [1000] * count,
            "modified": pa.array([_MODIFIED] * count, pa.int64()).cast(pa.timestamp("us", "UTC")),
            "status": ["landed"] * count,
        }
        schema = table.schema().as_arrow()
        columns = [
            pa.nulls(count, f.type) if f.name not in known else pa.array(known[f.name]).cast(f.type) for f in schema
        ]
        table.append(pa.Table.from_arrays(columns, schema=schema))
        first += count
        head = table.current_snapshot()
        assert head is not None
        facts = {"step_key": str(number), "inputs": {}, "run_id": "bench", "git_commit": None, "seconds": 1.0}
        facts |= {"row_count": count, "byte_count": count, "data_version": DataVersion(count, number, number)}
        facts |= {"snapshot_id": head.snapshot_id, "sequence_number": head.sequence_number}
        facts |= {"config": config_json(made.config), "code_version": made.step.version, "step": "documents"}
        rows.append(Materialization("sim.arrivals", str(number), table_uuid=str(table.metadata.table_uuid), **facts))
    Ledger.fresh(catalogue).record(rows)


def location(number: int) -> str:
    """Where a simulated file lies."""
    return f"/data/corpora/notes/{number // 1000:04}/{number:07}.md"


def source_binding() -> Binding:
    """The step at the source of the simulated dataset."""
    from spark_jobs.lake.run.binding import Binding
    from spark_jobs.sources.config.source_config import DocumentsConfig
    from spark_jobs.sources.documents import documents

    config = DocumentsConfig.model_validate({"dataset": "sim", "source": {"kind": "files", "path": "/data"}})
    return Binding(documents, "sim", {}, config, clock="sim.arrivals")


def look_at_source(folder: Path, files: int) -> None:
    """Plan the next increment of a source that lists all files and one more, and print what that took."""
    from spark_jobs.lake.ledger.ledger import Ledger
    from spark_jobs.lake.run.plan import tasks
    from spark_jobs.lake.session.catalogue import open_catalogue
    from spark_jobs.lake.session.settings import settings_at
    from spark_jobs.sources.listing import changes as listing
    from spark_jobs.sources.listing.listed_files import Listed
    from spark_jobs.sources.opening.file_trees import FoundFile

    def listed(number: int) -> Listed:
        return Listed(FoundFile(location(number), f"{number:07}.md", 1000, _MODIFIED), f"{number:07}.md", "text", None)

    listing.list_files = lambda *_: [listed(number) for number in range(files)]
    ledger = Ledger.fresh(open_catalogue(settings_at(folder)))
    before, started = memory_mb(), time.process_time()
    there = listing.list_files(None, {})
    of_list, own = time.process_time() - started, memory_mb() - before
    del there
    started = time.process_time()
    (task,) = tasks(ledger, source_binding())
    assert task.discovered is not None
    seconds = time.process_time() - started - of_list
    print(f"{task.discovered.num_rows:>10} {seconds:>10.2f} {memory_mb() - before:>10.0f} {own:>10.0f}", flush=True)


def memory_mb() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--increments", type=int, default=200, help="increments that are landed, or whose rows are written"
    )
    parser.add_argument("--documents", type=int, default=_DOCUMENTS, help="documents of each")
    parser.add_argument("--every", type=int, default=10, help="increments between two lines")
    parser.add_argument("--dataset", action="store_true", help="a dataset alone, without a corpus")
    parser.add_argument("--by-count", action="store_true", help="let snapshots go whatever their age")
    parser.add_argument("--runs", type=int, help="runs that publish a row in each table, without Spark")
    parser.add_argument("--ledger", type=int, nargs="+", help="increments of each table of a ledger")
    parser.add_argument("--tables", type=int, default=43, help="its tables")
    parser.add_argument("--files", type=int, help="files of a source")
    parser.add_argument("--look", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.look:
        look_at_source(given.look, given.files) if given.files else plan_ledger(given.look, given.tables)
        return
    more = (
        ["--files", str(given.files + given.increments * _DOCUMENTS)]
        if given.files
        else ["--tables", str(given.tables)]
    )
    if given.files:
        print("increments  rows listed  plan CPU s   MB memory   MB of list")
    elif given.ledger:
        print("increments  read CPU s  plan CPU s   MB memory   MB ledger")
    for number in [1, given.increments] if given.files else given.ledger or ():
        with tempfile.TemporaryDirectory() as folder:
            if given.files:
                write_arrivals(Path(folder), given.files, number)
            else:
                write_ledger(Path(folder), given.tables, number)
            print(f"{number:>10}", end=" ", flush=True)
            subprocess.run([sys.executable, __file__, "--look", folder, *more], check=True)
    if given.by_count:
        from spark_jobs.lake.run import materialize
        from spark_jobs.lake.session import tidiness

        materialize.KEPT_SECONDS = tidiness.KEPT_SECONDS = tidiness._SYSTEM_SECONDS = 0.0
    if given.runs:
        commit_runs(given.runs, given.tables, given.every)
    elif not given.files and not given.ledger:
        grow(given.increments, given.documents, given.every, ["notes"] if given.dataset else ["notes", "small"])


if __name__ == "__main__":
    main()
