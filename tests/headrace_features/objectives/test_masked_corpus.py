"""A corpus with rules of masks and headers, from files to windows: rules, names, reasons, and tokens as without."""

from __future__ import annotations

import base64
import dataclasses
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg
import numpy as np
import pytest
from click.testing import CliRunner
from pyiceberg.catalog import Catalog
from tokenizers import Tokenizer

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.server.blender import Blender
from dagster_project.assets.corpora import corpus_assets
from dagster_project.assets.datasets import DatasetDeclaration
from dagster_project.cli import headrace
from dagster_project.exceptions import DefinitionError
from dagster_project.inspect.documents.trace import TokenTracer
from dagster_project.inspect.opened_lake import OpenedLake
from headrace.tables.settings import settings_at
from headrace.tables.window_facts import MASK_RULES
from headrace_features.objectives.masks.rules import MaskedText, mask_rule
from headrace_features.objectives.preview import previewed
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.blender_service.tables.test_trainable import spelled
from tests.dagster_project.planted_lake import run_declared
from tests.dagster_project.test_shaped_corpus import CORPUS
from tests.headrace_features.explore.served import asked, pages
from tests.headrace_features.objectives.fim_tokenizer import fim_tokenizer, library_of
from tests.headrace_features.objectives.sources import SOURCES

L = 128
_FILE, _ = fim_tokenizer()
_BLOB = base64.b64encode(random.Random(1).randbytes(120)).decode()
_LICENCE = "Copyright 2021 Ada. SPDX-License-Identifier: MIT"


@mask_rule(version="1")
def returns(document: MaskedText) -> Iterator[tuple[int, int]]:
    """Words `return`, in code alone."""
    start = document.text.find("return")
    while document.kind == "code" and start >= 0:
        yield start, start + 6
        start = document.text.find("return", start + 6)


RETURNS = f"{__name__}:returns"
OBJECTIVES: dict[str, Any] = {
    "code": {
        "fim": {"rate": 0.5, "cut": "line", "seed": 3},
        "trainable": {"except": ["licence_header", "blob", RETURNS]},
        "header": "{path} ({licence})\n",
    },
    "prose": {"trainable": {"except": ["personal", "blob"]}, "header": "{author}: "},
}
NAMES = ["licence_header", "blob", RETURNS, "personal", "header"]


class MaskedLake(NamedTuple):
    """A lake, and the library's tokenizer."""

    catalogue: Catalog
    library: Tokenizer


def _lines() -> Iterator[dict[str, str]]:
    """Files of six languages with headers and blobs, and letters with mail addresses, some of a known author."""
    for number in range(48):
        language = [*SOURCES][number % 6]
        mark = "#" if language == "Python" else "//"
        text = f"{mark} {_LICENCE}\n\n{mark} {number}\n" + SOURCES[language] * (1 + number % 4)
        yield {"id": f"{number}.{language}", "body": text + (f'\n{mark} "{_BLOB}"\n' if number % 3 == 0 else "")}
    for number in range(12):
        body = f"Write to ada{number}@lovelace.org, or to <MAIL_7>. {number} more words follow here.\n" * 3
        yield {"id": f"n{number}.txt", "body": body, **({"author": f"Ada {number}"} if number % 2 else {})}
    yield {"id": "long.txt", "body": "A letter by somebody with a name. " * 9, "author": "Ada " * 14}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MaskedLake]:
    """A dataset of code and letters; the corpus `main` with rules, `plain` with the same objectives without."""
    folder = tmp_path_factory.mktemp("masked")
    for name in ("lake", "code", "letters"):
        (folder / name).mkdir()
    (folder / "tokenizer.json").write_text(_FILE)
    suffixes = {"Python": "py", "C": "c", "Go": "go", "Java": "java", "JavaScript": "js", "Rust": "rs"}
    letters = []
    for line in _lines():
        number, _, language = line["id"].partition(".")
        if language in suffixes:
            (folder / "code" / f"{number}.{suffixes[language]}").write_text(line["body"])
        else:
            letters.append(json.dumps(line))
    (folder / "letters" / "a.jsonl").write_text("\n".join(letters))
    policy = {"rules": [{"rule": "empty", "signal": "word_count", "below": 0}]}
    with pytest.MonkeyPatch.context() as patched:
        for name, value in settings_at(folder / "lake").properties.items():
            patched.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
        code = DatasetDeclaration(name="notes", source={"kind": "files", "path": str(folder / "code")}, policy=policy)
        source: dict[str, Any] = {
            "kind": "files",
            "path": str(folder / "letters"),
            "text_column": "body",
            "id_column": "id",
        }
        source["metadata_columns"] = ["author"]
        mail = DatasetDeclaration(name="letters", source=source, policy=policy, redact={"mail": "replace"})
        tokenizer = {"file": str(folder / "tokenizer.json")}
        given: dict[str, Any] = {"datasets": ("notes", "letters"), "window_tokens": (L,), "tokenizer": tokenizer}
        bare = {kind: {name: of[name] for name in of if name != "trainable"} for kind, of in OBJECTIVES.items()}
        main = dataclasses.replace(CORPUS, objectives=OBJECTIVES, **given)
        plain = dataclasses.replace(CORPUS, name="plain", objectives=bare, **given)
        with dg.DagsterInstance.ephemeral() as instance:
            run_declared([code, mail], [plain, main], instance, ["notes", "letters", "plain", "main"])
        yield MaskedLake(open_catalogue(settings_at(folder / "lake")), library_of(_FILE))


