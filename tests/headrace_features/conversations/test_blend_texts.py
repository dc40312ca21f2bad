"""Text blends of conversations: rows of their messages are those that the step `conversation_tokens` gives."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyiceberg.catalog import Catalog
from pyiceberg.types import LongType

from blender_service.blend.requests import BlendSpec, SourceChange, SourceSpec, Stage, TextSpec, UpdateSpec
from blender_service.blend.store import open_store
from blender_service.client import connect
from blender_service.exceptions import InvalidBlendError, PackedTableError
from blender_service.server.blender import Blender
from blender_service.server.server import RunningServer
from blender_service.tables import conversation_texts
from blender_service.tables.text_packing import TextRule
from blender_service.wire.rank_slice import Slice
from blender_service.wire.row_batch import RowBatch
from dagster_project.assets.blends import _spec, declare_blend
from dagster_project.cli.train.blend import blend
from dagster_project.cli.train.blend_syntax import parse_texts
from headrace_features.conversations import blend_texts, tokens
from headrace_features.conversations.child import check_rules
from headrace_features.conversations.config import ConversationsConfig
from headrace_features.conversations.encoding import added_tokens
from headrace_features.conversations.messages.canonical import BadMessages, message_document
from headrace_features.conversations.parts import KINDS
from headrace_features.conversations.registered import add_template
from tests.blender_service.rows.test_blend_reader import rows_of
from tests.headrace_features.conversations.chat_templates import (
    SPECIAL,
    TEMPLATES,
    odd_conversation,
    tokenizer_file,
)

WINDOW, PADDING = 48, 1
VOCABULARY = max(token["id"] for token in json.loads(tokenizer_file())["added_tokens"]) + 1
END = {token["content"]: token["id"] for token in json.loads(tokenizer_file())["added_tokens"]}["</s>"]
TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]
ALLOWED = {"special_tokens": SPECIAL, "allow": list(KINDS)}
Whole = Mapping[str, tuple[list[int], list[bool], list[int]]]  # ids and mask of a document, and where its units begin


def chats() -> dict[str, str | None]:
    """JSON of messages by their id: odd conversations, long ones, and what is none."""
    rows: dict[str, str | None] = {f"c{seed}": json.dumps(odd_conversation(seed)) for seed in range(60)}
    long = [message for seed in range(9) for message in odd_conversation(seed, calls=False)]
    long = [message for message in long if message["role"] != "system"]
    rows |= {"long": json.dumps(long), "gpt": '[{"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}]'}
    rows |= {"torn": '[{"role": "user"', "unknown": '[{"role": "friend", "content": "hi"}]', "void": "", "null": None}
    return rows | {"asked": '[{"role": "user", "content": "nobody answers"}]'}


def put_chats(lake: Catalog, name: str, rows: Mapping[str, str | None], tools: Mapping[str, str] | None = None) -> None:
    """Write a table of conversations in three files of small row groups."""
    schema = pa.schema([("doc_id", pa.string()), ("messages", pa.string()), ("tools", pa.string())])
    table = lake.create_table(name, schema, properties={"write.parquet.row-group-limit": "7"})
    for number in range(3):
        ids = list(rows)[number::3]
        columns = [ids, [rows[doc] for doc in ids], [(tools or {}).get(doc) for doc in ids]]
        table.append(pa.table([pa.array(column, pa.string()) for column in columns], schema))


@pytest.fixture
def chat_lake(lake: Catalog) -> Catalog:
    """A lake with a tokenizer, the templates of the tests in its registry, and the table `main.chats`."""
    lake.create_namespace("main")
    facts = {"vocabulary_size": [VOCABULARY], "end_of_document_id": [END], "padding_id": [PADDING]}
    row = pa.table({"file": [tokenizer_file()], **facts})
    lake.create_table("main.tokenizer", row.schema).append(row)
    for name, source in TEMPLATES.items():
        add_template(lake, name, source, "1")
    put_chats(lake, "main.chats", chats(), {"c3": json.dumps(TOOLS)})
    return lake


def spec_of(template: str = "chatml", settings: Mapping[str, Any] | None = None, **rule: Any) -> TextSpec:
    """How rows of conversations are made."""
    given = {"template": f"{template}@1", "special_tokens": SPECIAL, **(ALLOWED if settings is None else settings)}
    return TextSpec("main.tokenizer", **{"window_tokens": WINDOW, "conversations": given, "tools": "tools", **rule})


def of_the_step(
    rows: Mapping[str, str | None], spec: TextSpec, tools: Mapping[str, str] | None = None
) -> tuple[Whole, dict[str, int]]:
    """What the step makes of landed documents, and how many have no token, by the reason."""
    settings = json.loads(str(spec.conversations))
    most = None if spec.whole else spec.window_tokens
    config = ConversationsConfig.model_validate({"max_tokens": most, **settings})
    rules = config.rules(TEMPLATES[config.template.partition("@")[0]], added_tokens(tokenizer_file()))
    task = tokens.TokensTask(config, rules, check_rules(rules)[0], tokenizer_file(), END)
    landed, reasons = list[dict[str, Any]](), Counter[str]()
    for doc, text in rows.items():
        try:
            _, metadata = message_document(text, (tools or {}).get(doc), typed=False) if text else ("", {})
        except BadMessages:
            reasons["bad_messages"] += 1
            continue
        if not text:
            reasons["empty"] += 1
            continue
        keys = {"dataset": "chats", "shard": 0, "doc_id": doc, "edits": None, "cut_edits": None, "content": None}
        landed.append({**keys, "tools": None, **metadata})
    (batch,) = tokens._encoded([pa.RecordBatch.from_pylist(landed)], task)
    whole = {}
    for row in batch.to_pylist():
        if len(row["trainable"]) > 1:
            whole[row["doc_id"]] = ([*row["input_ids"], END], row["trainable"], [0, *row["row_starts"]])
        else:
            reasons["refused" if (row["left_out"] or "").startswith("refused") else "nothing_trained"] += 1
    return whole, dict(reasons)


def pieces_of(batch: RowBatch, padding: int = PADDING) -> Iterator[tuple[str, int, int, int, list[int], list[bool]]]:
    """Row, document, its first token there, and ids and mask of each piece; outside of them are padding and false."""
    masks = batch.columns["trainable"].tolist()
    for ordinal, row, mask in zip(batch.ordinals.tolist(), rows_of(batch), masks, strict=True):
        for name, first, count, at in row.segments:
            yield name, ordinal, first, count, list(row.input_ids[at : at + count]), mask[at : at + count]
        filled = sum(count for _, _, count, _ in row.segments)
        assert set(row.input_ids[filled:]) <= {padding} and not any(mask[filled:])


CASES = [
    ("chatml", {}, {}),
    ("chatml", {"train": "all"}, {"group_documents": 9}),
    ("chatml", {"prefixes": "each_turn"}, {"group_documents": 500}),
    ("trimmed", {"newline": True, "repeat_head": False, "tools": TOOLS}, {"group_documents": 2}),
    ("thinking", {"train": ["user", "assistant"]}, {"whole": True}),
    ("thinking", {"allow": []}, {"group_documents": 9}),
    ("thinking", {"thinking": "last", "prefixes": "each_turn"}, {}),
    ("instructed", {"train": "template"}, {"window_tokens": 512}),
    ("parts", {"train": "last"}, {"whole": True, "group_documents": 9}),
]


@pytest.mark.parametrize(("template", "settings", "rule"), CASES)
def test_rows_and_masks_are_those_of_the_step(
    chat_lake: Catalog, template: str, settings: dict[str, Any], rule: dict[str, Any]
) -> None:
    """Each token of each conversation stands once in the rows, with its mask; units are cut at windows alone.

    A unit that is longer than a row is left out under `whole`; conversations without a row are counted by the reason.
    """
    spec = spec_of(template, {**ALLOWED, **settings}, **rule)
    blender = Blender(chat_lake)
    config = blender.create(BlendSpec((SourceSpec("main.chats"),), texts=spec))
    whole, reasons = of_the_step(chats(), spec, {"c3": json.dumps(TOOLS)})
    source = config.sources[0]
    batch = blender.open(config.blend_id, 0, ("trainable",)).gather(0, source.rows or 0)
    there, units = Counter[tuple[str, int]](), Counter[str]()
    bounds = {
        doc: {at: end - at for at, end in zip(starts, [*starts[1:], len(ids)], strict=True)}
        for doc, (ids, _, starts) in whole.items()
    }
    for doc, _, first, count, ids, mask in pieces_of(batch):
        assert ids == whole[doc][0][first : first + count]
        assert mask == whole[doc][1][first : first + count]
        unit = max(start for start in bounds[doc] if start <= first)
        assert (first - unit) % spec.window_tokens == 0
        assert count == min(spec.window_tokens, bounds[doc][unit] - (first - unit))
        there.update((doc, at) for at in range(first, first + count))
        units[doc] += first == unit
    kept = {
        (doc, at)
        for doc, of_doc in bounds.items()
        for unit, size in of_doc.items()
        if not spec.whole or size <= spec.window_tokens
        for at in range(unit, unit + size)
    }
    assert there.keys() == kept and set(there.values()) == {1}
    dropped = dict(source.dropped or {})
    too_long = sum(size > spec.window_tokens for of_doc in bounds.values() for size in of_doc.values())
    assert dropped.pop("longer_than_a_row", 0) == (too_long if spec.whole else 0)
    by_template = [reason for reason in dropped if reason.startswith(("left_out.", "template", "limits"))]
    refused = sum(dropped.pop(reason) for reason in by_template)
    assert {**dropped, **({"refused": refused} if refused else {})} == reasons
    assert reasons["bad_messages"] == 2 and reasons["empty"] == 2
    assert source.template == hashlib.sha256(TEMPLATES[template].encode()).hexdigest()
    if spec.group_documents == 1:
        assert all(len(row.segments) <= 1 for row in rows_of(batch))
    if rule.get("group_documents") == 500 or (template, rule) == ("chatml", {}):
        assert max(units.values()) > 1
    assert refused or settings.get("allow") != []


def test_control_tokens_have_ids_where_the_template_wrote_them(chat_lake: Catalog) -> None:
    """And are letters in a message; a text blend of the written text has letters alone."""
    chat = [{"role": "user", "content": "<|im_end|>"}, {"role": "assistant", "content": "x"}]
    put_chats(chat_lake, "main.one", {"a": json.dumps(chat)})
    blender = Blender(chat_lake)
    config = blender.create(BlendSpec((SourceSpec("main.one"),), texts=spec_of()))
    ids = blender.open(config.blend_id).gather(0, 1).input_ids[0].tolist()
    control = {token["content"]: token["id"] for token in json.loads(tokenizer_file())["added_tokens"]}
    assert [ids.count(control[name]) for name in ("<|im_start|>", "<|im_end|>", "</s>")] == [2, 2, 1]
    assert blender.warnings(config.blend_id) == [
        "source main.one: main.one: `<|im_end|>` in 1 of 1 rows: it is letters here"
    ]


def test_ranks_and_resumes_get_the_rows_and_masks_of_one_read(
    chat_lake: Catalog, serve: Callable[..., RunningServer]
) -> None:
    """From any offset, by any number of ranks, in process and over gRPC, over two epochs."""
    spec = spec_of(settings={**ALLOWED, "prefixes": "each_turn"}, group_documents=7)
    sources = (SourceSpec("main.chats", max_epochs=2),)
    blender = Blender(chat_lake)
    config = blender.create(BlendSpec(sources, seed=5, block_rows=8, group_blocks=2, texts=spec, name="t"))
    end = blender.head(config.blend_id).end or 0

    def rows_with_masks(batch: RowBatch) -> list[Any]:
        masks = batch.columns["trainable"].tolist() if batch.rows else []
        return [*zip(rows_of(batch), masks, strict=True)]

    whole = rows_with_masks(blender.open(config.blend_id, 0, ("trainable",)).gather(0, end))
    again = Blender(chat_lake)  # with nothing in memory
    for offset in (0, 11, end // 2 - 3, end - 9):
        for world in (1, 3):
            got: dict[int, Any] = {}
            for rank in range(world):
                reader = again.open(config.blend_id, offset, ("trainable",))
                for batch in reader.read(offset, 9, Slice(3, rank, world)):
                    got |= {batch.offset + at: row for at, row in enumerate(rows_with_masks(batch))}
            assert [got[at] for at in sorted(got)] == whole[offset : offset + 9]
    with connect(serve().address) as client:
        assert [row for batch in client.read("t", 0, columns=("trainable",)) for row in rows_with_masks(batch)] == whole


def test_an_excised_conversation_is_gone_with_its_mask(chat_lake: Catalog) -> None:
    """All of its rows; the other pieces keep theirs."""
    blender = Blender(chat_lake)
    spec = spec_of(group_documents=9)
    config = blender.create(BlendSpec((SourceSpec("main.chats"),), texts=spec))
    count = config.sources[0].rows or 0
    before = [*pieces_of(blender.open(config.blend_id, 0, ("trainable",)).gather(0, count))]
    schema = pa.schema([("doc_id", pa.string()), ("table", pa.string())])
    chat_lake.create_namespace_if_not_exists("system")
    chat_lake.create_table("system.excisions", schema).append(pa.table({"doc_id": ["long"], "table": [None]}, schema))
    after = [*pieces_of(Blender(chat_lake).open(config.blend_id, 0, ("trainable",)).gather(0, count))]
    assert after == [piece for piece in before if piece[0] != "long"]
    assert len({row for doc, row, *_ in before if doc == "long"}) > 1


def test_a_replica_needs_neither_registry_nor_measuring(chat_lake: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule is kept with the blend; one that is lost, or of another version, is refused, and so are other ids."""
    blender = Blender(chat_lake)
    blender.create(BlendSpec((SourceSpec("main.chats"),), texts=spec_of("trimmed")))  # measured apart
    spec = BlendSpec((SourceSpec("main.chats", max_epochs=0),), texts=spec_of(group_documents=9))
    config = blender.create(spec)
    rows = [*rows_of(blender.open(config.blend_id).gather(0, 40))]
    assert blender.create(spec).blend_id == config.blend_id
    chat_lake.drop_table("system.registry")
    monkeypatch.setattr("blender_service.tables.text_table.TextRows._measure", lambda *_: pytest.fail("again"))
    replica = Blender(chat_lake)
    assert [*rows_of(replica.open(config.blend_id).gather(0, 40))] == rows
    child = replica.update(UpdateSpec(config.blend_id, (Stage(9, (SourceChange("main.chats", max_epochs=3),)),)))
    assert child.sources[0].template == config.sources[0].template and child.texts == config.texts
    with monkeypatch.context() as patched:
        patched.setattr(blend_texts, "_VERSION", "0.0")
        conversation_texts._conversations.cache_clear()
        with pytest.raises(PackedTableError, match=r"version \S+ of their rule, this is 0\.0; serve"):
            Blender(chat_lake).open(config.blend_id)
    conversation_texts._conversations.cache_clear()
    encode = blend_texts.OpenedConversations.encode

    def other_mask(*given: Any) -> Any:
        encoded = encode(*given)
        return encoded._replace(trainable=~encoded.trainable)

    with monkeypatch.context() as patched:
        patched.setattr(blend_texts.OpenedConversations, "encode", other_mask)
        with pytest.raises(PackedTableError, match=r"document \w+ gets other ids"):
            Blender(chat_lake).open(config.blend_id).gather(0, 40)
    objects = open_store(chat_lake).objects
    objects.delete(f"texts/conversations/{config.texts and config.texts.conversations}")
    with pytest.raises(PackedTableError, match="is not kept with the blends; create it again"):
        Blender(chat_lake).open(config.blend_id)


