"""Rows of the table `texts` of batches of documents."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from spark_jobs.text.compared_texts import letters_column
from spark_jobs.text.text_columns import normalized


def text_batches(batches: Iterator[pa.RecordBatch], min_letters: int, mends: bool = False) -> Iterator[pa.RecordBatch]:
    """Turn batches of documents (shard, doc_id, kind, language, content) into batches of the table `texts`."""
    for batch in batches:
        content, edits = normalized(batch.column("content"), mends)
        yield pa.RecordBatch.from_arrays(
            [
                *(batch.column(name) for name in ("shard", "doc_id", "kind", "language")),
                content,
                letters_column(content, batch.column("kind"), min_letters),
                edits,
            ],
            names=["shard", "doc_id", "kind", "language", "content", "letters_sha256", "edits"],
        )
