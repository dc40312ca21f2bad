"""Write attempts, answers and turns: all that wait go into one transaction, and each caller waits for its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from headrace_features.synthetic.attempts import Attempt, Heard, Landed
from headrace_features.synthetic.tables import Hold
from headrace_features.synthetic.tasks import Taken, TaskQueue

_Writing = tuple[Sequence[Attempt], Sequence[Landed], Sequence[Heard], "asyncio.Future[set[Hold]]"]


class Writer:
    """Writes for one worker, one transaction after the other."""

    def __init__(self, tasks: TaskQueue, lose: Callable[[Collection[Hold]], None]) -> None:
        """`lose` is called with the holds of tasks taken by others; their answers were not written."""
        self._tasks, self._lose = tasks, lose
        self._to_write: list[_Writing] = []
        self._finished: list[Taken] = []
        self._waiting, self._ending = asyncio.Event(), False

    async def note(
        self, attempts: Sequence[Attempt], answers: Sequence[Landed] = (), turns: Sequence[Heard] = ()
    ) -> bool:
        """Wait until these are written; whether answers and turns were too: these need a valid hold of their task."""
        written: asyncio.Future[set[Hold]] = asyncio.get_running_loop().create_future()
        self._to_write.append((attempts, answers, turns, written))
        self._waiting.set()
        lost = await written
        return lost.isdisjoint([*(ended.hold for ended in answers), *(ended.hold for ended in turns)])

    def finish(self, task: Taken) -> None:
        """Remove a task with the next transaction."""
        self._finished.append(task)
        self._waiting.set()

    def end(self) -> None:
        """Let `run` end once all is written."""
        self._ending = True
        self._waiting.set()

    async def run(self) -> None:
        """Write what waits, again and again until the end."""
        while self._to_write or self._finished or not self._ending:
            if not self._to_write and not self._finished:
                self._waiting.clear()
                await self._waiting.wait()
            waiting, self._to_write = self._to_write, []
            finished, self._finished = self._finished, []
            lost = await asyncio.to_thread(self._save, waiting, finished)
            self._lose(lost)
            for *_, written in waiting:
                if not written.done():
                    written.set_result(lost)

    def _save(self, waiting: list[_Writing], finished: list[Taken]) -> set[Hold]:
        """Write attempts, answers and turns, and remove finished tasks; gives the lost holds."""
        attempts = [attempt for some, _, _, _ in waiting for attempt in some]
        answers = [answer for _, some, _, _ in waiting for answer in some]
        turns = [turn for _, _, some, _ in waiting for turn in some]
        lost = self._tasks.store.write(attempts, answers, turns) if waiting else set()
        if finished:
            self._tasks.finish(finished)
        return lost
