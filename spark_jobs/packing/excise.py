"""Excise: documents leave a packed table for good, and no other row changes its ordinal.

    list      in `system.excisions`, so that whatever is packed later leaves the documents out (`lake.excisions`)
    find      windows that hold the documents, by their segments; the files that hold those windows
    rewrite   these files alone, on a branch, audited like any write
    publish   one commit: main moves to the new snapshot, and the property `headrace.successors` says of every snapshot
              of this generation that the new one is served in its place
    record    data versions of the increments touched, in the ledger

A crash leaves the table as it was before the one commit, or as it is after it. Tags (what blends have pinned) are then
moved to the successor, so that maintenance may drop the old files; whatever a crash left of that is done by the next
call. The property `headrace.excised` counts the documents taken out of the table since it was made; Blender tells it.
Texts, tokens and all else that is known of the documents stay in their own tables (docs/packing.md says what to do).
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import AssertTableUUID, SetSnapshotRefUpdate

from spark_jobs.exceptions import InputError, StepRunError
from spark_jobs.lake.catalogue import GENERATION_PROPERTY, catalogue_errors, commit, load_table, spark_identifier
from spark_jobs.lake.digest import DataVersion, digest_columns, row_hash, version_of
from spark_jobs.lake.excisions import record_excisions
from spark_jobs.lake.failures import failure_line
from spark_jobs.lake.lease import table_leases
from spark_jobs.lake.materialization import Materialization
from spark_jobs.lake.materialize import Lake
from spark_jobs.lake.place import Place
from spark_jobs.lake.spark_types import spark_schema
from spark_jobs.lake.tables import Check, Table
from spark_jobs.lake.write import Target, Written, discard, publish, require_passed, write_to_branch
from spark_jobs.packing.excision import excise_windows
from spark_jobs.packing.ordinals import OrdinalRun, find_windows, ordinal_runs, packed_facts
from spark_jobs.packing.packed_table import packed_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SUCCESSORS_PROPERTY = "headrace.successors"
EXCISED_PROPERTY = "headrace.excised"


@dataclass(frozen=True)
class Excised:
    """What an excision did to one table.

    Attributes:
        identifier: the table.
        doc_ids: documents that were found, ascending; the others were not in it.
        ordinals: windows that were changed, ascending.
        tokens_removed: tokens that went, specials included.
        files_rewritten: data files.
        rows_rewritten: rows in them.
        old_snapshot_id: head of main before; None where nothing was found.
        new_snapshot_id: its successor.
        tags_moved: tags that now name the successor.
    """

    identifier: str
    doc_ids: tuple[str, ...] = ()
    ordinals: tuple[int, ...] = ()
    tokens_removed: int = 0
    files_rewritten: int = 0
    rows_rewritten: int = 0
    old_snapshot_id: int | None = None
    new_snapshot_id: int | None = None
    tags_moved: tuple[str, ...] = ()


def successors(table: IcebergTable) -> dict[int, int]:
    """Snapshots that are served from a later one since documents were excised."""
    found = json.loads(table.properties.get(SUCCESSORS_PROPERTY, "{}"))
    return {int(old): int(new) for old, new in found.items()}


def excise(lake: Lake, identifier: str, doc_ids: Collection[str]) -> Excised:
    """Take documents out of a packed table, and keep them out of what is packed into it later.

    Raises:
        InputError: there is no such table.
        ConfigError: it is no packed table.
        AuditError: what was rewritten failed a check; the table is as it was.
        LeaseError: another writer holds the table.
        StepRunError: Spark failed; the table is as it was.
    """
    with catalogue_errors(), table_leases(lake.catalogue, [identifier], lake.wait_seconds):
        table = load_table(lake.catalogue, identifier)
        if table is None or table.current_snapshot() is None:
            raise InputError(
                f"table {identifier} is not in the lake, or empty; `headrace table list` shows those there"
            )
        packed_facts(identifier, table)
        wanted = frozenset(doc_ids)
        record_excisions(lake.catalogue, identifier, wanted, lake.run_id)
        runs: dict[OrdinalRun, None] = {}
        found = Excised(identifier)
        ordinals, seen, tokens = [], set(), 0
        for run, ordinal, segments in find_windows(identifier, table, wanted):
            gone = [segment for segment in segments if segment["doc_id"] in wanted]
            runs[run] = None
            ordinals.append(ordinal)
            seen |= {segment["doc_id"] for segment in gone}
            tokens += sum(segment["token_count"] for segment in gone)
        if runs:
            found = _rewrite(lake, identifier, table, list(runs), sorted(seen))
            found = replace(found, ordinals=tuple(ordinals), tokens_removed=tokens)
        return replace(found, tags_moved=_move_tags(lake.catalogue, identifier))


def _rewrite(lake: Lake, identifier: str, table: IcebergTable, runs: list[OrdinalRun], doc_ids: list[str]) -> Excised:
    """Rewrite some files without some documents, and publish."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    started = time.monotonic()
    facts = packed_facts(identifier, table)
    lake.ledger.refresh()
    lake.ledger.settle([identifier])
    before = lake.ledger.increments(identifier)
    base = table.metadata.current_snapshot_id
    predicate = " OR ".join(f"(ordinal >= {run.start}L AND ordinal < {run.end}L)" for run in runs)
    declared = excised_table(facts.dataset, facts.window_tokens)
    target = Target(identifier, declared, Place("", predicate, predicate), laid_out=True)
    generation = table.properties.get(GENERATION_PROPERTY, "")
    summary = {"headrace.step": "excise", "headrace.run-id": lake.run_id, "headrace.excises": str(base)}
    spark = lake.session()
    written: Written | None = None
    try:
        rows = spark.table(spark_identifier(identifier)).where(predicate)
        frame = _rewritten(rows, table, runs, doc_ids, facts.window_tokens)
        written = write_to_branch(
            spark, lake.catalogue, table, target, frame, {**summary, GENERATION_PROPERTY: generation}
        )
        require_passed(written)
        ordinal_runs(identifier, lake.catalogue.load_table(identifier), written.snapshot_id)
        versions = _versions(spark, identifier, written, declared, predicate, before)
    except (PySparkException, Py4JError, OSError) as error:
        if written is not None:
            discard(lake.catalogue, written)
        raise StepRunError(f"{identifier}: {failure_line(error)}") from error
    except Exception:  # whatever it is, what was written must not stay
        if written is not None:
            discard(lake.catalogue, written)
        raise
    first = min((number for number, version in versions.items() if version != before[number].data_version), default=0)
    # An increment of a numbered table counts only if it is no older than those before it, so later ones come along.
    recorded = [
        _row(before[number], versions[number], written, lake, time.monotonic() - started)
        for number in before
        if number >= first
    ]
    mapping = _mapping(table, generation, written.snapshot_id)
    properties = {
        SUCCESSORS_PROPERTY: json.dumps(mapping),
        EXCISED_PROPERTY: str(int(table.properties.get(EXCISED_PROPERTY, "0")) + len(doc_ids)),
    }
    publish(lake.catalogue, written, replace(recorded[-1], inputs={}), properties)
    lake.ledger.record(recorded)
    return Excised(
        identifier,
        tuple(doc_ids),
        files_rewritten=len(runs),
        rows_rewritten=written.row_count,
        old_snapshot_id=base,
        new_snapshot_id=written.snapshot_id,
    )


