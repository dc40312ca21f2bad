"""Losses by document: `python benchmarks/bench_losses.py [--rows N]`: what adding costs a step, and pages on many rows.

The step is that of `headrace demo`, eight windows of the tiny transformer, on two threads; the share of it is that of
`LossWriter.add` and of the sums in the thread beside, all in CPU seconds, whatever else the machine does. Rows are
planted as the service writes them.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import command
import numpy as np
import pyarrow as pa
import torch
from pyiceberg.catalog import Catalog

from blender_service import torch_losses
from blender_service.client import SourceSpec, connect
from blender_service.client.identity import Identity
from blender_service.server.server import start
from blender_service.torch import DENSE, BlendDataset, LossWriter
from headrace_features.losses.document_losses import MOST_WORST, ORDERS, SCHEMA, WORST
from headrace_features.losses.reading import segments_of_step, worst
from headrace_features.losses.service import add_losses
from headrace_features.losses.tables import _FILES, LOSSES
from spark_jobs.lake.files.append_log import AppendLog
from spark_jobs.lake.session.catalogue import ensure_table
from tests.blender_service.packed_tables import create_packed, open_lake

STEPS, ROWS, PART_ROWS, STEP_SEGMENTS = 60, 8, 4_000_000, 4096
ROWS_OF_DOCUMENT = 10


def example() -> ModuleType:
    """The training job of the demo."""
    path = Path(__file__).parents[1] / "examples" / "train_tiny.py"
    spec = importlib.util.spec_from_file_location("train_tiny", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["train_tiny"] = module
    spec.loader.exec_module(module)
    return module


def bench_add(folder: Path) -> None:
    """Print the share of adding in a step's time, every step sent."""
    lake = open_lake(folder / "warehouse")
    create_packed(lake, "main.packed_tiny_16").append(STEPS * ROWS, seed=6)
    adding, summing, waiting = [0.0], [0.0], [0.0]
    summed = torch_losses._summed

    def timed(*tensors: torch.Tensor) -> torch.Tensor:
        began = time.thread_time()
        result = summed(*tensors)
        summing.append(time.thread_time() - began)
        return result

    torch_losses._summed = timed  # type: ignore[assignment]
    torch.set_num_threads(2)
    with start(lake, add_services=[add_losses]) as server:
        with connect(server.address) as client:
            client.create_blend([SourceSpec("main.packed_tiny_16")], name="tiny")
        tensors = (*DENSE, "segment_documents")
        dataset = BlendDataset(server.address, "tiny", ROWS, tensors=tensors, identity=Identity(run="bench"))
        model = example().TinyTransformer(32_768, 128)
        optimizer, seconds = torch.optim.AdamW(model.parameters(), lr=3e-3), []
        with LossWriter(server.address, "bench", every=1) as writer:
            for batch in dataset:
                began = time.process_time()
                wide = {name: batch[name].repeat(1, 8) for name in DENSE}  # 128 tokens, as the demo's
                wide["document_ids"] = batch["document_ids"].repeat(1, 8)
                losses = model(**wide)
                optimizer.zero_grad()
                (losses.sum() / (wide["labels"] != -100).sum()).backward()
                optimizer.step()
                added, waited = time.thread_time(), time.perf_counter()
                writer.add(batch["offset"], losses, {**batch, **wide})  # type: ignore[typeddict-item]
                waiting.append(time.perf_counter() - waited)
                adding.append(time.thread_time() - added)
                seconds.append(time.process_time() - began)
    step, typical = (
        statistics.median(seconds),
        [1000 * statistics.median(parts) for parts in (adding, summing, waiting)],
    )
    share = (typical[0] + typical[1]) / (1000 * step)
    print(f"step {1000 * step:.1f} CPU ms, of it {share:.2%}: add {typical[0]:.3f} ms, sums beside {typical[1]:.3f} ms")
    print(f"add took {typical[2]:.3f} ms, at most {1000 * max(waiting):.2f}")


