"""The step `tokenizer`: train a corpus's tokenizer on a sample of its survivors, or take one from a file; then frozen.

A threshold is no reason to change all token ids: once there, it stays though the survivors change that it was trained
on, and `headrace corpus refresh` trains it anew (`retrain: always` does so with the survivors).

The sample is the documents with the smallest hashes of their ids, as many as fit `sample_bytes` (`hash_sample`). One
task sorts them, cuts them and trains. Training sees pieces of at most 65,536 characters, cut before white space,
where words end anyway (`cut_before_spaces`), so memory grows with `sample_bytes` and not with the longest document.

A second table holds the tokenizer's certificate (`certificate`), made in one task of about five seconds.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pydantic import Field, model_validator

from spark_jobs.exceptions import ConfigError
from spark_jobs.lake.declare.step import ConfigModel, Output, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.engine.arrangement import grouped, persist
from spark_jobs.selection.cuts import with_cuts
from spark_jobs.spark_sql import DataFrame, F
from spark_jobs.text.hash_sample import with_smallest_hashes
from spark_jobs.tokens.certificate import certify
from spark_jobs.tokens.hf_tokenizer import cut_before_spaces, read_facts, train_byte_pairs

_PIECE_CHARACTERS = 1 << 16
_NO_TEXT = "tokenizer: no document has any text to train on; check survivors, or give a tokenizer file"
_ROW_DDL = (
    "sha256 string, vocabulary_size int, special_tokens map<string, int>, end_of_document_id int, padding_id int, "
    "file string"
)
_CERTIFICATE_DDL = (
    "tokenizer_sha256 string, reference string, encoder string, refusal string, "
    "excluded array<struct<first: int, last: int>>, probe_count long"
)
_CERTIFICATE_SCHEMA = pa.schema(
    [
        pa.field("tokenizer_sha256", pa.string()),
        pa.field("reference", pa.string()),
        pa.field("encoder", pa.string()),
        pa.field("refusal", pa.string()),
        pa.field("excluded", pa.list_(pa.struct([("first", pa.int32()), ("last", pa.int32())]))),
        pa.field("probe_count", pa.int64()),
    ]
)


class TokenizerConfig(ConfigModel):
    """A tokenizer file, or how to train one.

    The content of `file` decides the rows, not its path: `file_sha256` is filled in by reading the file when the config
    is made, and goes into the step key in place of the path. A file with another content than named is refused.
    """

    file: str | None = Field(
        None,
        description="path of a tokenizer.json; without it one is trained",
        json_schema_extra={"affects_rows": False},
    )
    file_sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$", description="its SHA-256; filled in from the file")
    end_of_document: str | None = Field(None, description="its end-of-document token; default: the first known name")
    padding: str | None = Field(None, description="its padding token; default: a known name, else end_of_document")
    vocabulary_size: int = Field(
        32768, ge=258, le=1 << 20, description="tokens to train, 256 bytes and 2 specials included"
    )
    sample_bytes: int = Field(32 << 20, ge=1, le=1 << 32, description="most bytes of UTF-8 to train on")
    min_frequency: int = Field(2, ge=1, description="fewest occurrences of a pair in the sample for it to be merged")
    retrain: Literal["on_refresh", "always"] = Field(
        "on_refresh",
        description="always: anew where the survivors that it was trained on change; on_refresh: it stays then, too",
        json_schema_extra={"affects_rows": False},
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in_sha256(cls, values: Any) -> Any:
        """Read the file once, before work starts."""
        if not isinstance(values, dict) or not values.get("file"):
            return values
        file_sha256 = hashlib.sha256(read_tokenizer_file(values["file"]).encode()).hexdigest()
        return {**values, "file_sha256": values.get("file_sha256") or file_sha256}


def read_tokenizer_file(path: str) -> str:
    """Read a tokenizer.json.

    Raises:
        ConfigError: no such file, or no UTF-8.
    """
    try:
        return Path(path).read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"tokenizer: file {path!r} cannot be read ({error}); name a tokenizer.json") from error


TOKENIZER = Table(
    name="tokenizer",
    comment="one row: the tokenizer of the corpus, as the text of its tokenizer.json",
    columns=(
        Column("sha256!", "string", "SHA-256 of the file's UTF-8, the identity of the tokenizer"),
        Column("vocabulary_size!", "int", "every token id is below it"),
        Column("special_tokens!", "map<string, int!>", "ids of the special tokens by their text"),
        Column("end_of_document_id!", "int", "token after the last token of a document"),
        Column("padding_id!", "int", "token that fills a window after its last segment"),
        Column("file!", "string", "text of the tokenizer.json"),
    ),
    key=("sha256",),
    partition=("increment",),
    checks=(
        Check(
            "ids_in_vocabulary",
            "end_of_document_id between 0 and vocabulary_size - 1 and padding_id between 0 and vocabulary_size - 1",
            "the two special ids are ids of this vocabulary",
        ),
        Check("sha256_of_file", "sha2(file, 256) = sha256", "the identity belongs to the content"),
    ),
)


TOKENIZER_CERTIFICATE = Table(
    name="tokenizer_certificate",
    comment="one row: for which texts the fast encoder gives the tokenizer's ids, with which versions",
    columns=(
        Column("tokenizer_sha256!", "string", "identity of the tokenizer"),
        Column("reference!", "string", "name and version of the library whose ids count"),
        Column("encoder!", "string", "name and version of the fast encoder; none where none is installed"),
        Column("refusal", "string", "why there is no fast path; null where there is one"),
        Column(
            "excluded!",
            "list<struct<first!: int, last!: int>>",
            "code points, first to last, that the two take for different things; their documents take the slow path",
        ),
        Column("probe_count!", "long", "texts that were encoded by both"),
    ),
    key=("tokenizer_sha256",),
    partition=("increment",),
    checks=(
        Check(
            "a_refusal_excludes_nothing",
            "refusal is null or size(excluded) = 0",
            "code points are excluded from a fast path that there is",
        ),
    ),
)


def refuse_unusable_file(config: TokenizerConfig) -> None:
    """Raise if the config's file is no tokenizer, or has changed since the config was made.

    Raises:
        ConfigError: the file changed.
        InputError: it is no tokenizer, or lacks a token named in the config.
    """
    if config.file is not None:
        read_facts(_file_text(config), config.end_of_document, config.padding)


@step(
    version="2",
    scope=Scope.FROZEN,
    tables=(TOKENIZER, TOKENIZER_CERTIFICATE),
    refuse=refuse_unusable_file,
    stays=lambda config: config.retrain == "on_refresh",
)
def tokenizer(
    survivors: DataFrame, texts: DataFrame, config: TokenizerConfig, cut_texts: DataFrame | None = None
) -> Output:
    """Train the corpus's tokenizer, or take the one in a file; one row is a tokenizer.

    The side table holds its certificate: the texts allowed to the fast encoder.
    """
    read = with_cuts(texts, cut_texts)
    tokenizers = (
        _from_file(survivors, config) if config.file is not None else persist(_trained(survivors, read, config))
    )
    certificates = tokenizers.select("file").mapInArrow(_certify, _CERTIFICATE_DDL)
    return Output({TOKENIZER.name: tokenizers, TOKENIZER_CERTIFICATE.name: certificates}, persisted=(tokenizers,))


def _trained(survivors: DataFrame, texts: DataFrame, config: TokenizerConfig) -> DataFrame:
    """The row of a tokenizer trained on a sample of the survivors."""
    keys = ["dataset", "shard", "doc_id"]
    kept, hashed = survivors.select(*keys), F.xxhash64("doc_id", "dataset").alias("hash")
    # The sample is found by lengths, and taken before the join, so that no join holds the texts of all documents.
    sizes = texts.select(*keys, hashed, F.octet_length("content").alias("size")).join(kept, keys, "left_semi")
    documents = texts.select(*keys, hashed, "content")
    chosen = with_smallest_hashes(documents, sizes, config.sample_bytes, _NO_TEXT).join(kept, keys, "left_semi")
    sample = chosen.select("hash", "doc_id", "dataset", F.substring("content", 1, config.sample_bytes).alias("content"))
    ordered = grouped(sample, [], ["hash", "doc_id", "dataset"]).select("content")
    return ordered.map(functools.partial(_train, config=config), _ROW_DDL).to_frame()


def _file_text(config: TokenizerConfig) -> str:
    """Read the config's file; a ConfigError if its SHA-256 is not the config's."""
    text = read_tokenizer_file(str(config.file))
    actual_sha256 = hashlib.sha256(text.encode()).hexdigest()
    if actual_sha256 != config.file_sha256:
        raise ConfigError(
            f"tokenizer: file {config.file!r} has SHA-256 {actual_sha256}, the config says {config.file_sha256}; "
            "restore the file, or leave file_sha256 out and refreeze the corpus"
        )
    return text


def _from_file(survivors: DataFrame, config: TokenizerConfig) -> DataFrame:
    """The row of the tokenizer in the config's file, read on the driver."""
    row = _row(_file_text(config), config).to_pylist()[0]
    values = {**row, "special_tokens": dict(row["special_tokens"])}
    return survivors.sparkSession.createDataFrame([values], _ROW_DDL)


