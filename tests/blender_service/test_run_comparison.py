"""Two runs that should have read the same rows are compared by digests of what their replicas consumed."""

from __future__ import annotations

import gc
import tempfile
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import SourceSpec
from blender_service.blend.store import LocalStore, open_store
from blender_service.client import Identity, connect
from blender_service.client.retry import Backoff
from blender_service.client.row_stream import RowStream
from blender_service.server.run_register import RunRegister
from blender_service.wire.read_digest import STRETCH_ROWS, ReadDigest, row_digests
from blender_service.wire.row_batch import RowBatch, empty_batch
from dagster_project.inspect.lake.run_comparison import Comparison, compare
from headrace.blender.v1 import rows_pb2
from tests.blender_service.packed_tables import PackedFixture
from tests.blender_service.test_identity import Serve
from tests.waiting import until


def _rows(offset: int, count: int, window_tokens: int, token_bytes: int, seed: int) -> RowBatch:
    """Rows of two segments each."""
    random = np.random.default_rng(seed)
    ids = random.integers(0, 50_000, (count, window_tokens)).astype(np.uint16 if token_bytes == 2 else np.uint32)
    half = np.full(count, window_tokens // 2, np.int32)
    return replace(
        empty_batch(offset, window_tokens, token_bytes, ("a",)),
        **{"input_ids": ids, "token_counts": np.full(count, window_tokens, np.int32)},
        **{"sources": np.zeros(count, "u1"), "epochs": np.zeros(count, "<i8"), "ordinals": np.arange(count)},
        **{"segment_counts": np.full(count, 2, np.int32), "doc_id_lengths": np.zeros(2 * count, np.int32)},
        document_starts=np.zeros(2 * count, np.int64),
        segment_token_counts=np.column_stack([half, window_tokens - half]).astype(np.int32).reshape(-1),
        window_starts=np.column_stack([0 * half, half]).astype(np.int32).reshape(-1),
    )


@given(st.integers(2, 70), st.sampled_from([2, 4]), st.integers(0, 99), st.data())
def test_a_digest_tells_every_row_from_every_other(
    window: int, token_bytes: int, seed: int, data: st.DataObject
) -> None:
    """By one token, by where segments meet, by place; and it is the same however rows are put into batches."""
    rows = _rows(5, 8, window, token_bytes, seed)
    digests = row_digests(rows)
    assert len(set(digests.tolist())) == 8
    cut = data.draw(st.integers(1, 7))
    assert row_digests(rows.tail(cut)).tolist() == digests[cut:].tolist()
    at, row = data.draw(st.integers(0, window - 1)), data.draw(st.integers(0, 7))
    ids = rows.input_ids.copy()
    ids[row, at] ^= 1 << data.draw(st.integers(0, 15))
    assert np.flatnonzero(row_digests(replace(rows, input_ids=ids)) != digests).tolist() == [row]
    moved = rows.window_starts.copy(), rows.segment_token_counts.copy()
    moved[1][2 * row] -= 1
    moved[1][2 * row + 1] += 1
    moved[0][2 * row + 1] -= 1
    other = row_digests(replace(rows, window_starts=moved[0], segment_token_counts=moved[1]))
    assert np.flatnonzero(other != digests).tolist() == [row]
    assert not np.isin(row_digests(replace(rows, offset=6)), digests).any()


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=8), st.integers(1, 5), st.integers(0, 9000))
def test_sums_are_those_of_all_rows_below_the_consumers(sizes: list[int], every: int, first: int) -> None:
    """However often they are taken."""
    total, digest, told = first, ReadDigest(), dict[int, tuple[int, int]]()
    expected: dict[int, tuple[int, int]] = {}
    for number, size in enumerate(sizes):
        rows = _rows(total, size, 2, 2, number)
        digest.add(rows)
        for at, value in zip(range(total, total + size), row_digests(rows).tolist(), strict=True):
            count, value_sum = expected.get(at // STRETCH_ROWS, (0, 0))
            expected[at // STRETCH_ROWS] = count + 1, (value_sum + value) % 2**64
        total += size
        if number % every == 0 or number == len(sizes) - 1:
            digest.consume(total)
            told |= {stretch.number: stretch[1:] for stretch in digest.take()}
    assert told == expected


def _read(address: str, blend: str, run: str, steps: range, world_size: int = 1, step_rows: int = 100) -> None:
    """Steps of a run, by every rank."""
    torch = pytest.importorskip("blender_service.torch", reason="torch is in the extra torch")
    for rank in range(world_size):
        dataset = torch.BlendDataset(
            address, blend, step_rows, rank=rank, world_size=world_size, offset=steps.start * step_rows,
            tensors=(), identity=Identity(run=run), prefetch_batches=1,
        )  # fmt: skip
        batches = iter(dataset)
        for _ in steps:
            next(batches)
        batches.close()


@pytest.mark.parametrize("through", ["server", "lake:"])
def test_runs_are_compared(
    serve: Serve, lake: Catalog, prose: PackedFixture, through: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever their ranks and steps; one that went back counts as it read last; another blend differs."""
    monkeypatch.chdir(tmp_path)  # which holds warehouse/
    server = serve()
    with connect(server.address) as client:
        blend, other = (
            client.create_blend([SourceSpec(prose.identifier, max_epochs=0)], seed=seed).blend_id for seed in (1, 2)
        )
    address = server.address if through == "server" else through
    _read(address, blend, "straight", range(90))
    _read(address, blend, "four-ranks", range(45), world_size=4, step_rows=200)
    _read(address, blend, "went-back", range(60))
    _read(address, blend, "went-back", range(90))
    _read(address, blend, "went-on", range(30))
    _read(address, blend, "went-on", range(30, 90), world_size=2)
    _read(address, blend, "from-the-middle", range(30))
    _read(address, blend, "from-the-middle", range(20, 90))
    _read(address, other, "other", range(90))
    register = RunRegister(open_store(lake).objects)
    end = 9000

    def compared(run: str) -> Comparison:
        def reported() -> Comparison | None:
            if run not in register.names():
                return None
            (answer,) = compare(register, "straight", run)
            answer = replace(answer, blends=("", ""))
            last = [read for read in register.digests(run) if read.consumed == end]
            return answer if last and len(last) == last[-1].world_size else None

        return until(reported)

    for run in ("straight", "four-ranks", "went-back", "went-on"):
        assert compared(run) == Comparison(end, (), ()), run
    middle = compared("from-the-middle")
    assert (middle.equal_rows, middle.differing) == (end - STRETCH_ROWS, ())
    assert [bounds[:2] for bounds in middle.left_out] == [(0, STRETCH_ROWS)]
    assert compared("other").differing == ((0, 4096), (4096, 8192), (8192, 12288))


class _Sent(Future[None]):
    """A call as gRPC has them, which holds one as long as it goes on if it has a callback."""

    held: ClassVar[list[_Sent]] = []

    def add_done_callback(self, callback: Callable[[Future[None]], object]) -> None:
        self.held.append(self)
        super().add_done_callback(callback)


@given(st.lists(st.sampled_from(["arrives", "fails", "is lost"]), max_size=12), st.integers(300, 3000))
def test_what_a_report_says_arrives_with_it_or_with_the_next(fates: list[str], rows: int) -> None:
    """Whether it is answered long after the client went on, or never; one call that nobody holds is lost."""
    batches = [_rows(at * rows, rows, 2, 2, at) for at in range(len(fates) + 1)]
    arrived: dict[int, tuple[int, int]] = {}
    waiting: list[tuple[str, weakref.ref[_Sent], rows_pb2.ReportConsumedRequest]] = []
    of_fates = iter([*fates, "arrives"])

    def report(request: rows_pb2.ReportConsumedRequest) -> _Sent:
        sent = _Sent()
        waiting.append((next(of_fates), weakref.ref(sent), request))
        return sent

    stream = RowStream(
        rows_pb2.ReadBlendRequest(), None, lambda request: None, "", Backoff(1, threading.Event()), 1, lambda: None,
        lambda: None, report,
    )  # fmt: skip
    stream._opened, stream._report_seconds = [("0", 0)], 0.0
    for batch in batches:
        stream._digest.add(batch)
        stream.consumes(batch.end)
        gc.collect(0)
        fate, call, request = waiting.pop()
        sent = call()
        assert sent is not None, "gRPC would have cancelled it"
        if fate == "fails":
            sent.set_exception(ConnectionError())
        elif fate == "is lost":
            sent.cancel()
            sent.set_running_or_notify_cancel()
        else:
            arrived |= {of.stretch: (of.rows, of.digest) for of in request.digests}
            sent.set_result(None)
    expected: dict[int, tuple[int, int]] = {}
    for batch in batches:
        for at, value in zip(range(batch.offset, batch.end), row_digests(batch).tolist(), strict=True):
            count, value_sum = expected.get(at // STRETCH_ROWS, (0, 0))
            expected[at // STRETCH_ROWS] = count + 1, (value_sum + value) % 2**64
    assert arrived == expected


def _write(register: RunRegister, run: str, blend: str, *parts: tuple[int, int], ranks: int = 1, seed: int = 0) -> None:
    """Register reads of the rows [first, end) of a blend, as servers do."""
    register.write(run, "0.began", {})
    random = np.random.default_rng(sum(blend.encode()) + seed)
    digests = random.integers(0, 1 << 63, 20_000, dtype=np.uint64)
    for first, end in parts:
        at = len(register._objects.list(f"digests/{run}"))
        for rank in range(ranks):
            mine = np.arange(first + rank, end, ranks)
            stretches = [
                (int(number), int(rows.size), int(digests[rows].sum(dtype=np.uint64)))
                for number in np.unique(mine // STRETCH_ROWS)
                for rows in [mine[mine // STRETCH_ROWS == number]]
            ]
            facts = {"blend": blend, "first": first, "consumed": end, "rank": rank, "world_size": ranks}
            register.write_digests(run, f"{at:04}-{rank}.0", {**facts, "step_rows": ranks, "stretches": stretches})


@given(st.data())
def test_only_the_same_rows_are_compared(data: st.DataObject) -> None:
    """Runs of the same blend never differ, whatever reports were lost; of another one whatever was read whole does."""
    with tempfile.TemporaryDirectory() as folder:
        register = RunRegister(LocalStore(Path(folder)))
        bounds = st.lists(st.integers(0, 9000), min_size=2, max_size=8, unique=True).map(sorted)
        for run in ("one", "two", "other"):
            cuts = data.draw(bounds)
            parts = [*zip(cuts[::2], cuts[1::2], strict=False)]
            _write(register, run, "mix", *parts, ranks=data.draw(st.integers(1, 3)), seed=run == "other")
        for compared, other in ((compare(register, "one", "two"), False), (compare(register, "one", "other"), True)):
            ((differing, equal),) = [(of.differing, of.equal_rows) for of in compared]
            assert not (equal if other else differing)


def test_blends_of_a_run_are_told_apart(tmp_path: Path) -> None:
    """A run that validates by another blend under its name is the one that does not; what only one read is told."""
    register = RunRegister(LocalStore(tmp_path))
    _write(register, "straight", "mix", (0, 9000))
    for parts in ((0, 5000), (5000, 9000)):
        _write(register, "validates", "mix", parts, ranks=2)
        _write(register, "validates", "valid", (0, 300))
    of_mix, of_valid = compare(register, "straight", "validates")
    assert of_mix == Comparison(9000, (), (), ("mix", "mix"))
    assert (of_valid.blends, of_valid.equal_rows, of_valid.differing) == (("", "valid"), 0, ())
    assert [reason for *_, reason in of_valid.left_out] == ["straight reported 0 rows, validates 300"]
    _write(register, "anew", "other", (0, 9000))
    (of_others,) = compare(register, "straight", "anew")
    assert (of_others.blends, len(of_others.differing)) == (("mix", "other"), 3)
