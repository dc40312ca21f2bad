"""Make the assets of a dataset: from its source to verdicts and dependencies, as tables in its namespace."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from blender_service.auth.visibility import PUBLIC, Visibility
from dagster_project.exceptions import DefinitionError
from dagster_project.metadata import Samples
from dagster_project.run_config import bind_config
from dagster_project.table_asset import Presentation, Upkeep, step_asset
from spark_jobs.code.dependencies import dependencies
from spark_jobs.exceptions import SparkJobsError, did_you_mean
from spark_jobs.filters.policy import DEFAULT, LANGUAGES, Policy, check_signals, resolve, signal_columns
from spark_jobs.filters.registry import policy_finder, record_policy
from spark_jobs.filters.scorer import Scorer
from spark_jobs.filters.verdicts import verdicts_step
from spark_jobs.lake.declare.step import Step
from spark_jobs.lake.run.binding import Source
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.lake.session.settings import load_settings
from spark_jobs.registry import find_scorer
from spark_jobs.sources.documents import documents
from spark_jobs.text.signals import signals
from spark_jobs.text.texts import texts

Link = tuple[Step, Mapping[str, Source], Mapping[str, Any], str]  # a step, its inputs, its config, its domain
CLOCK = "arrivals"  # table whose increments every step of the dataset follows


@dataclass(frozen=True)
class DatasetDeclaration:
    """A dataset as a user declares it.

    Attributes:
        name: its namespace.
        source: where its documents come from (`spark_jobs.sources.source_config`), as plain values.
        shards: parts that joins and packing plans work on, a power of two; 1 for small data.
        max_document_bytes: larger documents are refused, with a row in `arrivals`.
        allow_empty: whether a source without files means that all were deleted; else it is an error.
        scorers: what is measured of texts beside `signals`: config by name, or by `package.module:function`.
        policy: what documents are judged by: a name, `name@version`, a hash, a path, or the policy itself.
        variants: further policies by name, each with verdicts of its own, `verdicts_NAME`.
        steps: config of `texts`, `signals`, `verdicts` and `dependencies`, by step.
        samples: which sample rows the UI shows.
        owners: in Dagster's form, e.g. `team:data`.
        visibility: who may see its rows.
    """

    name: str
    source: Mapping[str, Any]
    shards: int = 1
    max_document_bytes: int = 100_000_000
    allow_empty: bool = False
    scorers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    policy: str | Mapping[str, Any] = DEFAULT
    variants: Mapping[str, str | Mapping[str, Any]] = field(default_factory=dict)
    steps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    samples: Samples = Samples.IDS
    owners: tuple[str, ...] = ()
    visibility: Visibility = PUBLIC


def dataset_assets(declared: DatasetDeclaration) -> list[dg.AssetsDefinition]:
    """The assets of a dataset: arrivals, documents, repositories, texts, signals and scores, verdicts, dependencies.

    Raises:
        DefinitionError: a value cannot be used; the message names it.
    """
    name = declared.name
    intake = {
        "dataset": name,
        "shards": declared.shards,
        "max_document_bytes": declared.max_document_bytes,
        "allow_empty": declared.allow_empty,
        "source": dict(declared.source),
    }
    try:
        scored = [(find_scorer(reference), config) for reference, config in declared.scorers.items()]
        scorers = [scorer for scorer, _ in scored]
        policies = {variant: _policy(declared, variant, given, scorers) for variant, given in _policies(declared)}
    except SparkJobsError as error:
        raise DefinitionError(f"dataset {name}: {error}") from error
    chain: list[Link] = [
        (documents, {}, intake, "sources"),
        (texts, {"documents": f"{name}.documents"}, {}, "text"),
        (signals, {"texts": f"{name}.texts"}, {}, "text"),
        *(link for scorer, config in scored for link in _scoring(name, scorer, config)),
        *(_judging(declared, variant, policy, scorers) for variant, policy in policies.items()),
        (dependencies, {"documents": f"{name}.documents", "texts": f"{name}.texts"}, {}, "code"),
    ]
    unknown = set(declared.steps) - {made.name for made, *_ in chain}
    if unknown:
        known = [made.name for made, *_ in chain if made is not documents]
        first = min(unknown)
        raise DefinitionError(f"dataset {name}: steps: there is no step {first!r}{did_you_mean(first, known)}")
    if "policy" in declared.steps.get("verdicts", {}):
        raise DefinitionError(f"dataset {name}: steps: verdicts: policy stands beside steps; write policy: there")
    entered = {f"verdicts_{variant}" if variant else "verdicts": policy for variant, policy in policies.items()}
    return [
        step_asset(
            made,
            name,
            inputs,
            bind_config(made.config, f"{name}/{made.name}", {**config, **declared.steps.get(made.name, {})}),
            clock=f"{name}.{CLOCK}",
            presentation=Presentation(
                owners=declared.owners, domain=domain, samples=declared.samples, visibility=declared.visibility
            ),
            upkeep=Upkeep(functools.partial(_enter, policy=entered[made.name])) if made.name in entered else None,
        )
        for made, inputs, config, domain in chain
    ]


def _policies(declared: DatasetDeclaration) -> Iterable[tuple[str, str | Mapping[str, Any]]]:
    """The policies by variant, that of the table `verdicts` under the empty name."""
    return [("", declared.policy), *declared.variants.items()]


def _policy(
    declared: DatasetDeclaration, variant: str, given: str | Mapping[str, Any], scorers: Iterable[Scorer]
) -> Policy:
    """A policy, resolved and checked against what the dataset measures.

    Raises:
        ConfigError: it cannot be used; the message says why.
    """
    find = policy_finder(lambda: open_catalogue(load_settings()))
    found = resolve(given, find, default_name=f"{declared.name}_{variant}" if variant else declared.name)
    measured = {one.name: {column.name: column.type for column in one.table.columns} for one in scorers}
    check_signals(found, signal_columns(measured))
    return found


def _scoring(dataset: str, scorer: Scorer, config: Mapping[str, Any]) -> Iterable[Link]:
    """The step of a scorer, after that of the frozen table that it reads, if there is one."""
    texts: dict[str, Source] = {"texts": f"{dataset}.texts"}
    if scorer.frozen is None:
        return [(scorer, texts, config, "filters")]
    table = scorer.frozen.table.name
    return [(scorer.frozen, texts, config, "filters"), (scorer, {**texts, table: f"{dataset}.{table}"}, {}, "filters")]


def _judging(declared: DatasetDeclaration, variant: str, policy: Policy, scorers: Iterable[Scorer]) -> Link:
    """The step of a policy, with its inputs and config."""
    read = [
        one.name for one in scorers if one.name in policy.tables or (one.name == LANGUAGES and policy.asks_language)
    ]
    inputs: dict[str, Source] = {one: f"{declared.name}.{one}" for one in ("signals", "documents", *read)}
    common = declared.steps.get("verdicts", {}) if variant else {}
    return verdicts_step(read, variant), inputs, {**common, "policy": policy}, "filters"


def _enter(lake: Lake, policy: Policy) -> None:
    record_policy(lake.catalogue, policy)
