"""The step `token_statistics`: tokens, characters per token and used vocabulary of each dataset and language."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.kernels.control_names import ControlName, control_names, held
from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import Plot, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.engine.arrangement import grouped
from spark_jobs.lake.files.side_reads import map_joined, map_rows
from spark_jobs.selection.cuts import with_cuts
from spark_jobs.spark_sql import DataFrame, F
from spark_jobs.tokens.hf_tokenizer import load_reference
from spark_jobs.tokens.pictures import draw_token_statistics
from spark_jobs.tokens.token_use import COUNTED_SCHEMA, MEASURES, TokenUses, count_partition, measured

UNKNOWN_LANGUAGE: Final = "unknown"
_MEASURED_DDL = (
    "dataset string, shard int, doc_id string, language string, character_count long, byte_count long, "
    "word_count long, named array<int>"
)
_COUNTED_DDL = (
    "dataset string, language string, document_count long, token_count long, character_count long, byte_count long, "
    "word_count long, max_token_count long, length_histogram array<long>, used_ids binary, named array<long>"
)
_DERIVED = {
    "characters_per_token": pa.float64(),
    "bytes_per_token": pa.float64(),
    "tokens_per_word": pa.float64(),
    "vocabulary_size": pa.int32(),
    "used_token_count": pa.int32(),
    "used_fraction": pa.float64(),
    "control_names": pa.list_(
        pa.struct([("name", pa.string()), ("is_letters", pa.bool_()), ("document_count", pa.int64())])
    ),
}
_CONTROL_NAMES = "array<struct<name: string, is_letters: boolean, document_count: long>>"
_ROWS_DDL = (
    f"{_COUNTED_DDL.rpartition(', ')[0]}, characters_per_token double, bytes_per_token double, tokens_per_word double, "
    f"vocabulary_size int, used_token_count int, used_fraction double, control_names {_CONTROL_NAMES}"
)
_ROWS_SCHEMA = pa.schema(
    [
        *(field for field in COUNTED_SCHEMA if field.name != "named"),
        *(pa.field(name, kind) for name, kind in _DERIVED.items()),
    ]
)

TOKEN_STATISTICS = Table(
    name="token_statistics",
    comment="one row per dataset and language of an increment: sizes of its documents in tokens, use of the vocabulary",
    columns=(
        Column("dataset!", "string", "dataset of the documents"),
        Column("language!", "string", "their language; unknown where none was found"),
        Column("document_count!", "long", "documents"),
        Column("token_count!", "long", "their tokens, specials left out"),
        Column("character_count!", "long", "their code points"),
        Column("byte_count!", "long", "bytes of their UTF-8"),
        Column("word_count!", "long", "their words: maximal runs without white space"),
        Column("max_token_count!", "long", "tokens of the longest document"),
        Column("characters_per_token", "double", "code points per token; null where there is no token"),
        Column("bytes_per_token", "double", "bytes of UTF-8 per token; null where there is no token"),
        Column("tokens_per_word", "double", "tokens per word; null where there is no word"),
        Column("vocabulary_size!", "int", "every token id is below it"),
        Column("used_token_count!", "int", "distinct token ids in these documents; the others are never used"),
        Column("used_fraction!", "double", "used_token_count / vocabulary_size"),
        Column("length_histogram!", "list<long!>", "documents of no token, of 1, of 2 to 3, of 4 to 7, and so on"),
        Column("used_ids!", "binary", "which ids occur: bit i % 8 of byte i / 8, so that rows can be joined by or"),
        Column(
            "control_names",
            "list<struct<name!: string, is_letters!: boolean, document_count!: long>!>",
            "names of the tokenizer's control tokens that stand in texts, with the documents that hold them, and "
            "whether they are letters there or become the token",
        ),
    ),
    key=("dataset", "language"),
    partition=("increment",),
    checks=(
        Check(
            "every_document_has_a_length",
            "aggregate(length_histogram, 0L, (sum, part) -> sum + part) = document_count",
            "each document is counted in one place of the histogram",
        ),
        Check(
            "used_tokens_are_in_the_vocabulary",
            "used_token_count between 0 and vocabulary_size",
            "no more ids are used than there are",
        ),
    ),
)


@step(
    version="2",
    scope=Scope.INCREMENT,
    tables=(TOKEN_STATISTICS,),
    plot=Plot(
        "Lengths of documents, and characters per token",
        ("dataset", "language", "token_count", "character_count", "length_histogram"),
        draw_token_statistics,
    ),
)
def token_statistics(
    tokens: DataFrame, texts: DataFrame, tokenizer: DataFrame, cut_texts: DataFrame | None = None
) -> DataFrame:
    """Count documents, tokens, characters, bytes, words, used ids and names; one row is a dataset and language."""
    row = tokenizer.select("vocabulary_size", "file").first()
    if row is None:
        raise InputError("token_statistics: the tokenizer table has no row; materialize tokenizer first")
    keys = ["dataset", "shard", "doc_id"]
    described = with_cuts(texts, cut_texts).withColumn("language", F.coalesce("language", F.lit(UNKNOWN_LANGUAGE)))
    names = names_of_tokenizer(row["file"])
    measure = functools.partial(measured, names=names)
    lengths = map_rows(described, [*keys, "language"], ["content"], measure, _MEASURED_DDL).to_frame()
    count = functools.partial(count_partition, vocabulary_size=row["vocabulary_size"], name_count=len(names))
    columns = ["dataset", "language", "token_count", *MEASURES, "named"]
    counted = map_joined(tokens, lengths, keys, columns, ["input_ids"], count, _COUNTED_DDL).to_frame()
    merge = functools.partial(_merge, vocabulary_size=row["vocabulary_size"], names=names)
    return grouped(counted, ["dataset", "language"]).map(merge, _ROWS_DDL).to_frame()


def names_of_tokenizer(file_text: str) -> tuple[ControlName, ...]:
    """Give the names of a tokenizer's control tokens, and whether documents have them as letters."""
    reference = load_reference(file_text)
    return control_names(file_text, lambda text: reference.encode(text, add_special_tokens=False).ids)


def _merge(
    batches: Iterable[pa.RecordBatch], vocabulary_size: int, names: Sequence[ControlName]
) -> Iterator[pa.RecordBatch]:
    """Add up partial counts, all those of some datasets and languages, into rows of the table."""
    uses = TokenUses(vocabulary_size, len(names))
    for counted in batches:
        uses.merge(counted)
    if uses.by_group:
        rows = [described_row(row, vocabulary_size, names) for row in uses.rows()]
        yield pa.RecordBatch.from_pylist(rows, schema=_ROWS_SCHEMA)


def described_row(counts: dict[str, Any], vocabulary_size: int, names: Sequence[ControlName] = ()) -> dict[str, Any]:
    """A row of the table: counts of some documents, the ratios of these counts, and the names in them."""
    counts = dict(counts)
    named = held(names, counts.pop("named"))
    used = int(np.unpackbits(np.frombuffer(counts["used_ids"], np.uint8)).sum())
    return {
        **counts,
        "characters_per_token": _ratio(counts["character_count"], counts["token_count"]),
        "bytes_per_token": _ratio(counts["byte_count"], counts["token_count"]),
        "tokens_per_word": _ratio(counts["token_count"], counts["word_count"]),
        "vocabulary_size": vocabulary_size,
        "used_token_count": used,
        "used_fraction": used / vocabulary_size,
        "control_names": [
            {"name": control_name.name, "is_letters": control_name.is_letters, "document_count": control_name.texts}
            for control_name in named
        ],
    }


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
