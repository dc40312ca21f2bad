"""The status of a lake whose tables are written by hand, against counts that are made by hand."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog

from dagster_project.cli import run_command
from dagster_project.cli.run.status import GAUGES, METRIC_PREFIX
from dagster_project.inspect.documents.counted import count_documents, members_that_count
from dagster_project.inspect.lake import lake_status as lake_status_module
from dagster_project.inspect.lake.alert_thresholds import Thresholds
from dagster_project.inspect.lake.costs import costs
from dagster_project.inspect.lake.lake_status import NamespaceStatus, _alerts, lake_status, namespace_alerts
from dagster_project.inspect.lake.run_health import RUNS_METRIC
from dagster_project.keeping import Retention
from headrace.tables.settings import load_settings
from headrace_features.synthetic.answers import Answer
from headrace_features.synthetic.attempts import AnswerStore, Attempt, Landed
from headrace_features.synthetic.requests import Parent, Request
from spark_jobs.dedup.membership.members import MEMBERS
from spark_jobs.dedup.removal.survivors import SURVIVORS
from spark_jobs.filters.verdicts import VERDICTS
from spark_jobs.lake.declare.tables import Table
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.materialization import Materialization
from spark_jobs.lake.plan.increments import INCREMENTS
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue
from spark_jobs.sources.documents import ARRIVALS, DOCUMENTS
from spark_jobs.text.signals import SIGNALS
from tests.tiers import sampled

Said = pytest.CaptureFixture[str]
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
DASHBOARD = Path(__file__).parents[3] / "setup" / "grafana" / "lake.json"


def put(
    catalogue: Catalog, namespace: str, declared: Table, increment: int, rows: list[dict[str, Any]], **facts: Any
) -> None:
    """Write an increment with its row of the ledger; required columns that are not given get a value of their type."""
    table = ensure_table(catalogue, f"{namespace}.{declared.name}", declared, {"headrace.scope": "increment"})
    schema = table.schema().as_arrow()
    filler: dict[str, Any] = {"string": "", "int": 0, "long": 0, "double": 0.0, "boolean": False}
    empty = {one.name: filler.get(str(one.field_type), []) if one.required else None for one in table.schema().fields}
    if "path" in empty:  # documents of one path would be one, edited
        empty["path"] = None
        rows = [{"path": row.get("doc_id", ""), **row} for row in rows]
    values = [{**empty, "increment": increment, **row} for row in rows]
    table.append(pa.Table.from_pylist(values, schema=schema))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    given: dict[str, Any] = {"inputs": {}, "run_id": f"run {increment}", "hours": 0, "seconds": 2.0, "config": "{}"}
    given |= facts
    Ledger(catalogue).record(
        [
            Materialization(
                table=f"{namespace}.{declared.name}",
                place=str(increment),
                step=declared.name,
                step_key=f"{declared.name} {increment}",
                data_version=DataVersion(len(rows), increment, 0),
                code_version="1",
                config=given["config"],
                inputs=given["inputs"],
                snapshot_id=snapshot.snapshot_id,
                sequence_number=snapshot.sequence_number or 0,
                table_uuid=str(table.metadata.table_uuid),
                row_count=len(rows),
                byte_count=1000,
                seconds=given["seconds"],
                run_id=given["run_id"],
                git_commit=None,
            )
        ],
        NOW + timedelta(hours=given["hours"]),
    )


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """Two increments of a dataset; the second is worse, and its corpus has taken in and packed the first alone."""
    with pytest.MonkeyPatch.context() as patch:
        root = tmp_path_factory.mktemp("lake")
        from headrace.tables.settings import settings_at

        for name, value in settings_at(root).properties.items():
            patch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
        catalogue = open_catalogue(load_settings())
    long = [{"rule": "too_long", "value": 2.0, "threshold": 1.0}]
    for increment, (hours, rejected, failing, words) in enumerate(((0, 0, 10, 100), (100, 5, 30, 50))):
        facts = {"hours": hours}
        arrived = [{"status": "rejected", "reason": "binary"}] * rejected + [{"status": "landed"}] * (100 - rejected)
        arrived += [{"status": "rejected", "reason": "unknown_format"}] * 300  # which the source does not take
        put(catalogue, "notes", ARRIVALS, increment, [*arrived, {"status": "unchanged"}], **facts)
        put(catalogue, "notes", DOCUMENTS, increment, [{"doc_id": f"{increment} {n}"} for n in range(100)], **facts)
        judged = [{"failed": long if n < failing else [], "kept": n >= failing} for n in range(100)]
        put(catalogue, "notes", VERDICTS, increment, judged, **facts)
        put(catalogue, "notes", SIGNALS, increment, [{"word_count": words}] * 100, **facts)
    taken = {"notes.arrivals": {"snapshot_id": "1", "versions": {"0": "v1:1:1:1"}}}
    put(catalogue, "main", INCREMENTS, 0, [{"dataset": "notes"}], inputs=taken)
    put(catalogue, "main", MEMBERS, 0, [{"doc_id": str(n)} for n in range(90)])
    put(catalogue, "main", SURVIVORS, 0, [{"doc_id": str(n)} for n in range(81)])
    put(catalogue, "main", Table("packed_notes_64", "packed", DOCUMENTS.columns, partition=("increment",)), 0, [{}])
    return catalogue


@pytest.fixture
def found(planted: Catalog) -> dict[str, NamespaceStatus]:
    """The status, a day and a half after the second increment came."""
    thresholds = Thresholds(backlog_hours=24)
    return {one.name: one for one in lake_status(planted, thresholds, now=NOW + timedelta(hours=136))}


@pytest.mark.nightly
def test_the_newest_increment_is_told_beside_the_earlier_ones(found: dict[str, NamespaceStatus]) -> None:
    """Shares, means, backlog, rates as counted by hand."""
    notes, main = found["notes"], found["main"]
    assert (notes.kind, notes.documents, notes.increments, notes.tables) == ("dataset", 200, 2, 4)
    assert notes.newest == NOW + timedelta(hours=100) and notes.error_share == 0.05
    assert notes.left_out == 300, "files of other formats are no errors"
    assert notes.rate == 100 / 8 and notes.unchanged_steps == 0
    assert (notes.rejected, notes.rejected_before) == ({"too_long": 0.3}, {"too_long": 0.1})
    assert notes.signals["word_count"] == (50.0, 100.0)
    assert notes.backlog == {"main": 100} and notes.backlog_since == NOW + timedelta(hours=100)
    assert (main.kind, main.documents, main.duplicates_before) == ("corpus", 90, None)
    assert main.duplicates is None, "fewer than the least rows are not compared"


def test_what_is_beyond_its_threshold_is_an_alert(planted: Catalog, found: dict[str, NamespaceStatus]) -> None:
    """Each with value and limit; nothing where all is as before."""
    assert {alert.name: alert.text for alert in found["notes"].alerts} == {
        "error_share": "5.0% of the arrivals refused for a fault",
        "rejections": "too_long rejects 30.0%, before 10.0%",
        "signals": "mean of word_count is 50, before 100",
        "backlog": "documents wait for 36 h to be packed: 100 by main",
    }
    assert not found["main"].alerts
    wide = Thresholds(error_share=0.05, moved=0.5, backlog_hours=48)
    assert not [one.alerts for one in lake_status(planted, wide, now=NOW + timedelta(hours=136)) if one.alerts]
    slow = lake_status(planted, Thresholds(step_seconds=1, least_rows=50), ["main"], now=NOW)[0]
    assert slow.duplicates == pytest.approx(0.1) and {alert.name for alert in slow.alerts} == {"step_seconds"}


@sampled(3)
@pytest.mark.parametrize("hours", [101, 136, 500])
@pytest.mark.parametrize("name", ["notes", "main", "nowhere"])
def test_a_check_has_the_alerts_of_the_status(planted: Catalog, name: str, hours: int) -> None:
    """But for those about seconds, which the checks of Dagster do not show."""
    thresholds, now = Thresholds(backlog_hours=24, step_seconds=1), NOW + timedelta(hours=hours)
    kept = {"notes": Retention(days=10)}
    statuses = {one.name: one for one in lake_status(planted, thresholds, now=now, retention=kept)}
    told = statuses[name].alerts if name in statuses else ()
    alerts = namespace_alerts(planted, thresholds, name, now, kept)
    assert alerts == [alert for alert in told if alert.name != "step_seconds"]
    assert ("retention" in {alert.name for alert in alerts}) == (name == "notes" and hours == 500)


def test_a_check_counts_no_documents_unless_some_wait_for_long(
    planted: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts read the whole history, and checks are part of every run."""
    counted: list[str] = []
    for function in (count_documents, members_that_count):

        def count(catalogue: Catalog, name: str, of: Any = function) -> Any:
            counted.append(name)
            return of(catalogue, name)

        monkeypatch.setattr(lake_status_module, function.__name__, count)
    for name in ("notes", "main"):
        namespace_alerts(planted, Thresholds(backlog_hours=24), name, NOW + timedelta(hours=123))
    assert not counted
    assert namespace_alerts(planted, Thresholds(backlog_hours=24), "notes", NOW + timedelta(hours=125))
    assert counted == ["notes"]


