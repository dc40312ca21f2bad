"""A worker that appends its groups, each member in a call of its own of several threads, and notes what it was told.

    python -m tests.headrace_features.rollouts.storm_worker ADDRESS FIRST_GROUP END_GROUP NOTES

Killed and started again it goes on at the first group that it has not noted, so it repeats members that are there.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from headrace_features.rollouts.writer import Outcome, Rollout, RolloutWriter

GROUP_SIZE = 8
THREADS = 32


def made(group: int, member: int) -> Rollout:
    """A rollout whose content follows from its name."""
    draw = np.random.default_rng([group, member])
    count = int(draw.integers(1, 17))
    return Rollout(f"g{group}", member, GROUP_SIZE, draw.integers(0, 300, count), [(count, 1)], reward=float(group))


def main(address: str, first: str, end: str, notes: str) -> None:
    """Append the groups [first, end)."""
    path = Path(notes)
    done = path.read_text().split() if path.exists() else []
    with RolloutWriter(address, "rl.rollouts", retry_seconds=600) as writer, path.open("a") as noted:

        def append(group: int, member: int) -> list[Outcome]:
            return writer.append(made(group, member))

        with ThreadPoolExecutor(THREADS) as threads:
            todo = [group for group in range(int(first), int(end)) if str(group) not in done]
            calls = {group: [threads.submit(append, group, member) for member in range(GROUP_SIZE)] for group in todo}
            for group, answers in calls.items():
                for answer in answers:
                    (outcome,) = answer.result()
                    assert outcome.status == "admitted" or outcome.reason.startswith(("double", "late")), outcome
                noted.write(f"{group}\n")
                noted.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
