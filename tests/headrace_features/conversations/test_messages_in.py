"""Columns of conversations become documents with their messages, whatever the format of the file."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from dagster_project.cli import run_command
from headrace_features.conversations.messages import column
from headrace_features.conversations.messages.canonical import RULE, from_json, plain_text, read_messages
from spark_jobs.exceptions import InputError
from spark_jobs.lake.ledger.step_key import config_json
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.run.materialize import materialize
from spark_jobs.sources.config.reader import ColumnReading
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.documents import documents
from tests.conftest import LakeAt
from tests.spark_jobs.sources.conftest import Landing

Config = Callable[..., DocumentsConfig]
Row = dict[str, Any]
_CALL = {"id": "c1", "type": "function", "function": {"name": "rain", "arguments": '{"city":"Oslo","unit":null}'}}
_TOOLS = [{"type": "function", "function": {"name": "rain", "parameters": {"type": "object"}}}]
GOOD: dict[str, Row] = {
    "plain": {
        "messages": [{"role": "user", "content": "Grüße"}, {"role": "assistant", "content": "Hi\r\nthere"}],
        "tools": None,
    },
    "call": {
        "messages": [
            {"role": "user", "content": "Rain?"},
            {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [_CALL]},
            {"role": "tool", "content": "yes", "tool_call_id": "c1"},
            {"role": "assistant", "content": "It rains."},
        ],
        "tools": _TOOLS,
    },
}
BAD: dict[str, tuple[Any, str]] = {
    "role": ([{"role": "asistant", "content": "Hi"}], "message 1: role 'asistant' is unknown"),
    "orphan": (
        [{"role": "user", "content": "Hi"}, {"role": "tool", "content": "x"}],
        "message 2: a tool answers without",
    ),
    "blank": ([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": " "}], "message 2: the turn of the"),
    "none": (None, "null, not a list"),
}
ROWS: list[Row] = [{"id": name, **row, "origin": "mill"} for name, row in GOOD.items()] + [
    {"id": name, "messages": messages, "tools": None, "origin": "mill"} for name, (messages, _) in BAD.items()
]


def write_jsonl(folder: Path) -> str:
    """A conversation on each line."""
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return "line"


def write_json_gz(folder: Path) -> str:
    """An array of conversations, compressed."""
    (folder / "rows.json.gz").write_bytes(gzip.compress(json.dumps(ROWS, indent=1).encode()))
    return "item"


def write_parquet(folder: Path) -> str:
    """Structs with types: each message has all keys, null where it had none."""
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "rows.parquet")
    return "row"


def write_parquet_text(folder: Path) -> str:
    """Messages as their JSON, the form that keeps nulls."""
    texts = [{**row, **{name: json.dumps(row[name]) for name in ("messages", "tools")}} for row in ROWS]
    pq.write_table(pa.Table.from_pylist(texts), folder / "rows.parquet")
    return "row"


def write_csv(folder: Path) -> str:
    """Messages as their JSON."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(ROWS[0]))
    writer.writeheader()
    for row in ROWS:
        writer.writerow({**row, **{name: row[name] and json.dumps(row[name]) for name in ("messages", "tools")}})
    (folder / "rows.csv").write_text(out.getvalue())
    return "line"


FORMS = (write_jsonl, write_json_gz, write_parquet, write_parquet_text, write_csv)


