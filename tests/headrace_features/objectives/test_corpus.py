"""A corpus of code, cut to fill in the middle, from files to windows and back to files, lines and bytes."""

from __future__ import annotations

import dataclasses
import itertools
import random
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import dagster as dg
import pytest
from pyiceberg.catalog import Catalog
from tokenizers import Tokenizer

from dagster_project.assets.corpora import corpus_assets
from dagster_project.assets.datasets import DatasetDeclaration
from dagster_project.exceptions import CommandError, DefinitionError
from dagster_project.inspect.documents.trace import TokenTracer
from dagster_project.inspect.opened_lake import OpenedLake
from headrace.tables.settings import settings_at
from headrace_features.objectives.config import FimConfig
from headrace_features.objectives.fim import choose
from headrace_features.objectives.preview import previewed
from headrace_features.objectives.sentinels import Sentinels
from headrace_features.objectives.undo import undo
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.tokens.pieces import with_letters
from tests.dagster_project.planted_lake import run_declared
from tests.dagster_project.test_shaped_corpus import CORPUS
from tests.headrace_features.objectives.fim_tokenizer import fim_tokenizer, library_of
from tests.headrace_features.objectives.sources import SOURCES

L = 128
_SUFFIXES = {"Python": "py", "C": "c", "Go": "go", "Java": "java", "JavaScript": "js", "Rust": "rs"}
FIM = {"rate": 0.6, "cut": "syntax", "seed": 3}


class CodeLake(NamedTuple):
    """A lake, its files by path, the library's tokenizer, and ids of sentinels."""

    catalogue: Catalog
    files: dict[str, bytes]
    library: Tokenizer
    ids: Sentinels


def _files() -> dict[str, bytes]:
    """Files of six languages, a few of them longer than a window, and prose."""
    words = random.Random(5)
    files = {}
    for number in range(60):
        language = [*SOURCES][number % 6]
        mark = "#" if language == "Python" else "//"
        ends = "\r\n" if language == "C" else "\n"
        header = "".join(f"{mark} {words.random()} größe{ends}" for _ in range(1 + number % 3))
        files[f"{language}{number}.{_SUFFIXES[language]}"] = (header + SOURCES[language] * (1 + number % 5)).encode()
    prose = {f"n{n}.md": f"{words.random()} is what line {n} of this page is about, again.\n" * 3 for n in range(5)}
    files["names.py"] = b"# <fim_prefix> and <fim_middle>\nx = 1\ny = f(x, '<fim_suffix>')\n" * 2
    return files | {name: text.encode() for name, text in prose.items()}


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=pytest.mark.nightly)])
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CodeLake]:
    """A dataset of code, a corpus that is cut and one that is not, with a tokenizer of bytes or one as Qwen's."""
    folder, files = tmp_path_factory.mktemp("code"), _files()
    file_text, ids = fim_tokenizer(is_qwen=request.param)
    for name in ("lake", "data"):
        (folder / name).mkdir()
    (folder / "tokenizer.json").write_text(file_text)
    for name, data in files.items():
        (folder / "data" / name).write_bytes(data)
    with pytest.MonkeyPatch.context() as patched:
        for name, value in settings_at(folder / "lake").properties.items():
            patched.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
        dataset = DatasetDeclaration(
            name="notes",
            source={"kind": "files", "path": str(folder / "data")},
            policy={"rules": [{"rule": "empty", "signal": "word_count", "below": 0}]},
        )
        given = {"window_tokens": (L, 4 * L), "tokenizer": {"file": str(folder / "tokenizer.json")}}
        plain = dataclasses.replace(CORPUS, name="plain", **given)
        cut = dataclasses.replace(CORPUS, objectives={"code": {"fim": FIM}}, **given)
        with dg.DagsterInstance.ephemeral() as instance:
            run_declared([dataset], [plain, cut], instance, ["notes", "plain", "main"])
        yield CodeLake(
            open_catalogue(settings_at(folder / "lake")), files, library_of(with_letters(file_text, ids)), ids
        )