def _certify(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A certificate for every tokenizer in the batches; there is one in all, so one task makes it."""
    for batch in batches:
        rows = [certify(file_text).row() for file_text in batch.column("file").to_pylist()]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=_CERTIFICATE_SCHEMA)


def _train(batches: Iterable[pa.RecordBatch], config: TokenizerConfig) -> Iterator[pa.RecordBatch]:
    """Train on the documents of one task, in their order, until the sample is full."""
    text = train_byte_pairs(_sample(batches, config.sample_bytes), config.vocabulary_size, config.min_frequency)
    yield _row(text, config)


def _sample(batches: Iterable[pa.RecordBatch], sample_bytes: int) -> Iterator[str]:
    """Pieces of the documents until `sample_bytes` are full; the first piece is taken in any case."""
    used = 0
    for batch in batches:
        for content in batch.column("content"):
            for piece in cut_before_spaces(content.as_py(), min(_PIECE_CHARACTERS, sample_bytes)):
                size = len(piece.encode())
                if used and used + size > sample_bytes:
                    return
                used += size
                yield piece


def _row(file_text: str, config: TokenizerConfig) -> pa.RecordBatch:
    """The row of the table `tokenizer` for a tokenizer.json."""
    facts = read_facts(file_text, config.end_of_document, config.padding)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([hashlib.sha256(file_text.encode()).hexdigest()]),
            pa.array([facts.vocabulary_size], pa.int32()),
            pa.array([list(facts.special_tokens.items())], pa.map_(pa.string(), pa.int32())),
            pa.array([facts.end_of_document_id], pa.int32()),
            pa.array([facts.padding_id], pa.int32()),
            pa.array([file_text]),
        ],
        names=["sha256", "vocabulary_size", "special_tokens", "end_of_document_id", "padding_id", "file"],
    )
