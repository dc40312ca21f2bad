"""A corpus of conversations, from files to windows with masks: rows, reasons, redaction, preview."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, ClassVar

import dagster as dg
import pyarrow as pa
import pytest

from blender_service.blend.requests import BlendSpec, SourceSpec, TextSpec
from blender_service.server.blender import Blender
from dagster_project.assets.datasets import DatasetDeclaration
from dagster_project.exceptions import CommandError
from dagster_project.inspect.corpora.dataset_card import card
from dagster_project.inspect.lake.control_names import named_in_texts
from dagster_project.inspect.opened_lake import OpenedLake
from headrace.tables.settings import settings_at
from headrace_features.conversations.encoding import ConversationEncoder
from headrace_features.conversations.pages import conversation, corpora, corpus
from headrace_features.conversations.previewed import previewed
from headrace_features.conversations.registered import add_template
from headrace_features.conversations.rows import joined
from spark_jobs.lake.ledger.ledger import Ledger
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
from tests.headrace_features.conversations.test_blend_texts import pieces_of

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


def test_packed_and_text_blends_read_the_same_pieces_and_masks(lake: Any) -> None:
    """Of messages as they landed, those of the windows of the corpus: each part of a conversation, wherever it lies."""
    catalogue, _ = lake
    tokens, documents = rows_of(catalogue, "main.tokens"), rows_of(catalogue, "notes.documents")
    landed = {doc: dict(documents[doc]["metadata"])["messages"] for doc in tokens}
    edited = next(doc for doc, messages in landed.items() if "lovelace" in messages)
    table = pa.table({"doc_id": [*landed], "messages": [*landed.values()]})
    catalogue.create_namespace("chats")
    catalogue.create_table("chats.landed", table.schema).append(table)
    rule = {"template": "chatml@1", "special_tokens": {}}
    spec = TextSpec("main.tokenizer", L, group_documents=16, conversations=rule)
    blender, read = Blender(catalogue), []
    for source, texts in (("chats.landed", spec), (f"main.packed_notes_{L}", None)):
        config = blender.create(BlendSpec((SourceSpec(source),), texts=texts))
        batch = blender.open(config.blend_id, 0, ("trainable",)).gather(0, config.sources[0].rows or 0)
        pieces = [(doc, *piece) for doc, _, *piece in pieces_of(batch, config.window.padding_id) if doc != edited]
        read.append(sorted(pieces))
    assert read[0] == read[1] and len(read[0]) > len(landed)


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


def test_the_card_and_the_run_say_how_conversations_are_rendered(lake: Any) -> None:
    """Template, what is trained, end tokens, and what was left out."""
    catalogue, _ = lake
    said = "chatml@1; trained: assistant; end tokens <|im_end|> are in, the newline behind them is not"
    assert f"## Conversations\n\n{said}." in card(catalogue, "main")
    assert f"main.tokens: rendered by {said}" in list(named_in_texts(Ledger.fresh(catalogue), ["main", "notes"]))


class _Request:
    """A reader of all of a lake."""

    query: ClassVar[dict[str, str]] = {}

    def __init__(self, catalogue: Any, hidden: str = "", **parts: str) -> None:
        self.catalogue, self.parts, self._hidden = catalogue, parts, hidden

    def may_read(self, namespace: str) -> bool:
        """Whatever it is."""
        return True

    def hides_text(self, dataset: str) -> str:
        """Nothing, unless it is said."""
        return self._hidden

    def require(self, *tables: str) -> None:
        """All is there."""


def test_the_explorer_shows_a_conversation_as_the_model_sees_it(lake: Any) -> None:
    """Corpora, documents, a row; of a dataset that shows no texts nothing."""
    catalogue, _ = lake
    assert "chatml@1" in corpora(_Request(catalogue)).values["corpora"]["main"]
    documents = corpus(_Request(catalogue, corpus="main")).values["documents"]
    assert documents
    row = conversation(_Request(catalogue, corpus="main", document="chats.jsonl#asked")).values["row"]
    assert "⟦To <MAIL_1>!<|im_end|>⟧" in row["text"]
    with pytest.raises(CommandError, match="texts are not shown"):
        conversation(_Request(catalogue, "texts are not shown", corpus="main", document="chats.jsonl#asked"))
    with pytest.raises(CommandError, match="renders no conversations"):
        corpus(_Request(catalogue, corpus="notes"))


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
