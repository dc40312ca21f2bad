"""Expire snapshots of a table and remove its orphan files, by PyIceberg; no row changes.

Both keep what Iceberg's own procedures keep; tests compare the two.
"""

from __future__ import annotations

import functools
import posixpath
import time
from collections.abc import Callable, Iterator
from datetime import datetime

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import ancestors_of

from headrace.tables.catalogue import remove_ref
from headrace.tables.identity import require_inside, require_own, warehouse_of
from headrace.tables.locations import real
from spark_jobs.exceptions import InputError
from spark_jobs.lake.files.storage import files_below, local_path
from spark_jobs.lake.ledger.lease import WAIT_SECONDS, table_leases
from spark_jobs.lake.session.tidiness import files_of, manifests_of, remove_files, remove_snapshots


def expire(catalogue: Catalog, identifier: str, older_than: datetime, wait_seconds: float = WAIT_SECONDS) -> int:
    """Remove snapshots older than a moment, and the files of these alone; heads and tagged snapshots stay.

    Returns:
        How many were removed.

    Raises:
        LeaseError: another writer held the table for longer.
        WrongLakeError: the table has files outside of the lake's warehouse, perhaps added by another program.
        OSError: some files could not be deleted; the snapshots are gone.
    """
    with table_leases(catalogue, [identifier], wait_seconds):
        table = catalogue.load_table(identifier)
        if not old_snapshots(table.metadata, older_than):
            return 0
        _require_collected(table)
        _require_files_inside(catalogue, table)
        for name in _outdated(table.metadata):
            remove_ref(catalogue, identifier, name)
        table = catalogue.load_table(identifier)
        return remove_snapshots(catalogue, table, old_snapshots(table.metadata, older_than))


def _require_files_inside(catalogue: Catalog, table: IcebergTable) -> None:
    """Refuse to expire what would delete a file outside of the lake's warehouse.

    Raises:
        WrongLakeError: names the first folder.
    """
    warehouse = warehouse_of(catalogue)
    if warehouse is not None:
        manifests = manifests_of(table, table.metadata.snapshots)
        for folder in sorted({path.rpartition("/")[0] for path in files_of(table, manifests.values(), live=True)}):
            require_inside(".".join(table.name()), folder, warehouse)


def _require_collected(table: IcebergTable) -> None:
    """Refuse a table closed to deletions of files by its owner, as Iceberg does.

    Raises:
        InputError: it says so in a property.
    """
    if table.properties.get("gc.enabled", "true").lower() == "false":
        name = ".".join(table.name())
        raise InputError(f"{name}: its property gc.enabled is false, so no file of it is deleted; set it to true")


def old_snapshots(metadata: TableMetadata, older_than: datetime) -> set[int]:
    """Ids of the snapshots for expiry: older than a moment, and not kept by a branch or tag.

    A branch keeps its head, and what its own settings of `min_snapshots_to_keep` and `max_snapshot_age_ms` say.
    """
    moment, outdated = older_than.timestamp() * 1000, _outdated(metadata)
    refs = {name: ref for name, ref in metadata.refs.items() if name not in outdated}
    kept, named = set[int](), set[int]()
    for ref in refs.values():
        chain = [metadata.snapshot_by_id(ref.snapshot_id)]
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH:
            chain = list(ancestors_of(chain[0], metadata))
        age = ref.max_snapshot_age_ms
        since = moment if age is None else _now() - age
        for number, snapshot in enumerate(snapshot for snapshot in chain if snapshot is not None):
            named.add(snapshot.snapshot_id)
            if number < (ref.min_snapshots_to_keep or 1) or snapshot.timestamp_ms >= since:
                kept.add(snapshot.snapshot_id)
    loose = {snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.timestamp_ms >= moment} - named
    return {snapshot.snapshot_id for snapshot in metadata.snapshots} - kept - loose


def _outdated(metadata: TableMetadata) -> list[str]:
    """Branches and tags older than their own `max_ref_age_ms`, or the table's, allows."""
    most = metadata.properties.get("history.expire.max-ref-age-ms")

    def is_outdated(name: str, ref: SnapshotRef) -> bool:
        age = ref.max_ref_age_ms or (int(most) if most else None)
        snapshot = metadata.snapshot_by_id(ref.snapshot_id)
        return name != MAIN_BRANCH and age is not None and snapshot is not None and _now() - snapshot.timestamp_ms > age

    return [name for name, ref in metadata.refs.items() if is_outdated(name, ref)]


def _now() -> float:
    return time.time() * 1000


def remove_orphans(
    catalogue: Catalog,
    identifier: str,
    older_than: datetime,
    dry_run: bool = False,
    wait_seconds: float = WAIT_SECONDS,
) -> list[str]:
    """Remove files below a table's location without a snapshot and older than a moment; gives them.

    Files and folders named with a leading dot or an underscore stay, as with Iceberg.

    Raises:
        LeaseError: another writer held the table for longer.
        OSError: some files could not be deleted.
    """
    with table_leases(catalogue, [identifier], wait_seconds):
        table = catalogue.load_table(identifier)
        _require_collected(table)
        location, canonical = table.location(), _canonical()
        old = files_below(location, table.io.properties, older_than.timestamp())
        if old:  # files that a commit after the listing refers to are kept too
            named = {canonical(path) for path in _named(catalogue.load_table(identifier))}
            old = [path for path in old if canonical(path) not in named and not _is_hidden(path, location)]
        if old and not dry_run:
            require_own(catalogue, [table])  # the listing may have taken long
            remove_files(table, old)
        return old


def _canonical() -> Callable[[str], str]:
    """A function to give all spellings of a file's location one name, with links followed and folders cached."""
    folder_of = functools.cache(real)
    return lambda path: posixpath.join(folder_of(path.rpartition("/")[0]), path.rpartition("/")[2])


def _is_hidden(path: str, location: str) -> bool:
    below = path.removeprefix((local_path(location) or location).rstrip("/"))
    return any(part[:1] in (".", "_") and "=" not in part for part in below.split("/") if part)


def _named(table: IcebergTable) -> Iterator[str]:
    """Every file in a table's metadata, and the metadata themselves."""
    metadata = table.metadata
    yield table.metadata_location
    yield f"{table.location()}/metadata/version-hint.text"
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (statistics.statistics_path for statistics in (*metadata.statistics, *metadata.partition_statistics))
    yield from (snapshot.manifest_list for snapshot in metadata.snapshots if snapshot.manifest_list)
    manifests = manifests_of(table, metadata.snapshots)
    yield from manifests
    yield from files_of(table, manifests.values(), live=True)
