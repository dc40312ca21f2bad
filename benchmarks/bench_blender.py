"""Blender's speed: `python benchmarks/bench_blender.py`: rows resolved and streamed per second, memory, long chains.

Resolving is measured on one core as the slope between two sizes; serving over loopback, with the server in a process of
its own, in turns with gRPC that sends ready-made bytes. Ratios within one run are worth more than the numbers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import command
import numpy as np
import pyarrow as pa
from blender_peers import bench_peers
from blender_streams import bench_against_raw, bench_first_batch, bench_many_streams, bench_memory, bench_node, launch
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from blender_service.blend.config import BlendConfig, Source
from blender_service.blend.requests import BlendSpec, SourceSpec, TextSpec
from blender_service.blend.store import HEADS, BlendStore, LocalStore
from blender_service.client import connect
from blender_service.order.interleave import build_cycle
from blender_service.order.resolve import BlendOrder
from blender_service.order.segments import Pin, SourceOrder, resolve_segments
from blender_service.server.blender import Blender
from blender_service.tables import text_table
from blender_service.tables.current_table import load_current
from blender_service.tables.packed_table import load_table
from blender_service.torch import TENSORS, BlendDataset
from headrace.tables.window_facts import WindowFacts
from tests.blender_service.long_histories import lengthen_history
from tests.blender_service.order.plain_permutation import resolve_with_numpy
from tests.blender_service.packed_tables import SCHEMA

WINDOW_TOKENS = 2048
SHORT_WINDOW_TOKENS = 128
SHAPES = {
    "1 source, blocks of 2,048": ([1], 2048),
    "3 sources, blocks of 2,048": ([5, 3, 2], 2048),
    "12 sources, blocks of 2,048": (
        [40_001, 30_011, 9_007, 7_001, 5_003, 3_001, 2_003, 1_009, 997, 503, 307, 11],
        2048,
    ),
    "12 sources, blocks of 256": ([40_001, 30_011, 9_007, 7_001, 5_003, 3_001, 2_003, 1_009, 997, 503, 307, 11], 256),
}


def slope(work: Callable[[int], object], small: int, large: int) -> float:
    """Give rows per second between two sizes, best of three, so that fixed costs drop out."""

    def best(rows: int) -> float:
        times = []
        for _ in range(3):
            started = time.perf_counter()
            work(rows)
            times.append(time.perf_counter() - started)
        return min(times)

    work(small)
    return (large - small) / (best(large) - best(small))


def bench_order(given: argparse.Namespace) -> None:
    """Print how many rows a core resolves, compiled and in NumPy, at offset 0 and far out."""
    print(f"{'rows resolved, millions per second':40} {'numpy':>8} {'compiled':>9} {'at 10^12':>9}")
    for label, (weights, block_rows) in SHAPES.items():
        sources = [
            SourceOrder(f"source-{i:02}", weight, Pin("", "", "", 1_000_000 + weight, ""), 0, True)
            for i, weight in enumerate(weights)
        ]
        order = BlendOrder(17, resolve_segments(sources), block_rows, 16)
        plain = slope(lambda n, o=order: resolve_with_numpy(o, np.arange(n)), given.resolved >> 8, given.resolved >> 6)  # type: ignore[misc]
        compiled = slope(lambda n, o=order: o.resolve(np.arange(n)), given.resolved >> 3, given.resolved)  # type: ignore[misc]
        far = slope(lambda n, o=order: o.resolve(np.arange(10**12, 10**12 + n)), given.resolved >> 3, given.resolved)  # type: ignore[misc]
        print(f"{label:40} {plain / 1e6:8.2f} {compiled / 1e6:9.1f} {far / 1e6:9.1f}")


def bench_chain(given: argparse.Namespace) -> None:
    """Print how long a blend takes to open that has many updates behind it, weights and tables changing."""
    window = WindowFacts(
        window_tokens=WINDOW_TOKENS,
        tokenizer_sha256="0" * 64,
        vocabulary_size=32768,
        end_of_document_id=0,
        padding_id=0,
    )
    random = np.random.default_rng(7)
    print(f"\n{'chain of updates of 8 sources':40} {'update ms':>9} {'open ms':>8} {'seek ms':>8} {'head KB':>8}")
    with tempfile.TemporaryDirectory() as folder:
        objects = LocalStore(Path(folder))
        store = BlendStore(objects)
        parent, head, spent = None, None, []
        for step in range(given.updates + 1):
            weights = random.integers(1, 1000, size=8).tolist()
            rows = 1_000_000 + 1000 * (step // 50)
            sources = tuple(
                Source(
                    name=f"s{i}",
                    table=f"a.s{i}",
                    table_uuid="",
                    snapshot_id=str(step // 50),
                    rows=rows,
                    generation="0",
                    weight=weight,
                    max_epochs=0,
                    on_exhausted="END",
                )
                for i, weight in enumerate(weights)
            )
            started = time.perf_counter()
            config = BlendConfig(
                order_version=1, seed="17", block_rows=2048, group_blocks=16, window=window, sources=sources,
                parent=parent, from_offset=None if parent is None else str(step * 10_007),
            )  # fmt: skip
            head = config.resolve(head)
            parent = store.put(config, head)
            spent.append(time.perf_counter() - started)
            if step in (0, 10, 100, given.updates):
                opened = [open_once(objects, parent, (step + 1) * 10_007) for _ in range(5)]
                total, seek = (1000 * min(column) for column in zip(*opened, strict=True))
                kilobytes = len(objects.read(f"{HEADS}/{parent}") or b"") / 1e3
                label = f"{step} updates"
                print(f"{label:40} {1000 * np.median(spent):9.1f} {total:8.1f} {seek:8.1f} {kilobytes:8.0f}")


def open_once(objects: LocalStore, blend_id: str, offset: int) -> tuple[float, float]:
    """Give the seconds to open a blend from its config and head, and to resolve 4,096 rows at an offset."""
    build_cycle.cache_clear()
    started = time.perf_counter()
    store = BlendStore(objects)
    config = store.get(blend_id)
    order = config.order(store.head(config))
    opened = time.perf_counter()
    order.resolve(np.arange(offset, offset + 4096))
    return opened - started, time.perf_counter() - opened


def make_table(catalogue: Catalog, identifier: str, rows: int, window_tokens: int = WINDOW_TOKENS) -> None:
    """Write a packed table of random tokens, one document a window."""
    properties = {
        "headrace.window-tokens": str(window_tokens),
        "headrace.tokenizer-sha256": "0" * 64,
        "headrace.vocabulary-size": "32768",
        "headrace.end-of-document-id": "0",
        "headrace.padding-id": "0",
        "headrace.generation": "0",
        "write.parquet.row-group-limit": "2048",
    }
    table = catalogue.create_table(identifier, schema=SCHEMA, properties=properties)
    ids = np.random.default_rng(0).zipf(1.3, rows * window_tokens).clip(1, 32767).astype(np.int32)
    lists = pa.ListArray.from_arrays(np.arange(0, ids.size + 1, window_tokens, dtype=np.int32), ids)
    parts = [
        {"doc_id": f"{i:032x}", "document_start": 0, "token_count": window_tokens, "window_start": 0}
        for i in range(rows)
    ]
    data = pa.table(
        {
            "ordinal": np.arange(rows),
            "increment": np.zeros(rows, dtype=np.int32),
            "token_count": np.full(rows, window_tokens, dtype=np.int32),
            "input_ids": lists,
            "segments": [[part] for part in parts],
        }
    )
    table.append(data.cast(table.schema().as_arrow()))


def bench_served(given: argparse.Namespace) -> None:
    """Print what a server in a process of its own does: cold reads, a stream, other loaders, first batches, memory."""
    with tempfile.TemporaryDirectory() as folder:
        uri = f"sqlite:///{Path(folder) / 'catalog.db'}?timeout=30"
        catalogue = load_catalog("lake", type="sql", uri=uri, warehouse=folder)
        catalogue.create_namespace("bench")
        for name in ("a", "b"):
            make_table(catalogue, f"bench.packed_{name}_{WINDOW_TOKENS}", given.rows)
        short = f"bench.packed_a_{SHORT_WINDOW_TOKENS}"
        make_table(catalogue, short, given.rows, SHORT_WINDOW_TOKENS)
        with launch("blender", folder) as server, connect(server.address) as client:
            sources = [SourceSpec(f"bench.packed_{name}_{WINDOW_TOKENS}", max_epochs=0) for name in ("a", "b")]
            blend = client.create_blend(sources).blend_id
            client.get_blend(blend)
            started = time.perf_counter()
            next(client.read(blend, 0))
            cold = time.perf_counter() - started
            print(f"\n{'first batch, cold: a group of 8 blocks built':44} {cold * 1e3:8.0f} ms")
            started = time.perf_counter()
            received = sum(batch.input_ids.nbytes for batch in client.read(blend, 0, 2 * given.rows))
            print(f"{'the first epoch':44} {received / (time.perf_counter() - started) / 1e6:8.0f} MB/s")
            bench_against_raw(client, server, blend, given.messages)
            bench_node(client, server, blend, given.messages // 5)
            if given.peers is None:
                print("other loaders: left out; benchmarks/blender_peers.py says how to install them")
            else:
                rows = np.concatenate([batch.input_ids for batch in client.read(blend, 0, 2 * given.rows)])
                bench_peers(given.peers, Path(folder), rows, server.address, blend)
            bench_first_batch(client, blend, given.rows, given.seeks)
            small = client.create_blend([SourceSpec(short, max_epochs=0)]).blend_id
            bench_memory(client, server, blend, small, given.memory_rows)


def bench_streams(given: argparse.Namespace) -> None:
    """Print what many streams hold, and what opening one costs where a table has 10,000 snapshots."""
    with tempfile.TemporaryDirectory() as folder:
        uri = f"sqlite:///{Path(folder) / 'catalog.db'}?timeout=30"
        catalogue = load_catalog("lake", type="sql", uri=uri, warehouse=folder)
        assert isinstance(catalogue, SqlCatalog)
        catalogue.create_namespace("bench")
        name = f"bench.packed_a_{WINDOW_TOKENS}"
        make_table(catalogue, name, given.rows)
        with launch("blender", folder) as server, connect(server.address) as client:
            blend = client.create_blend([SourceSpec(name, max_epochs=0)]).blend_id
            for _ in client.read(blend, 0, given.rows):
                pass
            bench_many_streams(server, blend, given.streams)
        lengthen_history(catalogue, name, given.snapshots)
        blender = Blender(catalogue)
        print(f"\n{f'CPU ms, a table of {given.snapshots:,} snapshots':44} {'ms':>8}")
        loads: dict[str, Callable[[], object]] = {
            "loaded by PyIceberg": partial(load_table, catalogue, name),
            "loaded": partial(load_current, catalogue, name),
            "a stream opened": partial(blender.open, blend),
        }
        for label, load in loads.items():
            load()
            started = time.process_time()
            for _ in range(10):
                load()
            print(f"{label:44} {100 * (time.process_time() - started):8.1f}")


def bench_lake(given: argparse.Namespace) -> None:
    """Print rows per second of datasets that read a server of this machine and the lake itself, in turns, warm."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        warehouse = Path(folder) / "warehouse"
        warehouse.mkdir()
        uri = f"sqlite:///{warehouse / 'catalog.db'}?timeout=30"
        catalogue = load_catalog("lake", type="sql", uri=uri, warehouse=str(warehouse))
        catalogue.create_namespace("bench")
        make_table(catalogue, f"bench.packed_a_{WINDOW_TOKENS}", given.rows)
        with launch("blender", str(warehouse)) as server, connect(server.address) as client:
            blend = client.create_blend([SourceSpec(f"bench.packed_a_{WINDOW_TOKENS}", max_epochs=0)]).blend_id

            def read(address: str, tensors: tuple[str, ...]) -> float:
                batches = iter(BlendDataset(address, blend, 64, tensors=tensors))
                next(batches)
                started = time.perf_counter()
                for _ in zip(range(given.messages), batches, strict=False):
                    pass
                return given.messages * 64 / (time.perf_counter() - started)

            for label, tensors in {"input_ids": ("input_ids",), "all tensors": TENSORS}.items():
                speeds = np.array([[read(address, tensors) for address in ("lake:", server.address)] for _ in range(6)])
                lake, served = np.median(speeds[1:], axis=0)
                print(
                    f"{f'rows/s, {label}':32} lake: {lake:9,.0f}   server {served:9,.0f}   ratio {lake / served:5.2f}"
                )


