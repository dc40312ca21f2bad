"""The documents to ask a model about, by rank: a sample of them is spread over the whole, whatever its size.

A rank is the hash of seed and document. Each table is read once, from its first row to its last, and neither all ids
nor all texts are in memory at any time: rows wait on disk in the bucket of their rank (`buckets`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable

from headrace.tables.catalogue import load_table
from headrace_features.synthetic.buckets import KEY, KEY_TYPE, in_buckets, key_of
from headrace_features.synthetic.generated_config import Parents
from spark_jobs.exceptions import InputError
from spark_jobs.lake.files.scans import scan_of
from spark_jobs.lake.files.wide_values import placed_batches
from spark_jobs.lake.plan.excisions import excised_documents

_TEXTS: Final = 256  # rows with texts that are in memory at a time
_IDS: Final = 1 << 14
_IN_MEMORY: Final = 4  # bytes of a text for one of its file


class ParentText(NamedTuple):
    """A document to ask a model about."""

    dataset: str
    doc_id: str
    text: str


def parent_count(catalogue: Catalog, parents: Parents) -> int:
    """The number of kept documents, excised ones among them.

    Raises:
        InputError: no document was judged yet.
    """
    table = _parent_table(catalogue, parents)
    if parents.dataset is None:
        return sum(task.file.record_count for task in scan_of(table).plan_files())
    return sum(pc.sum(batch["kept"]).as_py() or 0 for _, _, batch in placed_batches(table, None, ("kept",), _IDS))


def kept_documents(catalogue: Catalog, parents: Parents, seed: int) -> Iterator[pa.RecordBatch]:
    """The kept documents without excised ones: key (their rank), dataset, doc_id.

    Raises:
        InputError: no document was judged yet.
    """
    excised = pa.array(sorted(excised_documents(catalogue, None)), pa.string())
    columns = ("doc_id", "dataset" if parents.dataset is None else "kept")
    for _, _, batch in placed_batches(_parent_table(catalogue, parents), None, columns, _IDS):
        rows = batch if parents.dataset is None else batch.filter(batch["kept"])
        rows = rows.filter(pc.invert(pc.is_in(rows["doc_id"].cast(pa.string()), excised)))
        if parents.dataset is not None:
            rows = rows.append_column("dataset", pa.repeat(parents.dataset, rows.num_rows))
        yield with_rank(rows.select(["dataset", "doc_id"]), seed)


def kept_datasets(catalogue: Catalog, parents: Parents) -> list[str]:
    """The datasets of kept documents, by name.

    Raises:
        InputError: no document was judged yet.
    """
    table = _parent_table(catalogue, parents)
    if parents.dataset is not None:
        return [parents.dataset]
    batches = placed_batches(table, None, ("dataset",), _IDS)
    return sorted({name for _, _, batch in batches for name in pc.unique(batch["dataset"]).to_pylist()})


def _parent_table(catalogue: Catalog, parents: Parents) -> IcebergTable:
    table = load_table(catalogue, parents.table)
    if table is None or table.current_snapshot() is None:
        space = parents.table.split(".")[0]
        raise InputError(
            f"parents: {parents.table} is not there yet; run `headrace run {space}` first, then this again"
        )
    return table


def with_rank(rows: pa.RecordBatch, seed: int) -> pa.RecordBatch:
    """Rows of documents with their rank as a column `key`, and texts as strings."""
    ranks = [key_of(f"{seed} {doc_id}") for doc_id in rows["doc_id"].to_pylist()]
    strings = [column.cast(pa.string()) if pa.types.is_large_string(column.type) else column for column in rows.columns]
    return pa.RecordBatch.from_arrays([pa.array(ranks, KEY_TYPE), *strings], [KEY, *rows.schema.names])


def texts_in(catalogue: Catalog, dataset: str, seed: int) -> Iterator[pa.RecordBatch]:
    """All texts of a dataset: key (their rank), dataset, doc_id, content."""
    table = load_table(catalogue, f"{dataset}.texts")
    if table is None or table.current_snapshot() is None:
        return
    for _, _, batch in placed_batches(table, None, ("doc_id", "content"), _TEXTS):
        yield with_rank(batch.append_column("dataset", pa.repeat(dataset, batch.num_rows)), seed)


def text_bytes(catalogue: Catalog, datasets: Iterable[str]) -> int:
    """About how many bytes the texts of some datasets have in memory."""
    tables = [load_table(catalogue, f"{dataset}.texts") for dataset in datasets]
    return _IN_MEMORY * sum(_file_bytes(table) for table in tables if table is not None)


def _file_bytes(table: IcebergTable) -> int:
    return sum(task.file.file_size_in_bytes for task in scan_of(table).plan_files()) if table.current_snapshot() else 0


def parent_texts(
    catalogue: Catalog, parents: Parents, seed: int, first: float = 0.0, last: float = 1.0
) -> Iterator[ParentText]:
    """The kept documents with their texts, by rank.

    Args:
        catalogue: of the lake.
        parents: which documents.
        seed: of the ranks.
        first: share of all ranks left out at the front.
        last: share of all ranks gone through up to here.

    Raises:
        InputError: no document was judged yet.
    """
    datasets = kept_datasets(catalogue, parents)
    low, high = (pa.scalar(_bound(share), pa.binary()) for share in (first, last))

    def inside(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            keys = batch[KEY].cast(pa.binary())
            yield batch.filter(pc.and_(pc.greater_equal(keys, low), pc.less(keys, high)))

    with in_buckets(int(text_bytes(catalogue, datasets) * (last - first))) as buckets:
        buckets.add("kept", inside(kept_documents(catalogue, parents, seed)))
        for dataset in datasets:
            buckets.add("texts", inside(texts_in(catalogue, dataset, seed)))
        for number in range(buckets.count):
            kept, texts = buckets.read("kept", number), buckets.read("texts", number)
            if kept is None or texts is None:
                continue
            rows = texts.filter(pc.is_in(texts[KEY], kept[KEY].combine_chunks()))
            for row in rows.select(["dataset", "doc_id", "content"]).to_batches(_TEXTS):
                for values in zip(*(column.to_pylist() for column in row.columns), strict=True):
                    yield ParentText(*values)


def _bound(share: float) -> bytes:
    """The upper end of this share of all keys."""
    return b"\xff" * 17 if share >= 1 else int(share * (1 << 64)).to_bytes(8, "big")
