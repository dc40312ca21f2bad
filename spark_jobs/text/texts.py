"""Texts: the normalized text of every document, with the edits that lead back to its source."""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from spark_jobs.arrays import BoolArray
from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import ConfigModel, Output, Scope, step
from spark_jobs.lake.declare.tables import GROUP_BYTES, Check, Column, Table
from spark_jobs.lake.files.side_reads import map_rows
from spark_jobs.spark_sql import DataFrame


class RepeatedBlocks(ConfigModel):
    """Blocks of words that a text has several times."""

    least_words: int = Field(30, ge=5, description="fewest words of a block")
    keep: int = Field(1, ge=1, description="how many of its places stay, from the first on")


class TextsConfig(ConfigModel):
    """What is mended, and which texts are compared by their letters."""

    mojibake: Literal["keep", "mend"] = Field(
        "keep",
        description="text that was decoded in the wrong encoding (Ã¼ for ü): it stays as it is, or ftfy mends it, "
        "and an edit says where",
    )

    repeated_blocks: RepeatedBlocks | None = Field(
        None,
        description="cut what a text has again, such as a file that is listed ten times in it; edits say where",
        json_schema_extra={"affects_rows": "if set"},
    )
    min_letters: int = Field(
        32,
        ge=1,
        description="fewest letters (characters that are no white space and no punctuation; any in code and data) "
        "of a text that is compared by them; shorter ones are equal only when their bytes are",
    )


def _lack_carriage_returns(rows: pa.RecordBatch) -> BoolArray:
    """(R,) whether each row passes the check `no_carriage_return`."""
    from spark_jobs.text.text_columns import holding

    return ~holding(rows.column("content"), ord("\r"))


def _edits_replace_bytes(rows: pa.RecordBatch) -> BoolArray:
    """(R,) whether each row passes the check `edits_change_something`."""
    edits = rows.column("edits")
    start, end, length = (pc.struct_field(edits.flatten(), name) for name in ("start", "end", "replacement_length"))
    good = pc.and_(pc.and_(pc.greater_equal(start, 0), pc.greater(end, start)), pc.greater_equal(length, 0))
    holds = np.ones(len(rows), dtype=np.bool_)
    holds[pc.list_parent_indices(edits).filter(pc.invert(good)).to_numpy()] = False
    return holds


TEXTS = Table(
    name="texts",
    comment="One row per document: its text in Unicode NFC with LF line ends, and the edits back to the source.",
    columns=(
        Column("shard!", "int", "hash of the repository (else the doc_id) modulo the dataset's shards"),
        Column("doc_id!", "string", "identity of the document"),
        Column("kind!", "string", "code, prose, markup or data"),
        Column("language", "string", "programming or natural language"),
        Column("content!", "string", "the text that goes on"),
        Column(
            "letters_sha256",
            "string",
            "SHA-256 of prose lower-cased without white space and punctuation outside of numbers, of other kinds "
            "without spaces at ends of lines and blank lines; null where too few characters remain",
        ),
        Column(
            "edits!",
            "list<struct<rule!: string, start!: long, end!: long, replacement_length!: long>!>",
            "spans of the source that were replaced, by start: rule (mojibake, line_ends, nfc, repeated_block), bytes "
            "[start, end) of the source's UTF-8, bytes of the text that stand for them",
        ),
    ),
    key=("doc_id",),
    partition=("increment", "shard"),
    checks=(
        Check("no_carriage_return", "instr(content, '\\r') = 0", "line ends are LF alone", _lack_carriage_returns),
        Check(
            "edits_change_something",
            "forall(edits, e -> e.start >= 0 and e.end > e.start and e.replacement_length >= 0)",
            "every edit replaces at least one byte of the source",
            _edits_replace_bytes,
        ),
    ),
    sampled=("content",),
    properties={GROUP_BYTES: str(8 << 20)},  # one text is read from some MB, not from 128
)

TEXTS_DDL = (
    "shard int, doc_id string, kind string, language string, content string, letters_sha256 string, "
    "edits array<struct<rule: string, start: bigint, end: bigint, replacement_length: bigint>>"
)


@step(version="2", scope=Scope.INCREMENT, tables=(TEXTS,))
def texts(documents: DataFrame, config: TextsConfig) -> Output:
    """Normalize the content of every document; one row per document.

    Raises:
        InputError: texts are to be mended, and the package for it is not installed.
    """
    from spark_jobs.text.text_rows import text_batches

    if config.mojibake == "mend" and importlib.util.find_spec("ftfy") is None:
        raise InputError("mojibake: mend needs ftfy, which is not installed; pip install 'headrace[ingest]'")
    blocks = config.repeated_blocks
    repeated = None if blocks is None else (blocks.least_words, blocks.keep)
    mends = config.mojibake == "mend"
    normalized = partial(text_batches, min_letters=config.min_letters, mends=mends, repeated=repeated)
    normal_texts = map_rows(documents, ["shard", "doc_id", "kind", "language"], ["content"], normalized, TEXTS_DDL)
    return Output({TEXTS.name: normal_texts.to_frame()}, arrow_rows={TEXTS.name: normal_texts})
