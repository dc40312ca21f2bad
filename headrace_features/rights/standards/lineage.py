"""Send the OpenLineage events of runs that ended, where OpenLineage's own settings name a place.

These are `OPENLINEAGE_URL`, `OPENLINEAGE__TRANSPORT..` and openlineage.yml; elsewhere its client is not imported.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

from pyiceberg.catalog import Catalog

from dagster_project.exceptions import CommandError
from dagster_project.inspect.lake.run_history import PastRun, past_runs
from dagster_project.project.loading import lake_catalogue
from headrace.tables.catalogue import first_line

_NEWEST: Final = 1000  # runs that are looked through for one
_log = logging.getLogger(__name__)


def is_set() -> bool:
    """Whether OpenLineage's client would find where to send to; looked up as it does, without importing it."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    files = (os.environ.get("OPENLINEAGE_CONFIG", ""), "openlineage.yml", "~/.openlineage/openlineage.yml")
    is_there = any(Path(file).expanduser().is_file() for file in files)
    return is_there or any(name.startswith(("OPENLINEAGE_URL", "OPENLINEAGE__TRANSPORT")) for name in os.environ)


def send_runs(run_ids: Collection[str]) -> None:
    """Send the events of runs, where that is set; a collector that is away fails no run."""
    if not is_set():
        return
    try:
        from openlineage.client import OpenLineageClient

        from headrace_features.rights.standards.lineage_events import events_of

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
