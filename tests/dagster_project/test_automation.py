"""What runs a project by itself: jobs, schedules, sensors, and the condition that reruns what is stale."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import dagster as dg
import pytest

from dagster_project import automation
from dagster_project.asset_options import AUTOMATION
from dagster_project.cli import run_command
from dagster_project.deletion.retention import TASKS
from dagster_project.exceptions import SourceError
from dagster_project.project.loading import dagster_home, load_definitions, select
from dagster_project.resources import LakeResource
from headrace.tables.settings import load_settings
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.run.maintenance import MaintenanceResult
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.conftest import PACKAGE, WriteDefs
from tests.waiting import until

STATUS = dg.DagsterRunStatus
LAKE = {"lake": LakeResource()}
DATASET = """\
type: headrace.Dataset
attributes:
  name: notes
  source: {{kind: files, path: {path}}}
"""
CORPUS = """\
type: headrace.Corpus
attributes:
  name: small
  datasets: [notes]
  window_tokens: [64]
  tokenizer: {train: {vocabulary_size: 300}}
"""


def _note(name: str, thing: str) -> str:
    """A text that no rule rejects."""
    told = (f"On day {day} the {thing} had {day * 7} visitors, and rain fell for {day % 5} hours." for day in range(30))
    return f"# {name}\n\n" + "\n".join(told) + "\n"


@pytest.fixture
def notes(tmp_path: Path, declare: WriteDefs, lake_env: Path) -> Path:
    """The source of the dataset `notes`, which the corpus `small` takes in."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "one.md").write_text(_note("one", "mill"))
    declare("notes", DATASET.format(path=folder))
    declare("small", CORPUS)
    return folder


def test_jobs_are_there_and_what_runs_by_itself_is_off(notes: Path) -> None:
    """A job for all, one for each namespace, one for the sources; maintenance is in none of them but its own."""
    repository = load_definitions().get_repository_def()
    jobs = {job.name: job for job in repository.get_all_jobs()}
    assert {"everything", "ingest", "maintenance", "notes", "small"} <= set(jobs)
    selected = {name: {key.to_user_string() for key in jobs[name].asset_layer.executable_asset_keys} for name in jobs}
    assert selected["ingest"] == {"notes/arrivals", "notes/documents", "notes/provenance", "notes/repositories"}
    assert selected["everything"] == selected["notes"] | selected["small"] and len(selected["maintenance"]) == len(
        TASKS
    )
    assert {one.name: one.default_status.value for one in repository.schedule_defs} == {
        "nightly_ingest": "STOPPED",
        "weekly_maintenance": "STOPPED",
    }
    shown = [*repository.schedule_defs, *(one for one in repository.sensor_defs if one.name == "notes_files")]
    shown += [jobs[name] for name in ("everything", "ingest", "maintenance", "notes", "small")]
    assert not [one.name for one in shown if not one.description]
    sensors = {one.name: one.default_status.value for one in repository.sensor_defs}
    assert sensors == {"default_automation_condition_sensor": "STOPPED", "notes_files": "STOPPED"}
    assert not [key for key in select(load_definitions(), []) if key.path[0] == "maintenance"]


def test_no_job_but_its_own_trains_an_experiment(notes: Path, declare: WriteDefs) -> None:
    """Neither the nightly one, nor that of a dataset whose files changed, nor a run without a selection."""
    given = {"one": {"sources": {"small.packed_notes_64": 1}}, "other": {"blend": "mix"}}
    held_out = {"notes": {"dataset": "notes"}}
    trial = {"name": "trial", "variants": given, "budget_tokens": 1000, "held_out": held_out}
    declare("trial", json.dumps({"type": "headrace.Experiment", "attributes": trial}))
    repository = load_definitions().get_repository_def()
    runs = {
        job.name: {key.path[0] for key in job.asset_layer.executable_asset_keys} for job in repository.get_all_jobs()
    }
    training = {name for name, spaces in runs.items() if "trial" in spaces}
    assert {name for name in training if not name.startswith("__")} == {"trial"}  # Dagster's own job has all assets
    assert runs["everything"] == runs["notes_files"] == {"notes", "small"}
    assert {key.path[0] for key in select(load_definitions(), [])} == {"notes", "small"}


