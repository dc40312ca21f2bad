"""What a forecast says of steps: what they compute, what they need of an engine, and what somebody may not expect."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pyiceberg.catalog import Catalog

from spark_jobs.lake.declare.step import Scope, Step
from spark_jobs.lake.engine.choice import CAREFUL, SPARK, WAYS, Needs
from spark_jobs.lake.engine.memory import spark_fits
from spark_jobs.lake.ledger.attempts import Unmanaged, unmanaged
from spark_jobs.lake.plan.binding import Binding, tables_of
from spark_jobs.lake.plan.due import ForecastPlace
from spark_jobs.lake.session.jars import has_spark


@dataclass(frozen=True)
class StepForecast:
    """What a run does to the tables of one step.

    Attributes:
        binding: the step.
        places: those that are or may be computed, in order.
        kept: how many places stay as they are in any case.
        frozen: how a frozen table that is kept differs from its declaration; empty where it does not.
        problem: why the step will fail; empty where nothing is known of that.
        byte_count: the most text that one of the places reads as new, in bytes, of tables as they are now, or of the
            files of a source; None where the source does not say.
        held_bytes: the most text of tables that one of the places may join with that, those of its history too.
        stays: from what a table was computed that stays though those rows changed, or may; empty for others.
    """

    binding: Binding
    places: tuple[ForecastPlace, ...] = ()
    kept: int = 0
    frozen: str = ""
    problem: str = ""
    byte_count: int | None = 0
    held_bytes: int = 0
    stays: str = ""

    @property
    def is_idle(self) -> bool:
        """Whether the run has nothing to do for the step."""
        return not self.places and not self.problem


@dataclass(frozen=True)
class Foreseen:
    """Existing tables whose rows a run may change, or keep though somebody may expect a change.

    Attributes:
        kept_frozen: frozen tables that stay as they are, each with a sentence: they differ from their declaration, or
            rows that they were computed from may change in this run.
        recomputed_frozen: frozen tables that are computed again, each with why.
        renumbered: numbered tables of which existing rows are computed again.
        failing: tables whose step will fail, each with why.
    """

    kept_frozen: tuple[tuple[str, str], ...]
    recomputed_frozen: tuple[tuple[str, str], ...]
    renumbered: tuple[str, ...]
    failing: tuple[tuple[str, str], ...] = ()


def surprises(steps: Iterable[StepForecast]) -> Foreseen:
    """The effects of a forecast beyond added increments."""
    kept, again, renumbered, failing = [], [], [], []
    changing: set[str] = set()
    for step_forecast in steps:
        table = step_forecast.binding.tables[0]
        changing.update(step_forecast.binding.tables if step_forecast.places else ())
        if step_forecast.problem:
            failing.append((table, step_forecast.problem))
        if step_forecast.frozen:
            kept.append((table, step_forecast.frozen))
        elif step_forecast.stays and not changing.isdisjoint(tables_of(*step_forecast.binding.inputs.values())):
            kept.append((table, step_forecast.stays))
        if there := [place for place in step_forecast.places if place.exists]:
            if step_forecast.binding.step.scope is Scope.FROZEN:
                again.append((table, there[0].reason))
            elif step_forecast.binding.step.numbered:
                renumbered.append(table)
    return Foreseen(tuple(kept), tuple(again), tuple(renumbered), tuple(failing))


def bytes_to_read(steps: Iterable[StepForecast]) -> tuple[int | None, int]:
    """About the most text that a step of a run reads, and that it joins: what sources have that is new, and tables.

    The first is None where a source does not say how much it has.
    """
    new, largest, joined = 0, 0, 0
    for step_forecast in steps:
        if step_forecast.byte_count is None:
            return None, 0
        if step_forecast.binding.step.discover is not None:
            new += step_forecast.byte_count
        else:
            largest, joined = max(largest, step_forecast.byte_count), max(joined, step_forecast.held_bytes)
    return new + largest, new + joined


def engine_needs(forecasts: Collection[StepForecast | None], catalogue: Catalog) -> Needs:
    """What decides the engine of a run.

    Args:
        forecasts: of the steps that are to be computed; None of a step of which nothing is known.
        catalogue: of the lake.
    """
    foreseen = [step_forecast for step_forecast in forecasts if step_forecast is not None]
    byte_count, joined = bytes_to_read(foreseen)
    reason = reason_for_spark(
        (step_forecast.binding.tables[0], step_forecast.binding.step) for step_forecast in foreseen
    )
    failed = unmanaged(catalogue, [step_forecast.binding.tables[0] for step_forecast in foreseen])
    if failed is None:
        return Needs(byte_count, reason, joined)
    return Needs(byte_count, reason, joined, str(failed), another_way(failed) or CAREFUL, failed.failed)


def another_way(failed: Unmanaged) -> str:
    """A way that was not tried to compute a table that an engine did not manage; empty where all were."""
    left = [way for way in WAYS if way not in failed.tried]
    return next((way for way in left if way == CAREFUL or (way == SPARK and spark_fits() and has_spark())), "")


def reason_for_spark(steps: Iterable[tuple[str, Step]]) -> str:
    """Why some steps, each with its table, need Spark; empty where they do not."""
    user_table = next((table for table, step in steps if step.needs_spark), None)
    return f"{user_table} is made by a step of your own without any_engine" if user_table is not None else ""
