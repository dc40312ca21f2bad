"""The map of cells adds up what they hold and what blends read of them, and its squares open their documents."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from starlette.testclient import TestClient

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.server.blender import Blender
from dagster_project.exceptions import CommandError
from headrace.tables.cells import cell_text, cell_values, parse_choice
from headrace_features.composition.cell_map import CellFacts, cell_facts, dimensions_of, squares, with_reads
from headrace_features.composition.picture import draw_cells
from headrace_features.composition.statistics import CELL_STATISTICS
from spark_jobs.dedup.membership.members import MEMBERS
from spark_jobs.packing.cells import CELLS
from spark_jobs.sources.documents import DOCUMENTS
from tests.blender_service.packed_tables import create_packed, open_lake
from tests.dagster_project.inspect.test_lake_status import put
from tests.headrace_features.explore.served import asked, pages

THERE = [cell_text({"quality": quality, "topic": topic}) for quality in (0, 1, 2, None) for topic in ("<law>", None)]
COUNTS = {cell: 3 + 2 * at for at, cell in enumerate(THERE)}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """Eight cells in two increments, a packed table of them, and two blends."""
    catalogue = open_lake(tmp_path_factory.mktemp("cells"))
    put(catalogue, "notes", DOCUMENTS, 0, [{"doc_id": "d0", "path": "a.txt"}])
    named = [{"dataset": "notes", "doc_id": f"d{at}", "path": f"<{at}>.txt"} for at in range(8)]
    put(catalogue, "main", MEMBERS, 0, named, config=json.dumps({"datasets": ["notes"]}))
    put(catalogue, "main", CELLS, 0, [{"dataset": "notes", "doc_id": f"d{at}", "cell": THERE[at]} for at in range(8)])
    for increment in (0, 1):
        rows = [
            {"dataset": "notes", "cell": cell, "documents": count, "bytes": 100 * count, "tokens": 10 * count,
             "means": {"quality": None if cell_values(cell)["quality"] is None else 0.5 + increment}}
            for cell, count in COUNTS.items()
        ]  # fmt: skip
        put(catalogue, "main", CELL_STATISTICS, increment, rows)
    create_packed(catalogue, "main.packed_notes_16", cells=True).append_cells(1, 0, COUNTS, files=2)
    blender = Blender(catalogue)
    table = "main.packed_notes_16"
    best = (
        SourceSpec(f"{table}[quality=2]", "3", max_epochs=3),
        SourceSpec(f"{table}[quality<2]", on_exhausted="CONTINUE"),
    )
    blender.create(BlendSpec(best, name="best"))
    blender.create(BlendSpec((SourceSpec(table),), name="all"))
    return catalogue


@pytest.fixture(scope="module")
def client(lake: Catalog, tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """Its pages."""
    return pages(lake, tmp_path_factory.mktemp("explore"))


def test_squares_add_up_the_cells(lake: Catalog) -> None:
    """Of both increments; of one dimension and of two, those without a value last."""
    facts = cell_facts(lake, "main")
    assert dimensions_of(facts) == ["quality", "topic"]
    by_both = squares(facts, "quality", "topic", "tokens")
    assert [(square.down, square.across, square.value) for square in by_both] == [
        (cell_values(cell)["quality"], cell_values(cell)["topic"], 20 * COUNTS[cell]) for cell in THERE
    ]
    by_topic = squares(facts, "topic", None, "documents")
    assert [(square.down, square.value) for square in by_topic] == [
        (topic, 2 * sum(count for cell, count in COUNTS.items() if cell_values(cell)["topic"] == topic))
        for topic in ("<law>", None)
    ]
    assert {square.value for square in squares(facts, "quality", None, "mean quality")} == {1.0, None}
    for down, number, problem in (("qualty", "tokens", "quality"), ("topic", "tokns", "tokens")):
        with pytest.raises(CommandError, match=f"did you mean '{problem}'"):
            squares(facts, down, None, number)


def test_reads_of_a_blend_are_those_of_its_rows(lake: Catalog) -> None:
    """Counted row by row; a source of several cells is shared out by their windows, so over whole passes exactly."""
    blender = Blender(lake)
    blend_id = blender.resolve("best")
    cells = [cell for cell in sorted(COUNTS) for _ in range(COUNTS[cell])]
    read = dict.fromkeys(THERE, 0)
    for batch in blender.open(blend_id).read(0):
        for ordinal in batch.ordinals.tolist():
            read[cells[ordinal]] += 1
    facts = with_reads(lake, blender, cell_facts(lake, "main"), "main", blend_id, None)
    repeats = {square.choice: square.value for square in squares(facts, "quality", None, "repeats")}
    for choice, value in repeats.items():
        names = [cell for cell in THERE if parse_choice(choice).takes(cell)]
        wanted = sum(read[cell] for cell in names) / sum(COUNTS[cell] for cell in names)
        assert value == pytest.approx(wanted, abs=1 / sum(COUNTS[cell] for cell in names))
    shares = [square.value or 0.0 for square in squares(facts, "quality", "topic", "share")]
    assert np.isclose(sum(shares), 1.0)


def test_the_map_is_shown_and_opens_documents(client: TestClient) -> None:
    """Two compositions side by side on one scale; texts of strangers are letters."""
    assert "main" in client.get("/cells").text
    assert asked(client, "/cells/main?down=quality&across=topic")["number"] == "tokens"
    shown = asked(client, "/cells/main?down=quality&across=topic&blend=best&beside=all")
    assert [each["blend"] for each in shown["maps"]] == ["best", "all"] and shown["number"] == "repeats"
    assert {square["value"] for square in shown["maps"][1]["squares"]} == {1.0}
    assert [square["value"] for square in shown["maps"][0]["squares"]][-2:] == [0.0, 0.0]
    page = client.get("/cells/main?down=topic&across=quality").text
    assert "<law>" not in page and page.count('<rect class="all"') == len(THERE)
    opened = asked(client, "/cells/main/documents?choice=quality%3C2,topic=none")
    assert [row["path"] for row in opened["documents"]] == ["<1>.txt", "<3>.txt"]
    for square in shown["maps"][1]["squares"]:
        there = asked(client, f"/cells/main/documents?choice={quote(square['choice'])}")["documents"]
        assert [cell_values(row["cell"]) for row in there] == [{"quality": square["down"], "topic": square["across"]}]
    assert client.get("/cells/main/documents?choice=quality=9").status_code in (400, 404)
    for wrong in ("down=qualty", "number=share", "at=x", "blend=nowhere"):
        assert client.get(f"/cells/main?{wrong}").status_code in (400, 404), wrong


def test_a_corpus_without_cells_is_told(client: TestClient) -> None:
    """With what to declare."""
    assert "declare" in client.get("/cells/notes").text


def test_a_corpus_whose_cells_are_empty_is_told(tmp_path: Path) -> None:
    """As of a first increment of which nothing is left."""
    catalogue = open_lake(tmp_path)
    put(catalogue, "main", MEMBERS, 0, [], config=json.dumps({"datasets": ["notes"]}))
    for table in (CELLS, CELL_STATISTICS):
        put(catalogue, "main", table, 0, [])
    answer = pages(catalogue, tmp_path / "explore").get("/cells/main")
    assert answer.status_code == 404 and "no cells yet" in answer.text


def test_sums_of_facts_are_of_documents() -> None:
    """A mean over cells weighs them by their documents."""
    facts = {
        cell: CellFacts(cell, {"documents": count, "bytes": 0, "tokens": 0}, {"quality": (mean * count, count)})
        for cell, mean, count in ((THERE[0], 1.0, 1), (THERE[2], 4.0, 2))
    }
    assert [square.value for square in squares(facts, "topic", None, "mean quality")] == [3.0]


@pytest.mark.parametrize("dimensions", [0, 1, 2, 3])
def test_a_picture_is_drawn_of_any_cells(dimensions: int) -> None:
    """Of one square, of a row, and with values of all types."""
    values = [{"quality": quality, "topic": topic, "x": 1} for quality in (0, 7, None) for topic in ("a" * 99, None)]
    cells = sorted({cell_text(dict(list(cell.items())[:dimensions])) for cell in values})
    rows = pa.table({"cell": cells, "tokens": list(range(1, len(cells) + 1))})
    assert draw_cells(rows).startswith(b"\x89PNG")
