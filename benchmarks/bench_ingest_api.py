"""Measure how fast an API is fetched and landed, and how fresh documents are: from the server to a table of the lake.

    python benchmarks/bench_ingest_api.py                 # 20 documents a page; how many a second
    python benchmarks/bench_ingest_api.py --per-hour 1000000 --seconds 180    # freshness while that many come
    python benchmarks/bench_ingest_api.py --per-hour 1000000 --seconds 600 --packed    # the same, to packed windows

The server runs in a process of its own on the same cores, and answers as fast as it can unless --server-ms is given.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import random
import shutil
import tempfile
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import command
import numpy as np
from lakes import lake_at
from pyiceberg.expressions import EqualTo

from headrace_features.apis.fetch import fetch_source
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.documents import documents

PAGE = 20
SYLLABLES = [first + last for first in "bcdfghklmnprstvw" for last in ("a", "e", "in", "or", "um", "ai")]
WORDS = [one + other + last for one in SYLLABLES for other in SYLLABLES for last in SYLLABLES[:12]]
USED = list(itertools.accumulate(1 / rank for rank in range(1, len(WORDS) + 1)))  # Zipf's law, as in real texts


def text_of(row: int) -> str:
    """About 2 kB that are like no other document's."""
    return f"{row} {' '.join(random.Random(row).choices(WORDS, cum_weights=USED, k=300))}."


