"""Selections of a corpus: the list of a declaration, chains of any of them, one that a package outside brings."""

from __future__ import annotations

import dataclasses
import inspect
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner
from pydantic import Field
from pyiceberg.catalog import Catalog

from dagster_project.assets.corpora import corpus_assets
from dagster_project.assets.datasets import DatasetDeclaration
from dagster_project.assets.selections import chain_of, choose, instead, listed
from dagster_project.cli import headrace
from dagster_project.components import Corpus
from dagster_project.exceptions import DefinitionError
from dagster_project.inspect.corpora.funnel import funnel
from dagster_project.inspect.documents.trace import TokenTracer
from dagster_project.inspect.lake.corpus_facts import find_corpus
from dagster_project.inspect.lake.run_history import changes
from dagster_project.inspect.opened_lake import OpenedLake
from headrace import ConfigModel, Cut, Failed, selection
from headrace.tables.settings import settings_at
from spark_jobs.corpus_stages import stages_of
from spark_jobs.exceptions import StepDeclarationError
from spark_jobs.lake.declare.step import Output
from spark_jobs.lake.files.lookups import read_columns
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.selection.stages import stages_between
from spark_jobs.spark_sql import DataFrame, SparkSession
from tests.dagster_project.planted_lake import run_declared
from tests.dagster_project.test_shaped_corpus import CORPUS
from tests.spark_jobs.sources.test_extending import site

__all__ = ["site"]  # the package of docs/extend/extending.md, installed
HERE = __name__


class Bound(ConfigModel):
    """A bound of a column."""

    most: int = Field(50, description="largest value that goes on")


def bounded(name: str, column: str, table: str) -> Any:
    """A selection by the bound of a column."""

    def select(config: Bound, **columns: pa.Array) -> Iterator[Failed]:
        """Leave out what is above the bound."""
        yield Failed(f"{name}_high", pc.greater(columns[column], config.most), columns[column], config.most)
        yield Failed(f"{name}_odd", pc.equal(pc.bit_wise_and(columns[column], 7), 7))

    parameters = [inspect.Parameter(one, inspect.Parameter.KEYWORD_ONLY) for one in (column, "config")]
    select.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    select.__annotations__ = {"config": Bound}
    return selection(reads=(table,), version="1", name=name)(select)


ALPHA, BETA, GAMMA = bounded("alpha", "a", "t"), bounded("beta", "b", "t"), bounded("gamma", "g", "x.u")
CHAINS = {f"{HERE}:{name.upper()}": name for name in ("alpha", "beta", "gamma")}


def frames_of(spark: SparkSession, seed: int, count: int) -> dict[str, DataFrame]:
    """Tables of a corpus and of others: of some documents they have no row."""
    draw = random.Random(seed)
    rows = [("d", number % 2, f"{number:032x}") for number in range(count)]
    columns = "dataset string, shard int, doc_id string"
    values = [(doc_id, draw.randrange(100), draw.randrange(100)) for _, _, doc_id in rows if draw.random() < 0.9]
    other = [(doc_id, draw.randrange(100)) for _, _, doc_id in rows if draw.random() < 0.9]
    return {
        "main.survivors": spark.createDataFrame(rows, columns),
        "d.t": spark.createDataFrame(values, "doc_id string, a bigint, b bigint"),
        "x.u": spark.createDataFrame(other, "doc_id string, g bigint"),
    }


