"""Change the arrivals of a dataset with an increment deleted for good, so that none of it lands again.

    file that landed      status `deleted`, without object: while its bytes are the same it is not read again
    document of a file    its doc_id on the file's row where there is one for both, else on a row `file#record:5f1c..`

`documents` takes the doc_id for known, whatever file brings it again. One row at each path has the path too: it is the
path's latest document still (`revisions`). A file unchanged in later increments keeps the reason `deleted`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.sources.refusals import DELETED

_WHY = {"status": "deleted", "reason": str(DELETED.reason), "detail": DELETED.detail, "object": None}
_READ_AGAIN = ("unchanged", "returned")  # of files that no new document came out of

Row = dict[str, Any]
SEEN = ("increment", "location", "path", "status", "content_sha256", "object")
"""Columns of `arrivals` that `Gone.of` reads."""


@dataclass(frozen=True)
class Gone:
    """Files and kept bytes that go with a deleted increment, beside its rows.

    Attributes:
        files: location and SHA-256 of each of its files, joined; those landed elsewhere with them are not here.
        objects: SHA-256 of bytes kept for this increment alone.
        later: other increments with arrivals of such a file or such bytes.
    """

    files: frozenset[str]
    objects: frozenset[str]
    later: tuple[int, ...]

    @classmethod
    def of(cls, arrivals: pa.Table, increment: int) -> Gone:
        """What goes with an increment, by all arrivals of its dataset; the same before and after its deletion.

        Bytes of a later reading of its files from which nothing landed go too, since they hold the same documents.
        """
        of_files = arrivals.filter(pc.field("path").is_valid() & pc.field("content_sha256").is_valid())
        of_increment, status = pc.field("increment") == increment, pc.field("status")
        kept = (status == "rejected") & pc.field("object").is_valid()
        brought = of_files.filter(of_increment & (status.isin(["landed", "deleted"]) | kept))
        others = of_files.filter(~of_increment & status.isin(["landed", "rejected"]))
        read_again = of_files.filter(~of_increment & status.isin(_READ_AGAIN))
        same_places = read_again.filter(pc.is_in(read_again["location"], brought["location"].combine_chunks()))
        files = frozenset(_files(brought)) - frozenset(_files(others))
        hashes = {*brought["content_sha256"].to_pylist(), *same_places["content_sha256"].to_pylist()}
        objects = frozenset(hashes - set(others["content_sha256"].to_pylist()))
        named = read_again.filter(_named(read_again, files, objects))
        return cls(files, objects, tuple(sorted(set(named["increment"].to_pylist()))))

    def updated(self, rows: pa.Table) -> pa.Table:
        """The arrivals of another increment after the deletion: no row names deleted bytes as kept any more.

        Rows of a deleted file read again there, without result, get the reason `deleted`.
        """
        same = pc.is_in(pa.array(_files(rows), pa.string()), pa.array(sorted(self.files), pa.string()))
        again = pc.is_in(rows["status"], pa.array(_READ_AGAIN, rows.schema.field("status").type))
        gone = pc.and_(again, _named(rows, self.files, self.objects))
        for name, mask in (("object", gone), ("reason", pc.and_(again, same)), ("detail", pc.and_(again, same))):
            at = rows.schema.get_field_index(name)
            value = pa.scalar(_WHY[name], rows.schema.field(at).type)
            rows = rows.set_column(at, rows.schema.field(at), pc.if_else(mask, value, rows[name]))
        return rows


def _files(rows: pa.Table) -> list[str]:
    pairs = zip(rows["location"].to_pylist(), rows["content_sha256"].to_pylist(), strict=True)
    return [f"{location}\0{sha256}" for location, sha256 in pairs]


def _named(rows: pa.Table, files: Iterable[str], objects: Iterable[str]) -> pa.ChunkedArray:
    """A mask of arrivals: those of the given files, and those with kept bytes among the given objects."""
    same = pc.is_in(pa.array(_files(rows), pa.string()), pa.array(sorted(files), pa.string()))
    kept = pc.is_in(rows["content_sha256"].cast(pa.string()), pa.array(sorted(objects), pa.string()))
    return pc.or_(same, pc.and_(kept, pc.is_valid(rows["object"])))


def tombstones(arrivals: Iterable[Mapping[str, Any]], documents: Iterable[Mapping[str, Any]]) -> list[Row]:
    """The arrivals of a deleted increment.

    Args:
        arrivals: its rows.
        documents: doc_id, repository and path of its documents.

    Returns:
        The rows to replace them, by location.
    """
    rows = []
    for row in arrivals:  # the row of a whole repository, without a path, stays
        has_bytes = row["status"] == "landed" or (row["status"] == "rejected" and row["object"] is not None)
        rows.append({**row, **_WHY} if has_bytes and row["path"] is not None else dict(row))
    named = {(row["repository"], row["path"]) for row in rows if row["doc_id"] is not None}
    files: dict[tuple[str | None, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row["status"] == "deleted":
            files[row["repository"], row["path"]].append(row)
    for document in sorted(documents, key=lambda row: str(row["doc_id"])):
        repository, path, doc_id = document["repository"], document["path"], document["doc_id"]
        at_path = files.get((repository, path), [])
        if len(at_path) == 1 and (repository, path) not in named:
            at_path[0]["doc_id"] = doc_id
        else:
            stem = path.partition("#")[0]
            of = at_path or files.get((repository, stem)) or files.get((None, stem)) or [{"location": path}]
            own_path = path if (repository, path) not in named else None
            place = {"location": f"{of[0]['location']}#record:{doc_id}", "repository": repository, "path": own_path}
            unset = dict.fromkeys(rows[0]) if rows else {}
            rows.append(unset | {"increment": rows[0]["increment"]} | _WHY | place | {"doc_id": doc_id})
        named.add((repository, path))
    return sorted(rows, key=lambda row: str(row["location"]))
