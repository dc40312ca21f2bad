"""A corpus of conversations, from files to windows with masks: rows, reasons, redaction, preview."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import dagster as dg
import pytest

from dagster_project.assets.datasets import DatasetDeclaration
from dagster_project.inspect.opened_lake import OpenedLake
from headrace.tables.settings import settings_at
from headrace_features.conversations.encoding import ConversationEncoder
from headrace_features.conversations.previewed import previewed
from headrace_features.conversations.registered import add_template, template_source
from headrace_features.conversations.rows import joined
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.planted_lake import run_declared
from tests.dagster_project.test_shaped_corpus import CORPUS
from tests.headrace_features.conversations.chat_templates import (
    SPECIAL,
    TEMPLATES,
    odd_conversation,
    renderer,
    tokenizer_file,
)

L = 64
ASKED = [{"role": "user", "content": "Mail ada@lovelace.org"}, {"role": "assistant", "content": "To ada@lovelace.org!"}]
LOST = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So", "reasoning_content": "Think hard"}]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A lake of a dataset with chats, a prose and a corpus of both."""
    folder = tmp_path_factory.mktemp("chats")
    (folder / "lake").mkdir()
    (folder / "data").mkdir()
    (folder / "tokenizer.json").write_text(tokenizer_file())
    chats = {f"c{seed}": odd_conversation(seed, calls=False) for seed in range(40)}
    for message in (message for chat in chats.values() for message in chat):
        message.pop("reasoning_content", None)
    chats |= {"asked": ASKED, "lost": LOST}
    lines = [json.dumps({"id": name, "messages": chat}) for name, chat in chats.items()]
    (folder / "data" / "chats.jsonl").write_text("\n".join(lines))
    with pytest.MonkeyPatch.context() as patched:
        for name, value in settings_at(folder / "lake").properties.items():
            patched.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
        template_source.forget()
        catalogue = open_catalogue(settings_at(folder / "lake"))
        add_template(catalogue, "chatml", TEMPLATES["chatml"], "1")
        source = {"kind": "files", "path": str(folder / "data"), "messages_column": "messages", "id_column": "id"}
        dataset = DatasetDeclaration(
            name="notes",
            source=source,
            policy={"rules": [{"rule": "empty", "signal": "word_count", "below": 0}]},
            redact={"mail": "replace"},
        )
        corpus = dataclasses.replace(
            CORPUS,
            window_tokens=(L,),
            tokenizer={"file": str(folder / "tokenizer.json")},
            conversations={"template": "chatml@1", "special_tokens": {}},
        )
        with dg.DagsterInstance.ephemeral() as instance:
            run_declared([dataset], [corpus], instance, ["notes", "main"])
        yield catalogue, chats
    template_source.forget()


def rows_of(catalogue: Any, table: str) -> dict[str, dict[str, Any]]:
    """Rows of a table by document."""
    return {row["doc_id"]: row for row in catalogue.load_table(table).scan().to_arrow().to_pylist()}


def test_tokens_are_those_of_the_renderer(lake: Any) -> None:
    """Of each document: ids, mask, rows of a conversation as the library renders and encodes it."""
    catalogue, chats = lake
    names = {row["doc_id"]: row["path"].partition("#")[2] for row in rows_of(catalogue, "notes.documents").values()}
    rendering = renderer("chatml", allow=())
    encoder = ConversationEncoder(tokenizer_file(), rendering.control_names, overlaps=False)
    end = catalogue.load_table("main.tokenizer").scan().to_arrow()["end_of_document_id"][0].as_py()
    tokens = rows_of(catalogue, "main.tokens")
    compared = 0
    for doc_id, row in tokens.items():
        if names[doc_id] == "asked":
            continue
        (encoded,) = encoder.encode([rendering.render(chats[names[doc_id]], [])])
        document = joined([encoded], end, L, repeat_head=True)
        assert row["input_ids"] == document.ids.tolist()
        assert row["trainable"] == document.trainable.tolist()
        assert row["row_starts"] == document.row_starts
        compared += 1
    assert compared > 20


def test_a_lost_text_is_a_reason_and_redaction_reaches_messages(lake: Any) -> None:
    """`lost` stays behind with its rule, and `doc why` tells it; in the row of `asked` placeholders stand."""
    catalogue, _ = lake
    (rejected,) = rows_of(catalogue, "main.conversations_rejected").values()
    assert rejected["failed"] == [{"rule": "left_out.reasoning", "value": 2.0, "threshold": None}]
    story = OpenedLake(catalogue).why("chats.jsonl#lost", corpus="main")
    assert any("left_out.reasoning" in str(finding) for finding in story.findings)
    declared = {
        "name": "main",
        "conversations": {"template": "chatml@1", "special_tokens": SPECIAL, "allow": ["reasoning"]},
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("headrace_features.conversations.previewed.texts_are_shown", lambda dataset: True)
        asked = previewed(catalogue, declared, "chats.jsonl#asked")
        lost = previewed(catalogue, declared, "chats.jsonl#lost")
    assert "⟦To <MAIL_1>!<|im_end|>⟧" in asked.text
    assert asked.prompt and not asked.left_out
    assert lost.left_out == ["reasoning of message 2"]


def test_windows_hold_each_token_with_its_bit(lake: Any) -> None:
    """The trained tokens of windows are those of the documents; none is in the padding."""
    catalogue, _ = lake
    windows = catalogue.load_table(f"main.packed_notes_{L}").scan().to_arrow().to_pylist()
    trained = sorted(
        token for window in windows for token, bit in zip(window["input_ids"], window["trainable"], strict=True) if bit
    )
    wanted = sorted(
        token
        for row in rows_of(catalogue, "main.tokens").values()
        for token, bit in zip(row["input_ids"], row["trainable"], strict=False)
        if bit
    )
    ends = sum(row["trainable"][-1] for row in rows_of(catalogue, "main.tokens").values())
    assert len(trained) == len(wanted) + ends
