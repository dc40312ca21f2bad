"""Other deduplicators on the same documents, each in a process and a Python of its own, on one core.

    PYTHON benchmarks/dedup_peers.py TOOL DOCUMENTS RESULT

DOCUMENTS has a JSON object a line with `id` and `text`; RESULT becomes a JSON object: what was found and what it cost.
`bench_dedup_kernels.py --part peers` calls this. PYTHON needs only what its tool needs: datatrove with spaCy,
text-dedup, datasketch, or this project.

Every tool finds duplicates its own way; `n` below is the words of a shingle. MinHash estimates the plain Jaccard
similarity of the sets of shingles: no weights, no counts.

    headrace                  weighted words, bands solved from the background, every candidate verified
    datasketch                MinHash of words, 256 values, MinHashLSH with its own bands for 0.7
    datasketch-weighted       WeightedMinHash of the same weights as headrace's, 256 values, MinHashLSH as above
    datatrove                 its defaults (n = 5, 14 bands of 8)
    text-dedup                its defaults (n = 5, 250 values, its own bands for 0.7)

datatrove and text-dedup answer in clusters: a document that shares a bucket with any of a cluster belongs to it.
"""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

Pairs = list[tuple[int, int]]
Found = tuple[Pairs, list[int]]
"""Pairs called duplicates (smaller row first), and the rows that are removed."""

WARM_UP_DOCUMENTS = 100
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def memory_megabytes(field: str) -> float:
    """A line of /proc/self/status in MB: VmRSS now, VmHWM the peak; NaN where there is no such file."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return math.nan
    found = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
    return int(found.group(1)) * 1024 / 1e6 if found else math.nan


def processor_seconds() -> float:
    """Processor time of this process and of its children that ended, in the kernel and outside."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def greedy_removed(pairs: Pairs) -> list[int]:
    """Rows removed when rows are taken one after another and kept unless a pair links them to a kept one."""
    earlier: dict[int, list[int]] = defaultdict(list)
    for first, second in pairs:
        earlier[second].append(first)
    removed: set[int] = set()
    for row in sorted(earlier):
        if any(other not in removed for other in earlier[row]):
            removed.add(row)
    return sorted(removed)


def cluster_pairs(cluster_of: dict[int, int]) -> Pairs:
    """All pairs inside clusters."""
    members: dict[int, list[int]] = defaultdict(list)
    for row in sorted(cluster_of):
        members[cluster_of[row]].append(row)
    return [pair for rows in members.values() for pair in combinations(rows, 2)]


def run_headrace(documents: Path, folder: Path) -> Found:
    """The kernels in a row, from texts to removed documents."""
    from dedup_in_memory import find_duplicates

    return find_duplicates(_texts(documents))


def run_datasketch(documents: Path, folder: Path) -> Found:
    """MinHash and LSH as their documentation shows them."""
    from datasketch import MinHash, MinHashLSH

    index = MinHashLSH(threshold=0.7, num_perm=256)
    pairs: Pairs = []
    for row, text in enumerate(_texts(documents)):
        words = {word.encode() for word in _words(text)}
        if words:
            sketch = MinHash(num_perm=256)
            sketch.update_batch(words)
            pairs += [(other, row) for other in index.query(sketch)]
            index.insert(row, sketch, check_duplication=False)
    return pairs, greedy_removed(pairs)


def run_datasketch_weighted(documents: Path, folder: Path) -> Found:
    """WeightedMinHash of min(term frequency, 4) x quantised inverse document frequency, and LSH."""
    import numpy as np
    from datasketch import MinHashLSH, WeightedMinHashGenerator

    counted = [Counter(_words(text)) for text in _texts(documents)]
    frequency = Counter(word for words in counted for word in words)
    places = {word: place for place, word in enumerate(frequency)}
    units = np.rint(8 * np.log((len(counted) + 1) / (np.array(list(frequency.values())) + 1))).clip(1, 255)
    generator = WeightedMinHashGenerator(len(places), sample_size=256, seed=1)
    index = MinHashLSH(threshold=0.7, num_perm=256)
    vector = np.zeros(len(places))
    pairs: Pairs = []
    for row, words in enumerate(counted):
        if words:
            own = [places[word] for word in words]
            vector[own] = units[own] * np.minimum(list(words.values()), 4)
            sketch = generator.minhash(vector)
            pairs += [(other, row) for other in index.query(sketch)]
            index.insert(row, sketch, check_duplication=False)
            vector[own] = 0
    return pairs, greedy_removed(pairs)


