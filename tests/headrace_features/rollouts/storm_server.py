"""A server of rollouts that kills itself at random: around its commits and saves, between them and in a save.

python -m tests.headrace_features.rollouts.storm_server WAREHOUSE SETTINGS PORT SEED
"""

from __future__ import annotations

import functools
import os
import random
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from blender_service.catalogue import open_catalogue
from blender_service.server.server import start
from headrace_features.rollouts import tables
from headrace_features.rollouts.service import add_rollouts
from headrace_features.rollouts.snapshot import Snapshot
from headrace_features.rollouts.tables import RolloutStore

KILL_PROBABILITY = 0.02


def main(warehouse: str, settings: str, port: str, seed: str) -> None:
    """Serve until killed."""
    chance = random.Random(int(seed))

    def killing(method: Any) -> Any:
        def called(store: Any, *arguments: Any) -> None:
            for moment in (lambda: None, lambda: method(store, *arguments)):
                moment()
                if chance.random() < KILL_PROBABILITY:
                    os.kill(os.getpid(), signal.SIGKILL)

        return called

    RolloutStore.commit_log = killing(RolloutStore.commit_log)  # type: ignore[method-assign]
    RolloutStore.commit_rows = killing(RolloutStore.commit_rows)  # type: ignore[method-assign]
    Snapshot.save = killing(Snapshot.save)  # type: ignore[method-assign]
    Snapshot._write = killing(Snapshot._write)  # type: ignore[method-assign]
    tables.EVENTS_BETWEEN_SAVES = 50  # type: ignore[misc]
    add_service = functools.partial(add_rollouts, Path(settings))
    with start(open_catalogue(warehouse), port=int(port), add_services=[add_service]):
        threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
