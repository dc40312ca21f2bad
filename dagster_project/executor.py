"""An executor of Dagster to run independent steps at the same time, in threads of one process.

Dagster has one running one step after another in one process, and others starting a process for each step. A JVM
for each step would cost 20 seconds, and one step at a time leaves cores idle while Spark plans or the catalogue is
written. So the steps of a run share the process, its JVM and its cores; each thread has a Spark session of its own.

Of the ready steps, the one with the longest chain of steps behind it goes first, because that chain decides
when the run ends.
"""

from __future__ import annotations

import copy
import functools
import math
import queue
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import dagster as dg

from dagster_project.dagster_core import (
    SINGLETON_REPOSITORY_NAME,
    ExecuteRunWithPlanIterable,
    ExecutionPlan,
    InMemoryJob,
    InstanceConcurrencyContext,
    PlanExecutionContext,
    PlanExecutionContextManager,
    PlanOrchestrationContext,
    RegisteredCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
    RetryMode,
    core_execute_in_process,
    create_compute_log_file_key,
    dagster_event_sequence_for_step,
    merge_run_tags,
)
from dagster_project.exceptions import DefinitionError
from dagster_project.run_process import give_sign, signs_of_life
from headrace.process.memory_limit import core_count
from spark_jobs.lake.engine.choice import chosen
from spark_jobs.lake.engine.embedded import interrupt_queries
from spark_jobs.lake.engine.memory import steps_at_once

_MOST_STEPS = 4
_WAKE_SECONDS = 0.2
RETRIES_TAG = "dagster/max_retries"  # 0: the daemon does not repeat a command that was killed
_GRACE_SECONDS = 2.0  # after an interruption, for steps to end by themselves; what they wrote till then is invisible
# One for each run that this process executes: a step may execute a run itself (`partitioned_job`), and an interruption,
# which Dagster tells only to who asks first, is meant for all of them.
_INTERRUPTED: list[threading.Event] = []


@dg.executor(
    name="side_by_side",
    config_schema={
        "max_concurrent": dg.Field(
            dg.Noneable(int),
            is_required=False,
            default_value=None,
            description=f"most steps at a time; by default one a core, {_MOST_STEPS} at most, fewer in little memory",
        )
    },
)
def side_by_side(context: dg.InitExecutorContext) -> dg.Executor:
    """Independent steps run at the same time, in threads of one process."""
    most: Any = context.executor_config["max_concurrent"]
    if most is not None and most < 1:
        raise DefinitionError(f"execution: max_concurrent is {most}; give 1 or more, or leave it out")
    return _SideBySide(most or _side_by_side_steps())


def _side_by_side_steps() -> int:
    return 1 if chosen().careful else steps_at_once(min(core_count(), _MOST_STEPS))


def run_here(
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    run_config: Mapping[str, Any],
    asset_selection: Sequence[dg.AssetKey] = (),
    partition_key: str | None = None,
    run_id: str | None = None,
    tags: Mapping[str, str] | None = None,
    raise_on_error: bool = True,
    location: str | None = None,
) -> dg.ExecuteInProcessResult:
    """As `job.execute_in_process`; that would run one step after another whatever the job's executor.

    Args:
        job: the job; of assets, those of `asset_selection` run.
        instance: keeps the run.
        run_config: of the job.
        asset_selection: the assets; all of the job where it is empty.
        partition_key: the partition of the assets.
        run_id: of the run; a new one by default.
        tags: of the run.
        raise_on_error: whether a failing step raises.
        location: name of the job's code location in the UI, so that its pages show the run.
    """
    run_id = run_id or str(uuid.uuid4())
    give_sign(instance, run_id)  # before the run exists, so that none that is killed stays without
    chosen = job.as_ephemeral_job({}, {}, asset_selection=list(asset_selection)).with_executor_def(side_by_side)
    return core_execute_in_process(
        job=InMemoryJob(job_def=chosen),
        run_config=run_config,
        instance=instance if location is None else _with_origin(instance, location, job.name),
        output_capturing_enabled=True,
        raise_on_error=raise_on_error,
        run_tags=merge_run_tags(
            job_def=job,
            partition_key=partition_key,
            tags=tags or {},
            asset_selection=list(asset_selection),
            instance=instance,
            run_config=run_config,
        ),
        run_id=run_id,
        asset_selection=frozenset(asset_selection),
    )


def _with_origin(instance: dg.DagsterInstance, location: str, job: str) -> dg.DagsterInstance:
    """The same instance, with a code location named by its runs: Overview and Jobs leave others out."""
    repository = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(location), SINGLETON_REPOSITORY_NAME)
    wrapped = copy.copy(instance)
    origin = RemoteJobOrigin(repository, job)
    create_run = functools.partial(instance.create_run_for_job, remote_job_origin=origin)
    wrapped.create_run_for_job = create_run  # type: ignore[method-assign]
    return wrapped


