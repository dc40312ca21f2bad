"""Tokens are the library's ids of every survivor, however its texts are batched."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from spark_jobs.exceptions import InputError
from spark_jobs.tokens.certificate import Certificate
from spark_jobs.tokens.fast.fast_encoder import encoder_version, reference_version
from spark_jobs.tokens.hf_tokenizer import train_byte_pairs
from spark_jobs.tokens.tokens import TOKENS, TokensConfig, tokens
from tests.spark_jobs.packing.encoders import needs_fast_encoder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

SOURCES = [path.read_text() for path in sorted(Path(__file__).parents[3].joinpath("spark_jobs").rglob("*.py"))]
TEXTS = [*SOURCES, "", "x", "a <|endoftext|> b", "é漢🙂 \n\n\t'll", "", "long line " * 5000]


@pytest.fixture(scope="module")
def file() -> str:
    """A small tokenizer of this repository's own sources."""
    return train_byte_pairs(SOURCES, 2000, 2)


def rows() -> list[dict[str, object]]:
    """Documents of two datasets; every fifth did not survive."""
    return [
        {
            "dataset": "code" if number % 2 else "prose",
            "shard": number % 4,
            "doc_id": hashlib.sha256(str(number).encode()).hexdigest()[:32],
            "content": text,
        }
        for number, text in enumerate(TEXTS)
    ]


def surviving() -> list[dict[str, object]]:
    """The documents that survived."""
    return [row for number, row in enumerate(rows()) if number % 5 != 3]


def frame(spark: SparkSession, documents: list[dict[str, object]]) -> DataFrame:
    """Rows as Spark has them."""
    kinds = {"dataset": pa.string(), "shard": pa.int32(), "doc_id": pa.string(), "content": pa.string()}
    return spark.createDataFrame(pa.Table.from_pylist(documents, pa.schema(kinds)))


def run(
    spark: SparkSession, file_text: str, documents: list[dict[str, object]], partitions: int, batch: int
) -> list[Row]:
    """The step's rows by document."""
    row = spark.createDataFrame(
        pa.table({"file": [file_text], "sha256": ["ab"], "vocabulary_size": pa.array([2000], pa.int32())})
    )
    survivors = frame(spark, surviving()).drop("content").repartition(partitions)
    output = tokens(
        survivors,
        frame(spark, documents).repartition(partitions),
        row,
        TokensConfig(batch_characters=batch, use_fast_encoder=False),
    )
    assert output.properties == {"headrace.tokenizer-sha256": "ab", "headrace.vocabulary-size": "2000"}
    found = output.frames["tokens"]
    assert found.columns == [column.name for column in TOKENS.columns]
    assert [kind for _, kind in found.dtypes] == ["string", "int", "string", "array<int>", "int"]
    return sorted(found.collect(), key=lambda r: r["doc_id"])


def test_every_survivor_has_the_ids_of_its_text(spark: SparkSession, file: str) -> None:
    """Ids equal the library's on the whole text, special-token text as text; the empty text has none."""
    tokenizer = Tokenizer.from_str(file)
    tokenizer.encode_special_tokens = True
    expected = {
        row["doc_id"]: (row["dataset"], row["shard"], tokenizer.encode(str(row["content"])).ids) for row in surviving()
    }
    found = run(spark, file, rows(), 2, 1 << 20)
    assert {row["doc_id"]: (row["dataset"], row["shard"], row["input_ids"]) for row in found} == expected
    assert all(row["token_count"] == len(row["input_ids"]) for row in found)
    assert sum(row["token_count"] == 0 for row in found) == sum(not row["content"] for row in surviving()) > 0


@pytest.mark.nightly
def test_table_is_identical_for_1_2_and_7_partitions(spark: SparkSession, file: str) -> None:
    """Partitions, row order and batch size change nothing."""
    expected = run(spark, file, rows(), 2, 1 << 20)
    for partitions, batch in ((1, 500), (7, 20_000)):
        assert run(spark, file, random.Random(partitions).sample(rows(), len(TEXTS)), partitions, batch) == expected


