"""What Dagster gets of a materialized table: its version, what the page of the asset shows of it, its checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import dagster as dg

from dagster_project.asset_checks import check_results, notice_result
from dagster_project.metadata import (
    carried_columns,
    drawn_before,
    in_order,
    judges_documents,
    kept_metadata,
    materialization_metadata,
    shown_rows,
)
from dagster_project.partitions import rows_of
from headrace.tables.catalogue import load_table
from spark_jobs.lake.declare.tables import Table
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.lake.run.outcomes import TableOutcome

if TYPE_CHECKING:
    from dagster_project.lake_asset import LakeAsset


def result_of(
    asset: LakeAsset,
    context: dg.AssetExecutionContext,
    lake: Lake,
    table: Table,
    outcome: TableOutcome,
    main: TableOutcome,
) -> dg.MaterializeResult[Any]:
    """The result of one table.

    Args:
        asset: with the table.
        context: of the run.
        lake: with the table as it is now.
        table: its declaration.
        outcome: what became of it.
        main: what became of the asset's first table.
    """
    key = dg.AssetKey(outcome.identifier.split("."))
    drawn = asset.step.plot
    plot = drawn if drawn is not None and (drawn.table or asset.step.table.name) == table.name else None
    partition = context.partition_key if asset.partitions_def is not None else None
    has_previous = not outcome.computed or table.notice is not None or plot is not None
    previous = _metadata_before(context, key, partition) if has_previous else {}
    iceberg = load_table(lake.catalogue, outcome.identifier) if outcome.computed else None
    shown = shown_rows(table, outcome.computed)
    if asset.partitions_def is not None and partition is not None:
        shown = rows_of(table, asset.partitions_def, partition)
    graph = context.job_def.asset_layer.asset_graph
    as_drawn = drawn_before(previous, str(outcome.version)) if partition is None else {}
    draws = None if as_drawn else plot
    names_paths = iceberg is not None and judges_documents(table)
    documents = load_table(lake.catalogue, f"{asset.namespace}.documents") if names_paths else None
    samples = asset.samples(graph)
    values = materialization_metadata(outcome, table, iceberg, shown, samples, draws, documents) | as_drawn
    values |= carried_columns(table, asset.declared_inputs(graph))
    if not outcome.computed:
        values |= kept_metadata(previous)
    if partition is not None:
        values["rows_of_all_partitions"] = _row_count(lake, outcome.identifier)
    if "members" in asset.inputs and table.key == ("doc_id",):
        members = _row_count(lake, f"{asset.namespace}.members")
        values |= {"share_of_members": round(outcome.version.count / members, 4)} if members else {}
    if asset.shown.facts is not None and outcome is main:
        values |= asset.shown.facts(lake.catalogue)
    if lake.rollout is not None and outcome.identifier in lake.rollout.said:
        values["rollout"] = lake.rollout.said[outcome.identifier]
    checks = check_results(table, outcome, asset.is_placed(table))
    if table.notice is not None:
        facts, warning = notice_result(table, table.notice, outcome, main.version.count, previous, lake.catalogue)
        values |= facts
        checks.append(warning)
    version = dg.DataVersion(str(outcome.version))
    return dg.MaterializeResult(asset_key=key, metadata=in_order(values), data_version=version, check_results=checks)


def _metadata_before(context: dg.AssetExecutionContext, key: dg.AssetKey, partition: str | None) -> Mapping[str, Any]:
    """The metadata of an asset's last materialization; none before the first."""
    record = context.instance.get_latest_data_version_record(key, partition_key=partition)
    materialization = record.asset_materialization if record is not None else None
    return {} if materialization is None else materialization.metadata


def _row_count(lake: Lake, identifier: str) -> int:
    """The rows of all places of a table."""
    return sum(row.row_count for row in lake.ledger.places(identifier).values())
