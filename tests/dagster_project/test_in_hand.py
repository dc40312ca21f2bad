"""Functions on data in hand, against the tables that a lake computes of the same rows."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import headrace
from dagster_project.assets.corpora import CorpusDeclaration
from dagster_project.assets.datasets import DatasetDeclaration
from dagster_project.inspect.opened_lake import OpenedLake
from headrace.tables.settings import settings_at
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.planted_lake import draw, edited, run_declared

pytestmark = pytest.mark.nightly  # a lake of its own; each function has tests of its own in the default tier

_WINDOW = 64
_PERSONAL = ("ada@lovelace.org", "+49 30 901820", "DE89 3704 0044 0532 0130 00", "Cafe\u0301", "Köln\r\n", "@", "7")
_MODULES = 24


def notes() -> dict[str, str]:
    """Records by id: prose with copies, near copies, personal data, lists, repeated and short lines."""
    chosen = random.Random(5)
    texts = dict[str, str]()
    for number in range(60):
        words = draw(number, 80).split()
        for _ in range(chosen.randrange(6)):
            words.insert(chosen.randrange(len(words)), chosen.choice(_PERSONAL))
        end = ".\n" if number % 4 else "\n"
        body = "".join(" ".join(words[start : start + 10]) + end for start in range(0, len(words), 10))
        texts[f"note-{number}"] = body + ("- " + " ".join(words[:3]) + "\n") * (0 if number % 3 else number)
    for number in range(0, 20, 2):
        texts[f"copy-{number}"] = edited(texts[f"note-{number}"], number // 4, seed=number)
    return texts


def modules() -> dict[str, str]:
    """Files of a repository by path: each imports some of the others, also in circles."""
    chosen = random.Random(9)
    files = {"README.md": "What the mill does.", "mill/__init__.py": ""}
    for number in range(_MODULES):
        needed = chosen.sample(range(_MODULES), 2)
        body = [f"    step_{step}()" for step in range(chosen.randrange(20))]
        lines = [f"from mill.part_{other} import work_{other}" for other in needed if other != number]
        files[f"mill/part_{number}.py"] = "\n".join(
            [*lines, f"def work_{number}():", *body, f"    return {number}", ""]
        )
    files["tests/test_parts.py"] = "from mill.part_3 import work_3\n"
    return files


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenedLake]:
    """The lake of the notes and the modules."""
    with pytest.MonkeyPatch.context() as patch:
        yield made_lake(tmp_path_factory.mktemp("in_hand"), patch)


def made_lake(root: Path, patch: pytest.MonkeyPatch) -> OpenedLake:
    """A dataset of records, one of files, and their corpus, run in a folder."""
    (root / "notes").mkdir()
    (root / "lake").mkdir()
    (root / "notes" / "a.jsonl").write_text(
        "".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in notes().items())
    )
    for path, text in modules().items():
        file = root / "code" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    datasets = [
        DatasetDeclaration(
            name="notes",
            source={"kind": "files", "path": str(root / "notes"), "text_column": "text", "id_column": "id"},
            scorers={"heuristics": {}, "personal_data": {}},
            policy="fineweb",
            shards=2,
        ),
        DatasetDeclaration(
            name="code", source={"kind": "python_code", "directories": [str(root / "code")]}, policy={"rules": []}
        ),
    ]
    corpus = CorpusDeclaration(
        name="mine",
        datasets=("notes", "code"),
        tokenizer={"train": {"vocabulary_size": 400, "sample_bytes": 100_000}},
        window_tokens=(_WINDOW,),
    )
    for name, value in settings_at(root / "lake").properties.items():
        patch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    with dg.DagsterInstance.ephemeral() as instance:
        run_declared(datasets, [corpus], instance, ("notes", "code", "mine"))
    return OpenedLake(open_catalogue(settings_at(root / "lake")))


def rows_of(lake: OpenedLake, table: str, where: str | None = None) -> dict[str, dict[str, Any]]:
    """Rows of a table by document."""
    return {row["doc_id"]: row for row in lake.table(table, where=where).to_pylist()}


def test_a_filter_keeps_what_verdicts_keep(lake: OpenedLake) -> None:
    """Each failed rule with its value and threshold, in the policy's order; whole texts as they were read."""
    documents, verdicts = rows_of(lake, "notes.documents"), rows_of(lake, "notes.verdicts")
    good = headrace.filter([row["content"] for row in documents.values()], policy="fineweb")
    expected = [
        (row, *failed.values()) for row, doc_id in enumerate(documents) for failed in verdicts[doc_id]["failed"]
    ]
    assert [tuple(failed.values()) for failed in good.failed.to_pylist()] == expected
    kept = [row for row, doc_id in enumerate(documents) if verdicts[doc_id]["kept"]]
    assert good.row_numbers.tolist() == kept and len(documents) - 10 > len(kept) > 10


