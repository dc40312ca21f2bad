"""Packing and tokens on real data: how full windows are, what is cut, how long plans take, how fast ids come.

    python benchmarks/bench_packing.py [--from DIRECTORY ...] [--megabytes 24] [--windows 1024,2048,8192,32768]

Reads Python sources (by default of the installed distributions), trains a tokenizer on them as the step does, and
prints two tables. Speeds are ratios within one run: thread settings are measured in turns, the best of each is kept;
MB per CPU second holds on a busy machine too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from spark_jobs.packing.byte_pairs import Encoder, train_byte_pairs
from spark_jobs.packing.histogram_plan import plan_slots
from spark_jobs.packing.units import cut_documents

Int64Array = npt.NDArray[np.int64]

_ENCODE = """
import sys, time
from pathlib import Path
from spark_jobs.packing.byte_pairs import Encoder
texts = Path(sys.argv[2]).read_text().split("\\0")
encoder = Encoder(Path(sys.argv[1]).read_text())
started, used = time.perf_counter(), time.process_time()
count = sum(len(ids) for ids in encoder.encode(texts, int(sys.argv[3])))
print(time.perf_counter() - started, time.process_time() - used)
"""


def main() -> None:
    """Measure and print."""
    arguments = parse_arguments()
    texts = list(read_sources([Path(path) for path in arguments.sources], arguments.megabytes << 20))
    size = sum(len(text.encode()) for text in texts)
    started = time.perf_counter()
    file = train_byte_pairs(texts, 32768, 2)
    print(f"{len(texts):,} documents, {size / 1e6:.1f} MB; trained in {time.perf_counter() - started:.1f} s")
    started = time.perf_counter()
    counts = np.array([len(ids) for ids in Encoder(file).encode(texts, 1 << 20)], dtype=np.int64)
    print(f"{counts.sum():,} tokens in {time.perf_counter() - started:.1f} s\n")
    print_packing(counts, [int(window) for window in arguments.windows.split(",")])
    print_speeds(file, texts, arguments.rounds)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--from", dest="sources", nargs="*", default=[sysconfig.get_path("purelib")])
    parser.add_argument("--megabytes", type=int, default=24)
    parser.add_argument("--windows", default="1024,2048,8192,32768")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of speed measurements; 0 leaves them out")
    return parser.parse_args()


def read_sources(folders: list[Path], limit: int) -> Iterator[str]:
    """Distinct source files in path order, each fourth of them, up to `limit` bytes."""
    seen: set[str] = set()
    for path in (path for folder in folders for path in sorted(folder.rglob("*.py"))[::4]):
        text = path.read_text(errors="replace").replace("\0", "")
        if text in seen or not text:
            continue
        seen.add(text)
        limit -= len(text.encode())
        if limit < 0:
            return
        yield text


def print_packing(counts: Int64Array, windows: list[int]) -> None:
    """Compare the plan with next-fit and with concatenation, per window length."""
    print("      L  windows  over ideal  utilisation  next-fit  cut documents: plan  concat  plan rows  plan ms")
    for window_tokens in windows:
        lengths = cut_documents(counts, window_tokens).length
        distinct, units = np.unique(lengths, return_counts=True)
        started = time.perf_counter()
        plan = plan_slots(dict(zip(distinct.tolist(), units.tolist(), strict=True)), window_tokens)
        milliseconds = (time.perf_counter() - started) * 1e3
        total = int(lengths.sum())
        print(
            f"{window_tokens:7,}  {plan.window_count:7,}  {plan.window_count - -(-total // window_tokens):+10,}"
            f"  {total / (plan.window_count * window_tokens):11.4%}"
            f"  {total / (next_fit_windows(lengths, window_tokens) * window_tokens):8.2%}"
            f"  {int((counts >= window_tokens).sum()):19,}  {concatenation_cuts(counts, window_tokens):6,}"
            f"  {len(plan.first_slot):9,}  {milliseconds:7.1f}"
        )
    print()


def next_fit_windows(lengths: Int64Array, window_tokens: int) -> int:
    """Windows when each unit goes into the current window or opens the next."""
    windows, room = 0, 0
    for length in lengths.tolist():
        if length > room:
            windows, room = windows + 1, window_tokens
        room -= length
    return windows


def concatenation_cuts(counts: Int64Array, window_tokens: int) -> int:
    """Documents that a cut goes through when all are written one after the other and cut every L tokens."""
    ends = np.cumsum(counts + 1)
    starts = ends - counts - 1
    return int(((ends - 1) // window_tokens > starts // window_tokens).sum())


def print_speeds(file: str, texts: list[str], rounds: int) -> None:
    """Encode in 1 and 2 processes with 1 thread and all threads each; best of some rounds."""
    if not rounds:
        return
    size = sum(len(text.encode()) for text in texts)
    settings = [
        (processes, parallel, batch)
        for processes in (1, os.cpu_count() or 1)
        for parallel in ("false", "true")
        for batch in (1 << 18, 1 << 20)
    ]
    wall: dict[tuple[int, str, int], float] = {}
    used: dict[tuple[int, str, int], float] = {}
    with tempfile.TemporaryDirectory() as folder:
        tokenizer, parts = Path(folder, "tokenizer.json"), Path(folder, "texts")
        tokenizer.write_text(file)
        parts.write_text("\0".join(texts))
        for _ in range(rounds):
            for setting in settings:
                processes, parallel, batch = setting
                command = [sys.executable, "-c", _ENCODE, str(tokenizer), str(parts), str(batch)]
                environment = {**os.environ, "TOKENIZERS_PARALLELISM": parallel}
                running = [
                    subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
                    for _ in range(processes)
                ]
                found = np.array([process.communicate()[0].split() for process in running], dtype=np.float64)
                wall[setting] = min(wall.get(setting, np.inf), float(found[:, 0].max()))
                used[setting] = min(used.get(setting, np.inf), float(found[:, 1].sum()))
    print("processes  threads in each  batch characters  MB/s together  MB per CPU second")
    for processes, parallel, batch in settings:
        work, setting = size * processes / 1e6, (processes, parallel, batch)
        threads = "all" if parallel == "true" else "1"
        print(f"{processes:9}  {threads:>15}  {batch:16,}  {work / wall[setting]:13.2f}  {work / used[setting]:17.2f}")


if __name__ == "__main__":
    main()
