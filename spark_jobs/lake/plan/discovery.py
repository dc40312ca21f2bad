"""What is due of a dataset: its next increment, where its source has something new."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table as IcebergTable

from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.tables import Table
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.materialization import Materialization, TableSlice
from spark_jobs.lake.ledger.step_key import step_key
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.plan.decisions import refuse_around_quarantine, refuse_files_of_quarantine
from spark_jobs.lake.plan.due import Due
from spark_jobs.lake.plan.reads import reads_of
from spark_jobs.lake.plan.reasons import changed_settings

_LEAST_ROWS = 1 << 20  # fewer new rows of a source's table are not condensed


def next_increment(ledger: Ledger, binding: Binding) -> Due | None:
    """A dataset's next increment, where its source has something new.

    After a change of config or code, and where a table lacks a column, every file is read again; documents that come
    out the same are not landed twice. The last of the step's tables (`arrivals`) is published last, so its increments
    are those that are complete.
    """
    discover, arrivals = binding.step.discover, binding.tables[-1]
    if discover is None:
        raise InputError(f"{binding.tables[0]}: its step has no source to look at; bind its inputs to tables")
    refuse_around_quarantine(ledger, binding)
    complete = ledger.increments(arrivals)
    config = binding.config_json
    iceberg = ledger.table(arrivals)
    last = complete[max(complete)] if complete else None
    as_before = last is not None and (last.config, last.code_version) == (config, binding.step.version)
    for declared, identifier in zip(binding.step.tables, binding.tables, strict=True):
        table = ledger.table(identifier)
        lacks = table is not None and {column.name for column in declared.all_columns} - set(
            table.schema().column_names
        )
        as_before = as_before and not lacks
    listed_before = _listed_before(binding.step.tables[-1], iceberg)
    listing = discover(binding.config, listed_before, not as_before, ledger.catalogue)
    if listing is None:
        return None
    refuse_files_of_quarantine(ledger, binding, listing)
    number = max(complete, default=-1) + 1
    key = step_key(
        step=binding.step.name,
        version=binding.step.version,
        config=config,
        inputs={"listing": {"": _arrow_digest(listing)}},
        place=str(number),
    )
    reads = reads_of(binding, ledger, number)
    certain = as_before or last is None or binding.step.news is None or _has_other_files(listed_before, listing)
    reason = _reason(binding, last, listing)
    return Due(TableSlice.increment(number), number, reason, certain, reads=reads, listing=listing, key=key)


def new_files(listing: pa.Table) -> int | None:
    """How many files of a listing are new or changed; None where the source does not say."""
    if "unchanged" not in listing.column_names:
        return None
    return int(listing.num_rows - listing.filter(pc.field("unchanged") | _gone(listing)).num_rows)


def _reason(binding: Binding, last: Materialization | None, listing: pa.Table) -> str:
    """Why the next increment is due: what the source has, and what changed since the last one."""
    changed = new_files(listing)
    if changed is None:
        return "the source has something new"
    settings = changed_settings(last, binding) if last is not None else []
    counts = {"gone": listing.filter(_gone(listing)).num_rows, "new or changed": changed}
    files = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    return "; ".join([*settings, f"files: {files or 'all read again'}"])


def _has_other_files(listed_before: pa.Table, listing: pa.Table) -> bool:
    """Whether a listing, read again or not, has new, changed or removed files."""
    listed_before = listed_before.sort_by([("increment", "descending")])
    at = pc.index_in(listing["location"], listed_before["location"])
    before = listed_before.select(["byte_count", "modified"]).take(at)
    same = pc.is_valid(at)
    for name in before.column_names:
        same = pc.and_(same, pc.fill_null(pc.equal(before[name], listing[name]), True))
    return bool(listing.filter(_gone(listing)).num_rows) or not pc.all(same).as_py()


def _gone(listing: pa.Table) -> pc.Expression:
    return pc.field("gone") if "gone" in listing.column_names else pc.scalar(False)


def _listed_before(declared: Table, iceberg: IcebergTable | None) -> pa.Table:
    """The `listed` rows of a source's table, condensed whenever rows read since the last time outnumber the rest."""
    nothing = declared.schema().as_arrow().empty_table()
    if iceberg is None or iceberg.metadata.current_snapshot_id is None:
        return nothing
    listed, pieces, waiting = nothing, list[pa.Table](), 0
    for batch in iceberg.scan(declared.listed or AlwaysTrue()).to_arrow_batch_reader():
        pieces.append(_with_columns_of(nothing, pa.Table.from_batches([batch])))
        waiting += batch.num_rows
        if declared.condensed is not None and waiting > max(listed.num_rows, _LEAST_ROWS):
            listed, pieces, waiting = declared.condensed(pa.concat_tables([listed, *pieces])), [], 0
    listed = pa.concat_tables([listed, *pieces])
    return listed if declared.condensed is None else declared.condensed(listed)


def _with_columns_of(declared: pa.Table, rows: pa.Table) -> pa.Table:
    """Rows in the declared columns, with nulls in those that a table made by an earlier version of headrace lacks."""
    for column in declared.schema:
        if column.name not in rows.column_names:
            rows = rows.append_column(column, pa.nulls(rows.num_rows, column.type))
    return rows.select(declared.column_names).cast(declared.schema)


def _arrow_digest(rows: pa.Table) -> str:
    """SHA-256 of a listing."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows.combine_chunks())
    return hashlib.sha256(sink.getvalue()).hexdigest()
