"""The public summary: its counts are those of reading, and what nobody knows is listed as missing, never inferred."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from blender_service.blend.requests import BlendSpec, SourceSpec, TextSpec
from blender_service.blend.store import open_store
from blender_service.server.blender import Blender
from blender_service.server.run_register import RunRegister
from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.blend_rows import inspect_rows
from headrace_features.rights.summary.summary import Summary, build, size_range
from headrace_features.rights.summary.summary_counts import Counts, Rows, blend_counts, in_rows, run_rows
from headrace_features.rights.summary.summary_facts import DatasetFacts, Named, SummaryFacts, read_facts
from headrace_features.rights.summary.summary_writing import write
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, ensure_table
from spark_jobs.sources.documents import DOCUMENTS
from tests.blender_service.packed_tables import PackedFixture, create_packed, open_lake
from tests.blender_service.test_texts import put_texts

DATASETS = ("web", "books", "deals", "bought", "chats", "twins", "notes")
DOMAINS = 40
_SECTIONS = ("2.1", "2.2.1", "2.2.2", "2.3", "2.4", "2.5", "2.6")


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """A lake with one packed table, and its documents dealt to seven datasets; web has forty domains."""
    catalogue = open_lake(tmp_path / "warehouse")
    packed = create_packed(catalogue, "main.packed_16").append(300, seed=1).append(200, seed=2, increment=1)
    land(catalogue, packed, DATASETS)
    return catalogue


def land(catalogue: Catalog, packed: PackedFixture, datasets: tuple[str, ...], forgotten: int = 0) -> None:
    """Write the rows of `documents` for the documents of a packed table, but for some."""
    doc_ids = sorted({segment[0] for row in packed.rows for segment in row.segments})[forgotten:]
    for at, dataset in enumerate(datasets):
        table = ensure_table(catalogue, f"{dataset}.documents", DOCUMENTS, {SCOPE_PROPERTY: "test"})
        rows = [row_of(dataset, doc_id, number) for number, doc_id in enumerate(doc_ids[at :: len(datasets)])]
        schema = table.schema().as_arrow()
        table.append(pa.Table.from_pylist([{"increment": 0, **row} for row in rows], schema=schema))


def row_of(dataset: str, doc_id: str, number: int) -> dict[str, Any]:
    """A row of `documents`."""
    metadata = {}
    if dataset == "web":
        url = f"https://{'www.' if number % 3 else ''}Site{number % DOMAINS}.example/{number}"
        metadata = {"url": url, "fetched": f"2026-{1 + number % 9:02}-03T00:00:00Z"}
    if dataset == "twins":
        metadata = {"model": f"writer-{number % 2}"}
    return {
        "shard": 0, "doc_id": doc_id, "path": f"{number}.txt", "kind": "code" if dataset == "books" else "prose",
        "language": "Python" if dataset == "books" else None, "licence": None, "content": "", "encoding": "utf-8",
        "content_sha256": "0" * 64, "byte_count": 100, "metadata": list(metadata.items()),
    }  # fmt: skip


def by_reading(catalogue: Catalog, blender: Blender, blend_id: str, first: int, end: int) -> Counter[str]:
    """Tokens of each document, by reading the rows one after the other."""
    tokens = Counter[str]()
    for row in inspect_rows(catalogue, blender, blend_id, first, end - first):
        for segment in row.segments:
            tokens[segment.doc_id] += segment.token_count
    return tokens


@pytest.fixture
def blender(lake: Catalog) -> Blender:
    """Of the lake, with a blend that goes round."""
    return Blender(lake)


@pytest.mark.parametrize("end", [1, 137, 500, 777, 1500])
def test_tokens_are_those_of_reading_the_rows(lake: Catalog, blender: Blender, end: int) -> None:
    """Of the blend, of each domain, and of each dataset, at any offset, in any epoch."""
    blend_id = blender.create(BlendSpec((SourceSpec("main.packed_16", max_epochs=3),), seed=5)).blend_id
    counts = blend_counts(lake, blender, "blend", [Rows(blend_id, 0, end)])
    read = by_reading(lake, blender, blend_id, 0, end)
    assert counts.tokens_read == read.total() and counts.unknown_tokens == 0
    domains = Counter[str]()
    for dataset in DATASETS:
        for row in lake.load_table(f"{dataset}.documents").scan().to_arrow().to_pylist():
            url = dict(row["metadata"]).get("url", "")
            host = re.sub(r"^https://(www\.)?|/.*", "", url).lower()
            domains[host] += read[row["doc_id"]]
    reads = Counter[str]()
    for row in counts.documents.to_pylist():
        reads[row["domain"] or ""] += row["tokens_read"]
    assert reads == +domains and (end < 500 or len(domains) == DOMAINS + 1)


def test_documents_of_no_dataset_are_counted(tmp_path: Path) -> None:
    """They are told apart, and nothing is attributed to another dataset."""
    catalogue = open_lake(tmp_path / "warehouse")
    packed = create_packed(catalogue, "main.packed_16").append(50, seed=1)
    land(catalogue, packed, ("notes",), forgotten=20)
    blender = Blender(catalogue)
    blend_id = blender.create(BlendSpec((SourceSpec("main.packed_16"),))).blend_id
    counts = blend_counts(catalogue, blender, "blend", [Rows(blend_id, 0, None)])
    forgotten = sorted({segment[0] for row in packed.rows for segment in row.segments})[:20]
    read = by_reading(catalogue, blender, blend_id, 0, 50)
    assert counts.unknown_tokens == sum(read[doc_id] for doc_id in forgotten) > 0
    assert counts.tokens_read == read.total()
    assert any(value.label.endswith("left out of this summary") for value in part(build_of(catalogue, counts), "1.3"))


def test_a_run_that_went_back_learnt_from_rows_once(lake: Catalog, blender: Blender) -> None:
    """From what it read last; ranks read the same rows; a checkpoint is a prefix."""
    blend_id = blender.create(BlendSpec((SourceSpec("main.packed_16", max_epochs=0),), seed=5)).blend_id
    register = RunRegister(open_store(lake).objects)
    for number, (first, end) in enumerate([(0, 300), (0, 310), (200, 420), (200, 405), (400, 700)]):
        facts = {"blend": blend_id, "first": first, "end": end, "consumed": end, "began": f"2026-01-0{number + 1}"}
        facts |= {"principal": "", "world_size": 2, "step_rows": 10, "code_version": "", "notes": ""}
        register.write("llm", f"{number:04}.0", facts)
    rows = run_rows(lake, blender, "llm", None)
    assert rows == [Rows(blend_id, 0, 200), Rows(blend_id, 200, 400), Rows(blend_id, 400, 700)]
    counts = blend_counts(lake, blender, "run", rows)
    read = by_reading(lake, blender, blend_id, 0, 700)
    assert counts.tokens_read == read.total()
    once = sum(count for _, _, count in counts.by("dataset"))
    assert once == sum(by_reading(lake, blender, blend_id, 0, 500).values()) < counts.tokens_read
    assert run_rows(lake, blender, "llm", 250) == [Rows(blend_id, 0, 200), Rows(blend_id, 200, 250)]


def build_of(catalogue: Catalog, counts: Counts, facts: SummaryFacts | None = None) -> Summary:
    """The summary of some counts."""
    return build(catalogue, counts, facts or SummaryFacts())


def part(summary: Summary, number: str) -> Any:
    """The fields of a part."""
    return next(part.values for part in summary.parts if part.number == number)


STATED = SummaryFacts(
    datasets={
        "web": DatasetFacts(section="crawled", crawler="MillBot", purpose="training", behaviour="keeps to robots.txt"),
        "books": DatasetFacts(section="public", title="Books", link="https://example.org/books"),
        "deals": DatasetFacts(section="licensed"),
        "bought": DatasetFacts(section="private", publicly_known=False, description="sales talks"),
        "chats": DatasetFacts(section="user", interactions=True, services="none"),
        "twins": DatasetFacts(section="synthetic", models=(Named(name="writer-0", link="https://example.org/w"),)),
        "notes": DatasetFacts(section="other", description="own notes"),
    }
)  # fmt: skip


@pytest.fixture
def counts(lake: Catalog, blender: Blender) -> Counts:
    """Of one pass over the table."""
    blend_id = blender.create(BlendSpec((SourceSpec("main.packed_16"),))).blend_id
    return blend_counts(lake, blender, "blend mix", [Rows(blend_id, 0, None)])


def test_nothing_is_inferred(lake: Catalog, counts: Counts) -> None:
    """Without a stated kind of every dataset no question of section 2 is answered no."""
    summary = build_of(lake, counts)
    for number in _SECTIONS:
        assert part(summary, number)[0].origin == "missing"
    partly = SummaryFacts(datasets={"web": DatasetFacts(section="crawled")})
    summary = build_of(lake, counts, partly)
    assert part(summary, "2.3")[0].value == "yes" and part(summary, "2.1")[0].origin == "missing"
    assert any("datasets.web.crawler" in line for line in summary.missing)


@pytest.mark.parametrize("name", ["wbe", "Web", "main", "web.documents"])
def test_facts_of_no_dataset_are_refused(lake: Catalog, counts: Counts, name: str) -> None:
    """A typo would leave a dataset without its facts, and nobody would see it."""
    facts = SummaryFacts(datasets={**STATED.datasets, name: DatasetFacts(section="user")})
    with pytest.raises(CommandError, match=rf"datasets\.{name}: the lake has no such dataset"):
        build_of(lake, counts, facts)


def test_what_was_read_of_deleted_datasets_is_not_answered_no(lake: Catalog, counts: Counts) -> None:
    """They may have been of any kind."""
    stated = SummaryFacts(datasets=dict.fromkeys(DATASETS, DatasetFacts(section="other")))
    assert part(build_of(lake, counts, stated), "2.3")[0].value == "no"
    summary = build_of(lake, replace(counts, unknown_tokens=7), stated)
    assert {part(summary, number)[0].origin for number in _SECTIONS[:4]} == {"missing"}


def test_a_generating_model_is_missing_where_some_documents_have_none(lake: Catalog, counts: Counts) -> None:
    """Those of other documents are recorded."""
    names = pa.array([None if at % 5 == 0 else name for at, name in enumerate(counts.documents["model"].to_pylist())])
    at = counts.documents.schema.get_field_index("model")
    some = replace(counts, documents=counts.documents.set_column(at, "model", names.cast(pa.string())))
    stated = STATED.model_copy(update={"datasets": {**STATED.datasets, "twins": DatasetFacts(section="synthetic")}})
    assert not any("Generating model" in line for line in build_of(lake, counts, stated).missing)
    assert any("Generating model of twins" in line for line in build_of(lake, some, stated).missing)


def test_six_kinds_of_sources_are_told_field_by_field(lake: Catalog, counts: Counts) -> None:
    """Crawled: period and the largest domains; synthetic: the recorded models; sums are the blend's."""
    summary = build_of(lake, counts, STATED)
    assert all(
        part(summary, number)[0].value == "yes" for number in ("2.1", "2.2.1", "2.2.2", "2.3", "2.4", "2.5", "2.6")
    )
    crawled = {value.label: value.value for value in part(summary, "2.3")}
    assert crawled["Period of collection of web"] == "01/2026 to 09/2026"
    [(label, domains)] = [(label, value) for label, value in crawled.items() if label.startswith("Top 10%")]
    web = counts.of_datasets(["web"])
    ranked = Counter[str]()
    for row in web.to_pylist():
        ranked[row["domain"]] += row["tokens"]
    assert f"of {DOMAINS}" in label and [row["tokens"] for row in domains] == sorted(ranked.values(), reverse=True)[:4]
    models = next(value.value for value in part(summary, "2.5") if value.label == "Generating models")
    assert {row["model"]: row["link"] for row in models} == {"writer-0": "https://example.org/w", "writer-1": ""}
    assert "sales talks" in str(part(summary, "2.2.2")) and "bought" not in str(part(summary, "2.2.2")[1:])
    size = part(summary, "1.3")[0].value
    assert size.startswith("less than 1 billion tokens") and f"{counts.tokens_read:,}" in size
    small = build_of(lake, counts, STATED.model_copy(update={"small_firm": True}))
    assert any(value.label.startswith("Top 5% or 1,000") and len(value.value) == 2 for value in part(small, "2.3"))


