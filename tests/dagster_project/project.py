"""A small project on a lake of its own, as a user would have it: assets, an instance, and runs of both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest

from dagster_project.cli.run.step_lines import failure_text
from dagster_project.definitions import build
from dagster_project.resources import LakeResource
from headrace.tables.settings import settings_at
from spark_jobs.lake.session.catalogue import open_catalogue

QUIET: dict[str, Any] = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@contextmanager
def lake_settings(root: Path) -> Iterator[None]:
    """PyIceberg's environment for a lake in a folder."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings_at(root).properties.items():
            patch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
        yield


class Project:
    """Assets on a lake, run in this process against an instance that lives as long as the test.

    Another `Project` over the same lake and instance is the same project after its code was changed.
    """

    def __init__(self, root: Path, *assets: dg.AssetsDefinition, instance: dg.DagsterInstance | None = None) -> None:
        artifacts = root / "dagster"
        artifacts.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.instance = instance or dg.DagsterInstance.ephemeral(tempdir=str(artifacts))
        lake = LakeResource()
        self.definitions = build(dg.Definitions(assets=list(assets)), lake)

    def changed(self, *assets: dg.AssetsDefinition) -> Project:
        """The same lake and instance under other code."""
        return Project(self.root, *assets, instance=self.instance)

    def run(
        self, *tables: str, partition: str | None = None, config: dict[str, dict[str, Any]] | None = None
    ) -> dg.ExecuteInProcessResult:
        """Materialize tables (all by default); `config` is by table."""
        ops = {table.replace(".", "__"): {"config": values} for table, values in (config or {}).items()}
        # `everything` would plan the runs of all partitions itself.
        whole = self.definitions.resolve_implicit_global_asset_job_def
        with lake_settings(self.root):
            job = whole() if tables or partition else self.definitions.resolve_job_def("everything")
            return job.execute_in_process(
                instance=self.instance,
                asset_selection=[key(table) for table in tables] or None,
                partition_key=partition,
                run_config={**QUIET, "ops": ops},
                raise_on_error=False,
            )

    def facts(self, table: str, partition: str | None = None) -> dict[str, Any]:
        """Metadata of the newest materialization, as plain values, with its data version."""
        record = self.instance.get_latest_data_version_record(key(table), partition_key=partition)
        assert record is not None and record.asset_materialization is not None, f"{table} was never materialized"
        event = record.asset_materialization
        assert event.tags is not None
        return {name: value.value for name, value in event.metadata.items()} | {
            "version": event.tags["dagster/data_version"]
        }

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """What PyIceberg alone reads, sorted."""
        found = open_catalogue(settings_at(self.root)).load_table(table).scan().to_arrow().to_pylist()
        return sorted(tuple(row[name] for name in columns) for row in found)

    def refs(self, table: str) -> set[str]:
        """Branches and tags of a table."""
        return set(open_catalogue(settings_at(self.root)).load_table(table).refs())

    def stale_status(self, table: str) -> str:
        """FRESH, STALE or MISSING, as the UI shows it."""
        resolver = CachingStaleStatusResolver(
            self.instance, self.definitions.resolve_asset_graph(), LoadingContextForTest(self.instance)
        )
        return resolver.get_status(key(table)).value


def key(table: str) -> dg.AssetKey:
    """Asset key of a table."""
    return dg.AssetKey(table.split("."))


def failures(result: dg.ExecuteInProcessResult) -> list[str]:
    """Why steps failed, as `headrace run` says it."""
    return [failure_text(event) for event in result.all_events if event.is_step_failure]


def events(result: dg.ExecuteInProcessResult, kind: str) -> list[str]:
    """Tables of which a run has an event of this kind."""
    found = [event.asset_key for event in result.all_events if event.event_type_value == kind]
    return [".".join(asset.path) for asset in found if asset is not None]
