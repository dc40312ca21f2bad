"""A corpus with clusters and a shape, from its declaration to what is packed."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner
from pyiceberg.catalog import Catalog

from dagster_project.assets.corpora import CorpusDeclaration, corpus_assets
from dagster_project.assets.datasets import DatasetDeclaration
from dagster_project.assets.deduplication import Deduplication
from dagster_project.cli import headrace
from dagster_project.exceptions import DefinitionError
from dagster_project.inspect.corpora.funnel import funnel
from dagster_project.inspect.documents.document_lookup import find_document
from dagster_project.inspect.documents.document_story import corpus_findings
from dagster_project.inspect.lake.corpus_facts import find_corpus
from dagster_project.table_asset import table_asset
from headrace.tables.settings import settings_at
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.files.lookups import read_columns
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.planted_lake import run_declared

CORPUS = CorpusDeclaration(
    name="main",
    datasets=("notes",),
    deduplication=Deduplication(levels=("exact",)),
    tokenizer={"train": {"vocabulary_size": 300, "sample_bytes": 50_000}},
    window_tokens=(256,),
)
TOPICS = {
    "mill": "sluice wheel millstone flour grain water shaft gear",
    "court": "judge verdict appeal statute defendant counsel hearing ruling",
}
CLUSTERS = {"coarse": 2, "fine": 4, "embedding": {"dimensions": 64}}


def keys_of(**declared: Any) -> set[str]:
    """Names of the tables of a corpus."""
    made = corpus_assets(dataclasses.replace(CORPUS, **declared))
    return {key.path[1] for asset in made for key in asset.keys}


def test_tables_are_there_where_they_are_declared() -> None:
    """Without clusters and shape a corpus has the tables that it always had."""
    plain = keys_of()
    assert plain.isdisjoint({"centroids", "clusters", "shape", "shaped"})
    assert keys_of(clusters=CLUSTERS) - plain == {"centroids", "centroid_weights", "clusters"}
    measured = keys_of(clusters=CLUSTERS, cluster_losses={}) - keys_of(clusters=CLUSTERS)
    assert measured == {"proxy_model", "cluster_losses"}
    named = keys_of(clusters=CLUSTERS, cluster_losses={"model": "small@1"}) - keys_of(clusters=CLUSTERS)
    assert named == {"cluster_losses"}
    assert keys_of(select=({"shape": {"lengths": {"keep": 0.5}}},)) - plain == {"shape_histogram", "shape", "shaped"}


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"select": ({"shape": {"drop": [1]}},)}, "declare clusters"),
        ({"select": ({"shape": {"losses": {"drop_above": 3}}},), "clusters": {}}, "losses names no table"),
        ({"select": ({"shape": {"losses": {"table": "main.cluster_losses"}}},), "clusters": {}}, "neither drop_above"),
        ({"select": ({"shape": {"lenghts": {"keep": 0.5}}},)}, "lenghts"),
        ({"clusters": {"corse": 16}}, "corse"),
        ({"cluster_losses": {}}, "cluster_losses without clusters"),
        ({"clusters": {}, "cluster_losses": {"stebs": 3}}, "stebs"),
        ({"clusters": {}, "cluster_losses": {"proxy": {"width": 65}}}, "no multiple of heads"),
        ({"clusters": {}, "cluster_losses": {"proxy": 64}}, "proxy is 64"),
        ({"clusters": {}, "cluster_losses": {"proxy": {"width": 64}, "model": "small@1"}}, "both model and proxy"),
        ({"clusters": {}, "cluster_losses": {"model": "small"}}, "model"),
        (
            {"clusters": {}, "select": ({"shape": {"losses": {"table": "cluster_losses", "drop_above": 3}}},)},
            "declare cluster_losses",
        ),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(declared: dict[str, Any], said: str) -> None:
    """When the project loads, in one line."""
    with pytest.raises(DefinitionError, match=said):
        keys_of(**declared)


@pytest.mark.nightly
def test_what_stays_is_packed_once_and_only_rates_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three runs: the first increment, a second one by the frozen centroids, and a raised rate with losses."""
    (tmp_path / "lake").mkdir()
    for name, value in settings_at(tmp_path / "lake").properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    source = tmp_path / "source"
    source.mkdir()
    records_of = {"kind": "files", "path": str(source), "text_column": "body", "id_column": "id"}
    notes = DatasetDeclaration(name="notes", source=records_of)
    shape: dict[str, Any] = {"downsample": {0: 0.4}, "lengths": {"keep": 0.9}}
    with dg.DagsterInstance.ephemeral() as instance:
        for run, (first, count) in enumerate(((0, 40), (40, 12), (52, 0))):
            if count:
                (source / f"{run}.jsonl").write_text("".join(records(first, count)))
            if run == 2:
                losses = {"table": "lab.losses", "downsample_below": 2.0, "rate": 1.0, "drop_above": 99}
                shape = {"downsample": {0: 0.8}, "lengths": {"keep": 0.9}, "losses": losses}
            corpus = dataclasses.replace(CORPUS, clusters=CLUSTERS, select=({"shape": shape},))
            groups = ["notes", "main", *(["lab"] if run == 2 else [])]
            run_declared([notes], [corpus], instance, groups, further=[cluster_losses])
            catalogue = open_catalogue(settings_at(tmp_path / "lake"))
            check(catalogue, 2 * (first + count))
            if run == 1:
                before = ids(catalogue, "shaped")
    assert ids(catalogue, "shaped") > before
    ledger = Ledger(catalogue)
    ledger.refresh()
    assert len({row.run_id for row in ledger.places("main.centroids").values()}) == 1
    assert set(ledger.increments("main.clusters")) == {0, 1}
    recorded = ledger.increments("main.shape")[1].inputs
    assert recorded["lab.losses"]["versions"] and ledger.places("lab.losses")[""].row_count == 4
    said = CliRunner().invoke(headrace, ["corpus", "show", "main", "--json"])
    assert json.loads(said.output)[-1]["step"] == "tokens"