def test_a_dataset_that_is_not_there_is_named(lake: Catalog, counts: Counts) -> None:
    """A slip of the pen in its name would else leave its part of the template to be guessed."""
    with pytest.raises(CommandError, match=r"datasets.wbe: the lake has no such dataset.*web"):
        build_of(lake, counts, SummaryFacts(datasets={"wbe": DatasetFacts(section="crawled")}))


@pytest.mark.parametrize("suffix", [".md", ".docx", ".json"])
def test_each_format_has_every_field(lake: Catalog, counts: Counts, tmp_path: Path, suffix: str) -> None:
    """And every missing one, with what to write."""
    summary, file = build_of(lake, counts, STATED), tmp_path / f"summary{suffix}"
    write(summary, file)
    if suffix == ".docx":
        docx = pytest.importorskip("docx", reason="python-docx is in the extra rights")
        document = docx.Document(str(file))
        text = "\n".join(paragraph.text for paragraph in document.paragraphs)
        text += "\n".join(cell.text for table in document.tables for cell in table._cells)
    else:
        text = file.read_text()
    for each in summary.parts:
        assert each.number in text and each.title in text
        for value in each.values:
            assert value.label in text
    assert all(line in text for line in summary.missing) and "site" in text
    if suffix == ".json":
        assert json.loads(text)["missing"] == list(summary.missing)


