"""What a dataset declares about age: checked when it loads, told by the status, done by maintenance."""

from __future__ import annotations

import io
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pyiceberg.catalog import Catalog

from dagster_project.cli import run_command
from dagster_project.deletion import increments, retention
from dagster_project.inspect.lake.alert_thresholds import Thresholds
from dagster_project.inspect.lake.lake_status import lake_status
from dagster_project.keeping import Retention, overdue
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.run import maintenance
from tests.dagster_project.conftest import WriteDefs
from tests.dagster_project.test_increment_deletion import rows, small_lake
from tests.dagster_project.waiting_lake import SEEN, TEXTS, publish
from tests.headrace_features.privacy.test_quarantine import acts, dataset, states
from tests.headrace_features.privacy.test_quarantine import lake as lake_that_waits

__all__ = ["lake_that_waits"]
Said = pytest.CaptureFixture[str]


@pytest.fixture
def lake(lake_env: Path) -> Catalog:
    """A lake with two increments of `web`, which keeps bytes."""
    return small_lake(lake_env)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("freeze_after: {days: 90, to: /cold}", "dataset web: freeze_after moves kept bytes; declare `landing: copy`"),
        ("landing: copy\n  freeze_after: {days: 90}", "dataset web: freeze_after: config to"),
        ("landing: copy\n  freeze_after: {day: 90, to: /cold}", "did you mean 'days'?"),
        ("retention: {days: 0}", "dataset web: retention: config days"),
        ("retention: {days: 1000000}", "dataset web: retention: config days"),  # before the year 1
        ("retention: {days: 9, then: forget}", "dataset web: retention: config then"),
    ],
)
def test_a_declaration_that_cannot_be_used_is_refused(
    declare: WriteDefs, lake_env: Path, capfd: Said, declared: str, message: str
) -> None:
    """By the status, which reads the file, and when definitions load."""
    declare("web", dataset(more=declared))
    for command in (["status"], ["maintain", "--only", "retention"]):
        assert run_command(command) == 2
        assert message in capfd.readouterr().err


def test_old_increments_are_named_until_they_are_deleted(declare: WriteDefs, lake: Catalog, capfd: Said) -> None:
    """By the status, its check and its metrics; with `delete`, maintenance deletes them, each once."""
    declare("web", dataset(more="landing: copy\n  retention: {days: 1.0e-9}"))
    (status,) = lake_status(lake, Thresholds(), retention={"web": Retention(days=1e-9)})
    assert status.overdue == (0, 1)
    assert run_command(["status", "--check"]) == 3
    assert "2 increments are older than their retention" in capfd.readouterr().out
    assert run_command(["status", "--prometheus"]) == 0
    assert 'headrace_lake_overdue_increments{namespace="web"} 2.0' in capfd.readouterr().out
    assert run_command(["maintain", "--only", "retention"]) == 0 and acts(lake) == []
    declare("web", dataset(more="landing: copy\n  retention: {days: 1.0e-9, then: delete}"))
    assert run_command(["maintain", "--only", "retention", "--dry-run"]) == 0 and acts(lake) == []
    assert "to delete" in capfd.readouterr().out
    for _ in range(2):
        assert run_command(["maintain", "--only", "retention"]) == 0
    why = "retention: 1e-09 days"
    assert acts(lake) == [("delete", "web", 0, why), ("delete", "web", 1, why)] and rows(lake, "documents") == []
    assert run_command(["status", "--check"]) == 0


@pytest.mark.nightly
def test_the_age_is_that_of_the_first_landing_of_the_table_there_is(lake: Catalog) -> None:
    """A row that is recorded again changes nothing; a dropped table of the same name does not make the new one old."""
    ledger, now = Ledger.fresh(lake), datetime.now(UTC)
    assert list(overdue(ledger, "web", 1, now + timedelta(days=2))) == [0, 1]
    assert overdue(ledger, "web", 1, now) == overdue(ledger, "none", 1, now) == {}
    ledger.record([ledger.increments("web.arrivals")[0]], now=now - timedelta(days=400))
    ledger.record([ledger.increments("web.arrivals")[0]], now=now)
    assert list(overdue(Ledger.fresh(lake), "web", 365, now)) == [0]
    lake.drop_table("web.arrivals")
    publish(lake, "web", SEEN, 0, [{"location": "/a", "status": "landed"}])
    assert overdue(Ledger.fresh(lake), "web", 365, now) == {}


@pytest.mark.nightly
def test_bytes_freeze_as_declared_and_come_back(declare: WriteDefs, lake: Catalog, tmp_path: Path, capfd: Said) -> None:
    """By maintenance, and by the command, which takes what is declared where nothing else is said."""
    folder = ObjectFolder.of(lake, "web")
    declare("web", dataset(more="landing: copy"))
    assert run_command(["dataset", "archive", "web"]) == 2
    assert "give --to and --days, or declare `freeze_after" in capfd.readouterr().err
    declare("web", dataset(more=f"landing: copy\n  freeze_after: {{days: 30, to: {tmp_path}/cold}}"))
    os.utime(folder.older(float("inf"))[0], (1000, 1000))
    assert run_command(["maintain", "--only", "freezing", "--dry-run"]) == 0
    assert "1 objects to move" in capfd.readouterr().out and len(folder.older(float("inf"))) == 3
    assert run_command(["maintain", "--only", "freezing"]) == 0 and len(folder.older(float("inf"))) == 2
    assert run_command(["dataset", "archive", "web", "--thaw"]) == 0 and len(folder.older(float("inf"))) == 3
    assert run_command(["dataset", "archive", "web", "--days", "0"]) == 0 and folder.older(float("inf")) == []
    assert folder.cold_folders() == [f"{tmp_path}/cold/web"]


