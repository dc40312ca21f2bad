"""Merge the small data files of a table, by PyArrow and PyIceberg: the same rows in fewer files, in one commit.

    files of a partition, by their least value of the first sort column      small ones that follow one another
    [0..9] [10..19] [20..900, large] [901..909] [910..913]              ->   [0..19] [20..900] [901..913]

Files are merged with their neighbours alone, so in a packed table each file still holds one contiguous run of ordinals.
Rows of a sorted table are merged as sorted runs, so a file is again in that order. In memory are some batches
and the dictionaries of the overlapping files, 64 at most, and the row group being written; a file that is not in the
table's order is read whole.

A kill leaves files of no snapshot, and rows as they were. What somebody else commits meanwhile stays; if it has
replaced a file that was merged, nothing is committed.
"""

from __future__ import annotations

import bisect
import functools
import math
import random
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import FileScanTask
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.update import AssertTableUUID
from pyiceberg.types import PrimitiveType

from spark_jobs.exceptions import LeaseError
from spark_jobs.lake.files.data_files import data_files, rules_of
from spark_jobs.lake.files.file_writer import FileRules, write_measured
from spark_jobs.lake.files.storage import open_input
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.lease import WAIT_SECONDS, Leases, table_leases
from spark_jobs.lake.session.pyiceberg_core import overwrite
from spark_jobs.lake.session.tidiness import remove_files

_SMALL_FRACTION = 0.75  # of the target size, as with Iceberg: a file above it is left alone
_COMMIT_BYTES = 16 << 30  # merged before they are committed, so that a kill costs no more than these
MOST_FILES = 64  # that become one: all of them may be open, each with its dictionary, of some MB
_BATCHES_BYTES, _BATCH_ROWS = 64 << 20, 65_536  # batches of all open files; most rows of a batch
_FIELD_ID = b"PARQUET:field_id"
_COMMIT_TRIES, _PAUSE_SECONDS = 20, 1.0

TakeLeases = Callable[[], AbstractContextManager[Leases | None]]


def compact(catalogue: Catalog, identifier: str, wait_seconds: float = WAIT_SECONDS) -> tuple[int, int]:
    """Merge the small data files of each partition; no row changes, and the rows of a file are in the table's order.

    Returns:
        Data files before and after.

    Raises:
        LeaseError: another writer held the table for longer than `wait_seconds`, or replaced files meanwhile.
    """
    with table_leases(catalogue, [identifier], wait_seconds) as leases:
        return merge(catalogue, identifier, lambda: nullcontext(leases))


def merge(catalogue: Catalog, identifier: str, leases: TakeLeases) -> tuple[int, int]:
    """As `compact`; others may write until the leases are taken; they are held while files are replaced and no longer.

    Raises:
        LeaseError: as `compact`, and what taking the leases raises.
    """
    table = catalogue.load_table(identifier)
    tasks = list(table.scan().plan_files())
    after, merged, replaced = len(tasks), list[DataFile](), list[DataFile]()
    for group in groups_to_merge(table, tasks):
        merged += merged_files(table, group)
        replaced += group
        if sum(file.file_size_in_bytes for file in replaced) >= _COMMIT_BYTES:
            with leases() as taken:
                replace_files(catalogue, identifier, replaced, merged, taken)
            after, merged, replaced = after + len(merged) - len(replaced), [], []
    if replaced:
        with leases() as taken:
            replace_files(catalogue, identifier, replaced, merged, taken)
    return len(tasks), after + len(merged) - len(replaced)


def groups_to_merge(table: IcebergTable, tasks: Iterable[FileScanTask]) -> Iterator[list[DataFile]]:
    """Small files to merge into one: neighbours in a partition, together no larger than the target size.

    Files with deletes beside them stay, and those of an earlier partitioning or of another format.
    """
    target = rules_of(table).file_bytes
    order = _order(table)
    partitions = defaultdict[Any, list[FileScanTask]](list)
    for task in tasks:
        if task.file.spec_id == table.metadata.default_spec_id:
            partitions[task.file.partition].append(task)
    for neighbours in partitions.values():
        group, group_bytes = list[DataFile](), 0
        for task in sorted(neighbours, key=lambda task: (_least(table, order, task.file), task.file.file_path)):
            file, byte_count = task.file, task.file.file_size_in_bytes
            if task.delete_files or file.file_format != FileFormat.PARQUET or byte_count >= target * _SMALL_FRACTION:
                if not order:  # files of an unsorted table have no neighbours
                    continue
                byte_count = target
            if group_bytes + byte_count > target or len(group) == MOST_FILES:
                if len(group) > 1:
                    yield group
                group, group_bytes = [], 0
            if byte_count < target:
                group.append(file)
                group_bytes += byte_count
        if len(group) > 1:
            yield group


