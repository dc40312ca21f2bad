"""What `python -m spark_jobs STEP` does: run a step on tables of the lake or Parquet files, into either of them."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel

from headrace.tables.catalogue import load_table
from headrace.tables.quarantine import quarantine_that_holds
from headrace.tables.settings import LakeSettings, load_settings
from spark_jobs.exceptions import AuditError, ConfigError, InputError, StepRunError
from spark_jobs.lake.declare.step import Step
from spark_jobs.lake.declare.tables import Table, check_identifier, spark_schema
from spark_jobs.lake.engine.arrangement import release
from spark_jobs.lake.files.audit import Evidence, audit_frame, proof_results
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.files.rows import path_rows, table_rows
from spark_jobs.lake.files.write import conform
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.materialization import TableSlice
from spark_jobs.lake.plan.binding import Binding, Source, tables_of
from spark_jobs.lake.plan.reads import files_size, is_path, refuse_quarantined_path
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.lake.session.session import start_session
from spark_jobs.lake.session.shuffle_partitions import follow_input
from spark_jobs.lake.session.spark_errors import failure_line
from spark_jobs.spark_sql import DataFrame, F, SparkSession


def run_step(
    step: Step,
    config: BaseModel,
    inputs: Mapping[str, str],
    output: str,
    follow: str | None = None,
    increment: int | None = None,
) -> Iterator[str]:
    """Run a step and give a line for every table or file written.

    Args:
        step: what to compute.
        config: its config.
        inputs: by parameter, a table, tables separated by commas, or a path of Parquet files.
        output: `namespace.table` (side tables go to the same namespace) or a path.
        follow: table whose increments are followed.
        increment: the one to compute; without it all that are new, or 0 where no input is a table.

    Raises:
        ConfigError: an input is missing or unknown.
        SparkJobsError: as `materialize`.
    """
    settings = load_settings()
    sources: dict[str, Source] = {name: _source(text) for name, text in inputs.items()}
    if is_path(output):
        yield from _in_one_line(step, _to_parquet(settings, step, config, sources, Path(output), increment or 0))
        return
    namespace, _, name = output.partition(".")
    if name != step.table.name:
        raise ConfigError(f"--output {output}: the step {step.name} writes the table {step.table.name}; name it so")
    for table in step.tables:
        if sources.pop(table.name, None) is not None:
            raise ConfigError(f"--input {table.name}: the step reads its own table {output}; leave this input out")
    tables = [source for source in sources.values() if isinstance(source, str) and not is_path(source)]
    binding = Binding(
        step=step,
        namespace=namespace,
        inputs=sources,
        config=config,
        driving_table=follow or (tables[0] if tables else None),
        only=increment if increment is not None or tables or step.discover is not None else 0,
    )
    catalogue = open_catalogue(settings)
    lake = Lake(catalogue, Ledger(catalogue), lambda: start_session(settings))
    for outcome in materialize(lake, binding):
        done = f"computed {', '.join(outcome.computed)} in {outcome.seconds:.1f} s" if outcome.computed else "unchanged"
        yield f"{outcome.identifier}: {outcome.version.count} rows, {done}, version {outcome.version}"


def _source(text: str) -> Source:
    """One table or path, or several; paths are made absolute, since a running JVM may have another working folder."""
    parts = tuple(os.path.abspath(part) if _is_local(part) else part for part in text.split(","))
    return parts if len(parts) > 1 else parts[0]


def _is_local(text: str) -> bool:
    return is_path(text) and "://" not in text


def _in_one_line(step: Step, lines: Iterator[str]) -> Iterator[str]:
    """Pass lines on, and turn a failure of Spark into an error of one line.

    Raises:
        StepRunError: Spark failed.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield from lines
    except (PySparkException, Py4JError, OSError) as error:
        raise StepRunError(f"{step.name}: {failure_line(error)}") from error