def excised_table(dataset: str, window_tokens: int) -> Table:
    """A packed table as it is checked after an excision: windows may be empty, and some tokens are gone."""
    declared = packed_table(dataset, window_tokens)
    others = tuple(check for check in declared.checks if check.name != "filled_window")
    filled = Check(
        "filled_window",
        f"token_count between 0 and {window_tokens} and (size(segments) = 0) = (token_count = 0)",
        "no window is fuller than L, and one without tokens has no segment",
    )
    return replace(declared, checks=(*others, filled), key=(), proofs=())


def _rewritten(
    rows: DataFrame, table: IcebergTable, runs: list[OrdinalRun], doc_ids: list[str], window_tokens: int
) -> DataFrame:
    """The rows of the files without the documents, each file's in a partition of its own and in order."""
    from pyspark.sql import functions as F

    ends = ", ".join(f"{run.end}L" for run in runs)
    file = F.expr(f"cast(size(filter(array({ends}), e -> e <= ordinal)) as int)")
    ddl = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in rows.schema.fields)
    change = functools.partial(
        excise_windows,
        doc_ids=doc_ids,
        window_tokens=window_tokens,
        padding_id=int(table.properties["headrace.padding-id"]),
    )
    return rows.mapInArrow(change, ddl).repartitionById(len(runs), file).sortWithinPartitions("ordinal")


