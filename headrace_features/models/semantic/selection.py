"""The selection `semantic`: in chosen datasets, documents that mean what no better one means."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from headrace_features.models.semantic.cells import semantic_cells, semantic_centroids
from headrace_features.models.semantic.pairs import semantic_pairs
from headrace_features.models.semantic.recall import semantic_recall
from headrace_features.models.semantic.removals import SEMANTIC_REMOVALS, semantic_removals
from spark_jobs.lake.declare.step import ConfigModel
from spark_jobs.lake.plan.binding import Source
from spark_jobs.selection.declared import Bound, Selection, SelectionPlace
from spark_jobs.selection.kept import kept_step
from spark_jobs.selection.stages import SelectionStage


class SemanticSettings(ConfigModel):
    """Which datasets are compared, by which encoder, from which cosine on."""

    vectors: str = Field(pattern="^[a-z][a-z0-9_]*$", description="NAME of the encoder: DATASET.vectors_NAME are read")
    datasets: tuple[str, ...] = Field(min_length=1, description="datasets of the corpus that are compared")
    threshold: float = Field(gt=0, le=1, description="least cosine at which one of two documents is removed")
    families: bool = Field(
        False, description="whether documents that a model wrote are compared with their parents and siblings"
    )


def _steps(config: SemanticSettings, place: SelectionPlace) -> Iterator[Bound]:
    """The comparing steps, the removing one, and what it leaves."""
    vectors = place.each(f"vectors_{config.vectors}", config.datasets)
    compared: dict[str, Source] = {"survivors": place.survivors, **place.own("members"), "vectors": vectors}
    kin: dict[str, Source] = {} if config.families else {"documents": place.each("documents")}
    least = {"threshold": config.threshold}
    yield Bound(semantic_centroids, compared, {})
    yield Bound(semantic_cells, {**compared, **place.own("semantic_centroids")}, {})
    yield Bound(semantic_pairs, {**place.own("semantic_cells"), **kin}, least)
    yield Bound(semantic_removals, place.own("semantic_pairs", "revisions"), least)
    yield Bound(semantic_recall, {**place.own("semantic_cells", "semantic_removals", "revisions"), **kin}, least)
    removed: dict[str, Source] = {"rejected": f"{place.corpus}.{SEMANTIC_REMOVALS.name}"}
    yield Bound(kept_step(SEMANTIC.stage, place.table(SEMANTIC.stage)), {**removed, "passed": place.survivors}, {})


SEMANTIC = Selection(
    SelectionStage(
        "semantic",
        "semantic_survivors",
        SEMANTIC_REMOVALS.name,
        "that say what no better one says",
        "dagster_project.inspect.documents.selection_findings:semantic_finding",
        repeats=True,
    ),
    SemanticSettings,
    _steps,
)
