"""Whether an experiment calls equal data equal and bad data bad, and how fast its models train.

    python benchmarks/bench_experiments.py --part verdicts --comparisons 40     (a GPU: minutes; two cores: a night)
    python benchmarks/bench_experiments.py --part speed

Texts are the Python files of the interpreter that runs it. Each comparison draws two disjoint halves of them. `equal`
trains both as they are; in `planted` half of the documents of the second have their tokens shuffled. Every arm has five
seeds and two learning rates, and is measured in bits a byte of files that neither half has. It needs NumPy, torch,
SciPy and tokenizers alone.
"""

from __future__ import annotations

import multiprocessing
import os
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import command
import numpy as np

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch

from headrace_features.experiments.comparison import VariantVerdict, compare
from headrace_features.experiments.evaluation import score_documents
from headrace_features.experiments.training import network_of, rows_of, train
from headrace_features.experiments.training_run import SHAPES, TrainingRun

WINDOW, VOCABULARY, HELD_OUT = 256, 4096, 60
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@cache
def documents(most_bytes: int) -> tuple[list[np.ndarray], list[int]]:
    """Token ids and bytes of the interpreter's Python files, cut at 8 KiB, in an order of their hashes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    kept = Path(tempfile.gettempdir()) / f"bench_experiments_{most_bytes}.npz"
    if kept.exists():  # another process made it
        with np.load(kept) as found:
            ends = np.cumsum(found["lengths"])
            return np.split(found["ids"], ends[:-1]), found["sizes"].tolist()
    folders = {sysconfig.get_path(one) for one in ("stdlib", "purelib")}
    paths = sorted({path for folder in folders for path in Path(folder).rglob("*.py")})
    texts, size = [], 0
    for path in np.random.default_rng(0).permutation(np.array(paths, object)):
        text = path.read_text(errors="ignore")[:8192]
        if len(text) > 500 and size < most_bytes:
            texts.append(text)
            size += len(text)
    texts = list(dict.fromkeys(texts))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        texts[:1000], trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    )
    ids = [np.array(one.ids, np.int32) for one in tokenizer.encode_batch(texts)]
    sizes = [len(text.encode(errors="ignore")) for text in texts]
    np.savez(kept, ids=np.concatenate(ids), lengths=[len(one) for one in ids], sizes=sizes)
    return ids, sizes


def windows(some: list[np.ndarray], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Documents in an order of the seed, one after the other, cut into windows."""
    order = np.random.default_rng(seed).permutation(len(some))
    flat = np.concatenate([some[at] for at in order])
    numbers = np.repeat(np.arange(len(order)), [len(some[at]) for at in order])
    rows = len(flat) // WINDOW
    numbers = numbers[: rows * WINDOW].reshape(rows, WINDOW)
    return flat[: rows * WINDOW].reshape(rows, WINDOW), (numbers - numbers[:, :1]).astype(np.int32)


def trained(job: tuple[int, str, int, float, int, int]) -> tuple[tuple[int, str, int, float], float]:
    """Bits a byte of held-out files after one run."""
    comparison, arm, seed, rate, budget, most_bytes = job
    torch.set_num_threads(1)
    ids, sizes = documents(most_bytes)
    order = np.random.default_rng([comparison, 1]).permutation(len(ids) - HELD_OUT) + HELD_OUT
    half = order[::2] if arm == "one" else order[1::2]
    some = [ids[at] for at in half]
    if arm == "bad":
        draw = np.random.default_rng([comparison, 2])
        some = [draw.permutation(one) if number % 2 else one for number, one in enumerate(some)]
    rows, numbers = windows(some, seed)
    run = TrainingRun(SHAPES["proxy_1m"], VOCABULARY, WINDOW, budget, rate, weight_seed=seed, device=DEVICE, threads=1)
    model = network_of(run, train(rows_of(rows, numbers, 16), run).weights)
    held = HELD_OUT if budget > 10_000 else 3
    return (comparison, arm, seed, rate), score_documents(model, ids[:held], sizes[:held]).bits_per_byte


