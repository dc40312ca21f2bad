"""Applying takes out what a plan says and nothing else, and may be killed anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from dagster_project.cli import run_command
from dagster_project.project.loading import open_lake
from headrace_features.rights.hits import applying
from headrace_features.rights.hits.plan import make_plan
from headrace_features.rights.proof.statement import statement_of
from headrace_features.rights.register.register import Entry, add_entries, entries, read_log
from headrace_features.rights.register.subjects import opt_outs_of
from spark_jobs.lake.files.lookups import EVERYTHING, read_rows
from spark_jobs.lake.ledger.acts import AUDIT_TABLE
from spark_jobs.lake.plan.excisions import excised_documents
from tests.headrace_features.rights.planted import PACKED, doc_id_of, make, rows_of
from tests.tiers import sampled

STEPS = ("_begun", "_note_audit", "record_excisions", "forget_derived", "_excise", "_changed", "note_excision")
ANN = ("ann/tools:a.py", "ann/tools:b.py", "bob/tools:a.py", "bob/tools:own.py", "zed/more:near.py")


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """The planted lake, which commands open too."""
    from headrace.tables.settings import settings_at

    catalogue = make(tmp_path)
    for name, value in settings_at(tmp_path).properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    return catalogue


def enter(catalogue: Catalog) -> list[Entry]:
    """Two entries, of which one hits nothing."""
    asked = opt_outs_of(catalogue, "repository", ["ann/tools", "nobody/nothing"], "ann", request="ticket 1")
    return add_entries(catalogue, asked)


def excisions(catalogue: Catalog) -> list[dict[str, Any]]:
    """The excision rows of the register, without what differs between runs."""
    details = [json.loads(row["detail"]) for row in read_log(catalogue) if row["act"] == "excision"]
    return [{key: value for key, value in detail.items() if key not in ("run_id", "tables")} for detail in details]


def acts(catalogue: Catalog) -> list[str]:
    """Subjects of the audit's rows, sorted."""
    return sorted(row["subject"] for row in read_rows(catalogue, AUDIT_TABLE, ("subject",), EVERYTHING))


def test_what_is_hit_goes_and_all_other_windows_are_as_they_were(catalogue: Catalog) -> None:
    """Row by row; the register, the audit and the list of excisions have it, and what comes later is found again."""
    before, asked = rows_of(catalogue), enter(catalogue)
    planned = make_plan(catalogue)
    gone = planned.hits.doc_ids
    hit = planned.of(asked[0].entry)
    assert run_command(["rights", "apply", "--yes"]) == 0
    after = rows_of(catalogue)
    assert len(before) == len(after)
    for old, new in zip(before, after, strict=True):
        if gone.isdisjoint(part["doc_id"] for part in old["segments"]):
            assert old == new
        kept = [part for part in old["segments"] if part["doc_id"] not in gone]
        assert [part["doc_id"] for part in new["segments"]] == [part["doc_id"] for part in kept]
    assert excised_documents(catalogue, None) == gone >= {doc_id_of(name) for name in ANN}
    assert [entry.state for entry in entries(catalogue)] == ["applied", "applied"]
    assert acts(catalogue) == sorted(f"opt-out {entry.entry}" for entry in asked)
    first, second = excisions(catalogue)
    assert first["documents"] == hit["documents"] and first["windows"] == hit["windows"] and not second["documents"]
    row = next(r for r in read_log(catalogue) if r["act"] == "excision" and r["entry"] == asked[0].entry)
    changed = json.loads(row["detail"])["tables"]
    head = catalogue.load_table(PACKED).current_snapshot()
    assert head is not None and [part["new_snapshot"] for part in changed] == [str(head.snapshot_id)]
    assert run_command(["rights", "apply", "--yes"]) == 0 and len(excisions(catalogue)) == 2
    stated = statement_of(catalogue, asked[0].entry)
    assert stated["verdict"] == "absent" and len(stated["documents"]) == len(hit["documents"])
    again = make_plan(catalogue, every=True).of(asked[0].entry)
    assert not again["windows"] and all(document["out"] for document in again["documents"])


@sampled(2)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_command_is_finished_by_the_same_one(
    catalogue: Catalog, monkeypatch: pytest.MonkeyPatch, step: str, when: str
) -> None:
    """The end is that of a command that nobody killed: one excision an entry, one row of the audit, equal windows."""
    asked = enter(catalogue)
    hit = make_plan(catalogue).of(asked[0].entry)
    real: Callable[..., Any] = getattr(applying, step)

    def dies(*arguments: Any, **named: Any) -> Any:
        if when == "before":
            raise KeyboardInterrupt
        done = real(*arguments, **named)
        if done is not None and not isinstance(done, dict | list | int):
            list(done)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(applying, step, dies)
        assert run_command(["rights", "apply", "--yes"]) == 130
    assert run_command(["rights", "apply", "--yes"]) == 0
    assert acts(catalogue) == sorted(f"opt-out {entry.entry}" for entry in asked)
    first, second = excisions(catalogue)
    assert [d["doc_id"] for d in first["documents"]] == [d["doc_id"] for d in hit["documents"]]
    assert first["windows"] == hit["windows"] and not second["documents"]
    left = {part["doc_id"] for row in rows_of(catalogue) for part in row["segments"]}
    assert left.isdisjoint(document["doc_id"] for document in hit["documents"]) and left


def test_commands_at_once_write_a_row_for_each_entry(catalogue: Catalog) -> None:
    """Both planned before either was done; who comes last finds that nothing is left to note."""
    enter(catalogue)
    lake = open_lake("rights apply")
    plans = [make_plan(catalogue) for _ in range(2)]
    told = [list(applying.apply_plan(lake, plan)) for plan in plans]
    assert all(told) and len(excisions(catalogue)) == len(acts(catalogue)) == 2
