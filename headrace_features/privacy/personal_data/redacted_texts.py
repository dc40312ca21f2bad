"""The texts of a redacting dataset: the raw ones, with placeholders for the detected personal data.

    raw_texts        Ada <ada@x.org> wrote           its edits lead back to the source
    personal_data    5 to 14, mail, replace
    texts            Ada <<MAIL_1>> wrote            its edits are both, composed

Values causing a document's drop are replaced as well: the row stays, with a rejecting verdict, and nobody
who looks at a rejected text sees what it was rejected for.

A placeholder is stable inside a document: values differing only in case, blanks and punctuation get one number.
Numbers count by kind from 1 in order of appearance, past those of placeholders in the text itself. Edits are
those of the table `texts` (see `spark_jobs.text.normalization`), with the rule `redacted`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.lake.declare.step import Output, Scope, step
from spark_jobs.lake.files.side_reads import map_joined
from spark_jobs.spark_sql import DataFrame, F
from spark_jobs.text.normalization import NO_EDITS, REDACTED, Edits
from spark_jobs.text.texts import TEXTS, TEXTS_DDL, TextsConfig

if TYPE_CHECKING:
    from headrace_features.privacy.personal_data.find import DetectedSpan

_KEYS = ["shard", "doc_id"]
_NARROW = [*_KEYS, "kind", "language", "letters_sha256"]
REDACTED_TEXTS = dataclasses.replace(
    TEXTS,
    name="redacted_texts",
    comment="One row per document: its text with placeholders for personal data, and the edits back to the source, "
    "those of placeholders with the rule `redacted`.",
)


@step(version="4", scope=Scope.INCREMENT, tables=(REDACTED_TEXTS,))
def redacted_texts(raw_texts: DataFrame, personal_data: DataFrame, config: TextsConfig) -> Output:
    """Replace personal data in every text; one row per document.

    A dataset with `redact` has this as its table `texts`.
    """
    acted = F.filter("spans", lambda span: span["action"] != "keep")
    acted_spans = personal_data.select(*_KEYS, acted.alias("spans"))
    redacted = partial(redacted_batches, min_letters=config.min_letters)
    redacted_rows = map_joined(
        raw_texts, acted_spans, _KEYS, [*_NARROW, "spans"], ["content", "edits"], redacted, TEXTS_DDL
    )
    return Output({REDACTED_TEXTS.name: redacted_rows.to_frame()}, arrow_rows={REDACTED_TEXTS.name: redacted_rows})


def redacted_batches(batches: Iterable[pa.RecordBatch], min_letters: int) -> Iterator[pa.RecordBatch]:
    """Turn batches of raw texts with the spans to replace into batches of the table `texts`."""
    from headrace_features.privacy.personal_data.find import DetectedSpan
    from headrace_features.privacy.personal_data.redacted_texts import redact
    from spark_jobs.text.compared_texts import letters_column
    from spark_jobs.text.normalization import compose
    from spark_jobs.text.text_columns import edits_column, edits_of

    fields = DetectedSpan._fields
    for batch in batches:
        columns = {name: batch.column(name) for name in (*_NARROW, "content", "edits")}
        spans, content, edits = batch.column("spans"), columns["content"], columns["edits"]
        changed = pc.greater(pc.list_value_length(spans), 0)
        texts, composed = [], []
        for row in np.flatnonzero(changed.to_numpy(zero_copy_only=False)).tolist():
            text_spans = [DetectedSpan(*(span[name] for name in fields)) for span in spans[row].as_py()]
            text, second = redact(content[row].as_py(), text_spans)
            texts.append(text)
            composed.append(compose(edits_of(edits[row].as_py()), second))
        if texts:
            new = pa.array(texts, type=content.type)
            columns["content"] = pc.replace_with_mask(content, changed, new)
            letters = letters_column(new, columns["kind"].filter(changed), min_letters).cast(
                columns["letters_sha256"].type
            )
            columns["letters_sha256"] = pc.replace_with_mask(columns["letters_sha256"], changed, letters)
            # Lists have no replace_with_mask: those of changed rows stand behind the others, and are taken from there.
            places = np.arange(len(batch))
            places[changed.to_numpy(zero_copy_only=False)] = len(batch) + np.arange(len(texts))
            columns["edits"] = pa.concat_arrays([edits, edits_column(composed).cast(edits.type)]).take(pa.array(places))
        yield pa.RecordBatch.from_pydict({column.name: columns[column.name] for column in TEXTS.columns})


def redact(content: str, spans: Sequence[DetectedSpan]) -> tuple[str, Edits]:
    """Replace spans by placeholders.

    Args:
        content: a text.
        spans: personal data in it, by start, none overlapping.

    Returns:
        The text with placeholders, and the edits leading back to `content`.
    """
    if not spans:
        return content, NO_EDITS
    source = content.encode("utf-8")
    placeholders: dict[tuple[str, str], bytes] = {}
    taken = {name.encode() for name in re.findall(r"<[A-Z_]+_\d+>", content)}
    next_number: dict[str, int] = {}
    pieces, lengths, last = [], [], 0
    for span in spans:
        value = source[span.start : span.end].decode("utf-8").casefold()
        key = (span.kind, re.sub(r"[\W_]", "", value) or value)
        while key not in placeholders:
            number = next_number[span.kind] = next_number.get(span.kind, 0) + 1
            placeholder = f"<{span.kind.upper()}_{number}>".encode()
            if placeholder not in taken:
                placeholders[key] = placeholder
        pieces += [source[last : span.start], placeholders[key]]
        lengths.append(len(placeholders[key]))
        last = span.end
    starts, ends = (np.array([getattr(span, name) for span in spans], dtype=np.int64) for name in ("start", "end"))
    edits = Edits(np.full(len(spans), REDACTED, dtype=np.int64), starts, ends, np.array(lengths, dtype=np.int64))
    return b"".join([*pieces, source[last:]]).decode("utf-8"), edits
