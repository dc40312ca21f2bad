"""A process's part of each step, and whether somebody has said so.

Where several processes train, one that was told neither rank nor world size would train on the same rows as all others.
"""

from __future__ import annotations

import difflib
import operator
import os
from collections.abc import Sequence
from typing import Any, Final

from torch import distributed
from torch.distributed.device_mesh import DeviceMesh

from blender_service.exceptions import InvalidReadError

# Set for each process by what starts several: torchrun and its like, mpirun of Open MPI, that of MPICH.
WORLD_VARIABLES: Final = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
LINE: Final = (
    'write mesh=device_mesh, dp="dp" with the names of its data-parallel dimensions, or '
    "rank=torch.distributed.get_rank(), world_size=torch.distributed.get_world_size(); where all processes shall have "
    "the same rows, rank=0, world_size=1"
)
DATA_PARALLEL: Final = ("dp", "data")  # how names of such dimensions begin, in frameworks' meshes


def whole(value: Any) -> int | None:
    """Give a whole number, perhaps NumPy's or torch's, as Python's, None for what is none."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def rank_of(
    rank: int | None, world_size: int | None, mesh: DeviceMesh | None, dp: str | Sequence[str] | None
) -> tuple[int, int]:
    """Give rank and world size as they were stated, or as a mesh has them.

    Raises:
        InvalidReadError: nothing was stated and there are several processes; half of it was; a mesh has no such
            dimension, or data-parallel ones that are not named; a rank is no number.
    """
    if mesh is not None:
        if rank is not None or world_size is not None:
            raise InvalidReadError("dataset: mesh says what rank and world_size are; leave those out")
        if not isinstance(mesh, DeviceMesh):
            raise InvalidReadError(f"dataset: mesh is {mesh!r}; give the DeviceMesh that init_device_mesh made")
        names: Any = "dp" if dp is None else dp  # checked there, whatever it is
        return _rank_in(mesh, tuple(names) if isinstance(names, (tuple, list)) else (names,))
    if dp is not None:
        raise InvalidReadError(f"dataset: dp names dimensions of a mesh, {dp!r}; give the DeviceMesh as mesh")
    if rank is None and world_size is None:
        check_alone()
    elif rank is None and world_size != 1:
        raise InvalidReadError(
            f"dataset: world_size is {world_size} and rank is not given, so each process would train on the rows of "
            f"rank 0; {LINE}"
        )
    elif world_size is None and (rank or processes()[0] > 1):
        raise InvalidReadError(
            f"dataset: rank is {rank} and world_size is not given, so each process would train on all rows; {LINE}"
        )
    numbers = whole(rank or 0), whole(1 if world_size is None else world_size)
    if numbers[0] is None or numbers[1] is None:
        raise InvalidReadError(f"dataset: rank is {rank!r} and world_size {world_size!r}; give whole numbers")
    return numbers[0], numbers[1]


def check_alone() -> None:
    """Refuse a dataset that was told neither rank nor world size where other processes train too.

    Raises:
        InvalidReadError: it says what to write.
    """
    world, where = processes()
    if world > 1:
        raise InvalidReadError(
            f"dataset: {world} processes train ({where}), and neither rank nor world_size is given, so all of them "
            f"would train on the same rows; {LINE}"
        )


def processes() -> tuple[int, str]:
    """Give how many processes train together, and what says so."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size(), "torch.distributed"
    for name in WORLD_VARIABLES:
        value = os.environ.get(name, "")
        if value.isdecimal() and int(value) > 1:
            return int(value), f"{name}={value}"
    return 1, ""


def _rank_in(mesh: DeviceMesh, dimensions: tuple[str, ...]) -> tuple[int, int]:
    """Count the groups of a mesh that train on rows of their own; peers in its other dimensions have the same rank."""
    names = mesh.mesh_dim_names
    if not names:
        raise InvalidReadError(
            "dataset: the mesh has no names of dimensions; give init_device_mesh its mesh_dim_names, and dp one of them"
        )
    if (
        not dimensions
        or len(set(dimensions)) < len(dimensions)
        or not all(isinstance(name, str) for name in dimensions)
    ):
        raise InvalidReadError(f"dataset: dp is {dimensions!r}; name each data-parallel dimension of the mesh once")
    if mesh.get_coordinate() is None:
        raise InvalidReadError("dataset: this process is not in the mesh; give the mesh that it trains in")
    by_name = tuple(name for name in names if name.startswith(DATA_PARALLEL))
    rank, world_size = 0, 1
    peers: set[int] = set()
    for name in dimensions:
        try:
            dimension = mesh[name]  # also one that was made by flattening others
        except KeyError as error:
            nearest = difflib.get_close_matches(name, by_name or names, 1, 0)
            raise InvalidReadError(
                f"dataset: the mesh has no dimension {name!r}; did you mean {nearest[0]!r}? It has {', '.join(names)}"
            ) from error
        if len(peers & (along := _along(dimension))) > 1:
            raise InvalidReadError(
                f"dataset: dp is {dimensions!r}, and {name!r} has parts of another; name each part once"
            )
        peers |= along
        rank = rank * dimension.size() + dimension.get_local_rank()
        world_size *= dimension.size()
    if left_out := [name for name in by_name if not _along(mesh[name]) <= peers]:
        raise InvalidReadError(
            f"dataset: dp is {dimensions!r}, so ranks along {left_out[0]!r} would train on the same rows; name all "
            f"data-parallel dimensions: dp={by_name!r} (or give rank and world_size, if they are to)"
        )
    return rank, world_size


def _along(dimension: DeviceMesh) -> set[int]:
    """Give the processes along a dimension, this process among them."""
    return set(dimension.mesh.flatten().tolist())