def test_a_field_that_is_not_of_the_template_is_named(tmp_path: Path) -> None:
    """In one line, with the nearest."""
    file = tmp_path / "facts.yaml"
    file.write_text("provider: {nme: Mill}\n")
    with pytest.raises(Exception, match=r"provider.*nme.*name"):
        read_facts(file)


@pytest.mark.parametrize(
    ("tokens", "named"), [(0, "less"), (10**9 - 1, "less"), (10**9, "1 b"), (10**13 - 1, "1 b"), (10**13, "more")]
)
def test_ranges_are_the_templates(tokens: int, named: str) -> None:
    """Equal to a bound is above it."""
    assert size_range(tokens).startswith(named)


@pytest.mark.nightly
def test_a_million_rows_count_as_they_read(tmp_path: Path) -> None:
    """By domain, a checkpoint in the second epoch of one source and the first of another."""
    catalogue = open_lake(tmp_path / "warehouse")
    packed = create_packed(catalogue, "main.packed_16").append(20_000, seed=1)
    land(catalogue, packed, DATASETS)
    blender = Blender(catalogue)
    blend_id = blender.create(BlendSpec((SourceSpec("main.packed_16", max_epochs=0),), seed=5)).blend_id
    counts = blend_counts(catalogue, blender, "blend", [Rows(blend_id, 0, 1_000_000)])
    tokens = Counter[str]()
    reader, at = blender.open(blend_id), 0
    while at < 1_000_000:
        for batch in reader.read(at, 4096 if at + 4096 <= 1_000_000 else 1_000_000 - at, wait_seconds=1):
            for doc_id, count in zip(batch.doc_ids, np.asarray(batch.segment_token_counts).tolist(), strict=True):
                tokens[doc_id] += count
            at += batch.rows
    assert counts.tokens_read == tokens.total()
    domains, counted = Counter[str | None](), Counter[str | None]()
    numbers = {
        row["doc_id"]: dict(row["metadata"])
        for row in catalogue.load_table("web.documents").scan().to_arrow().to_pylist()
    }
    for doc_id, count in tokens.items():
        url = numbers.get(doc_id, {}).get("url")
        domains[url and re.sub(r"^https://(www\.)?|/.*", "", url).lower()] += count
    for row in counts.documents.to_pylist():
        counted[row["domain"]] += row["tokens_read"]
    assert counted == domains