def serve(port: Any, count: int, per_second: float, server_seconds: float) -> None:
    """Serve `count` documents from the start, and `per_second` more from then on."""
    began = time.time()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

        def do_GET(self) -> None:
            time.sleep(server_seconds)
            after = int(parse_qs(urlsplit(self.path).query).get("cursor", ["0"])[0])
            there = count + int((time.time() - began) * per_second)
            rows = range(after, min(after + PAGE, there))
            since = [began if row < count else began + (row - count + 1) / per_second for row in rows]
            data = [{"id": row, "text": text_of(row), "arrived": at} for row, at in zip(rows, since, strict=True)]
            body = json.dumps({"data": data, "next": str(rows.stop) if rows else None}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port.value = server.server_port
    server.serve_forever()


def offset_config(port: int, connections: int) -> DocumentsConfig:
    """The dataset: cursors are numbers, so pages can be asked for side by side."""
    source = {
        "kind": "api",
        "url": f"http://127.0.0.1:{port}/items",
        "paginator": {"kind": "offset", "param": "cursor", "limit": PAGE},
        "records": "data",
        "text_column": "text",
        "id_column": "id",
        "metadata_columns": ["arrived"],
        "limits": {"start_per_second": 200, "max_per_second": 1000, "connections": connections, "fetch_seconds": 20},
    }
    return DocumentsConfig.model_validate({"dataset": "burst", "source": source})


def cursor_config(port: int, connections: int) -> DocumentsConfig:
    """The same with a server that remembers: `since` is the number of the last document."""
    given = offset_config(port, connections).model_dump(mode="json")
    given["source"] |= {
        "paginator": {"kind": "cursor", "path": "next", "param": "cursor"},
        "since": {"param": "cursor", "column": "id", "first": "0"},
    }
    return DocumentsConfig.model_validate(given)


def main() -> None:
    """Print throughput, and freshness where asked for."""
    parser = command.parser(__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="documents that are there at first")
    parser.add_argument("--per-hour", type=float, default=0, help="documents an hour that come after that")
    parser.add_argument("--seconds", type=float, default=120, help="how long they come")
    parser.add_argument("--packed", action="store_true", help="measure to packed windows, by runs of a whole project")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--server-ms", type=float, default=0, help="how long the server takes for a page")
    given = command.read(parser, count=200)
    port = multiprocessing.Value("i", 0)
    arguments = (port, 0 if given.per_hour else given.count, given.per_hour / 3600, given.server_ms / 1000)
    server = multiprocessing.Process(target=serve, args=arguments, daemon=True)
    server.start()
    while not port.value:
        time.sleep(0.01)
    with tempfile.TemporaryDirectory() as folder:
        if given.packed:
            packed_freshness(Path(folder) / "project", cursor_config(port.value, given.connections), given.seconds)
            server.kill()
            return
        lake = lake_at(Path(folder))
        lake.session()  # starts before the clock does
        if given.per_hour:
            freshness(lake, cursor_config(port.value, given.connections), given.seconds)
        else:
            throughput(lake, offset_config(port.value, given.connections), given.count)
    server.kill()


def binding(config: DocumentsConfig) -> Binding:
    """The step on the dataset."""
    return Binding(documents, config.dataset, {}, config, driving_table=f"{config.dataset}.arrivals")


def throughput(lake: Lake, config: DocumentsConfig, count: int) -> None:
    """Fetch, then land, each timed by itself."""
    started = time.monotonic()
    objects = ObjectFolder.of(lake.catalogue, config.dataset)
    done = fetch_source(config.dataset, config.source, lake.catalogue, objects, 5)  # type: ignore[arg-type]
    fetched = time.monotonic() - started
    started = time.monotonic()
    materialize(replace(lake, fetches=False), binding(config))
    landed = time.monotonic() - started
    assert done.records >= count, done
    print(f"documents                {done.records:>10,}   pages {done.pages:,}, requests {done.requests:,}")
    print(f"fetched a second         {done.records / fetched:>10,.0f}   {fetched:.1f} s")
    print(f"landed a second          {done.records / landed:>10,.0f}   {landed:.1f} s")
    print(f"both, documents an hour  {3600 * done.records / (fetched + landed):>10,.0f}")


def freshness(lake: Lake, config: DocumentsConfig, seconds: float) -> None:
    """Ingest again and again while documents come; an age is that of a document when its increment is published."""
    ages, ended = list[float](), time.monotonic() + seconds
    for number in itertools.count():
        materialize(lake, binding(config))
        now = time.time()
        rows = lake.session().table(f"lake.{config.dataset}.documents").where(f"increment = {number}")
        new = [now - float(row["at"]) for row in rows.selectExpr("metadata['arrived'] AS at").collect()]
        ages += new
        print(f"increment {number}: {len(new):,} documents, oldest {max(new, default=0):.1f} s", flush=True)
        if time.monotonic() > ended:
            break
    p50, p99 = np.percentile(ages, [50, 99])
    print(f"{len(ages):,} documents in {seconds:.0f} s: freshness p50 {p50:.1f} s, p99 {p99:.1f} s")


def packed_freshness(root: Path, config: DocumentsConfig, seconds: float) -> None:
    """Run a dataset and its corpus again and again; an age is that of a document when the run that packs it ends."""
    from dagster_project.cli import run_command
    from dagster_project.cli.run.execution import execute, require_done
    from headrace.tables.settings import load_settings
    from spark_jobs.lake.files.lookups import read_columns

    assert run_command(["init", "bursting", "--at", str(root)]) == 0
    defs = root / "bursting" / "defs"
    shutil.rmtree(defs)
    corpus = {"name": "main", "datasets": ["burst"], "tokenizer": {"train": {"vocabulary_size": 4096}}}
    dataset = {
        "name": "burst",
        "policy": {"rules": []},
        "source": config.model_dump(mode="json", exclude_none=True)["source"],
    }
    for name, kind, attributes in (("burst", "Dataset", dataset), ("main", "Corpus", corpus)):
        (defs / name).mkdir(parents=True)
        said = {"type": f"headrace.{kind}", "attributes": attributes}
        (defs / name / "defs.yaml").write_text(json.dumps(said))  # JSON is YAML
    (defs / "__init__.py").touch()
    os.chdir(root)
    catalogue, ages = open_catalogue(load_settings()), list[float]()
    began = time.monotonic()
    for number in itertools.count():
        started = time.monotonic()
        require_done(
            execute(
                ("burst", "main"), None, lambda line: print(time.strftime("%X"), line.table, line.status, flush=True)
            ),
            "the benchmark again",
        )
        now, took = time.time(), time.monotonic() - started
        rows = read_columns(catalogue, "burst.documents", ("metadata",), EqualTo("increment", number))
        new = [now - float(dict(row)["arrived"]) for row in (rows["metadata"].to_pylist() if rows else [])]
        ages += new
        windows = catalogue.load_table("main.packed_burst_2048").scan().to_arrow_batch_reader()
        count = sum(batch.num_rows for batch in windows)
        print(
            f"run {number}: {took:.0f} s, {len(new):,} documents, p50 {np.median(new):.0f} s, {count:,} windows",
            flush=True,
        )
        if time.monotonic() - began > seconds and number >= 2:
            break
    p50, p99 = np.percentile(ages, [50, 99])
    print(f"{len(ages):,} documents in {time.monotonic() - began:.0f} s: to packed p50 {p50:.0f} s, p99 {p99:.0f} s")


if __name__ == "__main__":
    main()
