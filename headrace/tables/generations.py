"""What is served in place of a snapshot of a packed table since documents were excised from it.

    headrace.successors     snapshot id -> the later snapshot of the same ordinals, without the documents
    headrace.named-rows     snapshot id or tag -> what is served for it, and the rows that it had itself

`spark_jobs.packing.generations` says which snapshots get one, and writes both.
"""

from __future__ import annotations

import json

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot

from headrace.tables.exceptions import PackedTableError
from headrace.tables.window_facts import GENERATION_PROPERTY, stamp

SUCCESSORS_PROPERTY = "headrace.successors"
NAMED_ROWS_PROPERTY = "headrace.named-rows"
EXCISED_PROPERTY = "headrace.excised"  # documents taken out since the table was made


def successors(table: IcebergTable) -> dict[int, int]:
    """Snapshot id -> id of the later snapshot in its place since an excision.

    A successor of another generation is left out, since its ordinals mean other rows: an excision makes a right one.
    """
    return {old: new for old, new in _noted_successors(table).items() if _have_same_rows(table, old, new)}


def successor_of(table: IcebergTable, snapshot_id: int) -> int:
    """Id of the snapshot served for another: itself, unless documents were excised from it.

    Raises:
        PackedTableError: its successor is of another generation. Without it the documents would be served again.
    """
    successor = _noted_successors(table).get(snapshot_id, snapshot_id)
    if successor != snapshot_id and not _have_same_rows(table, snapshot_id, successor):
        raise PackedTableError(
            f"table {'.'.join(table.name())}: documents were excised from snapshot {snapshot_id}, and its successor "
            f"{successor} is of another generation; excise them again, or name a later snapshot"
        )
    return successor


def _noted_successors(table: IcebergTable) -> dict[int, int]:
    noted = json.loads(table.properties.get(SUCCESSORS_PROPERTY, "{}"))
    return {int(old): int(new) for old, new in noted.items()}


def _have_same_rows(table: IcebergTable, old: int, new: int) -> bool:
    """Whether ordinals mean the same rows in two snapshots; so they do where one or what describes it has expired."""
    there = [snapshot for snapshot in map(table.snapshot_by_id, (old, new)) if snapshot is not None]
    return len({generation_of(table, snapshot) for snapshot in there} - {None}) <= 1


def rows_noted(table: IcebergTable, reference: str, snapshot_id: int) -> int | None:
    """The rows of a snapshot, or of what a tag named, before documents were excised; None if none is noted.

    Args:
        table: of the snapshot.
        reference: id of a snapshot, or a tag.
        snapshot_id: what is served for it now; a tag moved by somebody since is another one.
    """
    served, rows = named_rows(table).get(reference, ("", 0))
    return int(rows) if served == str(snapshot_id) or (served and reference.isdecimal()) else None


def named_rows(table: IcebergTable) -> dict[str, tuple[str, int]]:
    """Snapshot id or tag -> (id that is served for it, its rows before documents were excised)."""
    return dict(json.loads(table.properties.get(NAMED_ROWS_PROPERTY, "{}")))


def generation_of(table: IcebergTable, snapshot: Snapshot) -> str | None:
    """The packing behind a snapshot's ordinals; None where it has expired."""
    return stamp(table, snapshot).get(GENERATION_PROPERTY)
