"""Hundreds of cells of one table as sources beside one table: `python benchmarks/bench_cells.py`.

Both tables hold the same windows; that of cells has its small row groups. Rows are read in this process as a server
reads them, message by message, and counted by CPU second: first from files, then from memory. The last columns are the
milliseconds to the first message of a reader that knows nothing, and the memory of the blocks in use.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import command
import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.server.blender import Blender
from headrace.tables.cells import cell_text
from tests.blender_service.packed_tables import SCHEMA, open_lake

WINDOW_TOKENS = 2048
FILE_ROWS = 32_768
DOCUMENTS = 4  # of a window
ROW_GROUPS = {False: 2048, True: 64}  # as packing writes them, without cells and with


def make_table(catalogue: Catalog, identifier: str, rows: int, cells: int) -> None:
    """Write a packed table of random tokens, with equally large cells or without."""
    properties = {
        "headrace.window-tokens": str(WINDOW_TOKENS),
        "headrace.tokenizer-sha256": "0" * 64,
        "headrace.vocabulary-size": "32768",
        "headrace.end-of-document-id": "0",
        "headrace.padding-id": "0",
        "headrace.generation": "0",
        "write.parquet.row-group-limit": str(ROW_GROUPS[bool(cells)]),
    }
    schema = Schema(*SCHEMA.fields, NestedField(50, "cell", StringType(), required=True)) if cells else SCHEMA
    table = catalogue.create_table(identifier, schema=schema, properties=properties)
    for part in _parts(rows, cells):
        table.append(part.cast(table.schema().as_arrow()))


def _parts(rows: int, cells: int) -> Iterator[pa.Table]:
    random, size = np.random.default_rng(0), WINDOW_TOKENS // DOCUMENTS
    for first in range(0, rows, FILE_ROWS):
        ordinals = np.arange(first, min(rows, first + FILE_ROWS))
        ids = random.zipf(1.3, ordinals.size * WINDOW_TOKENS).clip(1, 32767).astype(np.int32)
        segments = [
            [
                {"doc_id": f"{o:028x}{k:04x}", "document_start": 0, "token_count": size, "window_start": k * size}
                for k in range(DOCUMENTS)
            ]
            for o in ordinals.tolist()
        ]
        columns = {
            "ordinal": ordinals,
            "increment": np.zeros(ordinals.size, dtype=np.int32),
            "token_count": np.full(ordinals.size, WINDOW_TOKENS, dtype=np.int32),
            "input_ids": pa.ListArray.from_arrays(
                np.arange(0, ids.size + 1, WINDOW_TOKENS, dtype=np.int32), pa.array(ids)
            ),
            "segments": segments,
        }
        if cells:
            columns["cell"] = [cell_text({"cell": int(o * cells // rows)}) for o in ordinals.tolist()]
        yield pa.table(columns)


def bench(catalogue: Catalog, label: str, sources: tuple[SourceSpec, ...], given: argparse.Namespace) -> None:
    """Print a line of one blend."""
    started = time.process_time()
    blend_id = Blender(catalogue).create(BlendSpec(sources)).blend_id
    created = time.process_time() - started
    firsts = []
    for offset in (0, given.rows // 3, given.rows // 2):
        started = time.process_time()
        next(Blender(catalogue).open(blend_id).read_messages(offset))
        firsts.append(1000 * (time.process_time() - started))
    blender, speeds = Blender(catalogue), []
    reader = blender.open(blend_id)
    for _ in range(3):
        started = time.process_time()
        rows = sum(message.sources.size for message in reader.read_messages(0, given.rows // 2))
        speeds.append(rows / (time.process_time() - started))
    held = blender.cache.byte_count >> 20
    numbers = f"{speeds[0]:10,.0f} {max(speeds[1:]):10,.0f} {np.median(firsts):9.0f} {held:8} {created:8.1f}"
    print(f"{label:14} {numbers}", flush=True)


def main() -> None:
    """Print it all."""
    parser = command.parser(__doc__)
    parser.add_argument("--cells", type=int, default=480, help="sources of the blend of cells")
    parser.set_defaults(rows=61_440)
    given = command.read(parser, rows=2048)
    with tempfile.TemporaryDirectory() as folder:
        catalogue = open_lake(Path(folder))
        catalogue.create_namespace("bench")
        make_table(catalogue, "bench.packed_whole_2048", given.rows, 0)
        make_table(catalogue, "bench.packed_cells_2048", given.rows, given.cells)
        print(f"{'':14} {'rows/s':>10} {'in memory':>10} {'first ms':>9} {'MiB':>8} {'create s':>8}")
        bench(catalogue, "one table", (SourceSpec("bench.packed_whole_2048", max_epochs=0),), given)
        cells = tuple(
            SourceSpec(f"bench.packed_cells_2048[cell={number}]", str(1 + number % 3), max_epochs=0)
            for number in range(given.cells)
        )
        bench(catalogue, f"{given.cells} cells", cells, given)


if __name__ == "__main__":
    main()
