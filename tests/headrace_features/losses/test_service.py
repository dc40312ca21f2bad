"""Losses over a real socket into a real lake: every token's loss is written down once, whoever sends it again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog

from blender_service.client import SourceSpec, connect
from blender_service.client.identity import Identity
from blender_service.exceptions import InvalidReadError, NotAllowedError
from blender_service.server.server import RunningServer, start
from headrace.blender.v1 import losses_pb2
from headrace_features.losses import reading, tables
from headrace_features.losses.service import add_losses
from headrace_features.losses.tables import counting
from tests.blender_service.packed_tables import WINDOW_TOKENS, create_packed, open_lake
from tests.tiers import tries

torch = pytest.importorskip("torch", reason="torch is in the extra torch")

from blender_service import torch_losses  # noqa: E402 (needs torch)
from blender_service.torch import DENSE, Batch, BlendDataset, LossWriter  # noqa: E402 (needs torch)
from tests.headrace_features.losses.losses_by_row import Segments, by_token, drawn  # noqa: E402 (needs torch)

RUN = "llm-7b"
ASKED = (*DENSE, "segment_documents")
Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for others."""
    monkeypatch.setattr(tables, "COMMIT_SECONDS", 0.0)
    monkeypatch.setattr(torch_losses, "GATHER_SECONDS", 0.01)


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """A lake with two packed tables of two corpora."""
    catalogue = open_lake(tmp_path / "warehouse")
    create_packed(catalogue, "main.packed_code_16").append(200, seed=1)
    create_packed(catalogue, "second.packed_prose_16").append(60, seed=2)
    return catalogue


@pytest.fixture
def address(lake: Catalog) -> Iterator[str]:
    """A server with a blend of both."""
    server: RunningServer = start(lake, add_services=[add_losses])
    with connect(server.address) as client:
        sources = [
            SourceSpec("main.packed_code_16", "3", name="code"),
            SourceSpec("second.packed_prose_16", name="prose", max_epochs=0),
        ]
        client.create_blend(sources, name="mix")
    yield server.address
    server.stop(grace_seconds=1)


def dataset_of(address: str, rank: int = 0, world_size: int = 1, batch_rows: int = 24, **more: Any) -> BlendDataset:
    """The blend as a run reads it."""
    identity = Identity(run=RUN)
    return BlendDataset(
        address, "mix", batch_rows, rank=rank, world_size=world_size, tensors=ASKED, identity=identity, **more
    )


def rows_of(lake: Catalog, *namespaces: str) -> Rows:
    """Rows that count of some namespaces."""
    return [
        row
        for namespace in namespaces or ("main", "second")
        for row in counting(lake.load_table(f"{namespace}.losses").scan().to_arrow()).to_pylist()
    ]


def check(rows: Rows, wanted: Segments) -> None:
    """Rows are what a loop over tokens gives."""
    assert {(row["offset"], row["segment"]) for row in rows} == {*wanted}
    for row in rows:
        document, tokens, total = wanted[row["offset"], row["segment"]]
        assert (row["doc_id"], row["tokens"]) == (document, tokens)
        assert row["sum"] == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("width", [WINDOW_TOKENS, 9])
def test_sums_are_those_of_the_tokens(address: str, lake: Catalog, device: str | None, width: int) -> None:
    """Of each segment, also where only the first tokens of rows are trained on; the step's loss within 1e-6."""
    wanted: Segments = {}
    step_sums: dict[int, float] = {}
    with LossWriter(address, RUN, every=1) as writer:
        for _, batch in zip(range(5), dataset_of(address, device=device), strict=False):
            losses = drawn(batch)[:, :width]
            writer.add(batch["offset"], losses, batch)
            wanted |= by_token(batch, losses)
            step_sums[batch["offset"]] = float(torch.nansum(losses.double()))
        assert writer.flush() == 0
    rows = rows_of(lake)
    check(rows, wanted)
    for first, total in step_sums.items():
        of_step = sum(row["sum"] for row in rows if first <= row["offset"] < first + 24)
        assert of_step == pytest.approx(total, rel=1e-6)
    assert {row["table"] for row in rows_of(lake, "second")} == {"second.packed_prose_16"}
    assert {row["source"] for row in rows} == {"code", "prose"}


def test_epochs_and_sources_are_those_of_the_blend(address: str, lake: Catalog) -> None:
    """As the plain client reads them."""
    with connect(address) as client:
        read = [
            (batch.offset + at, batch.source_names[batch.sources[at]], int(batch.epochs[at]))
            for batch in client.read("mix", 0, 260)
            for at in range(batch.rows)
        ]
    with LossWriter(address, RUN, every=1) as writer:
        for batch in dataset_of(address, batch_rows=26):
            writer.add(batch["offset"], drawn(batch), batch)
    facts = {row["offset"]: (row["offset"], row["source"], row["epoch"]) for row in rows_of(lake)}
    assert set(facts.values()) <= set(read) and len(facts) > 200
    assert any(epoch for _, _, epoch in facts.values())


