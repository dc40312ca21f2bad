"""The Dagster runs that a selection needs, and what each of their steps is forecast to compute."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import dagster as dg

from dagster_project.exceptions import CommandError
from dagster_project.lake_asset import declared_asset, declared_binding
from spark_jobs.lake.ledger.lease import WAIT_SECONDS
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.plan.decisions import refuse_around_quarantine
from spark_jobs.lake.plan.forecast import forecast
from spark_jobs.lake.plan.foreseen import Foreseen, StepForecast, surprises
from spark_jobs.lake.session.catalogue import catalogue_errors

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from dagster_project.dagster_core import BaseAssetGraph
    from spark_jobs.lake.plan.binding import Binding

_SHOWN_PARTITIONS = 5
_CODE_VERSION = "dagster/code_version"  # tag of a materialization


@dataclass(frozen=True)
class PlannedStep:
    """One step of a run.

    Attributes:
        keys: its assets.
        partition: key of the partition, where they have partitions.
        forecast: what is computed; None where that cannot be known before the run.
    """

    keys: tuple[dg.AssetKey, ...]
    partition: str | None
    forecast: StepForecast | None

    @property
    def tables(self) -> tuple[str, ...]:
        """Identifiers of its tables, the main one first where headrace made them."""
        return self.forecast.binding.tables if self.forecast else tuple(".".join(key.path) for key in self.keys)

    @property
    def asks(self) -> bool:
        """Whether a remote source must be fetched before it is known what the step has to compute."""
        outlook = self.forecast
        if outlook is None or not outlook.is_idle or outlook.binding.step.fetch is None:
            return False
        return bool(getattr(outlook.binding.config, "is_fetched", False))

    @property
    def status(self) -> str:
        """`compute`, `possible` (if rows of its inputs change), `unchanged`, `frozen`, `fails`, or `unknown`."""
        outlook = self.forecast
        if outlook is None:
            return "unknown"
        if outlook.problem:
            return "fails"
        if any(place.certain for place in outlook.places):
            return "compute"
        if self.asks:
            return "unknown"
        return "possible" if outlook.places else "frozen" if outlook.frozen else "unchanged"


@dataclass(frozen=True)
class PlannedRun:
    """Steps that one Dagster run executes, in order: those of one partition, or those without partitions."""

    partition: str | None
    steps: tuple[PlannedStep, ...]


def plan_runs(
    definitions: dg.Definitions,
    keys: Sequence[dg.AssetKey],
    partition: str | None,
    instance: dg.DagsterInstance,
    ledger: Ledger,
    catalogue: Catalog,
) -> list[PlannedRun]:
    """The Dagster runs that bring some assets up to date, with what each step will compute.

    Args:
        definitions: the project's.
        keys: the assets, each after those that it reads; of a step with several tables all of them.
        partition: the only one to run, where assets have partitions.
        instance: knows dynamic partitions.
        ledger: refreshed.
        catalogue: the lake's.

    Raises:
        CommandError: there is no such partition (`require_partition` says so of a whole selection).
    """
    graph = definitions.resolve_asset_graph()
    planned: list[tuple[str | None, list[tuple[tuple[dg.AssetKey, ...], Binding | None]]]] = []
    for partitions, group in groupby(keys, key=lambda key: graph.get(key).partitions_def):
        chosen = list(dict.fromkeys(_step_keys(graph, key) for key in group))
        for name in _partition_keys(partitions, partition, instance):
            steps = [(unit, declared_binding(".".join(unit[0].path), graph, catalogue, name)) for unit in chosen]
            planned.append((name, steps))
    bindings = [binding for _, steps in planned for _, binding in steps if binding is not None]
    forecasts = iter(forecast(ledger, bindings))
    return [
        PlannedRun(
            name,
            tuple(PlannedStep(unit, name, None if binding is None else next(forecasts)) for unit, binding in steps),
        )
        for name, steps in planned
    ]


def require_partition(
    graph: BaseAssetGraph[Any], keys: Sequence[dg.AssetKey], partition: str | None, instance: dg.DagsterInstance
) -> None:
    """Refuse a partition that a selection does not have, before any stage of it is executed.

    Args:
        graph: all assets.
        keys: the whole selection.
        partition: the only one to run; None for all.
        instance: knows dynamic partitions.

    Raises:
        CommandError: none of the assets has partitions, or one lacks this partition.
    """
    parted = [parts for key in keys if (parts := graph.get(key).partitions_def) is not None]
    if partition is not None and not parted:
        raise CommandError(f"--partition {partition}: no table of the selection has partitions; leave it out")
    for definition in parted:
        _partition_keys(definition, partition, instance)


def stages(graph: BaseAssetGraph[Any], keys: Sequence[dg.AssetKey]) -> list[list[dg.AssetKey]]:
    """A selection in parts that are fetched, planned and executed one after the other.

    What a dataset reads of the lake (executed code, generated texts, tables of the lake) has to be computed before its
    source is asked, so such a dataset is of a later part than the parents that the same run computes.

    Args:
        graph: all assets.
        keys: the selection, each after those that it reads.
    """
    chosen, depths = set(keys), dict[dg.AssetKey, int]()
    for key in (key for level in graph.toposorted_asset_keys_by_level for key in sorted(level)):
        parents = graph.get(key).parent_keys
        asset = declared_asset(graph, ".".join(key.path)) if key in chosen else None
        waits = asset is not None and asset.step.discover is not None and not chosen.isdisjoint(parents)
        depths[key] = max((depths[parent] for parent in parents), default=0) + waits
    levels = sorted({depths[key] for key in keys})
    return [[key for key in keys if depths[key] == level] for level in levels]


def fetch_source(ledger: Ledger, binding: Binding | None) -> None:
    """Fetch from the remote source of a step, if it has one, so that a plan knows what is new.

    Raises:
        SparkJobsError: the source does not answer, or the dataset's quarantine forbids it.
    """
    if binding is None or binding.step.fetch is None:
        return
    with catalogue_errors():
        ledger.refresh()
        refuse_around_quarantine(ledger, binding)
        binding.fetch(ledger.catalogue, WAIT_SECONDS)


def idle_steps(
    graph: BaseAssetGraph[Any], runs: Collection[PlannedRun], instance: dg.DagsterInstance
) -> Iterator[PlannedStep]:
    """Steps that a run can leave out: nothing is to be computed, and Dagster knows their tables.

    A table that something else than Dagster computed is run once, so that the UI shows it; so is one whose settings
    were edited and whose rows stay, or the UI would call it unsynced for ever.
    """
    idle = [step for run in runs for step in run.steps if step.forecast is not None and step.forecast.is_idle]
    keys = [key for step in idle for key in step.keys]
    records = instance.get_asset_records(keys) if keys else []
    in_dagster = {
        record.asset_entry.asset_key
        for record in records
        if (last := record.asset_entry.last_materialization) is not None
        and last.asset_materialization is not None
        and last.asset_materialization.tags is not None
        and last.asset_materialization.tags.get(_CODE_VERSION) == graph.get(record.asset_entry.asset_key).code_version
    }
    yield from (step for step in idle if in_dagster.issuperset(step.keys))


class Failures:
    """Which tables failed, or were left because one failed, so that what depends on them is left too.

    A partition depends on the same partition of inputs with equal partitions, and on all of other inputs.

    Args:
        graph: all assets.

    Attributes:
        unasked: tables whose source could not be asked.
    """

    def __init__(self, graph: BaseAssetGraph[Any]) -> None:
        self._graph = graph
        self.unasked: set[str] = set()
        self._causes: dict[dg.AssetKey, dict[str | None, str]] = {}

    def askable(self, keys: Iterable[dg.AssetKey]) -> Iterator[str]:
        """Those of some tables whose source may be asked: nothing that they read failed or was left."""
        yield from (".".join(key.path) for key in keys if self.keys.isdisjoint(self._graph.get(key).parent_keys))

    def add(self, step: PlannedStep, cause: str) -> None:
        """Note that a step failed or was left; `cause` is the table that failed first."""
        for key in step.keys:
            self._causes.setdefault(key, {})[step.partition] = cause

    def keeps(self, step: PlannedStep) -> bool:
        """Whether a step failed or must be left, which is noted; call it for a step after those that it reads."""
        cause = step.tables[0] if step.tables[0] in self.unasked else self.before(step)
        if cause:
            self.add(step, cause)
        return bool(cause)

    @property
    def keys(self) -> frozenset[dg.AssetKey]:
        """All tables that failed or were left, in one of their partitions at least."""
        return frozenset(self._causes)

    def before(self, step: PlannedStep) -> str:
        """The table whose failure keeps a step from being computed; empty where none does."""
        for key in step.keys:
            partitions = self._graph.get(key).partitions_def
            for parent in sorted(self._graph.get(key).parent_keys):
                causes = self._causes.get(parent, {})
                if causes and self._graph.get(parent).partitions_def == partitions:
                    causes = {name: cause for name, cause in causes.items() if name == step.partition}
                if causes:
                    return next(iter(causes.values()))
        return ""


def without_partition(keys: Collection[dg.AssetKey], runs: Collection[PlannedRun]) -> Iterator[str]:
    """A sentence about each table of a selection that has dynamic partitions and none yet: it is in no run."""
    planned = {key for run in runs for step in run.steps for key in step.keys}
    for key in sorted(set(keys) - planned):
        yield f"{'.'.join(key.path)} has no partition yet, so nothing of it is computed; add one, as in the UI"


def surprising(runs: Collection[PlannedRun]) -> Foreseen:
    """What the runs do besides adding increments."""
    return surprises(step.forecast for run in runs for step in run.steps if step.forecast is not None)


def _step_keys(graph: Any, key: dg.AssetKey) -> tuple[dg.AssetKey, ...]:
    """Assets of the step behind one of them."""
    return tuple(sorted(graph.get(key).execution_set_asset_keys))


def _partition_keys(
    definition: dg.PartitionsDefinition[Any] | None, wanted: str | None, instance: dg.DagsterInstance
) -> list[str | None]:
    """Partitions to run: the one asked for, or all; a single None for assets without partitions."""
    if definition is None:
        return [None]
    keys = list(definition.get_partition_keys(dynamic_partitions_store=instance))
    if wanted is None:
        return list(keys)
    if wanted not in keys:
        last = ", ".join(keys[-_SHOWN_PARTITIONS:]) or "none yet"
        raise CommandError(f"partition {wanted!r} is not there; the last ones are {last}")
    return [wanted]
