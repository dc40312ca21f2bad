"""Ten million documents on one machine: real texts from files to windows, then 1% more, and recall of planted copies.

    python benchmarks/bench_size.py                                 20 GB of Debian's sources, packages, documentation
    python benchmarks/bench_size.py --gigabytes 2 --folders FOLDER  of the files below some folders
    python benchmarks/bench_size.py --scratch FOLDER --keep         where it works; what it made is left there
    python benchmarks/bench_size.py --profile spark                 a Spark cluster, S3 store, Postgres of its own

It says first what disk and time it takes, works in a folder of its own and removes that at its end. Texts come from
packages that apt downloads (a few at a time, deleted again), cut at blank lines into records of .6 to 4 KB, with
copies planted of 5% of them (`source_records.py`). The run is `headrace run` in a project of one dataset and one
corpus; engine and cluster are those of the environment, with `--profile spark` those of `spark_profile.py`. A row for
each run: GB and documents that it brought, seconds, processor seconds (user, system), the most MiB of anonymous memory
that its processes held together (of all processes of this user with `--all-processes`, for a cluster on this machine),
GB of the lake, engine; with a profile also what every table shuffled and spilled, and the most memory of each process.
Then, of the planted copies of each kind: how many have both ends in the corpus, how many of these share a component or
are exact duplicates, and how many of the others are similar enough by their bags, that is, were missed; in large
buckets no pair is made of a document that another one has removed, and it counts as missed here.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import command
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from cpu_time import anonymous_bytes, tree
from records_project import make_project
from source_records import write_planted, write_records
from spark_profile import SparkProfile, folder_bytes, spark_profile

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_THRESHOLD = 0.7  # the lowest that a corpus knows pairs of by default
# Of one GB of text, measured: records as files, and the lake's tables after both runs.
_DISK_SHARE = 1.2
_SECONDS_PER_GB = 200


class OwnProcesses:
    """A run in the environment as it is, with its lake in the project."""

    environment: Mapping[str, str] = MappingProxyType({})
    sample_seconds = 0.5

    def __init__(self, is_of_all: bool) -> None:
        """Its memory is that of all processes of this user, or of the run's alone."""
        self._is_of_all = is_of_all

    def sample(self, driver: int) -> int:
        """Bytes that the processes hold."""
        import psutil

        mine = os.getuid()
        user = (process for process in psutil.process_iter(["uids"]) if process.info["uids"].real == mine)
        return sum(anonymous_bytes(process.pid) for process in (user if self._is_of_all else tree(driver)))

    def seconds(self) -> tuple[float, float]:
        """None: nothing runs beside the run."""
        return 0.0, 0.0

    def lake_bytes(self, project: Path) -> int:
        """Of all files of the lake."""
        return folder_bytes(project / "warehouse")

    def catalogue(self, project: Path) -> Catalog:
        """That of the lake."""
        from headrace.tables.settings import settings_at
        from spark_jobs.lake.session.catalogue import open_catalogue

        return open_catalogue(settings_at(project / "warehouse"))

    def print_costs(self, documents: int) -> None:
        """Print nothing further."""


Profile: TypeAlias = OwnProcesses | SparkProfile


def run(project: Path, profile: Profile) -> tuple[float, float, float, int, str]:
    """Run `headrace run`: seconds, processor seconds of user and system, most bytes of memory, what it printed.

    Raises:
        SystemExit: it failed.
    """
    began, most, before = time.perf_counter(), 0, _spent(profile)
    with tempfile.TemporaryFile("w+") as said:
        words = [sys.executable, "-m", "dagster_project.cli", "run"]
        environment = {**os.environ, **profile.environment}
        how: dict[str, Any] = {"cwd": project, "env": environment, "stdout": said, "stderr": subprocess.STDOUT}
        with subprocess.Popen(words, start_new_session=True, **how) as running:
            try:
                while running.poll() is None:
                    most = max(most, profile.sample(running.pid))
                    time.sleep(profile.sample_seconds)
            finally:
                with contextlib.suppress(ProcessLookupError):  # nothing of it is left
                    os.killpg(running.pid, signal.SIGKILL)
        said.seek(0)
        printed = said.read()
    if running.returncode:
        raise SystemExit(f"{printed}\nheadrace run ended with status {running.returncode}")
    after = _spent(profile)
    return time.perf_counter() - began, after[0] - before[0], after[1] - before[1], most, printed


