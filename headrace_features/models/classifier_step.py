"""The step `classifier`: train a classifier on a bounded sample of labelled texts, and evaluate it.

Labels come from a pair of datasets (all texts of one are `reference`, those of the other `raw`) or a table with a label
for each text. The sample is the texts with the smallest hashes of their ids (`hash_sample`), of a pair as many bytes of
either label; texts are cut to the part read by a model. One task sorts the sample and trains, so memory grows with
`sample_bytes` and not with the datasets. Another increment may bring other texts into the sample, and so another model;
datasets are scored by their named version, kept in the registry.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from pydantic import Field

from headrace_features.models.classifier_training import TrainingConfig
from headrace_features.models.model_file import SHA256_CHECK, SHA256_COLUMN
from spark_jobs.exceptions import ConfigError, did_you_mean
from spark_jobs.lake.declare.pictures import new_axes, png
from spark_jobs.lake.declare.step import Output, Plot, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.engine.arrangement import grouped, persist
from spark_jobs.spark_sql import Column as SparkColumn
from spark_jobs.spark_sql import DataFrame, F
from spark_jobs.text.hash_sample import smallest_hashes

if TYPE_CHECKING:
    import pyarrow as pa

RAW, REFERENCE = "raw", "reference"
LOW, HIGH = "low", "high"
_CURVE: Final = "list<struct<threshold!: double, precision!: double, recall!: double>!>"
_CALIBRATION: Final = "list<struct<probability!: double, share!: double, test_count!: long>!>"
_MEASURES: Final = ("precision", "recall", "auc", "average_precision", "calibration_error")


class ClassifierConfig(TrainingConfig):
    """What a model is trained on, how, and how good it must be."""

    label_column: str = Field(
        "label",
        description="of a labelled table: its column of labels, or documents.COLUMN or metadata.KEY of its documents; "
        "texts without a label are left out",
    )
    high_from: float | None = Field(
        None,
        description="where labels are numbers, as the scores of a judge: those from here on are the label `high`, "
        "lower ones `low`; without it each number is a label of its own",
    )
    sample_bytes: int = Field(
        32 << 20,
        ge=1,
        le=1 << 30,
        description="most bytes of text to train and test on; of a pair, half each",
    )
    min_auc: float | None = Field(
        None, ge=0, le=1, description="least area under the ROC curve of every label for the model to be published"
    )


def _draw_curves(table: pa.Table) -> bytes:
    """Precision over recall of each label, a PNG below 40 KB."""
    axes = new_axes(6, 4)
    for row in sorted(table.to_pylist(), key=lambda row: str(row["label"])):
        if row["curve"]:
            area = f"{row['label']}: {row['average_precision']:.3f}"
            axes.plot([p["recall"] for p in row["curve"]], [p["precision"] for p in row["curve"]], label=area)
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02))
    if axes.lines:
        axes.legend(title="average precision", loc="lower left")
    return png(axes)


CLASSIFIER = Table(
    name="classifier",
    comment="one row: the model, as the bytes of its file",
    columns=(
        SHA256_COLUMN,
        Column("labels!", "list<string!>", "its labels, in order"),
        Column("train_count!", "long", "texts that it was trained on"),
        Column("test_count!", "long", "texts, held back by the hash of their content, that it was evaluated on"),
        Column("accuracy!", "double", "share of these whose most probable label is theirs"),
        Column("file!", "binary", "the file, which `headrace_features.models.classifier` reads"),
    ),
    key=("sha256",),
    checks=(SHA256_CHECK,),
    sampled=("file",),
)

EVALUATION = Table(
    name="evaluation",
    comment="One row per label: how well the model tells it from the others, on texts that were held back.",
    columns=(
        Column("sha256!", "string", "SHA-256 of the model's file, its identity"),
        Column("label!", "string", "the label"),
        Column("test_count!", "long", "held-back texts with the label"),
        Column("precision", "double", "of texts where the model prefers the label, share with it; null without any"),
        Column("recall", "double", "of texts with the label, share where the model prefers it; null without any"),
        Column("auc", "double", "area under the ROC curve; null where all or no texts held back have the label"),
        Column("average_precision", "double", "area under the curve of precision and recall; null likewise"),
        Column("calibration_error!", "double", "mean distance of probability and share, by tenth of probability"),
        Column("curve!", _CURVE, "up to 101 points of the curve of precision and recall"),
        Column("calibration!", _CALIBRATION, "mean probability and share of the label, by tenth of probability"),
        Column("min_auc", "double", "least area under the ROC curve that was asked for; null for none"),
    ),
    key=("sha256", "label"),
    checks=(
        *(
            Check(f"{one}_in_bounds", f"coalesce({one}, 0) between 0 and 1", f"{one} is a fraction")
            for one in _MEASURES
        ),
        Check(
            "auc_is_high_enough",
            "coalesce(auc, 0) >= coalesce(min_auc, 0)",
            "every label is told from the others as well as min_auc asks; label more texts, or lower it",
        ),
    ),
)


@step(
    version="1",
    scope=Scope.WHOLE,
    tables=(CLASSIFIER, EVALUATION),
    plot=Plot(
        "Precision and recall of texts held back",
        ("label", "average_precision", "curve"),
        _draw_curves,
        EVALUATION.name,
    ),
)
def classifier(
    config: ClassifierConfig,
    reference: DataFrame | None = None,
    raw: DataFrame | None = None,
    labelled: DataFrame | None = None,
    documents: DataFrame | None = None,
) -> Output:
    """Train a classifier on labelled texts, or on two datasets; one row is the model.

    The side table has its evaluation on held-out texts.

    Args:
        config: of the training.
        reference: shard, doc_id and content of texts labelled `reference`.
        raw: the same columns of texts labelled `raw`.
        labelled: doc_id, texts and labels, in place of these two.
        documents: documents of the dataset of `labelled`, if `label_column` is one of theirs.
    """
    if reference is not None and raw is not None:
        parts = [
            _sampled(frame, F.col(config.text_column), F.lit(label), config, config.sample_bytes // 2)
            for label, frame in ((RAW, raw), (REFERENCE, reference))
        ]
        sample = parts[0].unionByName(parts[1])
        budgets = dict.fromkeys((RAW, REFERENCE), config.sample_bytes // 2)
    elif labelled is not None:
        frame, label = _labels(labelled, documents, config)
        sample = _sampled(frame, F.col(config.text_column), label, config, config.sample_bytes)
        sample, budgets = sample.withColumn("part", F.lit("")), {"": config.sample_bytes}
    else:
        raise ConfigError("classifier: nothing to train on; bind reference and raw, or labelled")
    ordered = grouped(sample, [], ["part", "hash", "doc_id"]).select("part", "label", "content")
    train_one = functools.partial(_train, config=config, budgets=budgets)
    trained = persist(ordered.map(train_one, _schema()).to_frame())
    evaluation = trained.select("sha256", F.explode("evaluation").alias("one")).select(
        "sha256", "one.*", F.lit(config.min_auc).cast("double").alias("min_auc")
    )
    models = trained.select(*(column.name for column in CLASSIFIER.columns))
    return Output({CLASSIFIER.name: models, EVALUATION.name: evaluation}, persisted=(trained,))


def _labels(
    labelled: DataFrame, documents: DataFrame | None, config: ClassifierConfig
) -> tuple[DataFrame, SparkColumn]:
    """The rows of a labelled table with a label, and its column."""
    table, point, name = config.label_column.partition(".")
    if not point:
        _require_column(labelled, config.label_column, "the table")
        return _graded(labelled, F.col(table), config)
    if documents is None or table not in ("documents", "metadata"):
        raise ConfigError(
            f"classifier: label_column {config.label_column}: write a column of the table, documents.COLUMN or "
            "metadata.KEY; the last two need a table of a dataset"
        )
    if table == "documents":
        _require_column(documents, name, "documents")
    label = F.col("metadata").getItem(name) if table == "metadata" else F.col(name)
    of_documents = documents.select("shard", "doc_id", label.cast("string").alias("label")).where("label is not null")
    return _graded(labelled.drop("label").join(of_documents, ["shard", "doc_id"]), F.col("label"), config)


def _graded(rows: DataFrame, label: SparkColumn, config: ClassifierConfig) -> tuple[DataFrame, SparkColumn]:
    """The rows with a label, and its column: as it is, or with `high_from` `low` and `high`."""
    if config.high_from is None:
        return rows.where(label.isNotNull()), label.cast("string")
    is_high = label.cast("double") >= config.high_from
    return rows.where(is_high.isNotNull()), F.when(is_high, HIGH).otherwise(LOW)


def _sampled(
    frame: DataFrame, text: SparkColumn, label: SparkColumn, config: ClassifierConfig, sample_bytes: int
) -> DataFrame:
    """Rows that may be in the sample: part, label, hash, doc_id and the beginning of the text."""
    _require_column(frame, config.text_column, "the table")
    _require_column(frame, "doc_id", "the table")
    rows = frame.select(
        label.alias("part"),
        label.alias("label"),
        F.xxhash64("doc_id").alias("hash"),
        "doc_id",
        F.substring(text, 1, config.features.max_text_bytes).alias("content"),
    )
    refusal = "classifier: no labelled document has any text to train on; check the datasets and label_column"
    return smallest_hashes(rows.where("content is not null"), sample_bytes, refusal)


def _require_column(frame: DataFrame, name: str, where: str) -> None:
    if name not in frame.columns:
        raise ConfigError(f"classifier: {where} has no column {name!r}{did_you_mean(name, frame.columns)}")


def _train(
    batches: Iterable[pa.RecordBatch], config: ClassifierConfig, budgets: Mapping[str, int]
) -> Iterator[pa.RecordBatch]:
    """Train on the texts of one task, in their order; of each part as many as fit its budget of bytes."""
    import pyarrow as pa

    from headrace_features.models.classifier_training import train

    table = _cut(batches, budgets).rename_columns([config.label_column, "content"])
    model, evaluation = train(table, config.model_copy(update={"text_column": "content"}))
    row = {
        "sha256": model.sha256,
        "labels": list(model.labels),
        "train_count": evaluation.train_count,
        "test_count": evaluation.test_count,
        "accuracy": evaluation.accuracy,
        "file": model.to_bytes(),
        "evaluation": [asdict(facts) for facts in evaluation.labels],
    }
    yield pa.RecordBatch.from_pylist([row], schema=_schema())


def _schema() -> pa.Schema:
    """Schema of the one row of `_train`: a model with its evaluation."""
    import pyarrow as pa

    double, long = pa.float64(), pa.int64()
    curve = pa.struct([("threshold", double), ("precision", double), ("recall", double)])
    calibration = pa.struct([("probability", double), ("share", double), ("test_count", long)])
    measures = [(name, double) for name in _MEASURES]
    lists = [("curve", pa.list_(curve)), ("calibration", pa.list_(calibration))]
    label = pa.struct([("label", pa.string()), ("test_count", long), *measures, *lists])
    counts = [("train_count", long), ("test_count", long), ("accuracy", double)]
    about = [("sha256", pa.string()), ("labels", pa.list_(pa.string())), *counts]
    return pa.schema([*about, ("file", pa.binary()), ("evaluation", pa.list_(label))])


def _cut(batches: Iterable[pa.RecordBatch], budgets: Mapping[str, int]) -> pa.Table:
    """Label and content of the first texts of each part, as many as fit its budget, but at least one."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    used = dict.fromkeys(budgets, 0)
    wanted = pa.schema([("label", pa.string()), ("content", pa.string())])
    kept = [wanted.empty_table()]
    for batch in batches:
        parts = batch.column("part").to_numpy(zero_copy_only=False)
        sizes = pc.binary_length(batch.column("content")).to_numpy()
        fits = np.zeros(len(sizes), dtype=bool)
        for part in budgets:
            in_part = np.flatnonzero(parts == part)
            reached = used[part] + np.cumsum(sizes[in_part])
            fits[in_part] = (reached <= budgets[part]) | (reached == sizes[in_part])
            used[part] = int(reached[-1]) if len(in_part) else used[part]
        rows = pa.Table.from_batches([batch]).select(wanted.names).cast(wanted)
        kept.append(rows.filter(pa.array(fits)))
    return pa.concat_tables(kept)
