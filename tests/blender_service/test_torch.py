"""The torch dataset: tensors derived from segments, a state that resumes under any world size."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import example as always
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import BlendSpec, SourceChange, SourceSpec
from blender_service.blend.store import open_store
from blender_service.client import Blend, Identity, connect
from blender_service.client.window_layout import WindowLayout
from blender_service.exceptions import (
    BlendNotFoundError,
    CatalogueError,
    InvalidReadError,
    OffsetOutOfRangeError,
    StateError,
    WindowMismatchError,
)
from blender_service.server.blender import Blender
from blender_service.server.run_register import RunRegister
from blender_service.server.server import RunningServer
from blender_service.wire.expected_window import ExpectedWindow
from tests.blender_service.packed_tables import (
    PADDING,
    WINDOW_TOKENS,
    PackedFixture,
    create_packed,
    open_lake,
    random_rows,
)
from tests.blender_service.rows.test_blend_reader import rows_of
from tests.tiers import sampled, tries
from tests.waiting import until

torch = pytest.importorskip("torch", reason="torch is in the extra torch")
from torch.nn.attention.flex_attention import flex_attention  # noqa: E402

from blender_service import torch as torch_module  # noqa: E402 (needs torch)
from blender_service.torch import (  # noqa: E402 (needs torch)
    Batch,
    BlendDataset,
    BlendState,
    block_mask,
    to_tensors,
)
from tests.blender_service.ddp_rank import train_rank  # noqa: E402 (needs torch)

Serve = Callable[..., RunningServer]


@pytest.fixture(params=["server", "lake:"])
def address(
    request: pytest.FixtureRequest, code: PackedFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """A server, or the lake without one, with the blend `code`: 700 rows, once."""
    monkeypatch.chdir(tmp_path)  # which holds warehouse/
    address: str = request.getfixturevalue("serve")().address if request.param == "server" else request.param
    with connect(address) as client:
        client.create_blend([SourceSpec(code.identifier)], seed=17, name="code", block_rows=32, group_blocks=3)
    return address


def blend_rows(address: str, offset: int = 0, rows: int = 700) -> list[list[int]]:
    """Read the tokens of rows by the plain client."""
    with connect(address) as client:
        return [row.tolist() for batch in client.read("code", offset, rows) for row in batch.input_ids]


def test_layout_equals_brute_force(lake: Catalog, code: PackedFixture) -> None:
    """Labels, positions and documents of every token equal a loop over segments and tokens."""
    config = Blender(lake).create(BlendSpec((SourceSpec(code.identifier),)))
    batch = Blender(lake).open(config.blend_id).gather(0, 200)
    layout = WindowLayout(batch)
    for i, row in enumerate(rows_of(batch)):
        labels, positions, documents = [-100] * WINDOW_TOKENS, [0] * WINDOW_TOKENS, [-1] * WINDOW_TOKENS
        for number, (_, _, count, start) in enumerate(row.segments):
            for place in range(count):
                documents[start + place], positions[start + place] = number, place
                if place + 1 < count:
                    labels[start + place] = row.input_ids[start + place + 1]
        assert layout.labels[i].tolist() == labels
        assert layout.position_ids[i].tolist() == positions
        assert layout.document_ids[i].tolist() == documents


def test_mask_from_document_ids_is_the_dense_one(lake: Catalog, code: PackedFixture) -> None:
    """(same document) & causal lets a token see exactly the earlier tokens of its own segment."""
    config = Blender(lake).create(BlendSpec((SourceSpec(code.identifier),)))
    batch = Blender(lake).open(config.blend_id).gather(0, 50)
    documents = to_tensors(batch)["document_ids"]
    causal = torch.ones(WINDOW_TOKENS, WINDOW_TOKENS, dtype=torch.bool).tril()
    mask = (documents[:, :, None] == documents[:, None, :]) & causal
    for i, row in enumerate(rows_of(batch)):
        dense = torch.zeros(WINDOW_TOKENS, WINDOW_TOKENS, dtype=torch.bool)
        end = 0
        for _, _, count, start in row.segments:
            for query in range(start, start + count):
                dense[query, start : query + 1] = True
            end = start + count
        dense[end:, end:] = causal[end:, end:]  # padding sees padding, so that no row of the mask is empty
        assert torch.equal(mask[i], dense)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_attention_by_bounds_and_by_block_mask_is_the_dense_one(lake: Catalog, code: PackedFixture) -> None:
    """Attention sequence by sequence within cu_seqlens, and FlexAttention by the block mask, equal dense attention."""
    config = Blender(lake).create(BlendSpec((SourceSpec(code.identifier),)))
    rows = 20
    batch = to_tensors(Blender(lake).open(config.blend_id).gather(0, rows))
    documents = batch["document_ids"]
    causal = torch.ones(WINDOW_TOKENS, WINDOW_TOKENS, dtype=torch.bool).tril()
    mask = ((documents[:, :, None] == documents[:, None, :]) & causal)[:, None]
    query, key, value = torch.randn(3, rows, 2, WINDOW_TOKENS, 8, generator=torch.Generator().manual_seed(1)).unbind()
    attend = torch.nn.functional.scaled_dot_product_attention
    dense = attend(query, key, value, attn_mask=mask)

    flex = block_mask(documents, block_tokens=4)
    assert torch.allclose(flex_attention(query, key, value, block_mask=flex), dense, atol=1e-5)
    computed = flex.to_dense().bool().repeat_interleave(4, -1).repeat_interleave(4, -2)
    assert not (mask & ~computed).any()  # no block with a visible token is left out
    assert not computed.all()  # and some blocks are

    flat = [part.transpose(1, 2).reshape(rows * WINDOW_TOKENS, 2, 8) for part in (query, key, value)]
    bounds = batch["cu_seqlens"].tolist()
    assert (bounds[0], bounds[-1]) == (0, rows * WINDOW_TOKENS)
    assert batch["max_seqlen"] == max(b - a for a, b in pairwise(bounds))
    pieces = [
        attend(*(part[a:b].transpose(0, 1) for part in flat), is_causal=True).transpose(0, 1)
        for a, b in pairwise(bounds)
    ]
    by_bounds = torch.cat(pieces).reshape(rows, WINDOW_TOKENS, 2, 8).transpose(1, 2)
    assert torch.allclose(by_bounds, dense, atol=1e-5)


@sampled(3)
@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("tensors", [("input_ids",), ("labels", "cu_seqlens"), ("document_ids", "position_ids")])
def test_what_is_not_asked_for_is_not_made(
    address: str, tensors: tuple[str, ...], device: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch has the tensors that were named, as they are with all the others, and nothing else is computed."""
    whole = next(iter(BlendDataset(address, "code", 20)))
    for name in {"input_ids", "labels", "position_ids", "document_ids", "cu_seqlens"} - {*tensors}:
        monkeypatch.setattr(WindowLayout, name, property(lambda _, name=name: pytest.fail(f"{name} is made")))
    for batch in BlendDataset(address, "code", 20, tensors=tensors, prefetch_batches=1, device=device):
        assert batch.keys() == {"offset", *tensors, *(["max_seqlen"] if "cu_seqlens" in tensors else [])}
        if batch["offset"] == 0:
            assert all(torch.equal(torch.as_tensor(one), torch.as_tensor(whole[name])) for name, one in batch.items())
    with pytest.raises(InvalidReadError, match="'input_id'; choose from input_ids, labels"):
        BlendDataset(address, "code", 20, tensors=("input_id",))