def _rows(catalogue: Catalog, table: str) -> list[dict[str, Any]]:
    return catalogue.load_table(table).scan().to_arrow().to_pylist()


def _paths(lake: CodeLake) -> dict[str, str]:
    return {row["doc_id"]: row["path"] for row in _rows(lake.catalogue, "notes.documents")}


@pytest.mark.parametrize("length", [L, 4 * L])
def test_every_document_comes_back_from_its_windows(lake: CodeLake, length: int) -> None:
    """The file, but for ends of lines and composed letters, which landing writes in one way; none is cut off."""
    parts = defaultdict[str, list[tuple[int, list[int]]]](list)
    for window in _rows(lake.catalogue, f"main.packed_notes_{length}"):
        for segment in window["segments"]:
            ids = window["input_ids"][segment["window_start"] :][: segment["token_count"]]
            parts[segment["doc_id"]].append((segment["document_start"], ids))
    end = _rows(lake.catalogue, "main.tokenizer")[0]["end_of_document_id"]
    texts = {row["doc_id"]: row["content"] for row in _rows(lake.catalogue, "notes.texts")}
    assert parts.keys() == texts.keys() and len(texts) == len(lake.files)
    paths = _paths(lake)
    for doc_id, rows in parts.items():
        text = "".join(
            undo(ids, lake.ids, end, lambda ids: lake.library.decode(ids, skip_special_tokens=False))
            for _, ids in sorted(rows)
        )
        assert text == texts[doc_id]
        assert text == unicodedata.normalize("NFC", lake.files[paths[doc_id]].decode()).replace("\r\n", "\n")


def test_forms_are_those_of_the_choice(lake: CodeLake) -> None:
    """Of each row: whether it is cut, in which form; syntax cuts but where a row has no node."""
    fim, forms, cuts = FimConfig(**FIM), Counter[str](), Counter[str]()
    kinds = {row["doc_id"]: row["kind"] for row in _rows(lake.catalogue, "notes.texts")}
    for row in _rows(lake.catalogue, "main.tokens"):
        is_code = kinds[row["doc_id"]] == "code"
        choices = [choose(fim, row["doc_id"], 0, number) for number in range(len(row["forms"]))]
        wanted = ["whole" if not (is_code and c.is_cut) else "spm" if c.is_spm else "psm" for c in choices]
        assert row["forms"] == wanted or "whole" in row["forms"]
        assert len(row["forms"]) == len(row["row_starts"]) + 1
        forms.update(row["forms"])
        cuts.update(row["cuts"])
    assert min(forms.values()) > 10 and cuts["syntax"] > 0.8 * (cuts["syntax"] + cuts["line"])


def test_windows_are_as_full_as_without(lake: CodeLake) -> None:
    """As those of the plain corpus; tokens are its own, sentinels, and what cuts add."""
    for length in (L, 4 * L):
        fill = {}
        for corpus in ("plain", "main"):
            windows = _rows(lake.catalogue, f"{corpus}.packed_notes_{length}")
            fill[corpus] = sum(row["token_count"] for row in windows[:-1]) / (length * (len(windows) - 1))
        assert fill["main"] > fill["plain"] - 0.02, fill
    plain = {row["doc_id"]: row["token_count"] for row in _rows(lake.catalogue, "plain.tokens")}
    paths = _paths(lake)
    for row in _rows(lake.catalogue, "main.tokens"):
        if paths[row["doc_id"]] == "names.py":  # where names of sentinels are letters, as they are not in `plain`
            continue
        pieces = sum(piece["start"] == -1 for piece in row["pieces"])
        assert plain[row["doc_id"]] <= row["token_count"] <= plain[row["doc_id"]] + pieces + 16 * len(row["forms"])


