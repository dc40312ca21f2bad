"""Bring the tables of a step up to date: every increment whose step key is new is computed, all others are left.

    plan      from the ledger alone: which increments are there, which of their keys are known   (no Spark)
    try       on some shards, where the run is rolled out (`rollout`)
    compute   read the inputs at their heads, call the step, write to a branch, audit            (under the lease)
    publish   main moves; nothing is published where the rows are the same as before             (early cut-off)
    record    all tables of a step or of a whole run, in one commit of the ledger

Dagster's assets, `headrace run` and `python -m spark_jobs` all compute through this module.
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable

from headrace.tables.catalogue import again_if_disconnected
from headrace.tables.window_facts import GENERATION_PROPERTY
from spark_jobs.exceptions import CheckResult, LeaseError, SparkJobsError, StepMemoryError, StepRunError
from spark_jobs.lake.declare.step import Output, Scope, Standing
from spark_jobs.lake.engine.arrangement import release
from spark_jobs.lake.engine.choice import SAIL, SPARK
from spark_jobs.lake.engine.embedded import give_back_memory, is_embedded
from spark_jobs.lake.files.audit import Evidence
from spark_jobs.lake.files.branches import Written, discard, note_properties, publish, require_passed
from spark_jobs.lake.files.data_files import with_constant
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.files.rows import table_rows
from spark_jobs.lake.files.write import WriteTarget, prove, write_to_branch
from spark_jobs.lake.ledger.attempts import attempt, keep_trace
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.digests import digest
from spark_jobs.lake.ledger.lease import WAIT_SECONDS, Leases, table_leases
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.materialization import Materialization, TableSlice
from spark_jobs.lake.ledger.step_key import config_json
from spark_jobs.lake.plan.binding import Binding, tables_of
from spark_jobs.lake.plan.decisions import refuse_around_quarantine
from spark_jobs.lake.plan.excisions import excisions_in
from spark_jobs.lake.plan.plan import Task, first_surplus_increment, tasks
from spark_jobs.lake.plan.reads import sizes_of
from spark_jobs.lake.plan.reasons import changed_columns, keeps_rows
from spark_jobs.lake.run.frames import frames
from spark_jobs.lake.run.no_news import has_no_news, note_read_again
from spark_jobs.lake.run.outcomes import TableOutcome, outcomes, worst
from spark_jobs.lake.run.provenance import generation_of, git_commit, require_properties, sampled, summary_of
from spark_jobs.lake.run.rollout import TrialConfig, can_be_tried, try_on_shards
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, catalogue_errors, ensure_table
from spark_jobs.lake.session.session import metered
from spark_jobs.lake.session.shuffle_partitions import follow_input, listed_size
from spark_jobs.lake.session.spark_errors import failure_line, is_out_of_memory, lost_database
from spark_jobs.lake.session.tidiness import KEPT_SECONDS, KEPT_SNAPSHOTS, expire_surplus
from spark_jobs.spark_sql import DataFrame, F, SparkSession

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lake:
    """An open lake: its catalogue, its ledger, and a Spark session that starts when it is first needed.

    Attributes:
        rollout: if set, steps are tried on some shards before they are computed.
        fetches: whether steps ask their sources; False if the run has done so already.
        gathers: whether rows of the ledger wait until the caller writes them (`Ledger.write`), for all steps of a run.
        leases: of the tables that are being written.
    """

    catalogue: Catalog
    ledger: Ledger
    session: Callable[[], SparkSession]
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    wait_seconds: float = WAIT_SECONDS
    rollout: TrialConfig | None = None
    fetches: bool = True
    gathers: bool = False
    leases: Leases | None = None


def materialize(lake: Lake, binding: Binding) -> tuple[TableOutcome, ...]:
    """Bring all tables of a binding up to date.

    Raises:
        AuditError: a blocking check failed; its table and all after it are as they were.
        InputError: an input has not been materialized.
        LeaseError: another writer held a table for too long, or took it over meanwhile.
        RolloutError: a trial on some shards moved too far.
        StepRunError: Spark failed.
        CatalogueError: the catalogue's database failed.
    """
    with catalogue_errors():
        # A second try finds the places that the first one published, and goes on after them.
        try:
            return again_if_disconnected(_materialize, lake, binding)
        finally:
            if not lake.gathers:
                lake.ledger.write()


def _materialize(lake: Lake, binding: Binding) -> tuple[TableOutcome, ...]:
    lake.ledger.refresh()
    if binding.step.fetch is not None and lake.fetches:
        refuse_around_quarantine(lake.ledger, binding)
        binding.fetch(lake.catalogue, lake.wait_seconds)
        lake.ledger.refresh()
    if first_surplus_increment(lake.ledger, binding) is None and next(tasks(lake.ledger, binding), None) is None:
        _make_driving_table(lake, binding)
        return outcomes(lake.ledger, binding, [], {}, 0.0)
    with table_leases(lake.catalogue, list(binding.tables), lake.wait_seconds) as leases:
        lake = replace(lake, leases=leases)
        lake.ledger.refresh()
        lake.ledger.settle(binding.tables)
        since = first_surplus_increment(lake.ledger, binding)
        if mismatch := changed_columns(lake.ledger, binding):
            _log.info("%s: recomputed, %s", binding.tables[0], mismatch)
            lake.ledger.forget(binding.tables)
        elif since is not None:
            lake.ledger.forget(binding.tables, since)
        computed: list[str] = []
        checks: dict[str, tuple[CheckResult, ...]] = {}
        started = time.monotonic()
        for task in tasks(lake.ledger, binding):
            results = _compute_with_retry(lake, binding, task)
            for identifier, of_table in results.items():
                checks[identifier] = worst(checks.get(identifier, ()), of_table)
            computed += [task.place.key] if results else []
        for table in filter(None, map(lake.ledger.table, binding.tables if computed else ())):
            expire_surplus(lake.catalogue, table, KEPT_SNAPSHOTS, KEPT_SECONDS)
        return outcomes(lake.ledger, binding, computed, checks, time.monotonic() - started)


def _make_driving_table(lake: Lake, binding: Binding) -> None:
    """Make the empty tables of a driving table's step, if all of its increments are still in quarantine."""
    if binding.step.gate or binding.step.scope is Scope.INTAKE:
        for declared, identifier in zip(binding.step.tables, binding.tables, strict=True):
            if lake.ledger.table(identifier) is None:
                ensure_table(lake.catalogue, identifier, declared, {SCOPE_PROPERTY: binding.step.scope.value})


