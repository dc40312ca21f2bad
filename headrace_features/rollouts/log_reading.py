"""Read the log of decisions: file by file in order, as events one by one, or of many at once what is left of them.

A group opening and closing in the read rows, with its rows in the table, leaves its id and its last
answers alone. So of a long log most events are counted in columns, and only the others are applied one by one.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan
from pyiceberg.table import Table as IcebergTable
from pyiceberg.types import LongType

from blender_service.arrays import Int64Array
from headrace_features.rollouts.admission import KNOWN_NUMBERS, Admission
from headrace_features.rollouts.events import Acknowledgement, Event, anchor
from headrace_features.rollouts.exceptions import LogError, SnapshotError
from headrace_features.rollouts.settings import RolloutTable
from headrace_features.rollouts.snapshot import GroupsOnDisk, Snapshot

MANY: Final = 10_000
"""Rows from which on they are counted in columns."""
_ROW_GROUPS: Final = 256  # of a file, read at once: half a million rows


def restored(snapshot: Snapshot, log: IcebergTable, settings: RolloutTable, window_tokens: int) -> Admission:
    """An admission knowing what was saved, where that is whole and of this log; else one knowing nothing."""
    try:
        if (saved := snapshot.read()) is not None:
            admission = Admission(settings, window_tokens, snapshot.groups)
            admission.restore(*saved)
            _read_payloads(admission, log)
            return admission
    except SnapshotError as error:
        snapshot.discard(str(error))
    return Admission(settings, window_tokens, snapshot.groups)


def _read_payloads(admission: Admission, log: IcebergTable) -> None:
    """Give restored events their payloads, and compare the log with what it was when they were saved.

    Raises:
        SnapshotError: the log is another one, or was set back.
    """
    last, events = admission.next_sequence - 1, dict[int, Event]()
    needed = np.unique([*admission.needed, last])
    for rows in log_rows(log, int(needed[0]), last + 1, needed):
        read = events_of(rows.filter(pc.is_in(rows["sequence"], pa.array(needed))))
        events |= {event.sequence: event for event in read}
    if last not in events or anchor(events[last]) != admission.last:
        raise SnapshotError("the log was set back, it has not the event that this was saved at")
    admission.with_payloads({sequence: event.payload for sequence, event in events.items()})


def log_rows(
    log: IcebergTable, sequence: int, end: int = 1 << 62, needed: Int64Array | None = None
) -> Iterator[pa.Table]:
    """Rows of the log from a sequence on, in order, in parts; each file holds one run of sequences without gaps.

    Args:
        log: the table.
        sequence: of the first row.
        end: sequence after their last.
        needed: sequences, ascending; parts without any of them are left out.
    """
    if log.current_snapshot() is None:
        return
    condition = And(GreaterThanOrEqual("sequence", sequence), LessThan("sequence", end))
    field = log.schema().find_field("sequence").field_id
    tasks = [(from_bytes(LongType(), task.file.lower_bounds[field]), task) for task in log.scan(condition).plan_files()]
    for first, task in sorted(tasks, key=lambda part: part[0]):
        with log.io.new_input(task.file.file_path).open() as stream:
            file = pq.ParquetFile(stream)
            counts = [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)]
            starts: Int64Array = np.cumsum([first, *counts], dtype=np.int64)
            is_in_part = (starts[1:] > sequence) & (starts[:-1] < end)
            if needed is not None:
                is_in_part &= np.diff(np.searchsorted(needed, starts)) > 0
            parts = np.flatnonzero(is_in_part).tolist()
            for at in range(0, len(parts), _ROW_GROUPS):
                rows = file.read_row_groups(parts[at : at + _ROW_GROUPS], use_threads=False)
                is_in = pc.and_(pc.greater_equal(rows["sequence"], sequence), pc.less(rows["sequence"], end))
                yield rows.filter(is_in)


def events_of(rows: pa.Table) -> list[Event]:
    """Events from rows of the log."""
    names = [attribute.name for attribute in dataclasses.fields(Event)]
    rows = rows.set_column(rows.schema.get_field_index("at"), "at", rows["at"].cast(pa.int64()))
    columns = [rows[name].to_pylist() for name in names]
    return [Event(*values) for values in zip(*columns, strict=True)]


def apply_many(admission: Admission, groups: GroupsOnDisk, rows: pa.Table, written: int) -> None:
    """Apply rows of the log after those known to an admission; the same as `apply` of each.

    Args:
        admission: that has them applied.
        groups: where it keeps published groups; those of these rows are known once they are saved.
        rows: of the log, in order.
        written: how many rows the table of rollouts has.

    Raises:
        LogError: rows are missing before them.
    """
    if rows.num_rows and rows["sequence"][0].as_py() != admission.next_sequence:
        raise LogError(
            f"the log goes on with sequence {rows['sequence'][0]}, {admission.next_sequence} comes next; restore it"
        )
    if rows.num_rows < MANY:
        for event in events_of(rows):
            admission.apply(event)
        return
    over, published = _over(admission, rows, written)
    remembered = rows.filter(pa.array(_last_of_writers(rows) & over)).select(Acknowledgement._fields)
    answers = map(Acknowledgement._make, zip(*(_texts(column) for column in remembered.columns), strict=True))
    events = events_of(rows.filter(pa.array(~over)))
    both: Iterator[Event | Acknowledgement] = heapq.merge(events, answers, key=lambda item: item.sequence)
    for item in both:
        admission.apply(item) if isinstance(item, Event) else admission.remember(item)
    groups.add_many(published)
    ends = rows.filter(pc.equal(rows["kind"], "published"))
    (last,) = events_of(rows.slice(rows.num_rows - 1))
    admission.skip_to(last, *(ends[name][-1].as_py() for name in ("ordinal", "rows") if ends.num_rows))


def _texts(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column; empty for a missing reason."""
    return (pc.fill_null(column, "") if pa.types.is_string(column.type) else column).to_pylist()  # type: ignore[no-any-return]


