"""How fast the members of archives become rows, in how much memory, beside the standard library alone.

    python benchmarks/bench_ingest_archives.py {tar.gz,zip,jsonl} [--gigabytes 2]

The archive is made on the fly: texts of 200 KB in a .tar.gz or .zip, or one JSONL file in a .tar.gz. Speeds are MB of
text by second of processor time; the memory is the peak of the process, before and after.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import resource
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from multiprocessing import Process
from pathlib import Path

import pyarrow.compute as pc

from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.listing.changes import discover
from spark_jobs.sources.reading.files import read_files
from spark_jobs.sources.reading.rows import ReadingRules
from tests.spark_jobs.sources.conftest import ARRIVAL_ROWS


def texts(size: int) -> Iterator[bytes]:
    """Texts of 200 KB, together about as many bytes as asked for."""
    words = [f"{random.Random(1).randrange(1 << 24):x}{number:x}" for number in range(5000)]
    blocks = [" ".join(random.Random(seed).choices(words, k=25_000)).encode() for seed in range(50)]
    number = 0
    while size > 0:
        yield b"%d %s" % (number, blocks[number % 50])
        size -= len(blocks[number % 50])
        number += 1


def write_archive(kind: str, path: Path, size: int) -> None:
    """Write the archive."""
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for number, text in enumerate(texts(size)):
                archive.writestr(f"{number % 100}/{number}.txt", text)
        return
    with tarfile.open(path, "w:gz", compresslevel=1) as packed, tempfile.TemporaryFile() as lines:
        for number, text in enumerate(texts(size)):
            if kind == "jsonl":
                lines.write(json.dumps({"text": text.decode()}).encode() + b"\n")
                continue
            info = tarfile.TarInfo(f"{number % 100}/{number}.txt")
            info.size = len(text)
            packed.addfile(info, io.BytesIO(text))
        if kind == "jsonl":
            info = tarfile.TarInfo("records.jsonl")
            info.size = lines.tell()
            lines.seek(0)
            packed.addfile(info, lines)


def plain_bytes(path: Path) -> int:
    """Bytes that the standard library reads."""
    size = 0
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            return sum(len(archive.read(member)) for member in archive.infolist())
    with tarfile.open(path) as packed:
        for member in packed:
            file = packed.extractfile(member)
            while file is not None and (data := file.read(1 << 20)):
                size += len(data)
    return size


def peak() -> int:
    """Peak memory of this process so far, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def main() -> None:
    """Print one line for each reader."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["tar.gz", "zip", "jsonl"])
    parser.add_argument("--gigabytes", type=float, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.zip" if given.kind == "zip" else "a.tar.gz")
        writer = Process(target=write_archive, args=(given.kind, path, int(given.gigabytes * 1e9)))
        writer.start()
        writer.join()
        source = {"kind": "files", "path": str(path), "text_column": "text"}
        config = DocumentsConfig.model_validate({"dataset": "bench", "source": source})
        listing = discover(config, ARRIVAL_ROWS.empty_table())
        assert listing is not None
        rules = ReadingRules(config.dataset, config.shards, config.max_document_bytes, config.source)
        before, start, rows, size = peak(), time.process_time(), 0, 0
        for batch in read_files(iter(listing.to_batches()), rules):
            rows += batch.num_rows
            size += pc.sum(pc.if_else(pc.is_valid(batch["doc_id"]), batch["byte_count"], 0)).as_py() or 0
        speed = size / 1e6 / (time.process_time() - start)
        print(
            f"{given.kind}: {rows:,} rows, {size / 1e6:,.0f} MB, {speed:.0f} MB/s, {before} MB before, {peak()} MB peak"
        )
        start = time.process_time()
        size = plain_bytes(path)
        print(f"plain: {size / 1e6 / (time.process_time() - start):.0f} MB/s")


if __name__ == "__main__":
    main()
