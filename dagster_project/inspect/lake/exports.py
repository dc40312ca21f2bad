"""Export packed tables as shards of plain files, for readers without Iceberg.

    parquet      shard-00000.parquet   the table's columns, zstd
    webdataset   shard-00000.tar       KEY.input_ids.npy (int32), KEY.json (ordinal, token_count, segments); KEY is the
                                       ordinal in twelve digits; with masks, KEY.trainable.npy (bool); with cells,
                                       KEY.json has the cell
    pt           shard-00000.pt        what torch.save writes of a dictionary of tensors: ordinal, token_count,
                                       input_ids (R, L), segment_counts, document_start, segment_token_count,
                                       window_start, and doc_id, a list of text; with masks, trainable (R, L), with
                                       cells a list of text, cell

Rows come in the order of their ordinals, so the same snapshot gives the same shards. `manifest.json` has the snapshot,
the window facts, and size, rows and SHA-256 of every shard; it is written last, so a folder without it is incomplete.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable

from dagster_project.exceptions import CommandError
from dagster_project.inspect.lake.found_table import require_table
from headrace.tables.cells import CELL_COLUMN
from headrace.tables.window_facts import MASK_RULES
from spark_jobs.packing.ordinals import ordinal_runs, packed_facts
from spark_jobs.packing.windows.masks import MASK_RULE, TRAINABLE

MANIFEST = "manifest.json"
_COLUMNS = ["ordinal", "token_count", "input_ids", "segments"]
_SHARD_TOKENS = 1 << 26
_BATCH_TOKENS = 1 << 22


def export_table(
    catalogue: Catalog, identifier: str, folder: Path, kind: str, shard_rows: int | None = None
) -> dict[str, Any]:
    """Write a packed table's head as shards.

    Args:
        catalogue: the lake's.
        identifier: the packed table.
        folder: of the shards; created if it does not exist, else it must be empty.
        kind: parquet, webdataset or pt.
        shard_rows: windows in a shard; by default 2^26 tokens' worth.

    Returns:
        The content of the manifest.

    Raises:
        CommandError: there is no such table, or the folder is not empty.
        ConfigError: the table is not packed.
    """
    table = require_table(catalogue, identifier)
    facts = packed_facts(identifier, table)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise CommandError(f"{folder} is not empty; name a new folder, or empty it")
    rows = shard_rows or max(1, _SHARD_TOKENS // facts.window_tokens)
    write, suffix = {"parquet": (_parquet, "parquet"), "webdataset": (_webdataset, "tar"), "pt": (_pt, "pt")}[kind]
    shards = []
    for number, windows in enumerate(_shards(table, identifier, facts.window_tokens, rows)):
        file = folder / f"shard-{number:05d}.{suffix}"
        write(windows, file, facts.window_tokens)
        first = windows.column("ordinal")[0].as_py() if windows.num_rows else 0
        shards.append(
            {
                "file": file.name,
                "first_ordinal": first,
                "rows": windows.num_rows,
                "bytes": file.stat().st_size,
                "sha256": _sha256(file),
            }
        )
    snapshot = table.current_snapshot()
    manifest = {
        "table": identifier,
        "snapshot": str(snapshot.snapshot_id) if snapshot is not None else None,
        "format": kind,
        "rows": sum(int(shard["rows"]) for shard in shards),
        "properties": {key: value for key, value in sorted(table.properties.items()) if _describes_rows(key)},
        "shards": shards,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    return manifest


def _describes_rows(key: str) -> bool:
    """Whether a table property describes its rows: window, tokenizer, special ids, generation."""
    return key in ("headrace.window-tokens", "headrace.vocabulary-size", "headrace.generation", MASK_RULES) or (
        key.startswith("headrace.") and key.endswith(("-id", "-sha256"))
    )


def _shards(table: IcebergTable, identifier: str, window_tokens: int, shard_rows: int) -> Iterator[pa.Table]:
    """Rows by ordinal, `shard_rows` at a time; memory is one shard."""
    waiting: list[pa.Table] = []
    waiting_rows = 0
    columns = [
        *_COLUMNS,
        *(name for name in table.schema().column_names if name in (CELL_COLUMN, TRAINABLE, MASK_RULE)),
    ]
    for run in ordinal_runs(identifier, table):
        with table.io.new_input(run.path).open() as stream:
            file = pq.ParquetFile(stream, page_checksum_verification=True)
            for batch in file.iter_batches(max(1, _BATCH_TOKENS // window_tokens), columns=columns):
                rows = pa.Table.from_batches([batch])
                while waiting_rows + rows.num_rows >= shard_rows:
                    part = rows.slice(0, shard_rows - waiting_rows)
                    yield pa.concat_tables([*waiting, part]).combine_chunks()
                    rows = rows.slice(part.num_rows)
                    waiting, waiting_rows = [], 0
                if rows.num_rows:
                    waiting.append(rows)
                    waiting_rows += rows.num_rows
    if waiting_rows:
        yield pa.concat_tables(waiting).combine_chunks()


def _values(windows: pa.Table, window_tokens: int) -> dict[str, np.ndarray[Any, Any]]:
    """(R, L) token ids, and the masks where there are any."""
    return {
        name: windows.column(name).combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, window_tokens)
        for name in ("input_ids", TRAINABLE, MASK_RULE)
        if name in windows.column_names
    }


def _cell(windows: pa.Table) -> list[str]:
    """The column of the windows' cell, where there is one."""
    return [name for name in windows.column_names if name == CELL_COLUMN]


def _parquet(windows: pa.Table, file: Path, window_tokens: int) -> None:
    plain = windows.replace_schema_metadata(None)
    group_rows = max(1, _BATCH_TOKENS // window_tokens)
    pq.write_table(plain, file, compression="zstd", row_group_size=group_rows, write_page_checksum=True)


def _webdataset(windows: pa.Table, file: Path, window_tokens: int) -> None:
    values = _values(windows, window_tokens)
    about = windows.select(["ordinal", "token_count", "segments", *_cell(windows)]).to_pylist()
    with tarfile.open(file, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number, row in enumerate(about):
            for name, of_rows in values.items():
                array = io.BytesIO()
                np.save(array, of_rows[number])
                _add(tar, f"{row['ordinal']:012d}.{name}.npy", array.getvalue())
            _add(tar, f"{row['ordinal']:012d}.json", json.dumps(row, sort_keys=True).encode())


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a member without time stamp and owner, so that the same rows give the same bytes."""
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def _pt(windows: pa.Table, file: Path, window_tokens: int) -> None:
    try:
        from blender_service.torch import save_tensors
    except ModuleNotFoundError as error:
        raise CommandError(
            "export --format pt needs torch; install headrace[torch], or choose another format"
        ) from error
    lists = windows.column("segments").combine_chunks()
    segments = lists.flatten()
    save_tensors(
        file,
        {
            "ordinal": windows.column("ordinal").to_numpy(),
            "token_count": windows.column("token_count").to_numpy(),
            **_values(windows, window_tokens),
            "segment_counts": pc.list_value_length(lists).to_numpy(),
            "document_start": segments.field("document_start").to_numpy(),
            "segment_token_count": segments.field("token_count").to_numpy(),
            "window_start": segments.field("window_start").to_numpy(),
        },
        {"doc_id": segments.field("doc_id").to_pylist()} | {name: windows[name].to_pylist() for name in _cell(windows)},
    )


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