def test_no_documents_give_no_rows(spark: SparkSession, file: str) -> None:
    """An empty increment works."""
    assert run(spark, file, [], 1, 100) == []


def certificate_frame(spark: SparkSession, certificate: Certificate) -> DataFrame:
    """A certificate as its table has it."""
    kinds = "struct<first: int, last: int>"
    columns = f"tokenizer_sha256 string, reference string, encoder string, refusal string, excluded array<{kinds}>"
    return spark.createDataFrame([certificate.row()], f"{columns}, probe_count long")


def tokenizer_frame(spark: SparkSession, file_text: str, vocabulary_size: int) -> DataFrame:
    """The tokenizer's row."""
    sizes = pa.array([vocabulary_size], pa.int32())
    return spark.createDataFrame(pa.table({"file": [file_text], "sha256": ["ab"], "vocabulary_size": sizes}))


@pytest.mark.nightly
@needs_fast_encoder
def test_rows_are_equal_with_and_without_the_fast_encoder(spark: SparkSession, file: str) -> None:
    """A valid certificate, one for other versions and none wanted: three ways to the same rows."""
    stored = Certificate("ab", reference_version(), encoder_version(), None, ((0x088F, 0x088F),), 1)
    texts = frame(spark, rows())
    found = [
        sorted(
            tokens(
                frame(spark, surviving()).drop("content"),
                texts,
                tokenizer_frame(spark, file, 2000),
                TokensConfig(use_fast_encoder=wanted),
                certificate_frame(spark, certificate),
            )
            .frames["tokens"]
            .collect()
        )
        for wanted, certificate in ((True, stored), (True, replace(stored, refusal="none here")), (False, stored))
    ]
    assert len(found[0]) == len(surviving())
    assert found[0] == found[1] == found[2]


def test_a_tokenizer_without_a_fast_path_says_so(
    spark: SparkSession, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning, with the reason; the rows are as ever."""
    refused = Certificate("ab", reference_version(), encoder_version(), "its model is another", (), 0)
    survivors = frame(spark, surviving()).drop("content")
    stored = certificate_frame(spark, refused)
    with caplog.at_level("WARNING", "spark_jobs.tokens.tokens"):
        tokens(survivors, frame(spark, rows()), tokenizer_frame(spark, file, 2000), TokensConfig(), stored)
    assert "tokenizer ab has no certified fast encoder: its model is another" in caplog.text


def test_a_token_id_outside_the_vocabulary_is_refused(spark: SparkSession, file: str) -> None:
    """A tokenizer's row that says less than its file holds: the message names document, id and mend."""
    config = TokensConfig(use_fast_encoder=False)
    survivors = frame(spark, surviving()).drop("content")
    output = tokens(survivors, frame(spark, rows()), tokenizer_frame(spark, file, 300), config)
    with pytest.raises(Exception, match=r"document [0-9a-f]{32} has token id \d+, the vocabulary ends at 299"):
        output.frames["tokens"].collect()


@pytest.mark.nightly
def test_a_survivor_without_tokens_fails_the_audit(spark: SparkSession, file: str) -> None:
    """A survivor that has no text is found by the table's proof; one whose text is empty is a row of no token."""
    (proof,) = TOKENS.proofs
    survivors = frame(spark, surviving()).drop("content")
    missing = rows()[1:]
    config = TokensConfig(use_fast_encoder=False)
    for texts, lost in ((rows(), []), (missing, [rows()[0]["doc_id"]])):
        found = tokens(survivors, frame(spark, texts), tokenizer_frame(spark, file, 2000), config).frames["tokens"]
        broken = proof.violations(found, {"survivors": survivors}, 0, config)
        assert [row["doc_id"] for row in broken.collect()] == lost


def test_a_missing_tokenizer_is_refused(spark: SparkSession) -> None:
    """Without a tokenizer row the step says what to materialize."""
    empty = spark.createDataFrame([], "file string, sha256 string, vocabulary_size int")
    texts = frame(spark, [])
    with pytest.raises(InputError, match="materialize tokenizer first"):
        tokens(texts, texts, empty, TokensConfig())