class _SideBySide(dg.Executor):
    """Runs the steps of a plan in threads, at most so many at a time."""

    def __init__(self, most: int) -> None:
        self._most = most

    @property
    def retries(self) -> RetryMode:
        return RetryMode.ENABLED

    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Iterator[dg.DagsterEvent]:
        """Execute a plan; gives its events as they come."""
        with signs_of_life(plan_context.instance, plan_context.run_id):
            yield from ExecuteRunWithPlanIterable(
                execution_plan=plan_context.execution_plan,
                iterator=self._events,
                execution_context_manager=PlanExecutionContextManager(
                    job=plan_context.job,
                    retry_mode=plan_context.retry_mode,
                    execution_plan=plan_context.execution_plan,
                    run_config=plan_context.run_config,
                    dagster_run=plan_context.dagster_run,
                    instance=plan_context.instance,
                    raise_on_error=plan_context.raise_on_error,
                    output_capture=plan_context.output_capture,
                ),
            )

    def _events(self, job_context: PlanExecutionContext, execution_plan: ExecutionPlan) -> Iterator[dg.DagsterEvent]:
        context, chains = job_context, _chains(execution_plan)
        events: queue.SimpleQueue[dg.DagsterEvent | _Ended] = queue.SimpleQueue()
        manager = context.instance.compute_log_manager
        with ExitStack() as stack:
            log_key = manager.build_log_key_for_run(context.run_id, create_compute_log_file_key())  # type: ignore[no-untyped-call]
            captured = stack.enter_context(manager.capture_logs(log_key))  # what the whole process prints
            yield dg.DagsterEvent.capture_logs(context, list(execution_plan.step_keys_to_execute), log_key, captured)
            claims = stack.enter_context(InstanceConcurrencyContext(context.instance, context.dagster_run))
            active = stack.enter_context(
                execution_plan.start(
                    retry_mode=context.retry_mode,
                    sort_key_fn=lambda step: -chains[step.key],
                    max_concurrent=self._most,
                    instance_concurrency_context=claims,
                )
            )
            steps: queue.SimpleQueue[dg.StepExecutionContext | None] = queue.SimpleQueue()
            for number in range(self._most):
                threading.Thread(target=_run_steps, args=(steps, events), name=f"steps-{number}", daemon=True).start()
                stack.callback(steps.put, None)
            running: set[str] = set()
            last_moment = math.inf
            interrupted = threading.Event()
            _INTERRUPTED.append(interrupted)
            stack.callback(_INTERRUPTED.remove, interrupted)
            while not active.is_complete:
                if active.check_for_interrupts():
                    for flag in list(_INTERRUPTED):
                        flag.set()
                if interrupted.is_set():
                    active.mark_interrupted()
                    last_moment = min(last_moment, time.monotonic() + _GRACE_SECONDS)
                if last_moment < math.inf:
                    _cancel_jobs()
                    if not running or time.monotonic() > last_moment:
                        break
                else:
                    for step in active.get_steps_to_execute():
                        running.add(step.key)
                        steps.put(context.for_step(step, active.get_known_state()))
                    yield from active.concurrency_event_iterator(context)
                    yield from active.plan_events_iterator(context)
                try:
                    event = events.get(timeout=_WAKE_SECONDS)
                except queue.Empty:
                    continue
                if isinstance(event, _Ended):
                    running.discard(event.step_key)
                    if event.error is not None:
                        raise event.error
                    active.verify_complete(context, event.step_key)
                elif last_moment == math.inf or not event.is_step_failure:  # else it failed because it was cancelled
                    yield event
                    active.handle_event(event)
            if last_moment < math.inf:
                _report_stop(context.instance, context.run_id)
                raise dg.DagsterExecutionInterruptedError


def _report_stop(instance: dg.DagsterInstance, run_id: str) -> None:
    """Have Dagster count a command's stopped run as canceled; a repeated one has to be a failure."""
    run = instance.get_run_by_id(run_id)
    if run is not None and run.status is dg.DagsterRunStatus.STARTED and run.tags.get(RETRIES_TAG) == "0":
        instance.report_run_canceling(run, "its process was told to stop")


class _Ended:
    """A step's thread ended, by an error it could not report as an event where there is one."""

    def __init__(self, step_key: str, error: BaseException | None = None) -> None:
        self.step_key, self.error = step_key, error


def _run_steps(
    steps: queue.SimpleQueue[dg.StepExecutionContext | None], events: queue.SimpleQueue[dg.DagsterEvent | _Ended]
) -> None:
    """Run the steps from a queue, one after another, until None comes; the body of each thread."""
    while (context := steps.get()) is not None:
        error = None
        try:
            for event in dagster_event_sequence_for_step(context):
                events.put(event)
        except BaseException as raised:  # noqa: BLE001  it is raised again in the thread that runs the plan
            error = raised
        events.put(_Ended(context.step.key, error))


def _cancel_jobs() -> None:
    """Cancel what either engine computes in this process, so that steps waiting for it end."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    interrupt_queries()
    with suppress(Py4JError, OSError):  # the JVM may have ended by the same signal
        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.cancelAllJobs()


def _chains(plan: ExecutionPlan) -> dict[str, int]:
    """How many steps the longest chain has that begins with each step of a plan."""
    chains: dict[str, int] = {}
    needed_by: dict[str, list[str]] = {}
    for step in reversed(plan.get_steps_to_execute_in_topo_order()):
        chains[step.key] = 1 + max((chains[later] for later in needed_by.get(step.key, ())), default=0)
        for dependency in step.get_execution_dependency_keys():
            needed_by.setdefault(dependency, []).append(step.key)
    return chains
