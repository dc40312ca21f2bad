"""`headrace.render`: conversations in hand, as a corpus renders them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import headrace
from spark_jobs.exceptions import InputError
from tests.headrace_features.conversations.chat_templates import SPECIAL, TEMPLATES, tokenizer_file

CHAT = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "how are you"}]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """Path of a tokenizer.json."""
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer_file())
    return path


def test_conversations_of_any_frame_have_text_ids_and_mask(tokenizer: Path) -> None:
    """Lists of messages, rows, and a table; a bad row is refused in its place."""
    shown = [("how are you<|im_end|>", None)]
    for data in ([CHAT], [{"messages": CHAT}], pa.table({"messages": [CHAT]})):
        rows = headrace.render(data, TEMPLATES["chatml"], tokenizer).to_pylist()
        assert [(row["text"][slice(*row["trained"][0].values())], row["refused"]) for row in rows] == shown
        assert len(rows[0]["input_ids"]) == len(rows[0]["trainable"])
    bad = [CHAT, [{"role": "robot", "content": "x"}], [*CHAT[:1], CHAT[1] | {"thinking": "why"}], CHAT]
    rows = headrace.render(bad, TEMPLATES["chatml"], tokenizer).to_pylist()
    assert [row["refused"] is None for row in rows] == [True, False, False, True]
    assert "robot" in rows[1]["refused"]
    assert "left_out" in rows[2]["refused"]
    (allowed,) = headrace.render(bad[2:3], TEMPLATES["chatml"], tokenizer, allow=["reasoning"]).to_pylist()
    assert allowed["left_out"] == ["reasoning"]


def test_reasoning_is_given_by_policy(tokenizer: Path) -> None:
    """All of it, that of the last round, none; and in a row up to each turn that of the last turn."""
    chat = [m | {"reasoning_content": f"why{n}"} if n % 2 else m for n, m in enumerate([*CHAT, *CHAT])]
    source = TEMPLATES["thinking"].replace(" and loop.index0 > ns.last", "")
    for thinking, wanted in (("all", ["why1", "why3"]), ("last", ["why3"]), ("none", [])):
        (row,) = headrace.render([chat], source, tokenizer, thinking=thinking).to_pylist()
        assert [why for why in ("why1", "why3") if why in row["text"]] == wanted
    rows = headrace.render([chat], source, tokenizer, thinking="last", prefixes="each_turn").to_pylist()
    assert ["why1" in row["text"] for row in rows] == [True, False]
    assert ["why3" in row["text"] for row in rows] == [False, True]


def test_a_text_that_cannot_be_encoded_loses_its_own_row(tokenizer: Path) -> None:
    """Of a tokenizer whose tokens take blanks a text may be refused; the conversations beside it have their rows."""
    declared = json.loads(tokenizer.read_text())
    for token in declared["added_tokens"]:
        token["rstrip"] = token["content"] == "<|im_start|>"
    tokenizer.write_text(json.dumps(declared))
    odd = [CHAT[0], {"role": "assistant", "content": "a \U0010fffe b"}]
    rows = headrace.render([CHAT, odd, CHAT], TEMPLATES["chatml"], tokenizer).to_pylist()
    assert [row["refused"] is None for row in rows] == [True, False, True]
    assert "U+10FFFE" in rows[1]["refused"]
    assert rows[0] == rows[2]


def test_mistakes_are_told_in_a_line(tokenizer: Path, tmp_path: Path) -> None:
    """A missing file, package, column, token."""
    with pytest.raises(InputError, match=r"give a \.jinja file"):
        headrace.render([CHAT], tmp_path / "no.jinja", tokenizer)
    with pytest.raises(InputError, match="no package 'nobody' is installed"):
        headrace.render([CHAT], "nobody:chatml", tokenizer)
    with pytest.raises(InputError, match="no column 'messages'; it has text"):
        headrace.render([{"text": "a"}], TEMPLATES["chatml"], tokenizer)
    with pytest.raises(InputError, match="no added token of the tokenizer; did you mean"):
        headrace.render([CHAT], TEMPLATES["trimmed"], tokenizer, special_tokens=SPECIAL | {"bos_token": "<s"})