def test_padding_between_segments_is_laid_out_too(lake: Catalog, code: PackedFixture) -> None:
    """Wherever it stands: before the first segment, between two, at the end, or in a whole row without any."""
    config = Blender(lake).create(BlendSpec((SourceSpec(code.identifier),)))
    batch = replace(
        Blender(lake).open(config.blend_id).gather(0, 3),
        segment_counts=np.array([2, 0, 1], dtype=np.int32),
        window_starts=np.array([2, 7, 0], dtype=np.int32),
        segment_token_counts=np.array([3, 2, WINDOW_TOKENS], dtype=np.int32),
    )
    layout = WindowLayout(batch)
    rest = WINDOW_TOKENS - 9
    assert layout.document_ids[0].tolist() == [-1, -1, 0, 0, 0, -1, -1, 1, 1] + [-1] * rest
    assert layout.position_ids[0].tolist() == [0, 0, 0, 1, 2, 0, 0, 0, 1] + [0] * rest
    ids = batch.input_ids[0].tolist()
    assert layout.labels[0].tolist() == [-100, -100, ids[3], ids[4], -100, -100, -100, ids[8], -100] + [-100] * rest
    assert {*layout.document_ids[1].tolist()} == {-1}
    assert layout.position_ids[2].tolist() == list(range(WINDOW_TOKENS))
    assert layout.cu_seqlens.tolist() == [0, 2, 5, 7, 9, *(WINDOW_TOKENS * row for row in (1, 2, 3))]