def _spent(profile: Profile) -> tuple[float, float]:
    """Processor seconds so far of all runs that ended, and of what runs beside them: user, system."""
    ended, beside = resource.getrusage(resource.RUSAGE_CHILDREN), profile.seconds()
    return ended.ru_utime + beside[0], ended.ru_stime + beside[1]


def print_run(name: str, project: Path, gigabytes: float, documents: int, profile: Profile) -> float:
    """Run, and print its row; gives its seconds."""
    seconds, user, system, most, printed = run(project, profile)
    engines = " ".join(re.findall(r"^engine: ([^(\n]+)", printed, re.MULTILINE)) or "-"
    lake_gigabytes = profile.lake_bytes(project) / 1e9
    speed = gigabytes * 1e3 / seconds
    print(f"{name:<8} {gigabytes:>8.2f} {documents:>11,} {seconds:>8.0f} {speed:>6.1f} {user:>7.0f} {system:>7.0f} "
          f"{most >> 20:>7} {lake_gigabytes:>7.2f}  {engines}", flush=True)  # fmt: skip
    profile.print_costs(documents)
    return seconds


def print_recall(catalogue: Catalog, planted: Path) -> None:
    """Print, for each kind of planted copies, how many were found, and how many should have been."""
    pairs = pq.read_table(planted)
    ends = pa.concat_arrays([pairs[name].combine_chunks() for name in ("id", "copy_id")])

    def rows(table: str, columns: tuple[str, ...], chosen: pa.Array | None = None) -> pa.Table:
        """Rows of a table, of some documents alone, read a batch at a time."""
        reader = catalogue.load_table(f"first.{table}").scan(selected_fields=columns).to_arrow_batch_reader()
        batches = [batch.filter(pc.is_in(batch["doc_id"], chosen)) if chosen is not None else batch for batch in reader]
        return pa.Table.from_batches(batches, reader.schema).combine_chunks()

    documents = dict[str, str]()
    members = catalogue.load_table("first.members").scan(selected_fields=("doc_id", "path")).to_arrow_batch_reader()
    for batch in members:
        names = pc.struct_field(pc.extract_regex(batch["path"], r"#(?P<id>[^#]*)$"), "id")
        planted_rows = batch.set_column(1, "path", names).filter(pc.is_in(names, ends))
        documents.update(zip(planted_rows["path"].to_pylist(), planted_rows["doc_id"].to_pylist(), strict=True))
    ids = pa.array(sorted(set(documents.values())))
    exact = rows("exact_duplicates", ("doc_id", "witness_doc_id"), ids)
    witness = dict(zip(exact["doc_id"].to_pylist(), exact["witness_doc_id"].to_pylist(), strict=True))
    grouped = rows("components", ("doc_id", "component", "threshold"))
    grouped = grouped.filter(pc.equal(grouped["threshold"], _THRESHOLD))
    component = dict(zip(grouped["doc_id"].to_pylist(), grouped["component"].to_pylist(), strict=True))
    print(f"\n{'planted':<8} {'both in the corpus':>19} {'found':>9} {'missed':>8} {'recall':>8}")
    for kind in ("whole", "edit", "near"):
        of_kind = pairs.filter(pc.equal(pairs["kind"], kind))
        both = [
            (witness.get(documents[left], documents[left]), witness.get(documents[right], documents[right]))
            for left, right in zip(of_kind["id"].to_pylist(), of_kind["copy_id"].to_pylist(), strict=True)
            if left in documents and right in documents
        ]
        apart = [
            (left, right)
            for left, right in both
            if left != right and (component.get(left) is None or component.get(left) != component.get(right))
        ]
        missed = _similar_pairs(catalogue, apart)
        joined = len(both) - len(apart)
        recall = joined / (joined + missed) if joined + missed else float("nan")
        print(f"{kind:<8} {len(both):>19,} {joined:>9,} {missed:>8,} {recall:>8.5f}", flush=True)