def _rows(catalogue: Catalog, table: str) -> dict[str, dict[str, Any]]:
    rows = catalogue.load_table(table).scan().to_arrow().to_pylist()
    return {row["doc_id"]: row for row in rows}


def _texts(lake: MaskedLake) -> dict[str, dict[str, Any]]:
    return _rows(lake.catalogue, "notes.texts") | _rows(lake.catalogue, "letters.texts")


def test_masks_change_no_token(lake: MaskedLake) -> None:
    """Nor a row, nor a piece: tables with and without `trainable` differ in masks alone."""
    plain, masked = (_rows(lake.catalogue, f"{corpus}.tokens") for corpus in ("plain", "main"))
    assert plain.keys() == masked.keys() and len(masked) == 61
    for doc_id, row in masked.items():
        for name in ("input_ids", "row_starts", "pieces", "forms", "cuts", "no_header"):
            assert row[name] == plain[doc_id][name]


def test_tokens_have_the_rules_of_their_characters(lake: MaskedLake) -> None:
    """By a walk over the bytes of each piece: the first rule of the list that has one of them; headers are the last."""
    names = json.loads(lake.catalogue.load_table("main.tokens").properties[MASK_RULES])
    assert names == NAMES
    counts = dict.fromkeys(names, 0)
    texts = _texts(lake)
    for doc_id, row in _rows(lake.catalogue, "main.tokens").items():
        text, order = texts[doc_id]["content"], OBJECTIVES[texts[doc_id]["kind"]]["trainable"]["except"]
        of_byte = [0] * len(text.encode())
        for name in reversed(order):
            for span in row["masked"]:
                if names[span["rule"] - 1] == name:
                    start, end = (len(text[: span[side]].encode()) for side in ("start", "end"))
                    of_byte[start:end] = [span["rule"]] * (end - start)
        rank = {0: len(order), **{names.index(name) + 1: at for at, name in enumerate(order)}}
        stops = [piece["token"] for piece in row["pieces"][1:]] + [row["token_count"]]
        wanted = []
        for piece, stop in zip(row["pieces"], stops, strict=True):
            at = piece["start"]
            for token in row["input_ids"][piece["token"] : stop]:
                if at < 0:
                    wanted.append(len(names) if at == -2 else 0)
                    continue
                letters = spelled(lake.library, token)
                size = len(letters)
                assert text.encode()[at : at + size] == letters
                wanted.append(min(of_byte[at : at + size], key=lambda rule: rank[rule]))
                at += size
        assert row["mask_rule"] == [*wanted, 0]
        assert row["trainable"] == [rule == 0 for rule in row["mask_rule"]]
        for rule in row["mask_rule"]:
            counts[names[rule - 1]] += rule > 0
    assert min(counts.values()) > 50, counts


def test_spans_are_those_of_the_rules(lake: MaskedLake) -> None:
    """Licences, blobs, words; placeholders where redaction wrote them, and none of the source."""
    texts = _texts(lake)
    for doc_id, row in _rows(lake.catalogue, "main.tokens").items():
        text, kind = texts[doc_id]["content"], texts[doc_id]["kind"]
        found: dict[str, list[str]] = {}
        for span in row["masked"]:
            found.setdefault(NAMES[span["rule"] - 1], []).append(text[span["start"] : span["end"]])
        assert found.get("personal", []) == (["<MAIL_1>"] * 3 if "<MAIL_7>" in text else [])
        if kind == "code":
            assert [span.strip("#/ ") for span in found["licence_header"]] == [_LICENCE]
            assert found.get("blob", []) == [_BLOB] * text.count(_BLOB)
            assert found.get(RETURNS, []) == ["return"] * text.count("return")


