"""Delete a dataset for good: its documents go from what corpora serve, then its tables, their files and kept bytes go.

    1. a row of `system.audit`           who, when, why
    2. excision                          its documents are out of every served snapshot, and of all later packing
    3. tables dropped, `documents` last  because they say which documents there are to excise
    4. folders of the warehouse          files of the tables, earlier snapshots and kept objects with them

Each part may be done again, so a killed deletion is finished by the same command.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression, EqualTo, In

from blender_service.auth.visibility import VISIBILITY_TABLE, recorded_visibility
from dagster_project.deletion.excised_tables import excised_for_good
from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.document_windows import packed_tables
from dagster_project.inspect.lake.corpus_facts import namespaces_with
from dagster_project.inspect.lake.dependent_blends import dependent_blends
from headrace.tables.catalogue import tables_in
from headrace.tables.identity import require_own
from headrace.tables.quarantine import is_quarantine, quarantine_of
from spark_jobs.lake.files.lookups import EVERYTHING, parts, read_columns
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.files.storage import local_path
from spark_jobs.lake.ledger.acts import note_act
from spark_jobs.lake.ledger.lease import table_leases
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.plan.decisions import DELETE
from spark_jobs.lake.plan.reads import taken_increments
from spark_jobs.lake.run.releases import releases
from spark_jobs.sources.kinds import forget
from spark_jobs.sources.landing.derivations import staying

if TYPE_CHECKING:
    from spark_jobs.lake.run.materialize import Lake

_MAIN = "documents"
_PART_DOCUMENTS = 1 << 18  # ids of documents that are excised at once, 80 bytes each in several sets
_LANDED = (_MAIN, "arrivals", "provenance", "repositories", "scans")  # one of them is in whatever is a dataset


@dataclass(frozen=True)
class Deletion:
    """The plan of a dataset's deletion: what it deletes, and what depends on that.

    Attributes:
        dataset: its name.
        tables: rows by table, those in quarantine included.
        folders: of the warehouse, with what lies in them.
        documents: how many were released or landed as trusted.
        corpora: packed tables of the dataset, by corpus.
        blends: blends of them, by packed table.
        releases: named states of its tables; they cannot be read any more.
    """

    dataset: str
    tables: dict[str, int]
    folders: tuple[str, ...]
    documents: int
    corpora: dict[str, list[str]] = field(default_factory=dict)
    blends: dict[str, list[str]] = field(default_factory=dict)
    releases: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """The plan, line by line."""
        for table, rows in self.tables.items():
            yield f"{table:<44} {rows:>12,} rows go"
        for folder in self.folders:
            yield f"{folder} goes, with earlier snapshots and kept bytes"
        for corpus, packed in self.corpora.items():
            yield f"corpus {corpus}: {self.documents:,} documents go from {', '.join(packed) or 'no packed table'}"
            yield f"  its other tables name them until it is computed anew without {self.dataset}"
        for table, blends in self.blends.items():
            yield f"blends served from {table} with padding in their place: {', '.join(blends)}"
        for name in self.releases:
            yield f"release {name} names its tables, which it cannot show any more"
        yield from staying(f"keeps of {self.dataset}")


def plan_deletion(catalogue: Catalog, dataset: str) -> Deletion:
    """Look up what the deletion of a dataset deletes, and what depends on it.

    Raises:
        CommandError: the lake has nothing of it, or what it has under the name is no dataset.
    """
    require_dataset(catalogue, dataset)
    ledger = Ledger.fresh(catalogue)
    spaces = (dataset, quarantine_of(dataset))
    tables = {
        table: sum(row.row_count for row in ledger.places(table).values())
        for space in spaces
        for table in tables_in(catalogue, space)
    }
    warehouse = ledger.warehouse.rstrip("/")
    frozen = [cold for space in spaces for cold in ObjectFolder.of(catalogue, space).cold_folders()]
    folders = tuple(folder for folder in (*frozen, *(f"{warehouse}/{space}" for space in spaces)) if _is_there(folder))
    if not tables and not folders:
        raise CommandError(f"dataset delete {dataset}: the lake holds nothing of it; see headrace dataset show")
    corpora: dict[str, list[str]] = {
        corpus: []
        for corpus in namespaces_with(catalogue, "members")
        if any(dataset in part for part in taken_increments(ledger, f"{corpus}.increments").values())
    }
    for table in packed_tables(catalogue, dataset):  # also of a corpus that has begun anew without the dataset
        corpora.setdefault(table.partition(".")[0], []).append(table)
    packed = [table for of_corpus in corpora.values() for table in of_corpus]
    blends = {
        table: sorted({blend.blend for blend in dependents})
        for table, dependents in dependent_blends(catalogue, packed).items()
        if dependents
    }
    named = tuple(release.name for release in releases(catalogue) if tables.keys() & release.snapshots.keys())
    documents = tables.get(f"{dataset}.{_MAIN}", 0)
    return Deletion(dataset, tables, folders, documents, corpora, blends, named)


def delete_dataset(lake: Lake, plan: Deletion, why: str) -> Iterator[str]:
    """Delete what a plan names, and give a line for each thing done.

    Raises:
        CommandError: windows could not be rewritten; then nothing else is deleted.
    """
    catalogue = lake.catalogue
    note_act(catalogue, DELETE, plan.dataset, why=why)
    packed = [table for of_corpus in plan.corpora.values() for table in of_corpus]
    for doc_ids in _doc_ids(catalogue, plan) if plan.corpora else ():
        yield from excised_for_good(lake, plan.dataset, packed, doc_ids)
    with table_leases(catalogue, list(plan.tables)):  # not beside a run that writes them
        forget(plan.dataset, catalogue)  # where pages and answers are kept, whose objects go below
        for table in sorted(plan.tables, key=lambda table: table.endswith(f".{_MAIN}")):
            catalogue.drop_table(table)
            yield f"dropped {table}"
        for folder in plan.folders:
            require_own(catalogue)
            _remove(folder, dict(catalogue.properties))
            yield f"deleted {folder}"
    if quarantine_of(plan.dataset) in recorded_visibility(catalogue):
        catalogue.load_table(VISIBILITY_TABLE).delete(In("namespace", {quarantine_of(plan.dataset)}))


def require_dataset(catalogue: Catalog, name: str) -> None:
    """Refuse a name of something else in the lake: a path, a corpus, `system`, a folder beside the tables.

    Where a deletion was killed the namespace is there still, without tables or with `documents` among them.

    Raises:
        CommandError: says what the name is.
    """
    there = {space[0] for space in catalogue.list_namespaces()}
    spaces = [space for space in (name, quarantine_of(name)) if space in there]
    tables = [table for space in spaces for table in tables_in(catalogue, space)]
    if not spaces:
        raise CommandError(f"dataset delete {name}: the lake holds nothing of it; see headrace dataset show")
    if is_quarantine(name) or (tables and not any(table.split(".")[1] in _LANDED for table in tables)):
        raise CommandError(f"dataset delete {name}: it is no dataset; give one of headrace dataset show")


def _doc_ids(catalogue: Catalog, plan: Deletion) -> Iterator[set[str]]:
    """The dataset's documents: its own table's, and what corpora took in, should the table have been dropped before.

    They come in parts fitting into memory: increments together where they are small, since the windows of an
    increment hold the documents of an increment.
    """
    sources: dict[str, BooleanExpression] = {f"{plan.dataset}.{_MAIN}": EVERYTHING}
    sources |= {f"{corpus}.members": EqualTo("dataset", plan.dataset) for corpus in plan.corpora}
    for table, condition in sources.items():
        for part in parts(catalogue, table, _PART_DOCUMENTS, condition):
            rows = read_columns(catalogue, table, ("doc_id",), part)
            if rows is not None and len(rows):
                yield set(rows["doc_id"].to_pylist())


def _is_there(folder: str) -> bool:
    local = local_path(folder)
    if local is None:
        return True  # a prefix of an object store is there or empty; both may be deleted
    import os

    return os.path.isdir(local)


def _remove(folder: str, properties: dict[str, str]) -> None:
    """Remove a folder of the warehouse and all in it."""
    local = local_path(folder)
    if local is not None:
        shutil.rmtree(local)
        return
    from pyarrow import fs
    from pyiceberg.io.pyarrow import PyArrowFileIO

    scheme, _, path = folder.partition("://")
    files: fs.FileSystem = PyArrowFileIO(properties).fs_by_scheme(scheme, path.partition("/")[0])
    there = fs.FileSelector(path, allow_not_found=True, recursive=True)
    left = math.inf
    while True:
        try:
            files.delete_dir_contents(path, missing_dir_ok=True)
            return
        except OSError:  # a store that is kept in folders removes the empty ones alone: some more each time
            before, left = left, len(files.get_file_info(there))
            if left >= before:
                raise
