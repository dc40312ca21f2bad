"""Token statistics are the counts of the tables they are made from, per dataset and language."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models

from spark_jobs.exceptions import InputError
from spark_jobs.tokens.token_statistics import TOKEN_STATISTICS, token_statistics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DOCUMENTS = [
    ("code", 0, "a", "Python", "def f(): pass", [5, 6, 7, 5]),
    ("code", 1, "b", "Python", "", []),
    ("code", 0, "c", None, "a é", [1, 9]),
    ("prose", 0, "d", "en", "a few words here", [2, 2, 2]),
    ("prose", 0, "e", "en", "say <|im_end|> <|im_end|> or <|tool|><b>", [2]),
    ("prose", 0, "f", "en", "<|im_end|>", [2]),
    ("prose", 0, "gone", "en", "not tokenized <|im_end|>", None),
]


def frames(
    spark: SparkSession, documents: list[tuple[str, int, str, str | None, str, list[int] | None]]
) -> tuple[DataFrame, DataFrame]:
    """Rows of `tokens` and of `texts`."""
    tokens = [(dataset, shard, name, ids, len(ids)) for dataset, shard, name, _, _, ids in documents if ids is not None]
    texts = [document[:5] for document in documents]
    return (
        spark.createDataFrame(
            tokens, "dataset string, shard int, doc_id string, input_ids array<int>, token_count int"
        ),
        spark.createDataFrame(texts, "dataset string, shard int, doc_id string, language string, content string"),
    )


def sized(spark: SparkSession, *sizes: int) -> DataFrame:
    """The tokenizer's row, of one with two control tokens."""
    made = Tokenizer(models.BPE())
    made.add_special_tokens(["<|im_end|>"])
    made.add_tokens(["<|tool|>", "<b>"])
    files = pa.array([made.to_str()] * len(sizes), pa.string())
    return spark.createDataFrame(pa.table({"vocabulary_size": pa.array(sizes, pa.int32()), "file": files}))


@pytest.mark.parametrize("partitions", [pytest.param(1, marks=pytest.mark.nightly), 3])
def test_each_dataset_and_language_is_one_row(spark: SparkSession, partitions: int) -> None:
    """Of the documents that have tokens; columns and types are the table's, its checks hold."""
    tokens, texts = frames(spark, DOCUMENTS)
    found = token_statistics(tokens.repartition(partitions), texts, sized(spark, 10))
    assert set(found.columns) == {column.name for column in TOKEN_STATISTICS.columns}
    assert dict(found.dtypes)["used_ids"] == "binary"
    rows = {(row["dataset"], row["language"]): row.asDict() for row in found.collect()}
    assert set(rows) == {("code", "Python"), ("code", "unknown"), ("prose", "en")}
    python = rows["code", "Python"]
    assert [python[name] for name in ("document_count", "token_count", "character_count", "word_count")] == [
        2,
        4,
        13,
        3,
    ]
    assert (python["used_token_count"], python["used_fraction"], python["max_token_count"]) == (3, 0.3, 4)
    assert python["length_histogram"][:4] == [1, 0, 0, 1]
    assert (rows["code", "unknown"]["bytes_per_token"], rows["prose", "en"]["tokens_per_word"]) == (2.0, 0.5)
    assert [name.asDict() for name in rows["prose", "en"]["control_names"]] == [
        {"name": "<|im_end|>", "is_letters": True, "document_count": 2},
        {"name": "<|tool|>", "is_letters": False, "document_count": 1},
    ]
    assert rows["code", "unknown"]["control_names"] == []
    assert found.where(" and ".join(f"({check.predicate})" for check in TOKEN_STATISTICS.checks)).count() == 3


def test_no_documents_give_no_rows(spark: SparkSession) -> None:
    """An empty dataset has no statistics, and that is no error."""
    assert token_statistics(*frames(spark, []), sized(spark, 10)).count() == 0


def test_a_missing_tokenizer_is_refused(spark: SparkSession) -> None:
    """Without a tokenizer row the step says what to materialize."""
    with pytest.raises(InputError, match="materialize tokenizer first"):
        token_statistics(*frames(spark, DOCUMENTS), sized(spark))
