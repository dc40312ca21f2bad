"""Which rows a process trains on is said, or it trains alone; and a mesh says it as ranks do."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blender_service.blend.requests import SourceSpec
from blender_service.client import connect
from blender_service.exceptions import InvalidReadError
from blender_service.server.server import RunningServer
from tests.blender_service.packed_tables import PackedFixture
from tests.tiers import sampled, tries

torch = pytest.importorskip("torch", reason="torch is in the extra torch")
from torch import distributed  # noqa: E402 (needs torch)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: E402
from torch.distributed.tensor.experimental._context_parallel import _load_balancer  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

from blender_service.torch import DENSE, Batch, BlendDataset  # noqa: E402 (needs torch)
from blender_service.torch_context import ContextPart  # noqa: E402
from blender_service.torch_ranks import WORLD_VARIABLES, rank_of  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Slicing a flattened dim")


@pytest.fixture
def blend(serve: Callable[..., RunningServer], code: PackedFixture, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The address of a server, and a blend of 700 rows."""
    for name in WORLD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    address = serve().address
    with connect(address) as client:
        return address, client.create_blend([SourceSpec(code.identifier)], seed=17).blend_id


@contextmanager
def process(rank: int, world_size: int) -> Iterator[None]:
    """Be a process of a world whose others do not exist."""
    distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world_size)
    try:
        yield
    finally:
        distributed.destroy_process_group()


@sampled()
@pytest.mark.parametrize("world", [*WORLD_VARIABLES, "torch.distributed", "torch.distributed, later"])
def test_a_forgotten_rank_is_refused(blend: tuple[str, str], world: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where several processes train, each says which rows it reads; half of it is no answer, the same rows are one."""
    later = BlendDataset(*blend, 50)
    if world in WORLD_VARIABLES:
        monkeypatch.setenv(world, "2")
        with pytest.raises(InvalidReadError, match=rf"2 processes train \({world}=2\).*rank=0, world_size=1"):
            BlendDataset(*blend, 50)
        with pytest.raises(InvalidReadError, match="neither rank nor world_size is given"):
            iter(later)
        for half in ({"rank": 0}, {"rank": 1}, {"world_size": 2}):
            with pytest.raises(InvalidReadError, match="is not given, so each process"):
                BlendDataset(*blend, 50, **half)
        assert len(list(BlendDataset(*blend, 50, rank=0, world_size=1))) == 14
        assert len(next(iter(BlendDataset(*blend, 50, rank=1, world_size=2)))["input_ids"]) == 25
        return
    with process(1, 4):
        if world == "torch.distributed":
            with pytest.raises(InvalidReadError, match=r"4 processes train \(torch.distributed\).*mesh=device_mesh"):
                BlendDataset(*blend, 50)
        with pytest.raises(InvalidReadError, match=r"rank=torch\.distributed\.get_rank\(\)"):
            iter(later)


def test_one_process_says_nothing(blend: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A world of one, or what is no number, is no reason to refuse."""
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("PMI_SIZE", "many")
    assert len(list(BlendDataset(*blend, 50))) == 14
    monkeypatch.setenv("WORLD_SIZE", "2")  # of what started this process alone, say for each node
    with process(0, 1):
        assert len(list(BlendDataset(*blend, 50, rank=0))) == 14
    with pytest.raises(InvalidReadError, match="world_size is 2 and rank is not given"):
        BlendDataset(*blend, 50, world_size=2)


@sampled()
@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, torch.tensor])
def test_numbers_of_numpy_and_torch_are_numbers(blend: tuple[str, str], kind: Any) -> None:
    """Ranks, rows and offsets of their kinds are taken, and a state is JSON; what is no whole number is named."""
    dataset = BlendDataset(*blend, kind(50), rank=kind(1), world_size=kind(2), offset=kind(100))
    assert next(iter(dataset))["offset"] == 125
    assert json.loads(json.dumps(dataset.state_dict()))["offset"] == 150
    dataset.load_state_dict({"blend": dataset.blend.blend_id, "offset": kind(200)})
    assert next(iter(dataset))["offset"] == 225
    for wrong in ("1", True, 1.0):
        with pytest.raises(InvalidReadError, match="give whole numbers"):
            BlendDataset(*blend, 50, rank=wrong, world_size=2)
    for rows in ("50", 50.0, True):
        with pytest.raises(InvalidReadError, match="the rows of a step"):
            BlendDataset(*blend, rows)