def _compute_with_retry(lake: Lake, binding: Binding, task: Task) -> dict[str, tuple[CheckResult, ...]]:
    """`_compute`, and once more if the catalogue's database went away while it ran.

    Spark's catalogue, unlike PyIceberg's (`catalogue._connect_again`), does not wait for a database that is restarted.
    """
    try:
        return _compute(lake, binding, task)
    except StepRunError as error:
        if not lost_database(error.__cause__):
            raise
        _log.warning("%s; the step runs once more", error)
    lake.ledger.refresh()  # which waits for the database
    return _compute(lake, binding, task)


def _compute(lake: Lake, binding: Binding, task: Task) -> dict[str, tuple[CheckResult, ...]]:
    """Compute, write, audit, publish and record one place; returns the checks by table, none where nothing is new."""
    started = time.monotonic()
    lake.ledger.make_room(binding.tables)
    generation = generation_of(lake.ledger, binding, task)
    on_sail = is_embedded(lake.session())
    try:
        with (
            attempt(lake.catalogue, binding.tables[0]),
            metered(lake.session(), f"{binding.tables[0]}[{task.place.key}]") as core_seconds,
        ):
            properties, written = write_task(lake, binding, task, generation)
            spent = core_seconds()
    finally:
        if on_sail:
            give_back_memory()
    if has_no_news(lake.session(), lake.ledger, binding, task, written):
        discard_all(lake, written)
        note_read_again(lake.ledger, binding)
        return {}
    try:
        rows = [
            _publish(
                lake, binding, task, {**properties, **generation}, table_written, time.monotonic() - started, spent
            )
            for table_written in written
        ]
    except LeaseError:
        discard_all(lake, written)
        raise
    lake.ledger.gather(rows)
    for row in rows:
        _log.info("%s[%s]: %d rows in %.1f s", row.table, row.place, row.row_count, row.seconds)
    return {table_written.identifier: table_written.checks for table_written in written}


