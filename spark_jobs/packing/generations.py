"""Generations of a packed table: which snapshots are served, and with which properties each was written.

Within a generation an ordinal means one row; packing the table anew begins the next generation. Blends and
tags pin snapshots, so older generations are served beside the head of main:

    generation a   S1 <- S2           a blend pins S1, a tag names S2: S2 serves both, since ordinals mean the same rows
    generation b   S2 <- S3 <- S4     the head of main, S4, also serves blends pinning S3

An excision gives each of these heads a successor of its own; the property `headrace.successors` says which. Where
documents were only replaced by newer revisions, the head of main alone is rewritten (S5, of the same generation), and
S4 is still served for blends pinning it or S3. The property `headrace.named-rows` records the row counts of the
snapshots and tags with a successor served for them: that of S2 has more rows than a blend pinning S1 may read.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertTableUUID, SetSnapshotRefUpdate

from headrace.tables.catalogue import commit, tag_named
from headrace.tables.generations import generation_of, named_rows, successors

KEEPS_PARENT = "headrace.keeps-parent"  # in a summary: that snapshot is still served to blends that pin it


@dataclass(frozen=True)
class ServedHead:
    """A served snapshot, with the older ones also served by it since its ordinals mean the same rows.

    Attributes:
        snapshot: the snapshot.
        covered: ids of all snapshots served by it, its own included.
        is_main: whether it is the head of main.
    """

    snapshot: Snapshot
    covered: frozenset[int]
    is_main: bool


def served_heads(table: IcebergTable, pinned: Collection[int] = ()) -> list[ServedHead]:
    """The served snapshots: the head of main, then one for each older pinned generation, the newest first.

    Args:
        table: a packed table.
        pinned: ids of snapshots pinned by blends; tagged ones are found without it.
    """
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    later = successors(table)
    tagged = set(tags_of(table).values())
    served = {later.get(snapshot_id, snapshot_id) for snapshot_id in tagged | set(pinned)} & by_id.keys()
    main = table.current_snapshot()
    newest_first = sorted(
        (by_id[snapshot] for snapshot in served), key=lambda snapshot: snapshot.sequence_number or 0, reverse=True
    )
    heads: list[ServedHead] = []
    covered_so_far: set[int] = set()
    for snapshot in ([main] if main is not None else []) + newest_first:
        if snapshot.snapshot_id not in covered_so_far:
            covered = frozenset(_same_rows(table, snapshot)) - covered_so_far
            covered_so_far |= covered
            heads.append(ServedHead(snapshot, covered, snapshot is main))
    return heads


def with_successor(table: IcebergTable, head: ServedHead, successor: int) -> dict[int, int]:
    """`successors` after the head got the given successor."""
    later = successors(table)
    moved = {old: successor for old, new in later.items() if new in head.covered}
    return {**later, **moved, **dict.fromkeys(sorted(head.covered), successor)}


def with_named_rows(table: IcebergTable, head: ServedHead, successor: int) -> dict[str, tuple[str, int]]:
    """`headrace.named-rows` after the head got a successor: snapshot id or tag -> (served id, its own row count)."""
    noted = {name: (served, int(rows)) for name, (served, rows) in named_rows(table).items()}
    covered = {str(snapshot_id) for snapshot_id in head.covered}
    by_name = {name: (str(successor), rows) for name, (served, rows) in noted.items() if served in covered}
    for snapshot_id in head.covered:
        snapshot = table.snapshot_by_id(snapshot_id)
        rows = snapshot.summary.additional_properties.get("total-records") if snapshot and snapshot.summary else None
        if rows is None:
            continue
        tags = (name for name, named in tags_of(table).items() if named == snapshot_id)
        for name in (str(snapshot_id), *tags):
            by_name.setdefault(name, (str(successor), int(rows)))
    return {**noted, **by_name}


def _same_rows(table: IcebergTable, head: Snapshot) -> list[int]:
    """Ids of a snapshot and its ancestors of the same generation, newest first.

    Stops below a rewrite for newer revisions, since the snapshot before that has other rows.
    """
    generation = generation_of(table, head)
    ids = [head.snapshot_id]
    while generation is not None and head.parent_snapshot_id is not None:
        if head.summary is not None and KEEPS_PARENT in head.summary.additional_properties:
            break
        parent = table.snapshot_by_id(head.parent_snapshot_id)
        if parent is None or generation_of(table, parent) != generation:
            break
        ids.append(parent.snapshot_id)
        head = parent
    return ids


def tags_of(table: IcebergTable) -> dict[str, int]:
    """Tag name -> id of its snapshot."""
    return {
        name: ref.snapshot_id
        for name, ref in sorted(table.refs().items())
        if ref.snapshot_ref_type == SnapshotRefType.TAG
    }


def move_tags(catalogue: Catalog, identifier: str) -> None:
    """Point the tags of snapshots with a successor to the successor."""

    def updates(now: IcebergTable) -> tuple[SetSnapshotRefUpdate, ...]:
        later = successors(now)
        return tuple(tag_named(name, later[old]) for name, old in tags_of(now).items() if old in later)

    commit(catalogue, identifier, lambda now: (AssertTableUUID(uuid=now.metadata.table_uuid),), updates)
