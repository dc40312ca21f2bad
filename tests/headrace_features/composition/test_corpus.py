"""A corpus with cells, from its declaration to windows, statistics, the command and a blend of some cells."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.server.blender import Blender
from dagster_project.assets.corpora import corpus_assets
from dagster_project.assets.datasets import DatasetDeclaration
from dagster_project.cli import headrace, run_command
from dagster_project.exceptions import DefinitionError
from headrace.tables.cells import cell_values
from headrace.tables.settings import settings_at
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.conftest import WriteDefs
from tests.dagster_project.planted_lake import draw, run_declared
from tests.dagster_project.test_shaped_corpus import CLUSTERS, CORPUS

TABLE = "main.packed_notes_256"
CELLS = {
    "by": {
        "length": {"column": "signals.word_count", "quantiles": 3},
        "site": "metadata.site",
        "copies": {"duplicates": {"most": 3}},
    }
}


def _texts(first: int, count: int) -> list[dict[str, Any]]:
    """Records of 60 to 300 words; every fourth without a site, some of them more often than once."""
    records = []
    for at in range(first, first + count):
        text = draw(at, 60 + 7 * (at % 35))
        site = {} if at % 4 == 0 else {"site": f"{'ab'[at % 2]}.org"}
        records += [{"id": f"n{at}-{copy}", "text": text, **site} for copy in range(1 + (at % 5 == 1) * (at % 3 + 1))]
    return records


def rows_of(catalogue: Any, table: str) -> list[dict[str, Any]]:
    """All rows of a table."""
    rows: list[dict[str, Any]] = catalogue.load_table(table).scan().to_arrow().to_pylist()
    return rows


def test_a_corpus_with_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two increments: bounds stay, no document changes its cell, windows and statistics are those of the cells."""
    (tmp_path / "lake").mkdir()
    (tmp_path / "data").mkdir()
    for name, value in settings_at(tmp_path / "lake").properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    source = {"kind": "files", "path": str(tmp_path / "data"), "text_column": "text", "id_column": "id"}
    notes = DatasetDeclaration(name="notes", source={**source, "metadata_columns": ["site"]}, policy={"rules": []})
    corpus = dataclasses.replace(CORPUS, cells=CELLS)
    before = dict[str, str]()
    with dg.DagsterInstance.ephemeral() as instance:
        for increment, records in enumerate((_texts(0, 90), _texts(90, 60))):
            path = tmp_path / "data" / f"{increment}.jsonl"
            path.write_text("\n".join(map(json.dumps, records)))
            run_declared([notes], [corpus], instance, ["notes", "main"])
            catalogue = open_catalogue(settings_at(tmp_path / "lake"))
            cells = {row["doc_id"]: row["cell"] for row in rows_of(catalogue, "main.cells")}
            assert before.items() <= cells.items() and len(cells) > len(before)
            before = cells
    assert {row["increment"] for row in rows_of(catalogue, "main.cell_bounds")} == {0}
    _check_cells(catalogue, cells)
    _check_windows(catalogue, cells)
    _check_command(catalogue, cells)
    _check_blend(catalogue)


