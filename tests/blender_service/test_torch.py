"""The torch dataset: tensors derived from segments, a state that resumes under any world size."""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog

from blender_service.client import Blend, connect
from blender_service.exceptions import InvalidReadError, StateError, WindowMismatchError
from blender_service.server import RunningServer
from blender_service.serving import Blender
from blender_service.specification import BlendSpec, SourceSpec
from blender_service.window import ExpectedWindow
from blender_service.window_layout import lay_out
from tests.blender_service.packed_tables import PADDING, WINDOW_TOKENS, PackedFixture, create_packed, random_rows
from tests.blender_service.test_reading import rows_of

torch = pytest.importorskip("torch", reason="torch is in the extra torch")
from blender_service.torch import BlendDataset, to_tensors  # noqa: E402 (needs torch)

Serve = Callable[..., RunningServer]


@pytest.fixture
def address(serve: Serve, code: PackedFixture) -> str:
    """A server with the blend `code`: 700 rows, once."""
    server = serve()
    with connect(server.address) as client:
        client.create_blend([SourceSpec(code.identifier)], seed=17, name="code", block_rows=32, group_blocks=3)
    return server.address


def blend_rows(address: str, offset: int = 0, rows: int = 700) -> list[list[int]]:
    """Read the tokens of rows by the plain client."""
    with connect(address) as client:
        return [row.tolist() for batch in client.read("code", offset, rows) for row in batch.input_ids]


def test_layout_equals_brute_force(lake: Catalog, code: PackedFixture) -> None:
    """Labels, positions and documents of every token equal a loop over segments and tokens."""
    config = Blender(lake).create(BlendSpec((SourceSpec(code.identifier),)))
    batch = Blender(lake).open(config.blend_id).gather(0, 200)
    layout = lay_out(batch)
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


def test_steps_are_the_rows_of_the_blend(address: str) -> None:
    """Without ranks, step s holds rows [s*B, (s+1)*B), and the last part that does not fit is left."""
    expected = blend_rows(address)
    got = [row.tolist() for batch in BlendDataset(address, "code", 64) for row in batch["input_ids"]]
    assert got == expected[: 700 // 64 * 64]


@given(
    batch_rows=st.integers(1, 40), worlds=st.lists(st.integers(1, 5), min_size=1, max_size=4), steps=st.integers(1, 5)
)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
    with closing(iter(BlendDataset(address, "code", 1, prefetch_batches=1))) as batches:  # type: ignore[type-var]
        next(batches)
    assert not [thread for thread in threading.enumerate() if thread.name == "blend-prefetch"]


def test_what_would_go_wrong_later_is_refused_now(address: str) -> None:
    """Too many ranks, uneven parts, a foreign state, a wrong tokenizer: errors when the dataset is made."""
    with pytest.raises(InvalidReadError, match="leaves some"):
        BlendDataset(address, "code", 2, world_size=4)
    with pytest.raises(InvalidReadError, match="do not divide"):
        BlendDataset(address, "code", 7, world_size=2)
    with pytest.raises(WindowMismatchError, match="tokenizer"):
        BlendDataset(address, "code", 8, expected=ExpectedWindow(tokenizer_sha256="0" * 64))
    dataset = BlendDataset(address, "code", 8)
    with pytest.raises(StateError, match="is of blend"):
        dataset.load_state_dict({"blend": "0" * 64, "offset": 8})
    with pytest.raises(StateError, match="is not"):
        dataset.load_state_dict({"offset": 8})  # type: ignore[typeddict-item]


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
    """DataLoader with batch_size=None gives the same batches; several workers are refused."""
    loader = torch.utils.data.DataLoader(BlendDataset(address, "code", 50), batch_size=None)
    assert [row.tolist() for batch in loader for row in batch["input_ids"]] == blend_rows(address)


@pytest.fixture
def example() -> ModuleType:
    """The example as a module; the demo runs it as a program."""
    path = Path(__file__).parents[2] / "examples" / "train_tiny.py"
    spec = importlib.util.spec_from_file_location("train_tiny", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