@pytest.mark.parametrize("write", FORMS)
def test_equal_conversations_are_equal_documents(
    write: Callable[[Path], str], landing: Landing, data: Path, files_config: Config
) -> None:
    """Of every format, with the metadata columns beside; bad rows are arrivals with their reason."""
    unit = write(data)
    landed = landing.land(
        files_config(
            messages_column="messages",
            tools_column="tools",
            id_column="id",
            metadata_columns=["origin"],
            record_kind="prose",
        )
    )
    assert landed is not None
    read, arrivals = landed
    assert len(read) == len(GOOD)
    for row, (name, wanted) in zip(read, GOOD.items(), strict=True):
        conversation = read_messages(wanted["messages"], wanted["tools"])
        metadata = dict(row["metadata"])
        assert row["path"].endswith(f"#{name}")
        assert row["content"] == plain_text(conversation)[0]
        assert from_json(metadata["messages"], metadata.get("tools")) == conversation
        assert metadata["origin"] == "mill" and ("tools" in metadata) == (wanted["tools"] is not None)
    refused = {row["location"].rpartition("#")[2]: row for row in arrivals if row["reason"]}
    assert {row["reason"] for row in refused.values()} == {"bad_messages"} and len(refused) == len(BAD)
    assert all(re.fullmatch(rf"{unit}:\d+", place) for place in refused)
    for row, (_, fault) in zip(refused.values(), BAD.values(), strict=True):
        assert row["detail"].startswith("column 'messages': ") and fault in row["detail"]


def test_nulls_of_structs_that_may_be_no_keys_are_refused(landing: Landing, data: Path, files_config: Config) -> None:
    """Arguments of two functions in one typed column; as JSON text both land."""
    rows = [
        [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [{"name": "f", "arguments": arguments}]}]
        for arguments in ({"city": "Oslo"}, {"unit": "mm"}, {"city": "Rome", "unit": "mm"})
    ]
    pq.write_table(pa.table({"id": ["a", "b", "c"], "messages": rows}), data / "rows.parquet")
    landed = landing.land(files_config(messages_column="messages", id_column="id"))
    assert landed is not None
    assert [row["path"] for row in landed[0]] == ["rows.parquet#c"]
    details = [row["detail"] for row in landed[1] if row["reason"] == "bad_messages"]
    assert len(details) == 2 and all("null at " in detail and "json.dumps" in detail for detail in details)
    pq.write_table(pa.table({"id": ["a", "b", "c"], "messages": list(map(json.dumps, rows))}), data / "rows.parquet")
    landed = landing.land(files_config(messages_column="messages", id_column="id"))
    assert landed is not None and [row["path"][-2:] for row in landed[0]] == ["#a", "#b"]  # c landed before


def test_archives_and_elements_of_xml_hold_conversations_too(
    landing: Landing, data: Path, files_config: Config
) -> None:
    """Members are what files of their names are; an element has the JSON."""
    with zipfile.ZipFile(data / "chats.zip", "w") as archive:
        archive.writestr("a.jsonl", json.dumps({"messages": GOOD["plain"]["messages"]}) + "\n")
    messages = json.dumps([{"role": "user", "content": "a < b"}])
    (data / "b.xml").write_text(f"<all><row><messages>{escape(messages)}</messages></row></all>")
    landed = landing.land(files_config(messages_column="messages", xml_element="row"))
    assert landed is not None
    assert {row["content"] for row in landed[0]} == {"Grüße\n\nHi\nthere", "a < b"}
    assert all("messages" in row["metadata"] for row in landed[0])


