"""What one increment of a step reads: which tables, at which snapshots, which increments, with which data versions.

`reads_of` works this out from the ledger alone, without Spark; its data versions go into the step key. `frames` turns
the result into DataFrames, pinned to the snapshots that were found.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.quarantined import (
    SUFFIX,
    absolute,
    quarantine_of,
    quarantine_of_path,
    quarantine_that_holds,
)
from spark_jobs.lake.declare.step import Scope
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.run.binding import Binding
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, spark_identifier
from spark_jobs.lake.session.shuffle_partitions import Size
from spark_jobs.spark_sql import Column, DataFrame, F, SparkSession


@dataclass(frozen=True)
class Read:
    """The part of one table that is read.

    Attributes:
        table: identifier.
        snapshot_id: head of main when the step started.
        versions: data version read, by increment or partition.
        increments: for a table with increments, number of each increment read to the number that the reader gives it.
        predicate: SQL condition for a partition of the user's.
        labelled: whether the reader gets the columns `dataset` and `dataset_increment`.
        grown: whether the table got columns after that snapshot.
    """

    table: str
    snapshot_id: int
    versions: Mapping[str, str]
    increments: Mapping[int, int] | None
    predicate: str | None
    labelled: bool
    grown: bool = False


Reads = Mapping[str, tuple[Read, ...]]


def versions_of(reads: Reads) -> dict[str, dict[str, str]]:
    """Data versions by `parameter:table` and place, as they go into the step key."""
    return {
        f"{parameter}:{read.table}": dict(read.versions)
        for parameter, parts in reads.items()
        for read in parts
        if read.versions
    }


def snapshots_of(reads: Reads) -> dict[str, dict[str, object]]:
    """Snapshot and data versions by table, as the ledger records inputs."""
    found: dict[str, dict[str, object]] = {}
    for parts in reads.values():
        for read in parts:
            found[read.table] = {"snapshot_id": str(read.snapshot_id), "versions": dict(read.versions)}
    return found


def sizes_of(reads: Reads, ledger: Ledger) -> list[Size]:
    """How much is read, by table and place."""
    found: list[Size] = []
    for read in (read for parts in reads.values() for read in parts):
        if is_path(read.table):
            found.append(files_size(read.table))
            continue
        places = ledger.places(read.table)
        rows = [places[place] for place in read.versions if place in places]
        found += [Size(row.byte_count, row.row_count) for row in rows]
    return found


def taken_increments(ledger: Ledger, intake: str) -> dict[int, dict[str, tuple[int, ...]]]:
    """Which increments of which dataset each increment of a corpus took in: corpus increment to dataset to numbers."""
    found: dict[int, dict[str, tuple[int, ...]]] = {}
    for number, row in ledger.increments(intake).items():
        found[number] = {
            table.split(".")[0]: tuple(sorted(int(place) for place in facts["versions"]))
            for table, facts in row.inputs.items()
        }
    return found


def reads_of(binding: Binding, ledger: Ledger, increment: int | None) -> Reads:
    """Work out what a step reads for one increment, None for a table without increments.

    Raises:
        InputError: an input table, or an increment of it, has not been materialized.
    """
    found: dict[str, tuple[Read, ...]] = {}
    for parameter, source in binding.inputs.items():
        tables = (source,) if isinstance(source, str) else source
        parts = [_read(binding, ledger, table, increment, labelled=not isinstance(source, str)) for table in tables]
        found[parameter] = tuple(part for part in parts if part is not None)
    if increment is not None:
        for own in binding.step.own_history:
            found[own.name] = _own_history(f"{binding.namespace}.{own.name}", ledger, increment)
    return found


def _own_history(table: str, ledger: Ledger, increment: int) -> tuple[Read, ...]:
    head = _head(ledger, table)
    if head is None:
        return ()
    rows = {number: row for number, row in ledger.increments(table).items() if number < increment}
    versions = {str(number): str(row.data_version) for number, row in rows.items()}
    return (Read(table, head, versions, {number: number for number in rows}, None, False, _grown(ledger, table)),)


def is_path(source: str) -> bool:
    """Whether an input or output is a path of Parquet files rather than `namespace.table`."""
    return "/" in source or source.endswith(".parquet")


def _files_version(path: str) -> str:
    """Version of Parquet files, from names, sizes and times of modification, so that no row is read."""
    root = Path(path)
    if not root.exists():
        raise InputError(f"{path}: no such file or folder; give --input NAME=TABLE_OR_PARQUET")
    facts = [
        (str(file.relative_to(root)), file.stat().st_size, file.stat().st_mtime_ns) for file in _parquet_files(root)
    ]
    return f"files:{hashlib.sha256(repr(facts).encode()).hexdigest()}"


def files_size(path: str) -> Size:
    """Bytes of Parquet files on this machine; their rows are not counted."""
    return Size(sum(file.stat().st_size for file in _parquet_files(Path(path))), 0)


def _parquet_files(root: Path) -> list[Path]:
    return [root] if root.is_file() else sorted(root.rglob("*.parquet"))


def _read(binding: Binding, ledger: Ledger, table: str, increment: int | None, labelled: bool) -> Read | None:
    """Part of one input table; None where this increment of a corpus took nothing in from it."""
    if is_path(table):
        refuse_quarantined_path(ledger.warehouse, binding.tables[0], table)
        return Read(table, 0, {"": _files_version(table)}, None, None, labelled=False)
    iceberg = ledger.table(table)
    refuse_quarantined(binding, table, iceberg.properties if iceberg is not None else {})
    head = _head(ledger, table)
    if labelled and head is None and _is_waiting(binding, ledger, table, increment):
        return None
    if iceberg is None or head is None:
        raise InputError(
            f"{binding.tables[0]}: input {table} has not been materialized; "
            f"run `headrace run {table.replace('.', '/')}` first"
        )
    places = ledger.places(table)
    if increment is None or "increment" not in {field.name for field in iceberg.schema().fields}:
        chosen = binding.input_places.get(table)
        versions = {place: str(row.data_version) for place, row in places.items() if chosen is None or place in chosen}
        predicate = (
            None if chosen is None else " OR ".join(f"({condition})" for condition in chosen.values()) or "false"
        )
        return Read(table, head, versions, None, predicate, labelled, _grown(ledger, table))
    if iceberg.properties.get(SCOPE_PROPERTY) == Scope.FROZEN.value:
        wanted: Mapping[int, int] = {0: 0}
    else:
        wanted = _wanted_increments(binding, ledger, table, increment)
    if not wanted and binding.namespace != table.split(".")[0]:
        return None
    missing = [number for number in wanted if str(number) not in places]
    if missing:
        raise InputError(
            f"{binding.tables[0]}: input {table} has no increment {missing[0]} yet; run `headrace run "
            f"{table.replace('.', '/')}` first"
        )
    versions = {str(number): str(places[str(number)].data_version) for number in wanted}
    return Read(table, head, versions, wanted, None, labelled, _grown(ledger, table))


def refuse_quarantined(binding: Binding, table: str, properties: Mapping[str, str]) -> None:
    """Refuse a read of a quarantined table by a step of another namespace, but for the one that carries increments out.

    Raises:
        InputError: the message says how its rows come out.
    """
    held = quarantine_that_holds(table, properties)
    if held and held != binding.namespace and not (binding.step.gate and held == quarantine_of(binding.namespace)):
        raise InputError(f"{binding.tables[0]}: {table} is quarantined; {_mend(held)}")


def refuse_quarantined_path(warehouse: str, reader: str, path: str) -> None:
    """Refuse files in the folder of a quarantine.

    Raises:
        InputError: the message says how its rows come out.
    """
    if "://" in path and warehouse:  # Spark lists it, with globs, where the driver cannot look
        fixed, glob, _ = re.split(r"([*?\[{]|$)", path, maxsplit=1)
        above = absolute(fixed.rpartition("/")[0] if glob else fixed)
        if f"{absolute(warehouse)}/".startswith(f"{above}/"):
            raise InputError(f"{reader}: {path} holds quarantines, or may; name one table's folder")
    local = "://" not in path and Path(path).exists()
    if found := quarantine_of_path(warehouse, [path, *(map(str, _parquet_files(Path(path))) if local else ())]):
        raise InputError(f"{reader}: {found} is a file of a quarantine; {_mend('DATASET')}")


def _mend(held: str) -> str:
    dataset = held.removesuffix(SUFFIX)
    return (
        f"read {dataset}, which has the increments that were released: headrace quarantine release {dataset} "
        "--increment N --reason WHY"
    )


def _is_waiting(binding: Binding, ledger: Ledger, table: str, increment: int | None) -> bool:
    """Whether a table of a dataset has no rows because all its increments are in quarantine, or none is asked for."""
    if ledger.table(f"{quarantine_of(table.partition('.')[0])}.arrivals") is None:
        return False
    return increment is None or not _wanted_increments(binding, ledger, table, increment)


def _wanted_increments(binding: Binding, ledger: Ledger, table: str, increment: int) -> dict[int, int]:
    """Number of each input increment that is read, to the number that the reader gives it."""
    upto = binding.step.scope is Scope.HISTORY
    numbers = range(increment + 1) if upto else range(increment, increment + 1)
    dataset = table.split(".")[0]
    if dataset == binding.namespace or binding.clock is None or binding.clock.split(".")[0] != binding.namespace:
        return {number: number for number in numbers}
    taken = taken_increments(ledger, binding.clock)
    return {theirs: ours for ours in numbers for theirs in taken.get(ours, {}).get(dataset, ())}


def _head(ledger: Ledger, table: str) -> int | None:
    iceberg = ledger.table(table)
    snapshot = iceberg.current_snapshot() if iceberg is not None else None
    return snapshot.snapshot_id if snapshot is not None else None


def _grown(ledger: Ledger, table: str) -> bool:
    """Whether a table got columns after its head was written, so that Iceberg reads the head without them."""
    iceberg = ledger.table(table)
    snapshot = iceberg.current_snapshot() if iceberg is not None else None
    return iceberg is not None and snapshot is not None and snapshot.schema_id != iceberg.schema().schema_id


def frames(spark: SparkSession, binding: Binding, reads: Reads) -> dict[str, DataFrame]:
    """The DataFrames of all inputs, each pinned to its snapshot."""
    found = {}
    for parameter, parts in reads.items():
        tables = [_frame(spark, part) for part in parts]
        frame = tables[0] if tables else _empty(spark, binding, parameter)
        for other in tables[1:]:
            frame = frame.unionByName(other)
        found[parameter] = frame
    return found


def _frame(spark: SparkSession, read: Read) -> DataFrame:
    if is_path(read.table):
        return spark.read.parquet(read.table)
    frame = spark.read.option("versionAsOf", str(read.snapshot_id)).table(spark_identifier(read.table))
    if read.grown:  # what Iceberg reads lacks the columns that came since; they are null in it
        for field in spark.table(spark_identifier(read.table)).schema.fields:
            if field.name not in frame.columns:
                frame = frame.withColumn(field.name, F.lit(None).cast(field.dataType))
    if read.predicate is not None:
        frame = frame.where(read.predicate)
    if read.increments is not None:
        frame = frame.where(F.col("increment").isin(*read.increments)) if read.increments else frame.where("false")
    if read.labelled:
        frame = frame.withColumn("dataset", F.lit(read.table.split(".")[0]))
        if read.increments is not None:
            frame = frame.withColumn("dataset_increment", F.col("increment"))
    if read.increments is not None and any(theirs != ours for theirs, ours in read.increments.items()):
        frame = frame.withColumn("increment", _renumbered(read.increments))
    return frame


def _renumbered(increments: Mapping[int, int]) -> Column:
    """The column `increment`, from the table's numbers to the reader's."""
    if len(set(increments.values())) == 1:
        return F.lit(next(iter(increments.values())))
    pairs = [F.lit(number) for pair in increments.items() for number in pair]
    return F.element_at(F.create_map(*pairs), F.col("increment"))


def _empty(spark: SparkSession, binding: Binding, parameter: str) -> DataFrame:
    """No rows, with the columns of the table that the parameter is bound to."""
    if parameter in {own.name for own in binding.step.own_history}:
        return spark.table(spark_identifier(f"{binding.namespace}.{parameter}")).where("false")
    source = binding.inputs[parameter]
    names = [spark_identifier(one) for one in ((source,) if isinstance(source, str) else source)]
    there = next((one for one in names if spark.catalog.tableExists(one)), names[0])
    frame = spark.table(there).where("false")
    if isinstance(source, tuple):
        frame = frame.withColumn("dataset", F.lit("")).withColumn("dataset_increment", F.lit(0))
    return frame
