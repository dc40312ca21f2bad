"""A source may be cells of a packed table: its rows are those of the cells, in each epoch once, however they lie."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from blender_service.blend.requests import BlendSpec, SourceChange, SourceSpec, Stage, UpdateSpec
from blender_service.exceptions import InvalidBlendError, SourceChangedError, UpdateRefusedError
from blender_service.server.blender import Blender
from blender_service.tables.cell_runs import RUNS, RowRuns, cell_runs, read_runs, runs_of
from headrace.tables.cells import cell_text, parse_choice
from tests.blender_service.packed_tables import SCHEMA, PackedFixture, create_packed, random_rows, to_arrow

CELLS = [cell_text({"quality": quality, "topic": topic}) for quality in range(4) for topic in ("health", "law")]
NAME = "main.packed_web_16"


@pytest.fixture
def web(lake: Catalog) -> PackedFixture:
    """Two increments of eight cells, in files that end inside of cells."""
    table = create_packed(lake, NAME, cells=True)
    table.append_cells(1, 0, {cell: 5 + number for number, cell in enumerate(CELLS)}, files=3)
    return table.append_cells(2, 1, dict.fromkeys(CELLS[2:], 4), files=2)


def ordinals_of(table: PackedFixture, choice: str) -> list[int]:
    """Ordinals of the rows whose cells are chosen."""
    return [number for number, cell in enumerate(table.cells) if parse_choice(choice).takes(cell)]


def read_all(lake: Catalog, blend_id: str, rows: int = 0) -> list[tuple[str, int, int]]:
    """Source, epoch and ordinal of each row; the rows themselves are compared with what was written."""
    reader = Blender(lake).open(blend_id)
    return [
        (batch.source_names[source], epoch, ordinal)
        for batch in reader.read(0, rows)
        for source, epoch, ordinal in zip(
            batch.sources.tolist(), batch.epochs.tolist(), batch.ordinals.tolist(), strict=True
        )
    ]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=8), st.integers(0, 200))
def test_rows_are_numbered_along_runs(gaps: list[tuple[int, int]], some: int) -> None:
    """Against a list of all ordinals, there and back, whole and cut."""
    ranges, at = [], 0
    for number, (gap, size) in enumerate(gaps):
        start = at + gap + (number > 0)
        ranges.append((start, start + size))
        at = start + size
    listed = [ordinal for start, end in ranges for ordinal in range(start, end)]
    runs = read_runs(RowRuns(ranges).to_bytes())
    assert runs.rows == len(listed)
    assert runs.ordinals(np.arange(len(listed))).tolist() == listed
    assert [runs.row_of(ordinal) for ordinal in range(at + 2)] == [
        listed.index(ordinal) if ordinal in listed else None for ordinal in range(at + 2)
    ]
    for kept, wanted in ((runs.first(some), listed[:some]), (runs.below(some), [o for o in listed if o < some])):
        assert kept.ordinals(np.arange(kept.rows)).tolist() == wanted


def test_runs_of_cells_are_those_of_their_column(lake: Catalog, web: PackedFixture) -> None:
    """Over files and increments; runs that meet are one."""
    snapshot = web.table.current_snapshot()
    assert snapshot is not None
    runs = cell_runs(web.table, NAME, snapshot)
    assert [run.cell for run in runs for _ in range(run.start, run.end)] == web.cells
    for choice in ("quality>=2", "topic=law", "quality in (1, 3), topic!=law"):
        chosen = {cell for cell in CELLS if parse_choice(choice).takes(cell)}
        rows = runs_of(runs, chosen)
        assert rows.ordinals(np.arange(rows.rows)).tolist() == ordinals_of(web, choice)
        assert all(left[1] < right[0] for left, right in zip(rows.ranges, rows.ranges[1:], strict=False))


def test_rows_without_a_cell_are_in_none(lake: Catalog) -> None:
    """A table that is packed without cells after it had some keeps the column, and is told to have none."""
    schema = Schema(*SCHEMA.fields, NestedField(12, "cell", StringType()))
    facts = dict(create_packed(lake, "main.packed_x_16").append(1, seed=1).table.properties)
    table = lake.create_table("main.packed_part_16", schema, properties=facts)
    cells = [None, None, *CELLS[:2], None, *CELLS[:2], CELLS[1], None]
    table.append(to_arrow(random_rows(9, 1), 0, 0, table.schema(), cells))
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    assert [run[:] for run in cell_runs(table, "t", snapshot)] == [
        (CELLS[0], 2, 3), (CELLS[1], 3, 4), (CELLS[0], 5, 6), (CELLS[1], 6, 8),
    ]  # fmt: skip
    table.overwrite(to_arrow(random_rows(3, 1), 0, 0, table.schema(), [None] * 3))
    with pytest.raises(InvalidBlendError, match="packed without cells"):
        Blender(lake).create(BlendSpec((SourceSpec("main.packed_part_16[quality=1]"),)))


def test_sources_of_cells_give_each_of_their_rows_once_an_epoch(lake: Catalog, web: PackedFixture) -> None:
    """Beside one another and a whole table, with the content that was written."""
    other = create_packed(lake, "main.packed_other_16").append(30, seed=5)
    spec = BlendSpec(
        (
            SourceSpec(f"{NAME}[quality >= 2, topic=law]", "3", max_epochs=2, on_exhausted="CONTINUE"),
            SourceSpec(f"{NAME}[topic in (health)]", "2", name="health", on_exhausted="CONTINUE"),
            SourceSpec(other.identifier, "1", on_exhausted="CONTINUE"),
        ),
        block_rows=8,
        group_blocks=2,
    )
    blender = Blender(lake)
    config = blender.create(spec)
    law = f"{NAME}.quality-ge-2-topic-is-law"
    assert [source.name for source in config.sources] == ["health", other.identifier, law]
    assert {source.name: source.cells for source in config.sources} == {
        "health": "topic=health", other.identifier: None, law: "quality>=2, topic=law",
    }  # fmt: skip
    read = read_all(lake, config.blend_id)
    wanted = [(law, epoch, o) for epoch in (0, 1) for o in ordinals_of(web, "quality>=2, topic=law")]
    wanted += [("health", 0, o) for o in ordinals_of(web, "topic=health")]
    wanted += [(other.identifier, 0, o) for o in range(30)]
    assert Counter(read) == Counter(wanted)
    for batch in blender.open(config.blend_id).read(0):
        for row, (source, ordinal) in enumerate(zip(batch.sources.tolist(), batch.ordinals.tolist(), strict=True)):
            table = other if batch.source_names[source] == other.identifier else web
            assert tuple(batch.input_ids[row].tolist()) == table.rows[ordinal].input_ids


@pytest.mark.parametrize(
    ("sources", "wanted"),
    [
        ((f"{NAME}[qualty>=2]",), "did you mean quality"),
        ((f"{NAME}[quality>=9]",), "quality is 0, 1, 2, 3"),
        ((f"{NAME}[quality>=2",), "no ] closes"),
        ((f"{NAME}[quality>=2]", f"{NAME}[quality=3, topic=law]"), "would come twice"),
        ((f"{NAME}[quality>=2]", NAME), "would come twice"),
        ((NAME, f"{NAME}[quality>=2]"), "would come twice"),
        (("main.packed_other_16[quality>=2]",), "packed without cells"),
    ],
)
def test_mistakes_are_told(lake: Catalog, web: PackedFixture, sources: tuple[str, ...], wanted: str) -> None:
    """With the nearest name, and where rows would come twice."""
    create_packed(lake, "main.packed_other_16").append(3, seed=5)
    with pytest.raises(InvalidBlendError, match=wanted):
        Blender(lake).create(BlendSpec(tuple(map(SourceSpec, sources))))


def test_updates_go_on_in_the_same_cells(lake: Catalog, web: PackedFixture) -> None:
    """A newer snapshot adds rows at the end of the epoch; other cells, or a removed source's, are refused."""
    blender = Blender(lake)
    first = blender.create(BlendSpec((SourceSpec(f"{NAME}[topic=law]", name="law", max_epochs=0),)))
    before = len(ordinals_of(web, "topic=law"))
    web.append_cells(3, 2, {CELLS[1]: 6, CELLS[7]: 2})
    second = blender.update(UpdateSpec(first.blend_id, (Stage(7, (SourceChange("law", snapshot="main"),)),)))
    after = ordinals_of(web, "topic=law")
    assert [source.rows for source in (*first.sources, *second.sources)] == [before, len(after)]
    read = read_all(lake, second.blend_id, 3 * len(after))
    assert read[:7] == read_all(lake, first.blend_id, 7)
    for epoch in (0, 1):
        assert sorted(ordinal for _, at, ordinal in read if at == epoch) == after
    for change, problem in (
        (SourceChange("law", table=f"{NAME}[topic=health]"), "another choice of cells"),
        (SourceChange("new", table=f"{NAME}[quality=3]", weight="1"), "would come twice"),
    ):
        changes = (change,) if change.name == "law" else (SourceChange("law", remove=True), change)
        with pytest.raises((UpdateRefusedError, InvalidBlendError), match=problem):
            blender.update(UpdateSpec(first.blend_id, (Stage(7, changes),)))
    apart = blender.update(
        UpdateSpec(first.blend_id, (Stage(7, (SourceChange("law", weight="1"),
                                              SourceChange("new", table=f"{NAME}[topic=health]", weight="1"))),))
    )  # fmt: skip
    assert {name for name, _, _ in read_all(lake, apart.blend_id, 20)} == {"law", "new"}


