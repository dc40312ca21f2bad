"""OpenLineage events of runs, from the ledger: which job read and wrote which tables, when, with how many rows.

    the run              begins, and ends as COMPLETE, FAIL, or ABORT where it was told to stop
    each computed place  a run below it: input and output tables at their snapshots, columns, rows and bytes
    each failed table    a run below it that fails

They are sent after `headrace run` where OpenLineage's own settings name a place (`OPENLINEAGE_URL`, openlineage.yml,
..); elsewhere nothing of its client is imported. Needs the extra `lineage`.
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo

from dagster_project.exceptions import CommandError
from dagster_project.inspect.lake.run_history import PastRun, past_runs
from dagster_project.project.loading import lake_catalogue
from headrace.tables.catalogue import first_line, load_table
from headrace.tables.locations import is_local
from spark_jobs.lake.files.lookups import read_rows
from spark_jobs.lake.ledger.ledger_table import LEDGER, MATERIALIZATIONS

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent

_PRODUCER: Final = "urn:headrace"
_JOBS: Final = "headrace"  # namespace of jobs; that of tables is the warehouse
_NEWEST: Final = 1000  # runs that are looked through for one
_log = logging.getLogger(__name__)


def is_set() -> bool:
    """Whether OpenLineage's client would find where to send to; looked up as it does, without importing it."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    files = (os.environ.get("OPENLINEAGE_CONFIG"), "openlineage.yml", "~/.openlineage/openlineage.yml")
    return any(name.startswith(("OPENLINEAGE_URL", "OPENLINEAGE__TRANSPORT")) for name in os.environ) or any(
        file and Path(file).expanduser().is_file() for file in files
    )


def send_runs(run_ids: Collection[str]) -> None:
    """Send the events of runs that ended, where that is set; a collector that is away fails no run."""
    if not is_set():
        return
    try:
        from openlineage.client import OpenLineageClient

        client, catalogue = OpenLineageClient(), lake_catalogue()
        for event in (event for run_id in run_ids for event in events_of(catalogue, find_past(catalogue, run_id))):
            client.emit(event)
        client.close(timeout=5)
    except ImportError:
        _log.warning("OpenLineage is set, and its client is not installed: pip install 'headrace[lineage]'")
    except Exception as error:  # noqa: BLE001 - of a transport anything; what was computed is computed
        _log.warning("OpenLineage: events were not sent: %s", first_line(error))


def find_past(catalogue: Catalog, run_id: str) -> PastRun:
    """A run by its id, or the last digits of it.

    Raises:
        CommandError: no run has it.
    """
    from dagster_project.cli.run.status import instance_with_runs

    with instance_with_runs() as instance:
        for past in past_runs(catalogue, instance, _NEWEST):
            if past.run_id.endswith(run_id):
                return past
    raise CommandError(f"run {run_id}: is none of the last {_NEWEST:,}; headrace runs names them")


def events_of(catalogue: Catalog, past: PastRun) -> list[RunEvent]:
    """The events of a run, in order of time."""
    from openlineage.client.event_v2 import RunState, set_producer
    from openlineage.client.facet_v2 import error_message_run, parent_run

    set_producer(_PRODUCER)

    def failure(*tables: str) -> dict[str, Any]:
        message = error_message_run.ErrorMessageRunFacet(f"failed: {', '.join(tables)}", "PYTHON")
        return {"errorMessage": message} if tables else {}

    states = {"success": RunState.COMPLETE, "failure": RunState.FAIL}
    end, name = past.began + timedelta(seconds=past.seconds), f"headrace {past.what}"
    events = [
        _event(RunState.START, past.began, past.run_id, name, {}),
        _event(states.get(past.status, RunState.ABORT), end, past.run_id, name, failure(*past.failed)),
    ]
    parent = {"parent": parent_run.ParentRunFacet(parent_run.Run(_uuid(past.run_id)), parent_run.Job(_JOBS, name))}
    for table in past.failed:
        run_id, outputs = f"{past.run_id} {table}", [_output(catalogue, {"table": table})]
        events.append(_event(RunState.START, past.began, run_id, table, parent))
        events.append(_event(RunState.FAIL, end, run_id, table, parent | failure(table), outputs=outputs))
    for rows in _computations(catalogue, past.run_id):
        run_id, table = f"{past.run_id} {rows[0]['step_key']} {rows[0]['place']}", rows[0]["table"]
        recorded = max(row["recorded_at"] for row in rows)
        began = recorded - timedelta(seconds=max(row["seconds"] for row in rows))
        inputs = [_input(catalogue, read, facts) for read, facts in sorted(json.loads(rows[0]["inputs"]).items())]
        outputs = [_output(catalogue, row) for row in rows]
        events.append(_event(RunState.START, began, run_id, table, parent, inputs))
        events.append(_event(RunState.COMPLETE, recorded, run_id, table, parent, inputs, outputs))
    return sorted(events, key=lambda event: (event.eventTime, event.eventType is not RunState.START))


