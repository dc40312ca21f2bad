"""How long `headrace policy preview` and `compare` take on a made lake of signals, from reading to counts.

    python benchmarks/bench_filters_policies.py --documents 1000000

`documents` lies in another order than `signals`, as after compaction: the slower way, since rows are matched by id.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import command
import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog

from dagster_project.inspect.corpora.policy_preview import compare, preview
from dagster_project.inspect.corpora.rule_inputs import MeasuredDocuments, read_documents
from headrace.tables.settings import settings_at
from spark_jobs.filters.judge import failed_of
from spark_jobs.filters.policy import Policy
from spark_jobs.filters.policy_resolution import resolve
from spark_jobs.lake.declare.tables import Table
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue
from spark_jobs.sources.documents import DOCUMENTS
from spark_jobs.text.signals import SIGNALS

Result = TypeVar("Result")
LOOSE = {
    "extends": ["headrace"],
    "set": {"prose.too_few_words": 20},
    "rules": [
        {"rule": "few_stars", "signal": "metadata.stars", "below": 3},
        {"rule": "foreign", "signal": "documents.language", "not_in": ["en", "Python"]},
    ],
}


def main() -> None:
    """Make the lake and time the questions."""
    parser = command.parser(__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000)
    count = command.read(parser, documents=2000).documents
    with tempfile.TemporaryDirectory() as folder:
        catalogue = open_catalogue(settings_at(Path(folder)))
        make(catalogue, count)
        policies = [resolve("headrace"), resolve(LOOSE)]
        for policy in policies:
            parts = timed(f"read for {policy.label}", partial(read, catalogue, [policy]))
            found = timed("  preview", partial(preview, parts, policy))
            print(f"    {len(found.rules)} rules keep {found.kept.documents:,} of {count:,} documents")
            timed("  lists of failed rules, as the step writes them", partial(failed_of, parts[0].rows, policy.rules))
        parts = timed("read for both", partial(read, catalogue, policies))
        timed("  compare", partial(compare, parts, *policies))


def read(catalogue: Catalog, policies: list[Policy]) -> list[MeasuredDocuments]:
    """All parts of the dataset, read before any is judged, so that the two are timed apart."""
    return list(read_documents(catalogue, "made", policies))


def timed(what: str, function: Callable[[], Result]) -> Result:
    """Call a function, and print its wall-clock and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = function()
    print(f"{what}: {time.perf_counter() - wall:.2f} s, {time.process_time() - cpu:.2f} s of CPU")
    return result


def make(catalogue: Catalog, count: int) -> None:
    """Tables `signals` and `documents` of so many documents, without texts."""
    draw = np.random.default_rng(1)
    common = {
        "increment": np.zeros(count, np.int32),
        "shard": np.zeros(count, np.int32),
        "doc_id": np.array([f"{high:016x}{low:016x}" for high, low in draw.integers(0, 2**62, (count, 2))]),
        "kind": np.where(draw.random(count) < 0.8, "prose", "code"),
    }
    fractions = {c.name: draw.random(count) for c in SIGNALS.columns if c.type == "double"}
    counts = {c.name: draw.integers(0, 1500, count) for c in SIGNALS.columns if c.type == "long"}
    lengths = {"mean_word_length": draw.normal(5, 2, count), "mean_line_length": draw.normal(60, 20, count)}
    put(catalogue, SIGNALS, {**common, **fractions, **counts, **lengths}, np.arange(count))
    pairs = np.arange(0, 2 * count + 1, 2, dtype=np.int32)
    keys = np.tile(["stars", "url"], count)
    facts: dict[str, Any] = {
        "path": np.array([f"a/b/{doc_id[:9]}.txt" for doc_id in common["doc_id"]]),
        "language": draw.choice(["en", "de", "Python"], count),
        "encoding": np.full(count, "utf-8"),
        "content": np.full(count, "x"),
        "content_sha256": common["doc_id"],
        "byte_count": draw.integers(0, 9000, count),
        "metadata": pa.MapArray.from_arrays(pairs, keys, draw.choice(["1", "3", "many"], 2 * count)),
    }
    put(catalogue, DOCUMENTS, {**common, **facts}, draw.permutation(count))


def put(catalogue: Catalog, declared: Table, columns: dict[str, Any], order: Any) -> None:
    """Write a table with rows in some order; columns that are not given are null."""
    table = ensure_table(catalogue, f"made.{declared.name}", declared, {})
    schema = table.schema().as_arrow()
    rows = [
        pa.array(columns[field.name]).take(pa.array(order)).cast(field.type)
        if field.name in columns
        else pa.nulls(len(order), field.type)
        for field in schema
    ]
    table.append(pa.Table.from_arrays(rows, schema=schema))


if __name__ == "__main__":
    main()
