"""Text blends: rows of tables of text, tokenized when they are read, are those of a plain walk over the documents."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from blender_service.blend.requests import BlendSpec, SourceChange, SourceSpec, Stage, TextSpec, UpdateSpec
from blender_service.blend.store import open_store
from blender_service.client import connect
from blender_service.exceptions import InvalidBlendError, PackedTableError, StateError
from blender_service.server.blender import Blender
from blender_service.server.server import RunningServer
from blender_service.tables import text_table
from blender_service.tables.text_table import TextEncoder
from blender_service.wire.rank_slice import Slice
from blender_service.wire.row_batch import RowBatch
from dagster_project.cli.train.blend import blend
from spark_jobs.tokens.hf_tokenizer import load_encoder
from tests.blender_service.packed_tables import PackedFixture
from tests.blender_service.rows.test_blend_reader import rows_of
from tests.tiers import sampled
from tests.waiting import until

Serve = Callable[..., RunningServer]

END, PADDING = 0, 1
WINDOW = 16
HOSTILE = (
    "", "a", "<|endoftext|>", "say <|padding|> twice <|padding|>", "zażółć gęślą jaźń 語言模型 🦜🦜 e\u0301", "x" * 999,
    " \n\n\t ", "\u0000\uffff", "word " * 300, "ﷺ" * 20,
)  # fmt: skip
Piece = tuple[str, int, list[int]]  # document, its first token, tokens


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """A byte-level BPE of 300 tokens."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|endoftext|>", "<|padding|>"], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(["a word of many words, and a second one " * 9], trainer)
    return made


def put_texts(lake: Catalog, name: str, documents: dict[str, str | None], files: int = 3) -> None:
    """Write a table of text in some files, each of row groups of two documents."""
    schema = pa.schema([pa.field("doc_id", pa.string()), pa.field("content", pa.string())])
    table = lake.create_table(name, schema, properties={"write.parquet.row-group-limit": "2"})
    ids = list(documents)
    for number in range(files):
        own = ids[number::files]
        table.append(pa.table({"doc_id": own, "content": [documents[one] for one in own]}, schema))


@pytest.fixture
def texts(lake: Catalog, tokenizer: Tokenizer) -> dict[str, str]:
    """A lake with a tokenizer, and the table `main.texts` with hostile documents among random ones."""
    lake.create_namespace("main")
    facts = {"vocabulary_size": [300], "end_of_document_id": [END], "padding_id": [PADDING]}
    row = pa.table({"file": [tokenizer.to_str()], **facts})
    lake.create_table("main.tokenizer", row.schema).append(row)
    random = np.random.default_rng(3)
    documents = {f"h{i}": text for i, text in enumerate(HOSTILE)}
    documents |= {
        f"r{i}": " ".join(random.choice(["a", "word", "of", "many"], random.integers(1, 30))) for i in range(90)
    }
    put_texts(lake, "main.texts", documents)
    return documents


def order_of(lake: Catalog, name: str) -> list[str]:
    """Ids of the documents by the names of the files, then by their place in them."""
    table = lake.load_table(name)
    paths = sorted((task.file.file_path for task in table.scan().plan_files()), key=lambda path: path.split("/")[-1])
    read = [pa.parquet.read_table(path.removeprefix("file://")) for path in paths]
    return [one for part in read for one in part["doc_id"].to_pylist()]


def plain_rows(
    documents: dict[str, str], order: list[str], tokenizer: Tokenizer, spec: TextSpec, excised: Sequence[str] = ()
) -> list[list[Piece]]:
    """Pack documents as the rule says, in plain Python."""
    reference = Tokenizer.from_str(tokenizer.to_str())
    reference.encode_special_tokens = True
    rows: list[list[Piece]] = []
    for first in range(0, len(order), spec.group_documents):
        pieces: list[tuple[int, Piece]] = []
        for place, name in enumerate(order[first : first + spec.group_documents]):
            ids = reference.encode(documents[name] or "", add_special_tokens=False).ids
            if ids and (not spec.whole or len(ids) < spec.window_tokens):
                ids = [*ids, END]
                cuts = range(0, len(ids), spec.window_tokens)
                pieces += [(place, (name, cut, ids[cut : cut + spec.window_tokens])) for cut in cuts]
        own: list[list[tuple[int, Piece]]] = []
        for piece in sorted(pieces, key=lambda one: -len(one[1][2])):
            left = [spec.window_tokens - sum(len(p[1][2]) for p in row) for row in own]
            fits = [(space, at) for at, space in enumerate(left) if space >= len(piece[1][2])]
            if fits:
                own[min(fits)[1]].append(piece)
            else:
                own.append([piece])
        rows += [[piece for _, piece in sorted(row)] for row in own]
    return [[piece for piece in row if piece[0] not in excised] for row in rows]


