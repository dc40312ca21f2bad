"""Experiments: what is left out of every variant, what a run reads, when nothing is trained again."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.types import BooleanType, ListType

from dagster_project.cli import run_command
from dagster_project.exceptions import CommandError, DefinitionError
from headrace.tables.settings import LakeSettings, load_settings, settings_at
from headrace_features.experiments.declaration import ExperimentDeclaration, HeldOut, declare_experiment
from headrace_features.experiments.experiment import LakeExperiment
from headrace_features.experiments.held_out import excluded_documents, read_sets
from headrace_features.experiments.reading import VariantContents, VariantRows, rows_of
from headrace_features.experiments.report import report_of
from headrace_features.synthetic.answers import Answer
from headrace_features.synthetic.attempts import AnswerStore, Landed
from headrace_features.synthetic.requests import Parent, Request
from spark_jobs.lake.run.evaluations import known_rows
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.sources.documents import DOCUMENTS
from spark_jobs.text.texts import TEXTS
from tests.blender_service.packed_tables import PackedFixture, create_packed, open_lake
from tests.dagster_project.conftest import WriteDefs
from tests.dagster_project.inspect.test_lake_status import put
from tests.tiers import sampled

WORDS = [first + second for first in "bdfgklmnprst" for second in ("ana", "eto", "iru", "oma", "uli")]


def text(seed: int, count: int = 60) -> str:
    """A text of words that others with another seed hardly share."""
    return " ".join(np.random.default_rng(seed).choice(WORDS, count))


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalog:
    """An empty lake."""
    return open_lake(tmp_path / "warehouse")


@pytest.fixture
def settings(tmp_path: Path) -> LakeSettings:
    """Where weights would lie."""
    return settings_at(tmp_path)


@pytest.fixture
def packed(catalogue: Catalog) -> PackedFixture:
    """A packed table of 700 rows of 16 tokens."""
    return create_packed(catalogue, "main.packed_notes_16").append(700, seed=1)


def declared(**given: Any) -> ExperimentDeclaration:
    """An experiment of two variants that a command trains."""
    variants = {"one": {"sources": {"main.packed_notes_16": 1}}, "other": {"sources": {"main.packed_notes_16": 1}}}
    base = {"name": "trial", "variants": variants, "budget_tokens": 3000, "seeds": 3, "learning_rates": [0.01]}
    return declare_experiment({**base, "command": ["true"], **given}, Path("/"))


def test_copies_and_families_of_held_out_documents_are_left_out(catalogue: Catalog) -> None:
    """The document, one that holds it, an edited one, what was written from them; no stranger."""
    held = text(1)
    edited = " ".join("anders" if number % 12 == 5 else word for number, word in enumerate(held.split()))
    rows = {
        "held": held,
        "within": f"{text(2)} {held.upper()} {text(3)}",
        "edited": edited,
        "tenth": f"{text(4)} {' '.join(held.split()[:6])}",
        "stranger": text(5),
    }
    put(catalogue, "notes", TEXTS, 0, [{"doc_id": name, "content": content} for name, content in rows.items()])
    parent = Parent("notes", "within", "text", 0, 4)
    for key, source in (("k1", parent), ("k2", Parent("twin", "child", "text", 0, 4))):
        store = AnswerStore(catalogue, "twin")
        store.write([], [Landed(Request(key, {"max_tokens": 1}, source, "plain"), Answer(), "text", "")])
    children = [
        {"doc_id": name, "path": f"plain#{key}", "metadata": [("parent", source)]}
        for name, key, source in (("child", "k1", "within"), ("grandchild", "k2", "child"))
    ]
    put(catalogue, "twin", DOCUMENTS, 0, children)
    file = Path(str(catalogue.properties["warehouse"]).removeprefix("file://")).parent / "held.jsonl"
    file.write_text(json.dumps({"text": held}) + "\n")
    sets = read_sets(catalogue, {"file": HeldOut(file=file)})
    found = excluded_documents(catalogue, sets, ["notes"], 0.5)
    near = dict.fromkeys(("held", "within", "edited"), "near")
    assert found == {**near, "child": "family", "grandchild": "family"}


def test_a_family_is_held_out_as_a_whole(catalogue: Catalog) -> None:
    """The hash of the root decides, so nobody trains on siblings and parents of a held-out document."""
    children = [(n, k) for n in range(40) for k in "ab"]
    put(catalogue, "twin", TEXTS, 0, [{"doc_id": f"c{n}{k}", "content": text(10 * n + ord(k))} for n, k in children])
    for n, k in children:
        request = Request(f"{n}{k}", {"max_tokens": 1}, Parent("notes", f"r{n}", "text", 0, 4), "plain")
        AnswerStore(catalogue, "twin").write([], [Landed(request, Answer(), "text", "")])
    documents = [
        {"doc_id": f"c{n}{k}", "path": f"plain#{n}{k}", "metadata": [("parent", f"r{n}")]} for n, k in children
    ]
    put(catalogue, "twin", DOCUMENTS, 0, documents)
    (found,) = read_sets(catalogue, {"twin": HeldOut(dataset="twin", share=0.4)})
    chosen = {doc_id for doc_id, _ in found.documents}
    assert 8 < len(chosen) < 60 and {f"{one[:-1]}{k}" for one in chosen for k in "ab"} == chosen
    assert {f"r{one[1:-1]}" for one in chosen} <= found.families


def test_tables_with_masks_are_refused(catalogue: Catalog, packed: PackedFixture) -> None:
    """A proxy would be trained on what the masks leave out."""
    blend = LakeExperiment(declared(), catalogue, settings_at(Path("/nowhere"))).blend("one", 0)
    with packed.table.update_schema() as change:
        change.add_column("trainable", ListType(100, BooleanType(), element_required=True))
    with pytest.raises(CommandError, match="packed_notes_16 is trained on as its masks say"):
        next(rows_of(catalogue, blend, {}, 3000, 0, VariantContents()))


def test_rows_are_without_what_is_left_out_and_end_at_the_budget(catalogue: Catalog, packed: PackedFixture) -> None:
    """By brute force from the rows as they were written; two seeds have other orders of the same rows."""
    by_document = {name: (row, count) for row in packed.rows for name, _, count, _ in row.segments}
    gone = dict.fromkeys(list(by_document)[::3], "near")
    experiment = LakeExperiment(declared(), catalogue, settings_at(Path("/nowhere")))
    blend, contents = experiment.blend("one", 0), VariantContents()
    read = list(rows_of(catalogue, blend, gone, 3000, 0, contents))
    tokens = Counter(
        tuple(ids[numbers == number].tolist())
        for rows in read
        for ids, numbers in zip(rows.input_ids, rows.document_ids, strict=True)
        for number in np.unique(numbers[numbers >= 0])
    )
    written = Counter(
        row.input_ids[start : start + count]
        for row in packed.rows
        for name, _, count, start in row.segments
        if name not in gone
    )
    assert tokens and not tokens - written
    assert contents.tokens == sum(rows.tokens for rows in read) and 3000 <= contents.tokens < 3000 + 16
    assert contents.left_out["near"] > 50 and contents.digest and len(contents.documents) > 100
    again, other = VariantContents(), VariantContents()
    list(rows_of(catalogue, blend, gone, 3000, 0, again))
    list(rows_of(catalogue, blend, gone, 3000, 1, other))
    assert again.digest == contents.digest != other.digest
    joined = read[0].cut(0, 3).followed_by(read[0].cut(3, 7))
    assert isinstance(joined, VariantRows) and np.array_equal(joined.input_ids, read[0].input_ids[:7])
    with pytest.raises(CommandError, match="almost all"):
        list(rows_of(catalogue, blend, dict.fromkeys(by_document, "near"), 3000, 0, VariantContents()))


@sampled()
@pytest.mark.parametrize(("budget", "disjoint"), [(6000, False), (2000, True)])
def test_samples_are_disjoint_where_an_epoch_has_room_for_them(
    catalogue: Catalog, tmp_path: Path, budget: int, disjoint: bool
) -> None:
    """By the rows that were read: no row of one seed is of another; they overlap where there are too few."""
    create_packed(catalogue, "main.packed_notes_16").append(900, seed=1)
    (tmp_path / "essays.jsonl").write_text(json.dumps({"text": "an essay"}))
    held_out = {"essays": {"file": str(tmp_path / "essays.jsonl")}}
    experiment = LakeExperiment(
        declared(command=[], held_out=held_out, budget_tokens=budget), catalogue, settings_at(tmp_path)
    )
    read: Counter[tuple[int, ...]] = Counter()
    for run in (one for one in experiment.runs() if one.variant == "one"):
        groups = rows_of(catalogue, run.blend, {}, budget, run.seed, made := VariantContents(), run.start)
        read.update({tuple(row) for rows in groups for row in rows.input_ids.tolist()})
        assert made.digest == run.rows_digest
    assert experiment.disjoint == disjoint
    assert (max(read.values()) == 1) == disjoint
    assert (experiment.read_share("one", "other") == 0) and experiment.check() is None


_COMMAND = """
import json, sys
seed, rate, blend = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
open(sys.argv[4], "a").write("trained\\n")
print("a line before it")
print(json.dumps({"essays": 1.0 + seed / 10 + rate, "other": 2.0}))
"""


@pytest.mark.nightly
def test_commands_take_experiments_by_name(
    lake_env: Path, declare: WriteDefs, capfd: pytest.CaptureFixture[str]
) -> None:
    """`plan` says what is to be done, `run` does it and compares, `experiment show` has all runs or the verdicts."""
    source = {"kind": "files", "path": str(lake_env)}
    corpus = {"name": "main", "datasets": ["notes"], "window_tokens": [16]}
    declare("notes", json.dumps({"type": "headrace.Dataset", "attributes": {"name": "notes", "source": source}}))
    declare("main", json.dumps({"type": "headrace.Corpus", "attributes": corpus}))
    create_packed(open_catalogue(load_settings()), "main.packed_notes_16").append(700, seed=1)
    command = [sys.executable, "-c", _COMMAND.strip(), "{seed}", "{rate}", "{blend}", str(lake_env / "log")]
    given = declared(command=command).model_dump(mode="json", exclude_unset=True)
    declare("trial", json.dumps({"type": "headrace.Experiment", "attributes": given}))

    def said(*words: str) -> str:
        assert run_command([*words]) == 0, capfd.readouterr().err
        return capfd.readouterr().out

    assert "trial: 6 of 6 runs are to be done, 18,000 tokens in all\n" in said("plan", "trial")
    assert said("experiment", "show").startswith("No experiment was run yet")
    assert "no difference seen" in said("run", "trial")
    assert "no difference seen" in said("experiment", "show", "trial")
    assert said("experiment", "show").count("trial") == 6
    assert run_command(["experiment", "show", "trail"]) == 2
    assert "did you mean 'trial'?; see docs/feed/experiments.md" in capfd.readouterr().err


def test_a_run_is_known_by_what_decides_it(catalogue: Catalog, packed: PackedFixture, settings: LakeSettings) -> None:
    """Equal variants are trained once; run again nothing is; another budget is another run; an end midway goes on."""
    log = settings.home / "log"
    settings.home.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", _COMMAND, "{seed}", "{rate}", "{blend}", str(log)]
    experiment = LakeExperiment(declared(command=command), catalogue, settings)
    with pytest.raises(CommandError, match="headrace run trial"):
        report_of(experiment)
    first = experiment.do(experiment.missing())
    next(first)
    first.close()  # as killed in the middle
    assert len(log.read_text().splitlines()) == 1
    list(experiment.do(experiment.missing()))
    assert len(log.read_text().splitlines()) == 3, "the variants are one blend, so three seeds are three trainings"
    rows = known_rows(catalogue, "trial")
    assert len(rows) == 6 and {row["variant"] for row in rows} == {"one", "other"}
    assert list(experiment.do(experiment.missing())) == []
    text, page = report_of(experiment).text(), report_of(experiment).metadata()
    assert {record.data["verdict"] for record in page["verdicts"].records} == {"no difference seen"}
    assert page["means"].records[0].data == {
        "set and measure": "essays value, rate 0.01",
        "one": "1.1100",
        "other": "1.1100",
        "by chance": "",
    }
    assert "one against other on essays: no difference seen" in text and "6 of 6 runs" in text
    more = LakeExperiment(declared(command=command, budget_tokens=4000), catalogue, settings)
    assert len(more.missing()) == 6
    failing = LakeExperiment(declared(command=[sys.executable, "-c", "print('no')"], seeds=1), catalogue, settings)
    with pytest.raises(CommandError, match="must be a JSON object"):
        list(failing.do(failing.missing()))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"variants": {"one": {"blend": "a"}}}, "one alone is compared with nothing"),
        ({"variants": {"one": {}, "other": {"blend": "b"}}}, "give a blend or sources"),
        ({"budget_bytes": 5000}, "give budget_tokens or budget_bytes"),
        ({"learning_rates": [0.01, 0.01]}, "one of them is there twice"),
        ({"command": []}, "give a set to measure by"),
        ({"held_out": {"a": {"file": "none.jsonl"}}}, "none.jsonl is not there"),
        ({"sedes": 3}, "sedes"),
        ({"harness": {"tasks": ["arc_easy"]}}, "a command reports its own measures"),
        ({"command": [], "harness": {"tasks": ["a"], "folder": "none"}}, "none is no folder; correct harness.folder"),
        ({"command": [], "harness": {"tasks": ["a", "a"]}}, "a is the name of two sets"),
    ],
)
def test_what_cannot_be_compared_is_refused_when_it_is_declared(given: dict[str, Any], said: str) -> None:
    """In a line that names the field."""
    with pytest.raises(DefinitionError, match=said):
        declared(**given)


def test_variants_that_differ_in_more_than_their_data_are_refused(catalogue: Catalog, packed: PackedFixture) -> None:
    """Another tokenizer without a budget in bytes."""
    create_packed(catalogue, "raw.packed_notes_16", tokenizer_sha256="a" * 64).append(50, seed=2)
    variants = {"one": {"sources": {"main.packed_notes_16": 1}}, "raw": {"sources": {"raw.packed_notes_16": 1}}}
    experiment = LakeExperiment(declared(variants=variants), catalogue, settings_at(Path("/nowhere")))
    with pytest.raises(CommandError, match="different tokenizers; give budget_bytes"):
        experiment.check()
