"""Losses by document, by group and of a step, against loops over rows; by a step of a corpus they are the same."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from starlette.testclient import TestClient

from blender_service.blend.store import open_store
from blender_service.server.run_register import RunRegister
from dagster_project.cli.run.runs import runs as runs_command
from dagster_project.exceptions import CommandError
from headrace_features.losses import reading
from headrace_features.losses.document_losses import by_document
from headrace_features.losses.reading import groups, segments_of_step, worst
from headrace_features.losses.tables import counting
from spark_jobs.dedup.membership.members import MEMBERS
from spark_jobs.sources.documents import DOCUMENTS
from tests.blender_service.packed_tables import open_lake
from tests.dagster_project.inspect.test_lake_status import put
from tests.headrace_features.explore.served import asked, pages
from tests.headrace_features.losses.written import Rows, counted, draw_rows, table_of, write
from tests.tiers import tries

COMMITS = [draw_rows(1, 60), draw_rows(2, 30)]


def close(row: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether a document has the wanted losses."""
    return all(
        row[name] is None if value is None else row[name] == pytest.approx(value, rel=1e-6, abs=1e-6)
        for name, value in wanted.items()
    )


@given(st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 60)), min_size=1, max_size=4))
@settings(max_examples=tries(100), deadline=None)
def test_documents_are_added_up_as_a_loop_does(drawn: list[tuple[int, int]]) -> None:
    """Of any rows in any number of commits; what is not finite does not count."""
    commits = [draw_rows(seed, count) for seed, count in drawn]
    # Of rows of one commit for one segment any counts; here there is one.
    commits = [[*{(row["run"], row["offset"], row["segment"]): row for row in rows}.values()] for rows in commits]
    together = pa.concat_tables([table_of(rows, number) for number, rows in enumerate(commits)])
    of_run = counting(together.filter(pa.compute.equal(together["run"], "r1")))
    found = {row["doc_id"]: row for row in by_document(of_run).to_pylist()}
    wanted = counted(commits, "r1")
    assert found.keys() == wanted.keys()
    assert all(close(found[doc_id], facts) for doc_id, facts in wanted.items())


