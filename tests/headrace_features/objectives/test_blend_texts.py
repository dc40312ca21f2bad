"""Documents of a text blend are cut to fill in the middle when they are read, anew in each epoch."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import BlendSpec, SourceSpec, TextSpec
from blender_service.client import connect
from blender_service.exceptions import InvalidBlendError, PackedTableError
from blender_service.server.blender import Blender
from blender_service.server.server import RunningServer
from blender_service.tables import source_rows
from blender_service.wire.row_batch import RowBatch
from headrace_features.objectives import blend_texts
from headrace_features.objectives.config import FimConfig
from headrace_features.objectives.fim import choose
from headrace_features.objectives.undo import undo
from tests.blender_service.test_texts import put_texts
from tests.headrace_features.objectives.fim_tokenizer import fim_tokenizer, library_of
from tests.headrace_features.objectives.sources import SOURCES
from tests.tiers import sampled

Serve = Callable[..., RunningServer]
WINDOW, END, PADDING, EPOCHS = 128, 0, 0, 4
_FILE, _IDS = fim_tokenizer()
_ROLES, _ENDS = ("prefix", "middle", "suffix"), ("<fim_prefix>", "<|endoftext|>", "<fim_suffix>")
_HOSTILE = {
    "empty": "", "letter": "a", "names": "<fim_middle> <fim_suffix>" * 30,
    "marks": "e" + "\u0301" * 500, "families": "👩‍👩‍👧‍👦" * 40,
    "lines": "\r\n" * 300, "long": "x = f(y, größe)\n" * 200, "word": "ab" * 2000, "hangul": "\u1112\u1161\u11ab" * 90,
}  # fmt: skip


@pytest.fixture
def documents(lake: Catalog) -> dict[str, str]:
    """Files of six languages, hostile texts and some hundred short ones, in the table `main.texts`."""
    lake.create_namespace("main")
    facts = {"vocabulary_size": [420], "end_of_document_id": [END], "padding_id": [PADDING]}
    row = pa.table({"file": [_FILE], **facts})
    lake.create_table("main.tokenizer", row.schema).append(row)
    random = np.random.default_rng(5)
    texts = {**SOURCES, **_HOSTILE}
    for number in range(200):
        texts[f"r{number}"] = "".join(random.choice([*"abcü \n漢("], random.integers(1, 150)))
    put_texts(lake, "main.texts", texts)
    return texts


def rows_by_epoch(batch: RowBatch) -> dict[int, dict[str, list[tuple[int, int, list[int]]]]]:
    """Units of each document in each epoch: their first token, their row, their tokens."""
    found: dict[int, dict[str, list[tuple[int, int, list[int]]]]] = defaultdict(lambda: defaultdict(list))
    names = np.cumsum([0, *batch.doc_id_lengths.tolist()])
    segment = 0
    for row, count in enumerate(batch.segment_counts.tolist()):
        for _ in range(count):
            name = batch.doc_id_bytes[names[segment] : names[segment + 1]].decode()
            start = int(batch.window_starts[segment])
            ids = batch.input_ids[row, start : start + int(batch.segment_token_counts[segment])].tolist()
            first = int(batch.document_starts[segment])
            found[int(batch.epochs[row])][name].append((first, int(batch.ordinals[row]), ids))
            segment += 1
    return found


@sampled(2)
@pytest.mark.parametrize("group", [1, 50])
@pytest.mark.parametrize("fim", [{"rate": 0.5}, {"rate": 1.0, "cut": "line", "spm_order": "suffix_prefix", "seed": 7}])
def test_every_epoch_has_every_document_cut_anew(
    lake: Catalog, documents: dict[str, str], group: int, fim: dict[str, Any]
) -> None:
    """Each gives its text back, is in the same row in each epoch, and is cut where its draw says."""
    config = FimConfig.model_validate(fim)
    blender = Blender(lake)
    texts = TextSpec("main.tokenizer", WINDOW, group_documents=group, objectives={"fim": fim})
    blend = blender.create(BlendSpec((SourceSpec("main.texts", max_epochs=EPOCHS),), texts=texts))
    rows = blend.sources[0].rows
    assert rows is not None
    found = rows_by_epoch(blender.open(blend.blend_id).gather(0, rows * EPOCHS))
    cut = defaultdict[int, set[str]](set)
    decode = functools.partial(library_of(_FILE).decode, skip_special_tokens=False)
    for epoch, of_epoch in found.items():
        assert of_epoch.keys() == documents.keys() - {"empty"}
        for name, units in of_epoch.items():
            units.sort()
            undone = [undo(ids, _IDS, END, decode) for *_, ids in units]
            assert "".join(undone) == documents[name], name
            assert [row for _, row, _ in units] == [row for _, row, _ in sorted(found[0][name])]
            for number, (_, _, ids) in enumerate(units):
                is_cut = len({*_IDS} & {*ids}) == 3
                assert len(ids) <= WINDOW
                assert (ids[-1] == END) == (is_cut or number == len(units) - 1)
                assert is_cut <= choose(config, name, epoch, number).is_cut
                if choose(config, name, epoch, number).is_cut and not is_cut:  # too short, or a letter as long as a row
                    assert len(undone[number]) < config.least or name == "marks", (name, number)
                if is_cut:
                    cut[epoch].add(name)
    different = [sum(found[a][name] != found[b][name] for name in found[a]) for a, b in pairwise(range(EPOCHS))]
    assert min(different) > 0.4 * len(documents), "sentinels and cuts move"
    assert all(cut[epoch] >= {"long", "word"} for epoch in range(EPOCHS)) or config.rate < 1


def test_rows_are_the_same_wherever_a_read_begins(lake: Catalog, documents: dict[str, str], serve: Serve) -> None:
    """For any ranks, in any epoch, from a server or from the lake; a replica measures nothing anew."""
    texts = TextSpec("main.tokenizer", WINDOW, group_documents=20, objectives={"fim": {"rate": 0.7}})
    address = serve().address
    with connect(address) as client:
        blend = client.create_blend([SourceSpec("main.texts", max_epochs=0)], texts=texts).blend_id
        whole = [row.tobytes() for batch in client.read(blend, 0, 900) for row in batch.input_ids]
        for offset in (1, 250, 777):
            again = [row.tobytes() for batch in client.read(blend, offset, 900 - offset) for row in batch.input_ids]
            assert again == whole[offset:]
        parts = []
        for rank in range(3):
            read = client.read(blend, 0, 900, part=(30, rank, 3))
            parts.append([row.tobytes() for batch in read for row in batch.input_ids])
        dealt = [row for step in range(30) for part in parts for row in part[10 * step : 10 * step + 10]]
        assert dealt == whole
    assert len({*whole}) > 500, "epochs differ"


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        ({"objectives": {"fim": {"cut": "syntax"}}}, "needs the language of each document"),
        ({"objectives": {"fim": {"rte": 1}}}, "rte"),
        ({"objectives": {"fimm": {}}}, "no such field; did you mean 'fim'"),
        ({"objectives": "[]"}, "is no object; give"),
        ({"objectives": {}}, "has fim alone"),
        ({"objectives": "{"}, "is no JSON"),
        ({"objectives": {"fim": {"sentinels": {"prefix": "<p>", "middle": "<m>", "suffix": "<s>"}}}}, "no token '<p>'"),
        ({"objectives": {"fim": {"sentinels": dict(zip(_ROLES, "abc", strict=True))}}}, "'a' is a token of texts"),
        ({"objectives": {"fim": {"sentinels": dict(zip(_ROLES, _ENDS, strict=True))}}}, "ends a document"),
        ({"objectives": {"fim": {}}, "trainable": "spans"}, "leave conversations and trainable out"),
        ({"objectives": {"fim": {}}, "window_tokens": 32}, "at least 64 tokens"),
    ],
)
def test_what_does_not_go_is_refused(
    lake: Catalog, documents: dict[str, str], texts: dict[str, Any], problem: str
) -> None:
    """In a line, before anything is measured."""
    spec = TextSpec("main.tokenizer", **{"window_tokens": WINDOW, **texts})
    with pytest.raises(InvalidBlendError, match=problem):
        Blender(lake).create(BlendSpec((SourceSpec("main.texts"),), texts=spec))


def test_another_version_of_the_rule_is_refused(
    lake: Catalog, documents: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It would draw other cuts."""
    texts = TextSpec("main.tokenizer", WINDOW, objectives={"fim": {}})
    blend = Blender(lake).create(BlendSpec((SourceSpec("main.texts"),), texts=texts)).blend_id
    monkeypatch.setattr(blend_texts, "_VERSION", 2)
    from blender_service.tables import conversation_texts

    conversation_texts._objectives.cache_clear()
    with pytest.raises(PackedTableError, match="version 1 of their rule, this is 2"):
        Blender(lake).open(blend).gather(0, 1)
    conversation_texts._objectives.cache_clear()