@pytest.mark.nightly
def test_maintenance_starts_no_engine(
    declare: WriteDefs, lake: Catalog, tmp_path: Path, capfd: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No task, as docs/operate/monitoring.md says, but `retention` where documents that go are in windows."""

    def start(*_: object) -> None:
        raise AssertionError("an engine is started")

    monkeypatch.setattr("spark_jobs.lake.session.session.start_session", start)
    keeps = "landing: copy\n  retention: {days: 1.0e-9, then: delete}\n  freeze_after: {days: 0, to: "
    declare("web", dataset(more=f"{keeps}{tmp_path}/cold}}"))
    assert run_command(["maintain", "--days", "0"]) == 0
    assert {line.split()[0] for line in capfd.readouterr().out.splitlines()} == retention.TASKS.keys()


def test_an_object_store_moves_its_own_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """So `freeze_after`, which a project declares for its laptops too, is left there and named; nothing fails."""
    monkeypatch.setattr(retention, "require_own", lambda _: None)
    declared = {"web": retention.Keeping(freezing=retention.Freezing(days=1, to="/cold"))}
    lake: Any = Mock(catalogue=Mock(properties={"warehouse": "s3://lake/lake"}))
    (done,) = retention.freeze_old(lake, 7, False, declared)
    assert done.is_left and done.error is None and done.text.startswith("s3://lake/lake/web/")


@pytest.mark.nightly
def test_what_fails_of_one_dataset_stops_no_other(
    declare: WriteDefs, lake: Catalog, tmp_path: Path, capfd: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its freezing, to a folder that cannot be written, nor a deletion; paths are as definitions have them."""
    publish(lake, "bad", SEEN, 0, [{"location": "/a", "status": "landed"}])
    publish(lake, "bad", TEXTS, 0, [{"doc_id": "a", "content": "a"}])
    ObjectFolder.of(lake, "bad").keep(io.BytesIO(b"a"))
    (tmp_path / "file").touch()
    keeps = "landing: copy\n  retention: {days: 1.0e-9, then: delete}\n  freeze_after: {days: 0, to: "
    declare("bad", dataset("bad", more=f"{keeps}{tmp_path}/file/cold}}"))
    declare("web", dataset(more=f"{keeps}'{{{{ project_root }}}}/cold'}}"))
    assert run_command(["maintain", "--only", "freezing"]) == 4
    said = capfd.readouterr().err
    assert re.search(r"freezing +bad +failed: ", said) and "1 failed, as said above" in said
    (cold,) = ObjectFolder.of(lake, "web").cold_folders()
    assert cold.endswith("/cold/web") and os.path.isdir(cold) and "{" not in cold
    planned = increments.plan_increment

    def plan(catalogue: Catalog, name: str, number: int) -> increments.IncrementDeletion:
        if name == "bad":
            raise OSError("the store is away")
        return planned(catalogue, name, number)

    monkeypatch.setattr(increments, "plan_increment", plan)
    monkeypatch.setattr(maintenance, "remove_orphans", lambda *_: 1 / 0)
    assert run_command(["maintain", "--only", "orphans", "--only", "retention"]) == 4, "the task before it failed whole"
    said = capfd.readouterr().err
    assert re.search(r"retention +bad +failed: the store is away", said)
    assert "division by zero" in said and said.endswith("then: headrace maintain --only orphans --only retention\n")
    assert rows(lake, "documents") == [] and {subject for _, subject, *_ in acts(lake)} == {"web"}
    assert [file for file in Path(cold).rglob("*") if file.is_file()] == [], "cold bytes went along"


@pytest.mark.nightly
def test_a_deleted_increment_is_not_in_quarantine_and_other_decisions_stay(
    declare: WriteDefs, lake_that_waits: Catalog, capfd: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor can it be released; the command names what to do next, and refuses what has no reason."""
    from spark_jobs.lake.plan.decisions import REFUSE, decide
    from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY

    declare("web", dataset())
    decide(lake_that_waits, "web", [0], REFUSE, "from whom?")
    with lake_that_waits.load_table("web_quarantine.documents").transaction() as change:
        change.set_properties({SCOPE_PROPERTY: "history"})
    monkeypatch.setattr(increments, "tombstones", lambda rows, _: list(rows))
    monkeypatch.setattr(increments.Gone, "of", lambda *_: increments.Gone(frozenset(), frozenset(), ()))
    asked = ["dataset", "delete", "web", "--increment", "1"]
    assert run_command([*asked, "--plan"]) == 0 and run_command([*asked, "--yes"]) == 2
    assert "give --yes --reason" in capfd.readouterr().err and states(lake_that_waits)[1] == "waits"
    assert run_command([*asked, "--yes", "--reason", "malware"]) == 0
    assert "next: headrace run web" in capfd.readouterr().out
    assert states(lake_that_waits) == {0: "refuse"}
