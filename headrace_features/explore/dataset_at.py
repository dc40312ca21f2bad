"""A dataset as it was at some snapshots of its tables, so that an address shows the same rows to whoever opens it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table as IcebergTable

from dagster_project.exceptions import CommandError
from headrace.tables.catalogue import load_table
from spark_jobs.lake.files.lookups import parts
from spark_jobs.lake.files.scans import scan_of

TABLES: Final = ("documents", "texts", "signals", "verdicts")


class DatasetVersion(NamedTuple):
    """Snapshots of a dataset's tables `documents`, `texts`, `signals` and `verdicts`; 0 for one that is not there."""

    documents: int
    texts: int
    signals: int
    verdicts: int

    @classmethod
    def newest(cls, catalogue: Catalog, dataset: str) -> DatasetVersion:
        """The present snapshots of a dataset's tables."""
        tables = (load_table(catalogue, f"{dataset}.{name}") for name in TABLES)
        heads = (table.current_snapshot() if table is not None else None for table in tables)
        return cls(*(head.snapshot_id if head is not None else 0 for head in heads))

    @classmethod
    def parse(cls, text: str) -> DatasetVersion:
        """Read what `str` of a version wrote into an address: four numbers in base 36, such as `1a-2b-0-3c`.

        Raises:
            CommandError: it is of another form.
        """
        try:
            return cls(*(int(part, 36) for part in text.split("-")))
        except (TypeError, ValueError) as error:
            raise CommandError(f"at={text[:80]} is no version of a dataset; leave it out for the newest") from error

    def __str__(self) -> str:
        return "-".join(_base36(number) for number in self)


class DatasetAt:
    """The tables of a dataset, as they were at one version.

    Attributes:
        name: of the dataset.
        version: its snapshots.
    """

    def __init__(self, catalogue: Catalog, name: str, version: DatasetVersion) -> None:
        """Look the snapshots up.

        Raises:
            CommandError: one of them is not in the lake any more, as after a deletion for good.
        """
        self._catalogue, self.name, self.version = catalogue, name, version
        self._tables: dict[str, IcebergTable] = {}
        for table, snapshot in zip(TABLES, version, strict=True):
            if not snapshot:
                continue
            loaded = load_table(catalogue, f"{name}.{table}")
            if loaded is None or loaded.snapshot_by_id(snapshot) is None:
                raise CommandError(f"{name}: that state is not in the lake any more; leave `at` out for the newest")
            self._tables[table] = loaded

    def table(self, name: str) -> tuple[IcebergTable, int] | None:
        """A table and the snapshot of it; None where it was not there."""
        loaded = self._tables.get(name)
        return None if loaded is None else (loaded, getattr(self.version, name))

    def columns(self, name: str) -> dict[str, str]:
        """Columns that a table had, with their types; none where it was not there."""
        there = self.table(name)
        if there is None:
            return {}
        schema = there[0].scan(snapshot_id=there[1]).projection()
        return {column.name: str(column.field_type) for column in schema.fields}

    def summed(self, name: str, field: str = "total-records") -> int:
        """Rows of a table by its snapshot's summary, or another number of it, such as `total-files-size`."""
        there = self.table(name)
        snapshot = there[0].snapshot_by_id(there[1]) if there is not None else None
        return int(snapshot.summary[field] or 0) if snapshot is not None and snapshot.summary is not None else 0

    def parts(self) -> Iterator[BooleanExpression]:
        """Conditions that divide the documents into parts that fit into memory, the same for all its tables."""
        return parts(self._catalogue, f"{self.name}.documents", snapshot_id=self.version.documents or None)

    def read(self, name: str, columns: Collection[str], condition: BooleanExpression) -> pa.Table | None:
        """Some columns of the rows that meet a condition; None where the table was not there."""
        there = self.table(name)
        if there is None:
            return None
        return scan_of(there[0], condition, columns, there[1]).to_arrow()


def _base36(value: int) -> str:
    digits = ""
    while value:
        value, rest = divmod(value, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[rest] + digits
    return digits or "0"
