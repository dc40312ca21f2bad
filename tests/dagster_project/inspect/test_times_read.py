"""How often blends read a document, as `doc why` says it: against the offsets of each of its windows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from blender_service.blend.requests import BlendSpec, SourceChange, SourceSpec, Stage
from blender_service.server.blender import Blender
from dagster_project.inspect.documents.window_reads import times_read
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
        every = times_read(catalogue, blender, {table.identifier: windows, "main.packed_c_16": [0]})
        assert {read.names for read in every} == {("ends",), ()}  # and what `ends` goes on from
        said = next(read for read in every if read.names)
        assert (said.names, said.before) == (("ends",), order.end)
        assert (said.whole, said.in_part) == (counts[windows].min(), counts[windows].max())
    assert "in part) before row" in str(said) or counts.min() == counts.max()
