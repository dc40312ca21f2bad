"""Plans of opt-outs: `python benchmarks/bench_rights.py [--documents N] [--entries N]`: what all entries hit, seconds.

A lake is written directly: documents of repositories and pages with metadata, a corpus with pairs and exact duplicates,
a packed table of ten documents a window. Entries are of six kinds; one in two hits something.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import command
import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog

from headrace_features.rights.hits.plan import make_plan
from headrace_features.rights.register.register import add_entries
from headrace_features.rights.register.subjects import opt_outs_of
from spark_jobs.dedup.membership.exact_duplicates import EXACT_DUPLICATES
from spark_jobs.dedup.membership.members import MEMBERS
from spark_jobs.dedup.near.pairs import PAIRS
from spark_jobs.dedup.removal.survivors import SURVIVORS
from spark_jobs.lake.declare.tables import Table
from spark_jobs.lake.session.catalogue import ensure_table
from spark_jobs.packing.packed_table import packed_table
from spark_jobs.sources.documents import DOCUMENTS
from tests.blender_service.packed_tables import open_lake
from tests.headrace_features.rights.planted import KINDS, filled, put, record

PART = 100_000
PACKED = "main.packed_code_16"


def ids(first: int, count: int) -> list[str]:
    """The doc_ids of documents by number."""
    return [hashlib.md5(str(number).encode()).hexdigest() for number in range(first, first + count)]


def documents(first: int, count: int) -> dict[str, Any]:
    """Columns of documents: repositories of 50 files, every tenth document a page with an address and an author."""
    numbers = range(first, first + count)
    pages = [number % 10 == 0 for number in numbers]
    return {
        "doc_id": ids(first, count), "increment": [0] * count, "shard": [0] * count, "kind": ["code"] * count,
        "repository": [None if n % 10 == 0 else f"owner{n // 200}/repo{n // 50}" for n in numbers],
        "path": [f"src/part{number % 7}/file{number}.py" for number in numbers],
        "content": ["x"] * count, "encoding": ["utf-8"] * count, "byte_count": [1] * count,
        "content_sha256": [hashlib.sha256(str(number).encode()).hexdigest() for number in numbers],
        "metadata": [
            [("url", f"https://site{n // 100}.example/page/{n}"), ("author", f"Author {n // 100}")] if page else []
            for n, page in zip(numbers, pages, strict=True)
        ],
    }  # fmt: skip


def append(catalogue: Catalog, identifier: str, declared: Table, columns: dict[str, Any]) -> None:
    """Append columns; required ones that are not named are filled."""
    table = ensure_table(catalogue, identifier, declared, {})
    count = len(next(iter(columns.values())))
    schema = table.schema().as_arrow()
    rest = {name: [value] * count for name, value in filled(declared, {"increment": 0}).items()}
    named = {field.name: {**rest, **columns}.get(field.name, [None] * count) for field in schema}
    table.append(pa.Table.from_pydict(named, schema))


def make(folder: Path, count: int) -> Catalog:
    """Write the lake."""
    catalogue = open_lake(folder)
    put(catalogue, "main", MEMBERS, [{"dataset": "code", "doc_id": "0" * 32}], config={"datasets": ["code"]})
    put(catalogue, "main", SURVIVORS, [{"dataset": "code", "doc_id": "0" * 32}],
        config={"threshold": dict.fromkeys(KINDS, 0.7)}, inputs=["main.removals"])  # fmt: skip
    for first in range(0, count, PART):
        part = min(PART, count - first)
        append(catalogue, "code.documents", DOCUMENTS, documents(first, part))
        here, other = ids(first, part), np.random.default_rng(first).permutation(part).tolist()
        better = [here[number] for number in other]
        tenth = part // 10
        pair = {"kind": ["code"] * tenth, "united_weight": [10] * tenth, "shared_weight": [8] * tenth}
        pairs = {**pair, "doc_id": here[:tenth], "better_doc_id": better[:tenth], "similarity": [0.8] * tenth}
        append(catalogue, "main.pairs", PAIRS, pairs)
        same = {"doc_id": here[:tenth], "witness_doc_id": better[-tenth:], "matched": ["bytes"] * tenth}
        append(catalogue, "main.exact_duplicates", EXACT_DUPLICATES, same)
        windows = [here[at : at + 10] for at in range(0, part, 10)]
        segment = {"document_start": 0, "token_count": 1, "window_start": 0}
        append(catalogue, PACKED, packed_table("code", 16), {
            "ordinal": range(first // 10, first // 10 + len(windows)),
            "input_ids": [[1] * 16] * len(windows), "token_count": [10] * len(windows),
            "segments": [[{"doc_id": doc_id, **segment} for doc_id in window] for window in windows],
        })  # fmt: skip
    catalogue.load_table(PACKED).transaction().set_properties({"headrace.window-tokens": "16"}).commit_transaction()
    record(catalogue, "main.pairs", "main.exact_duplicates", PACKED)
    return catalogue


def wanted(count: int, documents: int) -> Iterator[tuple[Any, list[str]]]:
    """Values of entries by kind: half of them of the lake."""
    each = count // 6
    numbers = [number * max(documents // each, 1) for number in range(each // 2)]
    yield "repository", [f"owner{n // 200}/repo{n // 50}" for n in numbers] + [f"no/r{n}" for n in range(each // 2)]
    yield "domain", [f"site{n // 100}.example" for n in numbers] + [f"no{n}.example" for n in range(each // 2)]
    yield "url_prefix", [f"https://site{n // 100}.example/page/{n // 100}" for n in numbers] + [
        f"https://no{n}.example/a" for n in range(each // 2)
    ]  # fmt: skip
    yield "path", [f"src/part{n % 7}/file{n}.py" for n in numbers] + [f"no/{n}/*" for n in range(each // 2)]
    yield "sha256", [hashlib.sha256(str(n).encode()).hexdigest() for n in range(each)]
    yield "author", [f"Author {n // 100}" for n in numbers] + [f"Nobody {n}" for n in range(each // 2)]


def main() -> None:
    """Print the seconds of a plan of all entries."""
    parser = command.parser(__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--entries", type=int, default=13_000)
    arguments = command.read(parser, documents=20_000, entries=600)
    with tempfile.TemporaryDirectory() as folder:
        catalogue = make(Path(folder), arguments.documents)
        for kind, values in wanted(arguments.entries, arguments.documents):
            groups = [[value] for value in dict.fromkeys(values)] if kind == "author" else [values]
            add_entries(catalogue, [one for group in groups for one in opt_outs_of(catalogue, kind, group, "list")])
        began = time.perf_counter()
        plan = make_plan(catalogue)
        found = time.perf_counter()
        windows = sum(part["windows"] for entry in plan.entries for part in plan.of(entry.entry)["windows"])
        done = time.perf_counter()
        print(f"{len(plan.entries):,} entries, {arguments.documents:,} documents: {done - began:.1f} s ", end="")
        print(f"({done - found:.1f} s of them details): {len(plan.hits.doc_ids):,} documents, {windows:,} windows")


if __name__ == "__main__":
    main()