@pytest.mark.parametrize("seed", range(6))
def test_random_chains(spark: SparkSession, seed: int) -> None:
    """Kept are the documents without a failed rule, each other has its reasons; stages are in the order of the list."""
    draw = random.Random(seed)
    chosen = draw.sample([*CHAINS], draw.randrange(1, len(CHAINS) + 1))
    settings = {name: {"most": draw.randrange(20, 100)} for name in chosen}
    frames = frames_of(spark, seed, 60)
    chain = chain_of("main", ("d",), choose("main", settings), {"survivors"})
    inputs = dict[str, set[str]]()
    for step, read, given in chain.steps(of_duplicates=False):
        tables = {name: source if isinstance(source, str) else source[0] for name, source in read.items()}
        output = step(**{name: frames[table] for name, table in tables.items()}, config=step.config(**given))
        assert isinstance(output, Output)
        frames |= {f"main.{table}": frame for table, frame in output.frames.items()}
        inputs |= {table: set(tables.values()) for table in output.frames}
    assert [stage.name for stage in chain.stages] == [CHAINS[name] for name in chosen]
    inputs |= {"survivors": set(), "tokens": {chain.kept}}
    stated = {table: stage for stage in chain.stages for table in (stage.table, stage.reasons)}
    assert stages_between("main", inputs, inputs.__getitem__, stated.get) == chain.stages

    before = {row["doc_id"] for row in frames["main.survivors"].collect()}
    values = {row["doc_id"]: row.asDict() for row in frames["d.t"].collect()}
    for row in frames["x.u"].collect():
        values.setdefault(row["doc_id"], {})["g"] = row["g"]
    for stage, name in zip(chain.stages, chosen, strict=True):
        expected = {}
        for doc_id in before:
            value, most = values.get(doc_id, {}).get(stage.name[0]), settings[name]["most"]
            high = [] if value is None or value <= most else [(f"{stage.name}_high", value, most)]
            odd = [] if value is None or value & 7 != 7 else [(f"{stage.name}_odd", None, None)]
            if high + odd:
                expected[doc_id] = high + odd
        rejected = {row["doc_id"]: list(map(tuple, row["failed"])) for row in frames[f"main.{stage.reasons}"].collect()}
        assert rejected == expected
        kept = {row["doc_id"] for row in frames[f"main.{stage.table}"].collect()}
        assert kept == before - rejected.keys()
        before = kept


def test_settings_are_listed_in_order_and_decontamination_is_the_last() -> None:
    """Named or not."""
    assert listed("main", ["shape", {"passages": None}]) == {"shape": {}, "passages": {}, "decontaminate": {}}
    assert listed("main", [{"decontaminate": False}, {"shape": {"drop": [1]}}]) == {
        "shape": {"drop": [1]},
        "decontaminate": "off",
    }
    assert [*listed("main", [{"shape": {}}, {"decontaminate": {"min_share": 0.2}}])] == ["shape", "decontaminate"]


@pytest.mark.parametrize(
    ("select", "said"),
    [
        ([{"shape": {}, "passages": {}}], "is not one selection; write - NAME: {..}"),
        ([{"shape": {}}, "shape"], "shape comes twice"),
        ([{"shape": 3}], "shape is 3; write its settings"),
        ([{"decontaminate": {}}, "shape"], "decontaminate comes last; write it behind shape"),
        ([{"decontaminate": {"min_shar": 0.2}}], "min_shar: there is no such field"),
        ([{"shape": False}], "shape is False; write its settings, such as {} for none; or take it out"),
        (["shap"], "selection 'shap' is not known.*shape"),
        ([{"decontaminat": False}], "selection 'decontaminat' is not known; did you mean 'decontaminate'"),
        ([f"{HERE}:CHAINS"], "is a dict; it has to be a Selection"),
        ([{f"{HERE}:ALPHA": {"mots": 3}}], "mots: there is no such field; did you mean .most"),
        ([f"{HERE}:ALPHA", f"{HERE}:ALPHA_AGAIN"], "the corpus has a table alpha already"),
        ([f"{HERE}:TRIMS", {"passages": {"cut": True}}], "another selection before it cuts texts"),
    ],
)
def test_a_list_that_cannot_work_is_refused(select: list[Any], said: str) -> None:
    """When the project loads, in one line."""
    with pytest.raises(DefinitionError, match=said):
        corpus_assets(dataclasses.replace(CORPUS, select=tuple(select)))


def test_fields_of_earlier_versions_are_refused_with_what_to_write() -> None:
    """All of them together, in the order that they had."""
    former = {"passages": {"cut": True}, "shape": {"downsample": {0: 0.4}}, "decontaminate": False}
    expected = "write instead: select: [shape: {downsample: {0: 0.4}}, passages: {cut: true}, decontaminate: off]"
    assert expected in instead(former)
    assert instead({"decontaminate": "required"}).endswith("there without being named; take it out")
    assert not {"shape", "passages", "decontaminate"} & Corpus.model_fields.keys()


def test_a_function_that_cannot_be_a_selection_is_refused() -> None:
    """When its module is imported."""

    def nothing(config: Bound) -> Iterator[Failed]:
        yield Failed("no", False)

    def cut(a: pa.Array) -> Iterator[Cut]:
        yield Cut("no", a)

    def table(a: pa.Array, centroids: pa.Table) -> Iterator[Failed]:
        yield Failed("no", a)

    for function, options, said in (
        (nothing, {}, "takes no column"),
        (cut, {"cuts": True}, "read texts, and take content"),
        (table, {}, "centroids is a table that it does not read"),
    ):
        with pytest.raises(StepDeclarationError, match=said):
            selection(reads=("t",), version="1", **options)(function)