@pytest.mark.parametrize("write", [write_jsonl, write_parquet])
def test_conversations_of_one_text_are_several_documents(
    write: Callable[[Path], str], data: Path, files_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of other roles they are other documents, under one id too; the same one twice is one."""
    asked = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    answered = [asked[0], {"role": "assistant", "content": "b"}]

    def doc_ids(chats: list[Any], **columns: str) -> set[str]:
        rows = [{"id": "c", "messages": chat, "tools": None, "origin": "mill"} for chat in chats]
        monkeypatch.setattr(f"{__name__}.ROWS", rows)
        write(data)
        landed = Landing().land(files_config(messages_column="messages", **columns))
        assert landed is not None
        return {row["doc_id"] for row in landed[0]}

    assert len(doc_ids([asked, answered, asked])) == 2
    before, after = doc_ids([asked], id_column="id"), doc_ids([answered], id_column="id")
    assert before != after
    assert doc_ids([asked], id_column="id") == before


def test_a_path_leads_to_messages(landing: Landing, data: Path, files_config: Config) -> None:
    """Names with dots are those of objects inside, as for other columns."""
    (data / "a.jsonl").write_text(json.dumps({"body": {"turns": GOOD["plain"]["messages"]}}) + "\n")
    landed = landing.land(files_config(messages_column="body.turns"))
    assert landed is not None and [row["content"] for row in landed[0]] == ["Grüße\n\nHi\nthere"]


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"messages_column": "m", "text_column": "t"}, "a document has one text"),
        ({"tools_column": "t"}, "tools_column has no messages_column"),
        ({"messages_column": "m", "metadata_columns": ["messages"]}, "messages_column fills 'messages'"),
        ({"messages_column": "m", "metadata_columns": ["tools"]}, "messages_column fills 'tools'"),
    ],
)
def test_declarations_that_contradict_themselves_are_refused(fields: Row, fault: str, files_config: Config) -> None:
    """One line, before anything runs."""
    with pytest.raises(ValidationError, match=fault):
        files_config(**fields)


def test_the_rule_is_in_the_key_of_sources_with_messages_alone(
    files_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other keys stay as they were before there were conversations."""
    config = files_config(messages_column="m")
    plain = DocumentsConfig.model_validate({**config.model_dump(), "source": {"kind": "files", "path": "x"}})
    assert "messages" not in config_json(plain) and "tools" not in config_json(plain)
    source = json.loads(config_json(config))["source"]
    assert (source["messages_column"], source["messages_rule"]) == ("m", RULE)
    assert DocumentsConfig.model_validate_json(config.model_dump_json()) == config
    monkeypatch.setattr(column, "MESSAGES", ColumnReading("2", column.MESSAGES.function))
    later = DocumentsConfig.model_validate_json(config.model_dump_json())
    assert config_json(later) != config_json(config)


def test_a_column_of_conversations_is_told_where_a_text_is_missing(data: Path, files_config: Config) -> None:
    """By the listing without a text column, and by the run with another."""
    write_parquet(data)
    with pytest.raises(InputError, match="messages_column: messages"):
        Landing().land(files_config())
    for write in (write_parquet, write_jsonl):
        for file in data.iterdir():
            file.unlink()
        write(data)
        landed = Landing().land(files_config(text_column="text"))
        assert landed is not None and not landed[0]
        (arrival,) = landed[1]
        assert arrival["reason"] == "missing_column"
        assert arrival["detail"].endswith("read conversations by messages_column: messages")


def test_a_column_of_conversations_is_declared_by_an_option(
    defs: Path, lake_env: Path, data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """And named where the column of the text is not there."""
    write_jsonl(data)
    add = ["dataset", "add", "chats", "--from", str(data)]
    assert run_command([*add, "--text-column", "text"]) == 2
    assert "rows.jsonl has no such column; write --messages-column messages" in capfd.readouterr().err
    assert run_command([*add, "--messages-column", "messages"]) == 0
    assert "messages_column: messages" in (defs / "chats" / "defs.yaml").read_text()


def test_a_lake_has_the_messages_of_every_format(tmp_path: Path, lake_at: LakeAt) -> None:
    """Over a real engine: equal rows of `documents` but for the file, and the arrivals of bad rows."""
    lake, rows = lake_at(tmp_path / "lake"), {}
    for write in FORMS[:3]:
        name = write.__name__.removeprefix("write_")
        folder = tmp_path / name
        folder.mkdir()
        write(folder)
        source = {
            "kind": "files",
            "path": str(folder),
            "messages_column": "messages",
            "tools_column": "tools",
            "id_column": "id",
        }
        config = DocumentsConfig.model_validate({"dataset": name, "source": source})
        materialize(lake, Binding(documents, name, {}, config, driving_table=f"{name}.arrivals"))
        read = lake.catalogue.load_table(f"{name}.documents").scan().to_arrow().to_pylist()
        arrived = lake.catalogue.load_table(f"{name}.arrivals").scan().to_arrow().to_pylist()
        rows[name] = sorted((row["content"], row["content_sha256"], sorted(row["metadata"])) for row in read)
        assert len(read) == len(GOOD)
        assert sum(row["reason"] == "bad_messages" for row in arrived) == len(BAD)
    assert rows["jsonl"] == rows["json_gz"] == rows["parquet"]
