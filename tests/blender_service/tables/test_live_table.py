"""Live tables: rows are served once they are there, and the wait for them says what it waits for."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

import pytest
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.client import BlenderClient, connect
from blender_service.exceptions import BlenderError, RowNotThereYetError, ServerUnavailableError
from blender_service.server.blender import Blender
from blender_service.server.server import RunningServer
from blender_service.wire.row_batch import RowBatch
from tests.blender_service.packed_tables import PackedFixture, create_packed
from tests.blender_service.rows.test_blend_reader import rows_of
from tests.waiting import until

Serve = Callable[..., RunningServer]


@pytest.fixture
def news(lake: Catalog) -> PackedFixture:
    """A packed table without rows."""
    return create_packed(lake, "main.packed_news_16")


@pytest.mark.parametrize(
    "most_seconds", [pytest.param(math.inf, id="in the end"), pytest.param(2, id="soon", marks=pytest.mark.nightly)]
)
def test_rows_come_in_order_soon_after_their_commit(
    client: BlenderClient, news: PackedFixture, prose: PackedFixture, most_seconds: float
) -> None:
    """A reader of an empty live table gets the other source's rows, waits, and goes on as soon as rows are appended."""
    blend = client.create_blend(
        [SourceSpec(news.identifier, name="news", live=True), SourceSpec(prose.identifier, name="prose", max_epochs=0)]
    )
    got: list[RowBatch] = []
    arrived: list[float] = []

    def read() -> None:
        for batch in client.read(blend.blend_id, 0, 40):
            got.append(batch)
            arrived.append(time.monotonic())

    thread = threading.Thread(target=read)
    thread.start()
    committed = []
    for seed, count in enumerate((1, 7, 12)):
        news.append(count, seed=seed, increment=seed)
        committed.append((len(news.rows), time.monotonic()))
    thread.join()
    rows = [(b.source_names[b.sources[i]], int(b.ordinals[i]), row) for b in got for i, row in enumerate(rows_of(b))]
    served = [(ordinal, row) for name, ordinal, row in rows if name == "news"]
    assert [ordinal for ordinal, _ in served] == list(range(20))
    assert [row for _, row in served] == news.rows
    total, at = committed[-1]
    assert total == 20
    assert arrived[-1] - at < most_seconds


def test_a_deadline_ends_the_wait_and_names_the_row(client: BlenderClient, news: PackedFixture) -> None:
    """What is there is served; then the error says which ordinal of which source is missing, and what to do."""
    news.append(3, seed=1)
    blend = client.create_blend([SourceSpec(news.identifier, name="news", live=True)])
    stream = client.read(blend.blend_id, 0, 10, wait_seconds=0.4)
    assert next(stream).rows == 3
    with pytest.raises(RowNotThereYetError, match=r"row 3: news ordinal 3 did not come within 0\.4 s; append"):
        next(stream)


def test_a_wait_is_told_and_ends_with_the_server(serve: Serve, lake: Catalog, news: PackedFixture) -> None:
    """Empty batches say what the stream waits for; a server that stops does not hold its readers."""
    blend_id = Blender(lake).create(BlendSpec((SourceSpec(news.identifier, name="news", live=True),))).blend_id
    told = next(Blender(lake).open(blend_id).read(0))
    assert (told.rows, told.end_of_blend, told.waiting_for) == (0, False, "row 0: news ordinal 0")
    server = serve()
    with connect(server.address, retry_seconds=0.2) as client:
        failed: list[BlenderError] = []

        def read() -> None:
            try:
                next(client.read(blend_id, 0))
            except BlenderError as error:
                failed.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        until(lambda: server._limits.running == 1)
        server.stop(grace_seconds=3600)  # a reader that were held would hang the test
        thread.join()
        assert isinstance(failed[0], ServerUnavailableError)


def test_replicas_agree_on_live_rows(lake: Catalog, news: PackedFixture) -> None:
    """Another server, opened later, when the table has grown, gives the same bytes for the same offsets."""
    news.append(30, seed=1)
    blend_id = Blender(lake).create(BlendSpec((SourceSpec(news.identifier, live=True),))).blend_id
    early = [row for batch in Blender(lake).open(blend_id).read(0, 30) for row in rows_of(batch)]
    news.append(30, seed=2, increment=1)
    assert [row for batch in Blender(lake).open(blend_id).read(0, 30) for row in rows_of(batch)] == early