def test_headers_are_in_front_or_counted(lake: MaskedLake) -> None:
    """The text is that of the columns; a missing value or more than a quarter of a window leaves it out."""
    documents = _rows(lake.catalogue, "notes.documents") | _rows(lake.catalogue, "letters.documents")
    reasons: dict[str | None, int] = {}
    for doc_id, row in _rows(lake.catalogue, "main.tokens").items():
        document = documents[doc_id]
        author = dict(document["metadata"]).get("author")
        template = f"{document['path']} ({document['licence']})\n" if document["kind"] == "code" else f"{author}: "
        first = row["pieces"][0]
        header = first["start"] == -2
        reasons[row["no_header"]] = reasons.get(row["no_header"], 0) + 1
        assert header == (row["no_header"] is None)
        if header:
            end = row["pieces"][1]["token"]
            assert lake.library.decode(row["input_ids"][:end], skip_special_tokens=False) == template
            assert end * 4 <= L and row["mask_rule"][:end] == [len(NAMES)] * end
        elif row["no_header"] == "no author":
            assert author is None
    assert reasons == {None: 54, "no author": 6, "longer than a quarter of a window": 1}


@pytest.mark.parametrize("dataset", ["notes", "letters"])
def test_windows_carry_rules_and_names(lake: MaskedLake, dataset: str) -> None:
    """As the tokens have them; a blend serves them; no window is longer."""
    table = lake.catalogue.load_table(f"main.packed_{dataset}_{L}")
    assert json.loads(table.properties[MASK_RULES]) == NAMES
    tokens, windows = _rows(lake.catalogue, "main.tokens"), table.scan().to_arrow().to_pylist()
    for window in windows:
        for segment in window["segments"]:
            at, size, begin = segment["window_start"], segment["token_count"], segment["document_start"]
            row = tokens[segment["doc_id"]]
            assert window["mask_rule"][at : at + size] == row["mask_rule"][begin : begin + size]
        assert window["mask_rule"][window["token_count"] :] == [-1] * (L - window["token_count"])
    config = Blender(lake.catalogue).create(BlendSpec((SourceSpec(f"main.packed_{dataset}_{L}"),), seed=1))
    batch = Blender(lake.catalogue).open(config.blend_id, 0, ("mask_rule",)).gather(0, len(windows))
    served = sorted(np.asarray(batch.columns["mask_rule"]).tolist())
    assert served == sorted(window["mask_rule"] for window in windows)


def test_doc_why_and_table_show_name_the_rules(lake: MaskedLake) -> None:
    """With tokens and lines of each."""
    texts, rows = _texts(lake), _rows(lake.catalogue, "main.tokens")
    doc_id = next(doc_id for doc_id, text in texts.items() if _BLOB in text["content"])
    row, text = rows[doc_id], texts[doc_id]["content"]
    story = OpenedLake(lake.catalogue).why(doc_id, corpus="main")
    (finding,) = [finding for finding in story.findings if finding.table == "main.tokens"]
    line = text[: text.index(_BLOB)].count("\n") + 1
    assert f"{row['mask_rule'].count(1):,} by licence_header (line 1)" in finding.sentence
    assert f"{row['mask_rule'].count(2):,} by blob (line {line})" in finding.sentence
    assert f"{row['mask_rule'].count(5):,} by header" in finding.sentence
    assert finding.facts["without_loss"]["licence_header"] == row["mask_rule"].count(1)
    without = next(doc_id for doc_id, row in rows.items() if row["no_header"] == "no author")
    story = OpenedLake(lake.catalogue).why(without, corpus="main")
    assert any("no header: no author" in finding.sentence for finding in story.findings)
    shown = CliRunner().invoke(headrace, ["table", "show", f"main.packed_notes_{L}"])
    assert shown.exit_code == 0 and "licence_header" in shown.output, shown.output


def test_the_explorer_marks_what_no_loss_is_taken_on(lake: MaskedLake, tmp_path: Path) -> None:
    """With the rule, in the text of the document."""
    doc_id = next(doc_id for doc_id, text in _texts(lake).items() if _BLOB in text["content"])
    client = pages(lake.catalogue, tmp_path)
    assert "mask" in asked(client, f"/documents/{doc_id}")["kinds"]
    page = client.get(f"/documents/{doc_id}").text
    marked = re.findall(r'<mark class="mask"[^>]*title="main.tokens: no loss, by blob"[^>]*>([^<]*)', page)
    assert "".join(marked) == _BLOB


