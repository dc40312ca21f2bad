"""What PyIceberg has no public name for, in one place: whatever a new release of it moves is mended here.

Files that come in the place of others make a snapshot of few manifests; a branch is made of a table without snapshots;
a file is known to hold nothing but rows that meet a condition; small rows become files by PyIceberg's own writer. A
test keeps other modules from PyIceberg's private names, and says of each with which signature it is used.
"""

from __future__ import annotations

import math
import struct
import threading
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import pyarrow as pa
from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.reader import DoubleReader
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import _StrictMetricsEvaluator
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from pyiceberg.table.update.snapshot import _ManifestMergeManager, _OverwriteFiles


def _read_double(self: DoubleReader, decoder: BinaryDecoder) -> float:
    number: float = struct.unpack("<d", decoder.read(8))[0]
    return number


# PyIceberg 0.12.0's compiled decoder rounds doubles to floats: a filter over a partition by one would miss its files,
# and the next commit would write the rounded values into the manifest.
DoubleReader.read = _read_double  # type: ignore[method-assign]


class Replacement(_OverwriteFiles):
    """Files in the place of others, in as few manifests as Iceberg's own library for Java would leave."""

    def changes(self, same_rows: bool) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
        """Write the snapshot, and give the updates that commit it with what they need.

        Args:
            same_rows: whether it says that no row changes (`replace`), which PyIceberg cannot.
        """
        updates, requirements = self._commit()
        if same_rows:
            updates = tuple(
                _as_rewrite(update) if isinstance(update, AddSnapshotUpdate) else update for update in updates
            )
        return updates, requirements

    def discard(self) -> None:
        """Delete what was written for a commit that failed."""
        self._clean_all_uncommitted()

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        kept = [
            manifest
            for manifest in manifests
            if manifest.added_snapshot_id == self.snapshot_id
            or manifest.has_added_files()
            or manifest.has_existing_files()
        ]
        size = TableProperties.MANIFEST_TARGET_SIZE_BYTES_DEFAULT
        least = TableProperties.MANIFEST_MIN_MERGE_COUNT_DEFAULT
        data = [manifest for manifest in kept if manifest.content == ManifestContent.DATA]
        others = [manifest for manifest in kept if manifest.content != ManifestContent.DATA]
        return _ManifestMergeManager(size, least, True, self).merge_manifests(data) + others

    def _build_manifest_evaluator(self, spec_id: int) -> Callable[[ManifestFile], bool]:
        """Whether a manifest may have files of the deleted ones' partitions, asked by one thread at a time.

        PyIceberg 0.12.0 asks one evaluator from many threads, and it keeps the manifest that it is at: files of one
        manifest were looked for by the bounds of another, in 4 of 60 commits to a table of 40 manifests.
        """
        evaluate, lock = super()._build_manifest_evaluator(spec_id), threading.Lock()

        def evaluate_alone(manifest: ManifestFile) -> bool:
            with lock:
                return evaluate(manifest)

        return evaluate_alone

    def _build_delete_files_partition_predicate(self) -> None:
        """Look for deleted files in all manifests where one is of a partition by NaN, which no literal can be."""
        files = self._deleted_data_files
        values = [file.partition[at] for file in files for at in range(len(file.partition))]
        if any(isinstance(value, float) and math.isnan(value) for value in values):
            self.partition_filters.update({file.spec_id: AlwaysTrue() for file in files})
        else:
            super()._build_delete_files_partition_predicate()


def overwrite(
    table: IcebergTable,
    transaction: Transaction,
    branch: str = MAIN_BRANCH,
    properties: Mapping[str, str] = MappingProxyType({}),
) -> Replacement:
    """Begin a snapshot that deletes some data files and adds others; it is made when the context ends.

    PyIceberg keeps the manifests of all files that were ever deleted, and each scan and commit reads them: 25 in a
    table of one file that was replaced 25 times. Here those without a living file go, and 100 small ones become one.

    Args:
        table: the table.
        transaction: of it.
        branch: that gets the snapshot; it has one.
        properties: of the snapshot.
    """
    return Replacement(Operation.OVERWRITE, transaction, table.io, None, dict(properties), branch)


def _as_rewrite(update: AddSnapshotUpdate) -> AddSnapshotUpdate:
    """The update with its snapshot's operation set to `replace` (rows as in the parent)."""
    summary = update.snapshot.summary
    assert summary is not None  # PyIceberg gives one to each that it makes
    rewritten = Summary(Operation.REPLACE, **summary.additional_properties)
    return AddSnapshotUpdate(snapshot=update.snapshot.model_copy(update={"summary": rewritten}))


def empty_snapshot(transaction: Transaction, branch: str) -> tuple[TableUpdate, ...]:
    """The updates that make a branch with an empty snapshot; PyIceberg's own API makes only `main` that way."""
    updates, _ = transaction.update_snapshot(branch=branch).fast_append()._commit()
    return updates


def files_of_rows(transaction: Transaction, rows: pa.Table, io: FileIO) -> Iterable[DataFile]:
    """Write rows into files of a table."""
    return _dataframe_to_data_files(transaction.table_metadata, rows, io)


def holds_only(schema: Schema, condition: BooleanExpression) -> Callable[[DataFile], bool]:
    """A test whether all rows of a file are sure to meet a condition, by the bounds of its columns."""
    evaluator = _StrictMetricsEvaluator(schema, condition)
    return lambda file: bool(evaluator.eval(file))