def _check_cells(catalogue: Any, cells: dict[str, str]) -> None:
    """Sites are those of the records, lengths thirds of the first increment, copies what was in the files."""
    documents = {row["doc_id"]: row for row in rows_of(catalogue, "notes.documents")}
    assert cells.keys() == {row["doc_id"] for row in rows_of(catalogue, "main.survivors")}
    words = {row["doc_id"]: row["word_count"] for row in rows_of(catalogue, "notes.signals")}
    frozen = [words[row["doc_id"]] for row in rows_of(catalogue, "main.survivors") if row["increment"] == 0]
    texts = Counter(row["content"] for row in documents.values())
    for doc_id, cell in cells.items():
        below = sum(other < words[doc_id] for other in frozen)
        assert cell_values(cell) == {
            "site": dict(documents[doc_id]["metadata"]).get("site"),
            "length": min(2, 3 * below // len(frozen)),
            "copies": min(3, texts[documents[doc_id]["content"]]),
        }
    assert len({cell_values(cell)["site"] for cell in cells.values()}) == 3
    assert {cell_values(cell)["copies"] for cell in cells.values()} == {1, 2, 3}


def _check_windows(catalogue: Any, cells: dict[str, str]) -> None:
    for window in rows_of(catalogue, TABLE):
        assert {cells[segment["doc_id"]] for segment in window["segments"]} == {window["cell"]}
    places = [
        (row["increment"], row["cell"]) for row in sorted(rows_of(catalogue, TABLE), key=lambda row: row["ordinal"])
    ]
    assert places == sorted(places)


def _check_command(catalogue: Any, cells: dict[str, str]) -> None:
    """The list has each cell once, `none` among them, and a last row of all."""
    said = CliRunner().invoke(headrace, ["corpus", "cells", "main", "--json"])
    listed = json.loads(said.output)
    assert [row["cell"] for row in listed][-1] == "all" and len(listed) == len(set(cells.values())) + 1
    assert sum("site=none" in row["cell"] for row in listed) >= 3
    tokens = {row["doc_id"]: row["token_count"] for row in rows_of(catalogue, "main.tokens")}
    windows = Counter(row["cell"] for row in rows_of(catalogue, TABLE))
    by_label = {row["cell"]: row for row in listed}
    for cell in set(cells.values()):
        own = [doc_id for doc_id, of_document in cells.items() if of_document == cell]
        row = by_label[
            ", ".join(f"{name}={'none' if value is None else value}" for name, value in cell_values(cell).items())
        ]
        assert (row["documents"], row["tokens"]) == (len(own), sum(tokens[doc_id] for doc_id in own))
        assert row["windows of 256"] == windows[cell]
    assert by_label["all"]["documents"] == len(cells) and by_label["all"]["windows of 256"] == sum(windows.values())
    plain = CliRunner().invoke(headrace, ["corpus", "cells", "main"])
    assert "mean length" in plain.output and "site=none" in plain.output
    wrong = CliRunner().invoke(headrace, ["corpus", "cells", "mian"])
    assert "did you mean 'main'" in str(wrong.exception or wrong.output)


def _check_blend(catalogue: Any) -> None:
    """A blend of some cells reads their windows alone, each once."""
    blender = Blender(catalogue)
    config = blender.create(BlendSpec((SourceSpec(f"{TABLE}[length >= 1, site != none]"),)))
    wanted = [row for row in rows_of(catalogue, TABLE) if "null" not in row["cell"] and '"length":0' not in row["cell"]]
    assert config.sources[0].rows == len(wanted) > 0
    batch = blender.open(config.blend_id, 0).gather(0, len(wanted))
    assert Counter(map(tuple, batch.input_ids.tolist())) == Counter(tuple(row["input_ids"]) for row in wanted)


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"by": {"site": "metadata.site", "q": {"column": "signals.word_count", "quantiles": 1}}}, "quantiles"),
        ({"bye": {}}, "bye"),
        (
            {"by": {"q": {"column": "signals.words", "datasets": ["nots"], "bounds": [3]}}},
            "'nots' is none of the datasets",
        ),
    ],
)
def test_mistakes_are_refused_when_they_are_declared(cells: dict[str, Any], said: str) -> None:
    """In one line that names the corpus."""
    with pytest.raises(DefinitionError, match=said) as refused:
        corpus_assets(dataclasses.replace(CORPUS, cells=cells))
    assert "corpus main: cells" in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("signal.word_count", "small.cells reads notes.signal: no asset defines it; did you mean 'notes.signals'"),
        ("signals.word_cont", "small.cells: by.q: signals has no column 'word_cont'; did you mean 'word_count'"),
        ("signals.alphabetic_fraction", "by.q: signals.alphabetic_fraction is double; give bounds or quantiles"),
        ("signals.kind", ""),
        ("metadata.site", ""),
        ("documents.metadata", "documents.metadata is a map of texts; name a key"),
    ],
)
def test_mistakes_in_columns_are_refused_when_a_run_is_planned(
    declare: WriteDefs, lake_env: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], column: str, said: str
) -> None:
    """A table or column that is not there, with the nearest name, and one whose values are no cells."""
    (tmp_path / "a.md").write_text("a text")
    declare(
        "notes", f"type: headrace.Dataset\nattributes:\n  name: notes\n  source: {{kind: files, path: {tmp_path}}}\n"
    )
    lines = "type: headrace.Corpus\nattributes:\n  name: small\n  datasets: [notes]\n"
    declare("small", f"{lines}  cells: {{by: {{q: {column}}}}}\n")
    found = run_command(["plan"])
    err = capfd.readouterr().err
    assert found == (2 if said else 0) and err.count("\n") == bool(said)
    assert said in err


def test_a_dimension_reads_the_corpus_or_the_datasets_that_it_names() -> None:
    """Clusters are the corpus's, scores of one dataset alone, languages of all; each packed table reads the cells."""
    by = {
        "topic": "clusters.coarse",
        "quality": {"column": "quality.score", "quantiles": 20, "datasets": ["web"]},
        "language": "texts.language",
        "copies": {"duplicates": {"most": 3}},
    }
    declared = dataclasses.replace(CORPUS, datasets=("notes", "web"), clusters=CLUSTERS, cells={"by": by})
    reads = {
        spec.key.path[1]: {".".join(dep.asset_key.path) for dep in spec.deps if dep.asset_key != spec.key}
        for asset in corpus_assets(declared)
        for spec in asset.specs
    }
    of_texts = {"notes.texts", "web.texts"}
    assert {"web.quality", "main.survivors"} <= reads["cell_bounds"] and not reads["cell_bounds"] & of_texts
    wanted = {"main.clusters", "web.quality", "main.cell_bounds", "main.exact_duplicates", "main.members", *of_texts}
    assert wanted <= reads["cells"] and "notes.quality" not in reads["cells"]
    assert all("main.cells" in reads[name] for name in ("packed_notes_256", "packed_web_256", "cell_statistics"))
    plain = corpus_assets(dataclasses.replace(declared, cells=None))
    assert not any("cell" in key.path[1] for asset in plain for key in asset.keys)
