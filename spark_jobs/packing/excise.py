"""Excise: remove documents from a packed table for good; every row keeps its ordinal.

    list      add the documents to `system.excisions`, so that they are never packed again (`lake.run.excisions`)
    find      windows with segments of the documents, in every served snapshot: the head of main, and older
              generations pinned by blends or tags (`generations`)
    rewrite   only the files of those windows, on a branch from the snapshot, audited like any write
    publish   one commit for each snapshot: its successor becomes the head of main, or takes over the tags of the
              snapshot, and the property `headrace.successors` says that it is served instead of the snapshot. Where
              newer revisions replace documents, the head of main alone is rewritten, and blends that pin the
              snapshot before it still get that one
    record    for main, the data versions of the changed increments, in the ledger

After a crash each of these snapshots is as before its one commit or as after it; calling again does the rest. Tags (set
by blends for what they pin) name the successors afterwards, so that maintenance may delete the old files. The property
`headrace.excised` counts the documents excised since the table was made; Blender reports it. Texts, tokens and other
tables still have the documents (docs/feed/packing.md says what to do about them).
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan, Or
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)

from headrace.tables.catalogue import commit, load_table, tag_named
from headrace.tables.cells import CELL_COLUMN
from headrace.tables.generations import EXCISED_PROPERTY, NAMED_ROWS_PROPERTY, SUCCESSORS_PROPERTY
from headrace.tables.ordinals import OrdinalRun
from headrace.tables.window_facts import EXCISES, GENERATION_PROPERTY, PROPERTY_OF_FACT, properties_at, stamp
from spark_jobs.exceptions import InputError, StepRunError
from spark_jobs.lake.declare.step import ArrowRows
from spark_jobs.lake.declare.tables import Check, Table
from spark_jobs.lake.engine.arrangement import dealt
from spark_jobs.lake.files.branches import Written, branch_of_a_writer, publish, require_passed
from spark_jobs.lake.files.rows import table_rows
from spark_jobs.lake.files.write import WriteTarget, write_to_branch
from spark_jobs.lake.ledger.data_version import FORM, DataVersion
from spark_jobs.lake.ledger.digests import digest, digests
from spark_jobs.lake.ledger.lease import is_of_a_writer, table_leases
from spark_jobs.lake.ledger.materialization import Materialization, TableSlice
from spark_jobs.lake.plan.excisions import excisions_in, record_excisions
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.lake.session.catalogue import catalogue_errors
from spark_jobs.lake.session.spark_errors import failure_line
from spark_jobs.packing.generations import (
    KEEPS_PARENT,
    ServedHead,
    move_tags,
    served_heads,
    tags_of,
    with_named_rows,
    with_successor,
)
from spark_jobs.packing.ordinals import find_windows, ordinal_runs, packed_facts
from spark_jobs.packing.packed_table import packed_table
from spark_jobs.packing.windows.assemble import is_filled_or_empty
from spark_jobs.packing.windows.close_up import excise_windows
from spark_jobs.packing.windows.masks import MASK_RULE, TRAINABLE
from spark_jobs.spark_sql import DataFrame, F, SparkSession


@dataclass(frozen=True)
class Succeeded:
    """The excision in one snapshot: its generation, the changed windows (ascending), what was removed and rewritten."""

    generation: str
    ordinals: tuple[int, ...]
    tokens_removed: int
    files_rewritten: int
    rows_rewritten: int
    old_snapshot_id: int
    new_snapshot_id: int


@dataclass(frozen=True)
class Excised:
    """The result of an excision in one table.

    Attributes:
        identifier: the table.
        doc_ids: requested documents of the table, ascending.
        ordinals: changed windows of the head of main, ascending.
        tokens_removed: tokens removed from the head of main, specials included.
        files_rewritten: rewritten data files of the head of main.
        rows_rewritten: rows in them.
        old_snapshot_id: head of main before; None where nothing was found.
        new_snapshot_id: its successor.
        tags_moved: tags moved to a successor.
        earlier: the excision in other snapshots, pinned by blends or tags.
        left: branches still with the documents, a message each.
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
    earlier: tuple[Succeeded, ...] = ()
    left: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Holding:
    """The windows and files with the documents in one served snapshot."""

    head: ServedHead
    runs: tuple[OrdinalRun, ...]
    doc_ids: frozenset[str]
    ordinals: tuple[int, ...]
    token_count: int