def bench_texts(given: argparse.Namespace) -> None:
    """Print MB/s of text that one core makes rows of, with the tokenizer's own time and without it."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    words = [f"{word}{number}" for number in range(500) for word in ("the", "model", "reads", "rows", "of", "texts")]
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(words, size)) for size in random.zipf(1.5, given.documents).clip(20, 20_000)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(texts[:500], trainers.BpeTrainer(vocab_size=8192, show_progress=False))
    with tempfile.TemporaryDirectory() as folder:
        uri = f"sqlite:///{Path(folder) / 'catalog.db'}"
        catalogue = load_catalog("lake", type="sql", uri=uri, warehouse=folder)
        catalogue.create_namespace("bench")
        facts = {"vocabulary_size": [8192], "end_of_document_id": [0], "padding_id": [0]}
        for name, table in {
            "texts": pa.table({"doc_id": [str(number) for number in range(len(texts))], "content": texts}),
            "tokenizer": pa.table({"file": [tokenizer.to_str()], **facts}),
        }.items():
            properties = {"write.parquet.row-group-limit": "2000"}
            catalogue.create_table(f"bench.{name}", table.schema, properties=properties).append(table)
        encodings, spent = text_table.TextEncoder._encodings, [0.0]

        def timed(self: text_table.TextEncoder, *given: Any) -> Iterator[Any]:
            made = encodings(self, *given)
            while True:
                started = time.thread_time()  # without threads of its own; blocks are made ahead in another thread
                encoding = next(made, None)
                spent[0] += time.thread_time() - started
                if encoding is None:
                    return
                yield encoding

        text_table.TextEncoder._encodings = timed  # type: ignore[method-assign, assignment]
        megabytes = sum(len(text.encode()) for text in texts) / 1e6
        print(f"\n{f'{megabytes:.0f} MB of text, MB/s a core':40} {'without tokenizer':>18} {'with it':>8}")
        for label, rule in {
            "a row a document": (1, False),
            "groups of 256": (256, False),
        }.items():
            spec = TextSpec("bench.tokenizer", WINDOW_TOKENS, *rule)
            config = Blender(catalogue).create(BlendSpec((SourceSpec("bench.texts"),), texts=spec))
            Blender(catalogue).open(config.blend_id).gather(0, 1)  # compiles
            reader = Blender(catalogue).open(config.blend_id)
            rows = config.sources[0].rows or 0
            spent[0], started = 0.0, time.process_time()
            for _ in reader.read(0):
                pass
            took = time.process_time() - started
            print(f"{label:40} {megabytes / (took - spent[0]):18.1f} {megabytes / took:8.1f}   {rows} rows")


PARTS = {
    "lake": bench_lake,
    "texts": bench_texts,
    "order": bench_order,
    "chain": bench_chain,
    "served": bench_served,
    "streams": bench_streams,
}


def main() -> None:
    """Print it all, or one part."""
    parser = command.parser(__doc__)
    parser.add_argument("--part", choices=PARTS, action="append", help="one part only")
    parser.add_argument("--messages", type=int, default=2000, help="in each turn of one stream")
    parser.add_argument(
        "--memory-rows", type=int, default=10_000_000, help="rows of the read that memory is watched in"
    )
    parser.add_argument("--peers", help="interpreter that has other loaders, see blender_peers.py")
    parser.set_defaults(rows=8192, resolved=1 << 20, updates=1000, seeks=1000, documents=8_000)
    parser.set_defaults(streams=(64, 256, 1024, 2048), snapshots=10_000)
    small = {
        "documents": 500,
        "messages": 20,
        "memory_rows": 1024,
        "rows": 512,
        "resolved": 1 << 16,
        "updates": 20,
        "seeks": 20,
        "streams": (4, 8),
        "snapshots": 100,
    }
    given = command.read(parser, **small)
    command.run_parts(PARTS, given.part, given)


if __name__ == "__main__":
    main()
