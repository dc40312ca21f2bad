"""A blend's page says what its order gives; a batch says which documents it holds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from blender_service.blend.requests import BlendSpec, SourceChange, SourceSpec, Stage, UpdateSpec
from blender_service.server.blender import Blender
from spark_jobs.dedup.membership.members import MEMBERS
from spark_jobs.lake.session.catalogue import ensure_table
from spark_jobs.sources.documents import DOCUMENTS
from tests.blender_service.packed_tables import PackedFixture, create_packed, open_lake
from tests.dagster_project.inspect.test_lake_status import put
from tests.headrace_features.explore.served import asked, pages


@dataclass(frozen=True)
class Mixed:
    """Two packed tables and their blends.

    Attributes:
        few: of 20 rows, which run out.
        many: of 90.
        blender: of the lake.
        ended: a blend that goes on without `few`.
        endless: one without end.
    """

    few: PackedFixture
    many: PackedFixture
    blender: Blender
    ended: str
    endless: str


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Mixed:
    """The tables, the blends, and a document of the first row of `few`."""
    catalogue = open_lake(tmp_path_factory.mktemp("blends"))
    few = create_packed(catalogue, "main.packed_few_16").append(20, 1)
    many = create_packed(catalogue, "main.packed_many_16").append(90, 2)
    ensure_table(catalogue, "main.members", MEMBERS, {})
    known = {"doc_id": few.rows[0].segments[0][0], "path": "a<b>.txt", "repository": "shelf", "licence": "MIT"}
    put(catalogue, "few", DOCUMENTS, 0, [known])
    blender = Blender(catalogue)
    sources = (
        SourceSpec(few.identifier, "1", "few", max_epochs=2, on_exhausted="CONTINUE"),
        SourceSpec(many.identifier, "2", "many", max_epochs=2),
    )
    ended = blender.create(BlendSpec(sources=sources, seed=3, name="ended"))
    round_and_round = (SourceSpec(few.identifier, "1", "few", max_epochs=0),)
    endless = blender.create(BlendSpec(sources=round_and_round, seed=3))
    return Mixed(few, many, blender, ended.blend_id, endless.blend_id)


@pytest.fixture(scope="module")
def client(lake: Mixed, tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """Its pages."""
    return pages(lake.few.catalogue, tmp_path_factory.mktemp("pages"))


def test_the_list_has_every_blend(lake: Mixed, client: TestClient) -> None:
    """Names, ends, and shares by weight."""
    rows = {row["blend_id"]: row for row in asked(client, "/blends")["blends"]}
    assert rows.keys() >= {lake.ended, lake.endless}
    assert (rows[lake.ended]["names"], rows[lake.ended]["end"]) == (["ended"], 40 + 180)
    assert [one["share"] for one in rows[lake.ended]["sources"]] == pytest.approx([1 / 3, 2 / 3])
    assert rows[lake.endless]["end"] is None


def test_the_mix_is_what_the_rows_are(lake: Mixed, client: TestClient) -> None:
    """Rows of each source up to each offset are counted one by one; a source that ran out takes no part of the rest."""
    found = asked(client, "/blends/ended")
    resolved = lake.blender.order(lake.ended).resolve(np.arange(220))
    for step in found["mix"]:
        counts = np.bincount(resolved.source[: step["offset"]], minlength=2)
        assert step["rows"] == counts.tolist()
        assert np.abs(counts - step["expected_rows"]).max() < 2
    assert (found["to"], found["mix"][-1]["offset"]) == (220, 220)
    next_slot = int(np.flatnonzero(resolved.source == 0)[-1]) + 3  # one of three rows is its own
    assert found["sources"][0]["runs_out_at"] == next_slot
    page = client.get("/blends/ended").text
    heights = [float(one) for one in re.findall(r'<rect class="c0"[^>]*height="([\d.]+)"', page)]
    assert heights[0] == pytest.approx(60, abs=25)
    assert heights[-1] == 0
    assert "few runs out" in page
    assert found["endings"][0] == f"few runs out at row {next_slot}: the blend goes on without it"
    assert found["endings"][1:] == ["many runs out at row 220: the blend ends", "every row of every source is read"]
    assert found["endings"][0] in page


def test_a_blend_without_end_is_shown_for_one_epoch(lake: Mixed, client: TestClient) -> None:
    """Or as far as the address says."""
    assert asked(client, f"/blends/{lake.endless}")["to"] == 20
    far = asked(client, f"/blends/{lake.endless}?to=2000&at=50")
    assert (far["to"], far["at"], far["sources"][0]["rows"], far["sources"][0]["epochs"]) == (2000, 50, 50, 2.5)
    assert len(far["mix"]) == 49


def test_a_batch_holds_the_rows_of_its_offsets(lake: Mixed, client: TestClient) -> None:
    """Source, epoch, window and documents are those of the packed tables; the pages follow one another to the end."""
    resolved = lake.blender.order(lake.ended).resolve(np.arange(220))
    path, seen = "/blends/ended/rows/0?rows=64", 0
    while path:
        found = asked(client, path)
        for row in found["rows"]:
            table = (lake.few, lake.many)[resolved.source[row["offset"]]]
            assert (row["table"], row["ordinal"]) == (table.identifier, resolved.ordinal[row["offset"]])
            assert row["epoch"] == resolved.epoch[row["offset"]]
            wanted = [segment[0] for segment in table.rows[row["ordinal"]].segments]
            assert [one["doc_id"] for one in row["segments"]] == wanted
            assert row["offset"] == seen
            seen += 1
        path = (found["next"] or "").replace(lake.ended, "ended")
    assert seen == 220
    offset = int(np.flatnonzero((resolved.source == 0) & (resolved.ordinal == 0))[0])
    page = client.get(f"/blends/ended/rows/{offset}?rows=1").text
    assert "a&lt;b&gt;.txt" in page
    assert 'href="/windows/main.packed_few_16/0"' in page


def test_an_update_shows_its_weights_and_its_parent(lake: Mixed, client: TestClient) -> None:
    """From the offset on."""
    stage = Stage(30, (SourceChange(name="few", weight="5"), SourceChange(name="many", weight="1")))
    child = lake.blender.update(UpdateSpec(parent=lake.ended, stages=(stage,)))
    found = asked(client, f"/blends/{child.blend_id}")
    assert (found["parent"], found["from_offset"]) == (lake.ended, "30")
    assert [one["start"] for one in found["segments"]][:2] == [0, 30]
    assert f'href="/blends/{lake.ended}"' in client.get(f"/blends/{child.blend_id}").text


def test_blends_of_others_do_not_exist(lake: Mixed, tmp_path: Path) -> None:
    """Who may not read a table of a blend sees neither it nor its rows."""
    one = pages(lake.few.catalogue, tmp_path, reader=lambda who: lambda table: not table.startswith(("main", "few")))
    assert asked(one, "/blends")["blends"] == []
    for path in ("/blends/ended", "/blends/ended/rows/0"):
        assert one.get(path).status_code == 404


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/blends/nothing", "does not exist"),
        ("/blends/ended/rows/220", "220"),
        ("/blends/ended/rows/0?rows=100", "give 1 to 64"),
        ("/blends/ended?at=221", "beyond its end 220"),
        ("/blends/ended?to=x", "to=x is no whole number"),
        ("/blends/ended/rows?offset=-1", "offset=-1 is no whole number"),
    ],
)
def test_mistakes_are_told_in_one_line(client: TestClient, path: str, said: str) -> None:
    """What is wrong, on a page."""
    answer = client.get(path)
    assert answer.status_code == 404
    assert said in answer.text
