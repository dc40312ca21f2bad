"""What a proxy model learns of clusters: the order that theory gives, the same rows always, nothing trained twice."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.tables.settings import settings_at
from headrace_features.models.clusters import cluster_losses as module
from headrace_features.models.clusters.cluster_losses import CLUSTER_LOSSES, ClusterLossesConfig, cluster_losses
from headrace_features.models.clusters.proxy_config import ProxyModelConfig, ProxyTrainingConfig
from headrace_features.models.clusters.proxy_model import PROXY_MODEL, proxy_model, trained
from headrace_features.models.ngram_model import NgramConfig
from headrace_features.models.ngram_training import train
from headrace_features.models.registered import add_model
from spark_jobs.exceptions import InputError
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.session.catalogue import open_catalogue

pytest.importorskip("torch", reason="torch is an extra")

from headrace_features.models.causal_model import read_causal_model
from headrace_features.models.clusters.proxy_training import learnt, pieces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TINY = ProxyModelConfig(width=16, layers=1, heads=2, piece_tokens=32, steps=30, batch_pieces=8)
CONFIG = ClusterLossesConfig(documents=6, document_bytes=256, steps=4, batch_pieces=4, piece_tokens=32)
KEYS = "dataset string, shard int, doc_id string"


def noise(number: int, lines: int = 40) -> str:
    """Lines of random bytes, in base 85, of which nothing but the alphabet can be learnt: ln 85 = 4.443 nats a byte."""
    draw = np.random.default_rng(number)
    return "\n".join(base64.b85encode(draw.bytes(60)).decode() for _ in range(lines))


def lorem(number: int) -> str:
    """Words of one list in random order."""
    words = ["lorem", "ipsum", "dolor", "sit", "amet", "consectetur", "adipiscing", "elit", "sed", "do", "eiusmod"]
    return " ".join(np.random.default_rng(number).choice(words, 400).tolist())


def repeated(number: int) -> str:
    """One sentence, again and again."""
    return "The mill stands at the river and grinds the grain.\n" * (40 + number)


@pytest.fixture(scope="module")
def model() -> bytes:
    """The file of a tiny model, trained on a little of all that is measured."""
    documents = [make(number) for number in range(100, 104) for make in (noise, lorem, repeated)]
    return bytes(trained(documents, TINY)["file"][0].as_py())


def batches(clusters: dict[int, list[str]]) -> list[pa.RecordBatch]:
    """The texts of clusters, as a task gets them."""
    rows = [(number, text) for number, texts in clusters.items() for text in texts]
    columns: dict[str, Any] = {"cluster": pa.array([number for number, _ in rows], pa.int32())}
    columns["document_count"] = pa.array([len(clusters[number]) for number, _ in rows])
    return pa.table({**columns, "content": [text for _, text in rows]}).to_batches()


def measure(clusters: dict[int, list[str]], model: bytes, folder: Path) -> list[dict[str, Any]]:
    """The rows of clusters, made in this process."""
    made = module._measure(batches(clusters), model, CONFIG, ObjectFolder(f"{folder}/first/landed"))
    return pa.Table.from_batches(made).to_pylist()


SIX = {number: [make(10 * number + one) for one in range(4)] for number, make in enumerate((noise, lorem) * 3)}


@pytest.mark.nightly
def test_a_cluster_that_was_measured_is_not_trained_on_again(
    model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless its texts, the config or the model change; whatever number it has, and its size is that of now."""
    first = measure(SIX, model, tmp_path)
    calls: list[int] = []
    real = learnt
    monkeypatch.setattr(
        "headrace_features.models.clusters.proxy_training.learnt", lambda *given: calls.append(1) or real(*given)
    )
    assert measure(SIX, model, tmp_path) == first and not calls
    moved = {7: SIX[1], 8: [*SIX[1][:3], "another text, which is new"]}
    again = measure(moved, model, tmp_path)
    assert len(calls) == 1 and again[0] == {**first[1], "cluster": 7}
    assert again[1]["loss"] != first[1]["loss"]
    other = bytes(trained([noise(1)], TINY.model_copy(update={"seed": 1}))["file"][0].as_py())
    measure({1: SIX[1]}, other, tmp_path)
    assert len(calls) == 2


