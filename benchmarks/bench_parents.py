"""What it costs to go through the parents of a dataset that a model writes, and of one of executed code.

    python benchmarks/bench_parents.py [--parents 10000 100000] [--text-bytes 4000]

One row a number of parents, each in a process of its own: bytes read from files for those of the tables, memory at its
highest above that before the first parent, seconds.
"""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import command
import pyarrow as pa
from pyiceberg.catalog import Catalog

from headrace.tables.settings import settings_at
from headrace_features.synthetic.executed.fetch import rounds
from headrace_features.synthetic.executed_config import ExecutedSource
from headrace_features.synthetic.generated_config import Parents
from headrace_features.synthetic.parents import parent_texts
from spark_jobs.filters.verdicts import VERDICTS
from spark_jobs.lake.declare.tables import Table
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue
from spark_jobs.sources.documents import DOCUMENTS
from spark_jobs.text.texts import TEXTS

_AT_ONCE = 10_000
_WORDS = [hashlib.sha256(str(number).encode()).hexdigest()[:8] for number in range(5000)]


def put(catalogue: Catalog, table: Table, rows: list[dict[str, Any]]) -> None:
    """Append rows of the first increment; columns that are not given are empty."""
    made = ensure_table(catalogue, f"code.{table.name}", table, {})
    filler: dict[str, Any] = {"string": "", "int": 0, "long": 0, "boolean": False}
    empty = {one.name: filler.get(str(one.field_type), []) if one.required else None for one in made.schema().fields}
    made.append(pa.Table.from_pylist([{**empty, **row} for row in rows], schema=made.schema().as_arrow()))


def make_lake(root: Path, count: int, text_bytes: int) -> None:
    """A dataset of so many kept documents of code, twenty of a repository."""
    catalogue, drawn = open_catalogue(settings_at(root)), random.Random(0)
    for first in range(0, count, _AT_ONCE):
        numbers = range(first, min(first + _AT_ONCE, count))
        ids = [{"doc_id": hashlib.sha256(str(number).encode()).hexdigest()[:32]} for number in numbers]
        places = [
            {"path": f"{number}.py", "repository": f"r{number // 20}", "language": "python"} for number in numbers
        ]
        texts = [{"content": " ".join(drawn.choices(_WORDS, k=text_bytes // 9))} for _ in numbers]
        put(catalogue, DOCUMENTS, [{**one, **place} for one, place in zip(ids, places, strict=True)])
        put(catalogue, TEXTS, [{**one, **text} for one, text in zip(ids, texts, strict=True)])
        put(catalogue, VERDICTS, [{**one, "kept": True} for one in ids])


def documents_of(kind: str, catalogue: Catalog) -> Iterator[Any]:
    """The documents as a run goes through them."""
    if kind == "generated":
        return iter(parent_texts(catalogue, Parents(dataset="code"), 0))
    source = ExecutedSource.model_validate({"kind": "executed", "parents": {"dataset": "code"}})
    return (one for bundles in rounds(catalogue, source) for bundle in bundles for one in bundle.documents)


def bytes_read() -> int:
    """Bytes that this process has read from files so far, in memory or not."""
    return int(Path("/proc/self/io").read_text().split()[1])


def bytes_written() -> int:
    """Bytes that this process has written so far: temporary files alone, which are read again once."""
    return int(Path("/proc/self/io").read_text().split()[3])


def most_memory() -> int:
    """Kilobytes of this process at its highest; `ru_maxrss` is that of its parent too."""
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])


def measured(root: Path, kind: str) -> dict[str, float]:
    """Go through all parents once."""
    catalogue = open_catalogue(settings_at(root))
    names = ("texts", "verdicts", *(("documents",) if kind == "executed" else ()))
    tasks = [task for name in names for task in catalogue.load_table(f"code.{name}").scan().plan_files()]
    size = sum(task.file.file_size_in_bytes for task in tasks)
    read, memory, begin = bytes_read(), most_memory(), time.perf_counter()
    written = bytes_written()
    count = sum(1 for _ in documents_of(kind, catalogue))
    seconds = time.perf_counter() - begin
    grown = most_memory() - memory
    spilled = bytes_written() - written
    return {
        "count": count, "table_mb": size / 1e6, "read": (bytes_read() - read - spilled) / size,
        "disk": spilled / size, "memory_mb": grown / 1e3, "seconds": seconds,
    }  # fmt: skip


def main() -> None:
    """Print the table."""
    arguments = command.parser(__doc__)
    arguments.add_argument("--parents", type=int, nargs="+", default=[10_000, 100_000])
    arguments.add_argument("--text-bytes", type=int, default=4000)
    arguments.add_argument("--measure", nargs=2, metavar=("ROOT", "KIND"), help="of the process of a row")
    asked = command.read(arguments, parents=[500, 2000], text_bytes=400)
    if asked.measure:
        print(json.dumps(measured(Path(asked.measure[0]), asked.measure[1])))
        return
    print("kind        parents   tables MB   read / tables   disk / tables   memory MB   seconds")
    for count in asked.parents:
        with tempfile.TemporaryDirectory() as folder:
            make_lake(Path(folder), count, asked.text_bytes)
            for kind in ("generated", "executed"):
                row = command.again(__file__, "--measure", folder, kind)
                print(
                    f"{kind:10} {row['count']:8,} {row['table_mb']:11.1f} {row['read']:15.2f} {row['disk']:15.2f} "
                    f"{row['memory_mb']:11.0f} {row['seconds']:9.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
