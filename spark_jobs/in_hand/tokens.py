"""Token ids and languages of texts in hand, by the encoder and the model of the steps `tokens` and `languages`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.process.memory_limit import core_count
from spark_jobs.exceptions import InputError
from spark_jobs.in_hand.frames import frame_of
from spark_jobs.threads import in_order_of, made_once
from spark_jobs.tokens.certificate import Certificate, certify
from spark_jobs.tokens.hf_tokenizer import read_facts
from spark_jobs.tokens.tokenizer import read_tokenizer_file

_BATCH_CHARACTERS = 1 << 18  # that the reference encodes at once, as the step `tokens` has it by default
_certificate = made_once(most=4)(certify)


def tokenize(data: Any, tokenizer: str | Path, column: str | None = "text") -> pa.ChunkedArray:
    """Encode texts exactly as the `tokenizers` library does, by a certified faster encoder where there is one.

    Args:
        data: as of `deduplicate`; a column alone will do.
        tokenizer: path of a tokenizer.json.
        column: of the texts, where the data has columns.

    Returns:
        (N,) lists of int32 ids, without special tokens; null where there is no text.

    Raises:
        InputError: the file is no tokenizer, or a column that there is not.
    """
    from spark_jobs.tokens.document_encoder import DocumentColumn, DocumentEncoder

    file_text = read_tokenizer_file(str(tokenizer))
    read_facts(file_text)
    certificate: Certificate = _certificate(file_text)
    frame = frame_of(data, column)

    def encode(numbered: tuple[int, pa.Array]) -> pa.Array:
        first, texts = numbered
        encoder = DocumentEncoder(file_text, certificate, _BATCH_CHARACTERS)
        names = pa.array([f"row {number}" for number in range(first, first + len(texts))], pa.string())
        ids = list(encoder.encode(DocumentColumn(texts, names)))
        offsets = np.zeros(len(ids) + 1, np.int32)
        np.cumsum([len(row) for row in ids], out=offsets[1:])
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate([np.zeros(0, np.int32), *ids])))

    batches, first = list[tuple[int, pa.Array]](), 0
    for texts in frame.batches():
        batches.append((first, texts))
        first += len(texts)
    with ThreadPoolExecutor(core_count()) as pool:
        encoded = pa.chunked_array([*in_order_of(pool, encode, batches)], pa.list_(pa.int32()))
    if not frame.texts.null_count:
        return encoded
    rows = np.arange(len(frame))
    return encoded.take(pa.array(rows, mask=np.asarray(frame.texts.is_null())))


def detect_language(data: Any, column: str | None = "text") -> Any:
    """Identify the natural language of a text, or of each text.

    Args:
        data: a text, or as of `deduplicate`.
        column: of the texts, where the data has columns.

    Returns:
        A table with `language` (ISO 639), `confidence`, `script`, `second_language` and `second_share`, null where a
        text has no letters; of a single text a dictionary of them.
    """
    from spark_jobs.filters.languages.languages import score
    from spark_jobs.text.text_columns import normalized

    frame = frame_of([data] if isinstance(data, str) else data, column)

    def identify(texts: pa.Array) -> pa.Table:
        return pa.table(score(normalized(texts.cast(pa.string()))[0]))

    if not len(frame):
        raise InputError("detect_language: there is no text")
    with ThreadPoolExecutor(core_count()) as pool:
        table = pa.concat_tables(in_order_of(pool, identify, frame.batches()))
    return table.to_pylist()[0] if isinstance(data, str) else table
