"""A table that servers append to, a file a commit, while readers read it: rollouts, losses.

A commit holds the table's lease, so any number of servers may append, and `headrace maintain` comes in between. Small
files are merged and old snapshots removed beside that; the lease is then taken for moments, right after a commit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable

from spark_jobs.lake.files.compaction import merge
from spark_jobs.lake.files.data_files import data_files, rules_of
from spark_jobs.lake.files.file_writer import write_measured
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.lease import Leases, table_leases
from spark_jobs.lake.session.tidiness import expire_surplus

LEASE_WAIT_SECONDS: Final = 20.0
KEPT_SNAPSHOTS: Final = 64
KEPT_SECONDS: Final = 600.0  # a stream that is served goes on with a newer snapshot within a second
FILE_PROPERTIES: Final = {
    "commit.retry.num-retries": "0",  # a commit holds where the log was read, or not at all
    "write.target-file-size-bytes": str(64 << 20),  # what one compaction writes again at most, in half a second
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


class AppendLog:
    """One such table, for the threads of this process.

    Attributes:
        committed: set when a lease for commits ends; `quiet_lease` waits for it.
    """

    def __init__(
        self, catalogue: Catalog, name: str, commit_seconds: float, committed: threading.Event | None = None
    ) -> None:
        """Append to a table, by its identifier; `committed` is that of another log, where merging waits for that."""
        self.name = name
        self._catalogue = catalogue
        self._commit_seconds = commit_seconds
        self._lock = threading.Lock()  # of this process: waiting for a lease takes long
        self.committed = committed or threading.Event()

    def load(self) -> IcebergTable:
        """The table as it is now."""
        return self._catalogue.load_table(self.name)

    @contextmanager
    def lease(self, wait_seconds: float = LEASE_WAIT_SECONDS) -> Iterator[Leases | None]:
        """Hold the lease; raises LeaseError where another holds it for long."""
        with self._lock, table_leases(self._catalogue, [self.name], wait_seconds) as leases:
            yield leases

    @contextmanager
    def quiet_lease(self) -> Iterator[Leases | None]:
        """Hold the lease for upkeep, from a moment on at which the log was just committed, so that no call waits."""
        self.committed.clear()
        self.committed.wait(self._commit_seconds)
        with self.lease() as leases:
            yield leases

    def append(
        self,
        table: IcebergTable,
        leases: Leases | None,
        rows_in: Callable[[pa.Schema], pa.RecordBatch],
        facts: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Commit rows as one file, with checksums in its pages, where nobody has written since the table was loaded."""
        if leases is not None:
            leases.require(self.name)
        rules = rules_of(table)
        rows = rows_in(rules.schema)
        (written,) = next(write_measured([(rows, [], DataVersion())], 0, rules)).to_pylist()
        with table.transaction() as change, change.update_snapshot(dict(facts)).fast_append() as added:
            for file in data_files(table, written["files"]):
                added.append_data_file(file)

    def keep_few(self) -> None:
        """Merge small files and remove old snapshots. Tags keep theirs, so what blends pin is served on."""
        merge(self._catalogue, self.name, self.quiet_lease)
        with self.quiet_lease():
            expire_surplus(self._catalogue, self.load(), KEPT_SNAPSHOTS, KEPT_SECONDS)


def rows_in(table: IcebergTable) -> int:
    """Count the rows of a table."""
    snapshot = table.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return 0
    return int(snapshot.summary.additional_properties["total-records"])
