"""Texts in hand: `headrace.deduplicate` beside a library of signatures alone, and its recall by brute force.

    python benchmarks/bench_in_hand.py                                200,000 pieces of 2.6 KB (520 MB), 3 GB, a minute
    python benchmarks/bench_in_hand.py --peer-python PYTHON           rensa beside it, in a process of its own
    python benchmarks/bench_in_hand.py --peers [--pieces 5000]        text-dedup and datatrove beside it, each in an
                                                                      environment that is made for it
    python benchmarks/bench_in_hand.py --from FOLDER_OF_PARQUET       texts of these files in place of RFCs

`--text-dedup PYTHON` and `--datatrove PYTHON` name environments that are there. These two are slow, so they get the
first pieces alone (`--peer-pieces`), and headrace is timed on the same ones.

A twentieth of the pieces are copies with a changed word. rensa makes signatures of 5-grams of words and puts them into
its index (128 values); it compares no pair. Both run on the same pieces, one after the other, with all cores.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import command
import pyarrow as pa
import pyarrow.parquet as pq
from corpora import rfcs
from dedup_in_memory import Corpus, all_pairs, weigh

from spark_jobs.in_hand.duplicates import deduplicate
from spark_jobs.in_hand.policies import filter_texts

_PIECE = 2600
_PEER = """
import sys, time
import pyarrow.parquet as pq
from rensa import RMinHash, RMinHashLSH
texts = pq.read_table(sys.argv[1])["text"].to_pylist()
started = time.time()
sets = []
for text in texts:
    words = text.split()
    sets.append([" ".join(words[at : at + 5]) for at in range(max(1, len(words) - 4))])
grams = time.time()
matrix = RMinHash.digest_matrix_from_token_sets(sets, num_perm=128, seed=42)
signed = time.time()
flags = RMinHashLSH(threshold=0.8, num_perm=128, num_bands=16).query_duplicate_flags_matrix_one_shot(matrix)
print(f"{grams - started:.1f} s to split, {signed - grams:.1f} s for signatures, {time.time() - signed:.1f} s for its "
      f"index: {time.time() - started:.1f} s; {sum(flags):,} texts have a candidate", flush=True)
"""
_TEXT_DEDUP = """
import os, sys, tempfile, time
import datasets, pyarrow.parquet as pq
from text_dedup import minhash
from text_dedup.utils import IOArgs, MetaArgs, MinHashArgs
datasets.disable_progress_bars()
texts = pq.read_table(sys.argv[1])["text"].to_pylist()
with tempfile.TemporaryDirectory() as folder:
    datasets.Dataset.from_dict({"text": texts}).save_to_disk(folder + "/in")
    started, before = time.time(), sum(os.times()[:4])
    where = IOArgs(path=folder + "/in", output=folder + "/out", local=True, num_proc=2)
    minhash.main.callback(io_args=where, meta_args=MetaArgs(column="text"), minhash_args=MinHashArgs(threshold=0.8))
    seconds, spent = time.time() - started, sum(os.times()[:4]) - before
    left = len(datasets.load_from_disk(folder + "/out"))
