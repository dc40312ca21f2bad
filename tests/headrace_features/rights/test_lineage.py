"""OpenLineage events of runs: valid, complete, and sent where that is set."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pyiceberg.catalog import Catalog

from dagster_project.cli.run import run
from dagster_project.exceptions import CommandError
from dagster_project.inspect.lake.run_history import PastRun
from headrace_features.rights.standards import lineage
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.materialization import Materialization
from tests.blender_service.packed_tables import create_packed, open_lake

RUN = "0c021ae2-f827-43de-9246-0f925deea8b4"
TABLE, OTHER = "main.packed_notes_16", "main.notes_16"
FACET = {
    "type": "object",
    "required": ["_producer", "_schemaURL"],
    "properties": {
        "_producer": {"type": "string", "pattern": "^urn:headrace"},
        "_schemaURL": {"type": "string", "pattern": "^https://openlineage.io/spec/facets/"},
    },
}
FACETS = {"type": "object", "additionalProperties": FACET}
NAMED = {
    "type": "object",
    "required": ["namespace", "name"],
    "properties": {
        "namespace": {"type": "string", "minLength": 1},
        "name": {"type": "string", "minLength": 1},
        **dict.fromkeys(("facets", "inputFacets", "outputFacets"), FACETS),
    },
}
RUN_EVENT = {  # what OpenLineage's specification 2-0-2 asks of a RunEvent
    "type": "object",
    "required": ["eventTime", "producer", "schemaURL", "run", "job", "eventType"],
    "properties": {
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
        "eventTime": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$"},
        "producer": {"type": "string", "pattern": "^urn:headrace"},
        "schemaURL": {"const": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"},
        "run": {
            "type": "object",
            "required": ["runId"],
            "properties": {
                "runId": {"type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"},
                "facets": FACETS,
            },
        },
        "job": NAMED,
        "inputs": {"type": "array", "items": NAMED},
        "outputs": {"type": "array", "items": NAMED},
    },
}


@pytest.fixture(autouse=True)
def without_settings() -> Iterator[None]:
    """The client itself sets variables."""
    before = {name: os.environ.pop(name) for name in [*os.environ] if name.startswith("OPENLINEAGE")}
    yield
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalog:
    """A lake in which a run computed two tables of a step from a table, then another one from a folder of files."""
    lake = open_lake(tmp_path / "lake")
    create_packed(lake, TABLE).append(3, 1)

    def row(table: str, key: str, inputs: dict[str, Any]) -> Materialization:
        return Materialization(
            table, "0", "packed", key, DataVersion(), "1", "{}", inputs, 7, 1, "uuid", 3, 100, 2.5, RUN, None
        )

    read = {"main.tokens": {"snapshot_id": "5", "versions": {}}, TABLE: {"snapshot_id": "6", "versions": {}}}
    ledger = Ledger.fresh(lake)
    ledger.record([row(TABLE, "a", read), row(OTHER, "a", read), row(TABLE, "b", {"/files/a.parquet": {}})])
    return lake


@pytest.mark.parametrize(
    ("status", "end", "failed"),
    [("success", "COMPLETE", []), ("failure", "FAIL", ["main.pairs", OTHER]), ("stopped", "ABORT", [])],
)
def test_events_are_valid_and_every_run_that_starts_ends(
    catalogue: Catalog, status: str, end: str, failed: list[str]
) -> None:
    """The run, each computation with its tables at their snapshots, and each failed table, in order of time."""
    serde = pytest.importorskip("openlineage.client.serde").Serde
    from headrace_features.rights.standards.lineage_events import events_of

    past = PastRun(RUN, datetime(2026, 12, 1, tzinfo=UTC), 60.0, "me", "run main", status, failed=failed)
    events = [serde.to_dict(event) for event in events_of(catalogue, past)]
    for event in events:
        jsonschema.validate(event, RUN_EVENT)
    by_run: dict[str, list[str]] = {}
    for event in events:
        by_run.setdefault(event["run"]["runId"], []).append(event["eventType"])
    assert by_run.pop(RUN) == ["START", end]
    assert sorted(by_run.values()) == sorted([["START", "COMPLETE"]] * 2 + [["START", "FAIL"]] * len(failed))
    below = [event["run"] for event in events if event["run"]["runId"] != RUN]
    assert {run["facets"]["parent"]["run"]["runId"] for run in below} == {RUN}
    [whole] = [event for event in events if event["eventType"] == "COMPLETE" and len(event["outputs"]) == 2]
    assert {part["name"] for part in whole["inputs"]} == {"main.tokens", TABLE}
    [packed] = [part for part in whole["outputs"] if part["name"] == TABLE]
    assert packed["outputFacets"]["outputStatistics"]["rowCount"] == 3
    assert "ordinal" in [column["name"] for column in packed["facets"]["schema"]["fields"]]
    assert packed["facets"]["version"]["datasetVersion"] == "7" and packed["namespace"].startswith("file:///")


@pytest.fixture
def received() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A collector's address and what it gets."""
    events: list[dict[str, Any]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", events
    server.shutdown()
    thread.join()
    server.server_close()


def test_runs_are_sent_where_it_is_set_and_a_collector_that_is_away_fails_nothing(
    catalogue: Catalog,
    received: tuple[str, list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without a setting nothing is looked at; a missing run is a warning too."""
    pytest.importorskip("openlineage.client")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    monkeypatch.setattr(lineage, "lake_catalogue", lambda: catalogue)
    address, events = received
    lineage.send_runs([RUN])
    assert not events
    monkeypatch.setenv("OPENLINEAGE_URL", address)
    lineage.send_runs([RUN])
    assert [event["eventType"] for event in events].count("COMPLETE") == 3, caplog.text
    with caplog.at_level(logging.WARNING):
        lineage.send_runs(["nothing"])
    assert "events were not sent" in caplog.text
    with pytest.raises(CommandError, match="headrace runs names them"):
        lineage.find_past(catalogue, "nothing")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),
        ({"OPENLINEAGE_URL": "http://localhost"}, True),
        ({"OPENLINEAGE__TRANSPORT__TYPE": "console"}, True),
        ({"OPENLINEAGE_URL": "http://localhost", "OPENLINEAGE_DISABLED": "true"}, False),
        ({"OPENLINEAGE_CONFIG": "there.yml"}, True),
        ({"OPENLINEAGE_CONFIG": "elsewhere.yml"}, False),
    ],
)
def test_it_is_set_where_the_client_would_find_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], expected: bool
) -> None:
    """By a variable, or a file that is there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "there.yml").write_text("transport: {type: console}")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert lineage.is_set() is expected
    (tmp_path / "openlineage.yml").write_text("transport: {type: console}")
    assert lineage.is_set() is ("OPENLINEAGE_DISABLED" not in variables)


@pytest.mark.parametrize("ran", [[], [RUN], [RUN, "another"]])
def test_headrace_run_tells_of_the_runs_that_it_made(monkeypatch: pytest.MonkeyPatch, ran: list[str]) -> None:
    """By the entry points `run_ends`; where nothing ran, nothing is told, and nothing of a feature is loaded."""
    told: list[list[str]] = []
    loaded: list[str] = []

    def execute(*arguments: Any) -> list[Any]:
        arguments[5].extend(ran)
        return []

    def load(group: str, name: str, of: type) -> Any:
        loaded.append(f"{group}.{name}")
        return told.append

    monkeypatch.setattr(run, "execute", execute)
    monkeypatch.setattr(run, "load", load)
    run._run((), True, None, None, 0.1)
    assert told == ([ran] if ran else []) and loaded == (["run_ends.lineage"] if ran else [])