def test_messages_of_typed_columns_are_those_of_their_json(chat_lake: Catalog, tmp_path: Path) -> None:
    """Lists of structs and of maps; a call whose nulls cannot be told from absent keys is refused, and counted."""
    answer = {"role": "assistant", "content": "<|im_end|> x"}
    talks = {f"t{at}": [{"role": "user", "content": f"é{at}"}, answer] for at in range(9)}
    calls = [{"function": {"name": "f", "arguments": arguments}} for arguments in ({"q": "a"}, {"n": 1})]
    called = [{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "tool_calls": calls}]
    structs = {**talks, "call": called}
    as_maps = [[[*message.items()] for message in talk] for talk in talks.values()]
    maps = pa.array(as_maps, pa.list_(pa.map_(pa.string(), pa.string())))
    columns = {"structs": pa.array([*structs.values()]), "maps": maps}
    put_chats(chat_lake, "main.texts", {doc: json.dumps(talk) for doc, talk in talks.items()})
    seen = {}
    for name, column in columns.items():
        table = pa.table({"doc_id": list(structs)[: len(column)], "messages": column})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=4)
        chat_lake.create_table(f"main.{name}", table.schema).add_files([str(tmp_path / f"{name}.parquet")])
    for name in ("texts", *columns):
        blender = Blender(chat_lake)
        config = blender.create(BlendSpec((SourceSpec(f"main.{name}"),), texts=spec_of(tools=None)))
        assert config.sources[0].dropped == ({"bad_messages": 1} if name == "structs" else None)
        batch = blender.open(config.blend_id, 0, ("trainable",)).gather(0, config.sources[0].rows or 0)
        seen[name] = sorted((doc, *piece) for doc, _, *piece in pieces_of(batch))
    assert len(seen["texts"]) == 9 and seen["structs"] == seen["texts"] == seen["maps"]