PROGRAM = """
import sys
from pathlib import Path
from tests.headrace_features.models.clusters.test_cluster_losses import SIX, measure
print("ready", flush=True)
measure(SIX, Path(sys.argv[1], "model").read_bytes(), Path(sys.argv[1]))
"""


@pytest.mark.nightly
def test_a_run_that_was_killed_goes_on_where_it_was(
    model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After kill -9 the next run trains on the clusters that are missing, and gives the rows of one that was not."""
    (tmp_path / "model").write_bytes(model)
    (tmp_path / "whole").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    try:
        while process.poll() is None and len(kept(tmp_path)) < 2:
            time.sleep(0.001)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    before = kept(tmp_path)
    calls: list[int] = []
    real = learnt
    monkeypatch.setattr(
        "headrace_features.models.clusters.proxy_training.learnt", lambda *given: calls.append(1) or real(*given)
    )
    rows = measure(SIX, model, tmp_path)
    assert 2 <= len(before) <= len(SIX) and len(calls) == len(SIX) - len(before)
    assert {name: kept(tmp_path)[name] for name in before} == before
    assert rows == measure(SIX, model, tmp_path / "whole")


def kept(folder: Path) -> dict[str, int]:
    """Results that are kept, and when each was written."""
    return {path.name: path.stat().st_mtime_ns for path in (folder / "first" / "results").glob("??/*")}


@pytest.mark.nightly
def test_a_model_of_the_registry_measures_clusters(
    model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the same model of the corpus's own does, whose results are found again; other formats are refused."""
    for name, value in settings_at(tmp_path).properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    catalogue = open_catalogue(settings_at(tmp_path))
    add_model(catalogue, "small", model, "1")
    own = measure(SIX, model, tmp_path)
    located = module._located(ClusterLossesConfig(model="small@1"), None)
    assert not isinstance(located, bytes)
    config = CONFIG.model_copy(update={"model": "small@1"})
    made = module._measure(batches(SIX), located, config, ObjectFolder(f"{tmp_path}/second/landed"))
    assert pa.Table.from_batches(made).to_pylist() == own
    counted = train(pa.table({"content": ["the mill"]}), NgramConfig(order=2))
    add_model(catalogue, "words", counted.to_bytes(), "1")
    with pytest.raises(InputError, match="is of the format ngrams"):
        module._located(ClusterLossesConfig(model="words@1"), None)
    with pytest.raises(InputError, match="bind proxy_model"):
        module._located(CONFIG, None)


@pytest.mark.nightly
def test_documents_held_out_are_not_trained_on(model: bytes) -> None:
    """Every fourth document; of a single one the second half; one character has no loss."""
    found = read_causal_model(model, "made", "cpu")
    texts = [lorem(number) for number in range(8)]
    whole = learnt(found, texts, CONFIG)
    assert whole is not None and whole.after < whole.before and whole.slope < 0
    # What was held out decides only what is measured: with noise in its place the model learns the same.
    noisy = learnt(found, [noise(0), *texts[1:4], noise(4), *texts[5:]], CONFIG)
    assert noisy is not None and noisy.before > whole.before
    assert learnt(found, ["x"], CONFIG) is None and learnt(found, ["", ""], CONFIG) is None
    assert learnt(found, [lorem(1)], CONFIG) is not None
    exploding = learnt(found, [lorem(1)], CONFIG.model_copy(update={"steps": 40, "learning_rate": 1e30}))
    assert exploding is None  # no number, which would stop the run
    assert whole == learnt(found, texts, CONFIG)  # and the model is as it was


def test_pieces_hold_every_byte_as_a_target_once(model: bytes) -> None:
    """Each piece begins with the token before its first target."""
    found = read_causal_model(model, "made", "cpu")
    text = "the mill at the river " * 9
    cut = pieces(found, [text, "", "a"], ProxyTrainingConfig(piece_tokens=32))
    assert bytes(token for piece in cut[:-1] for token in piece[1:]) == text.encode()
    assert cut[-1][1:] == [ord("a")] and max(map(len, cut)) == 33


def run(spark: SparkSession, folder: Path, partitions: int) -> tuple[list[Any], list[Any]]:
    """Rows of `proxy_model` and `cluster_losses` of documents in four clusters and one in none."""
    texts = {f"{make.__name__}-{one}": make(one) for make in (noise, lorem, repeated) for one in range(5)}
    texts |= {"alone": "x", "nowhere": "", "gone": lorem(3)}
    rows = [("notes", 0, name, text) for name, text in texts.items()]
    content = spark.createDataFrame(rows, f"{KEYS}, content string").repartition(partitions)
    survivors = content.where("doc_id <> 'gone'").select("dataset", "shard", "doc_id")
    numbers = "map('repeated', 0, 'lorem', 1, 'alone', 2, 'noise', 3)"
    clusters: DataFrame = survivors.selectExpr("*", f"try_element_at({numbers}, split(doc_id, '-')[0]) as cluster")
    made = proxy_model(survivors, content, TINY)
    frozen = spark.createDataFrame(made.collect(), made.schema)
    output = cluster_losses(clusters, content, CONFIG, ObjectFolder(f"{folder}/first/landed"), frozen)
    losses = output.frames[CLUSTER_LOSSES.name]
    for table, frame in ((PROXY_MODEL, made), (CLUSTER_LOSSES, losses)):
        assert dict(frame.dtypes) == {
            column.name: column.type.replace("!", "").replace("long", "bigint") for column in table.columns
        }
    found = sorted(losses.collect())
    for frame in output.persisted:
        frame.unpersist()
    return frozen.collect(), found


@pytest.mark.nightly
def test_rows_are_identical_for_1_and_2_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """Each run keeps its results apart, so that all is trained twice; a cluster that is too short has nulls."""
    one, two = (run(spark, tmp_path / str(partitions), partitions) for partitions in (1, 2))
    assert one == two
    rows = one[1]
    assert [(row.cluster, row.document_count, row.sample_count) for row in rows] == [
        (0, 5, 5),
        (1, 5, 5),
        (2, 1, 1),
        (3, 5, 5),
    ]
    assert rows[2].loss is None and rows[2].slope is None
    assert all(row.loss < row.loss_before for row in rows if row.loss is not None)
    assert {row.model for row in rows} == {one[0][0].sha256}


def code(number: int) -> str:
    """A file of Python's standard library."""
    texts = (file.read_text("utf-8", "ignore") for file in sorted(Path(os.__file__).parent.glob("*.py")))
    return [text for text in texts if len(text) > 9000][number][2000:6000]


@pytest.mark.nightly
def test_planted_clusters_have_the_order_of_theory(real_data: Path) -> None:
    """One sentence repeated is lowest; noise is highest, at its entropy, and training does not lower it."""
    rfcs = pq.read_table(real_data / "rfc.parquet", columns=["text"]).column("text").slice(300, 200).to_pylist()
    long = [text for text in rfcs if len(text) > 9000]

    def english(number: int) -> str:
        return str(long[number][4000:8000])

    kinds: dict[str, Callable[[int], str]] = {one.__name__: one for one in (noise, lorem, repeated, english, code)}
    documents = [make(number) for number in range(20, 50) for make in kinds.values()]
    config = ProxyModelConfig(width=48, piece_tokens=128, steps=300)
    model = read_causal_model(trained(documents, config)["file"][0].as_py(), "made", "cpu")
    training = ProxyTrainingConfig(piece_tokens=128)
    found = {name: learnt(model, [make(number) for number in range(16)], training) for name, make in kinds.items()}
    losses = {name: one.after for name, one in found.items() if one is not None}
    before = {name: one.before for name, one in found.items() if one is not None}
    slopes = {name: one.slope / one.before for name, one in found.items() if one is not None}
    assert sorted(losses, key=losses.__getitem__)[:2] == ["repeated", "lorem"]
    assert max(losses, key=losses.__getitem__) == "noise"
    assert losses["noise"] == pytest.approx(np.log(85), abs=0.1)
    assert max(slopes, key=slopes.__getitem__) == "noise"
    assert 16 * abs(slopes["noise"]) < 0.01 and losses["repeated"] < 0.9 * before["repeated"]
