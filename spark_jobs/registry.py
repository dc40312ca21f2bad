"""All steps by name: the core's in the order data flows, then features'; a module is imported when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from pydantic import BaseModel

from spark_jobs.features import brought, missing
from spark_jobs.filters.scorer import Scorer
from spark_jobs.lake.declare.step import Step
from spark_jobs.plugins import attribute, load
from spark_jobs.selection.declared import Selection

_SCORERS: Mapping[str, str] = {  # the scorers that headrace brings (`spark_jobs.filters.scorer`), by name
    "heuristics": "spark_jobs.filters.heuristics.heuristics",
    "templates": "spark_jobs.filters.heuristics.templates",
    "languages": "spark_jobs.filters.languages.languages",
    "contamination": "spark_jobs.filters.contamination.decontaminated",
}
_SELECTIONS: Mapping[str, str] = {  # the selections that headrace brings (`spark_jobs.selection`), by name
    "shape": "spark_jobs.shape.selection:SHAPE",
    "passages": "spark_jobs.dedup.passages.selection:PASSAGES",
    "decontaminate": "spark_jobs.filters.contamination.selection:DECONTAMINATE",
}
_STEPS: Mapping[str, str] = {
    "documents": "spark_jobs.sources.documents",
    "texts": "spark_jobs.text.texts",
    "signals": "spark_jobs.text.signals",
    "template_lines": "spark_jobs.filters.heuristics.templates",
    **_SCORERS,
    "verdicts": "spark_jobs.filters.verdicts",
    "dependencies": "spark_jobs.code.dependencies",
    "increments": "spark_jobs.lake.plan.increments",
    "members": "spark_jobs.dedup.membership.members",
    "revisions": "spark_jobs.dedup.membership.revisions",
    "exact_duplicates": "spark_jobs.dedup.membership.exact_duplicates",
    "vocabulary": "spark_jobs.dedup.bags.vocabulary",
    "bags": "spark_jobs.dedup.bags.bags",
    "background": "spark_jobs.dedup.sketches.background",
    "signatures": "spark_jobs.dedup.sketches.signatures",
    "buckets": "spark_jobs.dedup.near.buckets",
    "pairs": "spark_jobs.dedup.near.pairs",
    "components": "spark_jobs.dedup.graph.components",
    "repository_bags": "spark_jobs.dedup.repository.bags",
    "repository_pairs": "spark_jobs.dedup.repository.pairs",
    "repository_containments": "spark_jobs.dedup.repository.containments",
    "repository_components": "spark_jobs.dedup.repository.components",
    "repository_removals": "spark_jobs.dedup.repository.removals",
    "removals": "spark_jobs.dedup.removal.removals",
    "thresholds": "spark_jobs.dedup.removal.thresholds",
    "distinct": "spark_jobs.dedup.removal.survivors",
    "survivors": "spark_jobs.dedup.removal.survivors",
    "shape_histogram": "spark_jobs.shape.shape",
    "shape": "spark_jobs.shape.shape",
    "anchors": "spark_jobs.dedup.passages.anchors",
    "passages": "spark_jobs.dedup.passages.passages",
    "trimmed": "spark_jobs.dedup.passages.trimmed",
    "decontaminated": "spark_jobs.filters.contamination.decontaminated",
    "ordered": "spark_jobs.code.ordered",
    "tokenizer": "spark_jobs.tokens.tokenizer",
    "tokens": "spark_jobs.tokens.tokens",
    "token_statistics": "spark_jobs.tokens.token_statistics",
    "packed": "spark_jobs.packing.packed",
}


def step_names() -> tuple[str, ...]:
    """Names of all steps, those of features behind those of the core."""
    return (*_STEPS, *brought("scorers"), *brought("steps"))


def config_model(name: str) -> type[BaseModel]:
    """The config model of a step.

    Raises:
        ConfigError: no step of this name.
    """
    if name == "packed":
        model: type[BaseModel] = importlib.import_module(_STEPS[name]).PackedConfig
        return model
    return declared_step(name).config


def find_step(name: str, config: BaseModel) -> Step:
    """A step by name, as its config makes it: `packed` for a dataset and window length, `model_scores` for its models.

    Raises:
        ConfigError: no step of this name.
    """
    if name == "packed":
        values = config.model_dump()
        of = {"classed": isinstance(values["plan"], dict)}
        packed: Step = importlib.import_module(_STEPS[name]).packed_step(
            values["dataset"], values["window_tokens"], **of
        )
        return packed
    declared = declared_step(name)
    return declared.configured(config) if isinstance(declared, Scorer) else declared


def declared_step(name: str) -> Step:
    """A step of the core or of a feature by name, as it is declared.

    Raises:
        ConfigError: there is none; the message names its feature, or the nearest.
    """
    if name in _STEPS:
        step: Step = attribute(f"{_STEPS[name]}:{name}")
        return step
    is_scorer = name in {**brought("scorers"), **missing("scorers")}
    return load("scorers" if is_scorer else "steps", name, Step, step_names())


def scorer_names() -> tuple[str, ...]:
    """Names of the scorers that headrace brings."""
    return (*_SCORERS, *brought("scorers"))


def find_scorer(reference: str) -> Scorer:
    """A scorer that headrace or an installed package brings, by its name, or one as `package.module:function`.

    Raises:
        ConfigError: there is none; the message suggests the nearest.
    """
    own = _SCORERS.get(reference)
    return load("scorers", reference if own is None else f"{own}:{reference}", Scorer, _SCORERS)


def selection_names() -> tuple[str, ...]:
    """Names of the selections that headrace brings, those of features behind those of the core."""
    return (*_SELECTIONS, *brought("selections"))


def find_selection(reference: str) -> Selection:
    """A selection that headrace or an installed package brings, by its name, or one as `package.module:NAME`.

    Raises:
        ConfigError: there is none; the message suggests the nearest.
    """
    return load("selections", _SELECTIONS.get(reference, reference), Selection, _SELECTIONS)
