"""Rollouts: seconds from an append to its acknowledgement, and rollouts a second, at the default `commit_seconds`.

    python benchmarks/bench_rollouts.py [--seconds 180] [--workers 4] [--threads 32]

A server in a process of its own, and workers in theirs: each thread appends a group of four rollouts of up to 1,024
tokens, waits for the answer and goes on, so a commit finds what all of them have waiting. `queued` appends one rollout
a thread at moments of its own. Seconds are of the wall, since that is what a worker waits.
"""

from __future__ import annotations

import functools
import random
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import command
import numpy as np

TABLE, WINDOW, MEMBERS = "rl.rollouts", 1024, 4
SETTINGS = f"""
[[table]]
table = "{TABLE}"
max_lag = 4
rows_per_step = 100000000
[table.window]
window_tokens = {WINDOW}
tokenizer_sha256 = "{"0" * 64}"
vocabulary_size = 50000
end_of_document_id = 1
padding_id = 0
"""


@contextmanager
def served(root: Path) -> Iterator[str]:
    """A server of rollouts, as `headrace serve --rollouts` starts it, in a process of its own; gives its address."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(root, theirs))
    process.start()
    theirs.close()
    try:
        yield ours.recv()
    finally:
        ours.send("end")
        process.join()


def serve(root: Path, told: object) -> None:
    """Serve until told to end."""
    from blender_service.server.server import start
    from blender_service.server.settings import OperationConfig
    from dagster_project.cli.train.serve import LEAST_REQUEST_BYTES
    from dagster_project.rollouts.service import add_rollouts
    from spark_jobs.lake.session.catalogue import open_catalogue
    from spark_jobs.lake.session.settings import settings_at

    (root / "rollouts.toml").write_text(SETTINGS)
    lake = open_catalogue(settings_at(root))
    added = functools.partial(add_rollouts, root / "rollouts.toml")
    with start(lake, operation=OperationConfig(max_request_bytes=LEAST_REQUEST_BYTES), add_service=added) as one:
        told.send(one.address)  # type: ignore[attr-defined]
        told.recv()  # type: ignore[attr-defined]


def work(address: str, worker: int, threads: int, seconds: float, pace: str) -> list[float]:
    """Append for some seconds; gives how long each append took."""
    from blender_service.client import Rollout, RolloutWriter

    waits: list[float] = []
    ends = time.monotonic() + seconds
    with RolloutWriter(address, TABLE) as writer:

        def run(thread: int) -> None:
            draw, chance = np.random.default_rng([worker, thread]), random.Random(thread)
            number = 0
            while time.monotonic() < ends:
                counts = draw.integers(1, WINDOW + 1, MEMBERS)
                group = [
                    Rollout(
                        f"{worker}/{thread}/{number}", member, MEMBERS, draw.integers(0, 50_000, count), [(count, 1)],
                        None, draw.random(count), draw.random(count),
                    )
                    for member, count in enumerate(counts.tolist())
                ]  # fmt: skip
                if pace == "queued":
                    time.sleep(chance.uniform(0, 2))
                began = time.monotonic()
                writer.append(*group)
                waits.append(time.monotonic() - began)
                number += 1

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(run, range(threads)))
    return waits


def main() -> None:
    """Print a row for each way to append."""
    parser = command.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--pace", nargs="+", default=["at once", "queued"])
    given = command.read(parser, seconds=3.0, workers=2, threads=4)
    print("| appends | rollouts a second | p50 | p99 | worst |\n|---|---|---|---|---|")
    for pace in given.pace:
        with tempfile.TemporaryDirectory(prefix="rollouts-") as root, served(Path(root)) as address:
            parts = [address, given.threads, given.seconds, pace]
            with get_context("spawn").Pool(given.workers) as pool:
                tasks = [(parts[0], worker, *parts[1:]) for worker in range(given.workers)]
                waits = np.concatenate(pool.starmap(work, tasks))
        p50, p99, worst = np.percentile(waits, [50, 99, 100])
        rate = MEMBERS * len(waits) / given.seconds
        print(f"| {pace} | {rate:.0f} | {p50:.2f} s | {p99:.2f} s | {worst:.2f} s |", flush=True)


if __name__ == "__main__":
    main()