ALPHA_AGAIN = bounded("alpha", "b", "t")


@selection(reads=("texts",), version="1", cuts=True, words="with enough left")
def trims(content: pa.Array) -> Iterator[Cut | Failed]:
    """Cut what stands between angle brackets; leave out what is nothing else."""
    spans = []
    for text in content.to_pylist():
        start, end = text.find("<"), text.find(">")
        spans.append([(start, end + 1)] if 0 <= start < end else [])
    yield Cut("bracket", spans)
    cut = [sum(end - start for start, end in of) for of in spans]
    sizes = [len(text) - size for text, size in zip(content.to_pylist(), cut, strict=True)]
    yield Failed("too_short", [size < 40 for size in sizes], sizes, 40)


TRIMS = trims


@selection(reads=("members", "notes.questions", "shaped"), version="1", words="that were measured")
def mild(members__byte_count: pa.Array, question_count: pa.Array, shaped: pa.Table) -> Iterator[Failed]:
    """Leave out what a table of the dataset, which is read in another order here, has no row of; and the largest."""
    yield Failed("unmeasured", pc.or_(pc.is_null(question_count), pc.is_null(members__byte_count)))
    yield Failed("alone", pc.less(pa.array([len(shaped)] * len(question_count)), 2))


MILD = mild


def record(name: str, body: str) -> str:
    """A line of a file."""
    return json.dumps({"id": name, "body": body}) + "\n"


def words(seed: int) -> str:
    """Text of forty words of its own."""
    return " ".join(f"{random.Random(seed * 100 + n).choice('bdgklm')}{seed}a{n}" for n in range(40)) + ".\n"


def ids(catalogue: Catalog, table: str) -> set[str]:
    """Ids of the documents in a table."""
    rows = read_columns(catalogue, table, ("doc_id",))
    assert rows is not None
    return set(rows["doc_id"].to_pylist())


