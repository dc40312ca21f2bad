"""What a document costs at scale: bytes and seconds of every table, shuffled bytes, memory of the driver.

    python benchmarks/bench_scale.py                  three sizes of real prose, about 15 minutes on two cores
    python benchmarks/bench_scale.py --sizes 1000 4000

The whole way, from files to windows, is run for each size in a lake and a process of its own; the slope between the two
largest sizes is what a further document costs, so that fixed costs per step do not hide it. The last table multiplies
it: docs/operate/scale.md says what to make of that. Documents are pieces of RFCs of 2 KB from `REAL_DATA_DIR`.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import command
from bench_pipeline import write
from corpora import rfc_pieces
from cpu_time import peak_mib
from whole_way import run_whole_way

_TARGETS = (10**9, 10**10)
_CORES = 2


def measure(size: int, declared: dict[str, Any]) -> dict[str, Any]:
    """Run the whole way over some documents, in this process."""
    from spark_jobs.lake.ledger.ledger import Ledger

    folder = Path(tempfile.mkdtemp(prefix="scale-"))
    text_bytes = write(folder / "notes", iter(rfc_pieces(size)))
    catalogue = run_whole_way(folder / "notes", folder / "lake", declared=declared)
    ledger = Ledger(catalogue)
    ledger.refresh()
    tables = {}
    for space in ("notes", "main"):
        for _, name in catalogue.list_tables(space):
            places = ledger.places(f"{space}.{name}").values()
            tables[f"{space}.{name}"] = (
                sum(one.row_count for one in places),
                sum(one.byte_count for one in places),
                sum(one.seconds or 0 for one in places),
                min((one.step for one in places), default=""),
            )
    return {"text_bytes": text_bytes, "tables": tables, **spark_costs()}


def spark_costs() -> dict[str, float]:
    """Bytes that this process's session shuffled, and the peak memory of the driver's Python and of its JVM."""
    import psutil
    from pyspark.sql import SparkSession

    driver = float(peak_mib())
    if os.environ.get("HEADRACE_ENGINE") == "sail":
        return {"shuffled": math.nan, "driver_mib": driver, "jvm_mib": math.nan}
    session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    executors = session.sparkContext._jsc.sc().statusStore().executorList(False)
    shuffled = sum(executors.apply(index).totalShuffleWrite() for index in range(executors.size()))
    java = next(one for one in psutil.Process().children(recursive=True) if "java" in one.name())
    return {
        "shuffled": float(shuffled),
        "driver_mib": driver,
        "jvm_mib": java.memory_info().rss / 2**20,
    }


def _size_text(count: float) -> str:
    units = ("B", "KB", "MB", "GB", "TB", "PB")
    index = 0
    while count >= 1000 and index < len(units) - 1:
        count, index = count / 1000, index + 1
    return f"{count:.3g} {units[index]}"


def main() -> None:
    """Measure each size in a process of its own, and print what a further document costs."""
    parser = command.parser(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[5_000, 20_000, 60_000])
    parser.add_argument("--one", type=int, help="measure this size in this process, and print JSON")
    parser.add_argument("--corpus", default="{}", help='further attributes of the corpus as JSON: {"clusters": {}}')
    given = command.read(parser, sizes=[200, 400])
    if given.one:
        print(json.dumps(measure(given.one, json.loads(given.corpus))))
        return
    found = {}
    print("documents  text        shuffled a document  driver: Python, JVM")
    for size in sorted(given.sizes):
        one = found[size] = command.again(__file__, "--one", str(size), "--corpus", given.corpus)
        print(
            f"{size:>9,}  {_size_text(one['text_bytes']):<10}  {one['shuffled'] / size:>13,.0f} B"
            f"      {one['driver_mib']:,.0f}, {one['jvm_mib']:,.0f} MiB"
        )
    small, large = sorted(found)[-2:]
    further = large - small
    head = "".join(f"{f'at {target:.0e}'.replace('e+', 'e'):>12}" for target in _TARGETS)
    print(f"\n{'table':<32}{'rows a doc.':>12}{'B a doc.':>10}{'core ms a doc.':>16}{head}")
    seconds: dict[str, float] = defaultdict(float)
    total_bytes = 0.0
    for table, (rows, size_bytes, spent, step) in found[large]["tables"].items():
        before = found[small]["tables"].get(table, (0, 0, 0, step))
        a_row, a_byte = (rows - before[0]) / further, (size_bytes - before[1]) / further
        core_ms = max(spent - before[2], 0) * _CORES * 1000 / further
        seconds[step] = max(seconds[step], core_ms)
        total_bytes += a_byte
        projected = "".join(f"{_size_text(max(a_byte, 0) * target):>12}" for target in _TARGETS)
        print(f"{table:<32}{a_row:>12.3f}{a_byte:>10.0f}{core_ms:>16.3f}{projected}")
    core_ms = sum(seconds.values())  # tables of one step have the same seconds
    projected = "".join(f"{_size_text(total_bytes * target):>12}" for target in _TARGETS)
    print(f"{'all':<32}{'':>12}{total_bytes:>10.0f}{core_ms:>16.3f}{projected}")
    for target in _TARGETS:
        print(f"core hours at {target:.0e}: {core_ms * target / 3.6e6:,.0f}")


if __name__ == "__main__":
    main()