def test_a_ring_of_buffers_changes_nothing(address: str) -> None:
    """Batches that passed through reused buffers are those without, also ones that are kept while others follow."""
    plain = list(BlendDataset(address, "code", 20))
    kept: list[Batch] = list(BlendDataset(address, "code", 20, prefetch_batches=1, device="cpu"))
    assert len(kept) == len(plain) == 35
    for ours, theirs in zip(kept, plain, strict=True):
        assert ours.keys() == theirs.keys()
        pairs = zip(ours.values(), theirs.values(), strict=True)
        assert all(torch.equal(torch.as_tensor(one), torch.as_tensor(other)) for one, other in pairs)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches_arrive_on_the_device(address: str) -> None:
    """Through page-locked buffers and asynchronous copies the same tokens arrive."""
    plain = list(BlendDataset(address, "code", 20))
    moved = list(BlendDataset(address, "code", 20, prefetch_batches=1, device="cuda"))
    for ours, theirs in zip(moved, plain, strict=True):
        assert ours["input_ids"].is_cuda
        assert all(torch.equal(ours[name].cpu(), theirs[name]) for name in ("input_ids", "labels", "cu_seqlens"))


def test_a_peer_that_does_not_fetch_keeps_step_and_state(address: str) -> None:
    """It gives as many batches, all empty, without reading a row, and its state is its peers'."""
    reads = BlendDataset(address, "code", 64, rank=1, world_size=2)
    counts = BlendDataset(address, "code", 64, rank=1, world_size=2, fetch=False)
    steps = 0
    for batch, nothing in zip(reads, counts, strict=True):
        steps += 1
        assert len(batch["input_ids"]) == 32
        assert nothing == {}
        assert reads.state_dict() == counts.state_dict() == {"blend": reads.blend.blend_id, "offset": steps * 64}
    assert steps == 700 // 64


def test_a_run_changes_over_only_where_no_row_is_read_twice(address: str) -> None:
    """A state goes over to a child whose update is not before it, and back, but not over an update behind it."""
    with connect(address) as client:
        source = client.get_blend("code").sources[0].name
        child = client.update_blend("code", 100, [SourceChange(source, max_epochs=0)])
        stranger = client.create_blend([SourceSpec("main.packed_code_16")], seed=18)
        assert client.prove_continuation("code", child.blend_id, 100).differs_from == 100
        assert client.prove_continuation(child.blend_id, child.blend_id, 10**6).differs_from is None
        with pytest.raises(OffsetOutOfRangeError):
            client.prove_continuation("code", child.blend_id, 701)
    parent = BlendDataset(address, "code", 50)
    batches = iter(parent)
    next(batches)
    next(batches)
    changed = BlendDataset(address, child.blend_id, 50)
    changed.load_state_dict(parent.state_dict())
    assert changed.state_dict() == {"blend": child.blend_id, "offset": 100}
    next(batches)
    for dataset, state in (
        (changed, parent.state_dict()),
        (BlendDataset(address, stranger.blend_id, 50), BlendState(blend=child.blend_id, offset=50)),
    ):
        with pytest.raises(StateError, match="repeated or skipped"):
            dataset.load_state_dict(state)
    batches.close()  # type: ignore[attr-defined]


