"""Creating a blend: every mistake at once, snapshots pinned, the same request the same id."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pyiceberg.catalog import Catalog

from blender_service.blend.config import BlendConfig
from blender_service.blend.requests import BlendSpec, SourceChange, SourceSpec, Stage, UpdateSpec
from blender_service.blend.store import BlendStore, open_store
from blender_service.exceptions import BlendInUseError, BlendNameTakenError, BlendNotFoundError, InvalidBlendError
from blender_service.order.resolved_blend import Head
from blender_service.server.blender import Blender
from blender_service.tables.packed_table import EVALS
from headrace.tables.generations import NAMED_ROWS_PROPERTY
from tests.blender_service.packed_tables import PackedFixture, create_packed


def two(code: PackedFixture, prose: PackedFixture) -> BlendSpec:
    """A valid request over two tables."""
    return BlendSpec((SourceSpec(prose.identifier, "0.25"), SourceSpec(code.identifier, "0.75")), seed=3)


def refused(lake: Catalog, spec: BlendSpec) -> dict[str, str]:
    """Create a blend that must be refused; give its mistakes by field."""
    with pytest.raises(InvalidBlendError) as caught:
        Blender(lake).create(spec)
    for violation in caught.value.violations:
        assert violation.field in str(caught.value)
    return dict(caught.value.violations)


def test_create_pins_what_the_table_is(lake: Catalog, code: PackedFixture, prose: PackedFixture) -> None:
    """The config holds UUID, snapshot, rows and generation of each source, ascending by name, weights reduced."""
    config = Blender(lake).create(two(code, prose))
    first, second = config.sources
    assert (first.name, second.name) == (code.identifier, prose.identifier)
    assert (first.weight, second.weight) == (3, 1)
    assert (first.rows, second.rows) == (700, 100)
    assert first.table_uuid == str(code.table.metadata.table_uuid)
    current = code.table.current_snapshot()
    assert current is not None
    assert first.snapshot_id == str(current.snapshot_id)
    assert code.table.refs()[f"blend_{current.snapshot_id}"].snapshot_id == current.snapshot_id


def test_equal_requests_give_one_blend(lake: Catalog, code: PackedFixture, prose: PackedFixture) -> None:
    """Order of the sources and the way weights are written do not matter; the seed does."""
    blender = Blender(lake)
    spec = two(code, prose)
    same = BlendSpec((SourceSpec(code.identifier, "3"), SourceSpec(prose.identifier, "1")), seed=3)
    assert blender.create(spec).blend_id == blender.create(same).blend_id
    assert blender.create(replace(spec, seed=4)).blend_id != blender.create(same).blend_id
    assert len(blender.list_ids()) == 2


def test_an_older_snapshot_can_be_pinned(lake: Catalog, code: PackedFixture) -> None:
    """A snapshot id, or a tag, pins the table as it was."""
    snapshots = code.table.snapshots()
    older = next(s for s in snapshots if s.summary and s.summary.additional_properties["total-records"] == "300")
    code.table.manage_snapshots().create_tag(older.snapshot_id, "monday").commit()
    for reference in (str(older.snapshot_id), "monday"):
        config = Blender(lake).create(BlendSpec((SourceSpec(code.identifier, snapshot=reference),)))
        assert config.sources[0].rows == 300


def test_a_snapshot_has_its_own_rows_after_an_excision_too(lake: Catalog, code: PackedFixture) -> None:
    """By id or tag, while it is there and expired, in a new blend and in an update: never those of the successor.

    Where it expired and nothing says how many rows it had, the request is refused with its successor's name.
    """
    older = next(
        s for s in code.table.snapshots() if s.summary and s.summary.additional_properties["total-records"] == "300"
    )
    code.table.manage_snapshots().create_tag(older.snapshot_id, "monday").commit()
    blender = Blender(lake)

    def made(reference: str) -> BlendConfig:
        return blender.create(BlendSpec((SourceSpec(code.identifier, snapshot=reference, name="code", max_epochs=0),)))

    before = made(str(older.snapshot_id))
    code.excise(next(number for number, row in enumerate(code.rows) if len(row.segments) > 1))
    head = code.table.current_snapshot()
    assert head is not None

    def is_exact(config: BlendConfig) -> bool:
        read = [row for batch in blender.open(config.blend_id).read(0, 600) for row in batch.ordinals.tolist()]
        return config.sources[0].rows == 300 and sorted(read) == sorted([*range(300)] * 2)

    assert is_exact(made(str(older.snapshot_id))) and is_exact(made("monday"))
    assert made(str(head.snapshot_id)).sources[0].rows == 700
    update = UpdateSpec(before.blend_id, (Stage(300, (SourceChange("code", weight="2"),)),))
    assert blender.update(update).sources[0].rows == 300

    rows = {name: (str(head.snapshot_id), 300) for name in (str(older.snapshot_id), "monday")}  # as excise notes them
    for name in [name for name in code.table.refs() if name != "main"]:
        code.table.manage_snapshots().remove_tag(name).commit()
    code.table.maintenance.expire_snapshots().by_id(older.snapshot_id).commit()
    code.table.manage_snapshots().create_tag(head.snapshot_id, "monday").commit()
    named = BlendSpec((SourceSpec(code.identifier, snapshot=str(older.snapshot_id)),))
    assert f"its successor {head.snapshot_id}, of 700 rows" in refused(lake, named)["sources[0].snapshot"]
    code.table.transaction().set_properties({NAMED_ROWS_PROPERTY: json.dumps(rows)}).commit_transaction()
    assert is_exact(made(str(older.snapshot_id))) and is_exact(made("monday"))
    assert is_exact(blender.update(UpdateSpec(before.blend_id, (Stage(600, (SourceChange("code", weight="3"),)),))))


def test_a_deleted_blend_frees_what_it_alone_pinned(lake: Catalog, code: PackedFixture, prose: PackedFixture) -> None:
    """Its tags go, those of other blends stay, whatever they share; a blend that another goes on from is kept."""
    blender = Blender(lake)
    both = blender.create(replace(two(code, prose), name="both"))
    one = blender.create(BlendSpec((SourceSpec(code.identifier, name="code", max_epochs=0),)))
    child = blender.update(UpdateSpec(one.blend_id, (Stage(7, (SourceChange("code", weight="2"),)),)))

    def tags(table: PackedFixture) -> list[str]:
        return [name for name in table.table.refs() if name != "main"]

    with pytest.raises(BlendInUseError, match=child.blend_id[:12]):
        blender.delete(one.blend_id)
    assert blender.delete(both.blend_id) == [f"{prose.identifier} blend_{both.sources[1].snapshot_id}"]
    assert (len(tags(code)), tags(prose), blender.names()) == (1, [], {})
    with pytest.raises(BlendNotFoundError):
        blender.open(both.blend_id)
    assert blender.delete(child.blend_id) == []
    assert blender.delete(one.blend_id) == [f"{code.identifier} blend_{one.sources[0].snapshot_id}"]
    assert (tags(code), blender.list_ids()) == ([], [])
    assert blender.create(replace(two(code, prose), name="both")) == both
    assert sum(batch.rows for batch in blender.open(both.blend_id).read(0, 50)) == 50


def test_a_snapshot_that_is_freed_while_a_blend_is_stored_is_pinned(lake: Catalog, code: PackedFixture) -> None:
    """Deletion and creation of two blends of one snapshot, at once: the one that is there has its tag."""
    blender = Blender(lake)
    first = blender.create(BlendSpec((SourceSpec(code.identifier),)))

    class Racing(BlendStore):
        def put(self, config: BlendConfig, head: Head | None = None) -> str:
            blender.delete(first.blend_id)
            return super().put(config, head)

    second = Blender(lake, store=Racing(open_store(lake).objects)).create(
        BlendSpec((SourceSpec(code.identifier),), seed=2)
    )
    assert f"blend_{second.sources[0].snapshot_id}" in code.table.refs()


def test_every_mistake_is_reported_at_once(lake: Catalog, code: PackedFixture) -> None:
    """One answer names every wrong field."""
    lake.create_namespace("other")
    lake.create_table("other.plain", schema=code.table.schema())
    create_packed(lake, "other.packed_empty_16")
    spec = BlendSpec(
        (
            SourceSpec("main.nothing"),
            SourceSpec("other.plain", name="plain"),
            SourceSpec("other.packed_empty_16", name="empty"),
            SourceSpec(code.identifier, weight="-1", name="one", max_epochs=-1),
            SourceSpec(code.identifier, snapshot="tuesday", name="Two"),
            SourceSpec("no table", name="one", live=True, max_epochs=2),
        ),
        seed=-1,
        name="Not A Name",
    )
    found = refused(lake, spec)
    assert set(found) == {
        "seed",
        "name",
        "sources[0].table",
        "sources[1].table",
        "sources[2].snapshot",
        "sources[3].weight",
        "sources[3].max_epochs",
        "sources[4].name",
        "sources[4].snapshot",
        "sources[5].name",
        "sources[5].table",
        "sources[5].max_epochs",
    }
    assert Blender(lake).list_ids() == []


def test_a_table_that_is_not_packed_is_refused(lake: Catalog, code: PackedFixture) -> None:
    """A table without headrace's properties says which are missing."""
    lake.create_namespace("other")
    plain = lake.create_table("other.plain", schema=code.table.schema())
    plain.append(code.table.scan().to_arrow())
    assert "headrace.window-tokens" in refused(lake, BlendSpec((SourceSpec("other.plain"),)))["sources[0].table"]


