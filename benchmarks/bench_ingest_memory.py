"""How much memory a Python worker of Spark takes, its parser included, for the worst file that each reader allows.

    python benchmarks/bench_ingest_memory.py [NAME ...] [--scale 1.0] [--folder /tmp]

Each case is written to a folder, and read by one task in a worker of its own (`read_files` in `mapInArrow`), as the
step `documents` reads it, all rows going to Spark. Every 20 ms the resident memory of the worker and of its children is
added up; one line is the highest sum, and what came of the file. Sizes are of the files before they are compressed.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import tarfile
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import command
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from reading import files_config, listed

from headrace.tables.settings import settings_at
from spark_jobs.lake.session.session import start_session
from spark_jobs.sources.reading.files import read_files
from spark_jobs.sources.reading.rows import READ_ROWS, ReadingRules

MB = 1_000_000
WORDS = b"The quick brown fox jumps over the lazy dog, and so on and on. "
CZECH = "Příliš žluťoučký kůň úpěl ďábelské ódy. ".encode("windows-1250")
SMILE = "\U0001f600"  # one character beyond the BMP: Python holds the whole text in four bytes a character
LINE = WORDS[:-1] + b"\n"


def fill(file: IO[bytes], piece: bytes, size: float) -> None:
    """Write a piece again and again, about so many bytes."""
    block = piece * (MB // len(piece) + 1)
    for _ in range(max(1, int(size / len(block)))):
        file.write(block)


def text(piece: bytes, size: float, end: str = "") -> Callable[[IO[bytes]], None]:
    """A writer of one piece again and again."""
    return wrapped(b"", piece, size, end.encode())


def wrapped(before: bytes, piece: bytes, size: float, after: bytes) -> Callable[[IO[bytes]], None]:
    """A writer of a piece again and again with something before and after it."""

    def write(file: IO[bytes]) -> None:
        file.write(before)
        fill(file, piece, size)
        file.write(after)

    return write


def packed(write: Callable[[IO[bytes]], None], codec: str) -> Callable[[IO[bytes]], None]:
    """What another writer writes, compressed."""

    def write_packed(file: IO[bytes]) -> None:
        with gzip.open(file, "wb", 1) if codec == "gz" else pa.CompressedOutputStream(file, "zstd") as stream:
            write(cast("IO[bytes]", stream))

    return write_packed


def mailbox(size: float, one: float) -> Callable[[IO[bytes]], None]:
    """A mailbox of small mails and a large one."""
    head = b"From a@example.org Thu Jan  1 10:00:00 2026\nMessage-ID: <%d@x>\nSubject: x\n\n"

    def write(file: IO[bytes]) -> None:
        file.write(head % 0)
        fill(file, LINE, one)
        for number in range(1, int((size - one) / 5e6)):
            file.write(head % number)
            fill(file, LINE, 5 * MB)

    return write


def parquet(rows: int, each: str) -> Callable[[IO[bytes]], None]:
    """One row group of strings."""

    def write(file: IO[bytes]) -> None:
        table = pa.table({"text": pa.array((f"{number} {each}" for number in range(rows)), pa.large_string())})
        pq.write_table(table, file, row_group_size=rows, use_dictionary=False, compression="zstd")

    return write


def warc(content_type: bytes, before: bytes, piece: bytes, size: float) -> Callable[[IO[bytes]], None]:
    """One response."""

    def write(file: IO[bytes]) -> None:
        body = io.BytesIO()
        body.write(b"HTTP/1.1 200 OK\r\nContent-Type: " + content_type + b"\r\n\r\n" + before)
        fill(body, piece, size)
        head = b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:1>\r\nWARC-Date: 2026-01-02T03:04:05Z\r\n"
        head += b"WARC-Target-URI: http://x/\r\nContent-Type: application/http; msgtype=response\r\nContent-Length: "
        file.write(head + b"%d\r\n\r\n" % body.tell() + body.getbuffer() + b"\r\n\r\n")

    return write


def tar(name: str, write_member: Callable[[IO[bytes]], None]) -> Callable[[IO[bytes]], None]:
    """A tar archive of one member."""

    def write(file: IO[bytes]) -> None:
        with tempfile.TemporaryFile() as member, tarfile.open(fileobj=file, mode="w") as archive:
            write_member(member)
            info = tarfile.TarInfo(name)
            info.size = member.tell()
            member.seek(0)
            archive.addfile(info, member)

    return write


def zipped(name: str, write_member: Callable[[IO[bytes]], None]) -> Callable[[IO[bytes]], None]:
    """A zip archive of one member."""

    def write(file: IO[bytes]) -> None:
        archive = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
        with archive, archive.open(name, "w", force_zip64=True) as member:
            write_member(member)

    return write


def docx(size: float) -> Callable[[IO[bytes]], None]:
    """A Word document of one large text."""

    def write(file: IO[bytes]) -> None:
        import docx as word

        plain = io.BytesIO()
        word.Document().save(plain)
        paragraph = b"<w:p><w:r><w:t>" + WORDS + b"</w:t></w:r></w:p>"
        with zipfile.ZipFile(plain) as old, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as new:
            for name in old.namelist():
                with new.open(name, "w") as member:
                    data = old.read(name)
                    if name == "word/document.xml":
                        before, body, after = data.partition(b"<w:body>")
                        member.write(before + body)
                        fill(member, paragraph, size)
                        data = after
                    member.write(data)

    return write


def pdf(size: float) -> Callable[[IO[bytes]], None]:
    """A PDF of one page, whose text is one stream."""

    def write(file: IO[bytes]) -> None:
        line = b"BT /F1 9 Tf 10 700 Td (" + WORDS + b") Tj ET\n"
        stream = line * max(1, int(size / len(line)))
        objects = [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
            b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream),
            b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        ]
        file.write(b"%PDF-1.4\n")
        starts = []
        for number, content in enumerate(objects, 1):
            starts.append(file.tell())
            file.write(b"%d 0 obj%s endobj\n" % (number, content))
        table = file.tell()
        file.write(b"xref\n0 6\n0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % start for start in starts))
        file.write(b"trailer<</Root 1 0 R/Size 6>>\nstartxref\n%d\n%%%%EOF" % table)

    return write


def picture(file: IO[bytes]) -> None:
    """A picture of many points in few bytes."""
    from PIL import Image

    Image.new("L", (12_000, 12_000), 255).save(file, "PNG")


def cases(scale: float) -> Iterator[tuple[str, Callable[[IO[bytes]], None], dict[str, Any]]]:
    """Name of the file, what writes it, and the keys of its source."""
    big, doc, records = 1000 * MB * scale, 98 * MB * scale, {"text_column": "text"}
    detect, smile = {"encoding": "detect"}, SMILE.encode()
    yield "ascii.txt", text(WORDS, doc), {}
    yield "one_smile.txt", text(WORDS, doc, SMILE), {}
    yield "windows1250.txt", text(CZECH, 0.9 * doc), detect
    yield "windows1250_named.txt", text(CZECH, 0.9 * doc), {"encoding": "cp1250"}
    yield "windows1250.txt.gz", packed(text(CZECH, 0.9 * doc), "gz"), detect
    yield "utf16.txt", wrapped(b"\xff\xfe", WORDS.decode().encode("utf-16-le"), doc, SMILE.encode("utf-16-le")), {}
    yield "too_long.txt", text(WORDS, big), {}
    yield "license.py", wrapped(b"# SPDX\n", b"x = 1  # " + WORDS + b"\n", doc, smile), {}
    yield "line.jsonl", wrapped(b'{"text": "', WORDS, doc, smile + b'"}\n'), records
    yield "escaped.jsonl", wrapped(b'{"text": "', rb"\ud83d\ude00 ", doc, b'"}\n'), records
    yield "other_fields.jsonl", wrapped(b'{"text": "a", "other": [', b'{"a": 1}, ', doc, b"1]}\n"), records
    yield "endless.jsonl", wrapped(b'{"text": "', WORDS, big, b'"}\n'), records
    yield "line.jsonl.zst", packed(wrapped(b'{"text": "', WORDS, doc, smile + b'"}\n'), "zst"), records
    yield "field.csv", wrapped(b'text,b\n"', LINE, doc, smile + b'",1\n'), records
    yield "endless.csv", wrapped(b'text,b\n"', WORDS, big, b'",1\n'), records
    yield "ten_mb.parquet", parquet(int(100 * scale), WORDS.decode() * (10 * MB // len(WORDS))), records
    yield "one.parquet", parquet(1, WORDS.decode() * int(doc / len(WORDS)) + SMILE), records
    yield "page.html", wrapped(b"<html><body>", b"<p>" + WORDS + b"<a href='x'>y</a></p>", 50 * MB * scale, smile), {}
    yield "large_page.html", wrapped(b"<html><body><p>", WORDS, doc, smile), {}
    yield "mails.mbox", mailbox(big, 0.9 * doc), {}
    yield "mail.eml", wrapped(b"Subject: x\n\n", LINE, doc, b""), {}
    yield (
        "base64.eml",
        wrapped(b"Subject: x\nContent-Transfer-Encoding: base64\n\n", b"QUJDREVGRyBo" * 6 + b"\n", doc, b""),
        {},
    )
    yield (
        "element.xml",
        wrapped(b"<r><p><text>", WORDS, doc, smile + b"</text></p></r>"),
        {**records, "xml_element": "p"},
    )
    many = wrapped(b"<r><p><text>x</text>", b"<i>1</i>", big / 10, b"</p></r>")
    yield "many.xml", many, {**records, "xml_element": "p"}
    cell = b'{"cells": [{"cell_type": "code", "metadata": {}, "source": "x", "execution_count": 1, "outputs": ['
    output = b'{"output_type": "stream", "name": "stdout", "text": "' + WORDS + b'"}, '
    tail = b'{"output_type": "stream", "name": "stdout", "text": ""}]}], "metadata": {}, "nbformat": 4, '
    tail += b'"nbformat_minor": 4}'
    yield "outputs.ipynb", wrapped(cell, output, 80 * MB * scale, tail), {}
    pattern = {"line_pattern": r"(?P<time>\d+) (?P<m>.*)"}
    yield "entry.log", wrapped(b"1 a\n", LINE, big, b""), pattern
    yield "block.log", wrapped(b"", b"1 " + LINE, 0.9 * doc, smile), {**pattern, "lines_by": "blank_line"}
    yield "front.md", wrapped(b"---\ntitle: a\n---\n", LINE, doc, smile), {"front_matter": "metadata"}
    yield "detected", text(LINE, doc, SMILE), {"unknown": "detect"}
    yield "one_page.pdf", pdf(doc), {}
    yield "points.png", picture, {"ocr": {"engine": "rapidocr"}}
    yield "text.docx", docx(2 * doc), {}
    yield "page.warc", warc(b"text/html", b"<html><body>", b"<p>" + WORDS, 0.9 * doc), {}
    yield "text.warc.gz", packed(warc(b"text/plain", smile, WORDS, doc), "gz"), {}
    yield "legacy.warc", warc(b"text/plain; charset=windows-1250", b"", CZECH, doc), {}
    yield "lines.tar.gz", packed(tar("a.jsonl", text(b'{"text": "' + WORDS * 9 + b'"}\n', 2 * big)), "gz"), records
    yield "text.zip", zipped("a.txt", text(WORDS, doc, SMILE)), {"archives": {"max_ratio": 10_000}}
    inner = packed(tar("b.zip", zipped("a.txt", text(WORDS, doc, SMILE))), "gz")
    yield "inner.tar.gz", inner, {"archives": {"max_ratio": 10_000}}


class Peak(threading.Thread):
    """The highest sum of resident memory of each Python worker of this process's JVM with its children."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.reset()

    def run(self) -> None:
        """Look every 20 ms."""
        while True:
            self.look()
            time.sleep(0.02)

    def look(self) -> None:
        """Add up what there is now: workers are children of PySpark's daemon, their parsers are theirs."""
        with contextlib.suppress(psutil.Error):  # one may end while it is asked
            daemons = [daemon for jvm in psutil.Process().children() for daemon in jvm.children()]
            for worker in [worker for daemon in daemons for worker in daemon.children()]:
                children = sum(one.memory_info().rss for one in worker.children(recursive=True))
                own = worker.memory_info().rss
                self.worker, self.children = max(self.worker, own), max(self.children, children)
                self.both = max(self.both, own + children)

    def reset(self) -> None:
        """Begin anew."""
        self.worker = self.children = self.both = 0