def _to_parquet(
    settings: LakeSettings,
    step: Step,
    config: BaseModel,
    sources: Mapping[str, Source],
    path: Path,
    increment: int,
) -> Iterator[str]:
    """Compute one increment into Parquet files in `path`, with side tables in a folder of it for each table."""
    unknown = [name for name in sources if name not in (*step.inputs, *(table.name for table in step.tables))]
    if unknown:
        raise ConfigError(f"{step.name}: input {unknown[0]} is unknown; its inputs are {', '.join(step.inputs)}")
    missing = [
        name for name in step.required_inputs if name not in sources and (not step.discover or name != step.inputs[0])
    ]
    if missing:
        raise ConfigError(f"{step.name}: input {missing[0]} is missing; give --input {missing[0]}=TABLE_OR_PARQUET")
    _require_there(settings, sources)
    spark = start_session(settings)
    tables = tables_of(*sources.values())
    if all(_is_local(table) for table in tables):
        follow_input(spark, map(files_size, tables))
    frames = {name: _read(spark, source) for name, source in sources.items()}
    for history_table in step.own_history:
        if history_table.name not in frames:
            frames[history_table.name] = spark.createDataFrame([], spark_schema(history_table))
    if step.discover is not None and step.inputs[0] not in frames:
        listing = step.discover(config, step.tables[-1].schema().as_arrow().empty_table(), False, None)
        if listing is None:
            raise InputError(f"{step.name}: its source has nothing to read; check the config")
        frames[step.inputs[0]] = spark.createDataFrame(listing)
    binding = Binding(step, "program", {}, config, driving_table="program.arrivals", unbound=True)
    output = binding.call(frames, lambda: spark, increment, 0, ObjectFolder(f"{path.absolute()}/landed"))
    for table in step.tables:
        target = path if len(step.tables) == 1 else path / table.name
        count = _write(spark, table, output.frames[table.name], target.absolute(), Evidence(frames, increment, config))
        yield f"{target}: {count} rows"
    for frame in output.persisted:
        release(frame)


def _require_there(settings: LakeSettings, sources: Mapping[str, Source]) -> None:
    """Refuse files and tables that do not exist before a session is started.

    Raises:
        InputError: names the first one.
    """
    everything = tables_of(*sources.values())
    for place in everything:
        if _is_local(place) and not Path(place).exists():
            raise InputError(f"{place}: no such file or folder; give --input NAME=TABLE_OR_PARQUET")
    for place in everything:
        refuse_quarantined_path(settings.warehouse, "output", place)
    tables = [place for place in everything if not is_path(place)]
    catalogue = open_catalogue(settings) if tables else None
    for table in tables:
        check_identifier(table)
        loaded = load_table(catalogue, table) if catalogue is not None else None
        if loaded is None:
            raise InputError(f"{table}: there is no such table; give --input NAME=TABLE_OR_PARQUET")
        if quarantine := quarantine_that_holds(table, loaded.properties):
            raise InputError(
                f"{table}: is quarantined in {quarantine}, so it cannot become files; release its increments first"
            )


def _read(spark: SparkSession, source: Source) -> DataFrame:
    """A path or a table as it is now; several tables as their union with a column `dataset`."""
    if isinstance(source, str):
        return path_rows(spark, source) if is_path(source) else table_rows(spark, source)
    parts = [_read(spark, table).withColumn("dataset", F.lit(table.split(".")[0])) for table in source]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part)
    return whole


def _write(spark: SparkSession, table: Table, frame: DataFrame, target: Path, evidence: Evidence) -> int:
    """Write rows beside the target, audit them and rename; gives their number, from the footers of the files."""
    increment = evidence.increment or 0
    if table.has_increments:
        frame = frame.withColumn("increment", F.lit(increment))
    rows = conform(frame, spark_schema(table), str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    try:
        rows.write.parquet(str(beside))
        place = TableSlice.increment(increment) if table.has_increments else TableSlice.whole()
        landed = spark.read.parquet(str(beside))
        checks = (*audit_frame(landed, table, place), *proof_results(table, landed, evidence))
        failed = [check for check in checks if not check.passed]
        if failed:
            reasons = "; ".join(map(str, failed))
            raise AuditError(f"{target}: audit failed, nothing was written: {reasons}", str(target), checks)
        if target.exists():
            shutil.rmtree(target)
        os.replace(beside, target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return spark.read.parquet(str(target)).count()
