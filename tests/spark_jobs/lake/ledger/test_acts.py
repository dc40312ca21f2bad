"""An act of somebody is a row that says who did what, when, how and why."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.tables.settings import settings_at
from spark_jobs.lake.ledger import acts
from spark_jobs.lake.ledger.acts import AUDIT_TABLE, note_act
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, open_catalogue


def test_an_act_is_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the user and the clock where nobody says otherwise; the table is no step's, and is tidied."""
    catalogue, tidied = open_catalogue(settings_at(tmp_path)), []
    monkeypatch.setattr(sys, "argv", ["/bin/headrace", "dataset", "delete", "web"])
    monkeypatch.setattr(acts, "user_name", lambda: "ann")
    monkeypatch.setattr(acts, "tidy", lambda *arguments: tidied.append(arguments))
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    before = datetime.now(UTC)
    note_act(catalogue, "delete", "web")
    after = datetime.now(UTC)
    note_act(catalogue, "release", "web", why="read", increment=0, version="v2:1", who="policy", now=noon)
    table = catalogue.load_table(AUDIT_TABLE)
    second, first = table.scan().to_arrow().sort_by("at").to_pylist()
    assert before <= first.pop("at") <= after
    how = "headrace dataset delete web"
    assert first == {"who": "ann", "act": "delete", "subject": "web", "how": how} | dict.fromkeys(
        ("increment", "version", "why", "doc_id", "tag")
    )
    assert second == {
        "at": noon, "who": "policy", "act": "release", "subject": "web", "how": how, "increment": 0, "version": "v2:1",
        "why": "read", "doc_id": None, "tag": None,
    }  # fmt: skip
    assert table.properties[SCOPE_PROPERTY] == "audit"
    assert [len(arguments) for arguments in tidied] == [2, 2] and tidied[0][0] is catalogue


def test_columns_that_came_later_are_added(tmp_path: Path) -> None:
    """A lake of an earlier version has fewer of them."""
    catalogue = open_catalogue(settings_at(tmp_path))
    note_act(catalogue, "read", "web")
    with catalogue.load_table(AUDIT_TABLE).update_schema() as change:
        change.delete_column("why")
    note_act(catalogue, "read", "web", why="to see")
    rows = catalogue.load_table(AUDIT_TABLE).scan().to_arrow().to_pylist()
    assert sorted(str(row["why"]) for row in rows) == ["None", "to see"]
