"""The step `tokens`: the token ids of every surviving document, without special tokens.

Ids are always those of Hugging Face's `tokenizers`. Where the tokenizer's certificate allows it, the fast encoder
computes them (`document_encoder`), some eighty times as fast. Where the certificate is for other versions than those
installed, a new one is made on the driver, in a few seconds.

The survivors are narrow: while Spark's own threshold allows it they are broadcast to the texts, and the content is not
shuffled; above the threshold it is shuffled once. The tokenizer's file and its certificate are sent with the function;
both encoders are made once per worker process.

The reference encodes a batch with all cores. Measured on 2 cores (benchmarks/bench_packing.py): one task 5.9 MB/s
against 3.3 with one thread, two tasks at once 5.6 against 5.3, so threads are left on;
spark.executorEnv.RAYON_NUM_THREADS bounds them where executors run many tasks. The fast encoder uses one thread a task.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import ArrowRows, ConfigModel, Output, Scope, Standing, step
from spark_jobs.lake.declare.tables import Check, Column, Proof, Table
from spark_jobs.selection.cuts import with_cuts
from spark_jobs.spark_sql import DataFrame
from spark_jobs.threads import made_once
from spark_jobs.tokens.certificate import Certificate, certify
from spark_jobs.tokens.document_encoder import DocumentColumn, DocumentEncoder
from spark_jobs.tokens.encoder_guard import installed, recorded_versions, require_same_encoder
from spark_jobs.tokens.mask_check import rows_are_trained

_log = logging.getLogger(__name__)
_certified = made_once(most=1)(certify)  # the guard asks for it, then the step
_TOKENS_DDL = "dataset string, shard int, doc_id string, input_ids array<int>, token_count int"
_TOKENS_SCHEMA = pa.schema(
    [
        pa.field("dataset", pa.string()),
        pa.field("shard", pa.int32()),
        pa.field("doc_id", pa.string()),
        pa.field("input_ids", pa.list_(pa.int32())),
        pa.field("token_count", pa.int32()),
    ]
)


class TokensConfig(ConfigModel):
    """How documents are encoded; has no effect on the ids."""

    batch_characters: int = Field(
        1 << 18,
        ge=1,
        description="characters encoded at once; a task needs about 115 bytes of memory for each byte of them",
        json_schema_extra={"affects_rows": False},
    )
    use_fast_encoder: bool = Field(
        True,
        description="whether documents that the tokenizer's certificate covers go through the fast encoder",
        json_schema_extra={"affects_rows": False},
    )


def _survivors_without_tokens(
    rows: DataFrame, inputs: Mapping[str, DataFrame], increment: int | None, config: TokensConfig
) -> DataFrame:
    """Survivors without a row in `tokens`; a proof, so none is expected."""
    keys = ["dataset", "shard", "doc_id"]
    return inputs["survivors"].select(*keys).join(rows.select(*keys), keys, "left_anti")


def _counts_are_lengths(rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """(R,) whether each row passes the check `token_count_is_length`."""
    is_equal: npt.NDArray[np.bool_] = (
        pc.list_value_length(rows.column("input_ids")).to_numpy() == rows.column("token_count").to_numpy()
    )
    return is_equal


TOKENS = Table(
    name="tokens",
    comment="one row per surviving document: its token ids",
    columns=(
        Column("dataset!", "string", "dataset of the document"),
        Column("shard!", "int", "hash of the repository modulo the dataset's shards"),
        Column("doc_id!", "string", "identity of the document"),
        Column("input_ids!", "list<int!>", "token ids of the whole text without special tokens; empty for empty text"),
        Column("token_count!", "int", "length of input_ids"),
    ),
    key=("dataset", "doc_id"),
    partition=("increment", "shard"),
    checks=(
        Check(
            "token_count_is_length",
            "token_count = size(input_ids)",
            "the count is the length of the list",
            _counts_are_lengths,
        ),
    ),
    proofs=(
        Proof(
            "every_survivor_has_tokens",
            "each survivor is a row, of no token where its text is empty",
            _survivors_without_tokens,
        ),
    ),
    sampled=("input_ids",),
    # `packed` reads a row group at once: 4 million ids, or as many as Spark encodes in these bytes where it compacts.
    properties={"write.parquet.row-group-size-bytes": str(16 << 20)},
)


_ROWS = "arrays_zip(concat(array(0), row_starts), concat(row_starts, array(token_count + 1)))"
_IS_TRAINED = "array_contains(slice(trainable, row.`0` + 1, greatest(0, row.`1` - row.`0`)), true)"
_ROWS_ARE_TRAINED = Check(
    "every_row_is_trained",
    "size(trainable) = token_count + 1 and coalesce(array_max(row_starts), -1) < token_count and "
    f"(token_count = 0 or forall({_ROWS}, row -> row.`1` > row.`0` and {_IS_TRAINED}))",
    "rows begin one after the other inside of the document, and each has a trained token",
    rows_are_trained,
)
ROWS_BEGIN = Check(
    "rows_begin_in_order",
    "size(trainable) = token_count + 1 and coalesce(array_max(row_starts), -1) < token_count and "
    f"(token_count = 0 or forall({_ROWS}, row -> row.`1` > row.`0`))",
    "rows begin one after the other inside of the document; a rule may leave one without a trained token",
    functools.partial(rows_are_trained, wholly_masked=True),
)
_MASK = "whether a loss is taken on each token, and last on the end token put behind the document: token_count + 1"
_STARTS = (
    "tokens at which further rows of the document begin, ascending: packing cuts it there and, but for rows longer "
    "than a window, nowhere else; each row has a trained token, a document without any has no tokens; all but the last "
    "row end with their end token"
)
RENDERED = "headrace.conversations"
"""Property of a table of rendered conversations: the template, and what is trained."""
MASKED_TOKENS = replace(
    TOKENS,
    comment="one row per surviving document: its token ids, and which of them a loss is taken on",
    columns=(
        *TOKENS.columns,
        Column("trainable!", "list<boolean!>", _MASK),
        Column("row_starts!", "list<int!>", _STARTS),
    ),
    checks=(*TOKENS.checks, _ROWS_ARE_TRAINED),
)
"""`tokens` of a corpus trained on parts of its documents, such as the answers of conversations."""
MASKED_TOKENS_DDL = f"{_TOKENS_DDL}, trainable array<boolean>, row_starts array<int>"
MASKED_TOKENS_SCHEMA = pa.schema(
    [*_TOKENS_SCHEMA, pa.field("trainable", pa.list_(pa.bool_())), pa.field("row_starts", pa.list_(pa.int32()))]
)


@dataclass(frozen=True)
class Encoding:
    """The settings of a task to encode documents.

    Attributes:
        file_text: text of the tokenizer.json.
        vocabulary_size: every id is below it.
        certificate: the texts allowed to the fast encoder.
        batch_characters: most characters encoded at once by the reference.
    """

    file_text: str
    vocabulary_size: int
    certificate: Certificate
    batch_characters: int


def same_encoder(config: TokensConfig, inputs: Mapping[str, DataFrame], standing: Standing | None) -> dict[str, str]:
    """Refuse an increment with ids unlike those of the earlier ones (`encoder_guard`).

    Raises:
        InputError: names the versions, and the differing text or document.
    """
    if recorded_versions(standing) == installed():
        return {}
    row = inputs["tokenizer"].select("file", "sha256").first()
    if row is None:
        return {}
    certificate = _certificate(inputs.get("tokenizer_certificate"), row["file"], row["sha256"], config)
    encoder = DocumentEncoder(row["file"], certificate, config.batch_characters)

    def encode(texts: Sequence[str]) -> list[npt.NDArray[np.int32]]:
        names = [f"number {number}" for number in range(len(texts))]
        return list(encoder.encode(DocumentColumn(pa.array(texts, pa.string()), pa.array(names, pa.string()))))

    return require_same_encoder(row["file"], encode, standing, documents=True)


@step(
    version="2",
    scope=Scope.INCREMENT,
    tables=(TOKENS,),
    guard=same_encoder,
)
def tokens(
    survivors: DataFrame,
    texts: DataFrame,
    tokenizer: DataFrame,
    config: TokensConfig,
    tokenizer_certificate: DataFrame | None = None,
    cut_texts: DataFrame | None = None,
) -> Output:
    """Encode the surviving documents; one row is a document's token ids."""
    row = tokenizer.select("file", "sha256", "vocabulary_size").first()
    if row is None:
        raise InputError("tokens: the tokenizer table has no row; materialize tokenizer first")
    certificate = _certificate(tokenizer_certificate, row["file"], row["sha256"], config)
    encoding = Encoding(row["file"], row["vocabulary_size"], certificate, config.batch_characters)
    documents = (
        with_cuts(texts, cut_texts)
        .select("dataset", "shard", "doc_id", "content")
        .join(survivors.select("dataset", "shard", "doc_id"), ["dataset", "shard", "doc_id"], "left_semi")
    )
    encoded = ArrowRows(documents, functools.partial(_encode, encoding=encoding), _TOKENS_DDL)
    return Output(
        {TOKENS.name: encoded.to_frame()},
        {"headrace.tokenizer-sha256": row["sha256"], "headrace.vocabulary-size": str(row["vocabulary_size"])},
        arrow_rows={TOKENS.name: encoded},
    )


