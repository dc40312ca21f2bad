"""What Dagster has no public name for, in one place: whatever a new release of it moves is mended here.

The executor runs steps side by side in one process (Dagster's own cannot); a run is executed in this process and
its dead processes are found; a page of an asset shows what its metadata hold. A test keeps other modules from
`dagster._`, and `tests/packaging/test_newest.py` runs a project on the newest release.
"""

import contextlib
import functools
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import dagster as dg
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.definitions.metadata.metadata_value import ObjectMetadataValue
from dagster._core.definitions.repository_definition import SINGLETON_REPOSITORY_NAME
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.events import RunFailureReason
from dagster._core.execution.api import ExecuteRunWithPlanIterable
from dagster._core.execution.backfill import BulkActionStatus
from dagster._core.execution.compute_logs import create_compute_log_file_key
from dagster._core.execution.context.system import PlanExecutionContext, PlanOrchestrationContext
from dagster._core.execution.context_creation_job import PlanExecutionContextManager
from dagster._core.execution.execute_in_process import core_execute_in_process, merge_run_tags
from dagster._core.execution.plan.execute_plan import dagster_event_sequence_for_step
from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.retries import RetryMode
from dagster._core.launcher import CheckRunHealthResult, WorkerStatus
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import InstigatorState, InstigatorType, TickStatus
from dagster._core.storage.event_log import SqlEventLogStorage, SqliteEventLogStorage
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable, SqlEventLogStorageTable
from dagster._core.storage.local_compute_log_manager import LocalComputeLogManager
from dagster._core.storage.runs.schema import KeyValueStoreTable, SnapshotsTable
from dagster._core.storage.tags import RUN_FAILURE_REASON_TAG
from dagster._serdes import ConfigurableClassData
from dagster._utils.error import SerializableErrorInfo  # type: ignore[attr-defined]  # it names no exports
from dagster._utils.schedules import reverse_cron_string_iterator
from dagster.components.core import load_defs

__all__ = [
    "RUN_FAILURE_REASON_TAG",
    "SINGLETON_REPOSITORY_NAME",
    "AssetCheckExecutionsTable",
    "BaseAssetGraph",
    "BulkActionStatus",
    "CheckRunHealthResult",
    "ConfigurableClassData",
    "DagsterUserCodeUnreachableError",
    "ExecuteRunWithPlanIterable",
    "ExecutionPlan",
    "InMemoryJob",
    "InstanceConcurrencyContext",
    "InstigatorState",
    "InstigatorType",
    "KeyValueStoreTable",
    "LocalComputeLogManager",
    "ObjectMetadataValue",
    "PlanExecutionContext",
    "PlanExecutionContextManager",
    "PlanOrchestrationContext",
    "RegisteredCodeLocationOrigin",
    "RemoteJobOrigin",
    "RemoteRepositoryOrigin",
    "RetryMode",
    "RunFailureReason",
    "SerializableErrorInfo",
    "SnapshotsTable",
    "SqlEventLogStorage",
    "SqlEventLogStorageTable",
    "SqliteEventLogStorage",
    "TickStatus",
    "WorkerStatus",
    "core_execute_in_process",
    "create_compute_log_file_key",
    "dagster_event_sequence_for_step",
    "dev_module",
    "merge_run_tags",
    "reverse_cron_string_iterator",
    "without_schemas",
]


def dev_module() -> Any:
    """The module of the command `dagster dev`, with its web server replaced by `dagster_pages`."""
    return import_module("dagster._cli.dev")


@contextlib.contextmanager
def without_schemas() -> Iterator[None]:
    """Load definitions without the JSON schemas of all components, half of the time: only Dagster's pages show them."""
    with_schemas = _with_schemas()
    load_defs.get_library_json_enriched_defs = lambda tree: dg.Definitions(component_tree=tree)
    try:
        yield
    finally:
        load_defs.get_library_json_enriched_defs = with_schemas


@functools.cache
def _with_schemas() -> Any:
    """Dagster's function, also where another thread loads without schemas now."""
    return load_defs.get_library_json_enriched_defs
