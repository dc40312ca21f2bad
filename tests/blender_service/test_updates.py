"""UpdateBlend on a lake: what changes, what stays, what is refused and which way out it names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyiceberg.catalog import Catalog

from blender_service.blend.config import BlendConfig
from blender_service.blend.create import aligned
from blender_service.blend.describe import describe
from blender_service.blend.requests import BlendSpec, SourceChange, SourceSpec, Stage, UpdateSpec
from blender_service.blend.store import HEADS, BlendStore, open_store
from blender_service.exceptions import InvalidBlendError, UpdateRefusedError
from blender_service.order.resolve import ResolvedRows
from blender_service.order.resolved_blend import Head
from blender_service.server.blender import Blender
from tests.blender_service.packed_tables import PackedFixture, create_packed


def mixed(code: PackedFixture, prose: PackedFixture) -> BlendSpec:
    """Code 3 : prose 1, prose over-sampled."""
    return BlendSpec(
        (SourceSpec(code.identifier, "3", name="code"), SourceSpec(prose.identifier, "1", name="prose", max_epochs=0)),
        seed=3,
        block_rows=32,
        group_blocks=3,
    )


def rows(blender: Blender, config: BlendConfig, first: int, count: int) -> list[tuple[str, int, int]]:
    """Give rows as (name, epoch, ordinal)."""
    order = blender.order(config.blend_id)
    found: ResolvedRows = order.resolve(np.arange(first, first + count))
    return [(order.names[s], e, o) for s, e, o in zip(*(column.tolist() for column in found), strict=True)]


def update(blender: Blender, parent: BlendConfig, from_offset: int, *changes: SourceChange) -> BlendConfig:
    """Make an update of one stage."""
    return blender.update(UpdateSpec(parent.blend_id, (Stage(from_offset, changes),)))


def refused(
    blender: Blender, parent: BlendConfig, from_offset: int, changes: Iterable[SourceChange], kind: type[Exception]
) -> dict[str, str]:
    """Make an update that must be refused; give its mistakes by field."""
    with pytest.raises(InvalidBlendError) as caught:
        update(blender, parent, from_offset, *changes)
    assert type(caught.value) is kind
    return dict(caught.value.violations)


@pytest.fixture
def blender(lake: Catalog) -> Blender:
    """Blender on the lake."""
    return Blender(lake)


@pytest.fixture
def parent(blender: Blender, code: PackedFixture, prose: PackedFixture) -> BlendConfig:
    """A blend of 700 rows of code and 100 of prose."""
    return blender.create(mixed(code, prose))


def test_a_child_is_its_parent_up_to_the_offset(blender: Blender, parent: BlendConfig, lake: Catalog) -> None:
    """Up to from_offset the rows are the parent's, after it the weights are the new ones; another process agrees."""
    weights = (SourceChange("code", weight="0.5"), SourceChange("prose", weight="0.5"))
    child = update(blender, parent, 100, *weights)
    assert (child.parent, child.from_offset) == (parent.blend_id, "100")
    assert rows(blender, child, 0, 100) == rows(blender, parent, 0, 100)
    after = rows(blender, child, 100, 50)
    assert [name for name, _, _ in after] == ["code", "prose"] * 25
    seen = [o for name, e, o in rows(blender, child, 0, 150) if name == "code"]
    assert len(set(seen)) == len(seen) == 100
    assert rows(Blender(lake), child, 0, 300) == rows(blender, child, 0, 300)
    assert update(blender, parent, 100, *reversed(weights)) == child