def _certificate(stored: DataFrame | None, file_text: str, sha256: str, config: TokensConfig) -> Certificate:
    """The stored certificate, or a new one if it is missing or for other versions; logs a refusal."""
    certificate_row: Any = None if stored is None else stored.first()
    certificate = None if certificate_row is None else Certificate.from_row(certificate_row.asDict(recursive=True))
    if not config.use_fast_encoder:
        return Certificate.refused(sha256, "use_fast_encoder is false in the config of tokens")
    if certificate is None or not certificate.is_for_this_installation:
        _log.info("tokens: no certificate of tokenizer %.8s for the libraries installed here; making one", sha256)
        certificate = _certified(file_text)
    if certificate.refusal is not None:
        _log.warning(
            "tokens: tokenizer %.8s has no certified fast encoder: %s; %s encodes everything, at 1-2 MB/s a core",
            sha256,
            certificate.refusal,
            certificate.reference,
        )
    return certificate


def _encode(batches: Iterable[pa.RecordBatch], encoding: Encoding) -> Iterator[pa.RecordBatch]:
    """Encode batches of documents into batches of `_TOKENS_SCHEMA`, of about `batch_characters` tokens each."""
    encoder = DocumentEncoder(encoding.file_text, encoding.certificate, encoding.batch_characters)
    for batch in batches:
        done = 0
        ids: list[npt.NDArray[np.int32]] = []
        characters = 0
        for document in encoder.encode(DocumentColumn(batch.column("content"), batch.column("doc_id"))):
            ids.append(document)
            characters += len(document)
            if characters >= encoding.batch_characters:
                yield _rows(batch.slice(done, len(ids)), ids, encoding.vocabulary_size)
                done += len(ids)
                ids, characters = [], 0
        if ids:
            yield _rows(batch.slice(done, len(ids)), ids, encoding.vocabulary_size)
    _log.info("tokens: %s", encoder.tally)


def _rows(documents: pa.RecordBatch, ids: list[npt.NDArray[np.int32]], vocabulary_size: int) -> pa.RecordBatch:
    """Rows of `tokens` for some documents and their ids.

    Raises:
        InputError: an id is not in the vocabulary.
    """
    counts = np.array([len(document) for document in ids], dtype=np.int32)
    offsets = np.zeros(len(ids) + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    joined = np.concatenate(ids)
    if int(joined.max(initial=0)) >= vocabulary_size:
        first = int(np.argmax(joined >= vocabulary_size))
        document = documents.column("doc_id")[int(np.searchsorted(offsets, first, "right")) - 1]
        raise InputError(
            f"tokens: document {document} has token id {joined[first]}, the vocabulary ends at {vocabulary_size - 1}; "
            "materialize tokenizer again, its vocabulary_size is not that of its file"
        )
    input_ids = pa.ListArray.from_arrays(pa.array(offsets), pa.array(joined))
    names = ("dataset", "shard", "doc_id")
    return pa.RecordBatch.from_arrays(
        [*(documents.column(name) for name in names), input_ids, pa.array(counts)], schema=_TOKENS_SCHEMA
    )
