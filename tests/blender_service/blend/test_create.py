"""Creating a blend: every mistake at once, snapshots pinned, the same request the same id."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.catalog import Catalog

from blender_service.blend.config import BlendConfig
from blender_service.blend.requests import BlendSpec, SourceSpec, Stage, UpdateSpec
from blender_service.exceptions import BlendNameTakenError, InvalidBlendError
from blender_service.server.blender import Blender
from blender_service.tables.packed_table import EVALS
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
        "evals": "is 'gsm8k'; give the 64 hex digits that `headrace evals list` prints"
    }
