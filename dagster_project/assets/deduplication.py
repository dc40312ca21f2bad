"""Make the chain of steps of deduplication from a corpus's declared levels.

levels: [exact]                     the same bytes or the same letters
levels: [exact, near]               and documents whose weighted tokens are as similar as a threshold
levels: [exact, near, repository]   and whole repositories made of the same files
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dagster_project.assets.selections import instead
from dagster_project.table_asset import Link
from spark_jobs.dedup.bags.bags import bags
from spark_jobs.dedup.bags.features import Features
from spark_jobs.dedup.bags.vocabulary import vocabulary
from spark_jobs.dedup.graph.components import components
from spark_jobs.dedup.graph.threshold_pairs import KindThreshold, KindThresholds
from spark_jobs.dedup.membership.exact_duplicates import exact_duplicates
from spark_jobs.dedup.membership.members import Criterion
from spark_jobs.dedup.near.buckets import buckets
from spark_jobs.dedup.near.pairs import pairs
from spark_jobs.dedup.removal.removals import removals
from spark_jobs.dedup.removal.thresholds import thresholds
from spark_jobs.dedup.repository.bags import repository_bags
from spark_jobs.dedup.repository.components import repository_components
from spark_jobs.dedup.repository.containments import repository_containments
from spark_jobs.dedup.repository.pairs import repository_pairs
from spark_jobs.dedup.repository.removals import repository_removals
from spark_jobs.dedup.sketches.background import background
from spark_jobs.dedup.sketches.signatures import signatures
from spark_jobs.lake.declare.step import Step
from spark_jobs.lake.plan.binding import Source

Level = Literal["exact", "near", "repository"]
_LEVELS: tuple[Level, ...] = ("exact", "near", "repository")
_DOMAIN = "dedup"


class Deduplication(BaseModel):
    """Levels and thresholds of a corpus, as declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    levels: tuple[Level, ...] = Field(
        ("exact", "near"), description="exact; exact and near; exact, near and repository"
    )
    thresholds: KindThresholds = Field(
        KindThresholds(), description="similarities that are compared, ascending: one list for all, or by kind"
    )
    apply: KindThreshold = Field(
        KindThreshold(),
        description="the threshold at which documents are removed, one of the list: for all, or by kind",
    )
    recall: float = Field(
        0.9999, gt=0, lt=1, description="least share of the pairs at the lowest threshold that is to be found"
    )
    features: Features = Field(
        Features(),
        description="words, word_pairs, word_runs or (code) words_and_structure: one for all, or by kind of document",
    )
    keep_first: tuple[Criterion, ...] | None = Field(
        None, description="order in which duplicates are kept; see the step members"
    )
    known_good: tuple[str, ...] = Field((), description="repositories that are kept before others")
    min_stars: int | None = Field(
        100, ge=0, description="repositories with so many stars are kept before others; none: not used"
    )
    repository_threshold: float = Field(
        0.7,
        gt=0,
        le=1,
        description="least similarity at which one of two repositories is removed",
    )
    containment_threshold: float = Field(
        0.7, gt=0, le=1, description="least share of a repository inside a larger one that is reported"
    )

    @model_validator(mode="before")
    @classmethod
    def _semantic_is_a_selection(cls, given: Any) -> Any:
        """Refuse the level semantic, with what to write in its place."""
        if isinstance(given, dict) and ("semantic" in given or "semantic" in (given.get("levels") or ())):
            rest = [level for level in given.get("levels") or () if level != "semantic"]
            settings = given.get("semantic") or {"vectors": "ENCODER", "datasets": [], "threshold": 0.9}
            raise ValueError(f"{instead({'semantic': settings})}, and levels: [{', '.join(rest)}]")
        return given

    @model_validator(mode="after")
    def _levels_and_thresholds_agree(self) -> Deduplication:
        """Refuse levels out of order, and an applied threshold outside of the compared ones."""
        if self.levels != _LEVELS[: len(self.levels)] or not self.levels:
            raise ValueError(f"levels {list(self.levels)} are not a beginning of {list(_LEVELS)}; write them in order")
        for kind, applied in self.apply.values.items():
            listed = list(self.thresholds.values[kind])
            if applied not in listed:
                of_kind = "" if self.thresholds.is_one and self.apply.is_one else f" of {kind}"
                say = f", or apply one of them: apply: {{{kind}: {listed[0]}}}" if of_kind else ""
                raise ValueError(f"apply {applied} is not one of thresholds {listed}{of_kind}; add it there{say}")
        return self

    @property
    def members(self) -> dict[str, Any]:
        """The criteria for keeping among duplicates, as config of `members`."""
        first = {} if self.keep_first is None else {"keep_first": list(self.keep_first)}
        return {**first, "known_good": list(self.known_good), "min_stars": self.min_stars}