def test_what_has_no_row_is_told_wherever_the_blend_is_shown(
    chat_lake: Catalog, serve: Callable[..., RunningServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a client, Python, the command line and a declaration, which all make the same blend."""
    monkeypatch.chdir(tmp_path)
    settings = {"template": "chatml@1", "special_tokens": SPECIAL}
    spec = TextSpec("main.tokenizer", WINDOW, tools="tools", conversations=settings)
    made = Blender(chat_lake).create(BlendSpec((SourceSpec("main.chats"),), texts=spec))
    dropped = made.sources[0].dropped or {}
    assert dropped["left_out.reasoning"] > 1
    said = f"{sum(dropped.values())} of 67 conversations have no row: {dropped['bad_messages']} bad_messages, "
    for address in (serve().address, "lake:"):
        with connect(address) as client:
            created = client.create_blend([SourceSpec("main.chats")], texts=spec)
            assert created.blend_id == made.blend_id and said in created.warnings[0]
            assert created.sources[0].template == made.sources[0].template
    written = json.dumps(settings)
    typed = f"main.tokenizer,window_tokens={WINDOW},tools=tools,conversations={written}"
    printed = CliRunner().invoke(blend, ["create", "--source", "main.chats", "--texts", typed], catch_exceptions=False)
    assert said in printed.output and made.blend_id in printed.output
    texts = {"tokenizer": "main.tokenizer", "window_tokens": WINDOW, "tools": "tools", "conversations": settings}
    declared = declare_blend({"name": "mix", "sources": [{"table": "main.chats"}], "texts": texts})
    assert Blender(chat_lake).draft(_spec(declared, "")).config.blend_id == made.blend_id


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"conversations": {"template": "chatmi@1"}}, r"template chatmi@1 is not in the registry.*chatml@1"),
    ({"conversations": {"template": "chatml"}}, r"texts.conversations: template: "),
    ({"conversations": {"template": "chatml@1", "train": "asistant"}}, "did you mean"),
    ({"conversations": {"template": "trimmed@1"}}, r"texts.conversations: .*bos_token"),
    ({"conversations": {"template": "chatml@1", "special_tokens": {"eos_token": "<e>"}}}, "no added token"),
    ({"conversations": "[]"}, r"texts.conversations: \[\] is no object; give"),
    ({"conversations": "{template"}, "texts.conversations: {template is no JSON: .*; give"),
    ({"conversations": ""}, "texts.conversations:  is no JSON: .*; give"),
    ({"conversations": None, "tools": None, "messages": "messages"}, "texts.messages: needs texts.conversations"),
    ({"trainable": "spans"}, "texts.trainable: is of plain text"),
    ({"messages": "other"}, "has no column other"),
    ({"messages": "number"}, r"texts.messages: main.chats.number is long, no text"),
    (
        {"messages": "doc_id"},
        r"no document with text that fits \(67 of 67 conversations have no row: 67 bad_messages\)",
    ),
]


def test_a_mistake_is_told_with_its_field(chat_lake: Catalog) -> None:
    """In the one line of the request."""
    with chat_lake.load_table("main.chats").update_schema() as update:
        update.add_column("number", LongType())
    spec = spec_of()
    for changes, message in MISTAKES:
        values = {name: getattr(spec, name) for name in spec.__dataclass_fields__} | changes
        with pytest.raises(InvalidBlendError, match=message) as caught:
            Blender(chat_lake).create(BlendSpec((SourceSpec("main.chats"),), texts=TextSpec(**values)))
        assert "\n" not in str(caught.value)
    request = BlendSpec((SourceSpec("main.chats"),), texts=spec)
    assert Blender(chat_lake).within(lambda table: True).create(request)
    with pytest.raises(InvalidBlendError, match="template chatml@1 is not in the registry; it has none"):
        Blender(chat_lake).within(lambda table: table.startswith("main.")).create(request)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_forked_workers_render_with_the_labels_of_one_process(
    chat_lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels are -100 where no loss is taken; each worker has a child process of its own."""
    torch_module = pytest.importorskip("blender_service.torch")
    monkeypatch.chdir(tmp_path)
    Blender(chat_lake).create(BlendSpec((SourceSpec("main.chats"),), texts=spec_of(group_documents=9), name="t"))

    def batches(**how: Any) -> list[Any]:
        dataset = torch_module.BlendDataset("lake:t", batch_rows=6, columns=["trainable"], **how)
        return [(batch["input_ids"].tolist(), batch["labels"].tolist()) for batch in dataset]

    alone = batches()
    assert batches(workers=2) == alone
    assert {label for _, labels in alone for row in labels for label in row} > {-100}


def test_a_server_without_the_feature_refuses_the_blend_by_its_name(
    chat_lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, to whoever creates it and to whoever reads it; blends of plain text go on."""
    blender = Blender(chat_lake)
    config = blender.create(BlendSpec((SourceSpec("main.chats"),), texts=spec_of()))
    folder = tmp_path / "headrace_features"
    folder.mkdir()
    shutil.copy(Path(blend_texts.__file__).parents[1] / "features.toml", folder)
    spec = ModuleSpec("headrace_features", None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    for there in (spec, None):
        conversation_texts._conversations.cache_clear()
        monkeypatch.setattr(conversation_texts, "find_spec", lambda _, there=there: there)
        needed = "needs the feature conversations, which is not installed here; install headrace whole"
        with pytest.raises(InvalidBlendError, match=f"texts.conversations: a blend of messages {needed}"):
            Blender(chat_lake).create(BlendSpec((SourceSpec("main.chats"),), texts=spec_of("parts")))
        with pytest.raises(PackedTableError, match=needed):
            Blender(chat_lake).open(config.blend_id)
        plain = TextSpec("main.tokenizer", WINDOW, text="messages")
        served = Blender(chat_lake).create(BlendSpec((SourceSpec("main.chats"),), texts=plain))
        assert Blender(chat_lake).open(served.blend_id).gather(0, 3).rows == 3


def test_a_rule_of_plain_text_is_written_as_before() -> None:
    """So that the ids of stored blends stay."""
    rule = TextRule(group_documents=1, whole=False, text="content", doc_id="doc_id")
    assert json.loads(rule.model_dump_json(exclude_none=True)) == {
        "group_documents": 1, "whole": False, "text": "content", "doc_id": "doc_id"
    }  # fmt: skip
    assert parse_texts("main.tokenizer") == TextSpec("main.tokenizer")
