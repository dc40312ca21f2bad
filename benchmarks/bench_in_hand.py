"""Texts in hand: `headrace.deduplicate` beside a library of signatures alone, and its recall by brute force.

    python benchmarks/bench_in_hand.py                                200,000 pieces of 2.6 KB (520 MB), 3 GB, a minute
    python benchmarks/bench_in_hand.py --peer-python PYTHON           rensa beside it, in a process of its own
    python benchmarks/bench_in_hand.py --from FOLDER_OF_PARQUET       texts of these files in place of RFCs

A twentieth of the pieces are copies with a changed word. rensa makes signatures of 5-grams of words and puts them into
its index (128 values); it compares no pair. Both run on the same pieces, one after the other, with all cores.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import command
import pyarrow as pa
import pyarrow.parquet as pq
from corpora import rfcs
from dedup_in_memory import Corpus, all_pairs, weigh

from spark_jobs.in_hand.duplicates import deduplicate

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
        print_recall(table.slice(0, arguments.compared)["text"].to_pylist())


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
    arguments: argparse.Namespace = command.read(parser, pieces=2_000, compared=500)
    return arguments


if __name__ == "__main__":
    main()
