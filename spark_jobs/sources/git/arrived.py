"""What arrived of git repositories before: the state of each version and path that a listing starts from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.sources.refusals import Reason
from spark_jobs.sources.taken import BY_PATH

TRIED_AGAIN: Final = (str(Reason.MISSING_OBJECT), str(Reason.UNREADABLE))
"""Reasons of blobs that may be whole the next time."""


@dataclass
class Arrived:
    """What arrived of a repository: reason and detail at each location, and what each path has now.

    That is the location of what landed there, or why it is refused; a path that is gone has nothing.
    """

    reasons: dict[str, tuple[str | None, str]] = field(default_factory=dict)
    live: dict[str, str] = field(default_factory=dict)
    refused: dict[str, tuple[str | None, str]] = field(default_factory=dict)

    @property
    def paths(self) -> set[str]:
        """The paths that have a document or a refusal."""
        return self.live.keys() | self.refused.keys()


def damaged(arrivals: pa.Table) -> set[str]:
    """Repositories with blobs that could not be read; they are looked into again, as they may be whole now."""
    reasons = pa.array(TRIED_AGAIN)
    last = arrivals.filter(pc.field("path").is_valid() & pc.field("reason").isin(reasons))
    return set(last["repository"].to_pylist())


def arrived_of(arrivals: pa.Table, names: list[str]) -> dict[str, Arrived]:
    """What arrived of some repositories; of versions that landed together, the one with a doc_id is at the path now.

    What an increment says of a path that is gone counts after its versions, and that it is left out after both.
    """
    chosen = arrivals.filter(pc.field("path").is_valid() & pc.field("repository").isin(pa.array(names, pa.string())))
    if chosen.num_rows == 0:
        return {}
    is_gone = pc.equal(chosen["status"], "gone")
    is_left_out = pc.fill_null(pc.is_in(chosen["reason"], value_set=pa.array(BY_PATH)), False)
    rank = pc.add(pc.multiply(is_gone.cast(pa.int8()), 2), pc.is_valid(chosen["doc_id"]).cast(pa.int8()))
    chosen = chosen.append_column("rank", pc.if_else(is_left_out, pa.scalar(4, pa.int8()), rank))
    chosen = chosen.sort_by([("increment", "ascending"), ("rank", "ascending")])
    columns = ("location", "repository", "path", "status", "reason", "detail")
    known: dict[str, Arrived] = {}
    for location, repository, path, status, code, detail in zip(*(chosen[n].to_pylist() for n in columns), strict=True):
        arrived, reason = known.setdefault(repository, Arrived()), (code, detail or "")
        if status == "gone":
            arrived.live.pop(path, None)
            arrived.refused.pop(path, None)
            continue
        arrived.reasons[location] = reason
        if status in ("landed", "returned"):
            arrived.live[path] = location
            arrived.refused.pop(path, None)
        elif status == "rejected":
            arrived.refused[path] = reason
    return known
