"""`headrace table check`: whether a step's rows are equal on both engines.

A process runs one engine, so each computes the rows in a process of its own, by the same command with `--engine`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import click

from dagster_project.cli.output import original_streams, print_json, print_table, say
from dagster_project.exceptions import CheckFailedError, CommandError, RunFailedError
from dagster_project.project.loading import load_definitions, open_lake, run_id_of
from spark_jobs.exceptions import AuditError, SparkJobsError, StepRunError, nearest
from spark_jobs.lake.engine.choice import ENGINE, SAIL, SPARK

_NAMES = {SAIL: "Sail", SPARK: "Spark"}
_PREFIX = "headrace: "
_CANNOT_BE_ASKED = 2


@click.command("check")
@click.argument("name", metavar="TABLE")
@click.option("--partition", help="compute this partition, where the table has partitions")
@click.option("--engine", type=click.Choice([*_NAMES]), help="compute on this engine alone, and compare nothing")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def check_table(name: str, partition: str | None, engine: str | None, as_json: bool) -> None:
    """Compute the newest increment of a TABLE on both engines, and say whether the rows are equal.

    The rows go to branches that are removed again, so the table stays as it is. The exit status is 3 where rows differ,
    4 where an engine cannot compute them. A step of your own whose rows are equal may say `any_engine=True`.
    """
    if engine is not None:
        os.environ[ENGINE] = engine
        with original_streams(), _prints_to_stderr():
            return _print_computed(name, partition, as_json)
    by_engine = {engine_name: _computed(name, partition, engine_name) for engine_name in _NAMES}
    tables = [_compared(*pair) for pair in zip(*by_engine.values(), strict=True)]
    if as_json:
        print_json(tables)
    else:
        print_table([{**table, "differs": ", ".join(table["differs"]) or "nothing"} for table in tables])
    if apart := [table for table in tables if table["differs"]]:
        first = apart[0]
        raise CheckFailedError(
            f"{first['table']}: Sail and Spark give other rows ({', '.join(first['differs'])}); leave out "
            "any_engine=True, or use what both answer alike (docs/extend/sql.md)"
        )
    if not as_json:
        say("The rows are equal on both engines.")


def _compared(on_sail: dict[str, Any], on_spark: dict[str, Any]) -> dict[str, Any]:
    """One table: how many rows each engine gave, and what differs: columns, or `rows` where no single column does."""
    columns = [name for name, version in on_sail["columns"].items() if on_spark["columns"].get(name) != version]
    is_equal = on_sail["version"] == on_spark["version"]
    return {
        "table": on_sail["table"],
        "increment": on_sail["place"],
        "rows_on_sail": on_sail["row_count"],
        "rows_on_spark": on_spark["row_count"],
        "differs": [] if is_equal else columns or ["rows"],
    }


def _computed(name: str, partition: str | None, engine: str) -> list[dict[str, Any]]:
    """What one engine gives, by a process of its own.

    Raises:
        CommandError: the table cannot be computed once more.
        RunFailedError: the engine cannot compute it.
    """
    command = [sys.executable, "-m", "dagster_project.cli", "table", "check", name, "--engine", engine, "--json"]
    command += ["--partition", partition] if partition is not None else []
    # PySpark leaves a mark of the engine that this process runs, if it runs one.
    inherited = {name: value for name, value in os.environ.items() if name != "SPARK_CONNECT_MODE_ENABLED"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=inherited)
    if done.returncode == 0:
        computed: list[dict[str, Any]] = json.loads(done.stdout)
        return computed
    errors = [line.removeprefix(_PREFIX) for line in done.stderr.splitlines() if line.startswith(_PREFIX)]
    error = errors[-1] if errors else ""
    if done.returncode == _CANNOT_BE_ASKED:
        raise CommandError(error)
    raise RunFailedError(f"on {_NAMES[engine]}: {error or f'the process ended with status {done.returncode}'}")


@contextlib.contextmanager
def _prints_to_stderr() -> Iterator[None]:
    """Let what modules and steps of the project print go to standard error: standard output has the answer alone."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _print_computed(name: str, partition: str | None, as_json: bool) -> None:
    """Compute the rows on the engine of this process, and print their data versions."""
    import dagster as dg

    from dagster_project.lake_asset import declared_asset, declared_binding
    from spark_jobs.lake.run.again import recomputed

    graph = load_definitions().resolve_asset_graph()
    lake = open_lake(run_id_of("table check"))
    asset = declared_asset(graph, name)
    if asset is None:
        tables = [".".join(key.path) for key in graph.get_all_asset_keys()]
        raise CommandError(f"table {name}: no step of this project makes it{nearest(name, tables)}")
    if (asset.partitions_def is None) != (partition is None):
        mend = "name one of its partitions with" if partition is None else "it has no partitions; leave out"
        raise CommandError(f"table {name}: {mend} --partition")
    binding = declared_binding(name, graph, lake.catalogue, partition)
    if binding is None:
        raise CommandError(f"table {name}: its config has fields without a default, which only a run gives")
    binding = replace(binding, arguments={"context": dg.build_asset_context(partition_key=partition)})
    try:
        rows = [asdict(table) for table in recomputed(lake, binding)]
    except (StepRunError, AuditError) as error:  # of the engine, not of what was asked
        raise RunFailedError(str(error)) from error
    except SparkJobsError:
        raise
    except Exception as error:  # a function of a user's may raise anything
        raise RunFailedError(f"{name}: {type(error).__name__}: {error}") from error
    if as_json:
        return print_json(rows)
    print_table([{key: value for key, value in row.items() if key != "columns"} for row in rows])
