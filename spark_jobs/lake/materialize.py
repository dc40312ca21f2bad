"""Bring the tables of a step up to date: every increment whose step key is new is computed, all others are left.

    plan      from the ledger alone: which increments are there, which of their keys are known   (no Spark)
    compute   read the inputs at their heads, call the step, write to a branch, audit            (under the lease)
    publish   main moves; where the rows came out the same as before nothing is published        (early cut-off)
    record    all tables of the step, in one commit of the ledger

This is the one engine behind Dagster's assets, `headrace run` and `python -m spark_jobs`.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import re
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.catalog import Catalog

from spark_jobs.exceptions import InputError, SparkJobsError, StepRunError, TableMismatchError
from spark_jobs.lake.binding import Binding
from spark_jobs.lake.catalogue import SCOPE_PROPERTY, ensure_table
from spark_jobs.lake.digest import DataVersion
from spark_jobs.lake.keys import config_json, step_key
from spark_jobs.lake.lease import WAIT_SECONDS, table_leases
from spark_jobs.lake.ledger import Ledger, Materialization
from spark_jobs.lake.reads import Reads, frames, reads_of, snapshots_of, versions_of
from spark_jobs.lake.write import CheckResult, Place, Written, discard, publish, require_passed, write_to_branch
from spark_jobs.step import Output, Scope

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)
GENERATION_PROPERTY = "headrace.generation"
_PYTHON_ERROR = re.compile(r"(?!org\.|java\.|scala\.|py4j\.)[\w.]*(Error|Exception): ")


@dataclass(frozen=True)
class Lake:
    """An open lake: its catalogue, its ledger, and a Spark session that starts when it is first needed."""

    catalogue: Catalog
    ledger: Ledger
    session: Callable[[], SparkSession]
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    wait_seconds: float = WAIT_SECONDS


@dataclass(frozen=True)
class Task:
    """One increment (or partition) that has to be computed."""

    place: Place
    increment: int | None
    key: str
    reads: Reads
    discovered: pa.Table | None = None


@dataclass(frozen=True)
class TableOutcome:
    """What a materialization did to one table.

    Attributes:
        identifier: the table.
        computed: places that were computed, in order.
        unchanged: places that were left.
        version: data version of the whole table (of the partition, where one was asked for).
        latest: newest facts of the table, None where it holds nothing.
        checks: results of the audit, the worst over all places computed; empty where nothing was.
        seconds: wall-clock time of all that was computed.
    """

    identifier: str
    computed: tuple[str, ...]
    unchanged: tuple[str, ...]
    version: DataVersion
    latest: Materialization | None
    checks: tuple[CheckResult, ...]
    seconds: float


def materialize(lake: Lake, binding: Binding) -> tuple[TableOutcome, ...]:
    """Bring all tables of a binding up to date.

    Raises:
        AuditError: a blocking check failed; its table and all after it are as they were.
        InputError: an input has not been materialized.
        LeaseError: another writer held a table for too long.
        StepRunError: Spark failed.
    """
    lake.ledger.refresh()
    if not plan(lake, binding):
        return _outcomes(lake, binding, [], {}, 0.0)
    with table_leases(lake.catalogue, list(binding.tables), lake.wait_seconds):
        lake.ledger.refresh()
        computed: list[str] = []
        checks: dict[str, tuple[CheckResult, ...]] = {}
        started = time.monotonic()
        for task in _tasks(lake, binding):
            for identifier, results in _compute(lake, binding, task).items():
                checks[identifier] = _worst(checks.get(identifier, ()), results)
            computed.append(task.place.key)
        return _outcomes(lake, binding, computed, checks, time.monotonic() - started)


def plan(lake: Lake, binding: Binding) -> bool:
    """Whether anything has to be computed; one look at the ledger, no Spark."""
    return next(iter(_tasks(lake, binding)), None) is not None


def _tasks(lake: Lake, binding: Binding) -> Iterator[Task]:
    """The places to compute, in order; each is worked out after the one before it was recorded."""
    scope = binding.step.scope
    if binding.step.discover is not None:
        yield from _discovery_task(lake, binding)
    elif binding.partition is not None:
        yield from _task(lake, binding, binding.partition, None)
    elif scope is Scope.WHOLE:
        yield from _task(lake, binding, Place.whole(), None)
    elif scope is Scope.INTAKE:
        yield from _intake_task(lake, binding)
    elif scope is Scope.FROZEN:
        if not all("0" in lake.ledger.places(table) for table in binding.tables):
            yield from _task(lake, binding, Place.increment(0), 0)
    else:
        yield from _increment_tasks(lake, binding)


def _increment_tasks(lake: Lake, binding: Binding) -> Iterator[Task]:
    if binding.only is not None and binding.clock is None:
        yield from _task(lake, binding, Place.increment(binding.only), binding.only)
        return
    if binding.clock is None or lake.ledger.table(binding.clock) is None:
        raise InputError(
            f"{binding.tables[0]}: {binding.clock} has not been materialized; run `headrace run {binding.namespace}` first"
        )
    chained = ""
    for number in lake.ledger.increments(binding.clock):
        if binding.only not in (None, number):
            continue
        numbered = binding.step.numbered
        for task in _task(lake, binding, Place.increment(number, and_later=numbered), number, chained):
            yield task
        if numbered:
            chained = lake.ledger.increments(binding.tables[0])[number].step_key


def _task(lake: Lake, binding: Binding, place: Place, increment: int | None, chained: str = "") -> Iterator[Task]:
    """The task of one place, unless its key is known."""
    reads = reads_of(binding, lake.ledger, increment)
    key = step_key(
        step=binding.step.name,
        version=binding.step.version,
        config=config_json(binding.config),
        inputs=versions_of(reads),
        place=place.key,
        chained=chained,
    )
    rows = [lake.ledger.places(table).get(place.key) for table in binding.tables]
    if any(row is None or row.step_key != key for row in rows):
        yield Task(place, increment, key, reads)


def _intake_task(lake: Lake, binding: Binding) -> Iterator[Task]:
    """The next increment of a corpus, where a dataset has increments that no earlier one took in."""
    own = lake.ledger.increments(binding.tables[0])
    taken: dict[str, set[str]] = {}
    for row in own.values():
        for table, facts in row.inputs.items():
            taken.setdefault(table, set()).update(facts["versions"])
    everything = reads_of(binding, lake.ledger, None)
    fresh: dict[str, tuple[Any, ...]] = {}
    for parameter, parts in everything.items():
        chosen = []
        for read in parts:
            versions = {p: v for p, v in read.versions.items() if p not in taken.get(read.table, set())}
            numbers = {int(place): int(place) for place in versions}
            if versions:
                chosen.append(type(read)(read.table, read.snapshot_id, versions, numbers, None, labelled=True))
        fresh[parameter] = tuple(chosen)
    if any(fresh.values()):
        number = max(own, default=-1) + 1
        key = step_key(
            step=binding.step.name,
            version=binding.step.version,
            config=config_json(binding.config),
            inputs=versions_of(fresh),
            place=str(number),
        )
        yield Task(Place.increment(number), number, key, fresh)


def _discovery_task(lake: Lake, binding: Binding) -> Iterator[Task]:
    """The next increment of a dataset, where its source has something new.

    After a change of config or code every file is looked at again; what comes out the same is not landed twice.
    """
    discover, seal = binding.step.discover, binding.tables[-1]
    if discover is None:
        raise InputError(f"{binding.tables[0]}: its step has no source to look at; bind its inputs to tables")
    sealed = lake.ledger.increments(seal)
    config = config_json(binding.config)
    iceberg = lake.ledger.table(seal)
    last = sealed[max(sealed)] if sealed else None
    as_before = last is not None and (last.config, last.code_version) == (config, binding.step.version)
    if iceberg is None or not as_before:
        known = binding.step.tables[-1].schema().as_arrow().empty_table()
    else:
        known = iceberg.scan().to_arrow()
    listing = discover(binding.config, known)
    if listing is None:
        return
    number = max(sealed, default=-1) + 1
    key = step_key(
        step=binding.step.name,
        version=binding.step.version,
        config=config,
        inputs={"listing": {"": _arrow_digest(listing)}},
        place=str(number),
    )
    yield Task(Place.increment(number), number, key, reads_of(binding, lake.ledger, number), listing)


def _arrow_digest(rows: pa.Table) -> str:
    """SHA-256 of a listing."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows.combine_chunks())
    return hashlib.sha256(sink.getvalue()).hexdigest()


