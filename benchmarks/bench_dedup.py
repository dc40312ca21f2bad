"""Deduplication as a whole, on Spark and in a real lake: quality against all pairs, speed, scale, increments.

    make bench-dedup                                    everything, on this machine's two cores: about 30 minutes
    python benchmarks/bench_dedup.py --part quality     one part: quality, speed, boilerplate, templates, ..

Documents are pieces of RFCs of 2 KB and Python files (benchmarks/corpora.py). Speed is the slope between two
sizes, so that Spark's fixed costs per step do not hide it; ratios are of one run. Kernels alone, and other tools, are
measured by bench_dedup_kernels.py.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import statistics
import tempfile
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import command
import numpy as np
import pyarrow as pa
from bench_dedup_kernels import all_pairs
from corpora import (
    documents_table,
    multiplied,
    near_identical,
    own_word_each,
    python_files,
    rfc_pieces,
    template_pages,
)
from lakes import NEAR_STEPS, DedupLake

from spark_jobs.dedup.bags.bag_arrays import Bags
from spark_jobs.dedup.near.buckets import DEFAULT_DOCUMENT_BYTES
from spark_jobs.dedup.sketches.bands import solve_bands

CORES = 2
_WIDE_BACKGROUND = {"sample_documents": 10_000}


def lake(folder: str, name: str, *increments: pa.Table) -> DedupLake:
    """A lake with some increments landed."""
    made = DedupLake.at(Path(folder) / name, CORES)
    for number, rows in enumerate(increments):
        made.land(f"{number:04}", rows)
    return made


def prose(count: int) -> pa.Table:
    """So many pieces of RFCs, multiplied beyond 82,000."""
    return documents_table(multiplied(rfc_pieces(), count), "prose", "en")


# -- quality: every pair of documents compared, without signatures, bands or buckets ---------------------------------


def quality(folder: str, given: argparse.Namespace) -> Iterator[str]:
    """Precision and recall against all pairs, the recall curve below and above the threshold, and the kept set."""
    for name, rows in (
        ("prose", documents_table(rfc_pieces(given.documents), "prose", "en")),
        ("code", documents_table(python_files(given.documents), "code", "Python")),
    ):
        made = lake(folder, f"quality-{name}", rows)
        # Buckets below 0.7 are not made, so what is found there is a by-product: it shows the curve.
        made.run({"buckets": {"threshold": 0.7}, "pairs": {"thresholds": [0.5, 0.7, 0.8, 0.9]}})
        truth = brute_force(made)
        stored = made.rows("pairs", "doc_id", "better_doc_id", "shared_weight", "united_weight")
        found = {
            frozenset(ends): Fraction(shared, united)
            for *ends, shared, united in zip(*(column.to_pylist() for column in stored.columns), strict=True)
        }
        wrong = sum(truth.get(pair) != j for pair, j in found.items())
        yield f"{name}: {rows.num_rows} documents, {len(truth)} true pairs with J >= 0.5, {wrong} stored wrong"
        for low, high in ((0.5, 0.6), (0.6, 0.65), (0.65, 0.7), (0.7, 0.75), (0.75, 0.8), (0.8, 1.01), (0.7, 1.01)):
            inside = [pair for pair, j in truth.items() if Fraction(str(low)) <= j < Fraction(str(high))]
            hit = sum(pair in found for pair in inside)
            yield f"  J in [{low}, {min(high, 1.0)}{']' if high > 1 else ')'}: {recall_line(hit, len(inside))}"
        for threshold in (0.7, 0.8, 0.9):
            yield f"  kept at {threshold}: {kept_line(made, truth, threshold)}"


def brute_force(made: DedupLake, least: Fraction = Fraction(1, 2)) -> dict[frozenset[str], Fraction]:
    """J of every two documents of the lake that are at least so similar."""
    stored = made.rows("bags", "doc_id", "token_count", "token_hashes", "units", "levels")
    offsets = np.concatenate([[0], np.cumsum(stored.column("token_count").to_numpy())]).astype(np.int64)
    joined = {name: b"".join(stored.column(name).to_pylist()) for name in ("token_hashes", "units", "levels")}
    parts = (np.frombuffer(joined[name], np.uint8) for name in ("units", "levels"))
    bags = Bags(offsets, np.frombuffer(joined["token_hashes"], np.uint64), *parts)
    ids, found = stored.column("doc_id").to_pylist(), all_pairs(bags, float(least) - 1e-12)
    rows = zip(*(column.tolist() for column in found), strict=True)
    pairs = {frozenset((ids[a], ids[b])): Fraction(shared, united) for a, b, shared, united in rows}
    return {pair: j for pair, j in pairs.items() if j >= least}


def recall_line(hit: int, total: int) -> str:
    """Recall with its 95% confidence interval (Wilson 1927)."""
    if not total:
        return "no pairs"
    share, z = hit / total, 1.96
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * (share * (1 - share) / total + z * z / (4 * total * total)) ** 0.5
    return f"recall {share:.5f} of {total} pairs, 95% interval {centre - half:.5f} to {min(1.0, centre + half):.5f}"


def kept_line(made: DedupLake, truth: dict[frozenset[str], Fraction], threshold: float) -> str:
    """Pairs left among the kept, and removals without a kept witness: both by brute force."""
    removals = made.rows("removals", "threshold", "doc_id", "witness_doc_id").to_pylist()
    gone = {row["doc_id"]: row["witness_doc_id"] for row in removals if row["threshold"] == threshold}
    t = Fraction(str(threshold))
    left = sum(j >= t and not pair & gone.keys() for pair, j in truth.items())
    false = sum(witness in gone or truth[frozenset((doc, witness))] < t for doc, witness in gone.items())
    return f"{len(gone)} removed, {left} pairs at or above it among the kept, {false} removals without a kept witness"


# -- speed and scale -----------------------------------------------------------------------------------------------


def timed(made: DedupLake) -> dict[str, float]:
    """Seconds of each step, and their sum."""
    spent = made.run()
    return {**spent, "sum": sum(spent.values())}


def speed(folder: str, given: argparse.Namespace) -> Iterator[str]:
    """Seconds of each step by size, the slope between sizes, and documents a second and core."""
    sizes = given.sizes
    runs = {size: timed(lake(folder, f"speed-{size}", prose(size))) for size in sizes}
    yield f"{'step':<12}" + "".join(f"{size:>10}" for size in sizes) + f"{'ms/doc (slope)':>18}"
    for name in (*NEAR_STEPS, "sum"):
        low, high = runs[sizes[-2]][name], runs[sizes[-1]][name]
        slope = 1000 * (high - low) / (sizes[-1] - sizes[-2])
        yield f"{name:<12}" + "".join(f"{runs[size][name]:>10.1f}" for size in sizes) + f"{slope:>18.3f}"
    for small, large in itertools.pairwise(sizes):
        rate = (large - small) / (runs[large]["sum"] - runs[small]["sum"]) / CORES
        yield f"{small} to {large} documents: {rate:,.0f} documents/s/core (asked: 1,500), text to removals"
    yield "milliseconds a document, fixed costs included: " + ", ".join(
        f"{size}: {1000 * run['sum'] / size:.2f}" for size, run in runs.items()
    )
    yield memory()


def boilerplate(folder: str, given: argparse.Namespace) -> Iterator[str]:
    """The same number of documents with and without a bucket of near-identical ones, alike at all thresholds or not."""
    size, planted = given.sizes[-1], given.sizes[-1] // 2
    pieces = rfc_pieces(2000)
    richest = max(pieces, key=lambda text: len(set(text.split())))
    plain = timed(lake(folder, "plain", prose(size)))
    for name, make in (("words left out", near_identical), ("a word of its own", own_word_each)):
        copies = documents_table(make(richest, planted), "prose", "en", start=size)
        with_it = lake(folder, make.__name__, pa.concat_tables([prose(size - planted), copies]))
        spent = timed(with_it)
        yield f"{name:<20}{'without':>10}{'with':>10}"
        for step in (*NEAR_STEPS, "sum"):
            yield f"{step:<20}{plain[step]:>10.1f}{spent[step]:>10.1f}"
        ratio = spent["sum"] / plain["sum"]
        yield f"{planted} of {size} near-identical, {name}: {ratio:.2f} times the seconds (asked: at most 1.15)"
        ids = set(copies.column("doc_id").to_pylist())
        removed = with_it.rows("removals", "threshold", "doc_id").to_pylist()
        for row in sorted(with_it.rows("large_buckets").to_pylist(), key=lambda row: row["threshold"]):
            gone = sum(one["doc_id"] in ids for one in removed if one["threshold"] == row["threshold"])
            yield (
                f"  at {row['threshold']}: {len(ids) - gone} of the planted kept, {row['rounds']} rounds, "
                f"{row['candidate_count']} pairs, {row['kept_count']} of {row['document_count']} in large buckets kept"
            )


def templates(folder: str, given: argparse.Namespace) -> Iterator[str]:
    """Pages of one template, a twin of every third beside them: what is left of the twins, and the seconds."""
    twins, originals = template_pages(given.documents // 2)
    texts = [*originals, *twins, *rfc_pieces(given.documents // 8)]
    plain = timed(lake(folder, "plain-templates", prose(len(texts))))
    made = lake(folder, "templates", documents_table(texts, "prose", "en"))
    spent = timed(made)
    truth = brute_force(made, Fraction(7, 10))
    for threshold in (0.7, 0.8, 0.9):
        yield f"  kept at {threshold}: {kept_line(made, truth, threshold)}"
    yield f"pairs: {spent['pairs']:.1f} s, of {len(texts)} pieces of RFCs {plain['pairs']:.1f} s"
    yield f"all steps: {spent['sum']:.1f} s and {plain['sum']:.1f} s"


def forecast(folder: str, given: argparse.Namespace) -> Iterator[str]:
    """Bands, bytes and recall of a document by size of the corpus, solved on backgrounds measured here."""
    yield f"{'features, threshold':<28}" + "".join(f"{f'10^{power}':>28}" for power in (6, 7, 8, 9, 10))
    for features in ("words", "word_pairs"):
        rows = documents_table(rfc_pieces()[:: 96_000 // given.documents], "prose", "en")
        made = lake(folder, f"forecast-{features}", rows)
        made.run({"vocabulary": {"features": features}, "bags": {"features": features}, "background": _WIDE_BACKGROUND})
        rows = made.rows("background", "similarity", "pair_count")
        counts = np.zeros(1001, np.int64)
        np.add.at(counts, np.rint(1000 * rows["similarity"].to_numpy()).astype(int), rows["pair_count"].to_numpy())
        for threshold in (0.7, 0.8):
            schemes = [
                solve_bands(counts, 10**power, threshold, 0.9999, 0.3, DEFAULT_DOCUMENT_BYTES)
                for power in (6, 7, 8, 9, 10)
            ]
            cells = [
                f"{one.bands}x{one.rows} {one.document_bytes / 1000:.1f} KB {one.recall:.4f}".rjust(28)
                for one in schemes
            ]
            yield f"{f'{features}, {threshold}':<28}" + "".join(cells)


def increment(folder: str, given: argparse.Namespace) -> Iterator[str]:
    """A first increment, then in turn an empty one and one of 1%; the median of the empty is subtracted from both."""
    size, repeats = given.sizes[-1], given.repeats
    part = size // 100
    rows = prose(size + repeats * part)
    made = lake(folder, "increment", rows.slice(0, size))
    full = timed(made)
    empties, smalls = [], []
    for number in range(repeats):
        for runs, count in ((empties, 0), (smalls, part)):
            made.land(f"{2 * number + 1 + (count > 0):04}", rows.slice(size + number * part, count))
            runs.append(timed(made))
    empty, small = ({name: statistics.median(run[name] for run in runs) for name in full} for runs in (empties, smalls))
    yield f"{'step':<12}{'full':>10}{'1%':>10}{'empty':>10}"
    for name in (*NEAR_STEPS, "sum"):
        yield f"{name:<12}{full[name]:>10.1f}{small[name]:>10.1f}{empty[name]:>10.1f}"
    share = (small["sum"] - empty["sum"]) / (full["sum"] - empty["sum"])
    yield f"1% more documents cost {share:.1%} of the full run, fixed costs subtracted (asked: at most 5%)"


def memory() -> str:
    """Peak memory of this process and of the largest of its children."""
    own, children = (
        resource.getrusage(who).ru_maxrss / 2**20 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return f"peak memory: driver's Python {own:.2f} GiB, largest child (the JVM or a Python worker) {children:.2f} GiB"


PARTS: dict[str, Callable[[str, argparse.Namespace], Iterator[str]]] = {
    "quality": quality,
    "speed": speed,
    "boilerplate": boilerplate,
    "templates": templates,
    "forecast": forecast,
    "increment": increment,
}


def main() -> None:
    """Run the parts asked for."""
    parser = command.parser(__doc__)
    parser.add_argument("--part", choices=PARTS, action="append", help="parts to run; all without it")
    parser.set_defaults(documents=12_000, sizes=[10_000, 50_000, 200_000], repeats=3)
    given = command.read(parser, documents=240, sizes=[100, 200], repeats=1)
    with tempfile.TemporaryDirectory(prefix="bench-dedup-") as folder:
        if not given.small:  # the JVM compiles, workers load their kernels
            timed(lake(folder, "warm", prose(2_000), prose(2_010).slice(2_000)))
        for part in given.part or PARTS:
            print(f"== {part}")
            for line in PARTS[part](folder, given):
                print(line, flush=True)


if __name__ == "__main__":
    main()
