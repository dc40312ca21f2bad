"""Rows in temporary files by the hash as their key, so that any number of them is joined in the memory of a few.

    key            f3.. 1a.. 07.. c0..      16 bytes of a SHA-256, spread evenly
    two buckets    0: 1a.. 07..  1: f3.. c0..
    read           07.. 1a.., then c0.. f3..      a bucket at a time, sorted: all rows in the order of their keys

Rows of several inputs with one key lie in the bucket of one number, where they are joined. Source: the hash join of
Kitsuregawa, Tanaka and Moto-oka 1983 ("Application of hash to data base machine and its architecture").
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
import pyarrow as pa

KEY: Final = "key"
KEY_TYPE: Final = pa.binary(16)
BUCKET_BYTES: Final = 32 << 20  # of a bucket in memory, about; and of rows that are cut into buckets together
_MOST_BUCKETS: Final = 1024
_WRITING: Final = pa.ipc.IpcWriteOptions(compression="lz4")


def key_of(text: str) -> bytes:
    """The key of a text."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:16]


class BucketedRows:
    """Rows of some inputs in buckets; made and removed by `in_buckets`."""

    def __init__(self, folder: str, count: int) -> None:
        """So many buckets in a folder."""
        self.count, self._folder = count, folder

    def add(self, name: str, batches: Iterable[pa.RecordBatch]) -> None:
        """Add rows with a column `key` to an input."""
        waiting, byte_count = list[pa.RecordBatch](), 0
        for batch in batches:
            waiting.append(batch)
            byte_count += batch.nbytes
            if byte_count >= BUCKET_BYTES:
                self._write(name, waiting)
                waiting, byte_count = [], 0
        if waiting:
            self._write(name, waiting)

    def _write(self, name: str, batches: list[pa.RecordBatch]) -> None:
        rows = pa.Table.from_batches(batches)
        first = np.frombuffer(b"".join(rows[KEY].to_pylist()), ">u2").reshape(rows.num_rows, -1)[:, 0]
        numbers = first.astype(np.int64) * self.count >> 16  # ranges of keys, all of about one width
        order = np.argsort(numbers, kind="stable")
        ends = np.searchsorted(numbers[order], np.arange(self.count), side="right")
        for number, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if start < end:
                some = rows.take(pa.array(order[start:end]))
                with (
                    open(self._path(name, number), "ab") as file,
                    pa.ipc.new_stream(file, some.schema, options=_WRITING) as stream,
                ):
                    stream.write_table(some)

    def read(self, name: str, number: int) -> pa.Table | None:
        """The rows of an input in a bucket, sorted by key; None where there is none."""
        path, tables = self._path(name, number), list[pa.Table]()
        if not os.path.exists(path):
            return None
        with pa.OSFile(path) as file:
            while file.tell() < file.size():
                with pa.ipc.open_stream(file) as stream:
                    tables.append(stream.read_all())
        return pa.concat_tables(tables).sort_by(KEY)

    def _path(self, name: str, number: int) -> str:
        return f"{self._folder}/{name}-{number}"


@contextmanager
def in_buckets(byte_count: int) -> Iterator[BucketedRows]:
    """Buckets of about `BUCKET_BYTES` for so many bytes, in temporary files (`TMPDIR`), removed at the end."""
    count = min(_MOST_BUCKETS, 1 + byte_count // BUCKET_BYTES)
    with tempfile.TemporaryDirectory(prefix="headrace-rows-") as folder:
        yield BucketedRows(folder, count)
