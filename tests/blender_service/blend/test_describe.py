"""What a blend has read at an offset, against a count of its rows one by one."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import BlendSpec, SourceChange, SourceSpec, Stage
from blender_service.exceptions import InvalidReadError, OffsetOutOfRangeError
from blender_service.server.blender import Blender
from tests.blender_service.packed_tables import WINDOW_TOKENS, PackedFixture
from tests.tiers import sampled


@pytest.fixture
def blender(lake: Catalog) -> Blender:
    """Blender on the lake."""
    return Blender(lake)


@pytest.fixture
def blend_id(blender: Blender, code: PackedFixture, prose: PackedFixture) -> str:
    """Code 3 : prose 1, prose two epochs; from 500 on 1 : 1."""
    prose_spec = SourceSpec(prose.identifier, "1", name="prose", max_epochs=2, on_exhausted="CONTINUE")
    stage = Stage(500, (SourceChange("code", weight="1"), SourceChange("prose", weight="1")))
    return blender.create(
        BlendSpec((SourceSpec(code.identifier, "3", name="code"), prose_spec), schedule=(stage,))
    ).blend_id


@sampled(3)
@pytest.mark.parametrize("offset", [0, 1, 137, 499, 500, 501, 640, 650, 651, 700, 900])
def test_descriptions_equal_a_count_of_the_rows(blender: Blender, blend_id: str, offset: int) -> None:
    """Rows, tokens, shares and epochs at any offset are those of the rows up to there."""
    order = blender.order(blend_id)
    resolved = order.resolve(np.arange(offset))
    counts = Counter(order.names[i] for i in resolved.source)
    described = blender.describe(blend_id, offset)
    assert described.tokens == offset * WINDOW_TOKENS
    sizes = {"code": 700, "prose": 100}
    for source in described.sources:
        assert source.rows == counts[source.name]
        assert source.tokens == counts[source.name] * WINDOW_TOKENS
        assert source.epochs == pytest.approx(counts[source.name] / sizes[source.name])
        assert abs(source.rows - source.expected_rows) < len(described.segments)
    if offset:
        assert sum(source.expected_share for source in described.sources) == pytest.approx(1)
        assert sum(source.share for source in described.sources) == pytest.approx(1)


def test_it_says_when_sources_run_out(blender: Blender, blend_id: str) -> None:
    """Two epochs of prose are 200 rows: 125 by offset 500, 75 more by 650, so slot 651 is the first it cannot fill."""
    described = {source.name: source for source in blender.describe(blend_id).sources}
    assert described["prose"].runs_out_at == 651
    assert described["code"].runs_out_at == 900 == blender.head(blend_id).end
    order = blender.order(blend_id)
    assert "prose" not in {order.names[i] for i in order.resolve(np.arange(650, 900)).source}
    assert {s.name for s in blender.describe(blend_id, 651).sources if s.active} == {"code"}
    assert {s.name for s in blender.describe(blend_id, 650).sources if s.active} == {"code", "prose"}


def test_endless_and_live_sources_never_run_out(blender: Blender, code: PackedFixture, prose: PackedFixture) -> None:
    """Without an offset the first cycle of the last segment is described; a live source has no epochs."""
    spec = BlendSpec((SourceSpec(code.identifier, "2", live=True), SourceSpec(prose.identifier, "1", max_epochs=0)))
    described = blender.describe(blender.create(spec).blend_id)
    assert described.offset == 3
    assert [(s.rows, s.epochs, s.runs_out_at) for s in described.sources] == [(2, None, None), (1, 0.01, None)]
    assert blender.describe(blender.create(spec).blend_id, 3 * 10**12).sources[1].epochs == 10**10


def test_growth_and_pinning_count_as_one_epoch(blender: Blender, code: PackedFixture, prose: PackedFixture) -> None:
    """A source that was read live and then pinned is in its first epoch until all rows are read."""
    spec = BlendSpec((SourceSpec(prose.identifier, name="prose", live=True),))
    config = blender.create(
        BlendSpec(spec.sources, schedule=(Stage(40, (SourceChange("prose", live=False, max_epochs=3),)),))
    )
    epochs = [blender.describe(config.blend_id, offset).sources[0].epochs for offset in (40, 100, 150, 300)]
    assert epochs == [None, 1, 1.5, 3]


def test_offsets_that_cannot_be_are_refused(blender: Blender, blend_id: str) -> None:
    """Below 0, and beyond the end."""
    with pytest.raises(InvalidReadError, match="offset -1"):
        blender.describe(blend_id, -1)
    with pytest.raises(OffsetOutOfRangeError, match="beyond its end 900"):
        blender.describe(blend_id, 901)