def test_epochs_without_end_need_no_reader_each(
    lake: Catalog, documents: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few are kept, rows stay the same whichever went, and streams in different epochs do not disturb one another."""
    monkeypatch.setattr(source_rows, "EPOCHS_AT_HAND", 3)
    put_texts(lake, "main.small", {f"s{number}": "x = f(y)\n" * (number % 5 + 1) for number in range(8)})
    texts = TextSpec("main.tokenizer", WINDOW, objectives={"fim": {"rate": 0.5}})
    blend_id = Blender(lake).create(BlendSpec((SourceSpec("main.small", max_epochs=0),), texts=texts)).blend_id
    reader, other = (Blender(lake, 1 << 16).open(blend_id) for _ in range(2))
    whole = reader.gather(0, 200).input_ids
    assert len(reader._places.readers._opened) <= 3
    assert [other.gather(at, 5).input_ids.tolist() for at in range(195, -1, -5)][::-1] == [
        whole[at : at + 5].tolist() for at in range(0, 200, 5)
    ]
    located = other._locate(np.arange(8))
    other.gather(1000, 64)
    assert located.chunk.copy(0, 8, ("main.small",), other.config.window).input_ids.tolist() == whole[:8].tolist()
    with ThreadPoolExecutor(4) as pool:
        threads = [pool.submit(other.gather, 0, 200) for _ in range(4)]
        assert all(thread.result().input_ids.tolist() == whole.tolist() for thread in threads)