@pytest.mark.nightly
def test_one_of_a_package_outside_in_the_midst_of_a_corpus(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, step key, funnel, why, trace and history of two increments; the lake is read without the package too."""
    (tmp_path / "lake").mkdir()
    for name, value in settings_at(tmp_path / "lake").properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    source = tmp_path / "source"
    source.mkdir()
    texts = {f"plain-{n}": words(n) for n in range(6)}
    texts |= {"asks": words(10) + "Why? Who? When?", "little": words(13)[:30]}
    texts |= {"cut": words(11) + "<gone è>" + words(12)}
    (source / "a.jsonl").write_text("".join(record(name, text) for name, text in texts.items()))
    notes = DatasetDeclaration(
        name="notes",
        source={"kind": "files", "path": str(source), "text_column": "body", "id_column": "id"},
        scorers={"questions": {}},
        policy={"rules": [{"rule": "empty", "signal": "word_count", "below": 1}]},
    )
    shape = {"shape": {"lengths": {"keep": 1.0}}}
    select: tuple[Any, ...] = (shape, {f"{HERE}:TRIMS": {}}, f"{HERE}:MILD", {"mill.picked": {"max_questions": 2}})
    corpus = dataclasses.replace(CORPUS, select=select)
    catalogue = open_catalogue(settings_at(tmp_path / "lake"))
    runs = []
    with dg.DagsterInstance.ephemeral() as instance:
        for number in range(3):
            if number == 1:
                (source / "b.jsonl").write_text(record("late", words(20) + 4 * "Why? ") + record("l", words(21)))
            if number == 2:
                corpus = dataclasses.replace(CORPUS, select=(*select[:3], {"mill.picked": {"max_questions": 3}}))
            run_declared([notes], [corpus], instance, ["notes", "main"])
            ledger = Ledger.fresh(catalogue)
            runs.append({place: row.step_key for place, row in ledger.places("main.picked").items()})
            if number == 1:
                first = ids(catalogue, "main.picked_rejected")
    assert runs[1]["0"] == runs[0]["0"] and runs[2]["0"] != runs[1]["0"]

    documents = read_columns(catalogue, "notes.documents", ("doc_id", "path"))
    assert documents is not None
    named = {row["path"].partition("#")[2]: row["doc_id"] for row in documents.to_pylist()}
    assert first == {named["asks"], named["late"]} and ids(catalogue, "main.picked_rejected") == {named["late"]}
    rejected = read_columns(catalogue, "main.picked_rejected", ("failed",))
    assert rejected is not None
    assert rejected["failed"].to_pylist() == [[{"rule": "asks_too_much", "value": 4.0, "threshold": 3.0}]]
    assert ids(catalogue, "main.trims") == ids(catalogue, "main.survivors") - {named["little"]}
    assert ids(catalogue, "main.picked") == ids(catalogue, "main.trims") - {named["late"]}
    assert ids(catalogue, "main.tokens") == ids(catalogue, "main.picked") == ids(catalogue, "main.ordered")

    facts = find_corpus(catalogue, "main")
    assert [stage.name for stage in facts.stages] == ["shape", "trims", "mild", "picked"]
    counted = {stage.step: stage.documents for stage in funnel(catalogue, facts)}
    steps = ["survivors", "shaped", "trims", "mild", "picked", "tokens"]
    assert [*counted][-6:] == steps and [counted[step] for step in steps] == [11, 11, 10, 10, 9, 9]
    lake = OpenedLake(catalogue)
    said = {name: lake.why(named[name], "main").findings for name in ("late", "little", "cut", "plain-1")}
    assert said["late"][-1].sentence == "left out by asks_too_much (4, the bound is 3)"
    assert said["little"][-1].sentence == "left out by too_short (30, the bound is 40)"
    cuts = {one.table: one for one in said["cut"]}
    assert cuts["main.picked"].outcome == "stays" and said["plain-1"][-1].outcome == "packed"
    assert (cuts["main.trims_texts"].outcome, cuts["main.trims_texts"].sentence) == ("cut", "9 bytes cut in 1 places")
    newest = [row.run_id for row in ledger.places("main.tokens").values()][-1:]
    told = next(line for line in changes(catalogue, newest) if line.startswith("main"))
    assert "of them that ask little" in told
    shown = CliRunner().invoke(headrace, ["corpus", "show", "main"])
    assert "picked" in shown.output and shown.exit_code == 0
    explored(catalogue, tmp_path, named["late"])
    moved = CliRunner().invoke(headrace, ["diff", "main", "main"])
    assert "after picked: 9 -> 9" in moved.output
    card = CliRunner().invoke(headrace, ["corpus", "show", "main", "--card"])
    assert "| picked | that ask little | picked | picked_rejected |" in card.output

    traced = source_of(catalogue, named["cut"])
    whole = texts["cut"].encode()
    assert traced == whole.replace("<gone è>".encode(), b"")
    site_modules = [one for one in sys.modules if one.partition(".")[0] == "mill"]
    for one in site_modules:
        monkeypatch.delitem(sys.modules, one)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one != str(site)])
    assert stages_of(Ledger.fresh(catalogue), "main") == facts.stages


def explored(catalogue: Catalog, folder: Path, doc_id: str) -> None:
    """The explorer counts its documents on the first page and that of the corpus, and says what it left out."""
    pytest.importorskip("starlette")
    from tests.headrace_features.explore.judged_lake import pages

    client = pages(catalogue, folder)
    assert "that ask little" in client.get("/lake").text
    assert "picked" in client.get("/corpora/main").text
    assert "left out by asks_too_much" in client.get(f"/documents/{doc_id}").text
    assert "after picked" in client.get("/compare", params={"first": "main", "second": "main"}).text


def source_of(catalogue: Catalog, doc_id: str) -> bytes:
    """The bytes of a file that the tokens of a document lead back to."""
    windows = read_columns(catalogue, "main.packed_notes_256", ("ordinal", "segments"))
    assert windows is not None
    tracer, spans = TokenTracer(catalogue, "main.packed_notes_256"), dict[int, tuple[int, int]]()
    for row in windows.to_pylist():
        for segment in row["segments"]:
            if segment["doc_id"] == doc_id:
                places = range(segment["window_start"], segment["window_start"] + segment["token_count"])
                traced = [tracer.trace(row["ordinal"], place) for place in places]
                spans |= {one.document_token: (one.source_start, one.source_end) for one in traced if one.token_id}
    rows = read_columns(catalogue, "notes.documents", ("doc_id", "content"))
    assert rows is not None
    content = {row["doc_id"]: row["content"] for row in rows.to_pylist()}[doc_id].encode()
    return b"".join(content[start:end] for _, (start, end) in sorted(spans.items()))
