"""The documents of a blend's packed tables and their clusters, read from the lake; their reads from the blend's order.

Of a packed table the column `segments` is read, at the snapshot that is served for the blend: documents that were
excised since are gone, windows keep their ordinals. Clusters are those of each corpus: documents linked by pairs at
the applied threshold, exact duplicates, and those of selections that name a kept original.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import In

from blender_service.exceptions import OffsetOutOfRangeError
from blender_service.order.offsets import reads_before
from blender_service.tables.data_file import FAULTS, StoreError, opened_parquet, told
from blender_service.tables.file_columns import FileColumns
from dagster_project.exceptions import CommandError
from dagster_project.inspect.lake.corpus_facts import CorpusFacts, facts_of
from headrace_features.composition.repeats import Keys, Repeats, TableParts, count_repeats, keys_of
from spark_jobs.arrays import Int64Array
from spark_jobs.lake.files.lookups import read_columns
from spark_jobs.lake.ledger.ledger import Ledger

if TYPE_CHECKING:
    from blender_service.order.resolve import BlendOrder
    from blender_service.server.blender import Blender
    from blender_service.tables.packed_table import PackedTable
    from blender_service.tables.source_rows import SourceRows

SEGMENTS: Final = "segments"
_BATCH_ROWS: Final = 1 << 14


def blend_repeats(catalogue: Catalog, blender: Blender, blend_id: str, offset: int | None) -> Repeats:
    """Count how often the documents of a blend's tables are read before an offset.

    Args:
        catalogue: of the lake.
        blender: of the blend.
        blend_id: full id.
        offset: None for the end.

    Raises:
        CommandError: the blend has no end, or is made of tables of text.
        OffsetOutOfRangeError: the offset is beyond the end.
        SourceChangedError: a table is not as the blend pinned it.
    """
    config, head = blender.config(blend_id), blender.head(blend_id)
    if config.texts is not None:
        raise CommandError(f"blend {blend_id[:12]}: its rows are made of texts as they are read; pack them to count")
    offset = head.end if offset is None else offset
    if offset is None:
        raise CommandError(f"blend {blend_id[:12]} has no end; say up to which row with --at OFFSET")
    if head.end is not None and offset > head.end:
        raise OffsetOutOfRangeError(f"blend {blend_id[:12]}: {offset} is beyond its end {head.end}; give 0 to that")
    by_table: dict[tuple[str, str], list[SourceRows]] = {}
    rows, order = blender.source_rows(blend_id), blender.order(blend_id)
    for name, pin in head.pins().items():
        by_table.setdefault((pin.table_uuid, pin.generation), []).append(rows[name])
    tables = [parts for sources in by_table.values() if (parts := _table_parts(order, offset, sources))]
    corpora = sorted({pin.table.partition(".")[0] for pin in head.pins().values()})
    return count_repeats(tables, [link for corpus in corpora for link in cluster_links(catalogue, corpus)])


def _table_parts(order: BlendOrder, offset: int, sources: Sequence[SourceRows]) -> TableParts | None:
    """The windows of some sources of one table, with the reads of all of them; None while it has no row."""
    tables = [source.reader.table for source in sources if source.reader is not None]
    if not tables:
        return None
    table = max(tables, key=lambda each: each.rows)
    reads, is_of_blend = np.zeros(table.rows, np.int64), np.zeros(table.rows, np.bool_)
    for source in sources:
        counts, first = reads_before(order, source.name, offset, np.arange(source.row_count)), 0
        for start, end in ((0, source.row_count),) if source.runs is None else source.runs.ranges:
            reads[start:end] += counts[first : first + end - start]
            is_of_blend[start:end] = True
            first += end - start
    windows, keys = _segments(table)
    chosen = is_of_blend[windows]
    return TableParts(reads, windows[chosen], keys[chosen])


def _segments(table: PackedTable) -> tuple[Int64Array, Keys]:
    """The window and the document of each segment of a packed table."""
    windows, keys = [np.zeros(0, np.int64)], [np.zeros((0, 2), np.uint64)]
    for run in table.runs:
        where, first = f"table {table.identifier}: file {run.path}", run.start
        try:
            with opened_parquet(table.io, run.path) as (file, _):
                columns = FileColumns(file, where, {SEGMENTS: table.fields[SEGMENTS]}, table.mapping)
                for batch in file.iter_batches(_BATCH_ROWS, columns=columns.names):
                    lists = columns.select(batch)[SEGMENTS]
                    counts = pc.list_value_length(lists).to_numpy()
                    windows.append(np.repeat(np.arange(first, first + len(lists)), counts))
                    keys.append(keys_of(pc.struct_field(lists.flatten(), "doc_id")))
                    first += len(lists)
        except (StoreError, *FAULTS) as error:
            raise told(where, error) from error
    window, key = np.concatenate(windows), np.concatenate(keys)
    return window[window < table.rows], key[window < table.rows]


def cluster_links(catalogue: Catalog, name: str) -> Iterator[tuple[Keys, Keys]]:
    """Pairs of documents of one cluster, as a corpus has them: by exact duplicates, near ones, and by selections."""
    if not catalogue.table_exists(f"{name}.members"):
        return
    corpus = facts_of(Ledger.fresh(catalogue), name)
    tables = {"exact_duplicates": "witness_doc_id", **{stage.reasons: "witness_doc_id" for stage in corpus.repeating}}
    for table, other in tables.items():
        rows = read_columns(catalogue, corpus.own(table), ("doc_id", other))
        if rows is not None:
            yield keys_of(rows["doc_id"]), keys_of(rows[other])
    rows = _components(catalogue, corpus)
    if rows is not None:
        # Of several rows of a document the older ones name former components, whose documents are together still.
        yield keys_of(rows["doc_id"]), keys_of(rows["component"])


def _components(catalogue: Catalog, corpus: CorpusFacts) -> pa.Table | None:
    """The components at the threshold that is applied to the kind of each document."""
    if corpus.applied is None:
        return None
    at = In("threshold", corpus.applied.distinct)
    rows = read_columns(catalogue, corpus.own("components"), ("threshold", "doc_id", "component"), at)
    if rows is None or corpus.applied.is_one:
        return rows
    members = read_columns(catalogue, corpus.own("members"), ("doc_id", "kind"))
    if members is None:
        return None
    joined = rows.join(members, "doc_id", join_type="inner")
    applied = pa.array([corpus.applied.of(kind) for kind in joined["kind"].to_pylist()], pa.float64())
    return joined.filter(pc.equal(joined["threshold"], applied))