def test_a_sensor_runs_a_dataset_and_what_follows(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run at a time, none within five minutes of another; a state whose run failed is asked for again."""
    repository = load_definitions().get_repository_def()
    sensor = repository.get_sensor_def("notes_files")
    following = {
        key.path[0] for key in repository.get_job(sensor.targets[0].job_name).asset_layer.executable_asset_keys
    }
    assert following == {"notes", "small"}
    clock = SimpleNamespace(time=time.time)
    monkeypatch.setattr(automation, "time", clock)
    with dg.DagsterInstance.ephemeral() as instance:

        def look(minutes: float = 0) -> dg.SensorExecutionData:
            clock.time = lambda: time.time() + 60 * minutes
            with dg.build_sensor_context(instance, repository_def=repository, resources=LAKE) as context:
                return sensor.evaluate_tick(context)

        def asked(minutes: float = 0) -> dg.RunRequest:
            (request,) = look(minutes).run_requests or ()
            return request

        def run(request: dg.RunRequest) -> dg.DagsterRun:
            tags = {**request.tags, "dagster/sensor_name": "notes_files"}
            return instance.create_run_for_job(repository.get_job("notes"), tags=tags, status=STATUS.STARTED)

        first = asked()
        assert asked().run_key == first.run_key
        started = run(first)
        (notes / "two.md").write_text("# Two\n\nAnother.\n")
        assert f"run {started.run_id} is under way" in (look(600).skip_message or "")
        instance.report_run_failed(started)
        assert "the next run is asked for in" in (look(4).skip_message or "")
        second = asked(6)
        assert second.run_key != first.run_key, "what came meanwhile is one more state"
        instance.report_run_failed(run(second))
        assert look(9).skip_message
        keys = {first.run_key, second.run_key}
        monkeypatch.setattr(automation, "_SHOWN_RUNS", 2)
        for _ in range(4):  # as often as it takes: Dagster would leave a key that it has seen
            request = asked(61)
            assert request.run_key not in keys
            keys.add(request.run_key)
            instance.report_run_failed(run(request))
        for file in notes.iterdir():
            file.unlink()
        for _ in range(2):
            with pytest.raises(SourceError, match=r"notes: its source cannot be read, .* the source holds no file"):
                look()
        monkeypatch.setattr(automation, "tasks", Mock(side_effect=OSError(5, "Input/output\nerror")))
        with pytest.raises(SourceError) as raised:
            look()
        # Dagster shows an error of its own kind as it is, and any other as "Error occurred during the execution of ..".
        assert isinstance(raised.value, dg.DagsterError)
        assert str(raised.value) == "notes: its source could not be looked at: [Errno 5] Input/output error"


@dg.asset(automation_condition=AUTOMATION)
def first() -> None:
    """At the source."""


@dg.asset(automation_condition=AUTOMATION, deps=[first])
def second() -> None:
    """After it."""


@dg.asset(automation_condition=AUTOMATION, deps=[second])
def third() -> None:
    """After that."""


def test_what_is_stale_is_requested_once_and_early_cut_off_holds() -> None:
    """A chain is requested as one; new rows of an input are a reason, the same rows anew are none."""
    definitions = dg.Definitions([first, second, third])
    instance = dg.DagsterInstance.ephemeral()
    cursor = None

    def requested() -> set[str]:
        nonlocal cursor
        result = dg.evaluate_automation_conditions(definitions, instance, cursor=cursor)
        cursor = result.cursor
        return {key.to_user_string() for key in (first.key, second.key, third.key) if result.get_num_requested(key)}

    def made(key: dg.AssetKey, version: str) -> None:
        tags = {"dagster/data_version": version}
        instance.report_runless_asset_event(dg.AssetMaterialization(key, tags=tags))

    assert requested() == set(), "switching it on computes nothing"
    for asset in (first, second, third):
        made(asset.key, "a")
    assert requested() == set()
    made(first.key, "b")
    assert requested() == {"second", "third"}
    made(second.key, "a")
    made(third.key, "a")
    assert requested() == set(), "its rows came out as they were"
    made(first.key, "b")
    assert requested() == set(), "the same rows anew"
    instance.wipe_assets([first.key])
    made(second.key, "c")
    assert "third" in requested() and requested() == set()


@pytest.fixture
def daemon(notes: Path, tmp_path: Path, declare: WriteDefs) -> Iterator[Mapping[str, str]]:
    """Dagster's daemon on the project, with the sensor of the dataset switched on; gives the environment."""
    dagster_home()
    declare("notes", DATASET.format(path=notes) + "  seconds_between_runs: 0\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    module = ["-m", f"{PACKAGE}.definitions"]
    command = [sys.executable, "-m", "dagster._daemon", "run", *module]
    start = [sys.executable, "-m", "dagster", "sensor", "start", "notes_files", *module]
    subprocess.run(start, env=environment, check=True, capture_output=True)
    with (
        (tmp_path / "daemon.log").open("w") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True) as program,
    ):
        yield environment
        os.killpg(program.pid, signal.SIGINT)
        try:
            program.wait(60)
        finally:
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)