def found_rows(batch: RowBatch) -> dict[int, list[Piece]]:
    """The pieces that stand in rows, by ordinal; what stands outside of them is padding."""
    found = {}
    for ordinal, row in zip(batch.ordinals.tolist(), rows_of(batch), strict=True):
        found[ordinal] = [(name, first, list(row.input_ids[at : at + n])) for name, first, n, at in row.segments]
        assert set(row.input_ids[row.token_count :]) <= {PADDING}
        assert [at for *_, at in row.segments] == [
            sum(s[2] for s in row.segments[:i]) for i in range(len(row.segments))
        ]
    return found


RULES = [
    TextSpec("main.tokenizer", WINDOW),
    TextSpec("main.tokenizer", WINDOW, group_documents=7),
    TextSpec("main.tokenizer", WINDOW, group_documents=7, whole=True),
    TextSpec("main.tokenizer", 4096, group_documents=1000),
]


@sampled()
@pytest.mark.parametrize("spec", RULES)
def test_rows_are_those_of_a_plain_walk(
    lake: Catalog, texts: dict[str, str], tokenizer: Tokenizer, spec: TextSpec
) -> None:
    """Every token of every document stands once in the rows, where the rule says; what no row holds is counted."""
    blender = Blender(lake)
    config = blender.create(BlendSpec((SourceSpec("main.texts"),), texts=spec))
    expected = plain_rows(texts, order_of(lake, "main.texts"), tokenizer, spec)
    source = config.sources[0]
    assert source.rows == len(expected)
    found = found_rows(blender.open(config.blend_id).gather(0, len(expected)))
    assert [found[ordinal] for ordinal in range(len(expected))] == expected
    missing = texts.keys() - {piece[0] for row in expected for piece in row}
    assert sum((source.dropped or {}).values()) == len(missing)
    assert (source.dropped or {})["empty"] == 1
    assert ("longer_than_a_row" in (source.dropped or {})) == spec.whole
    if not spec.whole:
        tokens = sum(len(piece[2]) for row in expected for piece in row)
        assert tokens == blender.open(config.blend_id).gather(0, len(expected)).token_counts.sum()


@pytest.mark.parametrize("spec", RULES[:2])
def test_documents_are_chosen_by_columns(
    lake: Catalog, texts: dict[str, str], tokenizer: Tokenizer, spec: TextSpec
) -> None:
    """The others have no row; two choices of one table go together where no document is in both."""
    levels = {name: None if number % 5 == 4 else number % 5 for number, name in enumerate(texts)}
    columns = {"doc_id": list(texts), "content": list(texts.values()), "level": list(levels.values())}
    long = [len(text) > 40 for text in texts.values()]
    types = (("doc_id", pa.string()), ("content", pa.string()), ("level", pa.int64()), ("long", pa.bool_()))
    rows = pa.table({**columns, "long": long}, pa.schema(types))
    lake.create_table("main.levels", rows.schema).append(rows)
    order, blender = order_of(lake, "main.levels"), Blender(lake)
    chosen = {
        "level>=2": {name for name, level in levels.items() if level is not None and level >= 2},
        "level in (none, 1), long=true": {
            name for (name, level), is_long in zip(levels.items(), long, strict=True) if level in (None, 1) and is_long
        },
    }
    sources = tuple(SourceSpec(f"main.levels[{choice}]", name=f"s{n}") for n, choice in enumerate(chosen))
    config = blender.create(BlendSpec(sources, texts=spec))
    for source, (choice, names) in zip(config.sources, chosen.items(), strict=True):
        alone = blender.create(BlendSpec((SourceSpec(f"main.levels[{choice}]"),), texts=spec))
        kept = {name: text if name in names else "" for name, text in texts.items()}
        expected = plain_rows(kept, order, tokenizer, spec)
        assert source.rows == alone.sources[0].rows == len(expected)
        found = found_rows(blender.open(alone.blend_id).gather(0, len(expected)))
        assert [found[ordinal] for ordinal in range(len(expected))] == expected
    for other, problem in (("level=3", "twice"), ("levl=3", "did you mean level"), ("level=77", "no document")):
        with pytest.raises(InvalidBlendError, match=problem):
            blender.create(BlendSpec((*sources, SourceSpec(f"main.levels[{other}]")), texts=spec))


