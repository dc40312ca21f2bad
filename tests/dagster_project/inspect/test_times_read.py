"""How often blends read a document, as `doc why` says it: against the offsets of each of its windows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from blender_service.blend.requests import BlendSpec, SourceChange, SourceSpec, Stage
from blender_service.server.blender import Blender
from dagster_project.inspect.documents.window_reads import reads_of, times_read
from tests.blender_service.packed_tables import create_packed, open_lake


def test_a_document_is_read_whole_as_often_as_its_least_read_window(tmp_path: Path) -> None:
    """Before the end of each blend; one without end and without runs reads nothing for certain, so it is left out."""
    catalogue = open_lake(tmp_path / "warehouse")
    table = create_packed(catalogue, "main.packed_a_16").append(30, 1)
    other = create_packed(catalogue, "main.packed_b_16").append(7, 2)
    blender = Blender(catalogue)
    source, much = (
        SourceSpec(table.identifier, "1", "a", max_epochs=0),
        SourceSpec(other.identifier, "3", "b", max_epochs=9),
    )
    ends = blender.create(
        BlendSpec((source, much), name="ends", schedule=(Stage(20, (SourceChange("a", live=False),)),))
    )
    blender.create(BlendSpec((source,), name="endless"))
    blender.create(BlendSpec((SourceSpec(other.identifier),), name="elsewhere"))
    order = ends.order(blender.head(ends.blend_id))
    assert order.end is not None
    found = order.resolve(np.arange(order.end))
    counts = np.bincount(found.ordinal[found.source == 0], minlength=30)
    for windows in ([3], [0, 1, 29], [*range(30)]):
        every = times_read(catalogue, {table.identifier: windows, "main.packed_c_16": [0]})
        assert {read.names for read in every} == {("ends",), ()}  # and what `ends` goes on from
        said = next(read for read in every if read.names)
        assert (said.names, said.before) == (("ends",), order.end)
        assert (said.whole, said.in_part) == (counts[windows].min(), counts[windows].max())
    assert "in part) before row" in str(said) or counts.min() == counts.max()


def test_windows_of_cells_are_counted_along_their_runs(tmp_path: Path) -> None:
    """The ordinals of a document are those of the table; a blend of other cells never reads it."""
    catalogue = open_lake(tmp_path / "warehouse")
    table = create_packed(catalogue, "main.packed_a_16", cells=True)
    table.append_cells(1, 0, {'{"part":0}': 9, '{"part":1}': 6}).append_cells(2, 1, {'{"part":1}': 5})
    blender = Blender(catalogue)
    source = SourceSpec(f"{table.identifier}[part=1]", max_epochs=3)
    blend_id = blender.create(BlendSpec((source,), name="cells", schedule=(Stage(25, ()),))).blend_id
    assert times_read(catalogue, {table.identifier: [3, 8]}) == []
    for read in times_read(catalogue, {table.identifier: [9, 16]}):
        assert (read.whole, read.in_part, read.before) == (3, 3, 33)
    windows = [(table.identifier, None, ordinal) for ordinal in (3, 9, 16)]
    order = blender.order(blend_id)
    for read in reads_of(catalogue, blender, windows):
        assert read.ordinal in (9, 16)
        row = {9: 0, 16: 7}[read.ordinal]
        assert (order.resolve(np.array([read.offset])).ordinal[0], read.epoch) == (row, read.offset // 11)
