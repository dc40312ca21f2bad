"""Whole runs in little memory: `headrace run` in a cgroup, again until it ends, for sizes of memory and of text.

    python benchmarks/bench_memory.py                                  2, 4 and 8 GiB x .1, .5, 1 and 3 GB, some hours
    python benchmarks/bench_memory.py --gib 2 --gigabytes 0.5          one of them
    python benchmarks/bench_memory.py --records FOLDER                 of these Parquet files (`id`, `text`)

Without a folder texts are pieces of RFCs, repeated with other words until there are enough. Columns: seconds of all
runs together, the most MiB that their processes held, runs that the kernel killed, steps that failed, and engines. A
run that was killed is started again, as a service does, five times at most. It needs root, or a user whose systemd lets
it make cgroups.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import command
import pyarrow as pa
import pyarrow.parquet as pq
from corpora import rfc_pieces
from records_project import make_project

_MOST_RUNS = 5
_FILE_ROWS = 50_000


def pieces(gigabytes: float) -> Iterator[str]:
    """Pieces of some 2 KB; those of a later round differ from the round before in one word of twenty."""
    left, texts = gigabytes * 1e9, rfc_pieces()
    for number in itertools.count():
        for text in texts:
            made = text if not number else re.sub(r"((?:\S+\s+){19})\S+", rf"\g<1>round{number}", text)
            left -= len(made.encode())
            yield made
            if left <= 0:
                return


def write_texts(folder: Path, gigabytes: float) -> None:
    """Parquet files of the pieces."""
    folder.mkdir()
    texts = enumerate(pieces(gigabytes))
    for number in itertools.count():
        rows = list(itertools.islice(texts, _FILE_ROWS))
        if not rows:
            return
        table = pa.table({"id": [f"{row:09}" for row, _ in rows], "text": [text for _, text in rows]})
        pq.write_table(table, folder / f"part-{number:04}.parquet", compression="zstd")


def choose_records(records: Path, folder: Path, gigabytes: float) -> None:
    """Links to the first files of a folder that hold so much text."""
    folder.mkdir()
    held = 0.0
    for path in sorted(records.glob("*.parquet")):
        if held >= gigabytes:
            return
        (folder / path.name).symlink_to(path)
        footer = pq.read_metadata(path)
        held += sum(footer.row_group(group).total_byte_size for group in range(footer.num_row_groups)) / 1e9


class Cage:
    """A cgroup of v1 or v2 with a bound of memory, for programs that are run one after another."""

    def __init__(self, byte_count: int) -> None:
        """Make it.

        Raises:
            MissingError: it may not be made here.
        """
        root = Path("/sys/fs/cgroup")
        self._is_v2 = (root / "cgroup.controllers").is_file()
        self._folder = (root if self._is_v2 else root / "memory") / f"headrace-bench-{os.getpid()}"
        try:
            self._folder.mkdir()
            limit = "memory.max" if self._is_v2 else "memory.limit_in_bytes"
            (self._folder / limit).write_text(str(byte_count))
        except OSError as error:
            raise command.MissingError(f"no cgroup can be made: {error}") from error

    def run(self, folder: Path, words: list[str]) -> tuple[int, int, str]:
        """Run a program in it: its status, the most bytes that its processes held, what it printed."""
        entry = f'echo $$ > {self._folder}/cgroup.procs && exec "$@"'
        most = 0
        with tempfile.TemporaryFile("w+") as said:
            program = ["/bin/sh", "-c", entry, "sh", *words]
            with subprocess.Popen(program, cwd=folder, stdout=said, stderr=subprocess.STDOUT) as running:
                while running.poll() is None:
                    most = max(most, self._held())
                    time.sleep(0.25)
            said.seek(0)
            return running.returncode, most, said.read()

    def _held(self) -> int:
        stat = dict(line.split() for line in (self._folder / "memory.stat").read_text().splitlines())
        return int(stat["anon" if self._is_v2 else "total_rss"])

    def close(self) -> None:
        """Remove it, once its processes are gone."""
        for _ in range(100):
            try:
                self._folder.rmdir()
            except OSError:
                time.sleep(0.1)
            else:
                return


def measure(gib: float, gigabytes: float, records: Path | None) -> None:
    """Print the row of one size of memory and one of text."""
    with tempfile.TemporaryDirectory(prefix="memory-") as scratch:
        texts, project = Path(scratch) / "texts", Path(scratch) / "mill"
        write_texts(texts, gigabytes) if records is None else choose_records(records, texts, gigabytes)
        make_project(project, texts)
        began, most, killed, failed, engines, status = time.perf_counter(), 0, 0, 0, list[str](), -1
        for _ in range(_MOST_RUNS):
            cage = Cage(int(gib * (1 << 30)))
            try:
                status, held, said = cage.run(project, [sys.executable, "-m", "dagster_project.cli", "run"])
            finally:
                cage.close()
            most, killed = max(most, held), killed + (status in (-9, 137))
            complaints = re.findall(r"^.*(?: failed |needs more memory|the kernel ended).*$", said, re.MULTILINE)
            print(*complaints, sep="\n", file=sys.stderr, flush=True)
            failed += len(re.findall(r"^\S+ +[\d.]+ s  failed", said, re.MULTILINE))
            killed += said.count("the kernel ended it for memory")
            engines += re.findall(r"^engine: (\w+)", said, re.MULTILINE)
            if status not in (-9, 137):
                break
        seconds = time.perf_counter() - began
        print(f"{gib:>5g} GiB {gigabytes:>6g} GB {seconds:>8.0f} s {most >> 20:>7} MiB {killed:>7} {failed:>7}  "
              f"{'ends' if status == 0 else f'status {status}':<9} {' '.join(engines)}", flush=True)  # fmt: skip


def main() -> None:
    """Print a row for each size of memory and of text."""
    parser = command.parser(__doc__)
    parser.add_argument("--gib", type=float, nargs="+", default=[2, 4, 8], help="memory of the cgroup")
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[0.1, 0.5, 1, 3], help="text")
    parser.add_argument("--records", type=Path, help="folder of Parquet files with the columns id and text")
    given = command.read(parser, gib=[2], gigabytes=[0.002])
    os.environ.pop("HEADRACE_ENGINE", None)  # the run is to choose
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    print(f"{'memory':>9} {'text':>9} {'seconds':>10} {'most':>11} {'killed':>7} {'failed':>7}  end       engines")
    for gib, gigabytes in itertools.product(given.gib, given.gigabytes):
        command.attempt(measure, gib, gigabytes, given.records)


if __name__ == "__main__":
    main()
