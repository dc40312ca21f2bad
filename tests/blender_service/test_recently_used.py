"""What a server remembers is bounded, whatever it has served; streams that run do not notice."""

from __future__ import annotations

import urllib.request
from collections import OrderedDict
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog

from blender_service.auth import access
from blender_service.auth.access import CorpusDatasets
from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.client import connect
from blender_service.recently_used import RecentlyUsed
from blender_service.server import metrics, shared_caches
from blender_service.server.blender import Blender
from blender_service.server.server import RunningServer
from blender_service.server.settings import OperationConfig
from tests.blender_service.packed_tables import create_packed
from tests.blender_service.rows.test_blend_reader import rows_of
from tests.waiting import until


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4) | st.none())), st.integers(0, 9))
def test_what_was_used_least_recently_is_forgotten(steps: list[tuple[int, int | None]], most: int) -> None:
    """As a list that is searched from its front: looking and putting move to the end, beyond the bound the first go."""
    gone: list[int] = []
    kept = RecentlyUsed[int, int](most, weigh=lambda value: value, forgotten=gone.append)
    expected: OrderedDict[int, int] = OrderedDict()
    forgotten: list[int] = []
    for key, value in steps:
        if value is None:
            assert kept.get(key) == expected.get(key)
            if key in expected:
                expected.move_to_end(key)
            continue
        kept.put(key, value)
        expected[key] = value
        expected.move_to_end(key)
        while sum(expected.values()) > most and len(expected) > 1:
            forgotten.append(expected.popitem(last=False)[0])
        assert (len(kept), gone) == (len(expected), forgotten)


def test_a_lake_of_many_blends_and_tables_is_kept_in_part(lake: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blends, indices of files and tables of blends stay within their bounds, and a reader that is open reads on."""
    monkeypatch.setattr(shared_caches, "BLENDS_AT_HAND", 3)
    monkeypatch.setattr(shared_caches, "BLENDS_SHOWN", 4)
    monkeypatch.setattr(shared_caches, "FILES_AT_HAND", 6)
    served = Blender(lake)
    seen = served.within(lambda table: True)
    tables = [create_packed(lake, f"main.packed_{name}_16").append(40, seed=i) for i, name in enumerate("abcdefg")]
    blends = [served.create(BlendSpec((SourceSpec(table.identifier, max_epochs=0),))).blend_id for table in tables]
    reading = seen.open(blends[0])
    batches = reading.read(0, 120, max_batch_rows=10)
    read = [next(batches)]
    for blend_id in (*blends, *blends):
        assert seen.open(blend_id)
    shared = served._shared
    assert (len(shared.opened), len(shared.tables_of)) == (3, 4)
    assert len(shared.indices) == 3, "each has one file and itself, six in all"
    read += batches
    written = [tables[0].rows[ordinal] for batch in read for ordinal in batch.ordinals]
    assert [row for batch in read for row in rows_of(batch)] == written
    assert len(written) == 120


def test_namespaces_that_callers_name_are_kept_in_part(lake: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that no namespace has are asked for without end, and cost no memory."""
    monkeypatch.setattr(access, "NAMESPACES_AT_HAND", 5)
    datasets = CorpusDatasets(lake)
    assert {datasets.of(f"nobody_{number}") for number in range(20)} == {frozenset()}
    assert len(datasets._known) == 5


def test_series_of_blends_that_nobody_reads_any_more_go(
    lake: Catalog, serve: Callable[..., RunningServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metrics have the blends that were read last; the others' series are gone, and come again from 0."""
    monkeypatch.setattr(metrics, "SERIES_AT_HAND", 2)
    prose = create_packed(lake, "main.packed_prose_16").append(100, seed=4)
    server = serve(operation=OperationConfig(metrics_port=0))

    def blends_of(name: str) -> set[str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return {line.split('"')[1] for line in lines if line.startswith(f"headrace_blender_{name}_total{{")}

    with connect(server.address) as client:
        blends = [client.create_blend([SourceSpec(prose.identifier)], seed=seed).blend_id for seed in range(5)]
        for blend_id in (*blends, blends[0]):
            assert sum(batch.rows for batch in client.read(blend_id, 0)) == 100
            until(lambda blend_id=blend_id: blend_id[:12] in blends_of("rows"))  # counted once it has ended
    assert blends_of("rows") == blends_of("tokens") == blends_of("token_bytes") == {blends[4][:12], blends[0][:12]}
