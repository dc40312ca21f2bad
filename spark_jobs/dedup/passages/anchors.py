"""Anchors: by which hashes equal spans of documents are found, the index that is kept.

Two documents with 50 equal words in a row have an anchor in common (`windows`). A document has about one for each 13 of
its words, 8 bytes each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from spark_jobs.lake.declare.step import Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.files.side_reads import map_joined
from spark_jobs.spark_sql import DataFrame

if TYPE_CHECKING:
    import pyarrow as pa

KEYS = ["dataset", "shard", "doc_id"]
_DDL = "dataset string, shard int, doc_id string, place bigint, anchor_count int, anchors binary"

ANCHORS = Table(
    name="anchors",
    comment="One row per surviving document of at least 50 words: hashes, of which documents that repeat 50 words of "
    "one another have one in common.",
    columns=(
        Column("dataset!", "string", "dataset that the document came from"),
        Column("shard!", "int", "hash of the repository (else the doc_id) modulo the dataset's shards"),
        Column("doc_id!", "string", "identity of the document"),
        Column("place!", "long", "order of whom to keep in an increment, lowest first; of `members`"),
        Column("anchor_count!", "int", "different hashes"),
        Column("anchors!", "binary", "least hash of 25 words in each 50 words, ascending, 8 bytes each, little-endian"),
    ),
    key=("doc_id",),
    partition=("increment",),
    checks=(
        Check(
            "lengths_agree",
            "anchor_count >= 1 and octet_length(anchors) = 8 * anchor_count",
            "every anchor has 8 bytes",
        ),
    ),
)


@step(version="1", scope=Scope.INCREMENT, tables=(ANCHORS,))
def anchors(survivors: DataFrame, members: DataFrame, texts: DataFrame) -> DataFrame:
    """Make the anchors of every document that has any; one row per document."""
    placed = survivors.select(*KEYS).join(members.select(*KEYS, "place"), KEYS)
    columns = [*KEYS, "place", "kind", "language"]
    return map_joined(texts, placed, KEYS, columns, ["content"], _anchor_batches, _DDL).to_frame()


def _anchor_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of the table, of texts."""
    import numpy as np
    import pyarrow as pa

    from spark_jobs.dedup.bags.bag_arrays import binary_column
    from spark_jobs.dedup.passages.windows import anchors_in, slices, windows_in, words_in

    for batch in (part for whole in batches for part in slices(whole)):
        offsets, anchors = anchors_in(windows_in(words_in(batch)))
        counts = np.diff(offsets)
        keys = [batch.column(name) for name in (*KEYS, "place")]
        columns = [*keys, pa.array(counts.astype(np.int32)), binary_column(anchors, offsets)]
        rows = pa.RecordBatch.from_arrays(columns, names=[*KEYS, "place", "anchor_count", "anchors"])
        yield rows.filter(pa.array(counts > 0))
