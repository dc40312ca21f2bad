"""A worker: takes tasks of some datasets, those of the highest priority first, until it is told to stop.

Any number of them work for a dataset, on any machine that reaches the catalogue's database and the endpoint. The run of
the dataset makes the tasks and is one of the workers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from pyiceberg.catalog import Catalog

from headrace_features.synthetic.asked import Asked
from headrace_features.synthetic.asking import Asker
from headrace_features.synthetic.attempts import AnswerStore
from headrace_features.synthetic.conversations import Executor
from headrace_features.synthetic.generated_config import GeneratedSource
from headrace_features.synthetic.tasks import LEASE_SECONDS, TaskQueue
from spark_jobs.exceptions import InputError

_LOOK_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 20.0  # for what is in flight when told to stop; clusters kill after thirty

_log = logging.getLogger(__name__)


async def work_for(
    catalogue: Catalog,
    sources: Mapping[str, GeneratedSource],
    stopping: asyncio.Event,
    lease_seconds: float = LEASE_SECONDS,
    executor: Executor | None = None,
) -> None:
    """Take and ask tasks of some datasets until told to stop; then what is left of them is given back.

    Raises:
        ConfigError: the environment lacks the key of an endpoint.
        InputError: the catalogue has no database, a task is of another declaration, or no endpoint takes the key.
        SetupError: code of answers is to be executed, and this machine does not hold it.
    """
    queues = {name: TaskQueue(AnswerStore(catalogue, name), source, lease_seconds) for name, source in sources.items()}
    while not stopping.is_set():
        if (name := await asyncio.to_thread(_next, queues)) is None:
            await _pause(stopping)
            continue
        done = await _work(Asker(queues[name], executor=executor), name, queues, stopping)
        if done.hopeless:
            del queues[name]
        if not queues:
            raise InputError(f"{name}: {done.stopped}")
        if not done.accepted:
            await _pause(stopping)


async def _work(asker: Asker, name: str, queues: Mapping[str, TaskQueue], stopping: asyncio.Event) -> Asked:
    """Ask for one dataset until none of its tasks waits, or those of another go first."""
    working, priority = asyncio.create_task(asker.work(lambda: False)), queues[name].priority
    try:
        while not working.done():
            await _pause(stopping, working)
            if stopping.is_set():
                asker.stop("told to", patience=_PATIENCE_SECONDS)
                await asyncio.wait([working])
            elif (other := await asyncio.to_thread(_next, queues)) and queues[other].priority > priority:
                asker.stop(f"tasks of {other} go first")
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    done = working.result()
    if done.attempts or done.stopped:
        refused = sum(done.refused.values())
        stopped = f"; stopped: {done.stopped}" if done.stopped else ""
        _log.warning("%s: %d sent, %d accepted, %d refused%s", name, done.attempts, done.accepted, refused, stopped)
    return done


def _next(queues: Mapping[str, TaskQueue]) -> str | None:
    """The dataset of the highest priority among those with waiting tasks."""
    waiting = [name for name, queue in queues.items() if queue.waits()]
    return max(waiting, key=lambda name: queues[name].priority, default=None)


async def _pause(stopping: asyncio.Event, *others: asyncio.Task[Asked]) -> None:
    """Wait a second, or until told to stop, or until something else ends."""
    stopped = asyncio.create_task(stopping.wait())
    await asyncio.wait([stopped, *others], timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
