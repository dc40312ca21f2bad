"""Weights of `quality` fitted on labelled documents: logistic regression over signals that have been computed.

Each signal is brought to 0..1 between its 1st and its 99th percentile, turned round where less of it is better, so that
all weights are positive, their sum is 1, and so is the best score. What is fitted are numbers for a declaration: people
read them, and change them, before anything is judged by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_project.exceptions import CommandError
from dagster_project.inspect.corpora.rule_inputs import read_documents
from spark_jobs.exceptions import did_you_mean
from spark_jobs.filters.policy import PRESENT, Policy, Rule

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from spark_jobs.arrays import Float64Array

_HELD_BACK: Final = ("0", "1", "2")  # first hex digits of doc_ids: 3 of 16 documents
_PERCENTILES: Final = (0.01, 0.99)
_DIGITS: Final = 4


@dataclass(frozen=True)
class Fitted:
    """What a fit gives.

    Attributes:
        weights: by signal, positive, rounded; their sum is 1.
        ranges: by signal, the values that count as 0 and as 1.
        fitted: documents that were fitted on.
        held_back: others, by which `auc` was measured.
        left_out: documents without a label, or without a value of a signal.
        auc: area under the ROC curve of the rounded score.
    """

    weights: dict[str, float]
    ranges: dict[str, tuple[float, float]]
    fitted: int
    held_back: int
    left_out: int
    auc: float


def fit_weights(catalogue: Catalog, dataset: str, label: str, good: str, signals: Sequence[str]) -> Fitted:
    """Fit weights that tell the documents with one label from those with another.

    Args:
        catalogue: the lake's.
        dataset: whose signals have been computed.
        label: `metadata.KEY` or `documents.COLUMN`.
        good: the label of documents that should score high.
        signals: as rules name them.

    Raises:
        CommandError: a signal is no number or always the same, or there are too few labels of a kind.
        ConfigError: a signal is not there.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    signals = sorted(set(signals))
    names = [*signals, label]
    rules = tuple(Rule(rule=f"rule_{n}", signal=name, equals=PRESENT) for n, name in enumerate(names))
    found = read_documents(catalogue, dataset, [Policy(name="fit", version="1", rules=rules)])
    rows = pa.Table.from_batches([part.rows for part in found]).select(["doc_id", *names])
    for name in signals:
        kind = rows[name].type
        if not (pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise CommandError(f"signal {name} is {kind}; only numbers and booleans can be weighed")
    whole = rows.drop_null().sort_by("doc_id")
    values = np.column_stack([whole[name].cast(pa.float64()).to_numpy() for name in signals])
    labels = pc.cast(whole[label], pa.string())
    is_good = pc.equal(labels, good).to_numpy()
    is_test = pc.is_in(pc.utf8_slice_codeunits(whole["doc_id"], 0, 1), pa.array(_HELD_BACK)).to_numpy()
    for part, chosen in (("fit on", ~is_test), ("measure on", is_test)):
        if len(set(is_good[chosen])) < 2:
            known = [str(one) for one in pc.unique(labels).to_pylist()]
            near = did_you_mean(good, known) if good not in known else ""
            raise CommandError(
                f"dataset {dataset}: {part}: {int(is_good[chosen].sum())} of {int(chosen.sum())} documents have the "
                f"label {good!r} in {label}{near}; both kinds are needed"
            )
    bounds = np.quantile(values[~is_test], _PERCENTILES, axis=0)
    for name, low, high in zip(signals, *bounds, strict=True):
        if low == high:
            raise CommandError(f"signal {name} is {low} in nearly all documents; leave it out")
    regression = LogisticRegression(max_iter=1000).fit(_ranged(values[~is_test], bounds), is_good[~is_test])
    coefficients = regression.coef_[0]
    bounds = np.where(coefficients < 0, bounds[::-1], bounds)
    weights = np.round(np.abs(coefficients) / np.abs(coefficients).sum(), _DIGITS)
    bounds = np.array([[float(f"{one:.{_DIGITS}g}") for one in row] for row in bounds])
    score = _ranged(values[is_test], bounds) @ weights
    return Fitted(
        weights={name: float(weight) for name, weight in zip(signals, weights, strict=True)},
        ranges={name: (float(low), float(high)) for name, low, high in zip(signals, *bounds, strict=True)},
        fitted=int((~is_test).sum()),
        held_back=int(is_test.sum()),
        left_out=len(rows) - len(whole),
        auc=float(roc_auc_score(is_good[is_test], score)),
    )


def _ranged(values: Float64Array, bounds: Float64Array) -> Float64Array:
    """(D, S) values from 0 to 1 within (2, S) bounds, as the step `quality` has them."""
    shares: Float64Array = np.clip((values - bounds[0]) / (bounds[1] - bounds[0]), 0, 1)
    return shares