@pytest.mark.nightly
def test_a_daemon_follows_the_files(notes: Path, daemon: Mapping[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    """What lies there is packed; a file that comes is too; then nothing runs until another comes."""
    ledger = Ledger(open_catalogue(load_settings()))

    def increments() -> list[int]:
        ledger.refresh()
        return list(ledger.increments("small.packed_notes_64"))

    def runs() -> int:
        with dg.DagsterInstance.get() as instance:
            return instance.get_runs_count()

    def running() -> int:
        with dg.DagsterInstance.get() as instance:
            return instance.get_runs_count(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))

    until(lambda: increments() == [0])
    (notes / "two.md").write_text(_note("two", "channel"))
    until(lambda: increments() == [0, 1] and not running())
    count = runs()
    capfd.readouterr()
    assert run_command(["plan", "--json"]) == 0
    plan = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert {one["status"] for one in plan} == {"unchanged"}
    assert runs() == count == 2, "an unchanged source starts no run"


def test_a_task_of_maintenance_that_fails_stops_no_other(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Dagster too: the run fails and says of what, and every other task was done and is recorded."""

    def task(lake: Lake, days: float, dry_run: bool) -> Iterator[MaintenanceResult]:
        yield MaintenanceResult("notes.texts", 1, "done")

    def orphans(lake: Lake, days: float, dry_run: bool) -> Iterator[MaintenanceResult]:
        yield MaintenanceResult("notes.texts", 0, "No FileSystem for scheme s3", ValueError("No FileSystem"))

    for name in TASKS:
        monkeypatch.setitem(TASKS, name, orphans if name == "orphans" else task)
    job = load_definitions().resolve_job_def("maintenance")
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(instance=instance, raise_on_error=False)
        done = [event.asset_key.path[1] for event in result.get_asset_materialization_events() if event.asset_key]
        failure = result.failure_data_for_node("maintenance_tasks")
    assert not result.success and done == [name for name in TASKS if name != "orphans"]
    assert failure is not None and failure.user_failure_data is not None
    assert "first orphans: notes.texts: No FileSystem for scheme s3" in str(failure.user_failure_data.description)


PARTED = """\
import dagster as dg

from dagster_project.table_asset import table_asset
from spark_jobs.lake.declare.tables import Column, Table


def counts(table, partitions, kind, source):
    schema = Table(
        name="counts",
        comment="One row a partition: how many rows there were.",
        columns=(Column("part!", kind, "the partition"), Column("n!", "long", "rows read")),
        partition=("part",),
        key=("part",),
    )

    @table_asset(table=table, schema=schema, inputs={"source": source}, partitions_def=partitions)
    def counted(context, source):
        \"\"\"As docs/start/projects.md shows it.\"\"\"
        return source.groupBy().count().selectExpr(f"cast('{context.partition_key}' AS {kind}) AS part", "count AS n")

    return counted


def total(table, source):
    schema = Table(name="total", comment="Their sum.", columns=(Column("n!", "long", "the sum"),))

    @table_asset(table=table, schema=schema, inputs={"source": source})
    def summed(source):
        \"\"\"Of all partitions.\"\"\"
        return source.selectExpr("sum(n) AS n")

    return summed


KINDS = dg.StaticPartitionsDefinition(["code", "prose"])
DAYS = dg.DailyPartitionsDefinition(start_date="2026-11-01", end_date="2026-11-03")
by_kind = counts("notes.by_kind", KINDS, "string", "notes.texts")
by_name = counts("notes.by_name", dg.DynamicPartitionsDefinition(name="names"), "string", "notes.texts")
by_day = counts("notes.by_day", DAYS, "date", "notes.texts")
all_kinds = total("notes.all_kinds", "notes.by_kind")
of_kinds = counts("notes.of_kinds", KINDS, "string", "notes.all_kinds")
"""


@pytest.fixture
def parted(notes: Path, defs: Path) -> None:
    """Tables of a user over the dataset, in partitions of each kind, and some without before and after them."""
    (defs / "tables").mkdir()
    (defs / "tables" / "parted.py").write_text(PARTED)


@pytest.mark.nightly
def test_a_plan_has_a_line_for_many_partitions_of_a_table(
    notes: Path, parted: None, defs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """How many, the first and the last, for each reason; a few have a line each, and JSON names all."""
    file = defs / "tables" / "parted.py"
    many = [f"k{number:04}" for number in range(1200)]
    file.write_text(PARTED.replace('["code", "prose"]', repr(many)))
    assert run_command(["plan"]) == 0
    said = capfd.readouterr().out
    (line,) = [line for line in said.splitlines() if line.startswith("notes.by_kind ")]
    assert "1,200 slices: k0000 .. k1199" in line and len(said.splitlines()) < 80
    assert sum(line.startswith("notes.by_day ") for line in said.splitlines()) == 2
    assert run_command(["plan", "--json"]) == 0
    steps = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [step["partition"] for step in steps if step["table"] == "notes.by_kind"] == many


@pytest.mark.nightly
def test_a_daemon_brings_partitions_up_to_date(
    notes: Path, parted: None, daemon: Mapping[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    """The sensor's run and then one of `everything`: every partition that there is, a new one too; no run fails."""
    dagster_home()

    def made() -> dict[str, set[str]]:
        with dg.DagsterInstance.get() as instance:
            names = ("by_kind", "by_name", "by_day", "of_kinds")
            return {name: instance.get_materialized_partitions(dg.AssetKey(["notes", name])) for name in names}

    def statuses() -> set[str]:
        with dg.DagsterInstance.get() as instance:
            return {run.status.value for run in instance.get_runs()}

    days = {"2026-11-01", "2026-11-02"}
    until(lambda: statuses() == {"SUCCESS"} or "FAILURE" in statuses())
    assert made() == {"by_kind": {"code", "prose"}, "by_name": set(), "by_day": days, "of_kinds": {"code", "prose"}}
    with dg.DagsterInstance.get() as instance:
        instance.add_dynamic_partitions("names", ["ann"])
    command = [sys.executable, "-m", "dagster", "job", "launch", "-m", f"{PACKAGE}.definitions", "-j", "everything"]
    subprocess.run(command, env=daemon, check=True, capture_output=True)
    until(lambda: made()["by_name"] == {"ann"} or "FAILURE" in statuses())
    until(lambda: statuses() in ({"SUCCESS"}, {"SUCCESS", "FAILURE"}))
    assert statuses() == {"SUCCESS"}
    capfd.readouterr()
    assert run_command(["plan", "--json"]) == 0
    assert {json.loads(line)["status"] for line in capfd.readouterr().out.splitlines()} == {"unchanged"}
