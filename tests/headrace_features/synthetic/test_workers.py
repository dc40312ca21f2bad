"""Workers of a generated dataset: they share its tasks and budget, and may vanish or be stopped at any moment."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from headrace_features.synthetic.answers import Answer
from headrace_features.synthetic.attempts import Attempt, Landed
from headrace_features.synthetic.generated_config import GeneratedSource
from headrace_features.synthetic.requests import Request
from headrace_features.synthetic.stand_in import StandIn
from headrace_features.synthetic.tasks import REQUESTS, BudgetError, Taken
from headrace_features.synthetic.worker import work_for
from spark_jobs.exceptions import InputError
from tests.headrace_features.synthetic.test_generated import Twin, declared, requests_for, served
from tests.main_path.services import postgres
from tests.tiers import sampled

_log = logging.getLogger(__name__)


@contextmanager
def twin_on(database: str, root: Path) -> Iterator[tuple[Twin, str | None]]:
    """A dataset whose catalogue is in SQLite or Postgres, and the address of the database where it is not its own."""
    if database == "sqlite":
        yield Twin(root), None
        return
    with postgres("lake") as server:
        uri = server.uri("lake", "+psycopg2")
        yield Twin(root, uri), uri


def landed(task: Taken, request: Request, tokens: int = 10) -> tuple[list[Attempt], list[Landed]]:
    """An answer to a request, as its worker writes it."""
    answer = Answer("text", model="m", tokens_in=tokens, tokens_out=tokens)
    return [Attempt(request.key, 1.0, "answered", "stop", answer)], [Landed(request, answer, "text", "", "", task.hold)]


@sampled()
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_worker_that_was_away_for_longer_than_its_lease_lands_nothing(database: str, tmp_path: Path) -> None:
    """Its task has another token by then: what it writes, renews and gives back is refused; what it paid counts."""
    source = declared("http://x/v1")
    with twin_on(database, tmp_path) as (twin, _):
        away, quick = twin.tasks(source, lease_seconds=0.2), twin.tasks(source, lease_seconds=60)
        away.put(requests_for(source, REQUESTS + 1))
        first = away.take()
        assert first is not None and len(first.requests) == REQUESTS
        one, other, *_ = first.requests
        assert twin.store.write(*landed(first, one)) == set()
        time.sleep(0.3)
        again = quick.take()
        assert again is not None and again.requests == first.requests[1:], "what was answered is not asked again"
        assert twin.store.write(*landed(first, other)) == {first.hold}
        assert away.renew([first.hold]) == {first.hold}
        away.give_back(first.hold, first.requests)
        away.finish([first])
        assert twin.store.totals() == (1, 0, 20, 20)
        assert twin.store.write(*landed(again, other)) == set()
        assert quick.renew([again.hold]) == set()
        quick.give_back(again.hold, again.requests[1:])
        rest = quick.take()
        assert rest is not None and rest.requests == again.requests[1:] and rest.hold.token != again.hold.token
        last = quick.take()
        assert last is not None and (len(last.requests), quick.take()) == (1, None)
        quick.finish([rest, last])
        assert quick.counts() == (0, 0)


def test_workers_do_not_overspend_a_budget_together(tmp_path: Path) -> None:
    """The most that a task can cost is reserved while it is taken, and a part of it is taken where no more fits."""
    twin = Twin(tmp_path)
    source = declared("http://x/v1", budget={"tokens": 60_000}, endpoint={"answer_tokens": 500})
    tasks = twin.tasks(source)
    asked = requests_for(source, 2 * REQUESTS + 1)
    one = sum(tasks.most_tokens(asked[0]))
    tasks.put(asked)
    first, second = tasks.take(), tasks.take()
    assert first is not None and second is not None
    assert len(first.requests) == REQUESTS and 0 < len(second.requests) < REQUESTS == len(second.requests + second.rest)
    assert 60_000 - 2 * one < sum(sum(tasks.most_tokens(a)) for a in first.requests + second.requests) <= 60_000
    tasks.give_back(second.hold, second.requests + second.rest)
    for request in first.requests:
        twin.store.write(*landed(first, request, 900))
    tasks.finish([first])
    assert sum(twin.store.totals()[2:]) == REQUESTS * 1800
    third = tasks.take()
    assert third is not None and 1 <= len(third.requests) < 5, "as many as fit beside what the first cost"
    with pytest.raises(BudgetError):
        tasks.take()


def test_a_task_of_another_declaration_is_refused(tmp_path: Path) -> None:
    """A worker whose project has another template or model must not ask something else under the same key."""
    twin, source = Twin(tmp_path), declared("http://x/v1")
    twin.tasks(source).put(requests_for(source, 3))
    with pytest.raises(InputError, match="let both have the same project"):
        twin.tasks(declared("http://x/v1", endpoint={"model": "n"})).take()
    assert twin.tasks(source).waits()


def test_a_run_removes_the_tasks_of_an_earlier_declaration(tmp_path: Path) -> None:
    """Those that a worker had when the declaration was edited, and gives back while the new run asks."""
    twin, old = Twin(tmp_path), declared("http://x/v1")
    earlier = twin.tasks(old)
    earlier.put(requests_for(old, 3))
    taken = earlier.take()
    assert taken is not None
    new = declared("http://x/v1", endpoint={"model": "n"})
    run = twin.tasks(new)
    assert run.clear() == {one.key for one in taken.requests}
    earlier.give_back(taken.hold, taken.requests)
    assert run.take() is None and run.counts() == (0, 0)
    run.put(requests_for(new, 3))
    again = run.take()
    assert again is not None and len(again.requests) == 3


@pytest.mark.nightly
def test_a_database_that_is_away_for_a_moment_stops_nobody(tmp_path: Path) -> None:
    """A run waits for it, lands each answer once, and pays for none twice."""
    with postgres("lake") as server:
        twin = Twin(tmp_path, server.uri("lake", "+psycopg2"))

        def restart() -> None:
            server.stop()
            time.sleep(1)
            server.start()

        stand_in = StandIn(seconds=0.05)
        with served(stand_in) as url:
            source = declared(url, asking={"at_once": 8})
            thread = threading.Timer(0.7, restart)
            thread.start()
            done = twin.ask(source, requests_for(source, 400))
            thread.join()
        assert done.accepted == len(twin.records()) == len(stand_in.bodies) == 400


def test_a_worker_takes_the_tasks_of_the_highest_priority_first(tmp_path: Path) -> None:
    """Of two datasets, also where those of the other came first; stopped, it ends and leaves no task taken."""
    twin = Twin(tmp_path)
    with served(StandIn(seconds=0.01)) as url:
        sources = {
            name: declared(url, asking={"priority": priority, "at_once": 4})
            for name, priority in (("twin", 0), ("urgent", 5))
        }
        queues = {name: twin.tasks(source, name=name) for name, source in sources.items()}
        for name, source in sources.items():
            queues[name].put([one for one in requests_for(source, 80) if (one.key[0] < "8") == (name == "twin")])

        async def work() -> None:
            stopping = asyncio.Event()
            working = asyncio.create_task(work_for(twin.catalogue, sources, stopping))
            while queues["urgent"].counts()[0]:
                await asyncio.sleep(0.02)
                assert twin.store.totals().accepted == 0
            while twin.store.totals().accepted < 5:
                await asyncio.sleep(0.02)
            stopping.set()
            await working

        asyncio.run(work())
        requests, taken = queues["twin"].counts()
        assert taken == 0 and requests + twin.store.totals().accepted == sum(
            one.key[0] < "8" for one in requests_for(sources["twin"], 80)
        )


def _work(url: str, root: str, uri: str | None, lease_seconds: float) -> None:
    twin = Twin(Path(root), uri)
    asyncio.run(work_for(twin.catalogue, {"twin": storm_source(url)}, asyncio.Event(), lease_seconds))


def _run(url: str, root: str, uri: str | None, lease_seconds: float, count: int) -> None:
    twin, source = Twin(Path(root), uri), storm_source(url)
    twin.ask(source, requests_for(source, count, words=20), lease_seconds)


def storm_source(url: str) -> GeneratedSource:
    """Four at once, for each of the workers."""
    return declared(url, asking={"at_once": 4, "answer_seconds": 30})


@pytest.mark.nightly
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_workers_that_are_killed_and_stopped_at_random_land_each_answer_once(database: str, tmp_path: Path) -> None:
    """200 kills, and 50 stops that are longer than a lease, of three workers and the run: nothing is lost or doubled.

    What is paid for twice is what was in flight: at most four requests for each kill, and for each stop.
    """
    lease_seconds, kills, stops, count = 1.0, 200, 50, 12_000
    drawn, done = random.Random(7), Counter[str]()
    stand_in = StandIn(seconds=0.05)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with twin_on(database, tmp_path) as (twin, uri), served(stand_in) as url:
        arguments: tuple[Any, ...] = (url, str(tmp_path), uri, lease_seconds)

        def start(place: int) -> BaseProcess:
            target, more = (_run, (count,)) if place == 0 else (_work, ())
            process = context.Process(target=target, args=(*arguments, *more), daemon=True)
            process.start()
            return process

        processes = [start(place) for place in range(4)]
        woken: dict[int, tuple[float, BaseProcess]] = {}
        while done["kill"] < kills or done["stop"] < stops:
            time.sleep(drawn.uniform(0.05, 0.35))
            for place, (until, process) in list(woken.items()):
                if time.monotonic() > until:
                    os.kill(process.pid or 0, signal.SIGCONT)
                    del woken[place]
            place = drawn.randrange(4)
            process = processes[place]
            if place in woken:
                continue
            if process.is_alive() and done["stop"] < stops and drawn.random() < 0.3:
                os.kill(process.pid or 0, signal.SIGSTOP)
                woken[place] = time.monotonic() + lease_seconds * drawn.uniform(1.5, 3), process
                done["stop"] += 1
            elif process.is_alive() and done["kill"] < kills:
                process.kill()
                process.join()
                processes[place] = start(place)
                done["kill"] += 1
            elif not process.is_alive():
                processes[place] = start(place)
        for _, process in woken.values():
            os.kill(process.pid or 0, signal.SIGCONT)
        for process in processes:
            process.kill()
            process.join()
        last = start(0)
        last.join()
        assert last.exitcode == 0
        outcomes, totals = twin.store.outcomes(), twin.store.totals()
        assert sum(outcomes.values()) == totals.accepted + totals.refused == count
        assert len({one["key"] for one in twin.records()}) == totals.accepted == outcomes[""] > 0.9 * count
        again = len(stand_in.bodies) - count
        _log.info("%s: %s, %d of %d requests were sent twice", database, dict(done), again, count)
        assert 0 <= again <= 4 * (kills + stops + 4)
