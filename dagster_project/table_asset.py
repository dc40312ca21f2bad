"""Declare tables of the lake as Dagster assets: `@table_asset` for a user's function, `step_asset` for a step.

    LONG_TEXTS = Table(
        name="long_texts",
        comment="Texts of at least so many characters.",
        columns=(Column("doc_id!", "string", "identity of the document"), Column("content!", "string", "its text")),
        key=("doc_id",),
    )

    class LongConfig(BaseModel):
        min_characters: int = Field(1000, ge=0, description="shortest text that is kept, in characters")

    @table_asset(table="notes.long_texts", schema=LONG_TEXTS)
    def long_texts(spark, texts: DataFrame, config: LongConfig) -> DataFrame:
        return texts.where(F.length("content") >= config.min_characters).select("doc_id", "content")

Parameters are bound by name: `texts` is the table `notes.texts` unless `inputs` names another; `context` is Dagster's,
`spark` the session, `config` the config. The rows must have the table's columns (a mismatch names the column), and its
checks audit them before they are published. Datasets and corpora consist of the assets of the steps of `spark_jobs`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg
from pydantic import BaseModel

from blender_service.auth.visibility import QUARANTINE
from dagster_project.asset_options import Presentation, Upkeep
from dagster_project.exceptions import DefinitionError
from dagster_project.lake_asset import LakeAsset
from dagster_project.metadata import Samples
from headrace.tables.quarantine import is_quarantine
from spark_jobs.exceptions import DeclarationError
from spark_jobs.lake.declare.step import Plot, Scope, Step, step
from spark_jobs.lake.declare.tables import Table, check_identifier
from spark_jobs.lake.plan.binding import Source

__all__ = ["Link", "Presentation", "Upkeep", "step_asset", "table_asset"]

Link = tuple[Step, Mapping[str, Source], Mapping[str, Any], str]
"""A step of a chain: the step, its inputs, its config, and the folder of `spark_jobs` that it belongs to."""


def table_asset(  # noqa: PLR0913 - a declaration, each part by its name
    *,
    table: str,
    schema: Table,
    config: type[BaseModel] | None = None,
    inputs: Mapping[str, Source | Sequence[str]] | None = None,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    scope: Scope = Scope.WHOLE,
    version: str = "1",
    plot: Plot | None = None,
    presentation: Presentation | None = None,
    any_engine: bool = False,
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Declare a table and the function that computes its rows.

    Args:
        table: identifier, `namespace.table`.
        schema: columns, key, checks; its name may differ from the table's, which wins.
        config: config model; by default the annotation of the parameter `config`.
        inputs: table, or list of tables (their union, with a column `dataset`), by parameter.
        partitions_def: none, static, dynamic or time-window. The first field of the table's partition is the
            partitions' column; a static or dynamic one holds the partition key, a time-window one a time in the window.
        scope: `WHOLE` computes the table anew whenever an input changed; `INCREMENT` computes increment by increment
            (the table needs `increment` in its partition): those of the corpus where an input belongs to one, of whose
            datasets' tables it reads what the corpus took in, else those of the inputs' dataset.
        version: code version; change it when the function's rows change.
        plot: a picture for the UI.
        presentation: group, owners, samples, automation.
        any_engine: say that the rows do not depend on the engine, so that small runs need not start Spark: the function
            uses DataFrames and their columns alone, and sorts and repartitions nothing in front of a Python function.

    Raises:
        DefinitionError: a name, an input or the kind of partitions is not possible.
    """

    def declare(function: Callable[..., Any]) -> dg.AssetsDefinition:
        try:
            namespace, name = check_identifier(table)
            declared = dataclasses.replace(schema, name=name)
            declare_step = step(
                version=version,
                scope=scope,
                tables=(declared,),
                name=name,
                config=config,
                plot=plot,
                any_engine=any_engine,
            )
            declared_step = declare_step(function)
            bound = {p: f"{namespace}.{p}" for p in declared_step.inputs}
            unknown = set(inputs or {}) - set(bound)
            if unknown:
                raise DefinitionError(
                    f"{table}: inputs names {sorted(unknown)}, the function's inputs are {sorted(bound)}"
                )
            sources: dict[str, Source] = {p: _source((inputs or {}).get(p, default)) for p, default in bound.items()}
        except DeclarationError as error:
            raise DefinitionError(str(error)) from error
        return step_asset(
            declared_step, namespace, sources, None, presentation=presentation, partitions_def=partitions_def
        )

    return declare


def step_asset(
    declared: Step,
    namespace: str,
    inputs: Mapping[str, Source],
    config: BaseModel | None,
    *,
    driving_table: str | None = None,
    presentation: Presentation | None = None,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    upkeep: Upkeep | None = None,
) -> dg.AssetsDefinition:
    """Make the asset of a step, or the assets of a step with side tables.

    Args:
        declared: the step.
        namespace: where its tables live.
        inputs: table or tables by parameter.
        config: bound config; None leaves required fields to the run config.
        driving_table: table whose increments are followed; by default what the inputs say (`lake.plan.following`).
        presentation: group, owners, samples, automation.
        partitions_def: partitions that a user declares.
        upkeep: work before and after the computation.

    Raises:
        DefinitionError: a table's name or the partitions are not possible.
    """
    shown = presentation or Presentation()
    if is_quarantine(namespace):  # whatever lies there, somebody's own tables too
        kept = dataclasses.replace(QUARANTINE, test=shown.visibility.test)
        shown = dataclasses.replace(shown, samples=Samples.NONE, visibility=kept)
    asset = LakeAsset(declared, namespace, inputs, config, driving_table, shown, partitions_def, upkeep)
    asset.check()
    return asset.build()


def _source(source: Source | Sequence[str]) -> Source:
    return source if isinstance(source, str) else tuple(source)