def test_costs_add_up(planted: Catalog) -> None:
    """Seconds of every increment, bytes of those that are there, by step, namespace and team."""
    by_name = {one.name: (one.places, one.seconds, one.byte_count) for one in costs(planted, "namespace", {})}
    assert by_name == {"notes": (8, 16.0, 8000), "main": (4, 8.0, 4000)}
    later = costs(planted, "step", {}, NOW + timedelta(hours=50))
    assert {one.name: one.seconds for one in later} == dict.fromkeys(
        ("arrivals", "documents", "signals", "verdicts"), 2
    )
    teams = {one.name: one.places for one in costs(planted, "team", {"main.members": "team:a"})}
    assert teams == {"nobody": 11, "team:a": 1}


@pytest.fixture
def pointed(planted: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The commands work on the planted lake."""
    for name, value in planted.properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", str(value))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))


def test_the_commands_say_it(pointed: None, capfd: Said) -> None:
    """A line a namespace, JSON, an exit status for CI, metrics; a wrong name is told."""
    assert run_command(["status"]) == 0
    said = capfd.readouterr().out
    assert (
        "notes" in said
        and "100 not packed by main" in said
        and "0 runs failed in 7 days, 0 wait, 0 run, 0 are dead" in said
    )
    assert run_command(["status", "notes", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["namespaces"][0]["error_share"] == 0.05
    assert run_command(["status", "--check"]) == 3
    assert "thresholds are exceeded; first notes: 5.0% of the arrivals" in capfd.readouterr().err
    assert run_command(["status", "nots"]) == 2
    assert "did you mean 'notes'?" in capfd.readouterr().err
    assert run_command(["status", "--cost", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)[0]["namespace"] == "notes"


def test_a_dataset_is_shown_while_its_first_answers_come(pointed: None, planted: Catalog, capfd: Said) -> None:
    """Before anything of it has landed: answers, reasons and tokens, and what waits for workers."""
    store = AnswerStore(planted, "twin")
    parent = Parent("notes", "a", "text", 0, 4)
    for key, reason in (("1", ""), ("2", ""), ("3", "cut")):
        answer = Answer("words", model="m", tokens_in=5, tokens_out=None if key == "2" else 7)
        request = Request(key, {"max_tokens": 9}, parent, "plain")
        store.write([Attempt(key, 1.0, "answered", "", answer)], [Landed(request, answer, "words", reason)])
    assert run_command(["status", "twin"]) == 0
    said = capfd.readouterr().out
    assert "2 answers accepted; refused: cut 1; 15 + 14 tokens; the usage of 1 answers is not known" in said
    assert run_command(["dataset", "reopen", "twin", "--reason", "cut"]) == 0
    assert "twin: 1 requests are open again (cut 1); next: headrace run twin" in capfd.readouterr().out
    for words, said in (("twin", "no request was refused as 'cut'"), ("twn", "asked for it; did you mean 'twin'?")):
        assert run_command(["dataset", "reopen", words, "--reason", "cut"]) == 2
        assert said in capfd.readouterr().err


def test_prometheus_gets_what_the_dashboard_shows(pointed: None) -> None:
    """Every metric of the dashboard is one that is served."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "dagster_project.cli", "status", "--metrics-port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and str(port) in server.stdout.readline()
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        server.kill()  # another test of this process may have left SIGTERM ignored, which children inherit
    assert f'{METRIC_PREFIX}rejected_share{{namespace="notes",rule="too_long"}} 0.3' in text
    served = {f"{METRIC_PREFIX}{gauge.name}" for gauge in GAUGES} | {RUNS_METRIC}
    assert all(f"# TYPE {name} gauge" in text for name in served)
    shown = {
        word
        for panel in json.loads(DASHBOARD.read_text())["panels"]
        for target in panel["targets"]
        for word in target["expr"].replace("(", " ").replace(")", " ").replace("{", " ").split()
        if word.startswith(METRIC_PREFIX)
    }
    assert shown == served


def test_a_threshold_that_is_not_there_is_told(
    pointed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Said
) -> None:
    """File, field and the nearest name."""
    (tmp_path / "mine").mkdir()
    text = '[tool.dg.project]\nroot_module = "mine"\n[tool.headrace.monitoring]\nerror_shar = 0.1\n'
    (tmp_path / "pyproject.toml").write_text(text)
    monkeypatch.setenv("HEADRACE_PROJECT", str(tmp_path))
    assert run_command(["status"]) == 2
    assert "monitoring.error_shar: " in (said := capfd.readouterr().err) and "did you mean 'error_share'?" in said


FACTS: dict[str, Any] = {"kind": "dataset", "documents": 9, "increments": 2, "last_run": None, "newest": None}
FACTS |= {"rate": None, "unchanged_steps": 0, "tables": 1}
SHARES = st.none() | st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from([0.0, 0.02, 0.3, 1.0]))


