"""Blends of an older generation of a packed table go on, byte for byte, whatever the table has become."""

from __future__ import annotations

import json

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from blender_service.blend.config import BlendConfig
from blender_service.blend.requests import BlendSpec, SourceChange, SourceSpec, Stage, UpdateSpec
from blender_service.exceptions import InvalidBlendError, SourceChangedError
from blender_service.server.blender import Blender
from blender_service.wire.row_batch import concatenate, encode
from tests.blender_service.packed_tables import PackedFixture, create_packed, to_arrow

OTHER_TOKENIZER = "7" * 64


def blend_of(lake: Catalog, *sources: SourceSpec) -> BlendConfig:
    """Create a blend with small blocks."""
    return Blender(lake).create(BlendSpec(sources, seed=17, block_rows=32, group_blocks=3))


def served(lake: Catalog, config: BlendConfig, rows: int) -> bytes:
    """The first rows as a server that was started just now sends them."""
    return encode(concatenate(list(Blender(lake).open(config.blend_id).read(0, rows))))


def head(table: Table) -> int:
    """Id of the current snapshot."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def test_another_tokenizer_does_not_cut_off_a_running_blend(lake: Catalog) -> None:
    """After two generations with other tokenizers, each blend has its own rows and says its own tokenizer."""
    table = create_packed(lake, "main.packed_code_16").repack(90, seed=1, generation="a")
    first = blend_of(lake, SourceSpec(table.identifier, name="code"))
    before = served(lake, first, 90)
    table.repack(70, seed=2, generation="b", tokenizer_sha256=OTHER_TOKENIZER)
    second = blend_of(lake, SourceSpec(table.identifier, name="code"))
    rows = served(lake, second, 70)
    table.repack(70, seed=3, generation="c", tokenizer_sha256="8" * 64, vocabulary_size="400")
    assert served(lake, first, 90) == before
    assert served(lake, second, 70) == rows
    assert second.window.tokenizer_sha256 == OTHER_TOKENIZER

    again = blend_of(lake, SourceSpec(table.identifier, name="code", snapshot=str(first.sources[0].snapshot_id)))
    assert again.blend_id == first.blend_id, "a snapshot is what it was, whoever asks for it later"
    child = Blender(lake).update(UpdateSpec(first.blend_id, (Stage(40, (SourceChange("code", max_epochs=2),)),)))
    assert served(lake, child, 40) == served(lake, first, 40), "and its blends can be updated"


def test_a_snapshot_of_upkeep_is_what_it_was_made_from(lake: Catalog) -> None:
    """Its summary says nothing; what it was made from does, and if that has expired, the blend alone knows."""
    table = create_packed(lake, "main.packed_code_16").repack(30, seed=1, generation="a")
    before = head(table.table)
    data = to_arrow(table.rows, 0, 0, table.table.schema())
    table.table.overwrite(data, snapshot_properties={"headrace.excises": str(before)})
    blend = blend_of(lake, SourceSpec(table.identifier))
    assert blend.sources[0].generation == "a"
    rows = served(lake, blend, 30)
    table.repack(30, seed=2, generation="b", tokenizer_sha256=OTHER_TOKENIZER)
    assert served(lake, blend, 30) == rows
    for snapshot in table.table.snapshots():
        if snapshot.snapshot_id not in (head(table.table), int(blend.sources[0].snapshot_id or 0)):
            table.table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    assert table.table.snapshot_by_id(before) is None
    assert served(lake, blend, 30) == rows


def test_each_generation_is_served_from_its_own_successor(lake: Catalog) -> None:
    """A successor made of another generation is refused; the right ones are served, both at once."""
    table = create_packed(lake, "main.packed_code_16").repack(30, seed=1, generation="a")
    old, old_rows = head(table.table), list(table.rows)
    first = blend_of(lake, SourceSpec(table.identifier))
    table.repack(30, seed=2, generation="b")
    second = blend_of(lake, SourceSpec(table.identifier))
    new, rows = head(table.table), served(lake, second, 30)
    _succeed(table, {old: new})
    with pytest.raises(SourceChangedError, match=f"its successor {new} is of another generation"):
        served(lake, first, 30)
    with pytest.raises(InvalidBlendError, match="is of another generation"):  # whose rows are not those that are named
        blend_of(lake, SourceSpec(table.identifier, snapshot=str(old)))

    data = to_arrow(old_rows[:29] + old_rows[:1], 0, 0, table.table.schema())
    table.table.manage_snapshots().create_branch(old, "work").commit()
    table.table.overwrite(data, snapshot_properties={"headrace.generation": "a"}, branch="work")
    successor = table.table.refs()["work"].snapshot_id
    _succeed(table, {old: successor})
    found = [row for batch in Blender(lake).open(first.blend_id).read(0, 30) for row in batch.doc_ids]
    assert not {segment[0] for segment in old_rows[29].segments} & set(found)
    assert {segment[0] for segment in old_rows[0].segments} <= set(found)
    assert served(lake, second, 30) == rows


def _succeed(table: PackedFixture, mapping: dict[int, int]) -> None:
    text = json.dumps({str(old): str(new) for old, new in mapping.items()})
    table.table.transaction().set_properties({"headrace.successors": text}).commit_transaction()