def test_every_kind_of_change_in_one_update(
    blender: Blender, parent: BlendConfig, lake: Catalog, code: PackedFixture
) -> None:
    """One source grows, one goes, one comes live; then the one that went comes back where it was."""
    code.append(50, seed=9, increment=2)
    create_packed(lake, "main.packed_news_16")
    child = update(
        blender,
        parent,
        80,
        SourceChange("code", weight="2", snapshot="main"),
        SourceChange("prose", remove=True),
        SourceChange("news", weight="1", table="main.packed_news_16", live=True),
    )
    assert [(s.name, s.rows, s.live) for s in child.sources] == [("code", 750, None), ("news", None, True)]
    assert [o for name, _, o in rows(blender, child, 80, 30) if name == "news"] == list(range(10))
    back = update(
        blender, child, 120, SourceChange("prose", weight="1"), SourceChange("code", weight="1"),
        SourceChange("news", remove=True),
    )  # fmt: skip
    prose = [(e, o) for name, e, o in rows(blender, back, 0, 300) if name == "prose"]
    assert len(prose) == 20 + 90
    assert len(set(prose)) == len(prose)
    assert [e for e, _ in prose] == [0] * 100 + [1] * 10


def test_an_update_before_its_parents_own_takes_that_back(blender: Blender, parent: BlendConfig) -> None:
    """from_offset may lie before the parent's: what the parent changed after it is gone."""
    child = update(blender, parent, 200, SourceChange("prose", remove=True))
    rewound = update(blender, child, 50, SourceChange("prose", weight="1"), SourceChange("code", weight="1"))
    assert rows(blender, rewound, 0, 50) == rows(blender, parent, 0, 50)
    assert {name for name, _, _ in rows(blender, rewound, 50, 2)} == {"code", "prose"}


def test_a_schedule_is_a_chain_made_in_one_call(
    blender: Blender, code: PackedFixture, prose: PackedFixture, parent: BlendConfig
) -> None:
    """A curriculum gives the blend that the same updates give one by one, and binds its name to the last."""
    stages = (
        Stage(40, (SourceChange("code", weight="1"), SourceChange("prose", weight="1"))),
        Stage(90, (SourceChange("prose", remove=True),)),
    )
    whole = blender.create(replace(mixed(code, prose), schedule=stages, name="curriculum"))
    middle = update(blender, parent, 40, *stages[0].changes)
    assert whole == update(blender, middle, 90, *stages[1].changes)
    assert whole == blender.update(UpdateSpec(parent.blend_id, stages))
    assert blender.resolve("curriculum") == whole.blend_id
    assert [change.from_offset for change in blender.head(whole.blend_id).lineage] == [0, 40, 90]
    wrong = (stages[0], Stage(30, (SourceChange("gone", remove=True),)))
    with pytest.raises(InvalidBlendError) as caught:
        blender.create(replace(mixed(code, prose), schedule=wrong))
    assert set(dict(caught.value.violations)) == {"schedule[1].from_offset"}
    close = (replace(stages[0], from_offset=41, align=True), replace(stages[1], from_offset=43))
    with pytest.raises(InvalidBlendError, match="aligned to 44"):
        blender.create(replace(mixed(code, prose), schedule=close))


def test_align_rounds_up_to_the_end_of_a_cycle(blender: Blender, parent: BlendConfig) -> None:
    """3 : 1 has cycles of four rows: 41 becomes 44, 44 stays, and never beyond the segment's end."""
    head = blender.head(parent.blend_id)
    assert [aligned(head, offset) for offset in (0, 41, 44, 45)] == [0, 44, 44, 48]
    assert head.end is not None
    assert aligned(head, head.end) == head.end
    stage = Stage(41, (SourceChange("prose", remove=True),), align=True)
    assert blender.update(UpdateSpec(parent.blend_id, (stage,))).from_offset == "44"


def test_align_knows_that_a_cycle_goes_on_over_an_update(blender: Blender, parent: BlendConfig) -> None:
    """One that changes no weight begins no cycle: aligned is what a whole number of cycles gives, by counting them."""
    child = blender.update(UpdateSpec(parent.blend_id, (Stage(41, ()),)))
    head = blender.head(child.blend_id)
    assert [segment.origin for segment in head.segments][:2] == [0, 0]
    assert [aligned(head, offset) for offset in range(38, 46)] == [40, 40, 40, 44, 44, 44, 44, 48]