def _over(admission: Admission, rows: pa.Table, written: int) -> tuple[npt.NDArray[np.bool_], list[str]]:
    """The rows of groups opening and closing in them and present in the table, and the ids of these groups."""
    coded = rows["group"].combine_chunks().dictionary_encode()
    names, codes = coded.dictionary, pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False)
    is_end = pc.equal(rows["kind"], "published").to_numpy()
    word = pc.list_element(pc.split_pattern(pc.fill_null(rows["reason"], ""), ":", max_splits=1), 0)
    is_refused = pc.and_(pc.equal(rows["kind"], "refused"), pc.is_in(word, pa.array(["late", "double", "other_size"])))
    changes = ~is_refused.to_numpy() & (codes >= 0)
    at = np.arange(len(codes))
    ends, last = np.zeros(len(names), np.int64), np.full(len(names), -1)
    np.add.at(ends, codes[is_end], 1)
    np.maximum.at(last, codes[changes], at[changes])  # of a group that is over, its end
    end = np.full(len(names), -2)
    end[codes[is_end]] = at[is_end]
    after = pc.add(rows["ordinal"], pc.cast(rows["rows"], pa.int64()))
    is_written = np.zeros(len(names), bool)
    is_written[codes[is_end]] = pc.fill_null(after, 0).to_numpy()[is_end] <= written
    is_open = pc.is_in(names, pa.array(list(admission.groups), names.type)).to_numpy(zero_copy_only=False)
    is_over = (ends == 1) & (last == end) & is_written & ~is_open
    return np.append(is_over, False)[codes], names.filter(pa.array(is_over)).to_pylist()


def _last_of_writers(rows: pa.Table) -> npt.NDArray[np.bool_]:
    """The rows among the last of their writer, which it may ask for again."""
    codes: Int64Array = pc.fill_null(rows["writer"].combine_chunks().dictionary_encode().indices, -1).to_numpy(
        zero_copy_only=False
    )
    order = np.argsort(codes[::-1], kind="stable")  # by writer, the last row first
    ordered = codes[::-1][order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    rank = np.arange(len(ordered)) - np.repeat(starts, np.diff(np.append(starts, len(ordered))))
    is_last = np.zeros(len(codes), bool)
    is_last[len(codes) - 1 - order] = (rank < KNOWN_NUMBERS) & (ordered >= 0)
    return is_last
