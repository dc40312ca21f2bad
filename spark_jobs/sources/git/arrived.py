"""Earlier arrivals of git repositories: the state of each version and path at the start of a listing."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.sources.refusals import TRIED_AGAIN
from spark_jobs.sources.taken import BY_PATH


@dataclass
class Arrived:
    """What arrived of a repository: reason and detail at each location, and what each path has now.

    That is the location of what landed there, or why it is refused; a gone path has nothing.
    """

    reasons: dict[str, tuple[str | None, str]] = field(default_factory=dict)
    live: dict[str, str] = field(default_factory=dict)
    refused: dict[str, tuple[str | None, str]] = field(default_factory=dict)

    @property
    def paths(self) -> set[str]:
        """The paths with a document or a refusal."""
        return self.live.keys() | self.refused.keys()


def damaged(arrivals: pa.Table) -> set[str]:
    """Repositories with unreadable blobs; they are looked into again, as they may be whole now."""
    reasons = pa.array(TRIED_AGAIN)
    last = arrivals.filter(pc.field("path").is_valid() & pc.field("reason").isin(reasons))
    return set(last["repository"].to_pylist())


def arrived_of(arrivals: pa.Table, names: list[str]) -> dict[str, Arrived]:
    """What arrived of some repositories; of versions landed together, the one with a doc_id is at the path now.

    What an increment says of a gone path counts after its versions, and that it is left out after both. A row
    `LOCATION#record:5f1c..` says that the document is gone, as the file at that location is none.
    """
    chosen = arrivals.filter(pc.field("path").is_valid() & pc.field("repository").isin(pa.array(names, pa.string())))
    if chosen.num_rows == 0:
        return {}
    is_gone = pc.equal(chosen["status"], "gone")
    is_left_out = pc.fill_null(pc.is_in(chosen["reason"], value_set=pa.array(BY_PATH)), False)
    rank = pc.add(pc.multiply(is_gone.cast(pa.int8()), 2), pc.is_valid(chosen["doc_id"]).cast(pa.int8()))
    chosen = chosen.append_column("rank", pc.if_else(is_left_out, pa.scalar(4, pa.int8()), rank))
    chosen = chosen.sort_by([("increment", "ascending"), ("rank", "ascending")])
    columns = ("location", "repository", "path", "status", "reason", "detail", "doc_id")
    by_repository: dict[str, Arrived] = {}
    for location, repository, path, status, code, detail, doc_id in zip(
        *(chosen[name].to_pylist() for name in columns), strict=True
    ):
        arrived, reason = by_repository.setdefault(repository, Arrived()), (code, detail or "")
        if status == "gone":
            arrived.live.pop(path, None)
            arrived.refused.pop(path, None)
            file = location.removesuffix(f"#record:{doc_id}")
            if file != location and file in arrived.reasons:
                arrived.refused[path] = arrived.reasons[file]
            continue
        arrived.reasons[location] = reason
        if status in ("landed", "returned", "deleted"):
            arrived.live[path] = location
            arrived.refused.pop(path, None)
        elif status == "rejected":
            arrived.refused[path] = reason
    return by_repository