def write_task(
    lake: Lake, binding: Binding, task: Task, generation: Mapping[str, str]
) -> tuple[Mapping[str, str], list[Written]]:
    """Call the step, write its rows to branches and audit them; returns the table properties and the branches."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    scope = {SCOPE_PROPERTY: binding.step.scope.value}
    stay = keeps_rows(lake.ledger, binding)
    ready = [
        ensure_table(lake.catalogue, identifier, declared, scope, stay)
        for declared, identifier in zip(binding.step.tables, binding.tables, strict=True)
    ]
    summary = {**summary_of(lake.run_id, binding, task), **generation}
    written: list[Written] = []
    output = Output({})
    spark = lake.session()
    try:
        inputs = _inputs(lake, binding, task)
        guarded = _guarded(lake, binding, task, ready[0], inputs)
        if lake.rollout is not None and can_be_tried(binding):
            there = list(lake.ledger.increments(binding.tables[0]))
            number, base = task.increment or 0, _base(lake, binding, task)
            try_on_shards(lake.rollout, spark, binding, number, base, inputs, there)
        output = binding.call(
            inputs,
            lake.session,
            task.increment,
            _base(lake, binding, task),
            ObjectFolder.of(lake.catalogue, binding.namespace),
            lake.catalogue,
        )
        require_properties(lake.ledger, binding, task, ready[0], output)
        for declared, table, identifier in zip(binding.step.tables, ready, binding.tables, strict=True):
            frame = _with_increment(output.frames[declared.name], task.increment, declared.has_increments)
            target = WriteTarget(identifier, declared, task.place, laid_out=binding.step.numbered)
            arrow_rows = output.arrow_rows.get(declared.name)
            if arrow_rows is not None and declared.has_increments:
                arrow_rows = with_constant(arrow_rows, "increment", task.increment or 0)
            output_facts = output.properties if declared is binding.step.table else {}
            snapshot_facts = {**output_facts, **output.summary, **summary}
            landed = write_to_branch(spark, lake.catalogue, table, target, frame, snapshot_facts, arrow_rows)
            written.append(landed)
            written[-1] = prove(spark, landed, target, Evidence(inputs, task.increment, binding.config))
        for table_written in written:
            require_passed(table_written)
        described = sampled(lake.catalogue, binding, task, written[0], output)
    except (PySparkException, Py4JError, OSError) as error:
        discard_all(lake, written)
        kind = StepMemoryError if is_out_of_memory(error) else StepRunError
        line = failure_line(error, keep_trace(lake.catalogue, binding.tables[0], error))
        raise kind(f"{binding.tables[0]}: {line}") from error
    except SparkJobsError:
        discard_all(lake, written)
        raise
    finally:
        with contextlib.suppress(PySparkException, Py4JError, OSError):  # a JVM that died holds nothing any more
            for frame in output.persisted:
                release(frame)
    return {**output.properties, **guarded, **described}, written


def _guarded(
    lake: Lake, binding: Binding, task: Task, table: IcebergTable, frames_read: Mapping[str, DataFrame]
) -> Mapping[str, str]:
    """The properties that the step's guard sets; it raises where an increment would not agree with earlier ones."""
    if binding.step.guard is None:
        return {}
    earlier = any(number < (task.increment or 0) for number in lake.ledger.increments(binding.tables[0]))
    inputs = {name: tables_of(source) for name, source in binding.inputs.items()}
    return binding.step.guard(binding.config, frames_read, Standing(lake.catalogue, table, inputs) if earlier else None)


