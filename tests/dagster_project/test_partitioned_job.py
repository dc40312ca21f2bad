"""Jobs, schedules and sensors bring tables up to date whatever their partitions, each after what it reads."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from dagster_project import executor
from dagster_project.asset_options import AUTOMATION
from dagster_project.definitions import build
from dagster_project.executor import run_here
from dagster_project.partitioned_job import PARENT
from dagster_project.run_plan import plan_runs, without_partition
from headrace.tables.settings import load_settings
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.tiers import sampled
from tests.waiting import until

NAMES = dg.DynamicPartitionsDefinition(name="names")
KINDS = dg.StaticPartitionsDefinition(["code", "prose"])
DAYS = dg.DailyPartitionsDefinition(start_date="2026-11-01", end_date="2026-11-04")
# Of each table: what it reads, and its partitions.
TABLES: dict[str, tuple[tuple[str, ...], dg.PartitionsDefinition[str] | None]] = {
    "texts": ((), None),
    "by_kind": (("texts",), KINDS),
    "by_name": (("texts",), NAMES),
    "by_day": (("texts",), DAYS),
    "total": (("by_kind", "by_name"), None),
    "total_by_kind": (("total",), KINDS),
    "other": ((), None),
}
Ran = list[tuple[str, str | None]]


def declared(ran: Ran, fails: Callable[[str, str | None], bool] = lambda name, key: False) -> dg.Definitions:
    """A project with these tables, which note what is run of them."""

    def asset(name: str) -> dg.AssetsDefinition:
        inputs, partitions = TABLES[name]

        def table(context: dg.AssetExecutionContext) -> None:
            """As docs/start/projects.md shows it."""
            key = context.partition_key if partitions is not None else None
            if fails(name, key):
                raise dg.Failure("on purpose", allow_retries=False)
            ran.append((name, key))

        table.__annotations__["context"] = dg.AssetExecutionContext
        deps = [dg.AssetKey(["mine", one]) for one in inputs]
        return dg.asset(key=["mine", name], deps=deps, partitions_def=partitions, required_resource_keys={"lake"})(
            table
        )

    return build(dg.Definitions([asset(name) for name in TABLES]))


@pytest.fixture
def instance(lake_env: Path) -> Iterator[dg.DagsterInstance]:
    """An instance that knows two of the dynamic partitions."""
    with dg.DagsterInstance.ephemeral() as made:
        made.add_dynamic_partitions("names", ["ann", "bob"])
        yield made


ALL: Ran = [
    *(("texts", None), ("other", None)),
    *(("by_kind", kind) for kind in ("code", "prose")),
    *(("by_name", name) for name in ("ann", "bob")),
    *(("by_day", f"2026-11-0{day}") for day in (1, 2, 3)),
    ("total", None),
    *(("total_by_kind", kind) for kind in ("code", "prose")),
]


@sampled()
@pytest.mark.parametrize("job", ["everything", "mine"])
def test_a_job_computes_every_partition_after_what_it_reads(job: str, instance: dg.DagsterInstance) -> None:
    """Static, dynamic and time-window partitions, tables without any before and after them; by Dagster's executor."""
    ran: Ran = []
    made = declared(ran).resolve_job_def(job)
    result = made.execute_in_process(instance=instance)
    assert result.success and sorted(ran, key=str) == sorted(ALL, key=str)
    last = {name: max(at for at, (one, _) in enumerate(ran) if one == name) for name in TABLES}
    first = {name: min(at for at, (one, _) in enumerate(ran) if one == name) for name in TABLES}
    assert all(last[one] < first[name] for name, (inputs, _) in TABLES.items() for one in inputs)
    instance.add_dynamic_partitions("names", ["cid"])
    ran.clear()
    assert made.execute_in_process(instance=instance).success and ("by_name", "cid") in ran
    runs = instance.get_runs(dg.RunsFilter(tags={PARENT: result.run_id}))
    assert {run.tags.get("dagster/partition") for run in runs} == {None, *(key for _, key in ALL)}
    known = instance.get_materialized_partitions(dg.AssetKey(["mine", "by_day"]))
    assert known == {"2026-11-01", "2026-11-02", "2026-11-03"}


