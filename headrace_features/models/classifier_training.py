"""Train a classifier on a labelled table, and evaluate it on held-out texts.

The hash of a text decides whether it is in the test set: equal texts are on one side, in whatever order and how often
they come, and a text of the test set stays there when the table grows. Training takes rows in the order of their
hashes, so that the order of the table does not matter either.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from headrace_features.models.classifier import Classifier, FeaturesConfig, kernel_arguments
from spark_jobs.arrays import BoolArray, Float64Array, Int64Array
from spark_jobs.exceptions import ConfigError, InputError, did_you_mean
from spark_jobs.lake.declare.step import ConfigModel
from spark_jobs.text.text_columns import utf8_buffer

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_CURVE_POINTS = 101
_CALIBRATION_BINS = 10


class TrainingConfig(ConfigModel):
    """The columns of texts and labels, the held-out share, and the penalty on weights."""

    text_column: str = Field("content", description="name of the column of texts")
    label_column: str = Field("label", description="name of the column of labels; numbers are read as text")
    test_fraction: float = Field(0.2, gt=0, lt=1, description="share of texts, chosen by hash, that are held back")
    seed: int = Field(0, ge=0, description="seed of the choice of texts that are held back")
    inverse_penalty: float = Field(5.0, gt=0, description="scikit-learn's C: larger fits the training texts closer")
    balance_labels: bool = Field(False, description="weigh labels alike; probabilities are then no frequencies")
    min_texts: int = Field(5, ge=1, description="fewest texts with a feature; rarer features are left out")
    max_iterations: int = Field(1000, ge=1, description="most rounds of the solver L-BFGS")
    features: FeaturesConfig = FeaturesConfig()


@dataclass(frozen=True)
class LabelEvaluation:
    """How well a classifier separates one label from all others in the test set.

    Attributes:
        label: the label.
        test_count: test texts with it.
        precision: share of right texts among those for which it is the most probable label; None for none.
        recall: share of those texts among the ones that have it; None for none.
        auc: area under the ROC curve; None, as the next, where all or no test texts have the label.
        average_precision: area under the curve of precision and recall.
        curve: up to 101 points (threshold, precision, recall) of it.
        calibration: up to 10 points (mean probability, share with the label, texts), by tenth of probability.
        calibration_error: mean distance of the two, weighted by texts (expected calibration error).
    """

    label: str
    test_count: int
    precision: float | None
    recall: float | None
    auc: float | None
    average_precision: float | None
    curve: tuple[tuple[float, float, float], ...]
    calibration: tuple[tuple[float, float, int], ...]
    calibration_error: float


@dataclass(frozen=True)
class Evaluation:
    """A classifier's evaluation on held-out texts.

    Attributes:
        train_count: texts of its training.
        test_count: texts of its evaluation.
        accuracy: share of these with the right label as the most probable one.
        labels: evaluation of each label.
    """

    train_count: int
    test_count: int
    accuracy: float
    labels: tuple[LabelEvaluation, ...]


def train(table: pa.Table, config: TrainingConfig | None = None) -> tuple[Classifier, Evaluation]:
    """Train a classifier, and evaluate it on the held-back texts.

    Source: scikit-learn's LogisticRegression (L-BFGS, multinomial for three labels or more).

    Raises:
        ConfigError: a column is missing.
        InputError: a text or label is null, there is one label alone, or a label has no text on one side of the split.
    """
    from sklearn.linear_model import LogisticRegression

    config = config or TrainingConfig()
    content, labels = _columns(table, config)
    names, numbers = np.unique(labels, return_inverse=True)
    order, is_test = _split(content, numbers, config)
    train_rows, test_rows = order[~is_test], order[is_test]
    for number, name in enumerate(names):
        if not (numbers[train_rows] == number).any():
            raise InputError(
                f"classifier: label {str(name)!r} has {(numbers == number).sum()} texts, none to train on; "
                "label more, or set another seed"
            )
    counts = count_matrix(content.take(pa.array(train_rows)), config.features)
    in_texts = np.bincount(counts.indices, minlength=counts.shape[1])
    is_frequent = in_texts >= config.min_texts
    if not is_frequent.any():
        message = f"classifier: no feature is in {config.min_texts} of {counts.shape[0]} texts; lower min_texts"
        raise InputError(message)
    idf = np.where(is_frequent, np.log((1 + counts.shape[0]) / (1 + in_texts)) + 1, 0).astype(np.float32)
    regression = LogisticRegression(
        C=config.inverse_penalty,
        max_iter=config.max_iterations,
        class_weight="balanced" if config.balance_labels else None,
        random_state=config.seed,
    )
    regression.fit(weighted(counts, idf)[:, is_frequent], numbers[train_rows])
    table = np.zeros((len(idf), 1 + len(regression.coef_)), np.float32)
    table[:, 0] = idf
    table[is_frequent, 1:] = regression.coef_.T
    classifier = Classifier(tuple(names.tolist()), config.features, table, regression.intercept_.astype(np.float64))
    return classifier, evaluate(classifier, content.take(pa.array(test_rows)), numbers[test_rows], len(train_rows))


def count_matrix(content: pa.Array, features: FeaturesConfig) -> csr_matrix:
    """(D, 2^bits) count of each feature in each text, by the scoring kernel too."""
    from scipy.sparse import csr_matrix

    from headrace_features.models.classifier_kernel import count_texts

    starts, buckets, counts = count_texts(*kernel_arguments(content, features))
    matrix = csr_matrix((counts.astype(np.float64), buckets, starts), shape=(len(content), 1 << features.bits))
    matrix.sort_indices()
    return matrix


def weighted(counts: csr_matrix, idf: Any) -> csr_matrix:
    """(D, 2^bits) values (1 + ln count) * idf, each row scaled to length 1."""
    from sklearn.preprocessing import normalize

    values = counts.copy()
    values.data = (1 + np.log(values.data)) * idf[values.indices]
    return normalize(values, copy=False)


def evaluate(classifier: Classifier, content: pa.Array, numbers: Int64Array, train_count: int) -> Evaluation:
    """Compare a classifier's labels of held-out texts with their true labels.

    Args:
        classifier: to be evaluated.
        content: (D,) strings, none of them null.
        numbers: (D,) index of each text's true label in the classifier's labels.
        train_count: texts of its training.
    """
    scores = classifier.score(content)
    probabilities = np.column_stack([scores[label].fill_null(0).to_numpy() for label in classifier.labels])
    best = probabilities.argmax(axis=1)
    return Evaluation(
        train_count,
        len(content),
        float((best == numbers).mean()),
        tuple(
            _evaluate_label(label, numbers == number, best == number, probabilities[:, number])
            for number, label in enumerate(classifier.labels)
        ),
    )


def _evaluate_label(label: str, has: BoolArray, is_given: BoolArray, probability: Float64Array) -> LabelEvaluation:
    """Evaluate one label: `has` marks texts with the label, `is_given` those for which it is the most probable."""
    from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score

    right = int((has & is_given).sum())
    auc = area = None
    curve: tuple[tuple[float, float, float], ...] = ()
    if has.any() and not has.all():
        auc, area = float(roc_auc_score(has, probability)), float(average_precision_score(has, probability))
        precisions, recalls, thresholds = precision_recall_curve(has, probability)
        picked = np.unique(np.linspace(0, len(thresholds) - 1, _CURVE_POINTS).astype(np.int64))
        curve = tuple(
            zip(thresholds[picked].tolist(), precisions[picked].tolist(), recalls[picked].tolist(), strict=True)
        )
    tenth = np.minimum((probability * _CALIBRATION_BINS).astype(np.int64), _CALIBRATION_BINS - 1)
    calibration = tuple(
        (float(probability[tenth == k].mean()), float(has[tenth == k].mean()), int((tenth == k).sum()))
        for k in np.unique(tenth)
    )
    error = sum(abs(mean - share) * count for mean, share, count in calibration) / max(len(has), 1)
    return LabelEvaluation(
        label=label,
        test_count=int(has.sum()),
        precision=right / int(is_given.sum()) if is_given.any() else None,
        recall=right / int(has.sum()) if has.any() else None,
        auc=auc,
        average_precision=area,
        curve=curve,
        calibration=calibration,
        calibration_error=error,
    )


def _columns(table: pa.Table, config: TrainingConfig) -> tuple[pa.Array, Any]:
    """(D,) texts, and (D,) labels as strings, of a table."""
    for name in (config.text_column, config.label_column):
        if name not in table.column_names:
            raise ConfigError(f"classifier: the table has no column {name!r}{did_you_mean(name, table.column_names)}")
        missing = table[name].null_count
        if missing:
            raise InputError(
                f"classifier: {missing} of {len(table)} rows have no {name!r}; leave them out of the table"
            )
    content, labels = (table[name].combine_chunks() for name in (config.text_column, config.label_column))
    labels = np.asarray(pc.cast(labels, pa.string()).to_pylist(), dtype=str)
    names = np.unique(labels)
    if len(names) < 2:
        labels_there = f"the one label {str(names[0])!r}" if len(names) else "no row"
        raise InputError(
            f"classifier: column {config.label_column!r} has {labels_there}; two labels or more are needed"
        )
    return content.cast(pa.large_string()), labels


def _split(content: pa.Array, numbers: Int64Array, config: TrainingConfig) -> tuple[Int64Array, BoolArray]:
    """(D,) rows sorted by hash of the text, then by label, and (D,) whether each is in the test set."""
    offsets, data = utf8_buffer(content)
    key = config.seed.to_bytes(8, "little")
    hashes = np.array(
        [
            int.from_bytes(hashlib.blake2b(data[start:end], digest_size=8, key=key).digest(), "little")
            for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        ],
        dtype=np.uint64,
    )
    order = np.lexsort([numbers, hashes])
    is_test: BoolArray = hashes[order] < np.uint64(min(int(config.test_fraction * 2**64), 2**64 - 1))
    if not is_test.any():
        raise InputError(f"classifier: none of {len(content)} texts is left to evaluate on; label more texts")
    return order, is_test