def _compute(lake: Lake, binding: Binding, task: Task) -> dict[str, tuple[CheckResult, ...]]:
    """Compute, write, audit, publish and record one place; returns the checks by table."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    started = time.monotonic()
    numbered = binding.step.numbered
    previous = lake.ledger.increments(binding.tables[0]) if numbered else {}
    base = sum(row.row_count for number, row in previous.items() if number < (task.increment or 0))
    generation = _generation(lake, binding, task)
    for declared, identifier in zip(binding.step.tables, binding.tables, strict=True):
        ensure_table(lake.catalogue, identifier, declared, {SCOPE_PROPERTY: binding.step.scope.value})
    spark = lake.session()
    written: list[Written] = []
    output = Output({})
    try:
        given = frames(spark, binding, task.reads)
        if task.discovered is not None and binding.discovered is not None:
            given[binding.discovered] = spark.createDataFrame(task.discovered)
        returned = binding.call(given, lake.session, task.increment, base)
        output = returned if isinstance(returned, Output) else Output({binding.step.table.name: returned})
        _require_properties(lake, binding, task, output)
        for declared, identifier in zip(binding.step.tables, binding.tables, strict=True):
            frame = _with_increment(output.frames[declared.name], task.increment, declared.has_increments)
            written.append(
                write_to_branch(
                    spark,
                    lake.catalogue,
                    identifier,
                    declared,
                    frame,
                    task.place,
                    {**_summary(lake, binding, task), **generation},
                    run=uuid.uuid4().hex[:12],
                    laid_out=numbered,
                )
            )
        for one in written:
            require_passed(one)
    except (PySparkException, Py4JError, OSError) as error:
        _discard_all(lake, written)
        raise StepRunError(f"{binding.tables[0]}: {_reason(error)}") from error
    except SparkJobsError:
        _discard_all(lake, written)
        raise
    finally:
        for frame in output.persisted:
            frame.unpersist()
    properties = {**output.properties, **generation}
    rows = [_publish(lake, binding, task, properties, one, time.monotonic() - started) for one in written]
    lake.ledger.record(rows)
    for row in rows:
        _log.info("%s[%s]: %d rows in %.1f s", row.table, row.place, row.row_count, row.seconds)
    return {one.identifier: one.checks for one in written}


def _publish(
    lake: Lake, binding: Binding, task: Task, properties: Mapping[str, str], one: Written, seconds: float
) -> Materialization:
    """Publish one table, unless its rows are what is already there; returns the ledger's row."""
    before = lake.ledger.places(one.identifier).get(task.place.key)
    facts = Materialization(
        table=one.identifier,
        place=task.place.key,
        step=binding.step.name,
        step_key=task.key,
        data_version=one.version,
        code_version=binding.step.version,
        config=config_json(binding.config),
        inputs=snapshots_of(task.reads),
        snapshot_id=one.snapshot_id,
        sequence_number=one.sequence_number,
        table_uuid=one.table_uuid,
        row_count=one.row_count,
        byte_count=one.byte_count,
        seconds=round(seconds, 3),
        run_id=lake.run_id,
        git_commit=git_commit(),
    )
    if before is not None and before.data_version == one.version and _still_there(lake, binding, task, before):
        discard(lake.catalogue, one)
        return replace(
            facts,
            snapshot_id=before.snapshot_id,
            sequence_number=before.sequence_number,
            byte_count=before.byte_count,
        )
    publish(lake.catalogue, one, facts, properties if one.identifier == binding.tables[0] else {})
    return facts


