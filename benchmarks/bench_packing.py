"""Packing on real data: how full windows are, what is cut, what stays together, how long plans and Spark take.

    python benchmarks/bench_packing.py [--from DIRECTORY ...] [--tokenizer FILE] [--parts plans,real,spark,cells]

`plans`   the plan of 10^12 documents, first call and warm, over several shapes of lengths
`real`    source files of the installed distributions (and RFCs, where REAL_DATA_DIR has them): document and repository
          affinity, cuts, next_fit and concat_and_slice beside them
`spark`   the step on this machine: two sizes, throughput as the slope between them
`cells`   the step over documents in 400 cells beside the same without cells, and how full the windows of cells are

Token counts are kept in --cache, so that a second run plans only. Speeds are ratios within one run.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import math
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import command
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from corpora import real, rfcs
from cpu_time import of_all_processes as cpu_seconds
from tokenizers import Tokenizer, models

from spark_jobs.packing.packed_table import PackedConfig
from spark_jobs.packing.plan.affinity import choose_plan
from spark_jobs.packing.plan.best_fit import plan_slots
from spark_jobs.packing.plan.line_cuts import line_end_tokens, soft_line_cuts
from spark_jobs.packing.plan.placement import take_slots
from spark_jobs.packing.plan.repository_runs import (
    ALONE,
    EVERY_RUN,
    THETA_PERCENTS,
    greedy_starts,
    join_runs,
    unit_lengths,
)
from spark_jobs.packing.plan.units import Pieces, cut_documents
from spark_jobs.tokens.fast.fast_encoder import NO_ENCODER, FastEncoder, encoder_version
from spark_jobs.tokens.hf_tokenizer import ExactEncoder

Int64Array = npt.NDArray[np.int64]
WINDOWS = (1024, 2048, 8192, 32768, 131072)
_SUFFIXES = {".py", ".pyi", ".js", ".ts", ".h", ".c", ".cpp", ".java", ".scala"}


def main() -> None:
    """Measure and print."""
    arguments = parse_arguments()
    windows = [int(window) for window in arguments.windows.split(",")]
    parts = arguments.parts.split(",")
    if "plans" in parts:
        print_plans(windows)
    if "real" in parts:
        found = command.attempt(load_counts, arguments)
        print_real(found or {}, windows, arguments.target)
    if "spark" in parts:
        command.attempt(print_spark, arguments)
    if "cells" in parts:
        print_cells(arguments.cell_documents, arguments.cells)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = command.parser(__doc__)
    places = [sysconfig.get_path("purelib"), sysconfig.get_path("stdlib")]
    parser.add_argument("--from", dest="sources", nargs="*", default=places)
    parser.add_argument("--tokenizer", help="a tokenizer.json; by default GPT-2's of REAL_DATA_DIR")
    parser.add_argument("--cache", default=str(Path(tempfile.gettempdir()) / "headrace_bench_packing.npz"))
    parser.add_argument("--windows", default=",".join(map(str, WINDOWS)))
    parser.add_argument("--target", type=float, default=0.998)
    parser.add_argument("--parts", default="plans,real")
    parser.add_argument("--megabytes", type=float, default=320, help="most code that is read")
    parser.add_argument("--spark-megabytes", default="8,40", help="two sizes of the Spark part")
    parser.add_argument("--cells", type=int, default=400)
    parser.add_argument("--cell-documents", type=int, default=1_000_000, help="documents of the part cells")
    small = {
        "cells": 5,
        "cell_documents": 2000,
        "windows": "128,1024",
        "megabytes": 1,
        "documents": 20,
        "spark_megabytes": "0.3,0.6",
        "target": 0.9,
    }
    parser.set_defaults(documents=None)
    given = command.read(parser, **small, sources=[str(Path(np.__file__).parent)], parts="plans,real,spark,cells")
    if given.small:
        given.cache = str(Path(tempfile.mkdtemp(prefix="bench-packing-")) / "counts.npz")
    return given


# --- plans -----------------------------------------------------------------------------------------------------------


def shapes(window_tokens: int, documents: int) -> Iterator[tuple[str, dict[int, int]]]:
    """Histograms of so many documents."""
    lengths = np.arange(1, window_tokens + 1, dtype=np.float64)
    middle = np.log(min(1000, window_tokens / 2))
    density = {
        "lognormal": np.exp(-((np.log(lengths) - middle) ** 2) / (2 * 1.5**2)) / lengths,
        "uniform": np.ones_like(lengths),
        "zipf": 1 / lengths,
        "above half": np.where(lengths > window_tokens / 2, 1.0, 0.0),
        "random": np.random.default_rng(1).random(len(lengths)),
        "sparse": np.where(np.random.default_rng(2).random(len(lengths)) < 0.01, 1.0, 0.0),
    }
    for name, weights in density.items():
        counts = np.maximum(weights / weights.sum() * documents, (weights > 0).astype(float)).astype(np.int64)
        yield name, {int(n): int(c) for n, c in zip(lengths, counts, strict=True) if c}


def print_plans(windows: list[int]) -> None:
    """Time plans of 10^12 documents."""
    print("10^12 documents: seconds of the plan, first call and warm (best of 3)")
    print("      L  shape        first    warm   distinct  slot rows  windows over ideal")
    for window_tokens in windows:
        for name, histogram in shapes(window_tokens, 10**12):
            seconds = []
            for _ in range(4):
                started = time.perf_counter()
                plan = plan_slots(histogram, window_tokens)
                seconds.append(time.perf_counter() - started)
            total = sum(length * count for length, count in histogram.items())
            over = plan.window_count - -(-total // window_tokens)
            print(
                f"{window_tokens:7,}  {name:10}  {seconds[0]:6.3f}  {min(seconds[1:]):6.3f}  {len(histogram):9,}"
                f"  {len(plan.first_slot):9,}  {over:+,}"
            )
    print()


# --- real data -------------------------------------------------------------------------------------------------------


def read_code(folders: list[Path], limit: float) -> Iterator[tuple[str, str]]:
    """Distinct source files with their repository, in path order, up to `limit` bytes: a repository is a top folder."""
    seen: set[int] = set()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            inner = path.relative_to(folder).parts
            if path.suffix not in _SUFFIXES or "site-packages" in inner or not path.is_file():
                continue
            text = path.read_text(errors="replace").replace("\0", "")
            if not text or hash(text) in seen:
                continue
            seen.add(hash(text))
            limit -= len(text.encode())
            if limit < 0:
                return
            yield f"{folder.name}/{inner[0]}", text


def read_prose(limit: int | None) -> Iterator[tuple[str, str]]:
    """RFCs, each without neighbours."""
    yield from ((f"rfc{number}", text) for number, text in enumerate(rfcs(limit)))


def tokenizer_file(arguments: argparse.Namespace) -> Path:
    """The tokenizer that is given, or GPT-2's."""
    return Path(arguments.tokenizer) if arguments.tokenizer else real("tokenizers/gpt2.json")