def deduplication_chain(
    declared: Deduplication,
    base: Step,
    own: Callable[[str], str],
    each: Callable[[str], tuple[str, ...]],
    latest: Sequence[str],
    pairs_config: Mapping[str, Any],
) -> list[Link]:
    """Steps from `exact_duplicates` to what no level removed, each with its inputs and config.

    Args:
        declared: levels and thresholds.
        base: the step for what no level removed.
        own: identifier of a table of the corpus.
        each: identifiers of a table of all its datasets.
        latest: datasets with only the latest revision of a document.
        pairs_config: declared config of `pairs`; `repository_removals` must know its limit of large buckets.
    """
    revised: dict[str, Source] = {"members": own("members"), "revisions": own("revisions")}
    chain: list[Link] = [(exact_duplicates, revised, {}, _DOMAIN)]
    gone: dict[str, Source] = {"members": own("members"), "exact_duplicates": own("exact_duplicates")}
    if "near" in declared.levels:
        chain += _near(declared, own, {**gone, "texts": each("texts")})
        leaving: dict[str, Source] = {}
        if "repository" in declared.levels:
            large = {name: value for name, value in pairs_config.items() if name == "max_bucket_pairs"}
            chain += _repository(declared, own, each("repositories"), {"latest": list(latest), **large})
            leaving["leaving"] = own("repository_removal_files")
        chain += _removed(declared, own, leaving)
        gone["removals"] = own("removals")
    chain.append((base, gone, {"threshold": declared.apply.model_dump()}, _DOMAIN))
    return chain


def _near(declared: Deduplication, own: Callable[[str], str], read: Mapping[str, Source]) -> list[Link]:
    """Steps of the level `near` up to the components, inputs of the level `repository`."""
    compared = {"features": declared.features.model_dump()}
    listed = {"thresholds": list(declared.thresholds.together)}
    by_kind = {"thresholds": declared.thresholds.model_dump()}
    lowest = {"threshold": declared.thresholds.lowest.model_dump(), "recall": declared.recall}

    def table(*names: str) -> dict[str, Source]:
        return {name: own(name) for name in names}

    return [
        (vocabulary, read, compared, _DOMAIN),
        (bags, {**read, **table("vocabulary")}, compared, _DOMAIN),
        (background, table("bags"), {}, _DOMAIN),
        (signatures, table("bags", "vocabulary"), {}, _DOMAIN),
        (buckets, table("signatures", "background"), lowest, _DOMAIN),
        (pairs, table("buckets", "signatures", "bags", "revisions"), by_kind, _DOMAIN),
        (components, table("pairs"), listed, _DOMAIN),
    ]


def _repository(
    declared: Deduplication, own: Callable[[str], str], facts: tuple[str, ...], removing: Mapping[str, Any]
) -> list[Link]:
    """Steps of the level `repository`; they come before `removals`, since files leave with a removed repository."""
    least = {"threshold": declared.repository_threshold}
    preferred = {
        "threshold": min(declared.thresholds.together),
        "datasets": [table.split(".")[0] for table in facts],
        "known_good": list(declared.known_good),
        "min_stars": declared.min_stars,
    }
    about: dict[str, Source] = {"members": own("members"), "repositories": facts}

    def table(*names: str) -> dict[str, Source]:
        return {name: own(name) for name in names}

    return [
        (repository_bags, {**about, **table("exact_duplicates", "components", "bags")}, preferred, _DOMAIN),
        (repository_pairs, table("repository_bags"), {**least, "recall": declared.recall}, _DOMAIN),
        (
            repository_containments,
            table("repository_bags"),
            {"containment_threshold": declared.containment_threshold},
            _DOMAIN,
        ),
        (repository_components, {**about, **table("repository_pairs", "repository_bags")}, least, _DOMAIN),
        (
            repository_removals,
            table("repository_pairs", "repository_components", "members", "exact_duplicates", "buckets"),
            {**least, **removing},
            _DOMAIN,
        ),
    ]


def _removed(declared: Deduplication, own: Callable[[str], str], leaving: Mapping[str, Source]) -> list[Link]:
    """The steps `removals` and `thresholds`: removed documents, and the documents kept at each threshold."""
    listed = {"thresholds": list(declared.thresholds.together)}
    by_kind = {"thresholds": declared.thresholds.model_dump()}
    counted: dict[str, Source] = {
        name: own(name) for name in ("members", "exact_duplicates", "removals", "components", "bags", "bands")
    }
    return [
        (removals, {"pairs": own("pairs"), "revisions": own("revisions"), **leaving}, listed, _DOMAIN),
        (thresholds, {**counted, "revisions": own("revisions")}, by_kind, _DOMAIN),
    ]
