"""The documents to count, for every command and page with numbers of documents.

The tables of a dataset only grow: `documents` keeps an edited text, and one without its file. Of a dataset
the latest document at each path counts, unless its file is gone (docs/prepare/revisions.md); of a corpus each member
that neither left it (`revisions`) nor was taken out of all of its windows (`system.excisions`).

    at a.txt          landed    counts
    A                 A         A
    edited to B       A, B      B
    deleted           A, B
    A again           A, B      A
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, BooleanExpression, EqualTo, In, IsNull, LessThanOrEqual, NotNull, Or

from headrace.tables.catalogue import load_table, tables_in
from spark_jobs.lake.files.lookups import EVERYTHING, read_rows
from spark_jobs.lake.files.scans import scan_of
from spark_jobs.lake.plan.excisions import EXCISIONS

_TEXT = pa.large_string()
_KINDS = {"increment": pa.int64(), "byte_count": pa.int64()}
_PATH = ("repository", "path")


@dataclass(frozen=True)
class At:
    """A former state of a dataset or corpus.

    Attributes:
        snapshots: by name of a table its snapshot, tables without one left out; None for the newest of each.
        increment: the last one to count; None for all.
        moment: when it was; what was excised later counts. None for now.
    """

    snapshots: Mapping[str, int] | None = None
    increment: int | None = None
    moment: datetime | None = None


NOW = At()


@dataclass(frozen=True)
class DatasetCounts:
    """A dataset in numbers.

    Attributes:
        documents: the counted ones.
        byte_count: of their texts as they came.
        landed: all that ever landed and were not deleted for good.
        gone: of these, the latest of paths without a file today.
        superseded: of these, documents with a later one at their path.
        increments: counted documents and their bytes, by the increment of their arrival.
    """

    documents: int
    byte_count: int
    landed: int
    gone: int
    superseded: int
    increments: Mapping[int, tuple[int, int]]


def count_documents(catalogue: Catalog, dataset: str, at: At = NOW) -> DatasetCounts:
    """Count the documents of a dataset."""
    documents = _read(catalogue, dataset, "documents", ("doc_id", "increment", "byte_count", *_PATH), at)
    rows, gone = _counting(catalogue, dataset, documents, at)
    sums = rows.group_by("increment").aggregate([([], "count_all"), ("byte_count", "sum")]).to_pylist()
    increments = {row["increment"]: (row["count_all"], row["byte_count_sum"] or 0) for row in sums}
    return DatasetCounts(
        documents=rows.num_rows,
        byte_count=sum(size for _, size in increments.values()),
        landed=documents.num_rows,
        gone=gone,
        superseded=documents.num_rows - rows.num_rows - gone,
        increments=increments,
    )


def documents_that_went(catalogue: Catalog, dataset: str, states: Sequence[At]) -> list[int]:
    """How many documents did not count any more in each of some states of a dataset, the newest last."""
    documents = _read(catalogue, dataset, "documents", ("path",), states[-1])
    events = _read(catalogue, dataset, "arrivals", ("path",), states[-1], NotNull("doc_id"))
    if not len(events) and not _several(documents["path"], events["path"]).any():
        return [0] * len(states)
    counts = [count_documents(catalogue, dataset, at) for at in states]
    return [count.landed - count.documents for count in counts]


def documents_that_count(
    catalogue: Catalog, dataset: str, columns: tuple[str, ...] = (), at: At = NOW, path: str | None = None
) -> pa.Table:
    """The counted documents of a dataset: doc_id, increment, repository, path and further columns, texts large.

    Empty where the dataset has none (at that time). Takes about 100 bytes for each document ever landed, at one
    path alone where that is given.
    """
    wanted = tuple(dict.fromkeys(("doc_id", "increment", *_PATH, *columns)))
    where = EVERYTHING if path is None else EqualTo("path", path)
    documents = _read(catalogue, dataset, "documents", wanted, at, where)
    return _counting(catalogue, dataset, documents, at, where)[0]


def members_that_count(catalogue: Catalog, corpus: str, table: str = "members", at: At = NOW) -> pa.Table:
    """Rows of a table of members (`members`, `survivors`, ..) that are in the corpus: doc_id, dataset, increment."""
    rows = _read(catalogue, corpus, table, ("doc_id", "dataset", "increment"), at)
    return without(rows, _left(catalogue, corpus, at)) if len(rows) else rows


def members_that_went(catalogue: Catalog, corpus: str, table: str = "members", at: At = NOW) -> int:
    """How many rows of a table of members are not in the corpus any more."""
    left = _left(catalogue, corpus, at)
    return _among(_read(catalogue, corpus, table, ("doc_id",), at), left).num_rows if len(left) else 0


def _left(catalogue: Catalog, corpus: str, at: At) -> pa.ChunkedArray:
    """Documents no longer in a corpus or its windows."""
    out = _read(catalogue, corpus, "revisions", ("doc_id",), at, EqualTo("leaves", True))["doc_id"]
    names = [identifier.partition(".")[2] for identifier in tables_in(catalogue, corpus)]
    return pa.chunked_array([*out.chunks, excised_members(catalogue, corpus, names, at.moment)], _TEXT)


def excised_members(catalogue: Catalog, corpus: str, tables: Iterable[str], moment: datetime | None = None) -> pa.Array:
    """Documents taken out of every packed table of their dataset in a corpus, by a moment or by now.

    Args:
        catalogue: of the lake.
        corpus: its name.
        tables: names of its tables.
        moment: None for now.
    """
    packed = {f"{corpus}.{name}": name.rpartition("_")[0] for name in tables if name.startswith("packed_")}
    lengths = Counter(packed.values())
    out_of: BooleanExpression = Or(IsNull("table"), In("table", set(packed) or {""}))
    if moment is not None:
        out_of = And(out_of, LessThanOrEqual("recorded_at", moment.isoformat()))
    rows = read_rows(catalogue, EXCISIONS, ("doc_id", "table"), out_of)
    out = Counter((row["doc_id"], packed[row["table"]]) for row in rows if row["table"] is not None)
    excised = {row["doc_id"] for row in rows if row["table"] is None}
    excised |= {doc_id for (doc_id, dataset), count in out.items() if count >= lengths[dataset]}
    return pa.array(sorted(excised), _TEXT)


def without(rows: pa.Table, doc_ids: pa.ChunkedArray) -> pa.Table:
    """Rows about other documents than some."""
    return rows.filter(pc.invert(pc.is_in(rows["doc_id"], value_set=doc_ids.combine_chunks())))


def _among(rows: pa.Table, doc_ids: pa.ChunkedArray) -> pa.Table:
    return rows.filter(pc.is_in(rows["doc_id"], value_set=doc_ids.combine_chunks()))


def _counting(
    catalogue: Catalog, dataset: str, documents: pa.Table, at: At, where: BooleanExpression = EVERYTHING
) -> tuple[pa.Table, int]:
    """The counted documents, and how many are the latest of a path without a file today."""
    columns = ("doc_id", "increment", *_PATH, "status")
    events = _read(catalogue, dataset, "arrivals", columns, at, And(where, NotNull("doc_id")))
    several = _several(documents["path"], events["path"])
    if not len(events) and not several.any():
        return documents, 0
    some = documents.filter(pa.array(several))
    latest = _latest(some, events)
    counts = pc.is_in(documents["doc_id"], latest["doc_id"].filter(pc.invert(latest["gone"])).combine_chunks())
    gone = _among(documents, latest["doc_id"].filter(latest["gone"])).num_rows
    return documents.filter(pc.or_(counts, pa.array(~several))), gone


def _several(paths: pa.ChunkedArray, others: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """(D,) whether a path is surely that of one document alone (False), by hashes, or may be of several."""
    from spark_jobs.lake.ledger.row_hashes import row_hashes

    chunks = [pa.RecordBatch.from_arrays([chunk], ["path"]) for column in (paths, others) for chunk in column.chunks]
    hashes = np.concatenate([np.zeros(0, np.int64), *map(row_hashes, chunks)])
    ordered = np.sort(hashes)
    return np.isin(hashes[: len(paths)], ordered[1:][ordered[1:] == ordered[:-1]])


def _latest(documents: pa.Table, events: pa.Table) -> pa.Table:
    """What landed or happened last at each path: doc_id, gone; as `spark_jobs.sources.landing.revisions` has it."""
    names = ["doc_id", "increment", *_PATH]
    landed = _with(documents.select(names), pa.repeat(False, documents.num_rows), 1)
    happened = _with(events.select(names), pc.equal(events["status"], "gone"), 0)
    ordered = pa.concat_tables([landed, happened]).sort_by(
        [("increment", "descending"), ("rank", "ascending"), ("doc_id", "ascending"), ("gone", "ascending")]
    )
    # In one thread the first row of a group is the first in order.
    groups = ordered.group_by(list(_PATH), use_threads=False).aggregate([("doc_id", "first"), ("gone", "first")])
    return groups.select(["doc_id_first", "gone_first"]).rename_columns(["doc_id", "gone"])


def _with(rows: pa.Table, gone: pa.Array, rank: int) -> pa.Table:
    """Rows with whether they say that a file is gone, and which of one increment come first."""
    return rows.append_column("gone", gone).append_column("rank", pa.repeat(rank, rows.num_rows))


def _read(
    catalogue: Catalog,
    namespace: str,
    table: str,
    columns: tuple[str, ...],
    at: At,
    condition: BooleanExpression = EVERYTHING,
) -> pa.Table:
    """Some columns of a table as it was; without a row where there was none."""
    iceberg = load_table(catalogue, f"{namespace}.{table}")
    head = iceberg.metadata.current_snapshot_id if iceberg is not None else None
    snapshot_id = head if at.snapshots is None else at.snapshots.get(table)
    schema = pa.schema([(name, _KINDS.get(name, _TEXT)) for name in columns])
    if iceberg is None or snapshot_id is None:
        return schema.empty_table()
    if at.increment is not None:
        condition = And(condition, LessThanOrEqual("increment", at.increment))
    rows = scan_of(iceberg, condition, columns, snapshot_id).to_arrow()
    return rows.select(columns).cast(schema)