def test_the_nightly_schedule_asks_for_such_a_job(instance: dg.DagsterInstance) -> None:
    """Its run is one without a partition, of the job `everything`."""
    repository = declared([]).get_repository_def()
    with dg.build_schedule_context(instance, repository_def=repository) as context:
        asked = repository.get_schedule_def("nightly_ingest").evaluate_tick(context).run_requests
    assert asked is not None and [one.partition_key for one in asked] == [None]
    assert repository.get_schedule_def("nightly_ingest").job_name == "everything"


def test_a_failed_partition_holds_up_only_what_reads_the_table(instance: dg.DagsterInstance) -> None:
    """Other partitions and tables are computed, and the job's own error names what failed and what was left."""
    ran: Ran = []
    made = declared(ran, lambda name, key: (name, key) == ("by_kind", "code")).resolve_job_def("everything")
    result = made.execute_in_process(instance=instance, raise_on_error=False)
    assert not result.success
    message = result.get_step_failure_events()[0].step_failure_data.error.message  # type: ignore[union-attr]
    assert "mine.by_kind, mine.total, mine.total_by_kind: failed, or left because of one that failed" in message
    assert set(ALL) - set(ran) == {
        *(("by_kind", "code"), ("total", None)),
        *(("total_by_kind", kind) for kind in ("code", "prose")),
    }


@pytest.mark.nightly
def test_an_interruption_ends_the_job_whichever_run_takes_it(instance: dg.DagsterInstance) -> None:
    """The run inside or the one around it, beside each other in one process: no further run begins."""
    ran: Ran = []

    def interrupt(name: str, key: str | None) -> bool:
        if (name, key) == ("by_kind", "code"):
            os.kill(os.getpid(), signal.SIGINT)
            until(lambda: any(one.is_set() for one in executor._INTERRUPTED))
        return False

    job = declared(ran, interrupt).resolve_job_def("everything")
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    result = run_here(job, instance, quiet, raise_on_error=False)
    assert not result.success and ("total", None) not in ran


def test_a_project_without_partitions_has_jobs_of_its_assets(lake_env: Path) -> None:
    """One run of all of them, which the UI draws."""

    @dg.asset(key=["mine", "texts"])
    def texts() -> None:
        """No partitions."""

    job = build(dg.Definitions([texts])).resolve_job_def("everything")
    assert dg.AssetKey(["mine", "texts"]) in job.asset_layer.executable_asset_keys


def test_a_new_partition_is_requested_by_the_condition() -> None:
    """A dynamic key that is added, and a day that begins: each alone, once what it reads is there."""

    @dg.asset(automation_condition=AUTOMATION)
    def texts() -> None:
        """What they read."""

    @dg.asset(automation_condition=AUTOMATION, deps=[texts], partitions_def=NAMES)
    def by_name() -> None:
        """Dynamic."""

    days = dg.DailyPartitionsDefinition(start_date="2026-11-01")

    @dg.asset(automation_condition=AUTOMATION, deps=[texts], partitions_def=days)
    def by_day() -> None:
        """Of days."""

    definitions = dg.Definitions([texts, by_name, by_day])
    with dg.DagsterInstance.ephemeral() as instance:
        instance.report_runless_asset_event(dg.AssetMaterialization(texts.key, tags={"dagster/data_version": "a"}))
        instance.add_dynamic_partitions("names", ["ann"])
        cursor = None

        def requested(day: int) -> dict[str, set[str]]:
            nonlocal cursor
            now = datetime(2026, 11, day, 6, tzinfo=UTC)
            result = dg.evaluate_automation_conditions(definitions, instance, cursor=cursor, evaluation_time=now)
            cursor = result.cursor
            found = {key: result.get_requested_partitions(key) for key in (by_name.key, by_day.key)}
            return {key.to_user_string(): {str(one) for one in parts} for key, parts in found.items()}

        requested(3)
        assert requested(3) == {"by_name": set(), "by_day": set()}
        instance.add_dynamic_partitions("names", ["bob"])
        assert requested(4) == {"by_name": {"bob"}, "by_day": {"2026-11-03"}}


def test_a_table_without_a_partition_yet_is_named(lake_env: Path) -> None:
    """It is in no run of a plan, so a sentence says why; the other tables are planned."""
    definitions = declared([])
    keys = [dg.AssetKey(["mine", name]) for name in TABLES]
    catalogue = open_catalogue(load_settings())
    with dg.DagsterInstance.ephemeral() as instance:
        runs = plan_runs(definitions, keys, None, instance, Ledger.fresh(catalogue), catalogue)
    assert [text.split(" has ")[0] for text in without_partition(keys, runs)] == ["mine.by_name"]
