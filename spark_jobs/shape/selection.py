"""The selection `shape`: survivors that go on by the rates of their classes."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from spark_jobs.exceptions import ConfigError
from spark_jobs.lake.plan.binding import Source
from spark_jobs.selection.declared import Bound, Selection, SelectionPlace
from spark_jobs.selection.stages import SelectionStage
from spark_jobs.shape.rates import LossRule, ShapeConfig
from spark_jobs.shape.shape import SHAPE as SHAPE_TABLE
from spark_jobs.shape.shape import SHAPED, shape, shape_histogram

_LOSSES = "cluster_losses"  # of the corpus, where it measures them


class LossRuleOfTable(LossRule):
    """Drop or downsample clusters by a model's loss on them, and where the losses are."""

    table: str | None = Field(None, description="NAMESPACE.TABLE of cluster and loss; by default cluster_losses")


class ShapeSettings(ShapeConfig):
    """Which survivors stay in the corpus. A rule that is not given removes nothing."""

    losses: LossRuleOfTable | None = Field(None, description="rules on losses: {drop_above: .., table: ..}")


def _steps(config: ShapeSettings, place: SelectionPlace) -> Iterator[Bound]:
    """The frozen histogram, and the step that judges."""
    read: dict[str, Source] = {"survivors": place.survivors, **place.own("members")}
    read |= place.own("clusters") if "clusters" in place.made else {}
    measured = _losses(config, place)
    if config.needs_clusters and "clusters" not in place.made:
        raise ConfigError("it has rules on clusters; declare clusters: {} beside select")
    if config.losses is not None and not measured:
        raise ConfigError("losses names no table; declare cluster_losses: {}, or add table: NAMESPACE.TABLE")
    rules = config.model_dump(exclude_unset=True, exclude={"losses": {"table"}})
    yield Bound(shape_histogram, read, {})
    yield Bound(shape, {**read, **measured, **place.own("shape_histogram")}, rules)


def _losses(config: ShapeSettings, place: SelectionPlace) -> dict[str, Source]:
    """The input `losses`, where a rule asks for it and there is a table."""
    if config.losses is None:
        return {}
    table = config.losses.table or (_LOSSES if _LOSSES in place.made else None)
    if table == _LOSSES and _LOSSES not in place.made:
        raise ConfigError("it reads cluster_losses; declare cluster_losses: {} too")
    return {} if table is None else {"losses": table if "." in table else f"{place.corpus}.{table}"}


SHAPE = Selection(
    SelectionStage("shape", SHAPED.name, SHAPE_TABLE.name, "within the rates of the shape"), ShapeSettings, _steps
)