def run_datatrove(documents: Path, folder: Path) -> Found:
    """Its three steps up to the list of what to remove: signatures, buckets, clusters."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupSignature
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.utils.logging import logger

    logger.remove()
    config = MinhashConfig()
    signatures, buckets, removed = (str(folder / name) for name in ("signatures", "buckets", "removed"))
    reader = JsonlReader(str(documents.parent), glob_pattern=documents.name)
    steps = (
        ([reader, MinhashDedupSignature(signatures, config=config)], 1),
        ([MinhashDedupBuckets(signatures, buckets, config=config)], config.num_buckets),
        ([MinhashDedupCluster(buckets, removed, config=config, save_cluster_id=True)], 1),
    )
    for number, (pipeline, tasks) in enumerate(steps):
        LocalPipelineExecutor(pipeline, tasks=tasks, workers=1, logging_dir=str(folder / f"log{number}")).run()
    clusters = _integers(folder / "removed" / "000000.clusters")
    rows = _integers(folder / "removed" / "000000.remove")
    return cluster_pairs(dict(zip(clusters[::2], clusters[1::2], strict=True))), sorted(rows)


def run_text_dedup(documents: Path, folder: Path) -> Found:
    """Its command `text_dedup.minhash`, called in this process; what it keeps is read from its output."""
    import datasets
    from text_dedup import minhash
    from text_dedup.utils import IOArgs, MetaArgs, MinHashArgs

    datasets.disable_progress_bars()
    texts = _texts(documents)
    datasets.Dataset.from_dict({"row": list(range(len(texts))), "text": texts}).save_to_disk(str(folder / "in"))
    where = IOArgs(path=str(folder / "in"), output=str(folder / "out"), local=True, num_proc=None)
    minhash.main.callback(io_args=where, meta_args=MetaArgs(column="text"), minhash_args=MinHashArgs(min_length=0))
    kept = set(datasets.load_from_disk(where.output)["row"])
    clusters = {row: minhash.uf.find(row) for row in list(minhash.uf.parent)}
    return cluster_pairs(clusters), sorted(set(range(len(texts))) - kept)


class Tool(NamedTuple):
    """A tool: the distribution that it needs, whose similarity it finds, and how it runs."""

    distribution: str
    similarity: str
    run: Callable[[Path, Path], Found]


TOOLS = {
    "headrace": Tool("headrace", "weighted words", run_headrace),
    "datasketch": Tool("datasketch", "words", run_datasketch),
    "datasketch-weighted": Tool("datasketch", "weighted words", run_datasketch_weighted),
    "datatrove": Tool("datatrove", "5-grams", run_datatrove),
    "text-dedup": Tool("text-dedup", "5-grams", run_text_dedup),
}


def _texts(documents: Path) -> list[str]:
    return [json.loads(line)["text"] for line in documents.read_text(encoding="utf-8").splitlines()]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _integers(path: Path) -> list[int]:
    """Little-endian 32-bit numbers of a file; none where there is no such file."""
    data = path.read_bytes() if path.is_file() else b""
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]


def measure(tool: str, documents: Path) -> dict[str, object]:
    """Run a tool on a few documents, so that imports and compiling are paid for, then on half of them and on all."""
    lines = documents.read_text(encoding="utf-8").splitlines(keepends=True)
    cpu_seconds: list[float] = []
    wall_seconds: list[float] = []
    resident = math.nan
    with tempfile.TemporaryDirectory() as scratch:
        for count in (WARM_UP_DOCUMENTS, len(lines) // 2, len(lines)):
            folder = Path(scratch) / str(count)
            folder.mkdir(exist_ok=True)
            some = folder / "documents.jsonl"
            some.write_text("".join(lines[:count]), encoding="utf-8")
            started, spent = time.perf_counter(), processor_seconds()
            pairs, removed = TOOLS[tool].run(some, folder)
            cpu_seconds.append(processor_seconds() - spent)
            wall_seconds.append(time.perf_counter() - started)
            resident = memory_megabytes("VmRSS") if count == WARM_UP_DOCUMENTS else resident
    return {
        "version": version(TOOLS[tool].distribution),
        "documents": [len(lines) // 2, len(lines)],
        "cpu_seconds": cpu_seconds[1:],
        "wall_seconds": wall_seconds[1:],
        "resident_megabytes": resident,
        "peak_megabytes": memory_megabytes("VmHWM"),
        "pairs": pairs,
        "removed": removed,
    }


def print_peers(texts: list[str], truths: dict[str, set[tuple[int, int]]], peer_python: str | None) -> None:
    """Run every tool and print a row of each.

    Args:
        texts: documents.
        truths: by each meaning of J in `TOOLS`, all pairs with J >= 0.7.
        peer_python: Python with datatrove and text-dedup; without it they are skipped.
    """
    print(
        f"{'tool':<26} {'J of':<15} {'docs/s':>7} {'slope':>7} {'ratio':>6} {'peak MB':>8} {'before':>7} {'pairs':>9} "
        f"{'precision, recall':>18} {'of weighted':>13} {'removed':>8} {'unlike':>7} {'left':>6}"
    )
    base = 0.0
    with tempfile.TemporaryDirectory() as folder:
        documents = Path(folder) / "documents.jsonl"
        rows = (json.dumps({"id": str(row), "text": text}) for row, text in enumerate(texts))
        documents.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
        for tool in TOOLS:
            found = run_peer(tool, documents, peer_python)
            if isinstance(found, str):
                print(f"{tool:<26} skipped: {found}", flush=True)
            else:
                slope = print_peer(tool, found, truths, base)
                base = base or slope
    print(
        "docs/s: text to decisions per second of processor time; slope: the same between half of the documents and all."
    )
    print("ratio: of slopes. before: memory when the tool was loaded and had done 100 documents.")
    print(
        "precision, recall: of pairs by J of the tool's own kind, and by J of weighted words, both >= 0.7, brute force."
    )
    print("unlike: removed without any kept document of weighted J >= 0.7. left: such pairs of which both are kept.")


def run_peer(tool: str, documents: Path, peer_python: str | None) -> dict[str, Any] | str:
    """What a tool found, or why it could not run."""
    own = TOOLS[tool].distribution in ("headrace", "datasketch")
    if not own and not peer_python:
        return "not in this environment; give --peer-python a Python that has it"
    result = documents.with_name(f"{tool}.json")
    command = [sys.executable if own else str(peer_python), __file__, tool, str(documents), str(result)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        return (done.stderr.decode("utf-8", "replace").strip() or f"ended with {done.returncode}").splitlines()[-1]
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return found


def print_peer(tool: str, found: dict[str, Any], truths: dict[str, set[tuple[int, int]]], base: float) -> float:
    """One row of the table; the slope."""
    measure_name = TOOLS[tool].similarity
    pairs = {(min(pair), max(pair)) for pair in found["pairs"]}
    (half, count), (half_seconds, seconds) = found["documents"], found["cpu_seconds"]
    slope: float = (count - half) / max(seconds - half_seconds, 1e-9)
    true = truths["weighted words"]
    kept = set(range(count)) - set(found["removed"])
    near_kept = {second for first, second in true if first in kept} | {
        first for first, second in true if second in kept
    }
    unlike = sum(row not in near_kept for row in found["removed"])
    left = sum(first in kept and second in kept for first, second in true)
    name = f"{tool} {found['version']}"
    print(
        f"{name:<26} {measure_name:<15} {count / seconds:>7,.0f} {slope:>7,.0f} {slope / (base or slope):>6.3f} "
        f"{found['peak_megabytes']:>8,.0f} {found['resident_megabytes']:>7,.0f} {len(pairs):>9,} "
        f"{quality(pairs, truths[measure_name]):>18} {quality(pairs, true):>13} {len(found['removed']):>8,} "
        f"{unlike:>7,} {left:>6,}",
        flush=True,
    )
    return slope


def quality(found: set[tuple[int, int]], true: set[tuple[int, int]]) -> str:
    """Precision and recall."""
    hits = len(found & true)
    return f"{hits / max(len(found), 1):.3f}, {hits / max(len(true), 1):.4f}"


def main() -> None:
    """Measure one tool on one core."""
    tool, documents, result = sys.argv[1:]
    for name in _ONE_THREAD:
        os.environ[name] = "1"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    Path(result).write_text(json.dumps(measure(tool, Path(documents).resolve())), encoding="utf-8")


if __name__ == "__main__":
    main()
