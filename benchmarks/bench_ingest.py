"""How fast files become rows, and how near the text of pages is to what people took for the article.

    python -m venv PEER && PEER/bin/pip install "datatrove[io,processing]"
    python benchmarks/bench_ingest.py [--peer PEER/bin/python] [--copies 10]

The pages are those of html_articles, 14 MB. The archive holds each of them `copies` times as a response with its own
gzip member, as Common Crawl writes them. Speeds are MB of HTML by second of processor time, of this process and its
child, or of the peer and its children; the peer is datatrove's WarcReader and Trafilatura in one process.

Records and texts are those of RFCs: MB are of text, from the bytes of the files to rows of documents and arrivals with
their hashes; the peer is datatrove's reader of the same format, which hashes nothing. The listing is of 10,000 files
that have not changed since they arrived.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import command
import pyarrow as pa
import pyarrow.parquet as pq
from corpora import real, rfcs
from cpu_time import megabytes
from cpu_time import of_all_processes as cpu_seconds
from reading import files_config, listed, rows_of

from spark_jobs.child_processes import end_idle_children
from spark_jobs.sources.config.source_config import FilesSource
from spark_jobs.sources.listing.changes import discover
from spark_jobs.sources.reading.built_in import extract
from spark_jobs.sources.refusals import Refusal
from tests.headrace_features.formats.gold_pages import GoldPage, gold_pages, mean_scores
from tests.spark_jobs.sources.conftest import ARRIVAL_ROWS

FORMATS = {"parquet": "rfc.parquet", "jsonl": "rfc.jsonl", "jsonl_gz": "rfc.jsonl.gz"}
EXTRACTORS = ("both", "resiliparse", "trafilatura")
PEER = """
import os, sys, time
from datatrove.pipeline.extractors import Trafilatura
from datatrove.pipeline.readers import WarcReader
extractor, count, size = Trafilatura(), 0, 0
for document in extractor.run(WarcReader(sys.argv[1])(), 0, 1):
    count, size = count + 1, size + len(document.text.encode())
times = os.times()
print(count, size, times.user + times.system + times.children_user + times.children_system)
"""


RECORDS_PEER = """
import os, sys
from datatrove.pipeline.readers import JsonlReader, ParquetReader
reader = {"jsonl": JsonlReader, "parquet": ParquetReader}[sys.argv[2]]
size = sum(len(document.text.encode()) for document in reader(sys.argv[1], text_key="text")())
times = os.times()
print(size, times.user + times.system)
"""


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What work gives, and its processor time, its child's included."""
    end_idle_children()
    start = cpu_seconds()
    found = work()
    end_idle_children()
    return found, cpu_seconds() - start


def write_archive(pages: list[GoldPage], copies: int, path: Path) -> int:
    """Write the pages as responses; gives the bytes of HTML."""
    size = 0
    with path.open("wb") as file:
        for number in range(len(pages) * copies):
            page = pages[number % len(pages)]
            block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + page.html
            head = (
                f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{number}>\r\nWARC-Date: "
                f"2026-01-02T03:04:05Z\r\nWARC-Target-URI: https://example.org/{number}\r\nContent-Type: "
                f"application/http; msgtype=response\r\nContent-Length: {len(block)}\r\n\r\n"
            )
            file.write(gzip.compress(head.encode() + block + b"\r\n\r\n", 6))
            size += len(page.html)
    return size


def quality_and_speed(pages: list[GoldPage]) -> None:
    """One line for each extractor over the gold pages."""
    size = sum(len(page.html) for page in pages)
    for extractor in EXTRACTORS:
        source = FilesSource(path=".", extractor=extractor)  # type: ignore[arg-type]
        rounds = 20 if extractor == "resiliparse" else 1
        work = lambda: [extract("html", page.html, source=source) for _ in range(rounds) for page in pages]  # noqa: B023, E731
        found, seconds = timed(work)
        texts = ["" if isinstance(one, Refusal) else one.text for one in found[: len(pages)]]
        precision, recall, f1 = mean_scores(texts, pages)
        print(
            f"HTML {extractor:12} {rounds * size / seconds / 1e6:6.1f} MB/s  "
            f"precision {precision:.3f}  recall {recall:.3f}  F1 {f1:.3f}  without text {texts.count('')}"
        )


def archive_speed(path: Path, size: int, extractor: str) -> None:
    """One line: the archive to rows of documents and arrivals, as Arrow batches."""
    config = files_config(path.parent, extractor=extractor)
    start = time.perf_counter()
    rows, seconds = timed(lambda: sum(batch.num_rows for batch in rows_of(config)))
    wall = time.perf_counter() - start
    print(f"WARC {extractor:12} {size / seconds / 1e6:6.1f} MB/s  {rows:,} rows, {seconds:.1f} s CPU, {wall:.1f} s")


