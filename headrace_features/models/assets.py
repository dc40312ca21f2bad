"""Make the assets of a model trained on tables of the lake: a classifier with its evaluation, or n-grams.

The weighted sum of a dataset's signals is made here too.

A model is trained when somebody runs it, never by the daemon: datasets name the version that they are scored by, so a
new one changes nothing until they name it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

from blender_service.auth.visibility import PUBLIC, Visibility
from dagster_project.exceptions import DefinitionError
from dagster_project.metadata import Samples
from dagster_project.run_config import bind_config
from dagster_project.table_asset import Link, Presentation, Upkeep, step_asset
from headrace_features.models.classifier_step import classifier
from headrace_features.models.ngram_step import ngrams
from headrace_features.models.quality import QualityConfig, check_components, quality_step
from headrace_features.models.registered import is_unrecorded, record_trained
from spark_jobs.filters.policy import Columns
from spark_jobs.lake.plan.binding import Source
from spark_jobs.lake.run.materialize import Lake

_FORM = (
    "write {reference: [DATASET, ..], raw: [DATASET, ..]}, {table: NAMESPACE.TABLE, label_column: ..} or "
    "{ngrams: [DATASET, ..]}"
)


@dataclass(frozen=True)
class ModelDeclaration:
    """A model as a user declares it.

    Attributes:
        name: its namespace, and its name in the registry.
        train: `{reference: [dataset], raw: [dataset], ..}`, or `{table: .., label_column: .., ..}`, with further fields
            of `ClassifierConfig`; or `{ngrams: [dataset], ..}` with those of `NgramsConfig`, for perplexity.
        owners: in Dagster's form, e.g. `team:data`.
        visibility: who may see its rows; nobody who may not see those of what it is trained on.
    """

    name: str
    train: Mapping[str, Any]
    owners: tuple[str, ...] = ()
    visibility: Visibility = PUBLIC


def model_assets(declared: ModelDeclaration) -> list[dg.AssetsDefinition]:
    """The assets of a model, `NAME.classifier` and `NAME.evaluation` or `NAME.ngrams`, and its entry in the registry.

    Raises:
        DefinitionError: a value cannot be used; the message names it.
    """
    name = declared.name
    config = dict(declared.train)
    trained = ngrams if "ngrams" in config else classifier
    inputs = {"texts": _texts(name, "ngrams", config.pop("ngrams"))} if trained is ngrams else _inputs(name, config)
    return [
        step_asset(
            trained,
            name,
            inputs,
            bind_config(trained.config, f"model {name}: train", config),
            presentation=Presentation(
                owners=declared.owners,
                domain="filters",
                samples=Samples.IDS,
                automation=None,
                visibility=declared.visibility,
            ),
            upkeep=Upkeep(
                published=functools.partial(_enter, name=name, table=trained.table.name),
                pending=functools.partial(is_unrecorded, name=name, table=trained.table.name),
            ),
        )
    ]


def _inputs(name: str, config: dict[str, Any]) -> dict[str, Source]:
    """What the step reads; taken out of the config.

    Raises:
        DefinitionError: it is neither a pair of datasets nor a table.
    """
    pair = {label: config.pop(label) for label in ("reference", "raw") if label in config}
    table = config.pop("table", None)
    if bool(pair) == bool(table) or (pair and len(pair) < 2):
        parts = " and ".join([*pair, *(["table"] if table else [])]) or "nothing to train on"
        raise DefinitionError(f"model {name}: train has {parts}; {_FORM}")
    if table:
        dataset, point, _ = str(table).partition(".")
        if not point:
            raise DefinitionError(f"model {name}: train: table {table!r} is no NAMESPACE.TABLE; write {table}.texts")
        in_documents = str(config.get("label_column", "")).startswith(("documents.", "metadata."))
        return {"labelled": str(table), **({"documents": f"{dataset}.documents"} if in_documents else {})}
    inputs: dict[str, Source] = {}
    for label, datasets in pair.items():
        inputs[label] = _texts(name, label, datasets)
    if shared := set(inputs["reference"]) & set(inputs["raw"]):
        both = min(shared).removesuffix(".texts")
        raise DefinitionError(f"model {name}: train: {both} is both reference and raw; take it out of one")
    return inputs


def _texts(name: str, field: str, datasets: Any) -> tuple[str, ...]:
    """The texts of the datasets named by a field.

    Raises:
        DefinitionError: it names none.
    """
    listed = [datasets] if isinstance(datasets, str) else datasets
    if not isinstance(listed, list | tuple) or not listed:
        raise DefinitionError(f"model {name}: train: {field} is {datasets!r}; {_FORM}")
    return tuple(f"{dataset}.texts" for dataset in listed)


def _enter(lake: Lake, name: str, table: str) -> None:
    record_trained(lake.catalogue, name, table)


def weighing(dataset: str, given: Mapping[str, Any], measured: Columns) -> Link:
    """The step of the weighted sum of a dataset.

    Args:
        dataset: its name.
        given: weights and ranges.
        measured: summable columns, by table.

    Raises:
        ConfigError: a component is not measured, or is no number.
    """
    config = bind_config(QualityConfig, f"{dataset}/quality", given)
    check_components(config, measured)
    inputs: dict[str, Source] = {table: f"{dataset}.{table}" for table in ("signals", *config.tables)}
    return quality_step(config.tables), inputs, given, "filters"
