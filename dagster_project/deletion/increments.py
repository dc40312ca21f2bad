"""Delete an increment of a dataset for good: its texts and kept bytes go, and the same files do not land again.

    1. a row of `system.audit`           who, when, why
    2. excision                          its documents are out of every served snapshot, and of all later packing
    3. its arrivals                      say that it was deleted, before `documents` is emptied, which says of what
    4. its other rows                    of `documents`, `texts`, scores; the ledger has the decision in their keys
    5. later arrivals, kept objects      bytes that no other increment landed
    6. earlier snapshots                 expired, with the tags that hold the increment

Each part may be done again, so a killed deletion is finished by the same command. What corpora computed of it
is computed anew by their next run, as of any increment with changed rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType

from dagster_project.deletion.datasets import require_dataset
from dagster_project.deletion.excised_tables import excised_for_good, known_duplicates
from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.document_windows import packed_tables
from dagster_project.inspect.lake.corpus_facts import namespaces_with
from dagster_project.inspect.lake.dependent_blends import dependent_blends
from headrace.tables.catalogue import remove_ref, tables_in
from headrace.tables.quarantine import quarantine_of
from headrace.tables.window_facts import GENERATION_PROPERTY
from spark_jobs.lake.declare.step import Scope
from spark_jobs.lake.files.lookups import read_columns, read_rows
from spark_jobs.lake.files.maintenance import expire
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.files.replacement import replace_increment
from spark_jobs.lake.ledger.acts import AUDIT_TABLE, note_act
from spark_jobs.lake.ledger.lease import table_leases
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.plan.decisions import DELETE, deletion_of, is_deleted
from spark_jobs.lake.plan.reads import taken_increments
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY
from spark_jobs.sources.kinds import forget
from spark_jobs.sources.landing.deleted import SEEN, Gone, tombstones
from spark_jobs.sources.landing.derivations import forget_derived

if TYPE_CHECKING:
    from spark_jobs.lake.run.materialize import Lake

_OF_INCREMENTS = (Scope.INCREMENT.value, Scope.HISTORY.value)


@dataclass(frozen=True)
class IncrementDeletion:
    """The plan of an increment's deletion: what it deletes, and what depends on that.

    Attributes:
        dataset: its name.
        number: the increment.
        spaces: its namespaces, the quarantine first.
        tables: its rows by table; those emptied before, too.
        documents: its remaining documents.
        gone: its files and the bytes kept for it alone.
        packed: packed tables of the dataset.
        corpora: corpora with its documents.
        blends: blends of the dataset, by packed table.
        refs: tags, and branches of users, that hold it, by table.
        done: whether it was deleted before, as far as arrivals tell.
    """

    dataset: str
    number: int
    spaces: tuple[str, ...]
    tables: dict[str, int]
    documents: frozenset[str]
    gone: Gone
    packed: list[str]
    corpora: list[str]
    blends: dict[str, list[str]]
    refs: dict[str, list[str]]
    done: bool

    def lines(self) -> Iterator[str]:
        """The plan, line by line."""
        if self.done:
            yield f"{self.dataset}, increment {self.number}, was deleted before; what is left of that is done now"
        for table, rows in self.tables.items():
            if rows and not (self.done and table.endswith(".arrivals")):
                word = "rows say that it was deleted" if table.endswith(".arrivals") else "rows go"
                yield f"{table:<44} {rows:>12,} {word}"
        yield f"{len(self.gone.objects):,} hashes of bytes that no other increment landed; what is kept of them goes"
        if self.documents and self.packed:
            yield f"{len(self.documents):,} documents go from {', '.join(self.packed)}"
        for table, blends in self.blends.items():
            yield f"blends served from {table} with padding in their place: {', '.join(blends)}"
        for table, names in self.refs.items():
            yield f"{table}: {', '.join(names)} hold it; tags go, a branch must be dropped by whoever made it"
        for corpus in self.corpora:
            yield f"corpus {corpus} took it in: its next run computes anew what depends on it, earlier snapshots stay"

    def follow_up(self) -> str:
        """What to do for what corpora still hold, and for the old files of packed tables."""
        runs = f"headrace run {' '.join((self.dataset, *self.corpora))}"
        expired = f", then headrace maintain {' '.join(self.packed)} --only expiry --days 0" if self.packed else ""
        return f"next: {runs}{expired}; other snapshots of the corpora: headrace maintain, as they get old"


def plan_increment(catalogue: Catalog, dataset: str, number: int) -> IncrementDeletion:
    """Look up what the deletion of an increment deletes, and what depends on it.

    Raises:
        CommandError: there is no such dataset or increment.
    """
    require_dataset(catalogue, dataset)
    ledger = Ledger.fresh(catalogue)
    landed = {space: ledger.increments(f"{space}.arrivals") for space in (quarantine_of(dataset), dataset)}
    spaces = tuple(space for space, rows in landed.items() if number in rows)
    if not spaces:
        listed = ", ".join(map(str, sorted({landed_number for rows in landed.values() for landed_number in rows})))
        raise CommandError(f"dataset delete {dataset}: there is no increment {number}; there are {listed or 'none'}")
    tables = dict(_tables(ledger, spaces, number))
    packed = packed_tables(catalogue, dataset)
    refs = {table: _refs_with(catalogue.load_table(table), number) for table in tables}
    return IncrementDeletion(
        dataset,
        number,
        spaces,
        tables,
        frozenset(row["doc_id"] for space in spaces for row in _documents(catalogue, space, number)),
        Gone.of(_arrivals(catalogue, spaces[0]), number),
        packed,
        [
            corpus
            for corpus in namespaces_with(catalogue, "members")
            if any(
                number in part.get(dataset, ()) for part in taken_increments(ledger, f"{corpus}.increments").values()
            )
        ],
        {
            table: sorted({blend.blend for blend in all_})
            for table, all_ in dependent_blends(catalogue, packed).items()
            if all_
        },
        {table: names for table, names in refs.items() if names},
        all(is_deleted(landed[space][number]) for space in spaces),
    )


def delete_increment(lake: Lake, plan: IncrementDeletion, why: str, with_duplicates: bool = False) -> Iterator[str]:
    """Delete what a plan names, and give a line for each thing done.

    Args:
        lake: the lake.
        plan: of the same lake.
        why: the reason, for `system.audit`.
        with_duplicates: whether duplicates of its documents, as corpora found them, are excised too.

    Raises:
        CommandError: windows could not be rewritten; then nothing else is deleted.
        LeaseError: a run holds a table of the dataset for too long.
    """
    catalogue = lake.catalogue
    of_it = EqualTo("subject", plan.dataset)
    noted = {"act": DELETE, "subject": plan.dataset, "increment": plan.number, "why": why}
    with table_leases(catalogue, [AUDIT_TABLE], lake.wait_seconds):  # two at once leave one row
        if not plan.done and noted not in read_rows(catalogue, AUDIT_TABLE, tuple(noted), of_it):
            note_act(catalogue, DELETE, plan.dataset, increment=plan.number, why=why)
    if plan.documents:
        more = known_duplicates(catalogue, plan.documents) if with_duplicates else {}
        doc_ids = plan.documents | more.keys()
        packed = packed_tables(catalogue) if more else plan.packed
        yield from excised_for_good(lake, plan.dataset, packed, doc_ids)
        yield from forget_derived(catalogue, doc_ids, lake.wait_seconds)
    tables = [f"{plan.dataset}.fetched", *(table for space in plan.spaces for table in tables_in(catalogue, space))]
    with table_leases(catalogue, tables, lake.wait_seconds) as leases:  # not beside a run that reads or writes them
        lake = replace(lake, leases=leases)
        lake.ledger.refresh()
        gone = Gone.of(_arrivals(catalogue, plan.spaces[0]), plan.number)
        for space in plan.spaces:
            yield from _emptied(lake, space, plan.number, gone)
        forget(plan.dataset, catalogue, gone.objects)
        for space in plan.spaces:
            folder = ObjectFolder.of(catalogue, space)
            yield f"{folder.root}: {sum(map(folder.delete, sorted(gone.objects))):,} objects deleted"
    for table in plan.tables:
        yield from _expired(lake, table, plan.number)


def _emptied(lake: Lake, space: str, number: int, gone: Gone) -> Iterator[str]:
    """Take the rows of an increment out of all tables of a namespace; called under their leases."""
    ledger, catalogue = lake.ledger, lake.catalogue
    arrivals = f"{space}.arrivals"
    former, run = ledger.increments(arrivals)[number], {"run_id": lake.run_id, "seconds": 0.0, "core_seconds": None}
    if not is_deleted(former):
        head = catalogue.load_table(arrivals)
        rows = head.scan(EqualTo("increment", number)).to_arrow()
        stones = tombstones(rows.to_pylist(), _documents(catalogue, space, number))
        replacing = pa.Table.from_pylist(stones, schema=head.schema().as_arrow())
        replace_increment(ledger, former, replacing, lake.leases, **deletion_of(former), **run)
        yield f"{arrivals}: {len(stones):,} rows say that increment {number} was deleted"
    for table, count in _tables(ledger, (space,), number):
        if table != arrivals and count:
            row = ledger.increments_there(table)[number]
            replace_increment(ledger, row, None, lake.leases, **deletion_of(row), **run)
            yield f"{table}: {count:,} rows deleted"
    for other, row in ledger.increments(arrivals).items():
        if other in gone.later and other != number:
            rows = catalogue.load_table(arrivals).scan(EqualTo("increment", other)).to_arrow()
            told_rows = gone.updated(rows)
            if not told_rows.equals(rows):
                kept = {"inputs": row.inputs, "run_id": lake.run_id}
                replace_increment(ledger, row, told_rows.sort_by("location"), lake.leases, **kept)


def _expired(lake: Lake, table: str, number: int) -> Iterator[str]:
    """Remove the tags on an increment, and earlier snapshots with their files."""
    iceberg = lake.catalogue.load_table(table)
    for name in _refs_with(iceberg, number):
        if iceberg.refs()[name].snapshot_ref_type == SnapshotRefType.TAG:
            remove_ref(lake.catalogue, table, name)
            yield f"{table}: tag {name} removed"
        else:
            yield f"{table}: branch {name} still holds it; drop it: ALTER TABLE lake.{table} DROP BRANCH {name}"
    now = datetime.now(UTC)
    if count := expire(lake.catalogue, table, now, lake.wait_seconds):
        yield f"{table}: {count} earlier snapshots removed"


def _tables(ledger: Ledger, spaces: tuple[str, ...], number: int) -> Iterator[tuple[str, int]]:
    """Tables with an increment of their namespace, with its rows.

    Frozen and whole ones are computed anew by a run; so are those with the increments of a corpus, of other rows.
    """
    of_corpora: dict[str, bool] = {}
    for table in (there for space in spaces for there in tables_in(ledger.catalogue, space)):
        iceberg = ledger.table(table)
        if iceberg is None or iceberg.properties.get(SCOPE_PROPERTY) not in _OF_INCREMENTS:
            continue
        numbered = GENERATION_PROPERTY in iceberg.properties
        row = ledger.increments_there(table).get(number)
        if row is None or numbered or "increment" not in iceberg.schema().column_names:
            continue
        if not _is_of_a_corpus(ledger, table, of_corpora):
            yield table, row.row_count


def _is_of_a_corpus(ledger: Ledger, table: str, of_corpora: dict[str, bool]) -> bool:
    """Whether a table has the increments of a corpus, wherever it lies: whether it reads what has them."""
    if table not in of_corpora:
        iceberg = ledger.table(table)
        scope = iceberg.properties.get(SCOPE_PROPERTY) if iceberg is not None else None
        rows = ledger.increments_there(table) if scope in _OF_INCREMENTS else {}
        read = sorted({name for row in rows.values() for name in row.inputs})
        of_corpora[table] = scope == Scope.INTAKE.value
        of_corpora[table] = of_corpora[table] or any(_is_of_a_corpus(ledger, name, of_corpora) for name in read)
    return of_corpora[table]


def _documents(catalogue: Catalog, space: str, number: int) -> list[dict[str, str]]:
    columns = ("doc_id", "repository", "path")
    return read_rows(catalogue, f"{space}.documents", columns, EqualTo("increment", number))


def _arrivals(catalogue: Catalog, space: str) -> pa.Table:
    """All arrivals of a namespace, as `Gone.of` reads them."""
    rows = read_columns(catalogue, f"{space}.arrivals", SEEN)
    assert rows is not None  # an increment of it is asked for
    return rows


def _refs_with(table: IcebergTable, number: int) -> list[str]:
    """Tags and branches, but main, with files of an increment in their snapshot."""
    return [
        name
        for name, ref in sorted(table.refs().items())
        if name != MAIN_BRANCH
        and any(True for _ in table.scan(EqualTo("increment", number), snapshot_id=ref.snapshot_id).plan_files())
    ]
