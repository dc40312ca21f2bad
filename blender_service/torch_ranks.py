"""Which part of each step a process trains on, and whether somebody has said so.

Where several processes train, one that was told neither rank nor world size would train on the same rows as all others.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from typing import Final

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


def rank_of(
    rank: int | None, world_size: int | None, mesh: DeviceMesh | None, dp: str | Sequence[str] | None
) -> tuple[int, int]:
    """Give rank and world size as they were stated, or as a mesh has them.

    Raises:
        InvalidReadError: nothing was stated and there are several processes; half of it was; a mesh has no such
            dimension.
    """
    if mesh is not None:
        if rank is not None or world_size is not None:
            raise InvalidReadError("dataset: mesh says what rank and world_size are; leave those out")
        return _rank_in(mesh, ("dp",) if dp is None else (dp,) if isinstance(dp, str) else tuple(dp))
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
    return rank or 0, 1 if world_size is None else world_size


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
    if not dimensions or len(set(dimensions)) < len(dimensions):
        raise InvalidReadError(f"dataset: dp is {dimensions!r}; name each data-parallel dimension of the mesh once")
    if mesh.get_coordinate() is None:
        raise InvalidReadError("dataset: this process is not in the mesh; give the mesh that it trains in")
    rank, world_size = 0, 1
    for name in dimensions:
        try:
            dimension = mesh[name]  # also one that was made by flattening others
        except KeyError as error:
            nearest = difflib.get_close_matches(name, names, 1, 0)
            raise InvalidReadError(
                f"dataset: the mesh has no dimension {name!r}; did you mean {nearest[0]!r}? It has {', '.join(names)}"
            ) from error
        rank = rank * dimension.size() + dimension.get_local_rank()
        world_size *= dimension.size()
    return rank, world_size