def encode(texts: list[str], file: str) -> Iterator[npt.NDArray[np.int32]]:
    """Ids of texts, by the fast encoder where it is installed (the notes show equal ids on such data)."""
    if encoder_version() == NO_ENCODER:
        yield from ExactEncoder(file).encode(texts, 1 << 20)
        return
    yield from map(FastEncoder(file).encode, texts)


def load_counts(arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Per kind: tokens, repository and line ends of every document; from the cache where it is there."""
    cache = Path(arguments.cache)
    kinds = ("code", "prose")
    if not cache.is_file():
        file = tokenizer_file(arguments).read_text()
        ends = line_end_tokens(file, 60_000)
        stored: dict[str, Any] = {}
        for kind in kinds:
            folders = [Path(path) for path in arguments.sources]
            found = list(
                read_code(folders, arguments.megabytes * 2**20) if kind == "code" else read_prose(arguments.documents)
            )
            started, size = time.perf_counter(), sum(len(text.encode()) for _, text in found)
            ids = list(encode([text for _, text in found], file))
            seconds = time.perf_counter() - started
            print(f"{kind}: {len(found):,} documents, {size / 1e6:.1f} MB, tokens in {seconds:.1f} s")
            names = np.unique([name for name, _ in found], return_inverse=True)[1]
            stored[f"{kind}_counts"] = np.array([len(own) for own in ids], dtype=np.int64)
            stored[f"{kind}_repositories"] = names
            stored[f"{kind}_ends"] = np.packbits(ends[np.concatenate(ids)]) if ids else np.zeros(0, dtype=np.uint8)
        np.savez(cache, **stored)
    loaded = np.load(cache)
    return {
        kind: {
            "counts": loaded[f"{kind}_counts"],
            "repositories": loaded[f"{kind}_repositories"],
            "ends": np.unpackbits(loaded[f"{kind}_ends"]).astype(np.bool_),
        }
        for kind in kinds
        if len(loaded[f"{kind}_counts"])
    }


def print_real(found: dict[str, dict[str, Any]], windows: list[int], target: float) -> None:
    """Document affinity, its peers and line cuts for all kinds; repository affinity for code."""
    for kind, corpus in found.items():
        counts: Int64Array = corpus["counts"]
        print(f"{kind}: {len(counts):,} documents, {counts.sum() / 1e6:.1f} M tokens; affinity document")
        print(
            "      L  windows  over ideal  allowed  utilisation  cuts  forced | next_fit"
            " | concat: cut documents, avoidable"
        )
        for window_tokens in windows:
            print_document(counts, window_tokens)
        print("\n      L  cut exact: mid-line  cut line: mid-line  utilisation")
        for window_tokens in windows:
            print_line_cuts(counts, corpus["ends"], window_tokens)
        print()
    if "code" not in found:
        return
    counts, repositories = found["code"]["counts"], found["code"]["repositories"]
    print(f"code, affinity repository, target {target:.3%}")
    print("      L  theta  utilisation  kept of pairs  of the bound  repositories a window (document)  seconds")
    for window_tokens in windows:
        print_repository(counts, repositories, window_tokens, target)
    print()


def print_document(counts: Int64Array, window_tokens: int) -> None:
    """One line: best fit against ideal, next fit and concatenation."""
    lengths = cut_documents(counts, window_tokens).length
    plan = plan_slots(histogram(lengths), window_tokens)
    total = int(lengths.sum())
    ideal = -(-total // window_tokens)
    starts = greedy_starts(lengths, np.arange(len(lengths)) == 0, window_tokens)
    ends = np.cumsum(counts + 1)
    begins = ends - counts - 1
    through = (ends - 1) // window_tokens > begins // window_tokens
    forced = sum(-(-(int(n) + 1) // window_tokens) - 1 for n in counts if n + 1 > window_tokens)
    print(
        f"{window_tokens:7,}  {plan.window_count:7,}  {plan.window_count - ideal:+10,}  {ideal * 0.0001 + 20:+7.0f}"
        f"  {total / (plan.window_count * window_tokens):11.4%}  {len(lengths) - len(counts):,}  {forced:,}"
        f" | {total / (int(starts.sum()) * window_tokens):8.2%}"
        f"  | {int(through.sum()):,}, {int((through & (counts + 1 <= window_tokens)).sum()):,}"
    )


def print_line_cuts(counts: Int64Array, ends: npt.NDArray[np.bool_], window_tokens: int) -> None:
    """One line: how many cuts lie in mid-line."""
    firsts = np.cumsum(counts) - counts
    exact = soft = cuts = 0
    lengths = [counts[counts + 1 <= window_tokens] + 1]
    for document in np.flatnonzero(counts + 1 > window_tokens):
        own = ends[firsts[document] : firsts[document] + counts[document]]
        places = soft_line_cuts(own, window_tokens, 0)
        cuts += len(places)
        soft += int((~own[places - 1]).sum())
        exact += int((~own[np.arange(1, len(places) + 1) * window_tokens - 1]).sum())
        lengths.append(np.diff(places, prepend=0, append=counts[document] + 1))
    all_lengths = np.concatenate(lengths)
    plan = plan_slots(histogram(all_lengths), window_tokens)
    used = all_lengths.sum() / (plan.window_count * window_tokens)
    print(f"{window_tokens:7,}  {exact / max(1, cuts):19.1%}  {soft / max(1, cuts):18.1%}  {used:11.3%}")


def print_repository(counts: Int64Array, repositories: Int64Array, window_tokens: int, target: float) -> None:
    """One line: the theta that is chosen, and what it keeps."""
    started = time.perf_counter()
    pieces = cut_documents(counts, window_tokens)
    runs = join_runs(pieces, np.diff(repositories, prepend=-1) != 0, window_tokens)
    histograms = {
        (theta, 0): histogram(unit_lengths(pieces.length, runs.unit_starts(theta)))
        for theta in (ALONE, EVERY_RUN, *THETA_PERCENTS)
    }
    chosen = choose_plan(histograms, (*THETA_PERCENTS, ALONE), 1, window_tokens, target)
    seconds = time.perf_counter() - started
    pairs = len(counts) - len(np.flatnonzero(np.diff(repositories, prepend=-1)))
    mixed = [
        repositories_a_window(pieces, repositories, runs.unit_starts(theta), histograms[theta, 0], window_tokens)
        for theta in (chosen.theta, ALONE)
    ]
    theta = "none" if chosen.theta == ALONE else str(chosen.theta / 100)
    print(
        f"{window_tokens:7,}  {theta:>5}  {chosen.utilisation:11.3%}"
        f"  {chosen.kept / pairs:13.1%}  {chosen.kept / max(1, chosen.joinable):12.1%}"
        f"  {mixed[0]:.2f} ({mixed[1]:.2f}){seconds:30.2f}"
    )


def repositories_a_window(
    pieces: Pieces, repositories: Int64Array, starts: npt.NDArray[np.bool_], units: dict[int, int], window_tokens: int
) -> float:
    """Distinct repositories in a window, on average."""
    plan = plan_slots(units, window_tokens)
    lengths = unit_lengths(pieces.length, starts)
    distinct, first_slots = plan.first_slots()
    next_slots = np.zeros(window_tokens + 1, dtype=np.int64)
    next_slots[distinct] = first_slots
    windows, _ = plan.look_up(take_slots(lengths, next_slots), lengths)
    of_unit = repositories[pieces.document[starts]]
    pairs = np.unique(windows * (int(repositories.max()) + 1) + of_unit)
    return len(pairs) / plan.window_count


def histogram(lengths: Int64Array) -> dict[int, int]:
    """Units per length."""
    distinct, counts = np.unique(lengths, return_counts=True)
    return dict(zip(distinct.tolist(), counts.tolist(), strict=True))


# --- Spark -----------------------------------------------------------------------------------------------------------


def print_spark(arguments: argparse.Namespace) -> None:
    """Time `tokens` and the packed tables on two sizes, on one core; an increment before them warms everything up."""
    from lakes import lake_at

    from spark_jobs.lake.plan.binding import Binding
    from spark_jobs.lake.run.materialize import materialize
    from spark_jobs.packing.packed import packed_step
    from spark_jobs.tokens.tokenizer import TokenizerConfig, tokenizer
    from spark_jobs.tokens.tokens import TokensConfig, tokens

    sizes = [float(size) * 2**20 for size in arguments.spark_megabytes.split(",")]
    sizes = [sizes[0], *sizes]
    file = str(tokenizer_file(arguments))
    documents = list(read_code([Path(path) for path in arguments.sources], sum(sizes)))
    seconds: dict[str, list[tuple[float, float]]] = {}
    megabytes = []
    with tempfile.TemporaryDirectory() as root:
        lake = lake_at(Path(root), "local[1]", {"spark.sql.shuffle.partitions": "4"})
        start = 0
        for increment, size in enumerate(sizes):
            end, held = start, 0
            while end < len(documents) and held < size:
                held += len(documents[end][1].encode())
                end += 1
            megabytes.append(held / 1e6)
            paths = write_inputs(Path(root), documents[start:end], increment)
            start = end
            made = Binding(tokenizer, "main", paths("survivors", "texts"), TokenizerConfig(file=file), only=0)
            materialize(lake, made)
            made_once = {name: f"main.{name}" for name in ("tokenizer", "tokenizer_certificate")}
            inputs = {**paths("survivors", "texts"), **made_once}
            bound = Binding(tokens, "main", inputs, TokensConfig(), only=increment)
            timed(seconds, "tokens", functools.partial(materialize, lake, bound))
            for affinity, length in (("document", 2048), ("repository", 2048), ("document", 32768)):
                config = PackedConfig(dataset="code", window_tokens=length, affinity=affinity)
                own = {**paths("ordered"), "tokens": "main.tokens", "tokenizer": "main.tokenizer"}
                space = "main" if affinity == "document" else "joined"
                bound = Binding(packed_step("code", length), space, own, config, only=increment)
                timed(seconds, f"packed {length} {affinity}", functools.partial(materialize, lake, bound))
    (_, small_size, large_size), more = megabytes, megabytes[2] - megabytes[1]
    for name in [name for name in seconds if name.startswith("packed")]:
        both = zip(seconds["tokens"], seconds[name], strict=True)
        seconds[f"tokens and {name}"] = [(one[0] + other[0], one[1] + other[1]) for one, other in both]
    print(f"Spark, 1 core, {small_size:.1f} and {large_size:.1f} MB of text: wall and CPU seconds, MB as the slope")
    for name, (_, small, large) in seconds.items():
        wall, used = (
            more / (after - before) if after > before else math.nan for before, after in zip(small, large, strict=True)
        )
        print(
            f"  {name:37} wall {small[0]:6.1f} {large[0]:6.1f} {wall:6.1f} MB/s"
            f"   CPU {small[1]:6.1f} {large[1]:6.1f} {used:6.1f} MB per CPU second"
        )


def timed(seconds: dict[str, list[tuple[float, float]]], name: str, work: Callable[[], object]) -> None:
    """Add wall-clock and CPU seconds of some work; the second holds on a busy machine too."""
    started, used = time.perf_counter(), cpu_seconds()
    work()
    seconds.setdefault(name, []).append((time.perf_counter() - started, cpu_seconds() - used))


def write_inputs(root: Path, documents: list[tuple[str, str]], increment: int) -> Callable[..., dict[str, str]]:
    """Survivors, texts and order of an increment as Parquet files."""
    doc_ids = [hashlib.sha256(f"{increment}/{number}".encode()).hexdigest()[:32] for number in range(len(documents))]
    shared = {
        "dataset": ["code"] * len(documents),
        "shard": pa.array([0] * len(documents), pa.int32()),
        "doc_id": doc_ids,
    }
    repositories = [name for name, _ in documents]
    ordered = {"repository": repositories, "package": [None] * len(documents), "rank": list(range(len(documents)))}
    tables = {
        "survivors": pa.table(shared),
        "texts": pa.table({**shared, "content": [text for _, text in documents]}),
        "ordered": pa.table({**shared, **ordered}),
    }
    for name, table in tables.items():
        pq.write_table(table, root / f"{name}-{increment}.parquet", row_group_size=2000)
    return lambda *names: {name: str(root / f"{name}-{increment}.parquet") for name in names}


# --- cells -----------------------------------------------------------------------------------------------------------


def print_cells(documents: int, cells: int) -> None:
    """Pack one increment with and without cells, in turn, twice; each pair follows a small one that warms up."""
    from lakes import lake_at

    from spark_jobs.lake.plan.binding import Binding
    from spark_jobs.lake.run.materialize import materialize
    from spark_jobs.packing.packed import packed_step

    best: dict[bool, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as root:
        lake = lake_at(Path(root))
        for number, count in enumerate((min(documents, 2000), documents, documents)):
            inputs = write_celled(Path(root) / str(min(number, 1)), count, cells)
            for celled in (False, True):
                space = f"{'celled' if celled else 'plain'}_{number}"
                config = PackedConfig(dataset="web", window_tokens=2048, affinity="document")
                read = inputs if celled else {name: path for name, path in inputs.items() if name != "cells"}
                bound = Binding(packed_step("web", 2048, celled=celled), space, read, config, only=0)
                seconds: dict[str, list[tuple[float, float]]] = {}
                timed(seconds, space, functools.partial(materialize, lake, bound))
                if number:
                    best[celled] = min(best.get(celled, seconds[space][0]), seconds[space][0], key=lambda both: both[1])
        columns = ("cell", "token_count")
        rows = lake.catalogue.load_table("celled_2.packed_web_2048").scan(selected_fields=columns).to_arrow()
    by_cell = rows.group_by("cell").aggregate([("token_count", "sum"), ("token_count", "count")])
    windows, tokens = (by_cell[name].to_numpy() for name in ("token_count_count", "token_count_sum"))
    (plain, plain_cpu), (own, own_cpu) = best[False], best[True]
    print(f"{documents:,} documents, {tokens.sum() / 1e6:,.0f} M tokens, {len(windows)} cells, windows of 2,048")
    print(f"  without cells {plain:.1f} s, {plain_cpu:.1f} s of the processor; with cells {own:.1f} s, {own_cpu:.1f} s")
    print(f"  ratio {own / plain:.3f}, of the processor {own_cpu / plain_cpu:.3f}")
    for least in (1000, 1):
        if (large := windows >= least).any():
            used = tokens[large] / (2048 * windows[large])
            together = tokens[large].sum() / (2048 * windows[large].sum())
            print(
                f"  {large.sum()} cells of {least:,} windows or more: {together:.3%} full, the least {used.min():.3%}"
            )


def write_celled(root: Path, documents: int, cells: int) -> dict[str, str]:
    """Tokens, order, tokenizer and cells of documents of web lengths; half of the cells are twice as large."""
    if not root.exists():
        root.mkdir()
        draw = np.random.default_rng(0)
        counts = np.minimum(draw.lognormal(6.4, 1.1, documents).astype(np.int64) + 1, 100_000)
        keys = {
            "dataset": ["web"] * documents,
            "shard": pa.array(np.zeros(documents, np.int32)),
            "doc_id": [hashlib.sha256(str(number).encode()).hexdigest()[:32] for number in range(documents)],
        }
        plain = {"repository": pa.nulls(documents, pa.string()), "rank": np.arange(documents)}
        chosen = draw.integers(0, cells + cells // 2, documents) % cells
        names = pa.array([f'{{"quality":{at % 20},"topic":{at // 20}}}' for at in range(cells)])
        pq.write_table(pa.table({**keys, **plain}), root / "ordered.parquet")
        pq.write_table(pa.table({**keys, "cell": names.take(pa.array(chosen))}), root / "cells.parquet")
        facts = {"vocabulary_size": 50_000, "end_of_document_id": 0, "padding_id": 1}
        tokenizer = {"sha256": "ab" * 32, **facts, "special_tokens": [], "file": Tokenizer(models.BPE()).to_str()}
        kind = pa.map_(pa.string(), pa.int32())
        types = {"vocabulary_size": pa.int32(), "end_of_document_id": pa.int32(), "padding_id": pa.int32()}
        schema = pa.schema({"sha256": pa.string(), **types, "special_tokens": kind, "file": pa.string()})
        pq.write_table(pa.Table.from_pylist([tokenizer], schema=schema), root / "tokenizer.parquet")
        table = pa.table({**keys, "token_count": pa.array(counts.astype(np.int32))})
        with pq.ParquetWriter(
            root / "tokens.parquet", table.schema.append(pa.field("input_ids", pa.list_(pa.int32())))
        ) as file:
            for part in range(0, documents, 5000):
                rows = table.slice(part, 5000)
                offsets = np.concatenate([[0], np.cumsum(rows["token_count"].to_numpy())]).astype(np.int32)
                ids = (draw.zipf(1.3, offsets[-1]) % 49_997 + 3).astype(np.int32)
                lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids))
                file.write_table(rows.append_column("input_ids", lists))
    return {name: str(root / f"{name}.parquet") for name in ("tokens", "ordered", "tokenizer", "cells")}


if __name__ == "__main__":
    main()