def test_resumes_twice_over_an_epochs_end_under_other_ranks(lake: Catalog, texts: dict[str, str], serve: Serve) -> None:
    """Wherever a read begins, and whoever reads, rows are those of one read from the start; so are a server's."""
    put_texts(lake, "main.one", {"alone": "one document, of a few tokens"})
    blender = Blender(lake)
    sources = (SourceSpec("main.texts", "3", max_epochs=2), SourceSpec("main.one", max_epochs=0))
    config = blender.create(BlendSpec(sources, seed=5, block_rows=8, group_blocks=2, texts=RULES[1], name="t"))
    end = blender.head(config.blend_id).end
    assert end is not None
    whole = list(rows_of(blender.open(config.blend_id).gather(0, end)))
    again = Blender(lake)  # with nothing in memory
    for offset in (0, 11, end // 2 - 3, end // 2 + 1, end - 9):
        for world in (1, 3):
            got: dict[int, Any] = {}
            for rank in range(world):
                part = Slice(3, rank, world)
                for batch in again.open(config.blend_id, offset).read(offset, 9, part):
                    got |= {batch.offset + i: row for i, row in enumerate(rows_of(batch))}
            assert [got[at] for at in sorted(got)] == whole[offset : offset + 9]
    with connect(serve().address) as client:
        assert [row for batch in client.read("t", 0) for row in rows_of(batch)] == whole


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_workers_tokenize_in_turns(
    lake: Catalog, texts: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forked processes that tokenize give the batches of this one, in its order, from any state."""
    torch_module = pytest.importorskip("blender_service.torch")
    monkeypatch.chdir(tmp_path)
    Blender(lake).create(BlendSpec((SourceSpec("main.texts"),), texts=RULES[1], name="t"))
    alone = [batch["input_ids"].tolist() for batch in torch_module.BlendDataset("lake:t", batch_rows=6)]
    dataset = torch_module.BlendDataset("lake:t", batch_rows=6, workers=2)
    got = [batch["input_ids"].tolist() for _, batch in zip(range(5), dataset, strict=False)]
    again = torch_module.BlendDataset("lake:t", batch_rows=6, workers=3)
    again.load_state_dict(dataset.state_dict())
    assert got + [batch["input_ids"].tolist() for batch in again] == alone


def test_ids_are_those_of_the_pipeline(tokenizer: Tokenizer) -> None:
    """What a corpus's tokens hold of the same documents, and the token that ends each."""
    ids, starts = TextEncoder(tokenizer.to_str(), END).encode(HOSTILE)
    expected = [[*one.tolist(), END] for one in load_encoder(tokenizer.to_str()).encode(HOSTILE, 1 << 20)]
    assert [ids[a:b].tolist() for a, b in pairwise(starts)] == expected


def test_lengths_are_measured_once(lake: Catalog, texts: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A second blend, of another rule, and another replica find what the first measured; damage is told."""
    Blender(lake).create(BlendSpec((SourceSpec("main.texts"),), texts=RULES[0]))
    objects = open_store(lake).objects
    with monkeypatch.context() as patched:
        patched.setattr("blender_service.tables.text_table.TextRows._measure", lambda self, fixed: pytest.fail("again"))
        config = Blender(lake).create(BlendSpec((SourceSpec("main.texts"),), texts=RULES[1]))
        Blender(lake).open(config.blend_id).gather(3, 1)
    encode = TextEncoder.encode
    monkeypatch.setattr(TextEncoder, "encode", lambda self, texts: encode(self, [text + "!" for text in texts]))
    with pytest.raises(PackedTableError, match=r"document \w+ gets other ids by tokenizers .* than by tokenizers"):
        Blender(lake).open(config.blend_id).gather(3, 1)
    for name in objects.list("texts/tokenizers"):
        objects.delete(f"texts/tokenizers/{name}")
    with pytest.raises(PackedTableError, match="is not kept with the blends"):
        Blender(lake).open(config.blend_id)


def test_excised_documents_are_not_read_any_more(lake: Catalog, texts: dict[str, str], tokenizer: Tokenizer) -> None:
    """Their pieces are gone from every row, also of a reader that goes on; the other rows stay where they are."""
    blender = Blender(lake)
    config = blender.create(BlendSpec((SourceSpec("main.texts"),), texts=RULES[1]))
    schema = pa.schema([pa.field("doc_id", pa.string()), pa.field("table", pa.string())])
    lake.create_namespace_if_not_exists("system")
    listed = lake.create_table("system.excisions", schema)
    going_on = blender.open(config.blend_id)
    count = config.sources[0].rows or 0
    going_on.gather(0, count)
    listed.append(pa.table({"doc_id": ["h9", "r3", "r5"], "table": [None, "main.texts", "main.other"]}, schema))
    expected = plain_rows(texts, order_of(lake, "main.texts"), tokenizer, RULES[1], ["h9", "r3"])
    going_on._refresh(at_once=True)
    for reader in (going_on, blender.open(config.blend_id)):
        found = found_rows(reader.gather(0, count))
        assert [found[ordinal] for ordinal in range(count)] == expected


def test_the_first_excision_of_a_lake_reaches_open_streams(lake: Catalog, texts: dict[str, str]) -> None:
    """There was no table of excisions when the stream was opened."""
    blender = Blender(lake)
    config = blender.create(BlendSpec((SourceSpec("main.texts"),), texts=RULES[1]))
    going_on, count = blender.open(config.blend_id), config.sources[0].rows or 0
    assert "h9" in going_on.gather(0, count).doc_ids
    schema = pa.schema([pa.field("doc_id", pa.string()), pa.field("table", pa.string())])
    lake.create_namespace_if_not_exists("system")
    lake.create_table("system.excisions", schema).append(pa.table({"doc_id": ["h9"], "table": [None]}, schema))
    until(going_on._refresh)
    assert "h9" not in going_on.gather(0, count).doc_ids


def test_excisions_are_read_once_for_all_streams(
    lake: Catalog, texts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many documents are excised, a stream that is opened reads none of them; after an excision one does."""
    config = Blender(lake).create(BlendSpec((SourceSpec("main.texts"),), texts=RULES[1]))
    schema = pa.schema([pa.field("doc_id", pa.string()), pa.field("table", pa.string())])
    lake.create_namespace_if_not_exists("system")
    listed = lake.create_table("system.excisions", schema)
    listed.append(pa.table({"doc_id": [f"gone-{n}" for n in range(20_000)], "table": [None] * 20_000}, schema))
    scans: list[str] = []
    scan = Table.scan

    def noted(self: Table, *given: Any, **named: Any) -> Any:
        scans.append(".".join(self.name()))
        return scan(self, *given, **named)

    monkeypatch.setattr(Table, "scan", noted)
    blender = Blender(lake)
    rows = [blender.open(config.blend_id).gather(0, 1).rows for _ in range(30)]
    assert (rows, scans) == ([1] * 30, ["system.excisions"])
    listed.append(pa.table({"doc_id": ["h9"], "table": [None]}, schema))
    assert "h9" not in blender.open(config.blend_id).gather(0, config.sources[0].rows or 0).doc_ids
    assert len(scans) == 2


def test_what_cannot_be_is_refused_in_one_answer(lake: Catalog, texts: dict[str, str], code: PackedFixture) -> None:
    """No tokenizer, packed or live tables, columns that are not there, tables without text: each says its field."""
    blender = Blender(lake)
    put_texts(lake, "main.nothing", {"a": "", "b": None}, files=1)
    spec = RULES[0]

    def refused(*sources: SourceSpec, texts: TextSpec = spec) -> str:
        with pytest.raises(InvalidBlendError) as caught:
            blender.create(BlendSpec(sources, texts=texts))
        return str(caught.value)

    message = refused(SourceSpec(code.identifier), SourceSpec("main.nothing"), SourceSpec("main.texts", live=True))
    assert "has no column content" in message
    assert "no document with text" in message
    assert "cannot be followed" in message
    assert "no table of a tokenizer" in refused(SourceSpec("main.texts"), texts=replace(spec, tokenizer="main.texts"))
    assert "give 1 to 4096" in refused(SourceSpec("main.texts"), texts=replace(spec, group_documents=5000))
    with pytest.raises(InvalidBlendError, match="is not packed"):
        blender.create(BlendSpec((SourceSpec("main.texts"),)))


def test_states_of_one_kind_are_refused_by_another(
    lake: Catalog,
    texts: dict[str, str],
    code: PackedFixture,
    serve: Serve,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run of packed rows, or of another rule, cannot go on with a text blend; one of its own can."""
    monkeypatch.chdir(tmp_path)
    address = serve().address
    for target in (address, "lake:"):
        with connect(target) as client:
            packed = client.create_blend([SourceSpec(code.identifier)])
            ones = [client.create_blend([SourceSpec("main.texts", max_epochs=0)], texts=spec) for spec in RULES[:3]]
            for other in (packed, ones[1], ones[2]):
                with pytest.raises(StateError, match="repeated or skipped"):
                    client.prove_continuation(other.blend_id, ones[0].blend_id, 4)
            child = client.update_blend(ones[0].blend_id, 8, [SourceChange("main.texts", max_epochs=3)])
            assert json.loads(child.config_json)["texts"]["group_documents"] == 1
            assert client.prove_continuation(ones[0].blend_id, child.blend_id, 8).differs_from == 8


def test_a_loss_is_taken_on_the_tokens_of_spans(
    lake: Catalog, texts: dict[str, str], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """A token counts where every character that it has a byte of lies in one span, by a plain walk over bytes."""
    random = np.random.default_rng(5)
    spans: dict[str, list[dict[str, int]] | None] = {}
    for name, text in texts.items():
        cuts = sorted(random.integers(0, len(text) + 1, 6).tolist())
        some = [{"start": first, "end": last} for first, last in zip(cuts[::2], cuts[1::2], strict=True)]
        spans[name] = None if random.random() < 0.2 else [*some, {"start": len(text) // 2, "end": len(text)}][::-1]
    kind = pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64())]))
    rows = pa.table(
        {
            "doc_id": [*texts],
            "content": [*texts.values()],
            "learn": pa.array([spans[name] for name in texts], kind),
            "template": ["7c" * 32] * len(texts),
        }
    )
    pq.write_table(rows, tmp_path / "chats.parquet", row_group_size=7)  # PyIceberg writes [] for null
    lake.create_table("main.chats", rows.schema).add_files([str(tmp_path / "chats.parquet")])
    reference = Tokenizer.from_str(tokenizer.to_str())
    reference.encode_special_tokens = True

    def truth(name: str) -> list[bool]:
        text, wanted = texts[name], spans[name]
        ids = reference.encode(text, add_special_tokens=False).ids
        if wanted is None:
            return [True] * (len(ids) + 1)
        of_byte = [at for at, character in enumerate(text) for _ in character.encode()]
        made, place = list[bool](), 0
        for token in ids:
            size = len(reference.id_to_token(token))  # a letter stands for each byte
            touched = of_byte[place : place + size]
            made.append(any(s["start"] <= touched[0] and touched[-1] < s["end"] for s in wanted))
            place += size
        return [*made, any(s["end"] >= len(text) for s in wanted)]

    blender = Blender(lake)
    for spec in RULES:
        whole = BlendSpec([SourceSpec("main.chats", max_epochs=0)], texts=spec)
        blend = blender.create(replace(whole, texts=replace(spec, trainable="learn", template="template")))
        assert blend.sources[0].template == "7c" * 32
        assert blend.blend_id != blender.create(whole).blend_id
        batch = blender.open(blend.blend_id, 0, ("trainable",)).gather(0, blend.sources[0].pin.rows or 0)
        seen = 0
        for row, mask in zip(rows_of(batch), batch.columns["trainable"].tolist(), strict=True):
            for name, first, count, at in row.segments:
                assert mask[at : at + count] == truth(name)[first : first + count], name
                seen += count
            assert not any(mask[row.token_count :])
        assert seen
    with pytest.raises(InvalidBlendError, match="doc_id is not one for all documents"):
        blender.create(BlendSpec([SourceSpec("main.chats")], texts=replace(RULES[0], template="doc_id")))
    with pytest.raises(InvalidBlendError, match="content is no list"):
        blender.create(BlendSpec([SourceSpec("main.chats")], texts=replace(RULES[0], trainable="content")))


def test_names_of_control_tokens_are_told_with_counts(
    lake: Catalog,
    texts: dict[str, str],
    serve: Serve,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """To whoever creates the blend, looks it up, or serves it, once measured and ever after; others hear nothing."""
    monkeypatch.chdir(tmp_path)
    chats = {f"c{at}": f"<|endoftext|>user {at}" + "<|padding|>" * (at % 2) for at in range(6)}
    put_texts(lake, "main.chats", chats)
    put_texts(lake, "main.plain", {"a": "nothing < of | that >", "b": "<|endof"})
    said = (
        "source main.chats: main.chats: `<|endoftext|>` in 6 of 6 rows: it is letters here; "
        "`<|padding|>` in 3 of 6 rows: it is letters here"
    )
    sources = [SourceSpec("main.chats"), SourceSpec("main.plain")]
    for address in (serve().address, "lake:"):
        with connect(address) as client:
            caplog.clear()
            made = client.create_blend(sources, texts=RULES[0])
            assert made.warnings == (said,)
            assert f"blend {made.blend_id[:12]}: {said}" in caplog.text
            assert client.get_blend(made.blend_id).warnings == (said,)
            assert not client.create_blend([SourceSpec("main.plain")], texts=RULES[0]).warnings
            assert not client.list_blends()[0].warnings
    caplog.clear()
    blender = Blender(lake)
    blender.open(made.blend_id)
    assert said in caplog.text
    child = blender.update(UpdateSpec(made.blend_id, (Stage(2, (SourceChange("main.chats", max_epochs=2),)),)))
    assert blender.warnings(child.blend_id) == [said]
    printed = CliRunner().invoke(blend, ["show", made.blend_id], catch_exceptions=False).output
    assert f"  warning    {said}\n" in printed
    created = ["create", "--source", "main.chats", "--texts", "main.tokenizer"]
    assert "`<|endoftext|>` in 6 of 6 rows" in CliRunner().invoke(blend, created, catch_exceptions=False).output
    lake.drop_table("main.plain")
    assert Blender(lake).warnings(made.blend_id) == [said]


def lengths_of(lake: Catalog) -> tuple[Any, str, dict[str, Any]]:
    """The store, the one object of lengths in it, and its arrays."""
    objects = open_store(lake).objects
    (tokenizer_sha256,) = objects.list("texts/tokenizers")
    (name,) = objects.list(f"texts/lengths/{tokenizer_sha256}")
    place = f"texts/lengths/{tokenizer_sha256}/{name}"
    return objects, place, dict(np.load(io.BytesIO(objects.read(place) or b"")))


def put_lengths(objects: Any, place: str, arrays: dict[str, Any]) -> None:
    """Write that object anew."""
    written = io.BytesIO()
    np.savez_compressed(written, **arrays)
    objects.delete(place)
    objects.put_if_absent(place, written.getvalue())


def other_ids(file: str) -> str:
    """The tokenizer with two ids exchanged: lengths are the same."""
    declared = json.loads(file)
    vocabulary = declared["model"]["vocab"]
    vocabulary["a"], vocabulary["o"] = vocabulary["o"], vocabulary["a"]
    return json.dumps(declared)


def test_another_version_serves_only_the_ids_that_were_measured(
    lake: Catalog, texts: dict[str, str], tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused when rows are opened, by both versions and a text; a document with other ids when it is read.

    Equal ids are served by any version, and lengths from before, which have no record, as they were.
    """
    config = Blender(lake).create(BlendSpec((SourceSpec("main.texts"),), texts=RULES[1]))
    objects, place, arrays = lengths_of(lake)
    expected = found_rows(Blender(lake).open(config.blend_id).gather(0, 9))
    plain = TextEncoder.__init__

    def other(self: TextEncoder, file: str, end: int) -> None:
        plain(self, other_ids(file), end)

    put_lengths(objects, place, {**arrays, "encoded_by": np.array("tokenizers 0.22.0")})
    assert found_rows(Blender(lake).open(config.blend_id).gather(0, 9)) == expected
    with monkeypatch.context() as patched:
        patched.setattr(TextEncoder, "__init__", other)
        text_table._encoder.cache_clear()
        said = r"the fixed text '.*' from token \d+ on gets other ids by tokenizers \S+ than by tokenizers 0\.22\.0"
        with pytest.raises(PackedTableError, match=said):
            Blender(lake).open(config.blend_id)
        put_lengths(objects, place, arrays)
        with pytest.raises(PackedTableError, match=r"document \w+ gets other ids by"):
            Blender(lake).open(config.blend_id).gather(0, 9)
    text_table._encoder.cache_clear()
    put_lengths(objects, place, {"lengths": arrays["lengths"]})
    assert found_rows(Blender(lake).open(config.blend_id).gather(0, 9)) == expected
