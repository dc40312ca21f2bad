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
from pyiceberg.expressions import In, LessThan
from pyiceberg.table import Table as IcebergTable

from blender_service.exceptions import OffsetOutOfRangeError
from blender_service.order.offsets import reads_before
from dagster_project.exceptions import CommandError
from dagster_project.inspect.lake.corpus_facts import CorpusFacts, facts_of
from headrace.tables.catalogue import load_table
from headrace.tables.ordinals import index_snapshot
from headrace_features.composition.repeats import Keys, Repeats, TableParts, count_repeats, keys_of
from spark_jobs.arrays import Int64Array
from spark_jobs.lake.files.lookups import read_columns
from spark_jobs.lake.files.scans import scan_of
from spark_jobs.lake.ledger.ledger import Ledger

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from blender_service.blend.config import BlendConfig
    from blender_service.order.segments import Pin
    from blender_service.server.blender import Blender

_DOC_ID: Final = "segments.element.doc_id"


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
    by_table: dict[tuple[str, str], list[tuple[str, Pin]]] = {}
    for name, pin in head.pins().items():
        by_table.setdefault((pin.table_uuid, pin.generation), []).append((name, pin))
    tables = [_table_parts(catalogue, blender, blend_id, offset, sources) for sources in by_table.values()]
    corpora = sorted({pin.table.partition(".")[0] for pin in head.pins().values()})
    return count_repeats(tables, [link for corpus in corpora for link in cluster_links(catalogue, corpus)])


def ordinal_runs_of(config: BlendConfig, name: str, rows: int) -> Sequence[tuple[int, int]]:
    """The ordinals [start, end) of the rows of a source, in the order that its rows are numbered.

    A source of cells has the runs of these; all others have their whole table.
    """
    return ((0, rows),)


def _table_parts(
    catalogue: Catalog, blender: Blender, blend_id: str, offset: int, sources: Sequence[tuple[str, Pin]]
) -> TableParts:
    """The windows of a table, with the reads of all sources of it."""
    from blender_service.tables.packed_table import served_snapshot

    config, order = blender.config(blend_id), blender.order(blend_id)
    table = load_table(catalogue, sources[0][1].table)
    snapshots: list[tuple[int, Snapshot]] = []
    counted: list[tuple[str, int]] = []
    for name, pin in sources:
        snapshot = served_snapshot(table, name, pin, config.window)
        if table is None or snapshot is None:  # a live table without rows yet
            continue
        files = index_snapshot(table, pin.table, snapshot)
        there = files[-1].end if files else 0
        rows = there if pin.rows is None else ordinal_runs_of(config, name, pin.rows)[-1][1]
        snapshots.append((rows, snapshot))
        counted.append((name, there if pin.rows is None else pin.rows))
    if table is None or not snapshots:
        return TableParts(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 2), np.uint64))
    size, snapshot = max(snapshots, key=lambda each: each[0])
    reads = np.zeros(size, np.int64)
    for name, rows in counted:
        counts, start = reads_before(order, name, offset, np.arange(rows)), 0
        for first, end in ordinal_runs_of(config, name, rows):
            reads[first:end] += counts[start : start + end - first]
            start += end - first
    return TableParts(reads, *_segments(table, snapshot.snapshot_id, size))


def _segments(table: IcebergTable, snapshot_id: int, rows: int) -> tuple[Int64Array, Keys]:
    """The window and the document of each segment of the first rows of a packed table."""
    windows, keys = [np.zeros(0, np.int64)], [np.zeros((0, 2), np.uint64)]
    scan = scan_of(table, LessThan("ordinal", rows), ("ordinal", _DOC_ID), snapshot_id)
    for batch in scan.to_arrow_batch_reader():
        lists = batch.column("segments")
        keys.append(keys_of(pc.struct_field(lists.flatten(), "doc_id")))
        windows.append(np.repeat(batch.column("ordinal").to_numpy(), pc.list_value_length(lists).to_numpy()))
    return np.concatenate(windows), np.concatenate(keys)


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
