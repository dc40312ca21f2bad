"""Passages: seconds and shuffled bytes for a GB of text, a passage of a million documents, recall beside brute force.

    python benchmarks/bench_passages.py [--part cost planted recall]

- *cost*: pieces of RFCs of 2 KB, after the last one again with other letters, and installed Python files with headers
  of licences. The slope between two sizes, each in a lake and a process of its own; seconds are those of all processes.
- *planted*: a passage of 60 words in every one of many documents that have nothing else in common.
- *recall*: every 50 words in a dictionary (words by what they say, not by hash), beside the rows of `passages`.
"""

from __future__ import annotations

import json
import random
import string
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import command
import numpy as np
import pyarrow as pa
from corpora import documents_table, python_files, rfc_pieces
from cpu_time import of_all_processes, peak_mib

_STEPS = ("anchors", "passages")


def planted(count: int) -> Iterator[str]:
    """Documents of 10 to 40 own words around one passage of 60 words."""
    draw = random.Random(3)
    passage = " ".join(f"said{draw.randrange(10**6)}" for _ in range(60))
    for number in range(count):
        own = [f"{number:x}w{at:x}" for at in range(draw.randrange(10, 40))]
        cut = draw.randrange(len(own))
        yield "\n".join((" ".join(own[:cut]), passage, " ".join(own[cut:])))


def more_rfc_pieces(count: int) -> list[str]:
    """Pieces of RFCs; once there are no more, them again in letters moved on by one, by two and so on."""
    own, letters = rfc_pieces(min(count, 80_000)), string.ascii_lowercase
    made: list[str] = []
    for step in range(-(-count // len(own))):
        moved = letters[step:] + letters[:step]
        made += [text.translate(str.maketrans(letters + letters.upper(), moved + moved.upper())) for text in own]
    return made[:count]


def texts_of(what: str, count: int) -> pa.Table:
    """Documents of a corpus of the benchmark."""
    if what == "python":
        return documents_table(python_files(count), "code", "Python")
    return documents_table(more_rfc_pieces(count) if what == "rfc" else planted(count), "prose", None)


def measure(what: str, count: int) -> dict[str, Any]:
    """Find the passages of some documents, in this process."""
    from bench_scale import spark_costs
    from lakes import DedupLake

    rows = texts_of(what, count)
    found = DedupLake.at(Path(tempfile.mkdtemp(prefix="passages-")))
    found.land("0", rows.slice(0, 20))  # compiled code is loaded, a session is there
    found.run(steps=_STEPS)
    found.land("1", rows.slice(20))
    found.run(steps=())
    before, shuffled, began = of_all_processes(), spark_costs()["shuffled"], time.monotonic()
    seconds = found.run(steps=_STEPS)
    costs = {"cpu": of_all_processes() - before, "wall": time.monotonic() - began, **seconds}
    texts = sum(len(text.encode()) for text in rows["content"].to_pylist())
    words = int(np.sum(found.rows("passages", "words")["words"].to_numpy()))
    return {
        **costs,
        "texts": texts,
        "documents": rows.num_rows,
        "shuffled": spark_costs()["shuffled"] - shuffled,
        "rows": found.count("passages"),
        "words": words,
        "anchor_bytes": sum(one.byte_count for one in found.lake.ledger.places("bench.anchors").values()),
        "mib": peak_mib(),
    }


def cost_part(sizes: dict[str, list[int]]) -> None:
    """Seconds and bytes of a further GB."""
    print("| texts | MB | rows | words in them | core seconds a GB | shuffled a GB | index a GB |")
    print("|---|---|---|---|---|---|---|")
    for what in ("rfc", "python"):
        low, high = (command.again(__file__, "--one", what, str(size)) for size in sizes[what])
        more = {name: high[name] - low[name] for name in high}
        giga = more["texts"] / 1e9
        print(
            f"| {what} | {high['texts'] / 1e6:.0f} | {high['rows']:,} | {high['words']:,} | {more['cpu'] / giga:.0f} "
            f"| {more['shuffled'] / giga / 1e9:.2f} GB | {more['anchor_bytes'] / giga / 1e9:.2f} GB |",
            flush=True,
        )


def planted_part(sizes: dict[str, list[int]]) -> None:
    """What a document costs as the passage is in more of them."""
    print("| documents | rows | core seconds | seconds of 10^5 | shuffled a document | driver |")
    print("|---|---|---|---|---|---|")
    for size in sizes["planted"]:
        one = command.again(__file__, "--one", "planted", str(size))
        print(
            f"| {one['documents']:,} | {one['rows']:,} | {one['cpu']:.0f} | {1e5 * one['cpu'] / size:.1f} "
            f"| {one['shuffled'] / size:.0f} B | {one['mib']:,} MiB |",
            flush=True,
        )


def recall_part(sizes: dict[str, list[int]]) -> None:
    """Windows that brute force finds, and those of the rows."""
    from lakes import DedupLake

    print("| texts | documents | copied windows | found | not copies |\n|---|---|---|---|---|")
    for what in ("rfc", "python"):
        rows = texts_of(what, sizes["recall"][0])
        lake = DedupLake.at(Path(tempfile.mkdtemp(prefix="passages-")))
        lake.land("0", rows)
        lake.run(steps=_STEPS)
        found = {
            (row["doc_id"], at)
            for row in lake.rows("passages", "doc_id", "word_start", "words").to_pylist()
            for at in range(row["word_start"], row["word_start"] + row["words"] - 49)
        }
        wanted = copied_windows(rows)
        print(f"| {what} | {rows.num_rows:,} | {len(wanted):,} | {len(wanted & found):,} | {len(found - wanted):,} |")


def copied_windows(rows: pa.Table) -> set[tuple[str, int]]:
    """Document and number of each window that a document with a lower place has; by the words as they are spelled."""
    from spark_jobs.dedup.passages.windows import words_in

    ids: dict[str, int] = {}
    first: dict[bytes, str] = {}
    copied = set()
    for row in rows.sort_by("place").to_pylist():
        batch = pa.RecordBatch.from_pylist(
            [row], pa.schema([(name, pa.string()) for name in ("content", "kind", "language")])
        )
        words, utf8 = words_in(batch), row["content"].encode()
        spelled = [utf8[s:e].decode().lower() for s, e in zip(words.starts, words.ends, strict=True)]
        numbers = np.array([ids.setdefault(word, len(ids)) for word in spelled], np.int32)
        for at in range(len(numbers) - 49):
            if first.setdefault(numbers[at : at + 50].tobytes(), row["doc_id"]) != row["doc_id"]:
                copied.add((row["doc_id"], at))
    return copied


def main() -> None:
    """Print the tables."""
    parts = {"cost": cost_part, "planted": planted_part, "recall": recall_part}
    parser = command.parser(__doc__)
    parser.add_argument("--part", nargs="+", choices=parts)
    parser.add_argument("--one", nargs=2, help="measure a corpus of this size in this process, and print JSON")
    sizes = {
        "rfc": [80_000, 240_000],
        "python": [4_000, 14_000],
        "planted": [1_000, 10_000, 100_000, 1_000_000],
        "recall": [3000],
    }
    small = {"rfc": [60, 120], "python": [40, 80], "planted": [60], "recall": [60]}
    parser.set_defaults(sizes=sizes)
    given = command.read(parser, sizes=small)
    if given.one:
        print(json.dumps(measure(given.one[0], int(given.one[1]))))
    else:
        command.run_parts(parts, given.part, given.sizes)


if __name__ == "__main__":
    main()
