"""The kernels of deduplication and their peers, on real data, on one core and without Spark.

    python benchmarks/bench_dedup_kernels.py [--part PART] [--documents N] [--peer-python PYTHON]

Parts: `kernels`, how fast they are beside their goals; `estimator`, how far signatures are from the similarity that
they estimate, beside plain ICWS (Ioffe 2010) and datasketch; `peers`, other deduplicators on the same documents. Prose
is RFCs in pieces of 2 KB, code is this environment's Python files. Rates are per second of processor time, the best of
three where a run is short, so that a busy machine matters less. Peers that this environment lacks run in another Python
(`--peer-python`, or HEADRACE_PEER_PYTHON); see dedup_peers.py. Features are chosen by bench_dedup_features.py.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import command
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from corpora import python_files, rfc_pieces
from datasketch import WeightedMinHashGenerator
from dedup_in_memory import (
    BATCH_ROWS,
    HOT_TOKENS,
    MAX_LEVEL,
    SEED,
    THRESHOLD,
    Corpus,
    Float64Array,
    Int64Array,
    Weighed,
    all_pairs,
    candidates,
    cpu_seconds,
    rows_of,
    weigh,
)
from dedup_peers import memory_megabytes, print_peers
from lexed_features import counted, lexed, runs_of, words

from spark_jobs.dedup.bags.bag_arrays import Bags, token_weights
from spark_jobs.dedup.sketches.bands import band_keys, solve_bands
from spark_jobs.dedup.sketches.darts import make_darts
from spark_jobs.dedup.sketches.similarity import agreement_counts, background_counts, overlaps
from spark_jobs.dedup.sketches.weighted_minhash import signatures


def kernels(arguments: argparse.Namespace) -> None:
    """Speed of every kernel beside its goal; the goals of signatures are for about 190 tokens of prose, 245 of code."""
    print(f"{'kernel':<52} {'input':<38} {'measured':>22} {'goal':>12}")
    for corpus, low, high, goal in ((prose(arguments), 180, 400, 25_000), (code(arguments), 200, 300, 20_000)):
        made = weigh(corpus)
        lengths = np.diff(made.bags.offsets)
        megabytes = corpus.byte_count / 1e6
        name = f"{corpus.kind}, {len(corpus.texts):,} documents, {megabytes:.0f} MB"
        batches = [
            pa.array(corpus.texts[row : row + BATCH_ROWS], pa.string())
            for row in range(0, len(corpus.texts), BATCH_ROWS)
        ]

        def each(work: Callable[[pa.Array], object], batches: list[pa.Array] = batches) -> None:
            for batch in batches:
                work(batch)

        def sign(batch: pa.Array, corpus: Corpus = corpus, made: Weighed = made) -> None:
            bags = corpus.bag(batch, made.units)
            signatures(rows_of(bags, np.flatnonzero(np.diff(bags.offsets))), made.darts)

        spent = cpu_seconds(partial(each, corpus.count))
        line("text to counts", name, megabytes / spent, "MB/s")
        spent = cpu_seconds(partial(each, partial(corpus.bag, units=made.units)))
        line("text to bags (counts, weights)", name, megabytes / spent, "MB/s", 150)
        chosen = np.flatnonzero((lengths >= low) & (lengths <= high))
        for rows, wanted in ((chosen, goal), (np.arange(len(lengths)), None)):
            bags = rows_of(made.bags, rows)
            label = f"{corpus.kind}, {np.diff(bags.offsets).mean():.0f} tokens a document"
            spent = cpu_seconds(partial(signatures, bags, made.darts))
            line(f"bag to signature, {HOT_TOKENS:,} hot tokens", label, len(bags) / spent, "docs/s", wanted)
        spent = cpu_seconds(partial(each, sign))
        is_prose = corpus.kind == "prose"
        line("text to signature", name, len(corpus.texts) / spent, "docs/s", 18_000 if is_prose else None)
        comparisons(made, corpus.kind)
    print(f"peak memory {memory_megabytes('VmHWM'):,.0f} MB, documents and bags of both inputs included")


def comparisons(made: Weighed, kind: str) -> None:
    """Band keys, agreement and exact similarity, of candidates of the corpus."""
    sketches = signatures(made.bags, made.darts)
    scheme = solve_bands(
        background_counts(rows_of(made.bags, np.arange(min(1000, len(made.bags))))), 1_000_000, THRESHOLD, 0.99
    )
    salts = np.zeros(len(sketches), np.uint64)
    spent = cpu_seconds(lambda: band_keys(sketches, scheme, salts))
    bands = f"{scheme.bands} x {scheme.rows}{' overlapping' if scheme.overlapping else ''}"
    line(f"band keys, {bands}", f"{kind} signatures", len(sketches) / spent / 1e6, "M docs/s")
    left, right = candidates(sketches, made.bags, len(sketches))
    first, second = sketches[left], sketches[right]
    spent = cpu_seconds(lambda: agreement_counts(first, second))
    line("agreement of 256 values", f"{len(left):,} {kind} candidates", len(left) / spent / 1e6, "M pairs/s")
    rows, others = rows_of(made.bags, left[:200_000]), rows_of(made.bags, right[:200_000])
    spent = cpu_seconds(lambda: overlaps(rows, others))
    line("exact similarity", f"{len(rows):,} {kind} candidates", len(rows) / spent / 1e6, "M pairs/s")


def line(kernel: str, name: str, rate: float, unit: str, goal: float | None = None) -> None:
    """One row of the table of kernels."""
    shown = f"{rate:,.0f}" if rate >= 100 else f"{rate:.2f}"
    print(f"{kernel:<52} {name:<38} {shown + ' ' + unit:>22} {'' if goal is None else f'{goal:,.0f}':>12}", flush=True)


@cache
def pieces() -> list[str]:
    """RFCs in pieces of 2 KB, in a fixed random order of RFC numbers' pieces, no two equal."""
    found = list(dict.fromkeys(rfc_pieces()))
    random.Random(SEED).shuffle(found)
    return found


