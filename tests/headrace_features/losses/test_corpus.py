"""A corpus whose documents have losses of a training run: by document, in cells, in a selection that drops noise."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pydantic import Field

from dagster_project.assets.corpora import corpus_assets
from dagster_project.assets.datasets import DatasetDeclaration
from dagster_project.exceptions import DefinitionError
from headrace import ConfigModel, Failed, selection
from headrace.tables.cells import cell_values
from headrace.tables.settings import settings_at
from headrace_features.losses.document_losses import by_document
from headrace_features.losses.tables import counting
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.planted_lake import draw, run_declared
from tests.dagster_project.test_shaped_corpus import CORPUS
from tests.headrace_features.losses.written import Rows, draw_rows, write

NOISE = "tests.headrace_features.losses.test_corpus:quiet"


class QuietConfig(ConfigModel):
    """What is noise."""

    most: float = Field(4.0, description="highest mean loss of a document")


@selection(reads=("document_losses",), version="1", words="that are no noise")
def quiet(loss: pa.Array, fall: pa.Array, config: QuietConfig) -> Iterator[Failed]:
    """Leave out documents with a high loss that does not fall."""
    yield Failed("noise", pc.and_(pc.greater(loss, config.most), pc.less(pc.fill_null(fall, 0), 1)), loss, config.most)


def rows_of(catalogue: Any, table: str) -> Rows:
    """All rows of a table."""
    rows: Rows = catalogue.load_table(table).scan().to_arrow().to_pylist()
    return rows


def test_a_corpus_reads_losses_by_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step equals the explorer's sums; cells have quantiles of the loss; the selection drops what is noise."""
    (tmp_path / "lake").mkdir()
    (tmp_path / "data").mkdir()
    for name, value in settings_at(tmp_path / "lake").properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    records = [{"id": f"n{at}", "text": draw(at, 40)} for at in range(30)]
    (tmp_path / "data" / "a.jsonl").write_text("\n".join(map(json.dumps, records)))
    source = {"kind": "files", "path": str(tmp_path / "data"), "text_column": "text", "id_column": "id"}
    notes = DatasetDeclaration(name="notes", source=source, policy={"rules": []})
    proxy = dataclasses.replace(CORPUS, name="proxy")
    main = dataclasses.replace(
        CORPUS,
        losses={"of": "proxy", "run": "r0"},
        cells={"by": {"loss": {"column": "document_losses.loss", "quantiles": 2}}},
        select=({NOISE: {"most": 4.0}},),
    )
    with dg.DagsterInstance.ephemeral() as instance:
        run_declared([notes], [proxy], instance, ["notes", "proxy"])
        catalogue = open_catalogue(settings_at(tmp_path / "lake"))
        ids = sorted(row["doc_id"] for row in rows_of(catalogue, "notes.documents"))
        for seed in (1, 2):
            drawn = [row | {"doc_id": ids[int(row["doc_id"][1:])]} for row in draw_rows(seed, 90, 25)]
            write(catalogue, [*{(row["run"], row["offset"], row["segment"]): row for row in drawn}.values()], "proxy")
        run_declared([notes], [proxy, main], instance, ["main"])
    losses = catalogue.load_table("proxy.losses").scan().to_arrow()
    wanted = by_document(counting(losses.filter(pc.equal(losses["run"], "r0")))).to_pylist()
    found = {row["doc_id"]: row for row in rows_of(catalogue, "main.document_losses")}
    assert found.keys() == {row["doc_id"] for row in wanted}
    differing = [
        (name, value, found[row["doc_id"]][name])
        for row in wanted
        for name, value in row.items()
        if found[row["doc_id"]][name] != value
    ]
    assert not differing
    assert {(row["run"], row["dataset"]) for row in found.values()} == {("r0", "notes")}
    for by in ("loss", "excess", "fall"):
        top = [row["doc_id"] for row in rows_of(catalogue, "main.worst_documents") if row["order"] == by]
        assert sorted(top) == sorted(row["doc_id"] for row in wanted if row[by] is not None)
    noise = {row["doc_id"] for row in wanted if row["loss"] > 4 and (row["fall"] or 0) < 1}
    assert {row["doc_id"] for row in rows_of(catalogue, "main.quiet_rejected")} == noise != set()
    cells = {row["doc_id"]: cell_values(row["cell"])["loss"] for row in rows_of(catalogue, "main.cells")}
    assert cells.keys() == {*ids} - noise
    assert {doc_id for doc_id, cell in cells.items() if cell is None} == {*ids} - found.keys()
    high, low = ([found[doc_id]["loss"] for doc_id, cell in cells.items() if cell == at] for at in (1, 0))
    assert min(high) >= max(low)


def test_a_wrong_setting_is_refused() -> None:
    """With the corpus and the field."""
    with pytest.raises(DefinitionError, match="corpus main: losses"):
        corpus_assets(dataclasses.replace(CORPUS, losses={"runs": "r0"}))