def plant(lake: Catalog, count: int) -> None:
    """Write rows of one run, steps of `STEP_SEGMENTS` segments, ten of each document, and the documents added up."""
    random = np.random.default_rng(1)
    documents = count // ROWS_OF_DOCUMENT
    digits = np.frombuffer(random.bytes(16 * documents), np.uint8).reshape(documents, 16)
    ids = pa.array([row.tobytes().hex() for row in digits], pa.string())
    ensure_table(lake, "main.losses", LOSSES, _FILES)
    log = AppendLog(lake, "main.losses", 0.0)
    for number, first in enumerate(range(0, count, PART_ROWS)):
        at = np.arange(first, min(first + PART_ROWS, count))
        tokens = random.integers(20, 2000, at.size).astype(np.int32)
        same = pa.array(np.zeros(at.size, np.int8))
        columns: dict[str, Any] = {
            "offset": at // 4, "run": pa.array(["llm-7b"]).take(same), "segment": (at % 4).astype(np.int32),
            "doc_id": ids.take(pa.array(random.integers(0, documents, at.size))),
            "source": pa.array(["web"]).take(same),
            "table": pa.array(["main.packed_web_2048"]).take(same), "epoch": at // (count // 2), "tokens": tokens,
            "sum": (tokens * random.gamma(4, 0.7, at.size)).astype(np.float32),
            "step_loss": np.repeat(random.normal(2.8, 0.1, at.size // STEP_SEGMENTS + 1), STEP_SEGMENTS)[: at.size]
            .astype(np.float32),
            "commit": np.full(at.size, number + 1),
        }  # fmt: skip
        with log.lease() as leases:
            log.append(
                log.load(), leases, lambda schema, rows=columns: pa.table(rows).select(schema.names).cast(schema)
                .combine_chunks().to_batches()[0],
            )  # fmt: skip
    top = {name: pa.array(random.gamma(4, 0.7, 3 * MOST_WORST)) for name in SCHEMA.names[5:]}
    chosen = ids.slice(0, 3 * MOST_WORST)
    facts = {
        "dataset": ["web"], "shard": [0], "source": ["web"], "table": ["main.packed_web_2048"], "run": ["llm-7b"],
        "epoch_count": [2], "tokens": [1000],
    }  # fmt: skip
    same = pa.array(np.zeros(len(chosen), np.int8))
    rows = {"order": np.repeat(ORDERS, MOST_WORST), "doc_id": chosen, **top}
    rows |= {name: pa.array(value).take(same) for name, value in facts.items()}
    table = ensure_table(lake, f"main.{WORST.name}", WORST, {})
    table.append(pa.table(rows).select(table.schema().column_names).cast(table.schema().as_arrow()))


def slowest(work: Callable[[int], object], tries: int = 20) -> tuple[float, float]:
    """Median and longest of some tries, in seconds."""
    seconds = []
    for number in range(tries):
        began = time.perf_counter()
        work(number)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds), max(seconds)


def bench_pages(folder: Path, count: int) -> None:
    """Print bytes on disk and the time of the pages' questions."""
    lake = open_lake(folder / "warehouse")
    lake.create_namespace("main")
    began = time.perf_counter()
    plant(lake, count)
    size = sum(path.stat().st_size for path in (folder / "warehouse").rglob("*.parquet"))
    print(f"{count:,} rows: {size / 1e9:.2f} GB, written in {time.perf_counter() - began:.0f} s")
    steps = np.random.default_rng(2).integers(0, count // STEP_SEGMENTS, 20) * (STEP_SEGMENTS // 4)
    step = slowest(lambda number: segments_of_step(lake, "llm-7b", int(steps[number]), STEP_SEGMENTS // 4))
    top = slowest(lambda number: worst(lake, "llm-7b", ORDERS[number % 3], 50))
    print(f"a step's segments {1000 * step[0]:.0f} ms, at most {1000 * step[1]:.0f}")
    print(f"the worst documents {1000 * top[0]:.0f} ms, at most {1000 * top[1]:.0f}")


def main() -> None:
    """Measure both."""
    parser = command.parser(__doc__)
    parser.add_argument("--rows", type=int, default=100_000_000, help="planted rows; 0 for none")
    arguments = command.read(parser, rows=400_000)
    with tempfile.TemporaryDirectory() as folder:
        bench_add(Path(folder))
    if arguments.rows:
        with tempfile.TemporaryDirectory() as folder:
            bench_pages(Path(folder), arguments.rows)


if __name__ == "__main__":
    main()