def _inputs(lake: Lake, binding: Binding, task: Task) -> dict[str, DataFrame]:
    """The inputs of the step, by parameter; their size also sets the session's number of shuffle partitions."""
    spark = lake.session()
    sizes = sizes_of(task.reads, lake.ledger)
    if task.discovered is not None:  # a step at the source reads only identities of its own history
        sizes = [listed_size(task.discovered)]
    follow_input(spark, sizes)
    inputs = frames(spark, binding, task.reads)
    if task.discovered is not None and binding.discovered is not None:
        inputs[binding.discovered] = spark.createDataFrame(task.discovered)
    return inputs


def _base(lake: Lake, binding: Binding, task: Task) -> int:
    """Number of rows in earlier increments, from which a table with numbered rows goes on; 0 for other tables."""
    previous = lake.ledger.increments(binding.tables[0]) if binding.step.numbered else {}
    return sum(row.row_count for number, row in previous.items() if number < (task.increment or 0))


def _publish(
    lake: Lake,
    binding: Binding,
    task: Task,
    properties: Mapping[str, str],
    written: Written,
    seconds: float,
    spent: float,
) -> Materialization:
    """Publish one table, unless its rows are the same as before; returns the ledger's row."""
    before = lake.ledger.places(written.identifier).get(task.place.key)
    facts = Materialization(
        table=written.identifier,
        place=task.place.key,
        step=binding.step.name,
        step_key=task.key,
        data_version=written.version,
        code_version=binding.step.version,
        config=config_json(binding.config),
        inputs=task.inputs,
        snapshot_id=written.snapshot_id,
        sequence_number=written.sequence_number,
        table_uuid=written.table_uuid,
        row_count=written.row_count,
        byte_count=written.byte_count,
        seconds=round(seconds, 3),
        core_seconds=round(spent, 3),
        run_id=lake.run_id,
        git_commit=git_commit(),
        engine=SAIL if is_embedded(lake.session()) else SPARK,
    )
    if before is not None and _has_equal_rows(lake, before, task.place, written.version):
        discard(lake.catalogue, written)
        if written.identifier == binding.tables[0]:
            facts_of_rows = {name: value for name, value in properties.items() if name != GENERATION_PROPERTY}
            note_properties(lake.catalogue, written.identifier, facts_of_rows)
        return replace(
            facts,
            data_version=before.data_version,
            snapshot_id=before.snapshot_id,
            sequence_number=before.sequence_number,
            byte_count=before.byte_count,
        )
    # The table property leaves the inputs out, since those of scope history grow with every increment. The inputs of an
    # intake or a frozen table are few, and nothing else says what it took in, or whether it must be computed anew.
    kept = binding.step.scope in (Scope.INTAKE, Scope.FROZEN)
    stored = facts if kept else replace(facts, inputs=excisions_in(facts.inputs))
    publish(lake.catalogue, written, stored, properties if written.identifier == binding.tables[0] else {}, lake.leases)
    return facts


def _has_equal_rows(lake: Lake, before: Materialization, place: TableSlice, version: DataVersion) -> bool:
    """Whether what the ledger has of a place are rows of a data version.

    Rows whose version is of a former form are read again: where they are equal their version stays, so that nothing is
    computed downstream.
    """
    version_before = before.data_version
    if version_before.form == version.form or version_before.count != version.count:
        return version_before == version
    there = table_rows(lake.session(), before.table, condition=place.replaced)
    return digest(there.where(place.predicate)) == version


def _with_increment(frame: DataFrame, increment: int | None, wanted: bool) -> DataFrame:
    return frame.withColumn("increment", F.lit(increment or 0)) if wanted else frame


def discard_all(lake: Lake, written: list[Written]) -> None:
    """Remove the branches of rows that are not published."""
    for table_written in written:
        discard(lake.catalogue, table_written)