@pytest.mark.nightly
@given(new=SHARES, old=SHARES)
def test_what_is_not_measured_is_compared_with_nothing(
    new: dict[str, float] | None, old: dict[str, float] | None
) -> None:
    """Alerts about rejections: of both measured, the rules whose shares are more than the limit apart, else none."""
    status = NamespaceStatus(name="notes", **FACTS, rejected=new, rejected_before=old)
    apart = [] if new is None or old is None else [r for r in "ab" if abs(new.get(r, 0.0) - old.get(r, 0.0)) > 0.05]
    assert [alert.text[0] for alert in _alerts(status, Thresholds(), NOW)] == apart


@pytest.mark.nightly
def test_no_share_of_a_small_increment_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Said
) -> None:
    """Of one document nothing is measured, whatever was rejected before: the check passes and no zero is shown."""
    from headrace.tables.settings import settings_at

    for name, value in settings_at(tmp_path).properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    catalogue = open_catalogue(load_settings())
    long = [{"rule": "too_long", "value": 2.0, "threshold": 1.0}]
    for increment, count in enumerate((200, 1)):
        documents = [{"doc_id": f"{increment} {n}"} for n in range(count)]
        put(catalogue, "notes", ARRIVALS, increment, [{"status": "landed" if not increment else "gone"}] * count)
        put(catalogue, "notes", DOCUMENTS, increment, documents)
        judged = [{"failed": long if n < 80 and not increment else [], "kept": n >= 80} for n in range(count)]
        put(catalogue, "notes", VERDICTS, increment, judged)
        put(catalogue, "notes", SIGNALS, increment, [{"word_count": 100 - 90 * increment}] * count)
        put(catalogue, "main", MEMBERS, increment, documents)
        put(catalogue, "main", SURVIVORS, increment, [] if increment else documents)
    (notes, main) = lake_status(catalogue, Thresholds(), now=NOW)
    unmeasured = (notes.rejected, notes.kept, notes.error_share, main.duplicates)
    assert unmeasured == (None, None, None, None) and notes.rejected_before == {"too_long": 0.4}
    assert not notes.alerts and not main.alerts
    assert run_command(["status", "--check"]) == 0
    said = capfd.readouterr().out
    assert "rejections not measured" in said and "duplicates not measured" in said and "0.0%" not in said
    assert run_command(["status", "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)["namespaces"][0]
    assert [shown[name] for name in ("rejected", "kept", "error_share")] == [None, None, None]


def test_costs_that_were_not_measured_are_none(planted: Catalog, pointed: None, capfd: Said) -> None:
    """The planted rows of the ledger say no seconds of cores."""
    assert {one.core_seconds for one in costs(planted, "namespace", {})} == {None}
    assert run_command(["status", "--cost"]) == 0
    assert "not measured" in capfd.readouterr().out