def _versions(
    spark: SparkSession,
    identifier: str,
    written: Written,
    declared: Table,
    predicate: str,
    before: Mapping[int, Materialization],
) -> dict[int, DataVersion]:
    """Data versions of all increments after the excision: versions add up, so only rewritten rows are read."""
    old = _by_increment(spark.table(spark_identifier(identifier)).where(predicate), declared)
    new = _by_increment(spark.table(spark_identifier(identifier, written.branch)).where(predicate), declared)
    found = {}
    for number, row in before.items():
        gone, come, version = old.get(number, DataVersion()), new.get(number, DataVersion()), row.data_version
        found[number] = DataVersion(
            version.count - gone.count + come.count,
            version.sum - gone.sum + come.sum,
            version.xor ^ gone.xor ^ come.xor,
        )
    return found


def _by_increment(rows: DataFrame, declared: Table) -> dict[int, DataVersion]:
    """Data version of the rows of each increment."""
    columns = digest_columns(row_hash(spark_schema(declared)))
    found = rows.groupBy("increment").agg(*(column.alias(name) for name, column in columns.items())).collect()
    return {row["increment"]: version_of({name: row[name] for name in columns}) for row in found}


def _row(
    before: Materialization, version: DataVersion, written: Written, lake: Lake, seconds: float
) -> Materialization:
    """The ledger's row of an increment, as it was computed but for what was excised."""
    return replace(
        before,
        data_version=version,
        snapshot_id=written.snapshot_id,
        sequence_number=written.sequence_number,
        seconds=round(seconds, 3),
        run_id=lake.run_id,
    )


def _mapping(table: IcebergTable, generation: str, successor: int) -> dict[str, str]:
    """Every snapshot of this generation, and those that led to one, to the successor."""
    found = {str(old): str(successor) for old in successors(table)}
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    snapshot = table.current_snapshot()
    while snapshot is not None:
        own = snapshot.summary.additional_properties.get(GENERATION_PROPERTY) if snapshot.summary else None
        if own is not None and own != generation:
            break
        found[str(snapshot.snapshot_id)] = str(successor)
        parent = snapshot.parent_snapshot_id
        snapshot = by_id.get(parent) if parent is not None else None
    return found


def _move_tags(catalogue: Catalog, identifier: str) -> tuple[str, ...]:
    """Point tags of snapshots that have a successor to it."""
    moved: list[str] = []

    def updates(now: IcebergTable) -> tuple[SetSnapshotRefUpdate, ...]:
        later = successors(now)
        moving = {
            name: later[ref.snapshot_id]
            for name, ref in now.refs().items()
            if ref.snapshot_ref_type == SnapshotRefType.TAG and ref.snapshot_id in later
        }
        moved[:] = sorted(moving)
        return tuple(
            SetSnapshotRefUpdate(
                ref_name=name,
                type=SnapshotRefType.TAG,
                snapshot_id=snapshot_id,
                max_ref_age_ms=None,
                max_snapshot_age_ms=None,
                min_snapshots_to_keep=None,
            )
            for name, snapshot_id in moving.items()
        )

    commit(catalogue, identifier, lambda now: (AssertTableUUID(uuid=now.metadata.table_uuid),), updates)
    return tuple(moved)