def _order(table: IcebergTable) -> tuple[str, ...]:
    """Sort columns of a file's rows."""
    return tuple(table.schema().find_column_name(field.source_id) or "" for field in table.sort_order().fields)


def _least(table: IcebergTable, order: tuple[str, ...], file: DataFile) -> tuple[bool, Any]:
    """The least value of the first sort column in a file, nulls first; a long text may be cut off."""
    field = table.schema().find_field(order[0]) if order else None
    bound = (file.lower_bounds or {}).get(field.field_id) if field is not None else None
    if field is None or bound is None or not isinstance(field.field_type, PrimitiveType):
        return False, None
    return True, from_bytes(field.field_type, bound)


def merged_files(
    table: IcebergTable,
    files: Sequence[DataFile],
    change: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda rows: rows,
) -> list[DataFile]:
    """Write the rows of some files of a partition again, as one file, or two where that has become too large.

    Args:
        table: of the files.
        files: them.
        change: what is written of some rows, as many.

    Raises:
        OSError: there are not as many rows as the table says.
    """
    first = files[0]
    rules = rules_of(table)
    folder = first.file_path.rpartition("/")[0]
    rules = replace(rules, folder=folder, partition=(), file_bytes=2 * rules.file_bytes)
    order = _order(table)
    batch_bytes = _BATCHES_BYTES // len(files)
    sources = [_Source.of(file.file_path, rules, order, batch_bytes) for file in files]
    none = list[int](), DataVersion()
    (result,) = next(
        write_measured(((change(rows), *none) for rows in merged_rows(sources, order)), 0, rules)
    ).to_pylist()
    written = list(data_files(table, result["files"], first.partition))
    counts = sum(file.record_count for file in files), sum(file.record_count for file in written)
    if counts[0] != counts[1]:
        remove_files(table, [file.file_path for file in written])
        raise OSError(f"{'.'.join(table.name())}: {counts[1]} of {counts[0]} rows are in the files of {folder}")
    return written


@dataclass(frozen=True)
class _Source:
    """The rows of a data file, in the order of the table.

    Attributes:
        first: key of the first row; empty where there is no order.
        batches: the rows, read as they are asked for.
    """

    first: tuple[Any, ...]
    batches: Iterator[pa.RecordBatch]

    @classmethod
    def of(cls, path: str, rules: FileRules, order: tuple[str, ...], batch_bytes: int) -> _Source:
        """Open a file, and look whether it is in order."""
        rows = functools.partial(_rows, path, rules, batch_bytes)
        keys = pa.Table.from_batches(rows(order), pa.schema([rules.schema.field(name) for name in order]))
        if not order or not keys.num_rows:
            return cls((), rows(rules.schema.names))
        indices = _sorted_indices(keys, order)
        first = _key(keys, order, indices[0].as_py())
        if indices.equals(pa.array(range(len(indices)), indices.type)):
            return cls(first, rows(rules.schema.names))
        return cls(first, iter(pa.Table.from_batches(rows(rules.schema.names)).take(indices).to_batches(_BATCH_ROWS)))