def write_records(folder: Path, limit: int | None) -> int:
    """Write RFCs as Parquet, JSONL and text files into folders of these names; gives the bytes of text."""
    texts = rfcs(limit)
    rows = pa.table({"number": range(len(texts)), "title": [text.strip()[:60] for text in texts], "text": texts})
    for name in (*FORMATS, "text"):
        (folder / name).mkdir()
    pq.write_table(rows, folder / "parquet" / FORMATS["parquet"], compression="zstd")
    lines = "".join(json.dumps(row) + "\n" for row in rows.to_pylist()).encode()
    (folder / "jsonl" / FORMATS["jsonl"]).write_bytes(lines)
    (folder / "jsonl_gz" / FORMATS["jsonl_gz"]).write_bytes(gzip.compress(lines, 6))
    for number, text in enumerate(texts):
        (folder / "text" / f"{number}.txt").write_text(text)
    return int(megabytes(texts) * 1e6)


def records_speed(folder: Path, size: int, landing: str) -> None:
    """One line: files to rows, referenced or with a copy kept first."""
    config = files_config(folder, text_column=None if folder.name == "text" else "text")
    with tempfile.TemporaryDirectory() as kept:
        copies = kept if landing == "copy" else None
        rows, seconds = timed(lambda: sum(batch.num_rows for batch in rows_of(config, copies)))
    print(f"{folder.name:9} {landing:10} {size / seconds / 1e6:6.1f} MB/s  {rows:,} rows, {seconds:.1f} s CPU")


def peer_speed(peer: str, folder: Path) -> None:
    """One line: the same files by datatrove's reader."""
    printed = command.peer(peer, "-c", RECORDS_PEER, str(folder), folder.name.removesuffix("_gz"))
    size, seconds = printed.split()[-2:]
    print(f"{folder.name:9} datatrove  {int(size) / float(seconds) / 1e6:6.1f} MB/s, its start included")


def listing_speed(folder: Path, count: int) -> None:
    """One line: many files listed and found unchanged."""
    for number in range(count):
        (folder / f"{number % 100}").mkdir(exist_ok=True)
        (folder / f"{number % 100}" / f"{number}.txt").write_text(str(number))
    config = files_config(folder)
    rows = listed(config).to_pylist()
    arrivals = [
        {name: row.get(name) for name in ARRIVAL_ROWS.names} | {"increment": 0, "status": "landed"} for row in rows
    ]
    known = pa.Table.from_pylist(arrivals, ARRIVAL_ROWS)
    start = time.perf_counter()
    assert discover(config, known) is None
    print(f"{count:,} files listed, none new: {time.perf_counter() - start:.2f} s")


def main() -> None:
    """Print one line for each measurement."""
    parser = command.parser(__doc__)
    parser.add_argument("--peer", help="Python that has datatrove")
    parser.add_argument("--copies", type=int, default=10)
    parser.set_defaults(documents=None, files=10_000, pages=None)
    given = command.read(parser, documents=50, files=100, copies=1, pages=4)
    with tempfile.TemporaryDirectory() as folder:
        size = write_records(Path(folder), given.documents)
        for name in (*FORMATS, "text"):
            for landing in ("reference", "copy"):
                records_speed(Path(folder, name), size, landing)
            if given.peer and name != "text":
                command.attempt(peer_speed, given.peer, Path(folder, name))
    with tempfile.TemporaryDirectory() as folder:
        listing_speed(Path(folder), given.files)
    command.attempt(web_pages, given)


def web_pages(given: argparse.Namespace) -> None:
    """The lines of pages and of archives of them."""
    pages = list(gold_pages(real("html_articles")))[: given.pages]
    quality_and_speed(pages)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "crawl.warc.gz")
        size = write_archive(pages, given.copies, path)
        print(f"archive: {size / 1e6:.0f} MB of HTML, {path.stat().st_size / 1e6:.0f} MB compressed")
        archive_speed(path, size, "resiliparse")
        path.unlink()
        size = write_archive(pages, 1, path)
        archive_speed(path, size, "trafilatura")
        archive_speed(path, size, "both")
        if given.peer:
            count, text, seconds = command.peer(given.peer, "-c", PEER, folder).split()[-3:]
            print(f"WARC datatrove    {size / float(seconds) / 1e6:6.1f} MB/s  {count} documents, {text} bytes of text")


if __name__ == "__main__":
    main()