def _still_there(lake: Lake, binding: Binding, task: Task, before: Materialization) -> bool:
    """Whether the rows of an earlier materialization are in the table: a numbered one loses what follows a rebuild."""
    if not binding.step.numbered:
        return True
    rows = lake.ledger.increments(before.table)
    earlier = [row.sequence_number for number, row in rows.items() if number < (task.increment or 0)]
    return before.sequence_number > max(earlier, default=-1)


def _generation(lake: Lake, binding: Binding, task: Task) -> dict[str, str]:
    """For numbered tables: a new generation when an ordinal may come to mean another row, never for an append."""
    if not binding.step.numbered:
        return {}
    table = lake.ledger.table(binding.tables[0])
    current = table.properties.get(GENERATION_PROPERTY) if table is not None else None
    later = [number for number in lake.ledger.increments(binding.tables[0]) if number >= (task.increment or 0)]
    if current is not None and not later:
        return {GENERATION_PROPERTY: current}
    return {GENERATION_PROPERTY: hashlib.sha256(f"{current}\0{task.key}".encode()).hexdigest()[:16]}


def _require_properties(lake: Lake, binding: Binding, task: Task, output: Output) -> None:
    """Refuse properties other than the table's, unless this increment replaces all there is.

    Raises:
        TableMismatchError: names the property.
    """
    table = lake.catalogue.load_table(binding.tables[0])
    earlier = [number for number in lake.ledger.increments(binding.tables[0]) if number < (task.increment or 0)]
    for name, value in output.properties.items():
        have = table.properties.get(name)
        if have is not None and have != value and earlier:
            raise TableMismatchError(
                f"{binding.tables[0]}: {name} of the table is {have}, of the new rows {value}; pack with the table's own "
                f"setting, or start over with `headrace corpus refreeze {binding.namespace}`"
            )