@pytest.mark.parametrize(
    ("changed", "value"),
    [("window_tokens", "32"), ("tokenizer_sha256", "0" * 64), ("vocabulary_size", "301"), ("padding_id", "2")],
)
def test_sources_that_are_packed_differently_are_refused(
    lake: Catalog, code: PackedFixture, changed: str, value: str
) -> None:
    """Window length, tokenizer, vocabulary and special tokens must be the same in all sources."""
    other = create_packed(lake, "other.packed_16", **{changed: value}).append(10, seed=1)
    found = refused(lake, BlendSpec((SourceSpec(code.identifier), SourceSpec(other.identifier))))
    assert f"headrace.{changed.replace('_', '-')} is {value}" in found[f"sources.{other.identifier}.table"]


def test_one_table_under_two_names_is_refused(lake: Catalog, code: PackedFixture) -> None:
    """Its rows would come twice."""
    found = refused(lake, BlendSpec((SourceSpec(code.identifier, name="a"), SourceSpec(code.identifier, name="b"))))
    assert "twice" in found["sources.b.table"]


def test_weights_that_need_too_long_a_cycle_name_the_nearest(
    lake: Catalog, code: PackedFixture, prose: PackedFixture
) -> None:
    """1 : 2,000,000 does not fit a cycle of 2**20 rows; the message says what does."""
    spec = BlendSpec((SourceSpec(code.identifier, "2000000"), SourceSpec(prose.identifier, "1")))
    assert f"{code.identifier}=1048575, {prose.identifier}=1" in refused(lake, spec)["sources.weight"]