@pytest.mark.nightly
def test_a_cluster_goes_by_the_loss_that_was_measured_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the declaration alone: each reason of `shape` names the loss that `cluster_losses` has of the cluster."""
    pytest.importorskip("torch", reason="torch is an extra")
    (tmp_path / "lake").mkdir()
    for name, value in settings_at(tmp_path / "lake").properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    (tmp_path / "notes.jsonl").write_text("".join(records(0, 40)))
    source = {"kind": "files", "path": str(tmp_path / "notes.jsonl"), "text_column": "body", "id_column": "id"}
    corpus = dataclasses.replace(
        CORPUS,
        clusters=CLUSTERS,
        cluster_losses={"steps": 4, "proxy": {"width": 16, "layers": 1, "heads": 2, "piece_tokens": 64, "steps": 20}},
        select=({"shape": {"losses": {"downsample_below": 99, "rate": 0.5}}},),
    )
    with dg.DagsterInstance.ephemeral() as instance:
        run_declared([DatasetDeclaration(name="notes", source=source)], [corpus], instance, ["notes", "main"])
    catalogue = open_catalogue(settings_at(tmp_path / "lake"))
    clusters, losses, lost = (
        read_columns(catalogue, f"main.{table}", columns)
        for table, columns in (
            ("clusters", ("doc_id", "cluster")),
            ("cluster_losses", ("cluster", "loss")),
            ("shape", ("doc_id", "failed")),
        )
    )
    assert clusters is not None and losses is not None and lost is not None
    cluster_of = dict(zip(*clusters.to_pydict().values(), strict=True))
    loss_of = dict(zip(*losses.to_pydict().values(), strict=True))
    assert set(loss_of) == set(range(4)) and 0 < lost.num_rows < len(cluster_of)
    for row in lost.to_pylist():
        reason = {"rule": "loss_too_low", "value": loss_of[cluster_of[row["doc_id"]]], "threshold": 99.0}
        assert row["failed"] == [reason]


def check(catalogue: Catalog, count: int) -> None:
    """Every survivor stays or has a reason; what stays is what is tokenized and packed; the funnel says the same."""
    survivors, stays = ids(catalogue, "survivors"), ids(catalogue, "shaped")
    lost = read_columns(catalogue, "main.shape", ("doc_id", "failed"))
    assert lost is not None
    assert len(survivors) == count - 1  # one repeats another
    assert stays.isdisjoint(lost["doc_id"].to_pylist()) and stays | set(lost["doc_id"].to_pylist()) == survivors
    assert stays == ids(catalogue, "ordered") == ids(catalogue, "tokens")
    windows = read_columns(catalogue, "main.packed_notes_256", ("segments.element.doc_id",))
    assert windows is not None
    segments = pc.struct_field(pc.list_flatten(windows["segments"]), "doc_id").to_pylist()
    assert set(segments) == stays
    found = {stage.step: stage for stage in funnel(catalogue, find_corpus(catalogue, "main"))}
    assert list(found) == ["landed", "verdicts", "members", "exact_duplicates", "survivors", "shaped", "tokens"]
    assert (found["landed"].documents, found["survivors"].documents) == (count, len(survivors))
    assert found["shaped"] == dataclasses.replace(found["tokens"], step="shaped")
    assert found["tokens"].estimated_tokens == 0 < found["survivors"].estimated_tokens
    tokens = read_columns(catalogue, "main.tokens", ("token_count",))
    assert tokens is not None and found["tokens"].tokens == pc.sum(tokens["token_count"]).as_py()
    corpus = find_corpus(catalogue, "main")
    for doc_id, outcome in ((min(stays), "packed"), (lost["doc_id"][0].as_py(), "left_out")):
        document = find_document(catalogue, doc_id)
        findings, _ = corpus_findings(catalogue, corpus, document)
        assert findings[-1].outcome == outcome
        assert "clustered" in Counter(finding.outcome for finding in findings)


@table_asset(
    table="lab.losses",
    schema=Table(
        name="losses",
        comment="One row per cluster: the loss of a model.",
        columns=(Column("cluster!", "int", "cluster"), Column("loss!", "double", "made up: its number")),
        key=("cluster",),
    ),
    inputs={"centroids": "main.centroids"},
)
def cluster_losses(centroids: Any) -> Any:
    """A loss for every cluster."""
    return centroids.where("cluster is not null").selectExpr("cluster", "cast(cluster as double) as loss")


def ids(catalogue: Catalog, table: str) -> set[str]:
    """Ids of the documents in a table of the corpus."""
    rows = read_columns(catalogue, f"main.{table}", ("doc_id",))
    assert rows is not None
    return set(rows["doc_id"].to_pylist())


def records(first: int, count: int) -> list[str]:
    """Documents of each topic, of 60 to 300 words; number 1 of the first topic has the words of number 0."""
    lines = []
    for topic, words in TOPICS.items():
        for number in range(first, first + count):
            draw = np.random.default_rng([max(number, 1) if topic == "mill" else number, len(topic)])
            own = draw.choice(words.split(), draw.integers(60, 300)).tolist()
            text = "\n".join(" ".join(own[start : start + 10]) for start in range(0, len(own), 10))
            lines.append(json.dumps({"id": f"{topic}-{number}", "body": text}) + "\n")
    return lines