def unique(rows: Rows) -> Rows:
    """One row of each segment."""
    return [*{(row["run"], row["offset"], row["segment"]): row for row in rows}.values()]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a lake with losses."""
    return tmp_path_factory.mktemp("losses")


@pytest.fixture(scope="module")
def lake(root: Path) -> Catalog:
    """Two commits of losses of two runs, one of them in the register."""
    catalogue = open_lake(root / "warehouse")
    put(catalogue, "notes", DOCUMENTS, 0, [{"doc_id": "d1", "path": "a.txt"}])
    put(catalogue, "main", MEMBERS, 0, [{"dataset": "notes", "doc_id": "d1"}], config='{"datasets": ["notes"]}')
    for rows in COMMITS:
        write(catalogue, unique(rows))
    facts = {
        "blend": "b" * 64, "first": 0, "began": "2026-01-01T00:00:00+00:00", "principal": "ann", "world_size": 1,
        "step_rows": 3, "code_version": "", "notes": "", "end": 9, "status": "OK",
    }  # fmt: skip
    RunRegister(open_store(catalogue).objects).write("r1", "20260101T000000000000-00000000.began", facts)
    return catalogue


def test_segments_of_a_step_come_by_loss(lake: Catalog) -> None:
    """Each segment of its rows once, as last committed, the highest first; what is no number is above all."""
    newest = {(row["offset"], row["segment"]): row for rows in COMMITS for row in unique(rows) if row["run"] == "r1"}
    wanted = [row for (offset, _), row in newest.items() if 3 <= offset < 6]
    found = segments_of_step(lake, "r1", 3, 3)
    losses = [math.inf if math.isnan(row["loss"]) else row["loss"] for row in found]
    assert losses == sorted(losses, reverse=True)
    assert sorted((row["offset"], row["segment"]) for row in found) == sorted(
        (row["offset"], row["segment"]) for row in wanted
    )
    with pytest.raises(CommandError, match="no loss of rows 90 to 92"):
        segments_of_step(lake, "r1", 90, 3)


@pytest.mark.parametrize("by", ["loss", "excess", "fall"])
def test_the_worst_documents_come_first(lake: Catalog, by: str) -> None:
    """By loss, by what is above their steps, or by fall; without a fall they are left out."""
    wanted = counted([unique(rows) for rows in COMMITS], "r1")
    values = sorted((facts[by] for facts in wanted.values() if facts[by] is not None), reverse=True)
    found = worst(lake, "r1", by, 5)
    assert [row[by] for row in found] == pytest.approx(values[:5], rel=1e-6)
    with pytest.raises(CommandError, match="no order"):
        worst(lake, "r1", "size", 5)


def test_sources_are_means_of_their_tokens(lake: Catalog) -> None:
    """Of documents of each source, the highest loss first."""
    rows = worst(lake, "r1", "loss", 1000)
    lines = groups(lake, "r1", "source")
    assert sum(line["documents"] for line in lines) == len(rows)
    assert [line["loss"] for line in lines] == sorted((line["loss"] for line in lines), reverse=True)
    for line in lines:
        those = [row for row in rows if row["source"] == line["group"]]
        tokens = sum(row["tokens"] for row in those)
        assert line["loss"] == pytest.approx(sum(row["loss"] * row["tokens"] for row in those) / tokens)
    for by, why in (("cell", "no cells"), ("rule", "no policy"), ("size", "nothing")):
        with pytest.raises(CommandError, match=why):
            groups(lake, "r1", by)


def test_many_rows_are_for_a_step(lake: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says which, where there are more rows than somebody waits for."""
    monkeypatch.setattr(reading, "MOST_ROWS", 3)
    with pytest.raises(CommandError, match=r"declare losses: \{run: r1\} for the corpus main"):
        worst(lake, "r1", "loss", 5)
    with pytest.raises(CommandError, match="wrote no losses down"):
        worst(lake, "another", "loss", 5)


def test_pages_show_runs_documents_and_steps(lake: Catalog, root: Path) -> None:
    """As HTML and as values, of tables that the reader may see alone."""
    client: TestClient = pages(lake, root)
    page = asked(client, "/losses/r1?sort=fall")
    assert [row["fall"] for row in page["documents"]] == sorted((r["fall"] for r in page["documents"]), reverse=True)
    assert asked(client, "/losses/r1/at/3?rows=3")["segment_count"] == len(segments_of_step(lake, "r1", 3, 3))
    assert client.get("/losses/r1/at/3?rows=x").status_code in (400, 404)
    assert [line["group"] for line in asked(client, "/losses/r1/by/source")["groups"]] == [
        line["group"] for line in groups(lake, "r1", "source")
    ]
    hidden = pages(lake, root, reader=lambda principal: lambda table: False)
    assert hidden.get("/losses/r1").status_code != 200
    assert asked(client, "/losses")["runs"] == []  # the blend of r1 is not there


def test_the_command_shows_documents_and_steps(lake: Catalog, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`headrace runs --worst r1`, and `--at` a step of it."""
    from dagster_project.cli.run import runs

    monkeypatch.setattr(runs, "lake_catalogue", lambda: lake)
    done = CliRunner().invoke(runs_command, ["--worst", "r1", "--limit", "4", "--json"], catch_exceptions=False)
    assert [row["loss"] for row in json.loads(done.output)] == [row["loss"] for row in worst(lake, "r1", "loss", 4)]
    done = CliRunner().invoke(runs_command, ["--worst", "r1", "--at", "1", "--json"], catch_exceptions=False)
    assert {row["offset"] for row in json.loads(done.output)} <= {3, 4, 5}
    with pytest.raises(CommandError, match="has the steps 0 to 2"):
        CliRunner().invoke(runs_command, ["--worst", "r1", "--at", "7"], catch_exceptions=False)
