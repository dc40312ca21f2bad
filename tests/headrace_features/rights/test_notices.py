"""Opt-outs are met where people look: in the status, on the pages of the explorer, on the page of a document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from dagster_project.cli import run_command
from dagster_project.cli.run.status import lake_registry
from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.document_lookup import find_document
from dagster_project.inspect.lake.automation_health import AutomationHealth
from dagster_project.inspect.notices import noticed_findings, waiting_work
from headrace_features.rights.hits.plan import make_plan
from headrace_features.rights.pages import opt_out, opt_outs
from headrace_features.rights.register.register import add_entries, decide, entries, note_excision
from headrace_features.rights.register.subjects import opt_outs_of
from tests.headrace_features.rights.planted import doc_id_of, make

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """The planted lake with an entry that waits, one that is refused, and one whose documents are out."""
    catalogue = make(tmp_path_factory.mktemp("planted"))
    waits, refused, applied = (
        add_entries(catalogue, opt_outs_of(catalogue, kind, [value], "ann"), NOW - timedelta(days=days))[0].entry  # type: ignore[arg-type]
        for kind, value, days in (("domain", "example.org", 3), ("path", "own.py", 2), ("repository", "ann/tools", 1))
    )
    decide(catalogue, [refused], "refused", "not theirs")
    note_excision(catalogue, {applied: make_plan(catalogue, [applied]).of(applied)})
    assert {entry.entry for entry in entries(catalogue)} == {waits, refused, applied}
    return catalogue


def test_the_status_counts_entries_that_wait(
    catalogue: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the age of the oldest, for people, for programs and for Prometheus."""
    [work] = waiting_work(catalogue)
    assert (work.name, work.number, work.since) == ("opt_outs", 1, entries(catalogue)[0].at)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    registry = lake_registry(list, AutomationHealth, lambda: [work])
    assert registry.get_sample_value("headrace_lake_opt_outs_waiting") == 1
    age = registry.get_sample_value("headrace_lake_opt_outs_waiting_age_seconds")
    assert age is not None and age >= timedelta(days=3).total_seconds()
    monkeypatch.setattr("dagster_project.cli.run.status.lake_catalogue", lambda **_: catalogue)
    assert run_command(["status"]) == 0
    assert "1 opt-outs wait, the oldest for 3 d: headrace rights plan" in capfd.readouterr().out
    assert run_command(["status", "--json"]) == 0
    assert [one["number"] for one in json.loads(capfd.readouterr().out)["waiting"]] == [1]


@pytest.mark.parametrize(
    ("name", "outcome"),
    [("page", "named"), ("t#rephrased", "taken_out"), ("bob/tools:own.py", "taken_out"), ("zed/more:alone.py", None)],
)
def test_a_document_says_which_entry_names_it(catalogue: Catalog, name: str, outcome: str | None) -> None:
    """Or for which it was taken out, and how that reached it; a refused entry names nothing."""
    found = list(noticed_findings(catalogue, find_document(catalogue, doc_id_of(name))))
    assert [one.outcome for one in found] == ([outcome] if outcome else [])


def request(catalogue: Catalog, query: Mapping[str, str] = {}, hidden: str = "", **parts: str) -> Any:
    """A reader who may see all but one dataset."""
    may_read = lambda namespace: namespace != hidden  # noqa: E731
    return SimpleNamespace(
        catalogue=catalogue, query=query, parts=parts, may_read=may_read, require=lambda *tables: None, principal="me"
    )


def test_pages_list_entries_and_what_each_hit(catalogue: Catalog) -> None:
    """Those that wait first; documents of datasets that the reader may not see are counted alone."""
    shown = opt_outs(request(catalogue)).values
    assert [line["state"] for line in shown["entries"]] == ["waiting", "refused", "applied"]
    assert [line["hit"] for line in shown["entries"]] == [None, None, 11]
    [applied] = opt_outs(request(catalogue, {"state": "applied"})).values["entries"]
    page = opt_out(request(catalogue, hidden="web", entry=applied["entry"])).values
    assert (page["document_count"], page["hidden"]) == (9, 2) and [row["act"] for row in page["rows"]] == [
        "entry",
        "excision",
    ]
    assert json.dumps([shown, page])  # plain values: moments are texts
    with pytest.raises(CommandError, match="no entry"):
        opt_out(request(catalogue, entry="nothing"))
