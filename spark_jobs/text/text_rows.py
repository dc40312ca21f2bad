"""Rows of the table `texts` of batches of documents."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.text.compared_texts import letters_column
from spark_jobs.text.text_columns import normalized, without_repeats


def text_batches(
    batches: Iterator[pa.RecordBatch], min_letters: int, mends: bool = False, repeated: tuple[int, int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Turn batches of documents (shard, doc_id, kind, language, content) into batches of the table `texts`.

    Args:
        batches: of documents.
        min_letters: as of the step's config.
        mends: whether mojibake is mended.
        repeated: fewest words of a repeated block and how many of it stay; None where all stay.
    """
    for batch in batches:
        content, edits = normalized(batch.column("content"), mends)
        if repeated is not None:
            is_code = pc.equal(batch.column("kind"), "code").to_numpy(zero_copy_only=False)
            content, edits = without_repeats(content, edits, is_code, *repeated)
        yield pa.RecordBatch.from_arrays(
            [
                *(batch.column(name) for name in ("shard", "doc_id", "kind", "language")),
                content,
                letters_column(content, batch.column("kind"), min_letters),
                edits,
            ],
            names=["shard", "doc_id", "kind", "language", "content", "letters_sha256", "edits"],
        )