def test_an_excision_leaves_the_rows_of_a_cell_where_they_were(lake: Catalog, web: PackedFixture) -> None:
    """What pinned the snapshot before reads the successor, with later increments or without."""
    blend = Blender(lake).create(BlendSpec((SourceSpec(f"{NAME}[topic=law]"),)))
    before = read_all(lake, blend.blend_id)
    web.append_cells(3, 2, {CELLS[1]: 6})
    web.excise(next(o for o in ordinals_of(web, "topic=law") if len(web.rows[o].segments) > 1))
    assert read_all(lake, blend.blend_id) == before


def test_a_live_source_of_cells_goes_on_with_what_is_appended(lake: Catalog, web: PackedFixture) -> None:
    """In the order of its ordinals."""
    config = Blender(lake).create(BlendSpec((SourceSpec(f"{NAME}[topic=law]", live=True),)))
    reader = Blender(lake).open(config.blend_id)
    there = ordinals_of(web, "topic=law")
    stream = reader.read(0, len(there) + 6, max_batch_rows=len(there), wait_seconds=20)
    ordinals = next(stream).ordinals.tolist()
    web.append_cells(3, 2, {CELLS[0]: 3, CELLS[1]: 6})
    for batch in stream:
        ordinals += batch.ordinals.tolist()
    assert ordinals == ordinals_of(web, "topic=law")