def test_mistakes_of_an_update_come_all_at_once(blender: Blender, parent: BlendConfig) -> None:
    """Every wrong field is named, with what would be right."""
    end = blender.head(parent.blend_id).end
    changes = (
        SourceChange("code", weight="many"),
        SourceChange("gone", remove=True),
        SourceChange("new", max_epochs=-1),
        SourceChange("prose", weight="1", snapshot="9" * 5000),
        SourceChange("live", weight="1", table="main.nothing", live=True, on_exhausted="END"),
        SourceChange("line\n", weight="1", table="main.nothing"),
        SourceChange("code", remove=True, weight="1"),
    )
    found = refused(blender, parent, 10**9, changes, InvalidBlendError)
    assert found["from_offset"] == f"is {10**9}, its parent ends at {end}; give 0 to {end}"
    assert "it has code, prose" in found["changes[1].name"]
    assert "name its table" in found["changes[2].table"]
    expected = {"changes[2].max_epochs", "changes[3].snapshot", "changes[4].table", "changes[4].on_exhausted"}
    assert expected | {"changes[5].name", "changes[6].name", "changes[6].remove"} <= set(found)


def test_weights_are_given_for_all_sources_or_none(blender: Blender, parent: BlendConfig) -> None:
    """0.5 for one of two sources means nothing; the message says the weights of now."""
    found = refused(blender, parent, 10, [SourceChange("code", weight="0.5")], InvalidBlendError)
    assert "give all of them (now code=3, prose=1)" in found["sources.prose.weight"]


def test_a_shrunk_table_is_refused(blender: Blender, parent: BlendConfig, code: PackedFixture) -> None:
    """An older snapshot has fewer rows than the epoch covers; before anything is read it is welcome."""
    older = next(s for s in code.table.snapshots() if s.summary and s.summary["total-records"] == "300")
    change = SourceChange("code", snapshot=str(older.snapshot_id))
    found = refused(blender, parent, 10, [change], UpdateRefusedError)
    assert "has 300 rows" in found["changes[0].snapshot"]
    assert "covers 700; pin a snapshot with at least as many, or remove code and add" in found["changes[0].snapshot"]
    assert update(blender, parent, 0, change).sources[0].rows == 300


def test_another_generation_is_refused(blender: Blender, parent: BlendConfig, code: PackedFixture) -> None:
    """A table that was packed again is no longer what was read; removing it and adding it under a new name is."""
    code.table.transaction().set_properties({"headrace.generation": "second"}).commit_transaction()
    code.append(1, seed=5, increment=2)
    found = refused(blender, parent, 10, [SourceChange("code", snapshot="main")], UpdateRefusedError)
    assert "is generation second, the blend has read first" in found["changes[0].snapshot"]
    changes = (
        SourceChange("code", remove=True),
        SourceChange("code-2", table=code.identifier, weight="3"),
        SourceChange("prose", weight="1"),
    )
    found = refused(blender, parent, 10, changes, InvalidBlendError)
    assert "set allow_repeat" in found["sources.code-2.table"]
    child = blender.update(UpdateSpec(parent.blend_id, (Stage(10, changes),), allow_repeat=True))
    assert [source.name for source in child.sources] == ["code-2", "prose"]


def test_a_table_that_was_made_again_is_refused(
    blender: Blender, parent: BlendConfig, lake: Catalog, prose: PackedFixture
) -> None:
    """Its name is the same, its UUID is not; under a new name it starts at row 0."""
    lake.drop_table(prose.identifier)
    create_packed(lake, prose.identifier).append(100, seed=4)
    change = SourceChange("prose", snapshot="main")
    found = refused(blender, parent, 10, [change], UpdateRefusedError)
    assert "dropped and made again" in found["changes[0].table"]
    assert "add the table under a new name" in found["changes[0].table"]
    changes = (
        SourceChange("prose", remove=True),
        SourceChange("prose-2", table=prose.identifier, weight="1"),
        SourceChange("code", weight="3"),
    )
    assert update(blender, parent, 10, *changes).sources[1].name == "prose-2"


