"""One context-parallel rank's part of each row, cut after positions and labels were made: both are right at the cuts.

In zigzag order a row is cut into twice as many pieces as there are ranks, and rank r has the r-th from the start and
the r-th from the end, so that causal attention costs each the same (as torch's `context_parallel` and Megatron deal)::

    4 ranks   pieces 0 1 2 3 4 5 6 7    rank 0: 0 7    rank 1: 1 6    rank 2: 2 5    rank 3: 3 4
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch.distributed.device_mesh import DeviceMesh

from blender_service.exceptions import InvalidReadError


class ContextPart(NamedTuple):
    """A rank among those that share each row; `zigzag` as the module says, else one piece each, in order."""

    rank: int = 0
    size: int = 1
    zigzag: bool = True

    def check(self, window_tokens: int, tensors: Sequence[str] = ()) -> None:
        """Refuse rows that cannot be cut into equal pieces, and tensors of whole rows that losses are summed by.

        Raises:
            InvalidReadError: it says the nearest mend.
        """
        if self.size > 1 and "segment_documents" in tensors:
            raise InvalidReadError(
                "dataset: a rank of cp has parts of segments, so losses by document would be sums of parts; leave "
                "segment_documents out"
            )
        pieces = self.size * (1 + self.zigzag)
        if self.size > 1 and window_tokens % pieces:
            other = ", or cp_zigzag=False" if self.zigzag and window_tokens % self.size == 0 else ""
            raise InvalidReadError(
                f"dataset: rows of {window_tokens} tokens are no {pieces} equal pieces for {self.size} ranks of cp; "
                f"take windows of a multiple of {pieces}{other}"
            )

    def of(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Give this rank's part of each tensor of a token for a column; `cu_seqlens` are those of whole rows.

        In order the tensors are views; in zigzag order they are new.
        """
        part = dict(batch)
        if self.size == 1:
            return part
        for name, values in batch.items():
            if isinstance(values, torch.Tensor) and values.dim() == 2:
                pieces = values.chunk(self.size * (1 + self.zigzag), dim=1)
                last = pieces[-1 - self.rank]
                part[name] = torch.cat([pieces[self.rank], last], dim=1) if self.zigzag else pieces[self.rank]
        return part


WHOLE_ROWS: Final = ContextPart()


def context_of(mesh: DeviceMesh | None, cp: str | None, dp: str | Sequence[str] | None, zigzag: bool) -> ContextPart:
    """Give a process's part of each row by the dimension of a mesh.

    Raises:
        InvalidReadError: there is no mesh, it has no such dimension, or rows are dealt along that one.
    """
    if cp is None:
        return WHOLE_ROWS
    names = (mesh.mesh_dim_names if isinstance(mesh, DeviceMesh) else None) or ()
    if mesh is None or cp not in names:
        nearest = difflib.get_close_matches(str(cp), names, 1, 0)
        mend = f"did you mean {nearest[0]!r}?" if nearest else "give init_device_mesh's mesh as mesh, with names"
        raise InvalidReadError(f"dataset: cp names a dimension of a mesh, and {cp!r} is none; {mend}")
    if cp in ([dp or "dp"] if dp is None or isinstance(dp, str) else dp):
        raise InvalidReadError(f"dataset: {cp!r} is in dp, so its ranks have rows of their own; leave it out of one")
    return ContextPart(mesh[cp].get_local_rank(), mesh[cp].size(), zigzag)