@pytest.mark.parametrize(("world_size", "workers"), [(1, 0), (3, 0)])
def test_ranks_sample_the_same_steps(address: str, lake: Catalog, world_size: int, workers: int) -> None:
    """One step in four, whole, whoever trained how much before; a run that went back samples the same ones again."""
    for rank in range(world_size):
        with LossWriter(address, RUN, every=4) as writer:
            for start, steps in ((0, 6), (2, 8)):
                dataset = dataset_of(address, rank, world_size, offset=24 * start, workers=workers)
                for _, batch in zip(range(steps), dataset, strict=False):
                    writer.add(batch["offset"], drawn(batch, seed=start), batch)
    rows = rows_of(lake)
    assert {row["offset"] // 24 for row in rows} == {0, 4, 8}
    wanted: Segments = {}
    for number, batch in enumerate(dataset_of(address)):
        if number in (0, 4, 8):
            wanted |= by_token(batch, drawn(batch, seed=2 if number else 0))  # the later attempt counts
    check(rows, wanted)


@given(data=st.data())
@settings(max_examples=tries(8), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_last_of_attempts_counts(lake: Catalog, address: str, data: st.DataObject) -> None:
    """Whatever steps attempts train again, in any order of their rows, each segment counts once, as last committed."""
    wanted: Segments = {}
    for seed in range(data.draw(st.integers(1, 3))):
        first = data.draw(st.integers(0, 8))
        with LossWriter(address, RUN, every=1) as writer:
            steps = data.draw(st.integers(1, 4))
            for _, batch in zip(range(steps), dataset_of(address, offset=24 * first), strict=False):
                losses = drawn(batch, seed)
                writer.add(batch["offset"], losses, batch)
                wanted |= by_token(batch, losses)
    check([row for row in rows_of(lake) if (row["offset"], row["segment"]) in wanted], wanted)


def test_the_same_again_changes_nothing(address: str, lake: Catalog) -> None:
    """As where an answer is lost on its way: the rows are there twice, and count once."""
    batch = next(iter(dataset_of(address)))
    for _ in range(2):
        with LossWriter(address, RUN, every=1) as writer:
            writer.add(batch["offset"], drawn(batch), batch)
    check(rows_of(lake), by_token(batch, drawn(batch)))
    assert lake.load_table("main.losses").scan().count() > len(rows_of(lake, "main"))


def test_a_slow_server_stops_no_step(address: str, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """What does not fit into the queue is dropped, counted and told; `add` does not wait."""
    goes_on = threading.Event()
    monkeypatch.setattr(torch_losses, "MOST_WAITING", 3)
    monkeypatch.setattr(LossWriter, "_send", lambda self, request: goes_on.wait(60))
    writer = LossWriter(address, RUN, every=1)
    for number, batch in enumerate(dataset_of(address)):
        writer.add(batch["offset"], drawn(batch), batch)
        assert writer.dropped == max(0, number - 2)
    assert writer.flush(0.05) == number + 1
    assert "steps are dropped: 3 steps wait to be sent" in caplog.text
    goes_on.set()
    writer.close()


def test_who_did_not_read_writes_nothing(address: str, lake: Catalog, caplog: Any, monkeypatch: Any) -> None:
    """A run that nobody began, and one of somebody else, are refused; training goes on, and the loss is counted."""
    from headrace_features.losses import service

    monkeypatch.setattr(service, "REGISTER_SECONDS", 0.1)
    batch = next(iter(dataset_of(address)))
    with LossWriter(address, "another", every=1) as writer:
        writer.add(batch["offset"], drawn(batch), batch)
        assert writer.flush() == 1
    assert "'another' is not known" in caplog.text
    with pytest.raises(NotAllowedError, match="has read no blend under that name"):
        service.LossServicer(lake)._blend_of(RUN, "somebody", "")
    assert not lake.table_exists("main.losses")


@pytest.mark.parametrize(
    "change",
    [
        {"offset": -1}, {"offset": 1 << 40}, {"sums": b"\0\0"}, {"token_counts": b"\xff" * 4},
        {"segment_documents": b"\1\0\0\0"}, {"documents": [""]}, {"segment_counts": b"\2\0\0\0"},
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused(change: dict[str, Any]) -> None:
    """Each field that is wrong."""
    from blender_service.exceptions import MalformedRequestError
    from headrace_features.losses.service import _checked

    good = {
        "offset": 3, "segment_counts": b"\1\0\0\0", "documents": ["a"], "segment_documents": b"\0" * 4,
        "token_counts": b"\5\0\0\0", "sums": b"\0" * 4,
    }  # fmt: skip
    assert _checked(losses_pb2.StepLosses(**good), 4).tokens.tolist() == [5]
    with pytest.raises(MalformedRequestError):
        _checked(losses_pb2.StepLosses(**{**good, **change}), 4)


def test_wrong_losses_are_refused_in_the_loop(address: str) -> None:
    """Another offset, another shape, a batch without documents, no run."""
    batch = next(iter(dataset_of(address)))
    with LossWriter(address, RUN, every=1) as writer:
        for offset, losses, given_batch in (
            (batch["offset"] + 1, drawn(batch), batch),
            (batch["offset"], drawn(batch)[1:], batch),
            (batch["offset"], drawn(batch).flatten(), batch),
            (batch["offset"], torch.ones(24, WINDOW_TOKENS + 1), batch),
            (batch["offset"], drawn(batch), Batch(**{name: batch[name] for name in ("offset", *DENSE)})),  # type: ignore
        ):
            with pytest.raises(InvalidReadError, match="losses: "):
                writer.add(offset, losses, given_batch)
        writer.add(0, drawn(batch), Batch())  # of a rank that does not fetch
    for server, run, every in ((address, "", 1), (address, RUN, 0), ("lake:", RUN, 1)):
        with pytest.raises(InvalidReadError, match="losses: "):
            LossWriter(server, run, every=every)


def test_losses_are_of_the_blend_that_the_batch_is_of(address: str, lake: Catalog) -> None:
    """Also where a run reads another one between, to validate by: sources and epochs are those of its blend."""
    with connect(address) as client:
        client.create_blend([SourceSpec("second.packed_prose_16", name="valid")], name="valid")
    train = iter(dataset_of(address))
    valid = iter(BlendDataset(address, "valid", 12, tensors=ASKED, identity=Identity(run=RUN)))
    with LossWriter(address, RUN, every=1) as writer:
        for batches in (train, valid, train):
            for _, batch in zip(range(3), batches, strict=False):
                writer.add(batch["offset"], drawn(batch), batch)
        assert writer.flush() == 0
    sources = {row["offset"]: row["source"] for row in rows_of(lake)}
    assert {"code", "prose"} <= {sources[offset] for offset in sources if offset >= 36}
    assert lake.load_table("second.losses").scan(row_filter="source == 'valid'").count() > 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e20, -1e20, 3e38])
def test_a_loss_that_diverged_hides_no_other(address: str, lake: Catalog, value: float) -> None:
    """Whatever number it is, of documents beside it and in other steps all is told."""
    with LossWriter(address, RUN, every=1) as writer:
        for number, batch in zip(range(3), dataset_of(address), strict=False):
            losses = torch.ones(24, WINDOW_TOKENS)
            if number == 1:
                losses[3] = value
            writer.add(batch["offset"], losses, batch)
        assert writer.flush() == 0
    documents = reading.worst(lake, RUN, "excess", 1000)
    assert len(documents) > 50 and {line["loss"] for line in documents} == {1.0}
    assert {line["excess"] for line in documents} == {0.0}
    first = reading.segments_of_step(lake, RUN, 24, 24)
    assert len(first) > 20 and {line["loss"] for line in first} >= {1.0}


@pytest.mark.parametrize("id_characters", [16, 300, 5000])
def test_a_step_that_is_refused_takes_none_with_it(address: str, lake: Catalog, id_characters: int) -> None:
    """Not where its ids are too long for the table; long ones that are not go in requests that a server takes."""
    wanted = 0
    with LossWriter(address, RUN, every=1) as writer:
        for number, batch in zip(range(6), dataset_of(address, batch_rows=40), strict=False):
            if number in (2, 3):
                batch["documents"] = [f"{name}{'x' * id_characters}"[:id_characters] for name in batch["documents"]]
            wanted += number not in (2, 3) or id_characters <= 4096
            writer.add(batch["offset"], drawn(batch), batch)
        assert (writer.flush() > 0) == (wanted < 6)
    assert len({row["offset"] // 40 for row in rows_of(lake)}) == wanted


@given(st.lists(st.integers(0, 900), min_size=1, max_size=30), st.integers(1, 400))
def test_messages_are_small_and_have_all(counts: list[int], id_characters: int) -> None:
    """Of rows with any number of segments, ids of any length."""
    total = sum(counts)
    values = torch.cat((torch.arange(total), torch.ones(total), torch.arange(total), torch.tensor(counts))).double()
    ids = [f"{number:0{id_characters}}" for number in range(total)]
    step = torch_losses._Step("", 7, ids, total, lambda: values)
    messages = list(torch_losses._messages(step))
    rows = [np.frombuffer(message.segment_counts, "<i4").size for message in messages]
    assert [message.offset for message in messages] == [7, *(7 + np.cumsum(rows)[:-1])]
    assert b"".join(message.segment_counts for message in messages) == np.array(counts, "<i4").tobytes()
    assert b"".join(message.sums for message in messages) == np.arange(total).astype("<f4").tobytes()
    assert [name for message in messages for name in message.documents] == ids
    assert all(size == 1 or message.ByteSize() < 200_000 for size, message in zip(rows, messages, strict=True))