def _similar_pairs(catalogue: Catalog, pairs: list[tuple[str, str]]) -> int:
    """How many of some pairs of documents reach the threshold by their bags, compared one by one."""
    from spark_jobs.dedup.bags.bag_arrays import bags_from_columns
    from spark_jobs.dedup.sketches.similarity import overlaps

    chosen = pa.array(sorted({end for pair in pairs for end in pair}), pa.string())
    columns = ("doc_id", "token_hashes", "units", "levels")
    reader = catalogue.load_table("first.bags").scan(selected_fields=columns).to_arrow_batch_reader()
    bags = pa.Table.from_batches(
        [batch.filter(pc.is_in(batch["doc_id"], chosen)) for batch in reader], reader.schema
    ).combine_chunks()
    at = {document: row for row, document in enumerate(bags["doc_id"].to_pylist())}
    rows_of_pairs = [(at[left], at[right]) for left, right in pairs if left in at and right in at]
    if not rows_of_pairs:
        return 0
    left, right = (
        bags_from_columns(
            *(bags[name].cast(pa.large_binary()).combine_chunks().take(pa.array(side)) for name in columns[1:])
        )
        for side in zip(*rows_of_pairs, strict=True)
    )
    shared, united = overlaps(left, right)
    return int((shared >= _THRESHOLD * united - 1e-9).sum())


def measure(gigabytes: float, folders: list[Path], parent: Path, options: argparse.Namespace) -> None:
    """Write records, run over them and over 1% more, print the rows."""
    scratch = Path(tempfile.mkdtemp(prefix="headrace-size-", dir=parent))
    spark = options.profile == "spark"
    running: AbstractContextManager[Profile] = (
        spark_profile(scratch / "services") if spark else nullcontext(OwnProcesses(options.all_processes))
    )
    try:
        began = time.perf_counter()
        records, later = write_records(scratch / "records", scratch / "more", gigabytes, folders, scratch)
        write_planted(records.planted + later.planted, scratch / "planted.parquet")
        print(f"{records.count:,} records written in {time.perf_counter() - began:.0f} s", flush=True)
        with running as profile:
            first, more = ((part.byte_count / 1e9, part.count) for part in (records, later))
            measure_records(scratch, first, more, profile)
    finally:
        if options.keep:
            print(f"kept: {scratch}")
        else:
            shutil.rmtree(scratch, ignore_errors=True)


def measure_records(scratch: Path, first: tuple[float, int], later: tuple[float, int], profile: Profile) -> None:
    """Run over the records of a folder, then over 1% more, and print the rows.

    Args:
        scratch: folder with records, more, planted.parquet.
        first: GB and number of the records.
        later: of those of the second run.
        profile: where it runs.
    """
    project = scratch / "mill"
    make_project(project, scratch / "records")
    print(f"{'run':<8} {'GB':>8} {'documents':>11} {'seconds':>8} {'MB/s':>6} {'user':>7} {'system':>7} {'MiB':>7} "
          f"{'lake GB':>7}  engine")  # fmt: skip
    whole = print_run("first", project, *first, profile)
    for path in (scratch / "more").glob("*.parquet"):
        path.rename(scratch / "records" / path.name)
    more = print_run("1% more", project, *later, profile)
    print(f"1% more took {more / whole:.1%} of the first run's time")
    print_recall(profile.catalogue(project), scratch / "planted.parquet")


def main() -> None:
    """Say what it takes, then measure."""
    parser = command.parser(__doc__)
    parser.add_argument("--gigabytes", type=float, default=20, help="text of the first run")
    parser.add_argument("--folders", type=Path, nargs="+", default=[], help="read these files instead of packages")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()), help="where it works")
    parser.add_argument("--all-processes", action="store_true", help="memory of all processes of this user")
    parser.add_argument("--profile", choices=("spark",), help="a cluster, a store and Postgres that it starts itself")
    parser.add_argument("--keep", action="store_true", help="leave records and lake there")
    options = command.read(parser, gigabytes=0.005, folders=[Path(sysconfig.get_path("stdlib"))])
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    if not options.small and os.environ.get("HEADRACE_ENGINE") == "spark" and "HEADRACE_SPARK_MASTER" not in os.environ:
        os.environ.pop("HEADRACE_ENGINE")  # the run is to choose
    free = shutil.disk_usage(options.scratch).free / 1e9
    needed = options.gigabytes * _DISK_SHARE
    print(f"{options.gigabytes:g} GB of text: some {needed:.3g} GB of disk in {options.scratch} ({free:.0f} free), "
          f"about {options.gigabytes * _SECONDS_PER_GB / 60:.3g} minutes on two cores", flush=True)  # fmt: skip
    if needed > free:
        raise SystemExit("too little disk: give --scratch FOLDER or fewer --gigabytes")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what it started ends with it
    command.attempt(measure, options.gigabytes, options.folders, options.scratch, options)


if __name__ == "__main__":
    main()