def test_personal_data_is_that_of_the_table(lake: OpenedLake) -> None:
    """Kind, rule, confidence and text of each span, although line ends of the texts in hand are others."""
    documents, texts = rows_of(lake, "notes.documents"), rows_of(lake, "notes.texts")
    spans = rows_of(lake, "notes.personal_data")
    contents = [row["content"] for row in documents.values()]
    assert sum("\r\n" in content for content in contents) > 5
    for doc_id, findings in zip(documents, headrace.find_personal_data(contents), strict=True):
        data = texts[doc_id]["content"].encode()
        assert [(found.kind, found.rule, found.confidence, found.text) for found in findings] == [
            (span["kind"], span["rule"], span["confidence"], data[span["start"] : span["end"]].decode())
            for span in spans[doc_id]["spans"]
        ]
    assert sum(len(row["spans"]) for row in spans.values()) > 50


def test_files_are_ordered_as_the_corpus_orders_them(lake: OpenedLake) -> None:
    """Of a repository with circles, whatever order the files come in."""
    paths = {doc_id: row["path"] for doc_id, row in rows_of(lake, "code.documents").items()}
    ordered = sorted(rows_of(lake, "mine.ordered", "dataset = 'code'").values(), key=lambda row: row["rank"])
    files = {paths[doc_id]: row["content"] for doc_id, row in rows_of(lake, "code.texts").items()}
    assert headrace.order(files) == [paths[row["doc_id"]] for row in ordered]
    assert len(ordered) == len(files) > _MODULES


def test_ids_and_windows_are_those_of_the_corpus(lake: OpenedLake, tmp_path: Path) -> None:
    """Each text has the ids of its row, and each repository its windows, up to their order at rest.

    Documents without a repository come in hashed buckets in a lake, so two pieces of one length may change places: the
    windows hold the same lengths.
    """
    tokenizer = lake.table("mine.tokenizer").to_pylist()[0]
    file = tmp_path / "tokenizer.json"
    file.write_text(tokenizer["file"])
    for dataset in ("code", "notes"):
        here = f"dataset = '{dataset}'"
        tokens, texts = rows_of(lake, "mine.tokens", here), rows_of(lake, f"{dataset}.texts")
        ordered = [
            row["doc_id"] for row in sorted(rows_of(lake, "mine.ordered", here).values(), key=lambda row: row["rank"])
        ]
        ids = headrace.tokenize([texts[doc_id]["content"] for doc_id in ordered], file)
        assert ids.to_pylist() == [tokens[doc_id]["input_ids"] for doc_id in ordered]
        packed = headrace.pack(
            ids,
            _WINDOW,
            order=range(len(ordered)) if dataset == "code" else None,
            end_of_document=tokenizer["end_of_document_id"],
            padding=tokenizer["padding_id"],
        ).windows.to_pylist()
        windows = lake.table(f"mine.packed_{dataset}_{_WINDOW}").to_pylist()
        for window in packed:
            for segment in window["segments"]:
                segment["doc_id"] = ordered[segment.pop("row")]
        if dataset == "code":
            assert sorted(map(contents_of, packed)) == sorted(map(contents_of, windows))
        assert sorted(map(lengths_of, packed)) == sorted(map(lengths_of, windows)) and len(windows) > 20


def contents_of(window: dict[str, Any]) -> tuple[Any, ...]:
    """Ids of a window and where they come from, without its place in the table."""
    names = ("doc_id", "document_start", "token_count", "window_start")
    return window["input_ids"], [[segment[name] for name in names] for segment in window["segments"]]


def lengths_of(window: dict[str, Any]) -> list[int]:
    """Tokens of the pieces of a window."""
    return sorted(segment["token_count"] for segment in window["segments"])
