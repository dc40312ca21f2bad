"""The whole way from files to packed windows, step by step: what a step costs at all, and what a further MB costs.

    python benchmarks/bench_pipeline.py                      RFCs of 10, 40 and 160 MB, about 9 minutes on two cores
    python benchmarks/bench_pipeline.py --sizes 160 640      RFCs, and after them this machine's Python code and docs
    python benchmarks/bench_pipeline.py --pieces 1000 10000  so many small documents (2 KB), where fixed costs are all

Each size is run in processes and lakes of their own: side by side, as users run it, on each engine, and on Spark one
step at a time too, which the table is about. Memory is the most that a process and its children held together. Spark
starts in the first step. Columns, of each step:

    fixed     seconds of a step over no text, by the line through the two largest sizes (never below 0)
    slope     core milliseconds a further MB: wall-clock time of two cores, by the same line
    alone     seconds of the smallest run in which no task ran: planning, commits, the ledger, starting Spark
    tasks     seconds that its tasks took over all cores in the largest run, and how much of that was not the JVM's own
              computing: Python workers, reading and writing, waiting for a core

Documents are those of `REAL_DATA_DIR`. With `--peer-python PYTHON`, datatrove reads the same files, applies Gopher's
quality filter, makes MinHash signatures and counts tokens, in the same run and with as many processes as cores.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import command
from corpora import real, rfc_pieces, rfcs
from whole_way import run_whole_way

_CORES = 2
_FILE_BYTES = 4_000_000
_SUFFIXES = {".c", ".h", ".hpp", ".html", ".js", ".md", ".pl", ".pm", ".py", ".pyi", ".rst", ".txt"}
_PEER = """
import sys
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import MinhashDedupSignature
from datatrove.pipeline.filters import GopherQualityFilter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import TokensCounter

source, into, cores = sys.argv[1:]
counter = TokensCounter(tokenizer_name_or_path=f"{source}/../tokenizer.json")
signatures = MinhashDedupSignature(output_folder=f"{into}/signatures")
steps = [JsonlReader(source), GopherQualityFilter(), counter, signatures]
LocalPipelineExecutor(steps, tasks=int(cores), workers=int(cores), logging_dir=f"{into}/logs").run()
"""


def texts_of(megabytes: float) -> Iterator[str]:
    """Whole RFCs of so much text, an even choice among all numbers; if they are too few, then code and docs too."""
    texts = rfcs()
    total = sum(map(len, texts))
    every = max(total / (megabytes * 1e6), 1.0)
    yield from (texts[int(at * every)] for at in range(int(len(texts) / every)))
    for text in _code_and_docs():
        if total >= megabytes * 1e6:
            return
        total += len(text)
        yield text


def _code_and_docs() -> Iterator[str]:
    """Text files of this Python environment, of the Python that it was made from, and of the system, in that order."""
    for root in (sys.prefix, sysconfig.get_path("stdlib"), "/usr/share", "/usr/include"):
        for path in sorted(Path(root).rglob("*")):
            if path.suffix in _SUFFIXES and path.is_file() and not path.is_symlink():
                with contextlib.suppress(UnicodeDecodeError):
                    yield path.read_text(encoding="utf-8")


def write(folder: Path, texts: Iterator[str]) -> int:
    """The texts as JSONL in files of about 4 MB; gives the bytes of the texts."""
    folder.mkdir(parents=True)
    total, file = 0, None
    for text in texts:
        if file is None or file.tell() > _FILE_BYTES:
            file = (folder / f"{total:012}.jsonl").open("w")
        total += len(text.encode())
        file.write(json.dumps({"text": text}) + "\n")
    return total


def watched(command: Sequence[str], engine: str) -> tuple[float, float, str]:
    """Run a program: seconds, the most GB of it and its children together, and what it printed."""
    import psutil

    began, most = time.perf_counter(), 0
    environment = {**os.environ, "HEADRACE_ENGINE": engine}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as running:
        own = psutil.Process(running.pid)
        while running.poll() is None:
            with contextlib.suppress(psutil.Error):
                most = max(most, sum(one.memory_info().rss for one in (own, *own.children(recursive=True))))
            time.sleep(0.25)
        said = running.stdout.read() if running.stdout is not None else ""
    if running.returncode:
        raise SystemExit(f"{engine}: it failed")
    return time.perf_counter() - began, most / 1e9, said


def measure(folder: Path, engine: str, steps_at_once: int | None) -> list[dict[str, Any]]:
    """Run the whole way over the files of a folder, in this process; a row for each step, in order.

    What is said of the stages of a step is right for one step at a time.
    """
    from spark_jobs.lake.ledger.ledger_table import LEDGER

    lake = folder / f"lake-{engine}-{steps_at_once}"
    catalogue = run_whole_way(folder / "texts", lake, {"spark.ui.retainedStages": "100000"}, steps_at_once)
    stages = list(_stages()) if engine == "spark" else []
    rows = catalogue.load_table(LEDGER).scan().to_arrow().sort_by("recorded_at").to_pylist()
    found = []
    for step_rows in itertools.groupby(rows, key=lambda row: (row["table"].split(".")[0], row["step"])):
        row = list(step_rows[1])[-1]
        ended = row["recorded_at"].timestamp()
        own = [one for one in stages if ended - row["seconds"] - 0.05 <= one[0] < ended]
        found.append(
            {
                "step": row["step"] if not row["step"].startswith("packed") else "packed",
                "seconds": row["seconds"],
                "alone": row["seconds"] - _covered(own),
                "tasks": sum(one[2] for one in own),
                "java": sum(one[3] for one in own),
            }
        )
    return found


def _stages() -> Iterator[tuple[float, float, float, float]]:
    """Begin and end of each stage of this process's session, seconds of its tasks, CPU seconds of those in the JVM."""
    from pyspark.sql import SparkSession

    from spark_jobs.lake.session.session import stages

    for one in stages(SparkSession.builder.getOrCreate()):
        begin, end = one.submissionTime(), one.completionTime()
        if begin.isDefined() and end.isDefined():
            times = begin.get().getTime() / 1000, end.get().getTime() / 1000
            yield *times, one.executorRunTime() / 1e3, one.executorCpuTime() / 1e9