def test_an_end_source_with_nothing_left_is_refused(
    blender: Blender, code: PackedFixture, prose: PackedFixture
) -> None:
    """The child would end where it begins: raise max_epochs, remove it, or CONTINUE, and each of them works."""
    spec = BlendSpec(
        (SourceSpec(code.identifier, name="code", max_epochs=0), SourceSpec(prose.identifier, name="prose")),
        block_rows=32,
        group_blocks=3,
    )
    parent = blender.create(spec)
    end = blender.head(parent.blend_id).end
    assert end is not None
    found = refused(blender, parent, end, [], UpdateRefusedError)
    assert "raise its max_epochs, remove it, or set on_exhausted to CONTINUE" in found["from_offset"]
    for change in (
        SourceChange("prose", max_epochs=2),
        SourceChange("prose", remove=True),
        SourceChange("prose", on_exhausted="CONTINUE"),
    ):
        assert rows(blender, update(blender, parent, end, change), end, 1)


def test_a_live_source_has_no_end_of_its_own(blender: Blender, code: PackedFixture, prose: PackedFixture) -> None:
    """Its config holds neither snapshot nor rows, so the same request gives one blend however the table grows."""
    spec = BlendSpec((SourceSpec(code.identifier, live=True), SourceSpec(prose.identifier, max_epochs=0)))
    config = blender.create(spec)
    assert "snapshot_id" not in config.model_dump(mode="json", exclude_none=True)["sources"][0]
    assert blender.head(config.blend_id).end is None
    code.append(5, seed=8, increment=3)
    assert blender.create(spec) == config