def prose(arguments: argparse.Namespace) -> Corpus:
    """RFCs in pieces of 2 KB."""
    return Corpus("prose", None, pieces()[: arguments.documents or 20_000])


def code(arguments: argparse.Namespace) -> Corpus:
    """Python files of this environment."""
    found = python_files()
    random.Random(SEED).shuffle(found)
    return Corpus("code", "Python", found[: arguments.documents or 5000])


# ---- estimator


@dataclass(frozen=True)
class Estimates:
    """What a method says of (P,) pairs with each of S seeds, and how likely a value agrees at a similarity."""

    name: str
    agreement: Float64Array  # (S, P) share of agreeing values
    chance: float  # that two different values agree all the same


def estimator(arguments: argparse.Namespace) -> None:
    """Bias and variance of the estimate of J by signatures, per bin of J."""
    corpora = (Corpus("prose", None, neighbouring_pieces(arguments.documents or 20_000)), code(arguments))
    print("bias +- its standard error over seeds; variance / that of 256 independent values; goal: |bias| <= 0.005")
    for corpus in corpora:
        made = weigh(corpus)
        left, right, similarity = spread_pairs(made.bags, 10 if arguments.small else 60)
        bags = rows_of(made.bags, np.concatenate([left, right]))
        seeds = (9, 3, 2) if arguments.small else (100, 12, 3)
        makers = (darts_estimates, icws_estimates, datasketch_estimates)
        methods = [make(bags, count) for make, count in zip(makers, seeds, strict=True)]
        print(f"\n{corpus.kind}, {len(left)} pairs of {len(made.bags):,} documents")
        head = (f"{method.name + f', {len(method.agreement)} seeds':>38}" for method in methods)
        print(f"{'J':<10} {'pairs':>5} " + " ".join(head))
        for low in (*np.arange(1, 10) / 10, None):
            chosen = np.ones(len(similarity), bool)
            if low is not None:
                chosen = (similarity >= low) & (similarity < low + 0.1)
            shown = " ".join(f"{bias_and_variance(method, similarity, chosen):>38}" for method in methods)
            label = "all" if low is None else f"{low:.1f}-{low + 0.1:.1f}"
            print(f"{label:<10} {chosen.sum():>5} {shown}", flush=True)
    print(f"peak memory {memory_megabytes('VmHWM'):,.0f} MB")


def spread_pairs(bags: Bags, per_bin: int) -> tuple[Int64Array, Int64Array, Float64Array]:
    """Pairs of J in [0.1, 1), as many in each tenth, no document in two of them."""
    left, right, shared, united = all_pairs(bags, 0.1)
    similarity = shared / united
    order = np.random.default_rng(SEED).permutation(len(left))
    room = dict.fromkeys(range(1, 10), per_bin)
    used: set[int] = set()
    chosen = []
    for tenth in sorted(room, reverse=True):  # the rare ones first
        for pair in order[np.floor(similarity[order] * 10 + 1e-9) == tenth]:
            ends = {int(left[pair]), int(right[pair])}
            if room[tenth] and not ends & used:
                used |= ends
                room[tenth] -= 1
                chosen.append(pair)
    return left[chosen], right[chosen], similarity[chosen]


def darts_estimates(bags: Bags, seeds: int) -> Estimates:
    """The signatures of this project."""
    half = len(bags) // 2
    made = (signatures(bags, make_darts(seed, MAX_LEVEL)) for seed in range(seeds))
    return Estimates("headrace", np.array([(values[:half] == values[half:]).mean(axis=1) for values in made]), 1 / 256)


