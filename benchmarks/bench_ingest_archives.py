"""How fast the members of archives become rows, in how much memory, beside the standard library alone.

    python benchmarks/bench_ingest_archives.py [{tar.gz,zip,jsonl} ..] [--gigabytes 2]

Each archive is made and read in processes of its own: texts of 200 KB in a .tar.gz or .zip, or one JSONL file in a
.tar.gz. Speeds are MB of text by second of processor time; the memory is the peak of the process, before and after.
"""

from __future__ import annotations

import io
import json
import random
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from multiprocessing import Process
from pathlib import Path

import command
import pyarrow.compute as pc
from cpu_time import peak_mib as peak
from reading import files_config, rows_of

KINDS = ("tar.gz", "zip", "jsonl")


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


def measure(kind: str, size: int) -> None:
    """Print one line for each reader."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.zip" if kind == "zip" else "a.tar.gz")
        writer = Process(target=write_archive, args=(kind, path, size))
        writer.start()
        writer.join()
        config = files_config(path, text_column="text")
        before, start, rows, read = peak(), time.process_time(), 0, 0
        for batch in rows_of(config):
            rows += batch.num_rows
            read += pc.sum(pc.if_else(pc.is_valid(batch["doc_id"]), batch["byte_count"], 0)).as_py() or 0
        speed = read / 1e6 / (time.process_time() - start)
        print(f"{kind}: {rows:,} rows, {read / 1e6:,.0f} MB, {speed:.0f} MB/s, {before} MB before, {peak()} MB peak")
        start = time.process_time()
        read = plain_bytes(path)
        print(f"plain: {read / 1e6 / (time.process_time() - start):.0f} MB/s", flush=True)


def main() -> None:
    """Measure each kind in a process of its own, so that its peak of memory is its own."""
    parser = command.parser(__doc__)
    parser.add_argument("kinds", nargs="*", help=", ".join(KINDS))
    parser.add_argument("--gigabytes", type=float, default=2)
    given = command.read(parser, gigabytes=0.002)
    if unknown := set(given.kinds) - set(KINDS):
        parser.error(f"no kind {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    for kind in given.kinds or KINDS:
        reader = Process(target=measure, args=(kind, int(given.gigabytes * 1e9)))
        reader.start()
        reader.join()
        if reader.exitcode:
            raise SystemExit(f"{kind}: reading ended with {reader.exitcode}")


if __name__ == "__main__":
    main()
