"""One repository of 200,000 files goes through `ordered` and `packed` on Spark: it is one task's, and fits it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from spark_jobs.code.ordered import OrderedConfig, ordered
from spark_jobs.packing.packed import packed_step
from spark_jobs.packing.packed_table import PackedConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT, L = 200_000, 2048


@pytest.mark.nightly
def test_a_repository_of_200000_files_is_ordered_and_packed(spark: SparkSession, tmp_path: Path) -> None:
    """A chain of imports against the order of the paths: every file has its rank, and neighbours share windows."""
    files = spark.range(COUNT).selectExpr(
        "'code' AS dataset",
        "0 AS shard",
        "lpad(id, 32, '0') AS doc_id",
        "'large' AS repository",
        "concat('pkg/d', id % 500, '/m', lpad(id, 6, '0'), '.py') AS path",
        "'code' AS kind",
        "'Python' AS language",
        "sequence(2, 2 + cast(id % 100 AS int)) AS input_ids",
        "1 + cast(id % 100 AS int) AS token_count",
    )
    edges = spark.range(COUNT - 1).selectExpr(
        "'code' AS dataset",
        "'large' AS repository",
        "lpad(id, 32, '0') AS doc_id",
        "concat('pkg/d', id % 500, '/m', lpad(id, 6, '0'), '.py') AS path",
        "lpad(id + 1, 32, '0') AS needed_doc_id",
        "concat('pkg/d', (id + 1) % 500, '/m', lpad(id + 1, 6, '0'), '.py') AS needed_path",
        "'import' AS kind",
    )
    ordered(files, files, OrderedConfig(), edges).write.parquet(str(tmp_path / "ordered"))
    order = spark.read.parquet(str(tmp_path / "ordered"))
    assert order.where(f"rank != {COUNT - 1} - cast(doc_id AS long)").count() == 0, "what is needed comes first"
    assert order.select("rank").distinct().count() == COUNT

    tokenizer = spark.createDataFrame(
        [("ab" * 32, 1000, 0, 1, {}, "")],
        "sha256 string, vocabulary_size int, end_of_document_id int, padding_id int, "
        "special_tokens map<string, int>, file string",
    )
    config = PackedConfig(dataset="code", window_tokens=L, affinity="repository", target_utilisation=0.96)
    files.write.parquet(str(tmp_path / "tokens"))
    tokens_table = spark.read.parquet(str(tmp_path / "tokens"))
    output = packed_step("code", L)(tokens_table, order, tokenizer, 0, 0, config)
    windows = output.frames[f"packed_code_{L}"].select("ordinal", "token_count", "segments.doc_id").toArrow()
    for frame in output.persisted:
        frame.unpersist()
    assert sorted(windows.column("ordinal").to_pylist()) == list(range(windows.num_rows))
    found = windows.column("doc_id").combine_chunks()
    numbers = found.flatten().to_numpy(zero_copy_only=False).astype(np.int64)
    assert np.array_equal(np.sort(numbers), np.arange(COUNT)), "every file once: none is longer than a window"
    tokens = int(np.sum(1 + np.arange(COUNT) % 100)) + COUNT
    assert sum(windows.column("token_count").to_pylist()) == tokens
    assert windows.num_rows <= tokens / L / 0.96 + 1
    assert np.mean(np.diff(numbers) == -1) > 0.9, "files that follow each other lie side by side"
