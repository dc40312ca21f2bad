"""The frozen table `template_lines` and the scorer `templates`: how much of each text a template of its dataset wrote.

`scorers: {templates: {min_documents: 10}}` makes both. The lines shared by so many documents of a sample are counted
once, with the dataset's first increment; the texts of all increments are measured against them, so that a text has the
same measures whatever arrives later.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pydantic import Field

from spark_jobs.arrays import Int64Array
from spark_jobs.filters.scorer import scorer
from spark_jobs.lake.declare.step import ConfigModel, Output, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.engine.arrangement import persist
from spark_jobs.spark_sql import DataFrame, F
from spark_jobs.text.hash_sample import smallest_hashes


class TemplateLinesConfig(ConfigModel):
    """Which lines are a template's."""

    min_documents: int = Field(10, ge=2, description="documents of the sample that share a line of a template")
    min_characters: int = Field(
        8,
        ge=1,
        description="shorter lines are none: all code shares `else:` and `}`; white space at the ends is left out",
    )
    sample_bytes: int = Field(1 << 30, ge=1, description="bytes of UTF-8 that lines are counted in, whole documents")
    max_lines: int = Field(
        1_000_000,
        ge=1,
        le=20_000_000,
        description="most lines kept, those of most documents; a worker and the driver hold 8 bytes each",
    )


TEMPLATE_LINES = Table(
    name="template_lines",
    comment="One row per line that many documents of the dataset share.",
    columns=(
        Column("line_hash!", "long", "the line without white space at its ends"),
        Column("document_count!", "long", "documents of the sample that have it"),
        Column("example!", "string", "its first 200 characters, to be read by people"),
    ),
    key=("line_hash",),
    partition=("increment",),
    sort=("line_hash",),
    checks=(Check("shared", "document_count >= 2", "a line of a template is in several documents"),),
    sampled=("example",),
)


@step(version="2", scope=Scope.FROZEN, tables=(TEMPLATE_LINES,))
def template_lines(texts: DataFrame, config: TemplateLinesConfig) -> Output:
    """Count the lines shared by documents of a sample; it is read twice, as only kept lines are spelled."""
    rows = texts.select(F.xxhash64("doc_id").alias("hash"), "content")
    sample = smallest_hashes(rows, config.sample_bytes).select("content")
    count = functools.partial(_counted, min_characters=config.min_characters)
    counted = sample.mapInArrow(count, "line_hash bigint, document_count bigint")
    shared = (
        counted.groupBy("line_hash")
        .agg(F.sum("document_count").alias("document_count"))
        .where(F.col("document_count") >= config.min_documents)
    )
    shared = persist(shared)
    kept = shared.where(F.col("document_count") >= _least_count(shared, config))
    spell = functools.partial(_spelled, templates=hashes_of(kept))
    examples = sample.mapInArrow(spell, "line_hash bigint, example string").groupBy("line_hash")
    rows = kept.join(examples.agg(F.min("example").alias("example")), "line_hash").repartition(1)
    return Output({TEMPLATE_LINES.name: rows}, persisted=(shared,))


def hashes_of(lines: DataFrame) -> Int64Array:
    """(L,) hashes of rows of `template_lines`, ascending."""
    return np.sort(lines.select("line_hash").toArrow()["line_hash"].to_numpy())


@scorer(
    name="templates",
    version="2",
    columns=(
        Column("template_fraction", "double", "characters in lines of `template_lines`, of characters in lines"),
        Column(
            "signal_density",
            "double",
            "characters outside those, lines that repeat an earlier one, list lines, table lines and links, of "
            "characters in lines; both null for white space alone",
        ),
    ),
    fractions=("template_fraction", "signal_density"),
    frozen=template_lines,
    prepare=hashes_of,
)
def templates(content: pa.Array, lines: Int64Array) -> dict[str, pa.Array]:
    """How much of a text is lines shared by many documents, and how much running text of its own."""
    from spark_jobs.filters.heuristics.template_kernel import score_templates

    return score_templates(content, lines)


def _least_count(shared: DataFrame, config: TemplateLinesConfig) -> int:
    """The least document count reached by no more than `max_lines` lines."""
    lines_by_count = (
        shared.groupBy("document_count").agg(F.count("*").alias("lines")).orderBy("document_count").toArrow()
    )
    counts, lines = (lines_by_count[name].to_numpy() for name in ("document_count", "lines"))
    fits = counts[np.cumsum(lines[::-1])[::-1] <= config.max_lines]
    return int(fits[0]) if len(fits) else int(counts.max(initial=0)) + 1


def _counted(batches: Iterable[pa.RecordBatch], min_characters: int) -> Iterator[pa.RecordBatch]:
    """Lines of batches of texts, with their documents."""
    from spark_jobs.filters.heuristics.template_kernel import count_lines

    for batch in batches:
        yield from count_lines(batch.column(0), min_characters).to_batches()


def _spelled(batches: Iterable[pa.RecordBatch], templates: Int64Array) -> Iterator[pa.RecordBatch]:
    """Lines of the table in batches of texts, spelled."""
    from spark_jobs.filters.heuristics.template_kernel import find_examples

    for batch in batches:
        yield from find_examples(batch.column(0), templates).to_batches()