def test_a_token_is_traced_to_its_line_wherever_it_was_moved(lake: CodeLake) -> None:
    """Bytes of the file are those of the token, for all kinds of tokens of windows drawn at random."""
    drawn, what = random.Random(1), Counter[str]()
    windows = {row["ordinal"]: row for row in _rows(lake.catalogue, f"main.packed_notes_{L}")}
    texts = {row["doc_id"]: row["content"] for row in _rows(lake.catalogue, "notes.texts")}
    tracer = TokenTracer(lake.catalogue, f"main.packed_notes_{L}")
    for _ in range(400):
        ordinal, position = drawn.choice([*windows]), drawn.randrange(L)
        traced = tracer.trace(ordinal, position)
        what[traced.what] += 1
        token = windows[ordinal]["input_ids"][position]
        if traced.what == "sentinel":
            assert token in (*lake.ids, 0) and traced.source_start is None
        if traced.what == "token":
            data, text = lake.files[str(traced.path)], texts[str(traced.doc_id)].encode()
            source = data[traced.source_start : traced.source_end].decode(errors="replace")
            letters = lake.library.decode([token], skip_special_tokens=False)
            assert unicodedata.normalize("NFC", source).replace("\r\n", "\n") == letters or "\ufffd" in letters
            assert data.count(b"\n", 0, traced.source_start) == text.count(b"\n", 0, traced.text_start)
    assert what["token"] > 250 and what["sentinel"] > 3


def test_doc_why_tells_rows_and_the_lines_of_middles(lake: CodeLake) -> None:
    """For a document that was cut: form, cut and lines."""
    row = next(
        row for row in _rows(lake.catalogue, "main.tokens") if row["forms"] == ["psm"] and row["cuts"] == ["syntax"]
    )
    text = {row["doc_id"]: row["content"] for row in _rows(lake.catalogue, "notes.texts")}[row["doc_id"]].encode()
    middle = row["pieces"][-1]
    first, last = (text[: middle[end]].count(b"\n") + 1 for end in ("start", "end"))
    story = OpenedLake(lake.catalogue).why(row["doc_id"], corpus="main")
    (finding,) = [finding for finding in story.findings if finding.table == "main.tokens"]
    lines = f"lines {first:,} to {last:,}" if last > first else f"line {first:,}"
    assert finding.sentence.endswith(f"psm, its middle {lines} by syntax")


def test_a_document_is_previewed_as_the_model_sees_it(lake: CodeLake) -> None:
    """The rows of the table, in words; a dataset that shows no texts is refused."""
    declared = {"name": "main", "objectives": {"code": {"fim": FIM}}, "window_tokens": [L, 4 * L]}
    library, end = lake.library, _rows(lake.catalogue, "main.tokenizer")[0]["end_of_document_id"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("headrace_features.objectives.preview.texts_are_shown", lambda dataset: True)
        for row in _rows(lake.catalogue, "main.tokens")[:20]:
            shown = previewed(lake.catalogue, declared, row["doc_id"])
            assert [part["form"] for part in shown.rows] == row["forms"]
            bounds = itertools.pairwise([0, *row["row_starts"], row["token_count"]])
            for part, (begin, stop) in zip(shown.rows, bounds, strict=True):
                ids = row["input_ids"][begin:stop]
                ids = ids[:-1] if ids[-1] == end else ids
                assert part["text"] == library.decode(ids, skip_special_tokens=False)
            assert f"-- row 1: {row['forms'][0]}" in next(shown.lines())
        patched.setattr("headrace_features.objectives.preview.texts_are_shown", lambda dataset: False)
        with pytest.raises(CommandError, match="declare samples: text"):
            previewed(lake.catalogue, declared, row["doc_id"])


def test_conversations_and_objectives_are_refused_together() -> None:
    """And what packing may not do with rows, and a mistake in the settings."""
    objectives = {"code": {"fim": {}}}
    for declared, message in (
        ({"conversations": {"template": "a@1"}}, "it has conversations and objectives; declare a corpus for each"),
        ({"steps": {"packed": {"beginning_of_document": "<s>"}}}, "leave beginning_of_document of packed out"),
        ({"objectives": {"code": {"fim": {"rat": 1}}}}, "fim.rat"),
    ):
        with pytest.raises(DefinitionError, match=message):
            corpus_assets(dataclasses.replace(CORPUS, **{"objectives": objectives, **declared}))