def _rows(path: str, rules: FileRules, batch_bytes: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Some columns of a file, as the table has them now: found by their ids, null where the file is older."""
    with open_input(path, rules.properties) as stream, pq.ParquetFile(stream, page_checksum_verification=True) as file:
        there = {int((field.metadata or {}).get(_FIELD_ID, -1)): field.name for field in file.schema_arrow}
        fields = [rules.stored.field(name) for name in names]
        in_file = [there.get(int(field.metadata[_FIELD_ID])) for field in fields]
        if set(there) == {-1}:  # the writer of the file gave no field ids
            in_file = [field.name if field.name in file.schema_arrow.names else None for field in fields]
        metadata = file.metadata
        sizes = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
        count = min(max(batch_bytes * metadata.num_rows // max(sizes, 1), 1), _BATCH_ROWS)
        for batch in file.iter_batches(count, columns=[name for name in in_file if name is not None]):
            columns = [pa.nulls(batch.num_rows) if name is None else batch.column(name) for name in in_file]
            yield pa.RecordBatch.from_arrays(columns, names=list(names)).cast(pa.schema(fields))


def merged_rows(sources: Sequence[_Source], order: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """The rows of sorted sources, in order; without an order, those of one after the other.

    Each round takes the current batch of every open source, and gives their rows up to the least of the batches' last
    rows: no batch still to be read has a smaller one. [1 4 9] and [2 3 5] give 1 2 3 4 5, and 9 waits for the next.
    """
    if not order:
        for source in sources:
            yield from source.batches
        return
    waiting = deque(sorted(sources, key=lambda source: source.first))
    heads = list[tuple[pa.RecordBatch, Iterator[pa.RecordBatch]]]()
    while waiting or heads:
        while waiting and (not heads or waiting[0].first <= min(_last(rows, order) for rows, _ in heads)):
            heads += _next(waiting.popleft().batches)
        if not heads:
            continue
        bound = min(_last(rows, order) for rows, _ in heads)
        parts, rest = list[pa.RecordBatch](), list[tuple[pa.RecordBatch, Iterator[pa.RecordBatch]]]()
        for rows, more in heads:
            cut = bisect.bisect_right(range(rows.num_rows), bound, key=functools.partial(_key, rows, order))
            parts.append(rows.slice(0, cut))
            rest += [(rows.slice(cut), more)] if cut < rows.num_rows else _next(more)
        heads, due = rest, pa.Table.from_batches(parts)
        yield from (due if len(parts) == 1 else due.take(_sorted_indices(due, order))).to_batches()


def _next(batches: Iterator[pa.RecordBatch]) -> list[tuple[pa.RecordBatch, Iterator[pa.RecordBatch]]]:
    """The next batch with rows, paired with the iterator of the batches after it; empty at the end."""
    return next(([(rows, batches)] for rows in batches if rows.num_rows), [])


def _sorted_indices(rows: pa.Table, order: tuple[str, ...]) -> pa.Array:
    return pc.sort_indices(rows, [(name, "ascending", "at_start") for name in order])


def _key(rows: pa.Table | pa.RecordBatch, order: tuple[str, ...], at: int) -> tuple[Any, ...]:
    """Sort key of a row: nulls first, then NaN, then values."""
    values = [rows.column(name)[at].as_py() for name in order]
    odd = [value is None or (isinstance(value, float) and math.isnan(value)) for value in values]
    return tuple((value is not None, 0) if none else (2, value) for none, value in zip(odd, values, strict=True))


def _last(rows: pa.RecordBatch, order: tuple[str, ...]) -> tuple[Any, ...]:
    return _key(rows, order, rows.num_rows - 1)


def replace_files(
    catalogue: Catalog,
    identifier: str,
    replaced: list[DataFile],
    merged: list[DataFile],
    leases: Leases | None,
    same_rows: bool = True,
) -> None:
    """Replace files by merged ones in one commit, and keep whatever else was committed meanwhile.

    Args:
        catalogue: the lake's.
        identifier: of the table.
        replaced: files of it.
        merged: what comes in their place.
        leases: held for it.
        same_rows: whether the snapshot may say that no row changes.

    Raises:
        LeaseError: a replaced file is no longer in the table, other commits always come between, or the lease is lost.
    """
    for attempt in range(_COMMIT_TRIES):
        table = catalogue.load_table(identifier)
        update = overwrite(table, table.transaction())
        for file in replaced:
            update.delete_data_file(file)
        for file in merged:
            update.append_data_file(file)
        try:
            updates, requirements = update.changes(same_rows)
            if leases is not None:
                leases.require(identifier)
            catalogue.commit_table(table, (AssertTableUUID(uuid=table.metadata.table_uuid), *requirements), updates)
            return
        except (
            CommitFailedException,
            ValidationException,
            LeaseError,
        ) as error:  # after any other error the commit may have succeeded
            update.discard()
            if isinstance(error, CommitFailedException) and attempt < _COMMIT_TRIES - 1:
                time.sleep(random.uniform(0, _PAUSE_SECONDS))
                continue
            with suppress(OSError):
                remove_files(table, [file.file_path for file in merged])
            if isinstance(error, LeaseError):
                raise
            raise LeaseError(
                f"{identifier}: somebody else wrote it meanwhile, its files stay as they were ({error}); run again"
            ) from error
