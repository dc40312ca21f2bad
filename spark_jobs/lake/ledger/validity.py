"""The rows of the ledger about the present rows of a table.

Main is a chain of snapshots; a row is valid while its snapshot is in that chain. Two operations on tables make this
harder to tell:

    S1 <- S2 <- S3          expiry removes S1 and S2: rows older than the oldest snapshot left count as valid
     +- S2'                a rollback to S1 left S2' beside the chain. After the expiry S2' cannot be told from S2,
                            so the next writer records first that the rows of S2' are withdrawn (`Ledger.settle`)

Compaction adds snapshots to the chain that only rewrite files. Rows are followed in the order in which they were
recorded, because a write may remove increments: in a table with dense ordinals all later ones; in any other table all
later ones if each is marked to be computed anew (`Ledger.forget`). Until then marked increments are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation, Snapshot

from headrace.tables.window_facts import GENERATION_PROPERTY
from spark_jobs.exceptions import TableMismatchError
from spark_jobs.lake.declare.step import Scope
from spark_jobs.lake.ledger.materialization import Materialization
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY

_OF_STEPS = {scope.value for scope in Scope}


def valid_rows(table: IcebergTable, rows: Sequence[Materialization]) -> dict[str, Materialization]:
    """The valid ledger row of each place."""
    ids, cut = _chain_ids(table)
    uuid = str(table.metadata.table_uuid)
    taken_back = {row.snapshot_id for row in rows if row.is_withdrawal}
    numbered = GENERATION_PROPERTY in table.properties
    valid: dict[str, Materialization] = {}
    marked: set[str] = set()
    last = -1  # increments are nearly always written in order, where there is no later one to look for
    for row in rows:
        if row.is_withdrawal or row.table_uuid != uuid or not _holds(row, ids, cut, taken_back):
            continue
        number = _number(row.place)
        if number < last and (marked or numbered) and not row.is_forgotten:
            later = {
                place
                for place, other in valid.items()
                if _number(place) > number and other.sequence_number < row.sequence_number
            }
            removed = later if numbered or later <= marked else set()
            valid = {place: other for place, other in valid.items() if place not in removed}
            marked -= removed
        before = valid.get(row.place)
        if before is None or before.sequence_number <= row.sequence_number:
            valid[row.place] = row
            (marked.add if row.is_forgotten else marked.discard)(row.place)
        last = max(last, number)
    return valid


def rolled_back(table: IcebergTable, rows: Sequence[Materialization]) -> list[Materialization]:
    """Rows, not yet withdrawn, of rolled-back snapshots (main does not descend from them); one a snapshot."""
    ids, cut = _chain_ids(table)
    uuid = str(table.metadata.table_uuid)
    taken_back = {row.snapshot_id for row in rows if row.is_withdrawal}
    former = {
        row.snapshot_id: row
        for row in rows
        if row.table_uuid == uuid and row.snapshot_id not in taken_back and not _holds(row, ids, cut, taken_back)
    }
    return list(former.values())


def is_of_a_step(table: IcebergTable) -> bool:
    """Whether a step computes a table, so that the ledger knows its rows; to others commands append."""
    return table.properties.get(SCOPE_PROPERTY, Scope.WHOLE.value) in _OF_STEPS


def refuse_foreign(
    identifier: str,
    table: IcebergTable,
    rows: Sequence[Materialization],
    valid: Mapping[str, Materialization],
) -> None:
    """Refuse a table with rows of no materialization.

    To a table without a step commands append, as reviews to those of a dataset: it has another scope.

    Raises:
        TableMismatchError: the message says how to go back.
    """
    if not is_of_a_step(table):
        return
    chain = _chain(table)
    newest = max((row.sequence_number for row in rows), default=0)
    writes = [snapshot for snapshot in chain if not _rewrites_files(snapshot)]
    if writes:
        recorded = {row.snapshot_id for row in rows}
        foreign = writes[0].snapshot_id not in recorded and (writes[0].sequence_number or 0) > newest
    else:  # the chain begins with a compaction: its summary still counts the rows
        total = _summary(chain[0]).get("total-records") if chain else None
        foreign = total is not None and int(total) != sum(row.row_count for row in valid.values())
    if foreign:
        raise TableMismatchError(
            f"{identifier}: snapshot {(writes or chain)[0].snapshot_id} on main was not written by headrace; roll back "
            "to the one before (CALL lake.system.rollback_to_snapshot) or drop the table and run again"
        )


def _chain(table: IcebergTable) -> list[Snapshot]:
    """Snapshots from the head of main down to the oldest left by expiry."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    chain = []
    snapshot = table.current_snapshot()
    while snapshot is not None:
        chain.append(snapshot)
        snapshot = by_id.get(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id is not None else None
    return chain


def _chain_ids(table: IcebergTable) -> tuple[frozenset[int], int]:
    """Ids of the chain, and the sequence number of its oldest snapshot."""
    chain = _chain(table)
    cut = (chain[-1].sequence_number or 0) if chain else 0
    return frozenset(snapshot.snapshot_id for snapshot in chain), cut


def _holds(row: Materialization, ids: frozenset[int], cut: int, taken_back: set[int]) -> bool:
    return row.snapshot_id in ids or (row.sequence_number < cut and row.snapshot_id not in taken_back)


def _number(place: str) -> int:
    """A place as an increment; -1 of a partition and of a whole table."""
    return int(place) if place.isdigit() else -1


def _rewrites_files(snapshot: Snapshot) -> bool:
    """Whether a snapshot is a compaction, so that its rows are those of its parent."""
    return snapshot.summary is not None and snapshot.summary.operation == Operation.REPLACE


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary is not None else {}