@pytest.mark.nightly
def test_waiting_for_input_is_measured(address: str) -> None:
    """The share of waiting is lower in a loop that computes than in one that does nothing; neither waits too long."""
    shares = []
    for seconds in (0.0, 0.05):
        dataset, started = BlendDataset(address, "code", 100), time.perf_counter()
        for _ in dataset:
            time.sleep(seconds)
        assert 0 < dataset.input_stall_seconds < time.perf_counter() - started
        shares.append(dataset.input_stall_share)
    assert 0 <= shares[1] < shares[0] <= 1


def test_steps_are_the_rows_of_the_blend(address: str) -> None:
    """Without ranks, step s holds rows [s*B, (s+1)*B), and the last part that does not fit is left."""
    expected = blend_rows(address)
    got = [row.tolist() for batch in BlendDataset(address, "code", 64) for row in batch["input_ids"]]
    assert got == expected[: 700 // 64 * 64]


@sampled()
@given(
    batch_rows=st.integers(1, 35), worlds=st.lists(st.integers(1, 5), min_size=1, max_size=4), steps=st.integers(1, 5)
)
@always(batch_rows=35, worlds=[1, 5, 2, 3], steps=5)  # all 700 rows
@settings(max_examples=tries(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_resuming_under_other_world_sizes_covers_every_row_once(
    address: str, batch_rows: int, worlds: list[int], steps: int
) -> None:
    """Save after some steps, go on with another number of ranks: all rows from 0, none twice, none skipped."""
    expected = blend_rows(address)
    got: list[list[int]] = []
    state = None
    for world in worlds:
        world_size = min(world, batch_rows)
        parts = [
            BlendDataset(address, "code", batch_rows, rank=rank, world_size=world_size, uneven=True)
            for rank in range(world_size)
        ]
        for part in parts:
            if state is not None:
                part.load_state_dict(state)
        streams = [iter(part) for part in parts]
        for _ in range(steps):
            for stream in streams:
                got += [row.tolist() for row in next(stream)["input_ids"]]
        states = [part.state_dict() for part in parts]
        assert all(other == states[0] for other in states)
        state = json.loads(json.dumps(states[0]))
        for stream in streams:
            stream.close()  # type: ignore[attr-defined]
    assert state is not None
    assert state["offset"] == len(worlds) * steps * batch_rows
    assert got == expected[: len(got)]
    assert len(got) == state["offset"]


def test_state_counts_batches_handed_out_not_fetched(address: str) -> None:
    """Prefetched batches that nobody took are not in the state."""
    dataset = BlendDataset(address, "code", 10, prefetch_batches=8)
    assert dataset.state_dict()["offset"] == 0
    with closing(iter(dataset)) as batches:  # type: ignore[type-var]
        next(batches)
        next(batches)
        assert dataset.state_dict() == {"blend": dataset.blend.blend_id, "offset": 20}
    second = BlendDataset(address, dataset.blend.blend_id, 10)
    second.load_state_dict(dataset.state_dict())
    assert next(iter(second))["input_ids"].tolist() == blend_rows(address, 20, 10)


def test_every_rank_makes_the_same_number_of_steps(address: str) -> None:
    """At the end a step that does not fit is left by all ranks, else some would wait for ever."""
    counts = {len(list(BlendDataset(address, "code", 33, rank=rank, world_size=3))) for rank in range(3)}
    assert counts == {700 // 33}


def test_leaving_an_iteration_stops_its_thread(address: str) -> None:
    """Breaking off leaves no thread behind, also while the queue is full; an error is raised where it is consumed."""
    before = set(threading.enumerate())
    with closing(iter(BlendDataset(address, "code", 1, prefetch_batches=1))) as batches:  # type: ignore[type-var]
        next(batches)
    assert not [one for one in threading.enumerate() if one.name == "blend-prefetch" and one not in before]


def test_what_would_go_wrong_later_is_refused_now(address: str) -> None:
    """Too many ranks, uneven parts, a foreign state, a wrong tokenizer: errors when the dataset is made."""
    with pytest.raises(InvalidReadError, match="leaves some"):
        BlendDataset(address, "code", 2, rank=0, world_size=4)
    with pytest.raises(InvalidReadError, match="do not divide"):
        BlendDataset(address, "code", 7, rank=0, world_size=2)
    with pytest.raises(WindowMismatchError, match="tokenizer"):
        BlendDataset(address, "code", 8, expected=ExpectedWindow(tokenizer_sha256="0" * 64))
    dataset = BlendDataset(address, "code", 8)
    with pytest.raises(WindowMismatchError, match="uint32"):
        BlendDataset(address, "code", 8, expected=ExpectedWindow(token_bytes=4))
    with pytest.raises(BlendNotFoundError):
        dataset.load_state_dict({"blend": "0" * 64, "offset": 8})
    states: list[Any] = [{"offset": 8}, None, True, [], "x", {"blend": None, "offset": 8}]
    for state in states:
        with pytest.raises(StateError, match=r"is not \{blend, offset\}"):
            dataset.load_state_dict(state)
    offsets: list[Any] = [True, False, -1, 1.0, "8", None]
    for offset in offsets:
        with pytest.raises(StateError, match=re.escape(f"state: offset is {offset!r}; give the number of a row")):
            dataset.load_state_dict({"blend": dataset.blend.blend_id, "offset": offset})
        if offset is not None:
            with pytest.raises(InvalidReadError, match=re.escape(f"dataset: offset is {offset!r}")):
                BlendDataset(address, "code", 8, offset=offset)
    with pytest.raises(StateError, match=r"state: offset 701 is beyond the end of blend .* which has 700 rows"):
        dataset.load_state_dict({"blend": dataset.blend.blend_id, "offset": 701})
    with pytest.raises(OffsetOutOfRangeError, match="dataset: offset 701 is beyond the end"):
        BlendDataset(address, "code", 8, offset=701)


def test_loss_scale_makes_uneven_parts_fair(address: str) -> None:
    """The mean over ranks of scaled means is the mean over the batch."""
    values = np.random.default_rng(0).normal(size=7)
    total, at = 0.0, 0
    for rank in range(3):
        dataset = BlendDataset(address, "code", 7, rank=rank, world_size=3, uneven=True)
        rows = len(next(iter(dataset))["input_ids"])
        total += float(values[at : at + rows].mean()) * dataset.loss_scale / 3
        at += rows
    assert at == 7
    assert total == pytest.approx(float(values.mean()))


def test_a_data_loader_takes_the_dataset(address: str) -> None:
    """DataLoader with batch_size=None gives the same batches, and as many as its length says."""
    loader = torch.utils.data.DataLoader(BlendDataset(address, "code", 50), batch_size=None)
    assert len(loader) == 14
    assert [row.tolist() for batch in loader for row in batch["input_ids"]] == blend_rows(address)


def equal(ours: Sequence[Batch], theirs: Sequence[Batch]) -> bool:
    """Whether batches hold the same."""
    return len(ours) == len(theirs) and all(
        one.keys() == other.keys() and all(torch.equal(torch.as_tensor(one[k]), torch.as_tensor(other[k])) for k in one)  # type: ignore[literal-required]
        for one, other in zip(ours, theirs, strict=True)
    )


@sampled()
@pytest.mark.parametrize("rank", [0, 2])
def test_batches_of_the_lake_are_those_of_a_server(
    serve: Serve, code: PackedFixture, prose: PackedFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    """Tensor for tensor, with the state, of a blend of two tables, also after a document was excised on the way."""
    monkeypatch.chdir(tmp_path)
    server = serve()
    with connect(server.address) as client:
        client.create_blend([SourceSpec(code.identifier, "3"), SourceSpec(prose.identifier, max_epochs=0)], name="mix")
    served = BlendDataset(server.address, "mix", 10, rank=rank, world_size=4, offset=3, uneven=True)
    ours = BlendDataset("lake:mix", batch_rows=10, rank=rank, world_size=4, offset=3, uneven=True)
    assert (ours.blend, len(ours)) == (served.blend, len(served))
    few = [[batch for _, batch in zip(range(9), one, strict=False)] for one in (ours, served)]
    assert equal(*few)
    assert ours.state_dict() == served.state_dict()
    code.excise(next(i for i, row in enumerate(code.rows) if len(row.segments) > 1))
    state = ours.state_dict()
    served.load_state_dict(state)
    assert equal(list(ours), list(served))
    ours.load_state_dict(BlendState(blend=state["blend"], offset=3))
    assert not equal([next(iter(ours))], few[0][1:2])


@sampled()
@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.nightly)])
def test_workers_of_the_lake_take_steps_in_turns(address: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three processes give the batches of one, also those at the end, of each rank, and the state is this process's."""
    if address != "lake:":
        with pytest.raises(InvalidReadError, match="none to a server"):
            BlendDataset(address, "code", 10, workers=1)
        return
    monkeypatch.setattr(
        torch_module, "DataLoader", functools.partial(torch.utils.data.DataLoader, multiprocessing_context=method)
    )
    settings: dict[str, Any] = {"rank": 1, "world_size": 2, "offset": 8, "uneven": True, "prefetch_batches": 2}
    alone = BlendDataset(address, "code", 31, **settings)
    first = list(alone)  # with the lake open, and its threads, where workers are forked
    several = BlendDataset(address, "code", 31, workers=3, **settings)
    taken = [batch for _, batch in zip(range(4), several, strict=False)]
    assert several.state_dict() == BlendState(blend=several.blend.blend_id, offset=8 + 4 * 31)
    again = BlendDataset(address, "code", 31, workers=2, **settings)
    again.load_state_dict(several.state_dict())
    assert equal([*taken, *again], first)


def test_what_makes_no_sense_without_a_server_is_refused(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens, certificates and silence are a server's; a lake that is not there is one line; a run is registered."""
    if address != "lake:":
        pytest.skip("of the lake")
    for identity in (Identity(token="x"), Identity(authority="ca.pem"), Identity(run="names")):
        with pytest.raises(InvalidReadError, match=r"leave it out|use another name"):
            BlendDataset("lake:code", batch_rows=7, identity=identity)
    with pytest.raises(InvalidReadError, match="silence_seconds"):
        BlendDataset("lake:code", batch_rows=7, silence_seconds=3)
    with pytest.raises(InvalidReadError, match="both 'lake:code' and 'code'"):
        BlendDataset("lake:code", "code", 7)
    with pytest.raises(BlendNotFoundError):
        BlendDataset("lake:cod", batch_rows=7)
    run = BlendDataset("lake:code", batch_rows=7, identity=Identity(run="llm", run_notes="a try"))
    for _ in zip(range(3), run, strict=False):
        pass
    register = RunRegister(open_store(open_lake(tmp_path / "warehouse")).objects)
    until(lambda: "llm" in register.names() and register.reads("llm")[0].consumed == 21)
    assert register.reads("llm")[0].notes == "a try"
    (tmp_path / "nowhere").mkdir()
    monkeypatch.chdir(tmp_path / "nowhere")
    with pytest.raises(CatalogueError, match="does not exist"):
        BlendDataset("lake:code", batch_rows=7)


@sampled()
@pytest.mark.parametrize("workers", [1, 2])
def test_workers_are_refused(address: str, workers: int) -> None:
    """A worker's copy would move on while the state of the training process stays at 0."""
    loader = torch.utils.data.DataLoader(BlendDataset(address, "code", 50), batch_size=None, num_workers=workers)
    with pytest.raises(InvalidReadError, match="use num_workers=0"):
        next(iter(loader))


@sampled()
@pytest.mark.parametrize("fetch", [True, False])
def test_an_iteration_that_the_state_does_not_count_gives_nothing(address: str, fetch: bool) -> None:
    """A state that is loaded, or a second iteration, ends the first, which says so; the state holds for the new one."""
    dataset = BlendDataset(address, "code", 50, fetch=fetch)
    first = iter(dataset)
    next(first)
    dataset.load_state_dict(BlendState(blend=dataset.blend.blend_id, offset=200))
    with pytest.raises(StateError, match="a state was loaded"):
        next(first)
    second = iter(dataset)
    next(second)
    third = iter(dataset)
    next(third)
    with pytest.raises(StateError, match="another iteration has begun"):
        next(second)
    assert dataset.state_dict()["offset"] == 300
    third.close()  # type: ignore[attr-defined]


def test_a_second_loop_goes_on_and_after_the_end_is_refused(address: str) -> None:
    """After a break nothing is lost or repeated; after the end there is no empty pass that nobody notices."""
    dataset = BlendDataset(address, "code", 50)
    got: list[list[int]] = []
    for batch in dataset:
        got += batch["input_ids"].tolist()
        if len(got) == 150:
            break
    for batch in dataset:
        got += batch["input_ids"].tolist()
    assert got == blend_rows(address)
    with pytest.raises(StateError, match=r"ended at offset 700.*max_epochs"):
        iter(dataset)
    dataset.load_state_dict(BlendState(blend=dataset.blend.blend_id, offset=650))
    assert [batch["input_ids"].tolist() for batch in dataset] == [blend_rows(address, 650, 50)]
    for finished in (BlendDataset(address, "code", 50, offset=700), BlendDataset(address, "code", 50, fetch=False)):
        assert finished.state_dict()["offset"] == 700 or len(list(finished)) == 14
        with pytest.raises(StateError, match="ended at offset 700"):
            iter(finished)
    with pytest.raises(StateError, match=r"has 700 rows, fewer than a step, which takes 701; lower batch_rows"):
        iter(BlendDataset(address, "code", 701))


def test_the_length_is_that_of_the_whole_run(address: str) -> None:
    """Frameworks add what they have counted themselves, so a loaded state does not change it."""
    dataset = BlendDataset(address, "code", 33)
    dataset.load_state_dict(BlendState(blend=dataset.blend.blend_id, offset=660))
    assert [len(dataset) for _ in dataset] == [21]
    assert len(BlendDataset(address, "code", 33, offset=660)) == 1
    assert len(BlendDataset(address, "code", 33, offset=690)) == 0
    assert BlendDataset(address, "code", 33, offset=690)
    with connect(address) as client:
        endless = client.create_blend([SourceSpec("main.packed_code_16", max_epochs=0)]).blend_id
    with pytest.raises(TypeError, match=r"no end, so it has no length.*max_steps.*limit_train_batches"):
        len(BlendDataset(address, endless, 33))
    assert BlendDataset(address, endless, 33)


@sampled(2)
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata 0.11 calls it
@pytest.mark.parametrize("taken", [0, 1, 5])
def test_a_stateful_data_loader_goes_on_at_the_next_batch(address: str, taken: int) -> None:
    """Torchdata's loader saves the dataset's state with its own, and a new loader goes on where it stood."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    loader = stateful.StatefulDataLoader(BlendDataset(address, "code", 50), batch_size=None)
    batches = iter(loader)
    got = [row for _ in range(taken) for row in next(batches)["input_ids"].tolist()]
    again = stateful.StatefulDataLoader(BlendDataset(address, "code", 50), batch_size=None)
    again.load_state_dict(loader.state_dict())
    got += [row for batch in again for row in batch["input_ids"].tolist()]
    assert got == blend_rows(address)


@pytest.mark.nightly
def test_ranks_of_distributed_data_parallel_share_every_row(address: str, tmp_path: Path) -> None:
    """Two processes over gloo read each row of each step once, also after they went on from one rank's state."""
    torch.multiprocessing.spawn(train_rank, (address, tmp_path, 3), nprocs=2)
    parts = [json.loads((tmp_path / f"rows-{rank}.json").read_text()) for rank in range(2)]
    together = [row for at in range(0, 350, 50) for part in parts for row in part[at : at + 50]]
    assert together == blend_rows(address)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example as a module; the demo runs it as a program."""
    path = Path(__file__).parents[2] / "examples" / "train_tiny.py"
    spec = importlib.util.spec_from_file_location("train_tiny", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "train_tiny", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.nightly
def test_the_example_learns_and_goes_on(
    serve: Serve, lake: Catalog, tmp_path: Path, example: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tiny transformer's loss falls, its last line is JSON, and a saved run goes on at the next batch."""
    table = create_packed(lake, "main.packed_tiny_16").append(400, seed=6)
    server = serve()
    with connect(server.address) as client:
        blend: Blend = client.create_blend([SourceSpec(table.identifier, max_epochs=0)])
    state = tmp_path / "state.pt"
    arguments = ["--address", server.address, "--blend", blend.blend_id, "--state", str(state), "--json"]
    assert example.main([*arguments, "--steps", "30"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert first["last_loss"] < first["first_loss"] - 0.05
    assert first["tokens"] == 30 * 8 * WINDOW_TOKENS
    assert 400_000 < first["parameters"] < 1_500_000
    assert example.main([*arguments, "--steps", "2"]) == 0
    assert torch.load(state, weights_only=True)["data"] == {"blend": blend.blend_id, "offset": 32 * 8}


@pytest.mark.nightly
def test_a_killed_example_goes_on_with_more_processes_and_proves_its_rows(
    serve: Serve, lake: Catalog, tmp_path: Path, example: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two processes, killed between two saves, then three: the rows in the weights are 0 to N-1, each once."""
    table = create_packed(lake, "main.packed_tiny_16").append(400, seed=6)
    server = serve()
    with connect(server.address) as client:
        blend = client.create_blend([SourceSpec(table.identifier, max_epochs=0)])
    root = Path(__file__).parents[2]
    state = tmp_path / "state.pt"
    common = ["--address", server.address, "--blend", blend.blend_id, "--state", str(state)]
    common += ["--batch-rows", "6", "--save-every", "3"]

    def begin(processes: int, steps: int) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(root)}
        command = [sys.executable, str(root / "examples" / "train_tiny.py"), *common]
        command += ["--processes", str(processes), "--steps", str(steps)]
        return subprocess.Popen(command, env=environment, start_new_session=True)

    killed = begin(2, 100_000)
    deadline = time.monotonic() + 60
    while not state.exists() and killed.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.1)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert state.exists(), "the first run saved nothing"
    before = torch.load(state, weights_only=True)["data"]["offset"]
    assert before >= 18
    more = begin(3, 7)
    try:
        assert more.wait(timeout=60) == 0
    finally:
        if more.poll() is None:
            os.killpg(more.pid, signal.SIGKILL)
            more.wait()
    saved = torch.load(state, weights_only=True)
    assert saved["data"]["offset"] == before + 7 * 6
    assert example.main([*common, "--prove"]) == 0
    assert f"exactly 0 to {before + 41}" in capsys.readouterr().out
    for spoilt in (saved["rows"][1:], [*saved["rows"], saved["rows"][3]], [(0, 1), *saved["rows"][1:]]):
        torch.save({**saved, "rows": spoilt}, state)
        assert example.main([*common, "--prove"]) == 2


def test_the_example_says_what_is_wrong_in_one_line(
    address: str, example: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown blend is one line and exit status 2."""
    assert example.main(["--address", address, "--blend", "nothing"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_random_rows_have_padding_and_many_documents() -> None:
    """The rows of these tests hold what they must: several documents, and padding in some."""
    rows = random_rows(50, seed=1)
    assert {len(row.segments) for row in rows} >= {1, 2, 3}
    assert any(row.input_ids[-1] == PADDING for row in rows)