def test_live_sources_must_not_come_to_share_a_cell(lake: Catalog, web: PackedFixture) -> None:
    """Also where no cell of both is there yet, as rows of it would come twice."""
    blender = Blender(lake)
    first = SourceSpec(f"{NAME}[quality in (0, 9)]", name="first", live=True)
    for choice, meets in (
        ("quality in (1, 9), topic=law", True),
        ("quality >= 1, quality < 9, topic != none", False),
        ("quality in (1, 8), topic=law", False),
    ):
        spec = BlendSpec((first, SourceSpec(f"{NAME}[{choice}]", name="second", live=True)))
        if meets:
            with pytest.raises(InvalidBlendError, match="would come twice"):
                blender.create(spec)
        else:
            blender.create(spec)


def test_lost_runs_are_told(lake: Catalog, web: PackedFixture) -> None:
    """An object beside the blends that is not there, or not what its name says."""
    blender = Blender(lake)
    config = blender.create(BlendSpec((SourceSpec(f"{NAME}[topic=law]"),)))
    runs = config.sources[0].runs
    blender._store.objects.delete(f"{RUNS}/{runs}")
    with pytest.raises(SourceChangedError, match="lost or damaged"):
        read_all(lake, config.blend_id)
    blender.create(BlendSpec((SourceSpec(f"{NAME}[topic=law]"),)))
    assert len(read_all(lake, config.blend_id)) == len(ordinals_of(web, "topic=law"))


def test_three_hundred_sources(lake: Catalog) -> None:
    """Of one table: the index of a source takes two bytes, and each row comes once."""
    random = np.random.default_rng(1)
    table = create_packed(lake, NAME, cells=True)
    cells = [cell_text({"cluster": number}) for number in range(300)]
    table.append_cells(1, 0, dict(zip(cells, random.integers(1, 5, 300).tolist(), strict=True)), files=2)
    sources = tuple(
        SourceSpec(f"{NAME}[cluster={number}]", str(1 + number % 3), on_exhausted="CONTINUE") for number in range(300)
    )
    config = Blender(lake).create(BlendSpec(sources))
    read = read_all(lake, config.blend_id)
    assert sorted(ordinal for _, _, ordinal in read) == list(range(len(table.rows)))
    assert {name for name, _, ordinal in read if table.cells[ordinal] == cells[77]} == {f"{NAME}.cluster-is-77"}
    assert all(table.cells[ordinal] == f'{{"cluster":{name.rpartition("-")[2]}}}' for name, _, ordinal in read)