def verdicts(
    comparisons: int, budget: int, seeds: int, rates: list[float], processes: int, most_bytes: int
) -> Iterator[str]:
    """How many comparisons of equal halves, and of a planted bad half, are called different."""
    jobs = [
        (comparison, arm, seed, rate, budget, most_bytes)
        for comparison in range(comparisons)
        for arm in ("one", "equal", "bad")
        for seed in range(seeds)
        for rate in rates
    ]
    tokens = sum(map(len, documents(most_bytes)[0]))
    began = time.monotonic()
    scores: dict[tuple[int, str], Any] = {}
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for (comparison, arm, seed, rate), value in pool.imap_unordered(trained, jobs, chunksize=4):
            scores.setdefault((comparison, arm), {}).setdefault(seed, {})[rate] = value
    for arm in ("equal", "bad"):
        found = [
            compare({"one": {"held": scores[n, "one"]}, arm: {"held": scores[n, arm]}}, lower_is_better=["held"]).pairs[
                0
            ]
            for n in range(comparisons)
        ]
        counts = {verdict: sum(one.verdict is verdict for one in found) for verdict in VariantVerdict}
        sizes = [one.difference for one in found]
        said = ", ".join(f"{verdict}: {count}" for verdict, count in counts.items())
        yield f"{arm:<6} {said}; differences {min(sizes):+.4f} to {max(sizes):+.4f}, mean {np.mean(sizes):+.4f}"
    seconds = time.monotonic() - began
    yield f"{len(jobs)} runs of {budget:,} tokens from halves of {tokens // 2:,}: {seconds:.0f} s, {_device()}"


def speed(seconds: float, most_bytes: int) -> Iterator[str]:
    """Tokens a second of each size, after a first run that warms up."""
    ids, _ = documents(most_bytes)
    for name, shape in SHAPES.items():
        rows_a_step = {"proxy_1m": 64, "proxy_15m": 128, "proxy_125m": 256}[name] if DEVICE == "cuda" else 16
        budget = 4 * rows_a_step * WINDOW
        rows, numbers = windows(ids, 0)
        for _ in range(4):
            run = TrainingRun(shape, VOCABULARY, WINDOW, budget, 1e-3, device=DEVICE)
            found = train(rows_of(rows, numbers, rows_a_step), run)
            rate = found.tokens / found.seconds
            if found.seconds > seconds:
                break
            budget = round(min(budget * 20, max(budget, rate * seconds * 1.2)))
        memory = f", {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB" if DEVICE == "cuda" else ""
        yield f"{name:<11} {found.parameter_count:>12,} weights  {rate:>12,.0f} tokens/s{memory}, {_device()}"


def _device() -> str:
    return torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU"


def main() -> None:
    """Run the parts asked for."""
    parser = command.parser(__doc__)
    parser.add_argument("--part", choices=["verdicts", "speed"], action="append")
    parser.add_argument("--comparisons", type=int, default=40)
    parser.add_argument("--budget-tokens", type=int, default=300_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rates", type=float, nargs="+", default=[3e-3, 3e-4])
    parser.add_argument("--processes", type=int, default=8 if DEVICE == "cuda" else 2)
    parser.add_argument("--megabytes", type=int, default=60)
    given = command.read(parser, comparisons=1, budget_tokens=5_000, seeds=2, rates=[3e-3], megabytes=1)
    parts = given.part or ["speed", "verdicts"]
    if "speed" in parts:
        for line in speed(0.5 if given.small else 10.0, given.megabytes << 20):
            print(line, flush=True)
    if "verdicts" in parts:
        sizes = given.comparisons, given.budget_tokens, given.seeds
        for line in verdicts(*sizes, given.rates, given.processes, given.megabytes << 20):
            print(line, flush=True)


if __name__ == "__main__":
    main()
