"""Facts about the origin of a table's rows, which its snapshots and properties carry: step, key, inputs, generation."""

from __future__ import annotations

import functools
import hashlib
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, EqualTo
from pyiceberg.table import Table as IcebergTable

from headrace.tables.window_facts import GENERATION_PROPERTY
from spark_jobs.exceptions import TableMismatchError
from spark_jobs.lake.declare.step import Output
from spark_jobs.lake.files.branches import Written
from spark_jobs.lake.files.scans import scan_of
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.plan.plan import Task


def generation_of(ledger: Ledger, binding: Binding, task: Task) -> dict[str, str]:
    """The property with the generation of a numbered table, as it will be; empty for other tables.

    An append keeps the generation. Any other write makes a new one, since an ordinal may then stand for another row.
    """
    if not binding.step.numbered:
        return {}
    table = ledger.table(binding.tables[0])
    current = table.properties.get(GENERATION_PROPERTY) if table is not None else None
    later = [number for number in ledger.increments(binding.tables[0]) if number >= (task.increment or 0)]
    if current is not None and not later and task.increment:
        return {GENERATION_PROPERTY: current}
    return {GENERATION_PROPERTY: hashlib.sha256(f"{current}\0{task.key}".encode()).hexdigest()[:16]}


def require_properties(ledger: Ledger, binding: Binding, task: Task, table: IcebergTable, output: Output) -> None:
    """Refuse properties that differ from the table's, unless the increment replaces all of its rows.

    Raises:
        TableMismatchError: names the property.
    """
    earlier = [number for number in ledger.increments(binding.tables[0]) if number < (task.increment or 0)]
    for name, value in output.properties.items():
        have = table.properties.get(name)
        if have is not None and have != value and earlier:
            raise TableMismatchError(
                f"{binding.tables[0]}: {name} of the table is {have}, of the new rows {value}; pack with the table's "
                f"own setting, or start over with `headrace corpus refresh {binding.namespace}`"
            )


def sampled(catalogue: Catalog, binding: Binding, task: Task, written: Written, output: Output) -> Mapping[str, str]:
    """The properties that some new rows of the main table say: the first of one data file."""
    sample = binding.step.sample
    if sample is None or not written.version.count:
        return {}
    table = catalogue.load_table(written.identifier)
    condition = AlwaysTrue() if task.increment is None else EqualTo("increment", task.increment)
    paths = [file.file.file_path for file in scan_of(table, condition, snapshot_id=written.snapshot_id).plan_files()]
    with table.io.new_input(min(paths)).open() as stream:
        batches = pq.ParquetFile(stream, page_checksum_verification=True).iter_batches(
            sample.count, columns=list(sample.columns)
        )
        return sample.describe(pa.Table.from_batches([next(batches)]), output.properties)


def summary_of(run_id: str, binding: Binding, task: Task) -> dict[str, str]:
    """Facts for the summary of a snapshot; few and short, because readers load all summaries with the table."""
    snapshots = {table: facts["snapshot_id"] for table, facts in task.inputs.items()}
    values = {
        "headrace.step": binding.step.name,
        "headrace.step-key": task.key,
        "headrace.code-version": binding.step.version,
        "headrace.place": task.place.key,
        "headrace.inputs": ",".join(f"{table}@{snapshot}" for table, snapshot in sorted(snapshots.items())),
        "headrace.run-id": run_id,
    }
    commit = git_commit()
    return {**values, "headrace.git-commit": commit} if commit else values


@functools.cache
def git_commit() -> str | None:
    """Commit of the checkout that this code runs from; None outside of one."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
