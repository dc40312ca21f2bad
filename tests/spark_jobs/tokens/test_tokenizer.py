"""The tokenizer of a corpus is a function of its documents, never of how they lie."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from spark_jobs.exceptions import ConfigError, InputError
from spark_jobs.tokens import tokenizer as tokenizer_module
from spark_jobs.tokens.certificate import Certificate, certify
from spark_jobs.tokens.hf_tokenizer import train_byte_pairs
from spark_jobs.tokens.tokenizer import TOKENIZER, TOKENIZER_CERTIFICATE, TokenizerConfig, tokenizer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRAIN_ON_ONE = """
import random, resource, sys
import pyarrow as pa
from spark_jobs.tokens import tokenizer
draw = random.Random(1)
words = ["".join(draw.choices("etaoinsh", k=draw.randint(2, 9))) for _ in range(20_000)]
part = " ".join(draw.choices(words, k=200_000))
text = " ".join([part] * (int(sys.argv[1]) * 1_000_000 // len(part) + 1))
batch = pa.record_batch({"content": [text]})
del text
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
config = tokenizer.TokenizerConfig(sample_bytes=4 << 20, vocabulary_size=1000)
next(tokenizer._train([batch], config))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""
"""Prints by how many megabytes training on one document of so many megabytes raised the peak of a process."""
WORDS = ("def", "return", "import", "class", "self", "value", "index", "for", "in", "while", "if", "else", "raise")


def documents(count: int = 60) -> list[dict[str, object]]:
    """Documents of two datasets that can be told apart by their words."""
    generator = random.Random(4)
    return [
        {
            "dataset": "code" if number % 3 else "prose",
            "shard": number % 2,
            "doc_id": hashlib.sha256(str(number).encode()).hexdigest()[:32],
            "content": " ".join(generator.choices(WORDS, k=50)) + f" word{number} " * 3,
        }
        for number in range(count)
    ]


def trained(
    spark: SparkSession, rows: list[dict[str, object]], partitions: int = 1, **config: int
) -> dict[str, object]:
    """The step's one row, all documents but the last ten surviving."""
    texts = frame(spark, rows).repartition(partitions)
    survivors = frame(spark, [row for row in rows if row in documents()[:-10]]).drop("content").repartition(partitions)
    found = tokenizer(survivors, texts, TokenizerConfig(**config)).frames["tokenizer"].collect()
    assert len(found) == 1
    return dict(found[0].asDict())


def frame(spark: SparkSession, rows: list[dict[str, object]]) -> DataFrame:
    """Rows as Spark has them."""
    kinds = {"dataset": pa.string(), "shard": pa.int32(), "doc_id": pa.string(), "content": pa.string()}
    return spark.createDataFrame(pa.Table.from_pylist(rows, pa.schema(kinds)))


@pytest.mark.nightly
def test_tokenizer_is_identical_for_1_2_and_7_partitions(spark: SparkSession) -> None:
    """Partitions and row order change nothing, with a sample that is a part of the documents."""
    rows = documents()
    expected = trained(spark, rows, vocabulary_size=300, sample_bytes=4000)
    for partitions in (2, 7):
        shuffled = random.Random(partitions).sample(rows, len(rows))
        assert trained(spark, shuffled, partitions, vocabulary_size=300, sample_bytes=4000) == expected


def test_all_survivors_are_trained_on_where_they_fit(spark: SparkSession) -> None:
    """With room for all, the file is that of all surviving documents, of none other."""
    rows = documents()
    found = trained(spark, rows, vocabulary_size=400)
    file = train_byte_pairs([str(row["content"]) for row in rows[:-10]], 400, 2)
    assert found["file"] == file
    assert found["sha256"] == hashlib.sha256(file.encode()).hexdigest()
    assert found["special_tokens"] == {"<|endoftext|>": 0, "<|padding|>": 1}


def test_sample_is_cut_at_its_size() -> None:
    """Documents are taken while they fit; of the first one, as much as fits."""
    batch = pa.RecordBatch.from_pydict({"content": ["aaaa", "éé", "c", "d"]})
    sample = tokenizer_module._sample
    assert list(sample([batch], 8)) == ["aaaa", "éé"]
    assert list(sample([batch], 2)) == ["aa"]
    assert list(sample([batch, batch], 100)) == ["aaaa", "éé", "c", "d"] * 2


def test_a_long_document_is_trained_on_in_pieces_within_the_sample() -> None:
    """Memory follows `sample_bytes`: no text is longer than a piece, and all together are no more than the sample."""
    text = "some words é\n" * 100_000
    batch = pa.RecordBatch.from_pydict({"content": [text, "next"]})
    for sample_bytes in (200_000, 10_000_000):
        pieces = list(tokenizer_module._sample([batch], sample_bytes))
        assert max(map(len, pieces)) <= 65_536
        assert sum(len(piece.encode()) for piece in pieces) <= sample_bytes
        assert (text + "next").startswith("".join(pieces))
    assert "".join(pieces) == text + "next"


@pytest.mark.nightly
def test_memory_of_training_does_not_follow_the_longest_document() -> None:
    """One document of 20 MB, far above `sample_bytes`: whole, it took 1.6 GB on top of what the process has."""
    run = subprocess.run([sys.executable, "-c", TRAIN_ON_ONE, "20"], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 300


def test_a_given_file_is_taken_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    """The row holds the file's text, its content decides the step key, and no document is read."""
    file = train_byte_pairs(["a b c"], 258, 2)
    path = tmp_path / "tokenizer.json"
    path.write_text(file)
    config = TokenizerConfig(file=str(path))
    assert config.file_sha256 == hashlib.sha256(file.encode()).hexdigest()
    survivors = frame(spark, []).drop("content")
    output = tokenizer(survivors, frame(spark, []), config)
    row = output.frames["tokenizer"].first()
    assert row is not None
    assert (row["file"], row["sha256"], row["end_of_document_id"]) == (file, config.file_sha256, 0)


def test_a_changed_file_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A file that is not the one whose SHA-256 the config names is an error before work starts."""
    path = tmp_path / "tokenizer.json"
    path.write_text(train_byte_pairs(["a b c"], 258, 2))
    config = TokenizerConfig(file=str(path))
    path.write_text(train_byte_pairs(["a bc d"], 300, 1))
    with pytest.raises(ConfigError, match="leave file_sha256 out and refreeze"):
        tokenizer(frame(spark, []), frame(spark, []), config)


def test_a_missing_file_is_refused_when_the_config_is_made(tmp_path: Path) -> None:
    """The mistake is found before anything runs."""
    with pytest.raises(ConfigError, match=r"cannot be read .*; name a tokenizer\.json"):
        TokenizerConfig(file=str(tmp_path / "none.json"))


def test_no_text_to_train_on_is_refused(spark: SparkSession) -> None:
    """A corpus of no documents cannot have a trained tokenizer, and says so."""
    with pytest.raises(InputError, match="no document has any text to train on"):
        trained(spark, [], vocabulary_size=300)


def test_columns_are_those_of_the_table(spark: SparkSession) -> None:
    """Names and types are as declared, and the checks hold."""
    rows = frame(spark, documents(20))
    found = tokenizer(rows.drop("content"), rows, TokenizerConfig(vocabulary_size=300)).frames["tokenizer"]
    assert found.columns == [column.name for column in TOKENIZER.columns]
    assert dict(found.dtypes)["special_tokens"] == "map<string,int>"
    assert found.where(" and ".join(f"({check.predicate})" for check in TOKENIZER.checks)).count() == 1


@pytest.mark.nightly
def test_the_certificate_lies_beside_the_tokenizer(spark: SparkSession) -> None:
    """Its row is what `certify` says of the tokenizer's file, and can be read back from the table's columns."""
    rows = frame(spark, documents(20))
    frames = tokenizer(rows.drop("content"), rows, TokenizerConfig(vocabulary_size=300)).frames
    assert frames["tokenizer_certificate"].columns == [column.name for column in TOKENIZER_CERTIFICATE.columns]
    made, found = frames["tokenizer"].first(), frames["tokenizer_certificate"].first()
    assert made is not None
    assert found is not None
    assert Certificate.from_row(found.asDict(recursive=True)) == certify(made["file"])
    assert found["tokenizer_sha256"] == made["sha256"]
