"""What `bench_blender.py` measures of a server in a process of its own: speed, CPU, first batches, memory."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import grpc
import numpy as np
import psutil

from blender_service.client import BlenderClient
from blender_service.server.limits import MOST_MESSAGE_BYTES
from blender_service.wire.rank_slice import Slice

SERVERS = Path(__file__).parent / "blender_servers.py"
ROUNDS = 5
DIFFERENT = 64  # messages, 130 MB
RANKS, RANK_ROWS = 8, 8  # of a training node: streams, and rows of each in a step
NODE_BYTES = 8 * 50_000 * 2  # of token ids that a node of 8 GPUs takes in a second


class Launched(NamedTuple):
    """A server in a process of its own."""

    address: str
    process: psutil.Process

    @property
    def cpu_seconds(self) -> float:
        """CPU time it has used."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    @property
    def anonymous_bytes(self) -> int:
        """Memory of its own: mapped files, which the kernel may drop at any time, left out."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


@contextmanager
def launch(*arguments: str) -> Iterator[Launched]:
    """Run one of `blender_servers.py`."""
    command = [sys.executable, str(SERVERS), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Launched(f"127.0.0.1:{int(process.stdout.readline())}", psutil.Process(process.pid))
        finally:
            process.stdin.close()


def bench_against_raw(client: BlenderClient, server: Launched, blend: str, messages: int) -> None:
    """Print MB/s of one stream beside ready-made bytes of the same size, in turns, CPU of both sides, and ratios."""
    rows = MOST_MESSAGE_BYTES // next(client.read(blend, 0)).input_ids[0].nbytes  # of a message
    size = MOST_MESSAGE_BYTES + 64 * rows  # and what comes with the ids

    def read_raw(channel: grpc.Channel) -> int:
        stream: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream("/raw/Stream")
        return sum(len(message) for message in stream(str(messages).encode()))

    def read_blend() -> int:
        return sum(
            batch.input_ids.nbytes * size // MOST_MESSAGE_BYTES for batch in client.read(blend, 0, rows * messages)
        )

    with (
        launch("raw", str(size), "1") as raw,
        grpc.insecure_channel(raw.address, UNBOUNDED) as channel,
        launch("raw", str(size), str(DIFFERENT)) as raws,
        grpc.insecure_channel(raws.address, UNBOUNDED) as other_channel,
    ):
        turns: dict[str, tuple[Launched, Callable[[], int]]] = {
            "raw gRPC bytes, one message over and over": (raw, lambda: read_raw(channel)),
            f"raw gRPC bytes, {DIFFERENT} messages in turn": (raws, lambda: read_raw(other_channel)),
            "Blender": (server, read_blend),
        }
        measured: dict[str, list[tuple[float, float, float]]] = {name: [] for name in turns}
        for _ in range(ROUNDS):
            for name, (served, read) in turns.items():
                measured[name].append(_timed(served, read))
    title = f"one stream over loopback, {size >> 10} KiB a message"
    print(f"\n{title:44} {'MB/s':>8} {'best':>8} {'CPU s/GB: server':>17} {'client':>7}")
    for name, values in measured.items():
        speeds, served_costs, own_costs = np.array(values).T
        cost = f"{np.median(served_costs):17.2f} {np.median(own_costs):7.2f}"
        print(f"{name:44} {np.median(speeds):8.0f} {speeds.max():8.0f} {cost}")
    *peers, ours = (np.array(values)[:, 0] for values in measured.values())
    for name, speeds in zip(measured, peers, strict=False):
        label = f"Blender / {name.removeprefix('raw gRPC bytes, ')}"
        print(f"{label:44} {np.median(ours / speeds):8.2f} {ours.max() / speeds.max():8.2f}")


UNBOUNDED = (("grpc.max_receive_message_length", -1),)


def _timed(server: Launched, read: Callable[[], int]) -> tuple[float, float, float]:
    """Give MB/s of a read, and CPU seconds per GB of the server and of this process."""
    served, own, started = server.cpu_seconds, time.process_time(), time.perf_counter()
    byte_count = read()
    speed = byte_count / (time.perf_counter() - started) / 1e6
    return speed, (server.cpu_seconds - served) / byte_count * 1e9, (time.process_time() - own) / byte_count * 1e9


def bench_node(client: BlenderClient, server: Launched, blend: str, steps: int) -> None:
    """Print what the streams of a training node cost the server: each rank reads its own part of every step."""
    read = [0] * RANKS

    def run(rank: int) -> None:
        part = Slice(RANKS * RANK_ROWS, rank, RANKS)
        read[rank] = sum(batch.input_ids.nbytes for batch in client.read(blend, 0, steps * part.step_rows, part=part))

    for _ in range(2):  # the first warms up
        served = server.cpu_seconds
        _at_once([lambda rank=rank: run(rank) for rank in range(RANKS)])  # type: ignore[misc]
    cost = (server.cpu_seconds - served) / sum(read) * 1e9
    print(f"\n{f'{RANKS} ranks of {RANK_ROWS} rows in a step':44} {cost:8.2f} CPU s/GB of the server")
    print(f"{'nodes of 8 GPUs, 400,000 tokens/s, a core':44} {1e9 / NODE_BYTES / cost:8.0f}")


def _at_once(jobs: Sequence[Callable[[], None]]) -> None:
    """Run each job in a thread of its own, until all are done."""
    for thread in _started(jobs):
        thread.join()


def _started(jobs: Sequence[Callable[[], None]]) -> list[threading.Thread]:
    """A thread for each job, which runs."""
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    return threads


def bench_first_batch(client: BlenderClient, blend: str, table_rows: int, seeks: int) -> None:
    """Print how long the first batch takes after a seek, near 0 and near 10^12, in turns."""
    print(f"\n{'first batch after a seek, warm, ms':44} {'p50':>8} {'p99':>8} {'worst':>8}")
    seconds: dict[str, list[float]] = {"near offset 0": [], "near offset 10^12": []}
    for place in np.random.default_rng(0).integers(0, table_rows, seeks).tolist():
        for label, base in zip(seconds, (0, 10**12), strict=True):
            started = time.perf_counter()
            stream = client.read(blend, base + place)
            next(stream)
            seconds[label].append(time.perf_counter() - started)
            stream.close()
    for label, values in seconds.items():
        p50, p99, worst = np.percentile(np.array(values) * 1e3, [50, 99, 100])
        print(f"{label:44} {p50:8.1f} {p99:8.1f} {worst:8.1f}")


def bench_memory(client: BlenderClient, server: Launched, blend: str, small: str, rows: int, readers: int = 64) -> None:
    """Print the server's own memory over a long read, and with many readers of which half never take a second batch.

    The long read is of `small`, a blend of short windows, so that many rows pass in minutes.
    """
    print(f"\n{'memory of the server, mapped files left out':44} {'MiB':>8}")
    print(f"{'before':44} {server.anonymous_bytes >> 20:8}")
    read = 0
    for batch in client.read(small, 0, rows):
        before, read = read, read + batch.rows
        if before // (rows // 4) != read // (rows // 4):
            print(f"{f'after {read:,} rows':44} {server.anonymous_bytes >> 20:8}")
    stalled = []
    for number in range(readers // 2):
        stalled.append(client.read(blend, number * 1000))
        next(stalled[-1])

    def run(number: int) -> None:
        for _ in client.read(blend, number * 1000, min(rows, 20_000)):
            pass

    threads = _started([lambda number=number: run(number) for number in range(readers // 2)])  # type: ignore[misc]
    highest = 0
    while any(thread.is_alive() for thread in threads):
        highest = max(highest, server.anonymous_bytes)
        time.sleep(0.05)
    print(f"{f'highest with {readers} readers, half of them stalled':44} {highest >> 20:8}")
    for stream in stalled:
        stream.close()
    time.sleep(1)
    print(f"{'after they left':44} {server.anonymous_bytes >> 20:8}")


def bench_many_streams(server: Launched, blend: str, counts: Sequence[int]) -> None:
    """Print what streams hold beside the cache, which has all blocks: each has sent some messages and waits."""
    before = server.anonymous_bytes
    print(f"\n{'memory of streams beside the cache':44} {'MiB':>8} {'KiB each':>9} {'after MiB':>9}")
    for count in counts:
        with contextlib.ExitStack() as stack:
            command = [sys.executable, str(SERVERS), "readers", server.address, blend, str(count // 2), "3"]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            readers = [stack.enter_context(subprocess.Popen(command, **pipes)) for _ in range(2)]  # type: ignore[call-overload]
            read = sum(int(reader.stdout.readline()) for reader in readers)
            held = server.anonymous_bytes - before
            for reader in readers:
                reader.stdin.close()
        time.sleep(2)
        after = (server.anonymous_bytes - before) >> 20
        print(f"{f'{read} streams':44} {held >> 20:8} {(held >> 10) // read:9} {after:9}")
