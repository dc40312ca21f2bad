"""A map of a dataset's vectors: their two principal components, as a SQLite file by which lists are filtered.

It is computed once for each state of a table of vectors. The axes are those of the first vectors, whose documents are
a random sample, since ids are hashes; each points where its largest part is positive, so a map is the same every time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog

from dagster_project.exceptions import CommandError
from headrace_features.explore.index_files import written
from headrace_features.explore.row_query import Within
from spark_jobs.arrays import Float64Array
from spark_jobs.lake.files.lookups import read_batches

PREFIX: Final = "vectors"  # of the names of such tables
_SAMPLE: Final = 50_000  # vectors that decide the axes
_Batches = Iterator[tuple[list[str], Float64Array]]


def map_file(catalogue: Catalog, dataset: str, table: str, snapshot: int, folder: Path) -> Path:
    """The file of docs(doc_id, x, y) for a snapshot of a table of vectors; written where it is not there."""
    file = folder / f"{dataset}.{table}-{snapshot}.map.sqlite"
    if file.exists():
        return file
    for former in folder.glob(f"{dataset}.{table}-*.map.sqlite"):
        former.unlink(missing_ok=True)
    middle, axes = _axes(_vectors(catalogue, f"{dataset}.{table}"))
    with written(file) as (database, _):
        database.execute("CREATE TABLE docs (doc_id BLOB PRIMARY KEY, x REAL, y REAL)")
        for ids, vectors in _vectors(catalogue, f"{dataset}.{table}"):
            places = ((vectors - middle) @ axes).round(4).tolist()
            rows = ((bytes.fromhex(doc_id), x, y) for doc_id, (x, y) in zip(ids, places, strict=True))
            database.executemany("INSERT OR REPLACE INTO docs VALUES (?, ?, ?)", rows)
        database.execute("CREATE INDEX by_place ON docs (x, y)")
        database.commit()
    return file


def box_of(text: str) -> tuple[str, tuple[float, float, float, float]]:
    """The table and the rectangle of an address, such as `vectors_mini:-1,0.5,-2,2`: x from and to, y from and to.

    Raises:
        CommandError: it is none.
    """
    table, _, numbers = text.rpartition(":")
    try:
        left, right, low, high = map(float, numbers.split(","))
    except ValueError as error:
        raise CommandError(f"map={text[:80]} is no part of a map; write TABLE:X,X,Y,Y") from error
    return table, (min(left, right), max(left, right), min(low, high), max(low, high))


def within_box(file: Path, box: tuple[float, float, float, float]) -> Within:
    """The condition of a list that its documents lie in a rectangle of a map."""
    return Within(file, "x BETWEEN ? AND ? AND y BETWEEN ? AND ?", box)


def _vectors(catalogue: Catalog, table: str) -> _Batches:
    """(doc_ids, (D, K) their vectors) of the documents that have one with a direction."""
    for batch in read_batches(catalogue, table, ("doc_id", "vector")):
        there = batch.filter(pc.is_valid(batch.column("vector")))
        if len(there):
            rows = np.frombuffer(b"".join(there.column("vector").to_pylist()), "<i2").reshape(len(there), -1)
            lengths = np.linalg.norm(rows, axis=1)
            points = lengths > 0
            yield there.filter(pa.array(points)).column("doc_id").to_pylist(), rows[points] / lengths[points, None]


def _axes(batches: _Batches) -> tuple[Float64Array, Float64Array]:
    """(K,) the middle of some vectors, (K, 2) the directions in which they differ most."""
    parts, count = [], 0
    for _, vectors in batches:
        parts.append(vectors[: _SAMPLE - count])
        count += len(parts[-1])
        if count >= _SAMPLE:
            break
    if not count:
        raise CommandError("no document has a vector yet")
    sample = np.concatenate(parts)
    middle = sample.mean(axis=0)
    _, directions = np.linalg.eigh((sample - middle).T @ (sample - middle))
    axes = directions[:, :-3:-1]
    return middle, axes * np.sign(axes[np.abs(axes).argmax(axis=0), [0, 1]])