def _covered(stages: Sequence[tuple[float, float, float, float]]) -> float:
    """Seconds in which at least one of the stages ran."""
    total, until = 0.0, 0.0
    for begin, end, _, _ in sorted(stages):
        total += max(end - max(begin, until), 0.0)
        until = max(until, end)
    return total


def peer_seconds(python: str, folder: Path) -> float:
    """Seconds that datatrove takes for the same files, its start included."""
    (folder / "tokenizer.json").write_bytes(real("tokenizers/gpt2.json").read_bytes())
    began = time.perf_counter()
    command.peer(python, "-c", _PEER, str(folder / "texts"), str(folder / "datatrove"), str(_CORES))
    return time.perf_counter() - began


def show(sizes: list[float], runs: list[list[dict[str, Any]]]) -> None:
    """Print a line for each step, and their sums."""
    (small, large), (less, more) = sizes[-2:], runs[-2:]
    print(f"\n{'step':<18}" + "".join(f"{size:>8.0f} MB" for size in sizes) + f"{'fixed':>8}{'slope':>9}{'alone':>8}"
          f"{'tasks':>8}{'not JVM':>9}")  # fmt: skip
    lines = []
    for at, row in enumerate(more):
        seconds = [run[at]["seconds"] for run in runs]
        slope = max(row["seconds"] - less[at]["seconds"], 0.0) / (large - small)
        fixed = max(less[at]["seconds"] - slope * small, 0.0)
        shares = [runs[0][at]["alone"], row["tasks"], row["tasks"] - row["java"]]
        lines.append((row["step"], seconds, [fixed, slope * _CORES * 1000, *shares]))
    whole = ("all", [sum(c) for c in zip(*(line[1] for line in lines), strict=True)],
             [sum(c) for c in zip(*(line[2] for line in lines), strict=True)])  # fmt: skip
    for name, seconds, (fixed, slope, alone, tasks, other) in [*lines, whole]:
        head = f"{name:<18}" + "".join(f"{one:>10.1f}s" for one in seconds)
        print(f"{head}{fixed:>8.1f}{slope:>9.2f}{alone:>8.1f}{tasks:>8.1f}{other:>9.1f}")
    began, ended = (sum(row["seconds"] for row in run) for run in (less, more))
    print(f"slope of the whole way: {(large - small) / (ended - began):.1f} MB/s on {_CORES} cores")


def main() -> None:
    """Measure each size in a process of its own, and print what steps cost."""
    parser = command.parser(__doc__)
    parser.add_argument("--sizes", type=float, nargs="+", default=[10, 40, 160], help="MB of RFCs")
    parser.add_argument("--pieces", type=int, nargs="+", help="numbers of pieces of 2 KB, in place of RFCs")
    parser.add_argument("--peer-python", default=os.environ.get("HEADRACE_PEER_PYTHON"), help="Python with datatrove")
    parser.add_argument("--engines", nargs="+", default=["sail", "spark"], choices=["sail", "spark"])
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = command.read(parser, sizes=[0.3], engines=["sail"])
    if given.one:
        print(json.dumps(measure(Path(given.one[0]), given.one[1], int(given.one[2]) or None)))
        return
    sizes, runs, peer = [], [], []
    walls: dict[str, list[float]] = {engine: [] for engine in given.engines}
    for size in sorted(given.pieces or given.sizes):
        with tempfile.TemporaryDirectory(prefix="pipeline-") as scratch:
            folder = Path(scratch)
            texts = iter(rfc_pieces()[:size]) if given.pieces else texts_of(size)
            sizes.append(write(folder / "texts", texts) / 1e6)
            print(f"{sizes[-1]:,.1f} MB, with the process's start:")
            for engine in given.engines:
                arguments = [__file__, "--one", scratch, engine, "0"]  # as many as the executor chooses
                seconds, gigabytes, _ = watched([sys.executable, *arguments], engine)
                walls[engine].append(seconds)
                print(f"  {engine}, side by side: {seconds:.1f} s, {gigabytes:.1f} GB")
            if "spark" in given.engines:
                seconds, _, said = watched([sys.executable, __file__, "--one", scratch, "spark", "1"], "spark")
                runs.append(json.loads(said.splitlines()[-1]))
                print(f"  spark, one step at a time: {seconds:.1f} s")
            if given.peer_python:
                peer.append(peer_seconds(given.peer_python, folder))
                print(f"  datatrove (read, Gopher, MinHash signatures, token counts): {peer[-1]:,.1f} s")
    if len(runs) > 1:
        show(sizes, runs)
    for engine, took in walls.items():
        if len(took) > 1:
            print(f"{engine}, slope side by side: {(sizes[-1] - sizes[-2]) / (took[-1] - took[-2]):.1f} MB/s")
    if len(peer) > 1:
        print(f"datatrove's slope: {(sizes[-1] - sizes[-2]) / (peer[-1] - peer[-2]):.2f} MB/s on {_CORES} cores")


if __name__ == "__main__":
    main()