def test_rows_of_texts_are_read(tmp_path: Path) -> None:
    """Three epochs are three times the tokens of one, however documents were cut in each."""
    catalogue = open_lake(tmp_path / "warehouse")
    catalogue.create_namespace("main")
    put_tokenizer(catalogue)
    texts = {f"{number:032x}": "a word of many words " * (1 + number % 9) for number in range(60)}
    put_texts(catalogue, "main.texts", dict(texts))
    blender = Blender(catalogue)
    spec = BlendSpec((SourceSpec("main.texts", max_epochs=3),), texts=TextSpec("main.tokenizer", 16))
    blend_id = blender.create(spec).blend_id
    counts = blend_counts(catalogue, blender, "blend", [Rows(blend_id, 0, None)])
    assert counts.documents.num_rows == 0  # no dataset has them
    read = in_rows(blender, Rows(blend_id, 0, None))
    assert len(read.keys) == 60 and (read.tokens_read == 3 * read.tokens).all()
    assert counts.unknown_tokens == read.tokens_read.sum() == by_reading_texts(blender, blend_id)


def by_reading_texts(blender: Blender, blend_id: str) -> int:
    """Tokens of all rows of a blend of texts."""
    end = blender.head(blend_id).end or 0
    return sum(int(batch.segment_token_counts.sum()) for batch in blender.open(blend_id).read(0, end, wait_seconds=1))


def put_tokenizer(catalogue: Catalog) -> None:
    """A byte-level tokenizer of a lake."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<|endoftext|>", "<|padding|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["a word of many words"], trainer)
    facts = {"vocabulary_size": [300], "end_of_document_id": [0], "padding_id": [1]}
    row = pa.table({"file": [tokenizer.to_str()], **facts})
    catalogue.create_table("main.tokenizer", row.schema).append(row)
