"""The selection `decontaminate`: documents without an item of a benchmark, searched as they landed."""

from __future__ import annotations

from collections.abc import Iterator

from spark_jobs.filters.contamination.decontaminated import (
    CONTAMINATED,
    DECONTAMINATED,
    DecontaminatedConfig,
    decontaminated,
)
from spark_jobs.lake.plan.binding import Source
from spark_jobs.selection.declared import Bound, Selection, SelectionPlace
from spark_jobs.selection.stages import SelectionStage


def _steps(config: DecontaminatedConfig, place: SelectionPlace) -> Iterator[Bound]:
    """The searching step."""
    read: dict[str, Source] = {"survivors": place.survivors, "documents": place.each("documents")}
    yield Bound(decontaminated, read, config.model_dump(exclude_unset=True))


DECONTAMINATE = Selection(
    SelectionStage(
        "decontaminate",
        DECONTAMINATED.name,
        CONTAMINATED.name,
        "without an item of a benchmark",
        "dagster_project.inspect.documents.selection_findings:benchmark_finding",
    ),
    DecontaminatedConfig,
    _steps,
)