def excise(
    lake: Lake, identifier: str, doc_ids: Collection[str], pinned: Collection[int] = (), *, head_only: bool = False
) -> Excised:
    """Remove documents from a packed table, and keep them from being packed into it again.

    Args:
        lake: where the table is.
        identifier: the table.
        doc_ids: the documents.
        pinned: ids of snapshots pinned by blends; tagged ones are found without it.
        head_only: rewrite the head of main alone. Blends pinning a snapshot before it, and tags, keep its rows.

    Raises:
        InputError: the table does not exist or is empty.
        ConfigError: it is no packed table.
        AuditError: the rewritten rows failed a check; the snapshot is served unchanged.
        LeaseError: another writer holds the table.
        StepRunError: Spark failed; the snapshot is served unchanged.
    """
    with catalogue_errors(), table_leases(lake.catalogue, [identifier], lake.wait_seconds) as leases:
        lake = replace(lake, leases=leases)
        table = load_table(lake.catalogue, identifier)
        if table is None or table.current_snapshot() is None:
            raise InputError(
                f"table {identifier} is not in the lake, or empty; `headrace table show` shows those there"
            )
        packed_facts(identifier, table)
        wanted = frozenset(doc_ids)
        if not head_only:
            record_excisions(lake.catalogue, identifier, wanted, lake.run_id)
        # Main comes last. A document counts as excised with the last snapshot that holds it, so it is counted once even
        # if a crash comes between two snapshots.
        heads = [head for head in served_heads(table, pinned) if head.is_main or not head_only]
        holdings = [_holding(identifier, table, head, wanted) for head in reversed(heads)]
        holdings = [holding for holding in holdings if holding.runs]
        tags = tags_of(table)
        excised = Excised(identifier, tuple(sorted(frozenset().union(*(holding.doc_ids for holding in holdings)))))
        for number, holding in enumerate(holdings):
            later = frozenset().union(*(other.doc_ids for other in holdings[number + 1 :]))
            done = _succeed(lake, identifier, holding, len(holding.doc_ids - later), head_only)
            if holding.head.is_main:
                facts = {name: value for name, value in vars(done).items() if name != "generation"}
                excised = replace(excised, **facts)
            else:
                excised = replace(excised, earlier=(done, *excised.earlier))
        if head_only:  # last: `supersede` skips listed documents, so a crash before the rewrite must not list them
            record_excisions(lake.catalogue, identifier, wanted, lake.run_id)
            return excised
        move_tags(lake.catalogue, identifier)
        after = lake.catalogue.load_table(identifier)
        moved = tuple(
            name for name, snapshot_id in tags_of(after).items() if tags.get(name, snapshot_id) != snapshot_id
        )
        return replace(excised, tags_moved=moved, left=tuple(_left(identifier, after, wanted)))


def _holding(identifier: str, table: IcebergTable, head: ServedHead, wanted: frozenset[str]) -> _Holding:
    """Find the windows and files of one snapshot with wanted documents."""
    runs: dict[OrdinalRun, None] = {}
    ordinals, holders, tokens = [], set(), 0
    for run, ordinal, segments in find_windows(identifier, table, wanted, snapshot_id=head.snapshot.snapshot_id):
        excised = [segment for segment in segments if segment["doc_id"] in wanted]
        runs[run] = None
        ordinals.append(ordinal)
        holders |= {segment["doc_id"] for segment in excised}
        tokens += sum(segment["token_count"] for segment in excised)
    return _Holding(head, tuple(runs), frozenset(holders), tuple(ordinals), tokens)


def _left(identifier: str, table: IcebergTable, wanted: frozenset[str]) -> Iterator[str]:
    """A message for each branch of a user still with the documents; rewriting it would undo the user's work."""
    for name, ref in sorted(table.refs().items()):
        if name != MAIN_BRANCH and ref.snapshot_ref_type == SnapshotRefType.BRANCH and not is_of_a_writer(name):
            windows = sum(1 for _ in find_windows(identifier, table, wanted, snapshot_id=ref.snapshot_id))
            if windows:
                yield (
                    f"branch {name} still has them in {windows} windows (snapshot {ref.snapshot_id}), somebody may be "
                    f"writing to it; drop it: ALTER TABLE lake.{identifier} DROP BRANCH {name}"
                )