@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=4), chosen=st.lists(st.booleans(), min_size=4, max_size=4)
)
@settings(max_examples=tries(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_mesh_has_a_rank_for_each_group_of_peers(sizes: list[int], chosen: list[bool]) -> None:
    """Processes have one rank exactly if they agree in all data-parallel dimensions, and all ranks are there."""
    names = ("replicas", "shards", "cp", "tp")[: len(sizes)]
    dp = tuple(name for name, take in zip(names, chosen, strict=False) if take) or names[:1]
    groups: dict[tuple[int, int], set[tuple[int, ...]]] = {}
    shape = tuple(sizes)
    for number, place in enumerate(itertools.product(*map(range, shape))):
        with process(number, len([*itertools.product(*map(range, shape))])):
            mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
            part = rank_of(None, None, mesh, dp if len(dp) > 1 else dp[0])
            groups.setdefault(part, set()).add(tuple(place[names.index(name)] for name in dp))
    world_size = 1
    for name in dp:
        world_size *= shape[names.index(name)]
    assert sorted(groups) == [(rank, world_size) for rank in range(world_size)]
    assert all(len(places) == 1 for places in groups.values())


def test_a_mesh_that_does_not_say_it_is_refused(blend: tuple[str, str]) -> None:
    """A dimension that is not there, by its nearest name; ranks beside it; no names; dp alone."""
    with pytest.raises(InvalidReadError, match="give the DeviceMesh"):
        BlendDataset(*blend, 50, dp="dp")
    with process(5, 8):
        mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp_replicate", "dp_shard", "tp"))
        mesh["dp_replicate", "dp_shard"]._flatten("dp")
        for given_too in ({"rank": 0}, {"world_size": 1}):
            with pytest.raises(InvalidReadError, match="leave those out"):
                BlendDataset(*blend, 50, mesh=mesh, dp="dp", **given_too)
        with pytest.raises(InvalidReadError, match="no dimension 'dpshard'; did you mean 'dp_shard'"):
            BlendDataset(*blend, 50, mesh=mesh, dp="dpshard")
        for names in ((), ("dp_shard", "dp_shard"), (None,), 1):
            with pytest.raises(InvalidReadError, match="name each data-parallel dimension"):
                BlendDataset(*blend, 50, mesh=mesh, dp=names)
        for names in ("dp_shard", ["dp_replicate"], ("dp_shard", "tp")):
            with pytest.raises(InvalidReadError, match=r"same rows; name all .*dp=\('dp_replicate', 'dp_shard'\)"):
                BlendDataset(*blend, 50, mesh=mesh, dp=names)
        for names in (("dp", "dp_shard"), ("dp_replicate", "dp"), ("dp", "dp_shard", "tp")):
            with pytest.raises(InvalidReadError, match="has parts of another; name each part once"):
                BlendDataset(*blend, 50, mesh=mesh, dp=names)
        for no_mesh in ("mesh", distributed.group.WORLD):
            with pytest.raises(InvalidReadError, match="give the DeviceMesh that init_device_mesh made"):
                BlendDataset(*blend, 50, mesh=no_mesh)
        with pytest.raises(InvalidReadError, match="no dimension 'dp'; did you mean 'dp_"):  # 'tp' is as near
            BlendDataset(*blend, 50, mesh=DeviceMesh("cpu", mesh.mesh, mesh_dim_names=("dp_a", "dp_b", "tp")))
        assert rank_of(None, None, init_device_mesh("cpu", (1, 8), mesh_dim_names=("dp_replicate", "dp")), "dp") == (
            5,
            8,
        )
        with pytest.raises(InvalidReadError, match="no names of dimensions"):
            BlendDataset(*blend, 50, mesh=init_device_mesh("cpu", (8,)))
        with pytest.raises(InvalidReadError, match="not in the mesh"):
            BlendDataset(*blend, 50, mesh=DeviceMesh("cpu", [0, 1, 2, 3], mesh_dim_names=("dp",)))
        assert rank_of(None, None, mesh, None) == rank_of(None, None, mesh, ("dp_replicate", "dp_shard")) == (2, 4)
        parts = [
            BlendDataset(*blend, 50, uneven=True, **how)
            for how in ({"mesh": mesh, "dp": "dp"}, {"rank": 2, "world_size": 4})
        ]
        first, second = (next(iter(part))["input_ids"] for part in parts)
        assert torch.equal(first, second)


PROGRAM = """
import json, sys
from pathlib import Path
import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from blender_service.torch import BlendDataset
address, blend, folder = sys.argv[1:]
try:
    BlendDataset(address, blend, 50)
except Exception as error:
    refused = str(error)
distributed.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
rows = [row for batch in BlendDataset(address, blend, 50, mesh=mesh, dp="dp") for row in batch["input_ids"].tolist()]
labels = next(iter(BlendDataset(address, blend, 50, mesh=mesh)))["labels"]
part = next(iter(BlendDataset(address, blend, 50, mesh=mesh, cp="tp")))["labels"].contiguous()
gathered = [torch.empty_like(part) for _ in range(2)]
distributed.all_gather(gathered, part, group=mesh["tp"].get_group())
(head, tail), (left, right) = (both.chunk(2, dim=1) for both in gathered)
assert torch.equal(torch.cat([head, left, right, tail], dim=1), labels)
Path(folder, f"{distributed.get_rank()}.json").write_text(json.dumps([refused, rows]))
distributed.destroy_process_group()
"""


@pytest.mark.nightly
def test_processes_of_torchrun_are_refused_until_they_say_who_they_are(blend: tuple[str, str], tmp_path: Path) -> None:
    """Four processes of torchrun, two of them peers: each row of a step is read by one group, and by both of it."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "4", str(program)]
    subprocess.run(
        [*command, *blend, str(tmp_path)], check=True, cwd=Path(__file__).parents[2], capture_output=True, timeout=300
    )
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(4)]
    assert all("4 processes train (WORLD_SIZE=4)" in refused for refused, _ in found)
    rows = [part for _, part in found]
    assert rows[0] == rows[1]
    assert rows[2] == rows[3]
    with connect(blend[0]) as client:
        expected = [row.tolist() for batch in client.read(blend[1], 0, 700) for row in batch.input_ids]
    steps = [rows[group][at : at + 25] for at in range(0, 350, 25) for group in (0, 2)]
    assert [row for step in steps for row in step] == expected


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("zigzag", [True, False])
def test_parts_of_rows_are_those_of_torch(size: int, zigzag: bool) -> None:
    """In torch's order for causal attention, or one after the other; together they are the rows, tensor by tensor."""
    dense = {name: torch.arange(2 * 24).reshape(2, 24) + at for at, name in enumerate((*DENSE, "trainable"))}
    batch = Batch(offset=7, cu_seqlens=torch.tensor([0, 24, 48]), max_seqlen=24, **dense)  # type: ignore[typeddict-item]
    parts = [ContextPart(rank, size, zigzag).of(batch) for rank in range(size)]
    order = torch.arange(24)
    if zigzag and size > 1:
        order = _load_balancer._HeadTailLoadBalancer(24, size, "cpu")._generate_indices()[0]
    for name, values in dense.items():
        assert torch.equal(torch.cat([part[name] for part in parts], dim=1), values[:, order]), name
    assert all((part["offset"], part["max_seqlen"], part["cu_seqlens"].numel()) == (7, 24, 3) for part in parts)
    with pytest.raises(InvalidReadError, match="take windows of a multiple"):
        ContextPart(0, 7, zigzag).check(24)


def test_a_mesh_says_which_part_of_rows(blend: tuple[str, str]) -> None:
    """Peers along `cp` share each row; a name that is none, and one of `dp` too, are refused."""
    with pytest.raises(InvalidReadError, match="cp names a dimension of a mesh"):
        BlendDataset(*blend, 50, cp="cp")
    for number in range(4):
        with process(number, 4):
            mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "cp"))
            with pytest.raises(InvalidReadError, match="did you mean 'cp'"):
                BlendDataset(*blend, 50, mesh=mesh, cp="cpp")
            with pytest.raises(InvalidReadError, match="leave segment_documents out"):
                BlendDataset(*blend, 50, mesh=mesh, cp="cp", tensors=(*DENSE, "segment_documents"))
            with pytest.raises(InvalidReadError, match="leave it out of one"):
                BlendDataset(*blend, 50, mesh=mesh, cp="dp")
            whole = next(iter(BlendDataset(*blend, 50, rank=number // 2, world_size=2)))
            for zigzag in (True, False):
                part = next(iter(BlendDataset(*blend, 50, mesh=mesh, cp="cp", cp_zigzag=zigzag)))
                for name in DENSE:
                    expected = ContextPart(number % 2, 2, zigzag).of(whole)[name]  # type: ignore[literal-required]
                    assert torch.equal(part[name], expected)  # type: ignore[literal-required]
