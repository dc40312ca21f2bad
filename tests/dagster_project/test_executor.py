"""Steps that do not wait for each other run at the same time, and all else is as in Dagster's own executors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pytest

from dagster_project.exceptions import DefinitionError
from dagster_project.executor import RETRIES_TAG, run_here, side_by_side
from dagster_project.inspect.lake.run_health import run_health

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def job_of(steps: Mapping[str, tuple[Sequence[str], Callable[[], Any]]]) -> dg.JobDefinition:
    """A job of assets, each with what it waits for and what it does."""

    def asset(name: str, needs: Sequence[str], work: Callable[[], Any]) -> dg.AssetsDefinition:
        @dg.asset(name=name, deps=list(needs))
        def made() -> None:
            work()

        return made

    assets = [asset(name, *values) for name, values in steps.items()]
    return dg.Definitions(assets=assets, executor=side_by_side).resolve_implicit_global_asset_job_def()


def run(job: dg.JobDefinition, most: int | None = None, **arguments: Any) -> dg.ExecuteInProcessResult:
    """Run a job quietly, with nothing kept."""
    execution = {"execution": {"config": {"max_concurrent": most}}} if most else {}
    with dg.DagsterInstance.ephemeral() as instance:
        return run_here(job, instance, {**QUIET, **execution}, **arguments)


def nothing() -> None:
    """A step that is done at once."""


def test_steps_that_do_not_wait_for_each_other_run_at_the_same_time() -> None:
    """Two steps that meet each other while they run; one after another they would wait in vain."""
    meeting = threading.Barrier(2)
    together = {name: ((), lambda: meeting.wait(timeout=30)) for name in ("one", "other")}
    assert run(job_of({**together, "last": (("one", "other"), nothing)}), most=2).success


def test_no_steps_at_a_time_are_refused() -> None:
    """A run that could never begin says so."""
    config = {**QUIET, "execution": {"config": {"max_concurrent": -1}}}
    with dg.DagsterInstance.ephemeral() as instance, pytest.raises(DefinitionError, match="max_concurrent is -1; give"):
        run_here(job_of({"one": ((), nothing)}), instance, config)


def test_the_step_with_the_longest_chain_behind_it_goes_first() -> None:
    """With one step at a time, and never a step before those that it waits for."""
    order: list[str] = []
    needs: dict[str, Sequence[str]] = {"a": (), "b": (), "c": ("b",), "d": ("c",), "e": ("a",)}
    steps = {name: (before, lambda name=name: order.append(name)) for name, before in needs.items()}
    assert run(job_of(steps), most=1).success
    assert order[0] == "b" and len(order) == len(needs)
    assert all(order.index(one) < order.index(name) for name, before in needs.items() for one in before)


def test_a_failure_stops_only_what_follows_from_it() -> None:
    """Of two chains one fails: the other is done, nothing behind the failure ran, and the run failed."""
    ran: list[str] = []

    def fail() -> None:
        raise dg.Failure("on purpose", allow_retries=False)

    steps = {
        "bad": ((), fail),
        "behind": (("bad",), lambda: ran.append("behind")),
        "good": ((), lambda: time.sleep(0.2)),
        "after": (("good",), lambda: ran.append("after")),
    }
    result = run(job_of(steps), raise_on_error=False)
    assert not result.success and ran == ["after"]
    assert [event.step_key for event in result.all_events if event.is_step_failure] == ["bad"]
    with pytest.raises(dg.Failure, match="on purpose"):
        run(job_of(steps))


def test_a_selection_runs_alone() -> None:
    """Only the assets asked for."""
    ran: list[str] = []
    steps = {name: ((), lambda name=name: ran.append(name)) for name in ("one", "other")}
    assert run(job_of(steps), asset_selection=[dg.AssetKey("other")]).success and ran == ["other"]


def test_an_interruption_ends_the_run_after_the_steps_that_are_under_way() -> None:
    """No further step begins; the run is no success, though no step failed."""
    ran: list[str] = []

    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)

    result = run(
        job_of({"first": ((), interrupt), "second": (("first",), lambda: ran.append("second"))}), raise_on_error=False
    )
    assert not result.success and not ran
    assert not [event for event in result.all_events if event.is_step_failure]


@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_run_that_was_told_to_stop_is_no_failure(is_repeated: bool) -> None:
    """A command's is canceled; one that the daemon repeats has to be a failure to Dagster, with a tag that says so."""

    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)

    tags = {} if is_repeated else {RETRIES_TAG: "0"}
    with dg.DagsterInstance.ephemeral() as instance:
        result = run_here(job_of({"first": ((), interrupt)}), instance, QUIET, tags=tags, raise_on_error=False)
        ended = instance.get_run_by_id(result.run_id)
        assert ended is not None and not result.success
        assert ended.status is (dg.DagsterRunStatus.FAILURE if is_repeated else dg.DagsterRunStatus.CANCELED)
        found = run_health(instance, datetime.now(UTC))
        assert (found.failed, found.stopped) == (0, 1)


_QUERY = """
import sys, time
import dagster as dg
from dagster_project.executor import run_here
from spark_jobs.lake.engine.embedded import end_process, start_embedded

def endless(batches):
    print("computing", flush=True)
    time.sleep(3600)
    yield from batches

@dg.op
def step():
    start_embedded().range(1).mapInArrow(endless, "id long").count()

@dg.job
def job():
    step()

with dg.DagsterInstance.ephemeral() as instance:
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    result = run_here(job, instance, quiet, raise_on_error=False)
    print("failed" if [one for one in result.all_events if one.is_step_failure] else "interrupted", flush=True)
end_process(130)
"""


@pytest.mark.nightly
def test_an_interruption_does_not_wait_for_a_query_of_sail() -> None:
    """The run ends, and then the process, though a Python function of the query would go on for an hour."""
    pytest.importorskip("pysail")
    command = [sys.executable, "-c", _QUERY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None and running.stdout.readline() == "computing\n"
            running.send_signal(signal.SIGINT)
            said, errors = running.communicate(timeout=300)
        finally:
            running.kill()
    assert (said, running.returncode) == ("interrupted\n", 130), errors