def _succeed(lake: Lake, identifier: str, holding: _Holding, count: int, keeps_parent: bool) -> Succeeded:
    """Rewrite a served snapshot without its documents, and publish the result.

    It becomes the snapshot's successor, or with `keeps_parent` only a newer snapshot. `count` documents are added to
    the property `headrace.excised`.
    """
    started = time.monotonic()
    head = holding.head
    table = lake.catalogue.load_table(identifier)
    lake.ledger.refresh()
    lake.ledger.settle([identifier])
    before = lake.ledger.increments_there(identifier) if head.is_main else {}
    written, versions = _rewrite(lake, identifier, table, holding, before, keeps_parent)
    changed = {EXCISED_PROPERTY: str(int(table.properties.get(EXCISED_PROPERTY, "0")) + count)}
    if not keeps_parent:
        changed[SUCCESSORS_PROPERTY] = json.dumps(with_successor(table, head, written.snapshot_id))
        changed[NAMED_ROWS_PROPERTY] = json.dumps(with_named_rows(table, head, written.snapshot_id))
    if head.is_main:
        first = min(
            (number for number, version in versions.items() if version != before[number].data_version), default=0
        )
        # An increment of a numbered table is valid only if it is no older than those before it (`ledger.validity`), so
        # later increments are recorded again too.
        recorded = [
            _row(before[number], versions[number], written, lake, time.monotonic() - started)
            for number in before
            if number >= first
        ]
        stored = replace(recorded[-1], inputs=excisions_in(recorded[-1].inputs))
        with branch_of_a_writer(lake.catalogue, identifier, written.branch):
            publish(lake.catalogue, written, stored, changed, lake.leases)
        lake.ledger.record(recorded)
    else:
        with branch_of_a_writer(lake.catalogue, identifier, written.branch):
            _publish_beside_main(lake, written, head, changed)
    return Succeeded(
        properties_at(table, head.snapshot).get(GENERATION_PROPERTY, ""),
        holding.ordinals,
        holding.token_count,
        files_rewritten=len(holding.runs),
        rows_rewritten=written.row_count,
        old_snapshot_id=head.snapshot.snapshot_id,
        new_snapshot_id=written.snapshot_id,
    )


