"""Generations of a packed table: which of its snapshots are served, and what each of them was made with.

A generation begins when an ordinal comes to mean another row: a table that is packed anew. Blends and tags pin
snapshots, so older generations go on being served beside the head of main:

    generation a   S1 <- S2           a blend pins S1, a tag names S2: S2 stands for both, ordinals mean the same in it
    generation b   S2 <- S3 <- S4     the head of main stands for S3 and for whatever pinned it

An excision gives each of these heads a successor of its own; the property `headrace.successors` says which.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot

from spark_jobs.lake.session.catalogue import GENERATION_PROPERTY

SUCCESSORS_PROPERTY = "headrace.successors"
EXCISES = "headrace.excises"  # in a summary: the snapshot that documents were excised from
FACTS = (
    "headrace.window-tokens",
    "headrace.tokenizer-sha256",
    "headrace.vocabulary-size",
    "headrace.end-of-document-id",
    "headrace.padding-id",
    "headrace.beginning-of-document-id",
    GENERATION_PROPERTY,
)


@dataclass(frozen=True)
class ServedHead:
    """A snapshot that is served, for itself and for older ones in which its ordinals mean the same rows.

    Attributes:
        snapshot: the newest one.
        covered: ids of all that it stands for, its own included.
        is_main: whether it is the head of main.
    """

    snapshot: Snapshot
    covered: frozenset[int]
    is_main: bool


def served_heads(table: IcebergTable, pinned: Collection[int] = ()) -> list[ServedHead]:
    """The head of main, then those of whatever else is pinned, the newest first.

    Args:
        table: a packed table.
        pinned: ids of snapshots that somebody pins without a tag; those of tags are known.
    """
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    later = successors(table)
    tagged = {ref.snapshot_id for ref in table.refs().values() if ref.snapshot_ref_type == SnapshotRefType.TAG}
    served = {later.get(snapshot_id, snapshot_id) for snapshot_id in tagged | set(pinned)} & by_id.keys()
    main = table.current_snapshot()
    newest_first = sorted((by_id[one] for one in served), key=lambda one: one.sequence_number or 0, reverse=True)
    found: list[ServedHead] = []
    known: set[int] = set()
    for snapshot in ([main] if main is not None else []) + newest_first:
        if snapshot.snapshot_id not in known:
            covered = frozenset(_same_rows(table, snapshot)) - known
            known |= covered
            found.append(ServedHead(snapshot, covered, snapshot is main))
    return found


def successors(table: IcebergTable) -> dict[int, int]:
    """Snapshots that are served from a later one since documents were excised.

    One that was once given a successor of another generation has none: nobody can be served from that.
    """
    found = {int(old): int(new) for old, new in json.loads(table.properties.get(SUCCESSORS_PROPERTY, "{}")).items()}
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    return {
        old: new
        for old, new in found.items()
        if old not in by_id or new not in by_id or _generation(table, by_id[old]) == _generation(table, by_id[new])
    }


def with_successor(table: IcebergTable, head: ServedHead, successor: int) -> dict[int, int]:
    """The mapping of successors after a head got one."""
    later = successors(table)
    moved = {old: successor for old, new in later.items() if new in head.covered}
    return {**later, **moved, **dict.fromkeys(sorted(head.covered), successor)}


def properties_at(table: IcebergTable, snapshot: Snapshot) -> dict[str, str]:
    """Properties of the table as they were when a snapshot was written; the present ones for what nobody says."""
    return {**table.properties, **stamp(table, snapshot)}


def stamp(table: IcebergTable, snapshot: Snapshot) -> dict[str, str]:
    """What its summary says of a snapshot's rows and generation, for a successor to say it too.

    Compaction says nothing, so what it compacted is asked; if expiry has taken that, nobody knows the generation.
    """
    asked: Snapshot | None = snapshot
    while asked is not None and asked.summary is not None:
        said = asked.summary.additional_properties
        upkeep = asked.summary.operation == Operation.REPLACE or EXCISES in said
        if GENERATION_PROPERTY in said or not upkeep:
            known = {name: said[name] for name in FACTS if name in said}
            return {GENERATION_PROPERTY: table.properties.get(GENERATION_PROPERTY, ""), **known}
        parent = asked.parent_snapshot_id
        asked = table.snapshot_by_id(parent) if parent is not None else None
    return {}


def _generation(table: IcebergTable, snapshot: Snapshot) -> str | None:
    return stamp(table, snapshot).get(GENERATION_PROPERTY)


def _same_rows(table: IcebergTable, head: Snapshot) -> list[int]:
    """Ids from a snapshot down to the first of its generation, or to where nobody knows it any more."""
    generation = _generation(table, head)
    found = [head.snapshot_id]
    while generation is not None and head.parent_snapshot_id is not None:
        parent = table.snapshot_by_id(head.parent_snapshot_id)
        if parent is None or _generation(table, parent) != generation:
            break
        found.append(parent.snapshot_id)
        head = parent
    return found