def _computations(catalogue: Catalog, run_id: str) -> Iterator[list[dict[str, Any]]]:
    """The ledger's rows of a run: those of the tables of a step at one place together."""
    columns = [column.name for column in MATERIALIZATIONS.columns]
    rows = [row for row in read_rows(catalogue, LEDGER, columns, EqualTo("run_id", run_id)) if row["step_key"]]
    rows.sort(key=lambda row: (row["step_key"], row["place"], row["table"]))
    for _, group in groupby(rows, key=lambda row: (row["step_key"], row["place"])):
        yield list(group)


def _event(
    state: Any, at: datetime, run_id: str, job: str, facets: Mapping[str, Any],
    inputs: Sequence[InputDataset] = (), outputs: Sequence[OutputDataset] = (),
) -> RunEvent:  # fmt: skip
    from openlineage.client.event_v2 import Job, Run, RunEvent
    from openlineage.client.facet_v2 import job_type_job

    kind = job_type_job.JobTypeJobFacet("BATCH", "HEADRACE", "TASK" if "parent" in facets else "JOB")
    return RunEvent(
        eventType=state,
        eventTime=at.astimezone(UTC).isoformat(),
        run=Run(_uuid(run_id), facets={**facets}),
        job=Job(_JOBS, job, facets={"jobType": kind}),
        inputs=[*inputs],
        outputs=[*outputs],
    )


def _input(catalogue: Catalog, table: str, facts: Mapping[str, Any]) -> InputDataset:
    from openlineage.client.event_v2 import InputDataset

    return InputDataset(*_named(catalogue, table), facets=_facets(catalogue, table, facts.get("snapshot_id")))


def _output(catalogue: Catalog, row: Mapping[str, Any]) -> OutputDataset:
    """A table that was written; of a failed one nothing but its name is in the row."""
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    table, written = row["table"], dict[str, Any]()
    if "row_count" in row:
        counted = statistics.OutputStatisticsOutputDatasetFacet(rowCount=row["row_count"], size=row["byte_count"])
        written["outputStatistics"] = counted
    facets = _facets(catalogue, table, row.get("snapshot_id"))
    return OutputDataset(*_named(catalogue, table), facets=facets, outputFacets=written)


def _named(catalogue: Catalog, table: str) -> tuple[str, str]:
    """Namespace and name: the warehouse as a URI, and `namespace.table`."""
    warehouse = catalogue.properties.get("warehouse", "")
    return Path(warehouse).absolute().as_uri() if is_local(warehouse) else warehouse, table


def _facets(catalogue: Catalog, identifier: str, snapshot_id: Any) -> dict[str, Any]:
    """Columns of a table, and its snapshot; nothing of one that is not there any more, or of a path."""
    from openlineage.client.facet_v2 import dataset_version_dataset, schema_dataset

    table = load_table(catalogue, identifier) if identifier.count(".") == 1 and "/" not in identifier else None
    if table is None:
        return {}
    fields = [
        schema_dataset.SchemaDatasetFacetFields(field.name, str(field.field_type), field.doc)
        for field in table.schema().fields
    ]
    facets: dict[str, Any] = {"schema": schema_dataset.SchemaDatasetFacet(fields=fields)}
    if snapshot_id is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(snapshot_id))
    return facets


def _uuid(run_id: str) -> str:
    """Dagster's id of a run is one; of anything else one is made of its name."""
    try:
        return str(uuid.UUID(run_id))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{_PRODUCER}:{run_id}"))