def _rewrite(
    lake: Lake,
    identifier: str,
    table: IcebergTable,
    holding: _Holding,
    before: Mapping[int, Materialization],
    keeps_parent: bool,
) -> tuple[Written, dict[int, DataVersion]]:
    """Rewrite, to a branch, a snapshot's files with the documents to files without them, and audit the result.

    Returns:
        The written snapshot, and the new data versions of the increments in `before`.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    facts = packed_facts(identifier, table)
    base = holding.head.snapshot
    predicate = " OR ".join(f"(ordinal >= {run.start}L AND ordinal < {run.end}L)" for run in holding.runs)
    more = [name in table.schema().column_names for name in (TRAINABLE, CELL_COLUMN, MASK_RULE)]
    declared = excised_table(facts.dataset, facts.window_tokens, *more)
    within = (And(GreaterThanOrEqual("ordinal", run.start), LessThan("ordinal", run.end)) for run in holding.runs)
    replaced = functools.reduce(Or, within)  # the files to replace, each of one run of ordinals
    target = WriteTarget(identifier, declared, TableSlice("", predicate, replaced), laid_out=True)
    summary = {"headrace.step": "excise", "headrace.run-id": lake.run_id, EXCISES: str(base.snapshot_id)}
    if keeps_parent:
        summary[KEEPS_PARENT] = "true"
    change = functools.partial(
        excise_windows,
        doc_ids=sorted(holding.doc_ids),
        window_tokens=facts.window_tokens,
        padding_id=int(properties_at(table, base)[PROPERTY_OF_FACT["padding_id"]]),
    )
    spark = lake.session()
    try:
        pinned = table_rows(spark, identifier, base.snapshot_id)
        rows = _rewritten(pinned.where(predicate), holding.runs, change)
        facts_of_it = {**summary, **stamp(table, base)}
        written = write_to_branch(spark, lake.catalogue, table, target, rows.to_frame(), facts_of_it, rows, base=base)
        with branch_of_a_writer(lake.catalogue, identifier, written.branch):
            require_passed(written)
            ordinal_runs(identifier, lake.catalogue.load_table(identifier), written.snapshot_id)
            versions = _versions(spark, identifier, written, predicate, before) if before else {}
    except (PySparkException, Py4JError, OSError) as error:
        raise StepRunError(f"{identifier}: {failure_line(error)}") from error
    return written, versions


def _publish_beside_main(lake: Lake, written: Written, head: ServedHead, properties: Mapping[str, str]) -> None:
    """Publish the successor of a snapshot beside main: move its tags there, or make one, in one commit."""

    def requirements(now: IcebergTable) -> tuple[TableRequirement, ...]:
        if lake.leases is not None:
            lake.leases.require(written.identifier)
        return (
            AssertTableUUID(uuid=now.metadata.table_uuid),
            AssertRefSnapshotId(ref=written.branch, snapshot_id=written.snapshot_id),
        )

    def updates(now: IcebergTable) -> tuple[TableUpdate, ...]:
        names = [name for name, snapshot_id in tags_of(now).items() if snapshot_id in head.covered]
        return (
            *(tag_named(name, written.snapshot_id) for name in names or [f"blend_{written.snapshot_id}"]),
            RemoveSnapshotRefUpdate(ref_name=written.branch),
            SetPropertiesUpdate(updates=dict(properties)),
        )

    commit(lake.catalogue, written.identifier, requirements, updates)


def excised_table(dataset: str, window_tokens: int, *more: bool) -> Table:
    """The declaration of a packed table for audits after an excision: windows may be empty, tokens missing."""
    declared = packed_table(dataset, window_tokens, *more)
    others = tuple(check for check in declared.checks if check.name != "filled_window")
    filled = Check(
        "filled_window",
        f"token_count between 0 and {window_tokens} and (size(segments) = 0) = (token_count = 0)",
        "no window is fuller than L, and one without tokens has no segment",
        # Without this a check is the engine's, and Sail deals the rows anew before it writes them: files of several
        # row groups would be torn.
        functools.partial(is_filled_or_empty, window_tokens=window_tokens),
    )
    return replace(declared, checks=(*others, filled), key=(), proofs=())


def _rewritten(
    rows: DataFrame, runs: Sequence[OrdinalRun], change: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
) -> ArrowRows:
    """Apply `change` to the rows of each file in a call of its own, by ordinal."""
    ends = ", ".join(f"{run.end}L" for run in runs)
    file = F.expr(f"cast(size(filter(array({ends}), e -> e <= ordinal)) as int)")
    ddl = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in rows.schema.fields)
    return dealt(rows, len(runs), file, ["ordinal"]).map(change, ddl)


def _versions(
    spark: SparkSession,
    identifier: str,
    written: Written,
    predicate: str,
    before: Mapping[int, Materialization],
) -> dict[int, DataVersion]:
    """Data version of each increment after the excision; they are additive, so only rewritten rows are read.

    Of an increment with a version of a former form all rows are read.
    """
    now = table_rows(spark, identifier, branch=written.branch)
    old, new = digests(table_rows(spark, identifier).where(predicate)), digests(now.where(predicate))
    versions = {}
    for number, row in before.items():
        versions[number] = row.data_version
        if old.get(number) == new.get(number):
            continue
        if row.data_version.form == FORM:
            versions[number] += new.get(number, DataVersion())
            versions[number] -= old.get(number, DataVersion())
        else:
            versions[number] = digest(now.where(f"increment = {number}"))
    return versions


def _row(
    before: Materialization, version: DataVersion, written: Written, lake: Lake, seconds: float
) -> Materialization:
    """The ledger's row of an increment after the excision: `before` with the new data version and snapshot."""
    return replace(
        before,
        data_version=version,
        snapshot_id=written.snapshot_id,
        sequence_number=written.sequence_number,
        seconds=round(seconds, 3),
        core_seconds=None,
        engine=None,
        run_id=lake.run_id,
    )
