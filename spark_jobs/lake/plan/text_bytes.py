"""How much text lies in files that are compressed: by the footers of Parquet files, by a sample of others.

    part-0.parquet    49 MB on disk    footer: 250 MB in its row groups             250 MB
    notes.jsonl.gz   102 MB on disk    its first MB holds 4.4 MB                    449 MB
    notes.jsonl       30 MB on disk                                                  30 MB

An engine holds text as it is unpacked, so bytes on a disk would take 2 GB of it for .4. A few files of each kind are
looked at, and stand for the others; where they cannot be read here, `TYPICAL` does.
"""

from __future__ import annotations

import bz2
import lzma
import zipfile
import zlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.table import Table as IcebergTable

from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.session.shuffle_partitions import of_what_is_read

TYPICAL = 4.0
"""Bytes of text in a byte of Parquet or of compressed JSON: of records of source code 4.2 to 5.1."""
_MOST_RATIO, _SMALL_BYTES = 8, 64 << 20  # so little decides nothing, whatever it is unpacked
_SAMPLE_FILES, _SAMPLE_BYTES = 8, 1 << 20
_Measure = Callable[[Path], float]


def listed_text_bytes(listing: pa.Table) -> int:
    """Bytes of text in the files of a source's listing that are to be read."""
    rows = of_what_is_read(listing)
    if "byte_count" not in rows.column_names or "location" not in rows.column_names:
        return int(rows.nbytes)
    locations, sizes = rows["location"].cast(pa.string()), pc.fill_null(rows["byte_count"], 0).to_numpy()
    names = pc.utf8_lower(locations)
    total, left = 0.0, np.ones(len(sizes), bool)
    for suffixes, measure in _KINDS:
        mine = np.logical_or.reduce([pc.ends_with(names, suffix).to_numpy(zero_copy_only=False) for suffix in suffixes])
        left &= ~mine
        if mine.any():
            total += int(sizes[mine].sum()) * _ratio(locations.filter(pa.array(mine)), measure)
    return int(total) + int(sizes[left].sum())


def path_text_bytes(path: str) -> int:
    """Bytes of text in Parquet files on this machine."""
    root = Path(path)
    files = [root] if root.is_file() else sorted(root.rglob("*.parquet"))
    ratio = _ratio(pa.chunked_array([pa.array(map(str, files), pa.string())]), _of_parquet) if files else 0
    return round(sum(file.stat().st_size for file in files) * ratio)


def table_text_bytes(ledger: Ledger, table: str, places: Collection[str]) -> int:
    """Bytes that places of a table take unpacked, by the ledger, and the footer of a file where they are not few."""
    computed = ledger.places(table)
    stored = sum(computed[place].byte_count for place in places if place in computed)
    if stored * _MOST_RATIO < _SMALL_BYTES:
        return round(stored * TYPICAL)
    return round(stored * ledger.derived(table, "unpacked", lambda: _table_ratio(ledger.table(table))))


def _table_ratio(table: IcebergTable | None) -> float:
    """Bytes unpacked in a stored byte of a table, by the footer of one of its newest files."""
    snapshot = table.current_snapshot() if table is not None else None
    manifests = snapshot.manifests(table.io) if table is not None and snapshot is not None else []
    for manifest in reversed(manifests):
        for entry in manifest.fetch_manifest_entry(table.io) if table is not None else ():
            return _ratio(pa.chunked_array([[entry.data_file.file_path]]), _of_parquet)
    return TYPICAL


def _ratio(locations: pa.ChunkedArray, measure: _Measure) -> float:
    """Bytes of text in a byte of some files, by an even choice among them."""
    places = np.linspace(0, len(locations) - 1, min(len(locations), _SAMPLE_FILES)).astype(int)
    ratios = []
    for location in locations.take(pa.array(places)).to_pylist():
        try:
            ratios.append(measure(Path(location.removeprefix("file://"))))
        except (OSError, ValueError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, pa.ArrowException):
            continue  # it is elsewhere or damaged, which the run will say of it
    return float(np.mean(ratios)) if ratios else TYPICAL


def _of_parquet(path: Path) -> float:
    """By the footer: `total_byte_size` is of all columns, unpacked; of long strings, which no dictionary holds, all."""
    footer = pq.read_metadata(path)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    stored = sum(group.column(at).total_compressed_size for group in groups for at in range(group.num_columns))
    unpacked: int = sum(group.total_byte_size for group in groups)
    return max(1.0, unpacked / max(1, int(stored)))


def _of_zip(path: Path) -> float:
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    return sum(entry.file_size for entry in entries) / max(1, sum(entry.compress_size for entry in entries))


def _of_stream(make: Callable[[], Any]) -> _Measure:
    """Of a stream, by its first bytes."""

    def measure(path: Path) -> float:
        with path.open("rb") as file:
            packed = file.read(_SAMPLE_BYTES)
        return len(make().decompress(packed)) / max(1, len(packed))

    return measure


class _Zstd:
    """The first frames of zstd: Arrow reads them, as the standard library does not."""

    def decompress(self, packed: bytes) -> bytes:
        unpacked = bytearray()
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
            try:
                while block := stream.read(1 << 16):
                    unpacked += block
            except (OSError, pa.ArrowException):
                pass  # the sample ends within a frame
        return bytes(unpacked)


_KINDS: tuple[tuple[tuple[str, ...], _Measure], ...] = (
    ((".parquet",), _of_parquet),
    ((".gz", ".tgz"), _of_stream(lambda: zlib.decompressobj(wbits=31))),
    ((".bz2",), _of_stream(bz2.BZ2Decompressor)),
    ((".xz",), _of_stream(lzma.LZMADecompressor)),
    ((".zst",), _of_stream(_Zstd)),
    ((".zip",), _of_zip),
)