def test_the_head_is_derived_and_computed_again(blender: Blender, parent: BlendConfig, lake: Catalog) -> None:
    """Lost or damaged heads, of the blend or its ancestors, change nothing; what is stored is what is computed."""
    child = update(blender, parent, 30, SourceChange("prose", remove=True))
    grandchild = update(blender, child, 60, SourceChange("prose", weight="1"), SourceChange("code", weight="2"))
    store = open_store(lake)
    head = blender.head(grandchild.blend_id)
    assert head == grandchild.resolve(child.resolve(parent.resolve()))
    assert store.head(grandchild) == head
    blends = Path(str(lake.properties["warehouse"])) / "blends"
    stored = blends / HEADS / grandchild.blend_id
    damaged = bytearray(stored.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    stored.write_bytes(damaged)
    assert open_store(lake).head(grandchild) == head
    for path in (blends / HEADS).iterdir():
        path.unlink()
    assert Blender(lake).head(grandchild.blend_id) == head


def test_a_long_chain_opens_with_one_config_read(
    blender: Blender, parent: BlendConfig, lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many ancestors a blend has, opening it reads its own config and head, and nothing else."""
    config = parent
    for step in range(1, 12):
        config = update(
            blender, config, step * 20, SourceChange("code", weight=str(step)), SourceChange("prose", weight="1")
        )
    fresh, end = Blender(lake), blender.order(config.blend_id).end
    reads: list[str] = []
    get, stored_head = BlendStore.get, BlendStore._stored_head

    def get_noted(self: BlendStore, blend_id: str) -> BlendConfig:
        reads.append("config")
        return get(self, blend_id)

    def stored_head_noted(self: BlendStore, blend_id: str) -> Head | None:
        reads.append("head")
        return stored_head(self, blend_id)

    monkeypatch.setattr(BlendStore, "get", get_noted)
    monkeypatch.setattr(BlendStore, "_stored_head", stored_head_noted)
    assert fresh.order(config.blend_id).end == end
    assert reads == ["config", "head"]


def test_a_run_may_change_to_a_child_only_where_no_row_is_replayed(blender: Blender, parent: BlendConfig) -> None:
    """A state may go on with another blend up to the first offset that either chain changed."""
    child = update(blender, parent, 40, SourceChange("prose", remove=True))
    sibling = update(blender, parent, 60, SourceChange("code", remove=True))
    rewound = update(blender, child, 20, SourceChange("code", max_epochs=2))
    head = {name: blender.head(config.blend_id) for name, config in
            {"parent": parent, "child": child, "sibling": sibling, "rewound": rewound}.items()}  # fmt: skip
    assert head["child"].shares_rows_until(head["parent"]) == 40
    assert head["sibling"].shares_rows_until(head["child"]) == 40
    assert head["rewound"].shares_rows_until(head["child"]) == 20
    assert head["child"].shares_rows_until(head["child"]) is None


def test_rows_of_a_removed_source_can_be_read_again(
    blender: Blender, parent: BlendConfig, code: PackedFixture, prose: PackedFixture, lake: Catalog
) -> None:
    """The child serves its parent's rows byte for byte; once the removed table is gone, rows after it still come."""
    child = update(blender, parent, 40, SourceChange("prose", remove=True))
    before = [b.input_ids.tolist() for b in blender.open(parent.blend_id).read(0, 40, max_batch_rows=40)]
    assert [b.input_ids.tolist() for b in blender.open(child.blend_id).read(0, 40, max_batch_rows=40)] == before
    lake.drop_table(prose.identifier)
    assert next(Blender(lake).open(child.blend_id, 40).read(40, 8)).rows == 8


def test_sources_take_turns_of_the_rows_of_a_step(blender: Blender, code: PackedFixture, prose: PackedFixture) -> None:
    """Steps of a turn have one source; what fills no turn is left and counted, and updates stand between turns."""
    made = blender.create(replace(mixed(code, prose), turn_rows=24))
    assert b'"turn_rows":24' in made.canonical_json()
    assert b"turn_rows" not in blender.create(replace(mixed(code, prose), turn_rows=1)).canonical_json()
    head = made.resolve()
    assert head.end == (9 * 4 + 3) * 24  # code has rows for 29 turns and ends it at the 30th
    steps = [rows(blender, made, at, 24) for at in range(0, head.end, 24)]
    assert [next(iter({name for name, *_ in step})) for step in steps[:8]] == ["code", "code", "prose", "code"] * 2
    assert all(len({name for name, *_ in step}) == 1 for step in steps)
    every = [row for step in steps for row in step]
    assert len(set(every)) == len(every)
    assert sum(name == "code" for name, *_ in every) == 29 * 24
    unread = {source.name: source.unread_rows for source in describe(made, head).sources}
    assert unread["code"] == 700 - 29 * 24
    assert describe(made, head).sources[0].runs_out_at == head.end
    problem = refused(blender, made, 100, [SourceChange("prose", remove=True)], InvalidBlendError)["from_offset"]
    assert problem == "is 100, inside a turn of 24 rows; give 96 or 120, or align it"
    child = update(blender, made, 96, SourceChange("code", weight="1"), SourceChange("prose", weight="1"))
    assert rows(blender, child, 0, 96) == every[:96]
    later = [rows(blender, child, at, 24) for at in range(96, 480, 24)]
    assert [step[0][0] for step in later] == ["code", "prose"] * 8
    assert child.turn_rows == 24


def test_turns_that_cannot_be_are_refused(blender: Blender, code: PackedFixture, prose: PackedFixture) -> None:
    """A source without rows for one, and cycles that are too long, with the nearest weights that fit."""
    spec = mixed(code, prose)
    with pytest.raises(InvalidBlendError, match="has 700 rows in all its epochs, a turn takes 701; raise max_epochs"):
        blender.create(replace(spec, turn_rows=701))
    sources = (replace(spec.sources[0], weight="1000"), replace(spec.sources[1], weight="1001"))
    with pytest.raises(InvalidBlendError, match="sum to 2001, at most 1997 is possible; nearest: code=998, prose=999"):
        blender.create(replace(spec, sources=sources, turn_rows=525))
    with pytest.raises(InvalidBlendError, match=r"turn_rows.* is 524289; give 1 to 524288"):
        blender.create(replace(spec, turn_rows=(1 << 19) + 1))
