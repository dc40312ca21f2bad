"""The scorer `model_scores`: what models of the registry say of each text.

    scorers: {model_scores: {models: {quality@3f2a90c41d07: [reference], lid@1: []}}}

The config names the labels with a kept probability, so that the columns are known without opening the registry:
`quality_label` and `quality_confidence` (the most probable label, and how probable), `quality_reference`, `lid_label`
and `lid_confidence`. A policy then says `model_scores.quality_reference below 0.3`. Model and version mean the same
model for good, so nothing but another config has texts scored again. Of an n-gram model or a causal one one asks for
`perplexity`: `{wiki@81c0..: [perplexity]}` gives the column `wiki_perplexity` alone.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field, field_validator

from headrace_features.models.registered import PERPLEXITY
from spark_jobs.exceptions import InputError, did_you_mean
from spark_jobs.filters.scorer import Scorer, scorer
from spark_jobs.lake.declare.step import ConfigModel
from spark_jobs.lake.declare.tables import Column

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace_features.models.registered import ModelFile

_REFERENCE: Final = re.compile(r"([a-z][a-z0-9_]{0,40})@([A-Za-z0-9._-]+)")
Wanted = tuple[tuple[str, "ModelFile", tuple[str, ...]], ...]
"""Name, file and labels of each model."""


class ModelScoresConfig(ConfigModel):
    """Which models score texts, and of which labels the probability is kept."""

    models: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        validate_default=True,
        description="labels by model, as {quality@3f2a90c41d07: [reference]}; [] keeps the most probable label alone; "
        "of an n-gram or a causal model [perplexity]",
    )

    @field_validator("models", mode="before")
    @classmethod
    def _named(cls, models: Any) -> Any:
        """Refuse what names no model, or two columns alike.

        Raises:
            ValueError: says what to write.
        """
        form = "write {NAME@VERSION: [LABEL, ..]}; headrace model show shows the models"
        if not isinstance(models, dict) or not models:
            raise ValueError(f"it is {models!r}; {form}")
        columns: set[str] = set()
        for reference, labels in models.items():
            if not _REFERENCE.fullmatch(str(reference)):
                raise ValueError(f"{reference!r} names no model and version; {form}")
            for column in (name for name, _ in columns_of(str(reference), labels or ())):
                if column in columns or column.endswith("_"):
                    raise ValueError(
                        f"{reference}: the column {column} comes twice, or its label has no Latin letter or digit; "
                        "leave the label out and judge by the column ending in _label"
                    )
                columns.add(column)
        return {reference: models[reference] or () for reference in sorted(models)}


def columns_of(reference: str, labels: Any) -> list[tuple[str, Column]]:
    """Columns of a model with their names: the most probable label, its probability, and those of some labels."""
    model = reference.partition("@")[0]
    if list(labels) == [PERPLEXITY]:
        about = f"how badly {reference} predicts a word (or its token) of the text; null where it has none"
        return [(f"{model}_{PERPLEXITY}", Column(f"{model}_{PERPLEXITY}", "double", about))]
    named = [
        Column(f"{model}_label", "string", f"most probable label by {reference}; null where it knows no feature"),
        Column(f"{model}_confidence", "double", "its probability"),
    ]
    named += [
        Column(f"{model}_{_word(str(label))}", "double", f"probability of {label!r} by {reference}") for label in labels
    ]
    return [(column.name, column) for column in named]


def located(config: ModelScoresConfig) -> Wanted:
    """Where workers find the models; they are read there, once per process, and never on the driver.

    Raises:
        InputError: a model is not in the registry, or has no such label.
    """
    from headrace.tables.settings import load_settings
    from headrace_features.models.registered import find_models
    from spark_jobs.lake.session.catalogue import open_catalogue

    listed = []
    models = find_models(open_catalogue(load_settings()), config.models)
    for (reference, labels), (facts, file) in zip(config.models.items(), models, strict=True):
        if facts.format == "encoder":
            mend = f"scorers: {{vectors: {{model: {reference}}}}}"
            raise InputError(f"model_scores: {reference} is an encoder, it scores nothing; write {mend}")
        if facts.format == "names":
            mend = f"scorers: {{personal_data: {{names: {{model: {reference}}}}}}}"
            raise InputError(f"model_scores: {reference} finds names, it scores nothing; write {mend}")
        for label in labels:
            if label not in facts.labels:
                near = did_you_mean(label, facts.labels)
                raise InputError(f"model_scores: model {reference} has no label {label!r}{near}")
        if facts.labels == (PERPLEXITY,) and not labels:
            raise InputError(f"model_scores: model {reference} has no labels; write {reference}: [{PERPLEXITY}]")
        listed.append((reference.partition("@")[0], file, labels))
    return tuple(listed)


def score(content: pa.Array, wanted: Wanted) -> dict[str, pa.Array]:
    """What models say of texts: the most probable label, its probability, and that of chosen labels."""
    from headrace_features.models.classifier import Classifier
    from headrace_features.models.registered import load_model
    from spark_jobs.fasttext.model import FastTextModel

    scores: dict[str, pa.Array] = {}
    for name, file, labels in wanted:
        model: Any = load_model(file)
        if not isinstance(model, Classifier | FastTextModel):
            scores[f"{name}_{PERPLEXITY}"] = model.score(content)[PERPLEXITY]
            continue
        best, confidence, probabilities = model.judge(content, labels)
        scores |= {f"{name}_label": best, f"{name}_confidence": confidence}
        scores |= {f"{name}_{_word(label)}": values for label, values in probabilities.items()}
    return scores


def with_columns(config: ModelScoresConfig) -> Scorer:
    """The scorer with the columns requested by a config."""
    columns = [column for reference, labels in config.models.items() for _, column in columns_of(reference, labels)]
    return scorer(
        name="model_scores",
        version="3",
        columns=columns,
        config=ModelScoresConfig,
        prepare=located,
        fractions=[
            column.name for column in columns if column.type == "double" and not column.name.endswith(f"_{PERPLEXITY}")
        ],
    )(score)


def _word(label: str) -> str:
    """A label as part of a column's name."""
    return re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_")


model_scores = dataclasses.replace(with_columns(ModelScoresConfig.model_construct()), of_config=with_columns)
