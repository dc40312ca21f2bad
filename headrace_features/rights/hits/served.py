"""Windows that blends can serve: which snapshots of which tables, and which of them hold some documents.

    head      the newest snapshot; live blends follow it
    blend     the snapshot that a blend pins, or its successor since documents were excised from it
    tag       likewise of a tag, which a new blend may name
    nothing   a snapshot that is kept until it expires: no blend serves it, a new one could name it by its number

Blends of texts encode documents when they are read, and leave out those that `system.excisions` lists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import In
from pyiceberg.table import Table as IcebergTable

from dagster_project.inspect.lake.dependent_blends import DependentBlend, dependent_blends
from headrace.tables.catalogue import load_table, metadata_locations
from headrace.tables.exceptions import PackedTableError
from headrace.tables.generations import generation_of, successor_of, successors
from headrace.tables.window_facts import PROPERTY_OF_FACT
from spark_jobs.lake.files.scans import scan_of
from spark_jobs.lake.plan.excisions import excised_documents
from spark_jobs.packing.generations import tags_of

_SCAN_ROWS = 8192


@dataclass(frozen=True)
class Served:
    """A snapshot with what serves it, and which of its windows, or texts, hold some documents.

    Attributes:
        table: identifier.
        snapshot_id: of the snapshot.
        generation: of the packing; empty for a table of texts.
        by: `head`, blends and tags; none where it is only kept.
        rows: windows, or texts, that were looked through.
        holding: row and document; of a table of texts a row is -1, as a text is read by its document.
    """

    table: str
    snapshot_id: int
    generation: str
    by: tuple[str, ...]
    rows: int
    holding: tuple[tuple[int, str], ...]


def served_windows(catalogue: Catalog, doc_ids: Collection[str]) -> Iterator[Served]:
    """Look through all windows of all packed tables, by table, what is served first; a file is read once."""
    blends = dependent_blends(catalogue, None)
    for identifier in sorted(metadata_locations(catalogue)):
        table = load_table(catalogue, identifier)
        if table is None or PROPERTY_OF_FACT["window_tokens"] not in table.properties:
            continue
        files: dict[str, list[tuple[int, str]]] = {}
        for snapshot_id, by in served_snapshots(table, blends.get(identifier, ())).items():
            snapshot = table.snapshot_by_id(snapshot_id)
            generation = (generation_of(table, snapshot) if snapshot is not None else None) or ""
            tasks = list(scan_of(table, snapshot_id=snapshot_id).plan_files())
            for path in {task.file.file_path for task in tasks} - files.keys() if doc_ids else ():
                files[path] = list(_holding(table, path, pa.array(sorted(doc_ids), pa.string())))
            hits = sorted(hit for task in tasks for hit in files.get(task.file.file_path, ()))
            rows = sum(task.file.record_count for task in tasks)
            yield Served(identifier, snapshot_id, generation, tuple(by), rows, tuple(hits))


def served_texts(catalogue: Catalog, doc_ids: Collection[str]) -> Iterator[Served]:
    """Look through the tables of texts that blends pin, for documents that are not left out of them."""
    for identifier, blends in sorted(dependent_blends(catalogue, None).items()):
        table = load_table(catalogue, identifier)
        if table is None or PROPERTY_OF_FACT["window_tokens"] in table.properties:
            continue
        left, key = sorted(set(doc_ids) - excised_documents(catalogue, identifier)), blends[0].doc_id_column
        for snapshot_id, by in served_snapshots(table, blends).items():
            if by:
                rows = sum(task.file.record_count for task in scan_of(table, snapshot_id=snapshot_id).plan_files())
                scan = scan_of(table, In(key, left), (key,), snapshot_id) if left else None
                there = scan.to_arrow()[key].to_pylist() if scan is not None else []
                yield Served(
                    identifier, snapshot_id, "", tuple(by), rows, tuple((-1, doc_id) for doc_id in sorted(there))
                )


def served_snapshots(table: IcebergTable, blends: Sequence[DependentBlend]) -> dict[int, list[str]]:
    """By snapshot, what serves it; the head first, at the end those that nothing serves.

    A snapshot with a successor is left out: whoever names it gets that.
    """
    head = table.current_snapshot()
    if head is None:
        return {}
    newest = sorted(table.snapshots(), key=lambda snapshot: snapshot.sequence_number or 0, reverse=True)
    by: dict[int, list[str]] = {head.snapshot_id: ["head"]} | {snapshot.snapshot_id: [] for snapshot in newest}
    by[head.snapshot_id] = ["head"]
    for blend in blends:
        try:
            pinned = blend.snapshot_id
            served = head.snapshot_id if pinned is None else successor_of(table, pinned)
        except PackedTableError:  # Blender refuses to serve it, too
            continue
        if served in by:
            by[served].append(f"blend {blend.blend}")
    later = successors(table)
    for tag, tagged in tags_of(table).items():
        by[later.get(tagged, tagged)].append(f"tag {tag}")
    named = {number: reasons for number, reasons in by.items() if reasons}
    return named | {number: [] for number, reasons in by.items() if not reasons and number not in later}


def _holding(table: IcebergTable, path: str, wanted: pa.Array) -> Iterator[tuple[int, str]]:
    """Windows of a file that hold wanted documents: ordinal and document, once each."""
    with table.io.new_input(path).open() as stream:
        file = pq.ParquetFile(stream, page_checksum_verification=True)
        for batch in file.iter_batches(_SCAN_ROWS, columns=["ordinal", "segments"]):
            lists = batch.column("segments")
            names = pc.struct_field(lists.flatten(), "doc_id")
            hits = pc.is_in(names, value_set=wanted)
            rows = pc.filter(pc.list_parent_indices(lists), hits)
            ordinals = pc.take(batch.column("ordinal"), rows).to_pylist()
            yield from dict.fromkeys(zip(ordinals, pc.filter(names, hits).to_pylist(), strict=True))
