"""An asset of the lake: the tables of a step, how Dagster runs it, and what it reports.

`table_asset.py` makes such assets; `headrace plan` and `headrace run` look up here what a run of a table would execute.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import BaseModel, ValidationError

from dagster_project.asset_checks import check_specs, failed_audit
from dagster_project.asset_options import Presentation, Upkeep, materialized
from dagster_project.asset_results import result_of
from dagster_project.dagster_core import ObjectMetadataValue
from dagster_project.exceptions import DagsterProjectError, DefinitionError
from dagster_project.hidden_secrets import secrets_hidden
from dagster_project.keeping import Keeping
from dagster_project.metadata import (
    GUARDED,
    Samples,
    definition_metadata,
)
from dagster_project.partitions import place_of, predicate_of
from dagster_project.restrictions import GATE, record_visibility, refuse_forbidden_reads, visibility_metadata
from dagster_project.run_config import bind_config, config_fields
from dagster_project.tracing import step_span
from headrace.tables.catalogue import load_table
from headrace.tables.quarantine import SUFFIX
from spark_jobs.exceptions import (
    AuditError,
    DeclarationError,
    RolloutError,
    SparkJobsError,
    StepDeclarationError,
    StepRunError,
)
from spark_jobs.lake.declare.step import Scope, Step
from spark_jobs.lake.declare.tables import Table, check_identifier
from spark_jobs.lake.engine.choice import Needs
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.step_key import config_json
from spark_jobs.lake.plan.binding import Binding, Source, tables_of
from spark_jobs.lake.plan.following import Following, following
from spark_jobs.lake.plan.forecast import forecast
from spark_jobs.lake.plan.foreseen import engine_needs
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.lake.run.rollout import TrialConfig

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from dagster_project.dagster_core import BaseAssetGraph


POOL_PREFIX = "lake_"
FAILED_CHECK = "failed_check"  # metadata of a failed step: the check that its rows did not pass
_MADE_OF = "headrace/made-of"  # metadata of an asset: its `LakeAsset`, in the process that loaded the definitions
FETCHED = "headrace/fetched"  # tag of a run that has asked its sources before it began


def declared_binding(
    table: str, graph: BaseAssetGraph[Any], catalogue: Catalog, partition: str | None = None
) -> Binding | None:
    """The step behind a table as a run without run config executes it; None where it cannot be known beforehand.

    It cannot for an asset that headrace does not make, that has fields without a default, or whose upkeep has work.

    Args:
        table: identifier.
        graph: all assets.
        catalogue: the lake's.
        partition: key of the partition to compute, where the asset has partitions.
    """
    asset = declared_asset(graph, table)
    if asset is None:
        return None
    if asset.upkeep is not None and asset.upkeep.pending is not None and asset.upkeep.pending(catalogue):
        return None
    with contextlib.suppress(ValidationError, DeclarationError):
        return asset.bound(asset.config or asset.step.config(), graph, catalogue, partition)
    return None


def declared_asset(graph: BaseAssetGraph[Any], table: str) -> LakeAsset | None:
    """What headrace made the asset of a table of; None for a table that no asset has, or one of another maker."""
    key = dg.AssetKey(table.split("."))
    return _behind(graph.get(key).metadata) if graph.has(key) else None


def declared_assets(graph: BaseAssetGraph[Any], keys: Iterable[dg.AssetKey]) -> list[LakeAsset]:
    """Those of some assets that headrace made, each once though it has several tables."""
    return _distinct(declared_asset(graph, ".".join(key.path)) for key in keys)


def assets_of(definitions: dg.Definitions) -> list[LakeAsset]:
    """All assets in some definitions that headrace made, whose graph need not be resolved."""
    defined = (part for part in definitions.assets or () if isinstance(part, dg.AssetsDefinition))
    return _distinct(_behind(metadata) for part in defined for metadata in part.metadata_by_key.values())


def _engine_needs(context: dg.AssetExecutionContext, catalogue: Catalog, ledger: Ledger) -> Needs:
    """What the Dagster run of a step asks of an engine; see `foreseen.engine_needs`."""
    layer = context.job_def.asset_layer
    partition = context.partition_key if context.has_partition_key else None
    chosen = set(context.run.asset_selection or layer.executable_asset_keys)
    tables = [".".join(key.path) for key in layer.asset_graph.toposorted_asset_keys if key in chosen]
    bound = (declared_binding(table, layer.asset_graph, catalogue, partition) for table in tables)
    return engine_needs(forecast(ledger, {step.tables: step for step in bound if step is not None}.values()), catalogue)


def _distinct(assets: Iterable[LakeAsset | None]) -> list[LakeAsset]:
    return list({asset.tables[0]: asset for asset in assets if asset is not None}.values())


def _behind(metadata: Mapping[str, Any]) -> LakeAsset | None:
    """What an asset was made of: its definition carries it, so it is that of the project that is loaded."""
    value = metadata.get(_MADE_OF)
    return value.instance if isinstance(value, ObjectMetadataValue) and isinstance(value.instance, LakeAsset) else None


def keeping_by_dataset(assets: Iterable[LakeAsset]) -> dict[str, Keeping]:
    """How long each dataset keeps what landed, as declared."""
    kept = ((asset.namespace.removesuffix(SUFFIX), asset.upkeep) for asset in assets)
    return {name: upkeep.keeping for name, upkeep in kept if upkeep is not None and upkeep.keeping is not None}


def declared_source(graph: BaseAssetGraph[Any], table: str) -> Binding | None:
    """The step at the source of data whose main table this is; None for other tables."""
    asset = declared_asset(graph, table)
    return asset.source if asset is not None and asset.tables[0] == table else None


@dataclass(frozen=True)
class LakeAsset:
    """The values that one `AssetsDefinition` is built from; `step_asset` says what they are.

    Attributes:
        followed: what the step follows, once definitions are built (`follow`): the graph of a run knows its own tables
            alone, and what a step follows depends on the tables before them.
    """

    step: Step
    namespace: str
    inputs: Mapping[str, Source]
    config: BaseModel | None
    driving_table: str | None
    shown: Presentation
    partitions_def: dg.PartitionsDefinition[str] | None
    upkeep: Upkeep | None
    followed: list[Following] = dataclasses.field(default_factory=list, compare=False, repr=False)

    def follow(self, graph: BaseAssetGraph[Any]) -> None:
        """Note what the step follows.

        Args:
            graph: all assets of the project.

        Raises:
            DefinitionError: its inputs have increments that do not belong together.
        """
        try:
            self.followed[:] = [following(self, functools.partial(declared_asset, graph))]
        except StepDeclarationError as error:
            raise DefinitionError(str(error)) from error

    def _what_it_follows(self) -> Following:
        """As noted by `follow`; of definitions that were not built by headrace, what was declared."""
        if not self.followed and self.driving_table is None and self.step.scope not in (Scope.WHOLE, Scope.INTAKE):
            raise DefinitionError(f"{self.tables[0]}: its definitions were not built by `load_project`")
        return self.followed[0] if self.followed else Following(self.driving_table, None)

    @property
    def tables(self) -> tuple[str, ...]:
        """Identifiers of its tables, the main one first."""
        return tuple(f"{self.namespace}.{table.name}" for table in self.step.tables)

    @property
    def source(self) -> Binding | None:
        """The step, where it is at the source of data."""
        if self.step.discover is None or self.config is None:
            return None
        return Binding(self.step, self.namespace, self.inputs, self.config, driving_table=self.driving_table)

    @property
    def code_version(self) -> str:
        """Version of the step, and a digest of its settings where other settings give other rows.

        So Dagster shows a table as unsynced once its YAML was edited. A frozen table keeps the settings it began with.
        """
        if self.config is None or self.step.scope is Scope.FROZEN:
            return self.step.version
        return f"{self.step.version} {hashlib.sha256(config_json(self.config).encode()).hexdigest()[:8]}"

    def samples(self, graph: BaseAssetGraph[Any]) -> Samples:
        """Which rows are shown: as declared, else as of the most guarded of its inputs; ids where one is not known."""
        if self.shown.samples is not None:
            return self.shown.samples
        read = [declared_asset(graph, name) for name in self.upstream()]
        return min(
            (Samples.IDS if parent is None else parent.samples(graph) for parent in read),
            key=GUARDED.index,
            default=Samples.IDS,
        )

    def declared(self, identifier: str) -> Table:
        """The declaration of one of its tables."""
        return self.step.tables[self.tables.index(identifier)]

    def declared_inputs(self, graph: BaseAssetGraph[Any]) -> dict[str, Table]:
        """The declarations of the tables that it depends on and that headrace made."""
        assets = ((name, declared_asset(graph, name)) for name in self.upstream())
        return {name: asset.declared(name) for name, asset in assets if asset is not None}

    def check(self) -> None:
        """Refuse names and partitions that cannot work, and register the partitions."""
        for identifier in self.tables:
            try:
                check_identifier(identifier)
            except DeclarationError as error:
                raise DefinitionError(str(error)) from error
        if self.partitions_def is None:
            return
        if isinstance(self.partitions_def, dg.MultiPartitionsDefinition):
            raise DefinitionError(f"{self.tables[0]}: partitions of several dimensions are not supported; use one")
        if not self.step.table.partition or self.step.table.has_increments:
            raise DefinitionError(f"{self.tables[0]}: name the partitions' column in the table's partition=(...)")

    def build(self) -> dg.AssetsDefinition:
        """The definition."""
        fields = config_fields(self.config, self.step.config)

        def compute(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
            with secrets_hidden():
                yield from self._run(context)

        # Dagster compares the annotation with the class, but `from __future__ import annotations` made it a string.
        compute.__annotations__["context"] = dg.AssetExecutionContext
        decorate = dg.multi_asset(
            name=self.tables[0].replace(".", "__"),
            specs=[
                self._spec(table, identifier) for table, identifier in zip(self.step.tables, self.tables, strict=True)
            ],
            check_specs=[
                spec
                for table, identifier in zip(self.step.tables, self.tables, strict=True)
                for spec in check_specs(table, identifier, self.is_placed(table))
            ],
            config_schema=fields or None,
            required_resource_keys={"lake"},
            partitions_def=self.partitions_def,
            pool=f"{POOL_PREFIX}{self.tables[0].replace('.', '_')}",
        )
        return decorate(compute)

    def _spec(self, table: Table, identifier: str) -> dg.AssetSpec:
        tags = {"headrace/domain": self.shown.domain} if self.shown.domain else {}
        what = inspect.cleandoc(self.step.function.__doc__ or "").partition("\n\nArgs:")[0]
        shell = f"In a terminal: `headrace run {identifier}`, then `headrace table show {identifier} --rows 5`."
        # Its job makes several runs, so that Dagster's page of the asset lists none.
        job = (
            f"In Dagster: the job `{self.namespace}` brings every partition up to date." if self.partitions_def else ""
        )
        text = "\n\n".join(part for part in (table.comment, what, shell, job) if part)
        return dg.AssetSpec(
            identifier.split("."),
            deps=[dg.AssetDep(dg.AssetKey(name.split("."))) for name in self.upstream()],
            description=text,
            metadata={
                **definition_metadata(identifier, table, self.step, self.shown.samples),
                **visibility_metadata(identifier, self.shown.visibility),
                **({GATE: self.step.gate} if self.step.gate else {}),
                _MADE_OF: ObjectMetadataValue(self),
            },
            group_name=self.shown.group or self.namespace,
            code_version=self.code_version,
            owners=list(self.shown.owners),
            kinds={"iceberg"},
            tags=tags,
            automation_condition=self.shown.automation,
        )

    def is_placed(self, table: Table) -> bool:
        """Whether the rows of a table have an increment or a partition, outside of which none may lie."""
        return table.has_increments or self.partitions_def is not None

    def upstream(self) -> list[str]:
        """Identifiers of the tables that it depends on, but for its own."""
        appended = getattr(self.config, "appended", ())  # inputs that servers append to: no asset makes them
        made = (source for name, source in self.inputs.items() if name not in appended)
        tables = dict.fromkeys(tables_of(*made))
        tables.update(dict.fromkeys(getattr(getattr(self.config, "source", None), "lake_tables", ())))
        # An input of the same namespace depends on the driving table itself; the first steps of a corpus have none.
        if self.driving_table is not None and all(name.split(".")[0] != self.namespace for name in tables):
            tables.setdefault(self.driving_table)
        landed = self.upkeep.lands if self.upkeep is not None else None
        return [name for name in tables if name not in self.tables and name != landed]

    def _run(self, context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        """Materialize, and report to Dagster; a failed audit reports its checks and no materialization."""
        try:
            lake: Lake = context.resources.lake.open(context.run.run_id, functools.partial(_engine_needs, context))
            tags = context.run.tags
            fetches = FETCHED not in tags or context.run.get_parent_run_id() is not None  # executed again, tags and all
            lake = dataclasses.replace(lake, rollout=TrialConfig.of_tags(tags), fetches=fetches)
        except SparkJobsError as error:
            raise dg.Failure(f"{self.tables[0]}: {error}", allow_retries=False) from error
        graph = context.job_def.asset_layer.asset_graph
        try:
            refuse_forbidden_reads(graph, record_visibility(lake.catalogue, graph))
            with step_span(self.tables[0], context.run.run_id) as note:
                outcomes = materialized(self.upkeep, lake, self._binding(context, lake))
                note({"rows": outcomes[0].version.count, "computed": ",".join(outcomes[0].computed)})
        except AuditError as error:
            yield from failed_audit(error, self.samples(graph))
            failed = next((check.name for check in error.checks if not check.passed), "")
            raise dg.Failure(str(error), metadata={FAILED_CHECK: failed}, allow_retries=False) from error
        except RolloutError as error:
            raise dg.Failure(str(error), metadata={FAILED_CHECK: "rollout"}, allow_retries=False) from error
        except (DagsterProjectError, SparkJobsError) as error:
            older = older_input(graph, lake.ledger, self.upstream(), error) if isinstance(error, StepRunError) else ""
            raise dg.Failure(f"{self.tables[0]}: {older}" if older else str(error), allow_retries=False) from error
        for table, outcome in zip(self.step.tables, outcomes, strict=True):
            yield result_of(self, context, lake, table, outcome, outcomes[0])

    def _binding(self, context: dg.AssetExecutionContext, lake: Lake) -> Binding:
        config = bind_config(self.step.config, self.tables[0], context.op_execution_context.op_config or {})
        partition = context.partition_key if self.partitions_def is not None else None
        bound = self.bound(config, context.job_def.asset_layer.asset_graph, lake.catalogue, partition)
        return dataclasses.replace(bound, arguments={"context": context})

    def bound(
        self, config: BaseModel, graph: BaseAssetGraph[Any], catalogue: Catalog, partition: str | None
    ) -> Binding:
        """The step with its tables and one config, for one partition where the asset has partitions."""
        places: dict[str, dict[str, str]] = {}
        place = None
        if self.partitions_def is not None and partition is not None:
            place = place_of(self.step.table, self.partitions_def, partition)
            # A partition reads the same partition of inputs with equal partitions, and all of other inputs.
            for name in self.upstream():
                asset = dg.AssetKey(name.split("."))
                if not graph.has(asset) or graph.get(asset).partitions_def != self.partitions_def:
                    continue
                # Only of headrace's own assets, which have a scope, is it known which column their partitions are.
                table = load_table(catalogue, name) if "scope" in graph.get(asset).metadata else None
                if table is not None:
                    places[name] = {partition: predicate_of(table, self.partitions_def, partition)}
        followed = self._what_it_follows()
        return Binding(
            step=self.step,
            namespace=self.namespace,
            inputs=self.inputs,
            config=config,
            driving_table=followed.driving_table,
            translated=followed.translated,
            partition=place,
            input_places=places,
        )


def older_input(graph: BaseAssetGraph[Any], ledger: Ledger, inputs: Iterable[str], error: Exception) -> str:
    """Which input lacks a column that its declaration has, and the command that mends it; empty where none does.

    A step that reads such a column fails inside Spark, whose error names neither the table nor the mend.
    """
    for name in inputs:
        asset, table = declared_asset(graph, name), ledger.table(name)
        if asset is None or table is None:
            continue
        declared = asset.declared(name)
        there = table.schema().column_names
        lacking = [column.name for column in declared.all_columns if column.name not in there]
        lacking = [name for name in lacking if re.search(rf"\b{name}\b", str(error))]
        if lacking:
            mend = f"headrace run {asset.namespace}"
            if asset.step.discover is None:  # steps of a source add new columns by themselves, others do not
                mend = f"headrace table delete {name}, then {mend}"
            return f"{name}, of an earlier version of headrace, has no column {lacking[0]}; run first: {mend}"
    return ""