print(f"{seconds:.2f} {spent:.2f} {len(texts) - left}", flush=True)
"""
_DATATROVE = """
import os, sys, time
import pyarrow.parquet as pq
from datatrove.data import Document
from datatrove.pipeline.filters import FineWebQualityFilter
texts = pq.read_table(sys.argv[1])["text"].to_pylist()
rule = FineWebQualityFilter()
rule.filter(Document(text="A b. " * 60, id="warm"))
started, before = time.time(), time.process_time()
kept = sum(rule.filter(Document(text=text, id="")) is True for text in texts)
print(f"{time.time() - started:.2f} {time.process_time() - before:.2f} {len(texts) - kept}", flush=True)
"""


class Peer(NamedTuple):
    """Another tool.

    Attributes:
        packages: that it needs.
        program: prints its seconds, its CPU seconds and how many texts it removes of a Parquet file.
        ours: the same work here.
    """

    packages: tuple[str, ...]
    program: str
    ours: Callable[[pa.Table], object]


_PEERS = {
    "text-dedup": Peer(("text-dedup==0.4.0", "pyarrow"), _TEXT_DEDUP, deduplicate),
    "datatrove": Peer(("datatrove[processing]==0.10.1", "spacy", "pyarrow"), _DATATROVE, filter_texts),
}


def main() -> None:
    """Measure and print."""
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "texts.parquet")
        pq.write_table(pa.table({"text": pieces(arguments.pieces, arguments.source)}), file)
        table = pq.read_table(file)
        deduplicate(table.slice(0, 2000))  # compiles the kernels, or loads them
        started, cpu = time.monotonic(), time.process_time()
        left = deduplicate(table)
        seconds, cpu = time.monotonic() - started, time.process_time() - cpu
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        size = table.nbytes / 1e6
        print(f"{len(table):,} texts, {size:.0f} MB: {left!r}")
        print(f"headrace.deduplicate: {seconds:.1f} s, {cpu:.1f} CPU s, {memory:,} MiB of the process")
        if arguments.peer_python:
            print(f"rensa: {command.peer(arguments.peer_python, '-c', _PEER, str(file)).strip()}")
        few = Path(folder, "few.parquet")
        pq.write_table(table.slice(0, arguments.peer_pieces), few)
        for name, tool in _PEERS.items():
            python = getattr(arguments, name.replace("-", "_"))
            if arguments.peers or python:
                command.attempt(beside, name, tool, few, python)
        print_recall(table.slice(0, arguments.compared)["text"].to_pylist())


def beside(name: str, tool: Peer, file: Path, python: str | None) -> None:
    """Print the seconds of a peer and of headrace for the texts of a file."""
    table = pq.read_table(file)
    tool.ours(table.slice(0, 100))
    started, cpu = time.monotonic(), time.process_time()
    ours = tool.ours(table)
    seconds, cpu = time.monotonic() - started, time.process_time() - cpu
    with tempfile.TemporaryDirectory() as folder:
        there = python or command.environment(Path(folder), *tool.packages)
        spent, peer_cpu, removed = command.peer(str(there), "-c", tool.program, str(file)).split()[-3:]
    print(
        f"{name}: {float(spent):.1f} s, {float(peer_cpu):.1f} CPU s, {int(removed):,} of {len(table):,} texts removed; "
        f"headrace {seconds:.2f} s, {cpu:.2f} CPU s, {ours!r}: {float(spent) / seconds:.0f} times the seconds, "
        f"{float(peer_cpu) / cpu:.0f} times the CPU seconds"
    )


def pieces(count: int, source: Path | None) -> list[str]:
    """Texts of some KB, of which a twentieth are copies with a changed word."""
    draw, listed = random.Random(3), list[str]()
    for text in texts_of(source):
        listed += [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
        if len(listed) >= count * 19 // 20:
            break
    del listed[count * 19 // 20 :]
    for _ in range(len(listed) // 19):
        words = listed[draw.randrange(len(listed))].split(" ")
        words[draw.randrange(len(words))] = "changed"
        listed.append(" ".join(words))
    draw.shuffle(listed)
    return listed


def texts_of(source: Path | None) -> Iterator[str]:
    """RFCs, or short texts of Parquet files joined."""
    if source is None:
        yield from rfcs()
        return
    for file in sorted(source.glob("*.parquet")):
        yield "\n".join(pq.read_table(file, columns=["text"])["text"].to_pylist())


def print_recall(texts: list[str]) -> None:
    """How many of the rows that greedy deduplication by all pairs removes are removed."""
    threshold = Fraction(8, 10)
    texts = list(dict.fromkeys(texts))
    weighed = weigh(Corpus("prose", None, texts))
    left, right, shared, united = all_pairs(weighed.bags, float(threshold))
    near = shared * threshold.denominator >= united * threshold.numerator
    better = dict[int, list[int]]()
    for one, other in zip(weighed.rows[left[near]].tolist(), weighed.rows[right[near]].tolist(), strict=True):
        better.setdefault(other, []).append(one)
    kept, gone = set[int](), set[int]()
    for row in range(len(texts)):
        (gone if kept.intersection(better.get(row, ())) else kept).add(row)
    removed = set(deduplicate(texts).removed["row"].to_pylist())
    missed, more = len(gone - removed), len(removed - gone)
    print(f"of {len(texts):,}: {len(gone):,} go by all pairs, {missed} of them stay, {more} more go")


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = command.parser(__doc__)
    parser.add_argument("--pieces", type=int, default=200_000)
    parser.add_argument("--compared", type=int, default=5_000, help="pieces that are compared by brute force")
    parser.add_argument("--from", dest="source", type=Path, help="folder of Parquet files with a column text")
    parser.add_argument("--peer-python", help="Python with rensa and pyarrow")
    parser.add_argument("--peers", action="store_true", help="make environments of text-dedup and datatrove")
    parser.add_argument("--text-dedup", help="Python with text-dedup and pyarrow")
    parser.add_argument("--datatrove", help="Python with datatrove[processing], spacy and pyarrow")
    parser.add_argument("--peer-pieces", type=int, default=2_000, help="pieces that these two get")
    arguments: argparse.Namespace = command.read(parser, pieces=2_000, compared=500)
    return arguments


if __name__ == "__main__":
    main()