def test_each_token_of_a_window_names_its_rule(lake: MaskedLake, tmp_path: Path) -> None:
    """On the window's page, and where a token is traced."""
    client, table = pages(lake.catalogue, tmp_path), f"main.packed_notes_{L}"
    tracer = TokenTracer(lake.catalogue, table)
    for window in lake.catalogue.load_table(table).scan().to_arrow().to_pylist()[:3]:
        names = [(["", *NAMES, ""])[number] for number in window["mask_rule"]]
        shown = asked(client, f"/windows/{table}/{window['ordinal']}")
        assert shown["rules"] == names
        page = client.get(f"/windows/{table}/{window['ordinal']}").text
        assert page.count(", no loss by ") == sum(map(bool, names))
        for position in range(0, L, 9):
            assert tracer.trace(window["ordinal"], position).rule == (names[position] or None)


def test_a_document_is_previewed_with_its_header(lake: MaskedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """As its tokens have it."""
    monkeypatch.setattr("headrace_features.objectives.preview.texts_are_shown", lambda dataset: True)
    declared = {"name": "main", "objectives": OBJECTIVES, "window_tokens": [L]}
    for doc_id, row in [*_rows(lake.catalogue, "main.tokens").items()][::5]:
        shown = previewed(lake.catalogue, declared, doc_id)
        end = row["row_starts"][0] if row["row_starts"] else row["token_count"]
        ids = [token for token in row["input_ids"][:end] if token]
        assert shown.rows[0]["text"] == lake.library.decode(ids, skip_special_tokens=False)


@pytest.mark.nightly
def test_a_corpus_turns_to_other_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was encoded without rules, or with others, is encoded anew; names of packed tables are those of tokens."""
    for name in ("lake", "code"):
        (tmp_path / name).mkdir()
    (tmp_path / "tokenizer.json").write_text(_FILE)
    for number in range(9):
        (tmp_path / "code" / f"{number}.py").write_text(f"# {_LICENCE}\n\nx = {number}\n" + SOURCES["Python"])
    for name, value in settings_at(tmp_path / "lake").properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    policy = {"rules": [{"rule": "empty", "signal": "word_count", "below": 0}]}
    code = DatasetDeclaration(name="notes", source={"kind": "files", "path": str(tmp_path / "code")}, policy=policy)
    plain = dataclasses.replace(CORPUS, window_tokens=(L,), tokenizer={"file": str(tmp_path / "tokenizer.json")})
    catalogue = open_catalogue(settings_at(tmp_path / "lake"))
    ids: list[Any] = []
    for rules in ((), ("licence_header",), ("blob", "licence_header"), ("personal", "licence_header"), ()):
        objectives = {"code": {"trainable": {"except": [*rules]}}}
        with dg.DagsterInstance.ephemeral() as instance:
            run_declared([code], [dataclasses.replace(plain, objectives=objectives)], instance, ["notes", "main"])
        rows = _rows(catalogue, "main.tokens")
        ids.append({doc_id: row["input_ids"] for doc_id, row in rows.items()})
        windows = catalogue.load_table(f"main.packed_notes_{L}").scan().to_arrow().to_pylist()
        if rules:
            for table in ("main.tokens", f"main.packed_notes_{L}"):
                assert json.loads(catalogue.load_table(table).properties[MASK_RULES]) == [*rules]
            assert {number for row in rows.values() for number in row["mask_rule"]} == {0, len(rules)}
            assert {number for row in windows for number in row["mask_rule"]} <= {-1, 0, len(rules)}
        assert all(sum(row["trainable"]) < row["token_count"] for row in rows.values()) == bool(rules)
    assert all(one == ids[0] for one in ids)


def test_mistakes_are_refused_when_the_project_loads() -> None:
    """In one line that names the place."""
    for given, message in (
        ({"trainable": {"except": ["blobs"]}}, "mask_rule 'blobs' is not known; did you mean 'blob'"),
        ({"trainable": {"except": ["blob", "blob"]}}, "each once"),
        ({"trainable": {"except": ["header"]}}, "not 'header'"),
        ({"header": "no name"}, "is no header; write names of columns in braces"),
        ({"header": "{a.b}"}, "is no header"),
        ({"trainable": {"only": ["blob"]}}, "trainable.only"),
    ):
        with pytest.raises(DefinitionError, match=message):
            corpus_assets(dataclasses.replace(CORPUS, objectives={"code": given}))
