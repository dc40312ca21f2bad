"""The step `classifier`: a bounded sample that depends on the texts alone."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headrace_features.models.classifier_step import ClassifierConfig, _cut, classifier
from spark_jobs.text.hash_sample import smallest_hashes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("sklearn", reason="scikit-learn is in the extra filters")
DDL = "shard int, doc_id string, content string"


def _rows(name: str, words: str, count: int) -> list[tuple[int, str, str]]:
    draw = random.Random(name)
    return [(0, f"{name}{n}", " ".join(draw.choices(words.split(), k=10))) for n in range(count)]


@pytest.mark.nightly
def test_the_model_is_the_same_for_any_partitions_and_orders(spark: SparkSession) -> None:
    """Of a sample that leaves most texts out; a longer one is another model."""
    reference, raw = _rows("r", "stone river the of", 300), _rows("c", "buy now the of", 300)
    found = []
    for partitions, order, sample_bytes in ((1, 1, 4_000), (5, -1, 4_000), (2, 1, 8_000)):
        config = ClassifierConfig(sample_bytes=sample_bytes, min_texts=2, features={"bits": 8})
        frames = [spark.createDataFrame(rows[::order], DDL).repartition(partitions) for rows in (reference, raw)]
        made = classifier(config, reference=frames[0], raw=frames[1])
        (row,) = made.frames["classifier"].select("sha256", "train_count", "test_count").collect()
        found.append((row.sha256, row.train_count + row.test_count))
        for frame in made.persisted:
            frame.unpersist()
    assert found[0] == found[1] != found[2]
    size = sum(len(text) for _, _, text in reference + raw) / 600
    assert 4_000 / size - 8 < found[0][1] <= 4_000 / size + 8 and found[2][1] > 1.8 * found[0][1]


@pytest.mark.nightly
def test_labels_are_a_column_of_the_table_or_of_the_documents(spark: SparkSession) -> None:
    """Texts without a label are left out; both ways give one model."""
    rows = [*_rows("r", "stone river the of", 60), *_rows("c", "buy now the of", 60), *_rows("x", "else", 9)]
    labels = [None if doc_id[0] == "x" else doc_id[0] for _, doc_id, _ in rows]
    labelled = [(doc_id, text, of) for (_, doc_id, text), of in zip(rows, labels, strict=True)]
    table = spark.createDataFrame(labelled, "doc_id string, body string, of string")
    documents = spark.createDataFrame(
        [(0, doc_id, {"of": of} if of else {}) for doc_id, _, of in labelled],
        "shard int, doc_id string, metadata map<string, string>",
    )
    small = {"min_texts": 2, "features": {"bits": 8}}
    own = classifier(ClassifierConfig(label_column="of", text_column="body", **small), labelled=table)
    texts = spark.createDataFrame(rows, DDL)
    config = ClassifierConfig(label_column="metadata.of", **small)
    joined = classifier(config, labelled=texts, documents=documents)
    made = [one.frames["classifier"].drop("file").collect() for one in (own, joined)]
    assert made[0] == made[1] and made[0][0].labels == ["c", "r"]
    assert made[0][0].train_count + made[0][0].test_count == 120


def test_a_sample_is_the_smallest_hashes(spark: SparkSession) -> None:
    """Those of the whole, of at least so many bytes, and little more where hashes are many."""
    rows = spark.range(50_000).selectExpr("xxhash64(id) AS hash", "repeat('x', 10) AS content").cache()
    kept = sorted(row.hash for row in smallest_hashes(rows, 100_000, "none").select("hash").collect())
    assert kept == sorted(row.hash for row in rows.select("hash").collect())[: len(kept)]
    assert 10_000 <= len(kept) < 10_050
    assert smallest_hashes(rows, 10**9, "none").count() == 50_000
    rows.unpersist()


def test_each_part_has_its_own_bytes() -> None:
    """What is over is left out, whatever batches it comes in; a first text that is too large is taken."""
    texts = [("a", "xxxx"), ("b", "y" * 50), ("a", "xxx"), ("b", "y"), ("a", "xxxx"), ("a", "x")]
    for size in (1, 2, 6):
        batches = [
            pa.RecordBatch.from_pydict(
                {
                    "part": [part for part, _ in texts[at : at + size]],
                    "label": [part.upper() for part, _ in texts[at : at + size]],
                    "content": [text for _, text in texts[at : at + size]],
                }
            )
            for at in range(0, len(texts), size)
        ]
        kept = _cut(iter(batches), {"a": 8, "b": 10})
        assert kept.to_pydict() == {"label": ["A", "B", "A"], "content": ["xxxx", "y" * 50, "xxx"]}