def icws_estimates(bags: Bags, seeds: int) -> Estimates:
    """Ioffe 2010, section 3, symbols as there."""
    vocabulary, tokens = np.unique(bags.hashes, return_inverse=True)
    log_weights = np.log(token_weights(bags).astype(np.float64))
    spans = [slice(*ends) for ends in zip(bags.offsets[:-1], bags.offsets[1:], strict=True)]
    agreement = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        size = (len(vocabulary), 256)
        r, log_c, beta = rng.gamma(2.0, 1.0, size), np.log(rng.gamma(2.0, 1.0, size)), rng.random(size)
        values = np.empty((len(bags), 256, 2), np.int64)
        for row, span in enumerate(spans):
            own = tokens[span]
            t = np.floor(log_weights[span, None] / r[own] + beta[own])
            winner = (log_c[own] - r[own] * (t - beta[own] + 1)).argmin(axis=0)
            values[row, :, 0], values[row, :, 1] = own[winner], t[winner, np.arange(256)]
        agreement.append(_both_equal(values))
    return Estimates("plain ICWS", np.array(agreement), 0)


def datasketch_estimates(bags: Bags, seeds: int) -> Estimates:
    """WeightedMinHashGenerator of datasketch."""
    vocabulary, tokens = np.unique(bags.hashes, return_inverse=True)
    weights = token_weights(bags)
    agreement = []
    for seed in range(seeds):
        generator = WeightedMinHashGenerator(len(vocabulary), sample_size=256, seed=seed)
        values = np.empty((len(bags), 256, 2), np.int64)
        vector = np.zeros(len(vocabulary))
        for row in range(len(bags)):
            span = slice(bags.offsets[row], bags.offsets[row + 1])
            vector[tokens[span]] = weights[span]
            values[row] = generator.minhash(vector).hashvalues
            vector[tokens[span]] = 0
        agreement.append(_both_equal(values))
    return Estimates("datasketch", np.array(agreement), 0)


def _both_equal(values: Int64Array) -> Float64Array:
    """(P,) share of draws of (2P, 256, 2) in which token and t agree, between the first half and the second."""
    half = len(values) // 2
    share: Float64Array = (values[:half] == values[half:]).all(axis=2).mean(axis=1)
    return share


def bias_and_variance(method: Estimates, similarity: Float64Array, chosen: npt.NDArray[np.bool_]) -> str:
    """Mean error of the estimate of J, and the variance over seeds beside the binomial one."""
    agreement, j = method.agreement[:, chosen], similarity[chosen]
    if not len(j):
        return "-"
    p = j + (1 - j) * method.chance
    errors = ((agreement - p) / (1 - method.chance)).mean(axis=1)
    ratio = agreement.var(axis=0, ddof=1).mean() / (p * (1 - p) / 256).mean()
    return f"{errors.mean():+.4f} +- {errors.std(ddof=1) / len(errors) ** 0.5:.4f}  x{ratio:.2f}"


# ---- peers


def peers(arguments: argparse.Namespace) -> None:
    """Every tool on the same documents, in a process of its own, on one core."""
    texts = neighbouring_pieces(arguments.documents or 5000)
    truths = {name: brute_force(texts, name) for name in ("weighted words", "words", "5-grams")}
    sizes = ", ".join(f"{len(pairs):,} by {name}" for name, pairs in truths.items())
    print(f"{len(texts):,} pieces of RFCs, {sum(map(len, texts)) / 1e6:.1f} MB; pairs with J >= 0.7: {sizes}")
    print_peers(texts, truths, arguments.peer_python)


def neighbouring_pieces(count: int) -> list[str]:
    """Pieces of consecutive RFCs, which share boilerplate and text, from the middle of the series; no two equal."""
    found = list(dict.fromkeys(rfc_pieces()))
    start = max(0, min(len(found) // 2, len(found) - count))
    return found[start : start + count]


def brute_force(texts: list[str], name: str) -> set[tuple[int, int]]:
    """All pairs with J >= 0.7, each two documents compared."""
    corpus = Corpus("prose", None, texts)
    if name == "weighted words":
        made = weigh(corpus)
        rows, bags = made.rows, made.bags
    else:
        counts = counted([runs_of(words(lexed(text, corpus.lexer)), 5 if name == "5-grams" else 1) for text in texts])
        ones = np.ones(len(counts.hashes), np.uint8)
        rows, bags = np.arange(len(texts)), Bags(counts.offsets, counts.hashes, ones, ones)
    left, right, *_ = all_pairs(bags, THRESHOLD - 1e-12)
    return set(zip(rows[left].tolist(), rows[right].tolist(), strict=True))


PARTS = {"kernels": kernels, "estimator": estimator, "peers": peers}


def main() -> None:
    """Run the parts asked for."""
    parser = command.parser(__doc__)
    parser.add_argument("--part", choices=PARTS, action="append", help="one part; all by default")
    parser.add_argument("--documents", type=int, help="of each kind")
    parser.add_argument(
        "--peer-python", default=os.environ.get("HEADRACE_PEER_PYTHON"), help="Python with datatrove and text-dedup"
    )
    arguments = command.read(parser, documents=300)
    command.run_parts(PARTS, arguments.part, arguments)


if __name__ == "__main__":
    main()