@contextmanager
def written(folder: Path, name: str, write: Callable[[IO[bytes]], None]) -> Iterator[Path]:
    """The file, as long as it is needed."""
    path = folder / name
    with path.open("wb") as file:
        write(file)
    yield path
    path.unlink()


def main() -> None:
    """Print one line for each case."""
    parser = command.parser(__doc__)
    parser.add_argument("names", nargs="*", help="cases; all of them by default")
    parser.add_argument("--scale", type=float, default=1.0, help="of all sizes")
    parser.add_argument("--folder", help="where files are written")
    given = command.read(parser, scale=0.01, names=["ascii.txt", "line.jsonl", "mails.mbox", "text.zip"])
    os.environ["HEADRACE_ENGINE"] = "spark"  # whose workers are measured
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        root = Path(folder)
        extra = {"spark.python.worker.reuse": "false"}
        session = start_session(settings_at(root / "lake"), "local[1]", extra)
        from pyspark.sql.pandas.types import from_arrow_schema

        peak = Peak()
        peak.start()
        for name, write, keys in cases(given.scale):
            if given.names and name not in given.names:
                continue
            with written(root, name, write) as path:
                config = files_config(root, glob=name, **keys)
                listing = listed(config)
                rules = ReadingRules(config.dataset, 1, config.max_document_bytes, config.source)
                peak.reset()
                start = time.perf_counter()

                def read(_: Iterable[pa.RecordBatch], listed: Any = listing, by: Any = rules) -> Iterator[Any]:
                    return read_files(iter(listed.to_batches()), by)

                rows = session.range(1).coalesce(1).mapInArrow(read, from_arrow_schema(READ_ROWS))
                told = rows.selectExpr("doc_id IS NOT NULL AS landed", "reason", "length(content) AS size")
                found = told.groupBy("landed", "reason").count().collect()
                came = ", ".join(f"{row['count']} {'landed' if row.landed else row.reason or 'read'}" for row in found)
                seconds = time.perf_counter() - start
                print(
                    f"{name:22} {path.stat().st_size / 1e6:7.0f} MB  peak {peak.both / 1e6:6.0f} MB (worker "
                    f"{peak.worker / 1e6:.0f}, parser {peak.children / 1e6:.0f})  {seconds:5.1f} s  "
                    f"{came}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
