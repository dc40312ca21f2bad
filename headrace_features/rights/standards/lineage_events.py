"""OpenLineage events of a run, from the ledger: which job read and wrote which tables, when, with how many rows.

    the run              begins, and ends as COMPLETE, FAIL, or ABORT where it was told to stop
    each computed place  a run below it: input and output tables at their snapshots, columns, rows and bytes
    each failed table    a run below it that fails

Tables are of the warehouse as a namespace, jobs of `headrace`. This module needs the extra `lineage`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState, set_producer
from openlineage.client.facet_v2 import (
    dataset_version_dataset,
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    parent_run,
    schema_dataset,
)
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo

from dagster_project.inspect.lake.run_history import PastRun
from headrace.tables.catalogue import load_table
from headrace.tables.locations import is_local
from spark_jobs.lake.files.lookups import read_rows
from spark_jobs.lake.ledger.ledger_table import LEDGER, MATERIALIZATIONS

_PRODUCER: Final = "urn:headrace"
_JOBS: Final = "headrace"
_ENDS: Final = {"success": RunState.COMPLETE, "failure": RunState.FAIL}

set_producer(_PRODUCER)


def events_of(catalogue: Catalog, past: PastRun) -> list[RunEvent]:
    """The events of a run, in order of time."""
    end, name = past.began + timedelta(seconds=past.seconds), f"headrace {past.what}"
    parent = {"parent": parent_run.ParentRunFacet(parent_run.Run(_uuid(past.run_id)), parent_run.Job(_JOBS, name))}
    events = [
        _event(RunState.START, past.began, past.run_id, name, {}),
        _event(_ENDS.get(past.status, RunState.ABORT), end, past.run_id, name, _failure(past.failed)),
    ]
    for table in past.failed:
        run_id, written = f"{past.run_id} {table}", [_output(catalogue, {"table": table})]
        events.append(_event(RunState.START, past.began, run_id, table, parent))
        events.append(_event(RunState.FAIL, end, run_id, table, parent | _failure([table]), outputs=written))
    for rows in _computations(catalogue, past.run_id):
        run_id, table = f"{past.run_id} {rows[0]['step_key']} {rows[0]['place']}", rows[0]["table"]
        recorded = max(row["recorded_at"] for row in rows)
        began = recorded - timedelta(seconds=max(row["seconds"] for row in rows))
        read = sorted(json.loads(rows[0]["inputs"]).items())
        inputs = [InputDataset(*_named(catalogue, of), facets=_facets(catalogue, of, facts)) for of, facts in read]
        events.append(_event(RunState.START, began, run_id, table, parent, inputs))
        written = [_output(catalogue, row) for row in rows]
        events.append(_event(RunState.COMPLETE, recorded, run_id, table, parent, inputs, written))
    return sorted(events, key=lambda event: (event.eventTime, event.eventType is not RunState.START))


def _computations(catalogue: Catalog, run_id: str) -> Iterator[list[dict[str, Any]]]:
    """The ledger's rows of a run: those of the tables of a step at one place together."""
    columns = [column.name for column in MATERIALIZATIONS.columns]
    rows = [row for row in read_rows(catalogue, LEDGER, columns, EqualTo("run_id", run_id)) if row["step_key"]]
    rows.sort(key=lambda row: (row["step_key"], row["place"], row["table"]))
    for _, group in groupby(rows, key=lambda row: (row["step_key"], row["place"])):
        yield list(group)


def _event(
    state: RunState, at: datetime, run_id: str, job: str, facets: Mapping[str, Any],
    inputs: Sequence[InputDataset] = (), outputs: Sequence[OutputDataset] = (),
) -> RunEvent:  # fmt: skip
    kind = job_type_job.JobTypeJobFacet("BATCH", "HEADRACE", "TASK" if "parent" in facets else "JOB")
    run, of = Run(_uuid(run_id), facets={**facets}), Job(_JOBS, job, facets={"jobType": kind})
    time = at.astimezone(UTC).isoformat()
    return RunEvent(eventType=state, eventTime=time, run=run, job=of, inputs=[*inputs], outputs=[*outputs])


def _output(catalogue: Catalog, row: Mapping[str, Any]) -> OutputDataset:
    """A table that was written; of a failed one nothing but its name is in the row."""
    counted = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=row.get("row_count"), size=row.get("byte_count")
    )
    facets, written = _facets(catalogue, row["table"], row), dict[str, Any]({"outputStatistics": counted})
    return OutputDataset(
        *_named(catalogue, row["table"]), facets=facets, outputFacets=written if "row_count" in row else {}
    )


def _named(catalogue: Catalog, table: str) -> tuple[str, str]:
    warehouse = catalogue.properties.get("warehouse", "")
    return Path(warehouse).absolute().as_uri() if is_local(warehouse) else warehouse, table


def _facets(catalogue: Catalog, identifier: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of a table, and its snapshot; nothing of one that is not there any more, or of a path."""
    table = load_table(catalogue, identifier) if identifier.count(".") == 1 and "/" not in identifier else None
    if table is None:
        return {}
    columns = table.schema().fields
    fields = [schema_dataset.SchemaDatasetFacetFields(part.name, str(part.field_type), part.doc) for part in columns]
    facets: dict[str, Any] = {"schema": schema_dataset.SchemaDatasetFacet(fields=fields)}
    if "snapshot_id" in facts:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(facts["snapshot_id"]))
    return facets


def _failure(failed: Sequence[str]) -> dict[str, Any]:
    message = error_message_run.ErrorMessageRunFacet(f"failed: {', '.join(failed)}", "PYTHON")
    return {"errorMessage": message} if failed else {}


def _uuid(run_id: str) -> str:
    """Dagster's id of a run is one; of anything else one is made of its name."""
    try:
        return str(uuid.UUID(run_id))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{_PRODUCER}:{run_id}"))
