"""Write tables as a folder that the Hub, and `datasets.load_dataset`, take: Parquet shards and the card.

    README.md                                     the card, `configs` in its YAML; written last
    packed_notes_2048/train-00000.parquet         windows by ordinal
    texts/train-00000.parquet                     rows of a table with `doc_id` and `content`, by increment and file

Memory is a few row groups, and the same snapshot gives the same names and bytes. Columns of the layout (`increment`,
`shard`) are left out; a map becomes a list of keys and values, which `datasets` can read.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table import Table as IcebergTable

from blender_service.auth.access import CorpusDatasets
from blender_service.auth.visibility import recorded_visibility
from dagster_project.exceptions import CommandError
from dagster_project.inspect.corpora.dataset_card import card, size_category
from dagster_project.inspect.lake.found_table import require_table
from dagster_project.restrictions import note_read
from headrace.tables.cells import CELL_COLUMN
from headrace.tables.window_facts import PROPERTY_OF_FACT
from spark_jobs.lake.plan.excisions import excised_documents
from spark_jobs.packing.ordinals import ordinal_runs
from spark_jobs.packing.windows.masks import MASK_RULE, TRAINABLE

_LAYOUT = ("increment", "shard")
_WINDOWS = ("ordinal", "token_count", "input_ids", "segments")
_GROUP_BYTES, _GROUP_ROWS = 32 << 20, 10_000  # of a row group: what a reader of the Hub holds at a time
_BATCH_ROWS, _READ_BYTES = 256, 1 << 20


class Written(NamedTuple):
    """A table in the folder: its rows and shards, and how many excised documents were left out of them."""

    table: str
    rows: int
    shards: int
    excised: int


def write_folder(catalogue: Catalog, tables: Sequence[str], folder: Path, shard_bytes: int) -> list[Written]:
    """Write tables of one dataset or corpus, and its card.

    Args:
        catalogue: the lake's.
        tables: packed ones, and ones with `doc_id` and `content`.
        folder: created if it does not exist, else it must be empty.
        shard_bytes: rows in memory that fill a shard.

    Raises:
        CommandError: a table is not there, not public, or of another kind; the folder is not empty.
    """
    opened = {name: require_table(catalogue, name) for name in tables}
    spaces = {name.partition(".")[0] for name in opened}
    if len(spaces) > 1:
        raise CommandError(f"{', '.join(sorted(spaces))} have a card each; export tables of one of them at a time")
    (space,) = spaces
    _require_public(catalogue, space)
    note_read(catalogue, opened)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise CommandError(f"{folder} is not empty; name a new folder, or empty it")
    try:
        written = [_write_table(catalogue, name, table, folder, shard_bytes) for name, table in opened.items()]
        (folder / "README.md").write_text(card(catalogue, space, header=_header(written)), encoding="utf-8")
    except BaseException:  # what was begun holds rows, and has no card
        for name in opened:
            shutil.rmtree(folder / _config(name), ignore_errors=True)
        raise
    return written


def _config(table: str) -> str:
    """The name of a table's config and folder."""
    return table.partition(".")[2]


def _header(written: Sequence[Written]) -> dict[str, Any]:
    """What the YAML of the card says of the files."""
    configs = [
        {"config_name": name, "data_files": [{"split": "train", "path": f"{name}/train-*.parquet"}]}
        for name in (_config(part.table) for part in written)
    ]
    return {"size_categories": [size_category(sum(part.rows for part in written))], "configs": configs}


def _require_public(catalogue: Catalog, space: str) -> None:
    """Refuse what others may not see, also where a corpus has it from one of its datasets.

    Raises:
        CommandError: names the dataset or corpus.
    """
    recorded = recorded_visibility(catalogue)
    for name in sorted({space, *(CorpusDatasets(catalogue).of(space) or ())}):
        if (visibility := recorded.get(name)) is not None and not visibility.is_public:
            raise CommandError(
                f"{name} is {visibility}, and a folder for the Hub is for everybody; declare `visibility: public` "
                "where that is right, or export it with `headrace export`"
            )


def _write_table(catalogue: Catalog, name: str, table: IcebergTable, folder: Path, shard_bytes: int) -> Written:
    """Write the shards of a table."""
    target = folder / _config(name)
    target.mkdir()
    excised = excised_documents(catalogue, name)
    left = set[str]()
    is_packed = PROPERTY_OF_FACT["window_tokens"] in table.properties
    batches = _windows(name, table, excised) if is_packed else _texts(name, table, excised, left)
    rows, shards = _write_shards(_groups(batches), target, shard_bytes)
    if not rows:
        raise CommandError(f"{name} has no row to export; headrace run {name.partition('.')[0]}")
    return Written(name, rows, shards, len(left))


