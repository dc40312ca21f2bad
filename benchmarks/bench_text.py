"""How fast texts and signals are made: the kernels on one core, beside the plain Python that says the same.

    python benchmarks/bench_text.py [--megabytes 16]

Inputs are real: the Python files installed beside this interpreter, the RFC series, and texts in many languages and
scripts as they are and in decomposed form. Times are CPU seconds of this process, the best of three; megabytes are of
UTF-8. Naive versions run on the first megabyte.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Iterator

import command
import pyarrow as pa
from corpora import distinct, paragraphs, rfcs, source_paths, up_to
from cpu_time import seconds

from spark_jobs.text.compared_texts import letters_column
from spark_jobs.text.measures import generated_markers, measure
from spark_jobs.text.text_columns import normalized

MIN_LETTERS = 32
MARKER_LINES = 10
ROWS = 10_000  # Spark's own batches have this many


def column(texts: Iterator[str], byte_count: float) -> tuple[list[pa.Array], int]:
    """As many texts as make up `byte_count`, in batches, and their bytes."""
    chosen = up_to(texts, byte_count)
    batches = [pa.array(chosen[row : row + ROWS]) for row in range(0, len(chosen), ROWS)]
    return batches, sum(len(text.encode()) for text in chosen)


def make_texts(batches: list[pa.Array]) -> None:
    """What the step `texts` does to each batch."""
    for batch in batches:
        content, _ = normalized(batch)
        letters_column(content, pa.array(["prose"] * len(content)), MIN_LETTERS)


def make_signals(batches: list[pa.Array]) -> None:
    """What the step `signals` does to each batch."""
    for batch in batches:
        measure(batch)
        generated_markers(batch, MARKER_LINES)


def naive_texts(batches: list[pa.Array]) -> None:
    """Normal form without edits, and letters, character by character."""
    for batch in batches:
        for source in batch.to_pylist():
            text = unicodedata.normalize("NFC", source).replace("\r\n", "\n").replace("\r", "\n")
            kept = [
                c
                for c in text.lower()
                if unicodedata.category(c)[0] not in "ZP" and unicodedata.category(c) not in ("Cc", "Cf")
            ]
            if len(kept) >= MIN_LETTERS:
                hashlib.sha256("".join(kept).encode("utf-8")).hexdigest()


def naive_signals(batches: list[pa.Array]) -> None:
    """The same counts, character by character."""
    for batch in batches:
        for text in batch.to_pylist():
            categories = [unicodedata.category(character) for character in text]
            sum(category[0] in "LM" for category in categories)
            sum(category[0] == "N" for category in categories)
            categories.count("Nd")
            sum(not c.isspace() and k[0] not in "LMN" for c, k in zip(text, categories, strict=True))
            sum(map(len, text.split()))
            lines = text.splitlines()
            max(map(len, lines), default=0)
            len({line for line in lines if line})


def main() -> None:
    """Print one line per input and kernel."""
    parser = command.parser(__doc__)
    parser.add_argument("--megabytes", type=float, default=16, help="bytes of each input, in millions")
    given = command.read(parser, megabytes=0.1)
    inputs: dict[str, Callable[[], Iterator[str]]] = {
        "installed Python": lambda: distinct(source_paths()),
        "RFCs": lambda: iter(rfcs(2 + int(given.megabytes * 100))),
        "languages": lambda: paragraphs("NFC"),
        "Chinese": lambda: paragraphs("NFC", "zh"),
        "Thai": lambda: paragraphs("NFC", "th"),
        "languages, NFD": lambda: paragraphs("NFD"),
    }
    kernels = {"texts": (make_texts, naive_texts), "signals": (make_signals, naive_signals)}
    print(f"{'input':<18} {'kernel':<8} {'MB':>6} {'MB/s':>8} {'naive MB/s':>11} {'ratio':>7}")
    for name, read in inputs.items():
        batches, byte_count = column(command.readable(read()), given.megabytes * 1e6)
        small, small_bytes = column(iter(text for batch in batches for text in batch.to_pylist()), 1e6)
        for kernel, (quick, naive) in kernels.items() if batches else ():
            quick(batches[:1])  # pays for tables
            speed = byte_count / 1e6 / seconds(lambda work=quick, of=batches: work(of))
            slow = small_bytes / 1e6 / seconds(lambda work=naive, of=small: work(of))
            print(f"{name:<18} {kernel:<8} {byte_count / 1e6:>6.1f} {speed:>8.1f} {slow:>11.2f} {speed / slow:>7.1f}")


if __name__ == "__main__":
    main()
