"""Rollouts: seconds from an append to its acknowledgement, rollouts a second, and starts behind a long log.

    python benchmarks/bench_rollouts.py [--seconds 180] [--workers 4] [--threads 32] [--groups 1000000 5000000 11000000]

A server in a process of its own, and workers in theirs: each thread appends a group of four rollouts of up to 1,024
tokens, waits for the answer and goes on, so a commit finds what all of them have waiting. `queued` appends one rollout
a thread at moments of its own. Seconds are of the wall, since that is what a worker waits.

The second table is of logs that are written as such, of whole groups of four; a start is that of the tables and the
first reading, in a process of its own, without what was saved before and with it. The packed rows are not made.
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

from headrace.tables.settings import settings_at

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
    from headrace_features.rollouts.option import ROLLOUTS
    from headrace_features.rollouts.service import add_rollouts
    from spark_jobs.lake.session.catalogue import open_catalogue

    (root / "rollouts.toml").write_text(SETTINGS)
    lake = open_catalogue(settings_at(root))
    added = functools.partial(add_rollouts, root / "rollouts.toml")
    with start(
        lake, operation=OperationConfig(max_request_bytes=ROLLOUTS.least_request_bytes), add_services=[added]
    ) as one:
        told.send(one.address)  # type: ignore[attr-defined]
        told.recv()  # type: ignore[attr-defined]


def work(address: str, worker: int, threads: int, seconds: float, pace: str) -> list[float]:
    """Append for some seconds; gives how long each append took."""
    from headrace import Rollout, RolloutWriter

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


def write_log(root: Path, groups: int) -> None:
    """Write a log of groups of four that were admitted and published, a file for each 200,000 groups."""
    import pyarrow as pa

    from headrace_features.rollouts import tables
    from spark_jobs.lake.session.catalogue import open_catalogue

    (root / "rollouts.toml").write_text(SETTINGS)
    catalogue = open_catalogue(settings_at(root))
    _store(root)
    log, events = catalogue.load_table(f"{TABLE}_log"), MEMBERS + 1
    for first in range(0, groups, 200_000):
        numbers = np.repeat(np.arange(first, min(groups, first + 200_000)), events)
        member = np.tile(np.arange(events), len(numbers) // events)
        is_end = member == MEMBERS
        sequence = np.arange(first * events, first * events + len(numbers))
        writers = pa.array([f"{writer:032x}" for writer in range(128)])
        columns = {
            "sequence": sequence,
            "at": sequence * 1300,
            "kind": pa.array(["admitted", "published"]).take(pa.array(is_end.astype(int))),
            "principal": pa.array(["worker"]).take(pa.array(np.zeros(len(numbers), int))),
            "writer": writers.take(pa.array(numbers % 128, mask=is_end)),
            "number": pa.array(numbers // 128 * MEMBERS + member, mask=is_end),
            "group": [f"step-{number // 4096}/prompt-{number}" for number in numbers.tolist()],
            "member": pa.array(member, mask=is_end),
            "group_size": np.full(len(numbers), MEMBERS),
            "version": numbers // 4096,
            "reward": pa.array(member * 0.25, mask=is_end),
            "ordinal": pa.array(numbers * MEMBERS, mask=~is_end),
            "rows": pa.array(np.full(len(numbers), MEMBERS), mask=~is_end),
            "reason": pa.array(["complete"]).take(pa.array(np.zeros(len(numbers), int), mask=~is_end)),
        }

        def rows_in(schema: pa.Schema, columns: dict[str, object] = columns) -> pa.RecordBatch:
            there = {name: pa.array(values) for name, values in columns.items()}
            arrays = [
                there[one.name].cast(one.type) if one.name in there else pa.nulls(len(there["at"]), one.type)
                for one in schema
            ]
            return pa.RecordBatch.from_arrays(arrays, schema=schema)

        tables._append(log, rows_in)


def _store(root: Path) -> object:
    """The tables, as a server opens them."""
    from headrace_features.rollouts.settings import read_settings
    from headrace_features.rollouts.tables import RolloutStore
    from spark_jobs.lake.session.catalogue import open_catalogue

    return RolloutStore(open_catalogue(settings_at(root)), read_settings(root / "rollouts.toml")[0])


def start(root: Path, groups: int, told: object) -> None:
    """Start behind a log; tell seconds of the wall and of a core, MiB that stay and MiB at the most."""
    from headrace_features.rollouts import tables

    tables._rows_in = lambda _: groups * MEMBERS  # type: ignore[assignment]
    before, began, computed = _resident("RSS"), time.monotonic(), time.process_time()
    store = _store(root)
    with store.lease():  # type: ignore[attr-defined]
        store.catch_up()  # type: ignore[attr-defined]
    seconds, of_core = time.monotonic() - began, time.process_time() - computed
    assert store.admission.next_sequence == groups * (MEMBERS + 1)  # type: ignore[attr-defined]
    told.send((seconds, of_core, _resident("RSS") - before, _resident("HWM") - before))  # type: ignore[attr-defined]


def _resident(kind: str) -> float:
    """MiB of this process: now (RSS) or at the most (HWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"Vm{kind}:")).split()[1]) / 1024


def print_starts(sizes: list[int]) -> None:
    """Print a row for each length of the log."""
    heads = "groups of the log", "starts", "seconds", "of a core", "MiB that stay", "MiB at the most"
    print(f"\n| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for groups in sizes:
        with tempfile.TemporaryDirectory(prefix="rollouts-") as root:
            write_log(Path(root), groups)
            for how in ("from the log alone", "from what was saved"):
                ours, theirs = get_context("spawn").Pipe()
                process = get_context("spawn").Process(target=start, args=(Path(root), groups, theirs))
                process.start()
                seconds, of_core, stay, most = ours.recv()
                process.join()
                print(f"| {groups:,} | {how} | {seconds:.1f} | {of_core:.1f} | {stay:.0f} | {most:.0f} |", flush=True)


def main() -> None:
    """Print a row for each way to append."""
    parser = command.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--pace", nargs="*", default=["at once", "queued"])
    parser.add_argument("--groups", type=int, nargs="*", default=[1_000_000, 5_000_000, 11_000_000])
    given = command.read(parser, seconds=3.0, workers=2, threads=4, groups=[10_000])
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
    print_starts(given.groups)


if __name__ == "__main__":
    main()