def _with_increment(frame: DataFrame, increment: int | None, wanted: bool) -> DataFrame:
    from pyspark.sql import functions as F

    return frame.withColumn("increment", F.lit(increment or 0)) if wanted else frame


def _summary(lake: Lake, binding: Binding, task: Task) -> dict[str, str]:
    """What the snapshot's summary says; short, because readers load every summary with the table."""
    snapshots = {table: facts["snapshot_id"] for table, facts in snapshots_of(task.reads).items()}
    values = {
        "headrace.step": binding.step.name,
        "headrace.step-key": task.key,
        "headrace.code-version": binding.step.version,
        "headrace.place": task.place.key,
        "headrace.inputs": ",".join(f"{table}@{snapshot}" for table, snapshot in sorted(snapshots.items())),
        "headrace.run-id": lake.run_id,
    }
    commit = git_commit()
    return {**values, "headrace.git-commit": commit} if commit else values


def _discard_all(lake: Lake, written: list[Written]) -> None:
    for one in written:
        discard(lake.catalogue, one)


def _reason(error: Exception) -> str:
    """The line of a Spark failure that says what happened: a Python worker's own error, or the deepest cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any("No space left on device" in line for line in lines):
        return "the disk is full; free some space and run again, nothing was published"
    python = [line for line in lines if _PYTHON_ERROR.match(line)]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    java = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    chosen = (python[-1:] or causes[-1:] or java[:1] or lines[:1] or [type(error).__name__])[0]
    return f"{chosen[:500]}; the table is as it was, `--debug` shows the whole trace"


def _worst(before: tuple[CheckResult, ...], now: tuple[CheckResult, ...]) -> tuple[CheckResult, ...]:
    failed = {check.name for check in before if not check.passed}
    return tuple(check for check in before if check.name in failed) + tuple(c for c in now if c.name not in failed)


def _outcomes(
    lake: Lake, binding: Binding, computed: list[str], checks: Mapping[str, tuple[CheckResult, ...]], seconds: float
) -> tuple[TableOutcome, ...]:
    """What is there now, by table."""
    found = []
    for identifier in binding.tables:
        places = lake.ledger.places(identifier)
        if binding.partition is not None:
            places = {key: row for key, row in places.items() if key == binding.partition.key}
        version = sum((row.data_version for row in places.values()), DataVersion())
        latest = max(places.values(), key=lambda row: row.sequence_number, default=None)
        unchanged = tuple(place for place in places if place not in computed)
        found.append(
            TableOutcome(
                identifier, tuple(computed), unchanged, version, latest, checks.get(identifier, ()), round(seconds, 3)
            )
        )
    return tuple(found)


@functools.cache
def git_commit() -> str | None:
    """Commit of the checkout that this code runs from; None outside of one."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
