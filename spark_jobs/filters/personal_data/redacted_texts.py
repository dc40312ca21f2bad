"""The texts of a dataset that redacts: the raw ones, with placeholders for the personal data that was found.

    raw_texts        Ada <ada@x.org> wrote           its edits lead back to the source
    personal_data    5 to 14, mail, replace
    texts            Ada <<MAIL_1>> wrote            its edits are both, composed

Values that a document is dropped for are replaced as well: the row stays, with a verdict that rejects it, and nobody
who looks at a rejected text sees what it was rejected for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.lake.declare.step import Output, Scope, step
from spark_jobs.lake.files.late_columns import map_joined
from spark_jobs.text.texts import TEXTS, TEXTS_DDL, TextsConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEYS = ["shard", "doc_id"]
_NARROW = [*_KEYS, "kind", "language", "letters_sha256"]
REDACTED_TEXTS = dataclasses.replace(
    TEXTS,
    name="redacted_texts",
    comment="One row per document: its text with placeholders for personal data, and the edits back to the source, "
    "those of placeholders with the rule `redacted`.",
)


@step(version="1", scope=Scope.INCREMENT, tables=(REDACTED_TEXTS,))
def redacted_texts(raw_texts: DataFrame, personal_data: DataFrame, config: TextsConfig) -> Output:
    """Replace personal data in every text; one row per document.

    A dataset with `redact` has this as its table `texts`.

    Args:
        raw_texts: rows of the table `texts`, computed with the same config.
        personal_data: shard, doc_id and spans with an action, of the same texts.
        config: which texts are compared by their letters.

    Returns:
        Rows of the table `texts`.
    """
    from pyspark.sql import functions as F

    acted = F.filter("spans", lambda span: span["action"] != "keep")
    found = personal_data.select(*_KEYS, acted.alias("spans"))
    redacted = partial(redacted_batches, min_letters=config.min_letters)
    made = map_joined(raw_texts, found, _KEYS, [*_NARROW, "spans"], ["content", "edits"], redacted, TEXTS_DDL)
    return Output({REDACTED_TEXTS.name: made.to_frame()}, arrow_rows={REDACTED_TEXTS.name: made})


def redacted_batches(batches: Iterable[pa.RecordBatch], min_letters: int) -> Iterator[pa.RecordBatch]:
    """Turn batches of raw texts with the spans that are replaced into batches of the table `texts`."""
    from spark_jobs.filters.personal_data.find import Span
    from spark_jobs.filters.personal_data.redaction import redact
    from spark_jobs.text.normalization import compose
    from spark_jobs.text.text_columns import edits_column, edits_of, letters_column

    fields = Span._fields
    for batch in batches:
        columns = {name: batch.column(name) for name in (*_NARROW, "content", "edits")}
        spans, content, edits = batch.column("spans"), columns["content"], columns["edits"]
        changed = pc.greater(pc.list_value_length(spans), 0)
        texts, composed = [], []
        for row in np.flatnonzero(changed.to_numpy(zero_copy_only=False)).tolist():
            own = [Span(*(span[name] for name in fields)) for span in spans[row].as_py()]
            text, second = redact(content[row].as_py(), own)
            texts.append(text)
            composed.append(compose(edits_of(edits[row].as_py()), second))
        if texts:
            new = pa.array(texts, type=content.type)
            columns["content"] = pc.replace_with_mask(content, changed, new)
            letters = letters_column(new, min_letters).cast(columns["letters_sha256"].type)
            columns["letters_sha256"] = pc.replace_with_mask(columns["letters_sha256"], changed, letters)
            # Lists have no replace_with_mask: those of changed rows stand behind the others, and are taken from there.
            places = np.arange(len(batch))
            places[changed.to_numpy(zero_copy_only=False)] = len(batch) + np.arange(len(texts))
            columns["edits"] = pa.concat_arrays([edits, edits_column(composed).cast(edits.type)]).take(pa.array(places))
        yield pa.RecordBatch.from_pydict({column.name: columns[column.name] for column in TEXTS.columns})