def test_gaps_and_overlaps_in_ordinals_are_refused(lake: Catalog) -> None:
    """Ordinals must be dense from 0, each in one file."""
    table = create_packed(lake, "main.packed_holes_16").append(10, seed=1)
    table.rows += table.rows[:1]
    table.append(10, seed=2)
    assert (
        "ordinal 10 should come next" in refused(lake, BlendSpec((SourceSpec(table.identifier),)))["sources[0].table"]
    )


def test_a_name_is_bound_to_one_blend(lake: Catalog, code: PackedFixture) -> None:
    """Another blend cannot take a name that is in use."""
    blender = Blender(lake)
    spec = BlendSpec((SourceSpec(code.identifier),), name="nightly")
    assert blender.resolve("nightly") if blender.create(spec) else False
    with pytest.raises(BlendNameTakenError):
        blender.create(replace(spec, seed=9))


def test_stored_config_is_what_create_gave(lake: Catalog, code: PackedFixture) -> None:
    """Another process reads the same value."""
    config: BlendConfig = Blender(lake).create(BlendSpec((SourceSpec(code.identifier),)))
    assert Blender(lake).config(config.blend_id) == config


def test_a_demand_for_searched_benchmarks_is_kept(lake: Catalog, code: PackedFixture, prose: PackedFixture) -> None:
    """All sources say the digest, of the packing that is pinned; updates keep to it, or name another."""
    digest, other = "a" * 64, "b" * 64
    spec = replace(two(code, prose), evals=digest)
    mistakes = refused(lake, spec)
    assert f"was searched for no benchmark, demanded is {digest}" in mistakes[f"sources.{code.identifier}.table"]
    for one in (code, prose):
        with one.table.transaction() as change:
            change.set_properties({EVALS: digest})
    blender = Blender(lake)
    made = blender.create(spec)
    assert made.evals == digest and made.blend_id != blender.create(two(code, prose)).blend_id
    assert blender.searched_evals(made.blend_id) == {code.identifier: digest, prose.identifier: digest}
    child = blender.update(UpdateSpec(made.blend_id, (Stage(4),)))
    assert (child.evals, child.parent) == (digest, made.blend_id)
    with pytest.raises(InvalidBlendError, match=f"was searched for {digest}, demanded is {other}"):
        blender.update(UpdateSpec(made.blend_id, (Stage(4),), evals=other))
    assert refused(lake, replace(spec, evals="gsm8k")) == {
        "evals": "is 'gsm8k'; give the 64 hex digits that `headrace evals show` prints"
    }