def _write_shards(groups: Iterator[pa.Table], target: Path, shard_bytes: int) -> tuple[int, int]:
    """Write row groups, a new file where the last is full; gives how many rows and files."""
    rows, shards, filled = 0, 0, 0
    writer: pq.ParquetWriter | None = None
    try:
        for group in groups:
            if writer is None or filled >= shard_bytes:
                if writer is not None:
                    writer.close()
                file = target / f"train-{shards:05d}.parquet"
                writer = pq.ParquetWriter(file, group.schema, compression="zstd", write_page_checksum=True)
                shards, filled = shards + 1, 0
            writer.write_table(group, row_group_size=group.num_rows)
            rows, filled = rows + group.num_rows, filled + group.nbytes
    finally:
        if writer is not None:
            writer.close()
    return rows, shards


def _windows(name: str, table: IcebergTable, excised: Collection[str]) -> Iterator[pa.RecordBatch]:
    """Windows of a packed table by their ordinals.

    Raises:
        CommandError: one holds an excised document, as after an excision that failed.
    """
    gone = pa.array(sorted(excised), pa.string())
    columns = [
        *_WINDOWS,
        *(name for name in table.schema().column_names if name in (CELL_COLUMN, TRAINABLE, MASK_RULE)),
    ]
    for run in ordinal_runs(name, table):
        with table.io.new_input(run.path).open() as stream:
            file = pq.ParquetFile(stream, page_checksum_verification=True)
            for batch in file.iter_batches(_BATCH_ROWS, columns=columns):
                held = pc.struct_field(batch.column("segments").flatten(), "doc_id")
                if excised and pc.any(pc.is_in(held.cast(pa.string()), gone)).as_py():
                    raise CommandError(
                        f"{name} still holds excised documents; run headrace doc excise --table {name} for them first"
                    )
                yield batch


def _texts(name: str, table: IcebergTable, excised: Collection[str], left: set[str]) -> Iterator[pa.RecordBatch]:
    """Rows of a table with texts, without excised documents, which are added to `left`."""
    columns = {field.name for field in table.schema().fields}
    if not {"doc_id", "content"} <= columns:
        raise CommandError(f"{name} is neither packed nor has it doc_id and content; name a table of windows or texts")
    gone = pa.array(sorted(excised), pa.string())
    schema = table.schema().select(*(columns - set(_LAYOUT)))
    for task in sorted(table.scan().plan_files(), key=lambda task: (str(task.file.partition), task.file.file_path)):
        for batch in _rows_of(table, task, schema):
            is_out = pc.is_in(batch.column("doc_id").cast(pa.string()), gone)
            left.update(batch.filter(is_out).column("doc_id").to_pylist())
            yield batch.filter(pc.invert(is_out))


def _rows_of(table: IcebergTable, task: FileScanTask, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Rows of a data file; PyIceberg, which holds all of them, reads those with deleted rows or another schema."""
    arrow = schema_to_pyarrow(schema, include_field_ids=False)
    if task.delete_files or len(table.schemas()) > 1:
        scan = ArrowScan(table.metadata, table.io, schema, AlwaysTrue())
        for rows in scan.to_record_batches([task]):
            yield from pa.Table.from_batches([rows.cast(arrow)]).to_batches(_BATCH_ROWS)
        return
    with table.io.new_input(task.file.file_path).open() as stream:
        file = pq.ParquetFile(stream, buffer_size=_READ_BYTES, pre_buffer=False, page_checksum_verification=True)
        for batch in file.iter_batches(_BATCH_ROWS, columns=arrow.names):
            yield batch.select(arrow.names).cast(arrow)


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Row groups of at most `_GROUP_ROWS` rows, and of little more than `_GROUP_BYTES`."""
    waiting, rows, size = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if size >= _GROUP_BYTES or rows > _GROUP_ROWS - _BATCH_ROWS:
            yield _plain(pa.Table.from_batches(waiting))
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _plain(pa.Table.from_batches(waiting))


def _plain(rows: pa.Table) -> pa.Table:
    """Rows without metadata of Iceberg; maps as lists of keys and values."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_map(field.type):
            item = pa.struct([("key", field.type.key_type), ("value", field.type.item_type)])
            rows = rows.set_column(at, field.name, rows.column(at).cast(pa.list_(item)))
    return rows.replace_schema_metadata(None)
