"""How fast texts and signals are made: the kernels on one core, beside the plain Python that says the same.

    python benchmarks/bench_text.py [--megabytes 16] [--data ../shared/data]

Inputs are real: the Python files installed beside this interpreter, the RFC series, and texts in many languages and
scripts as they are and in decomposed form. Times are CPU seconds of this process, the best of three; megabytes are of
UTF-8. Naive versions run on the first megabyte.
"""

from __future__ import annotations

import argparse
import hashlib
import sysconfig
import time
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.text.measures import generated_markers, measure
from spark_jobs.text.text_columns import letters_column, normalized

MIN_LETTERS = 32
MARKER_LINES = 10
ROWS = 10_000  # Spark's own batches have this many


def installed_code() -> Iterator[str]:
    """Installed Python files that are UTF-8."""
    for path in sorted(Path(sysconfig.get_path("purelib")).rglob("*.py")):
        try:
            yield path.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            continue


def rfcs(data: Path) -> Iterator[str]:
    """Texts of the RFC series."""
    yield from pq.read_table(data / "rfc.parquet", columns=["text"]).column("text").to_pylist()


def languages(data: Path, form: str, codes: str = "*") -> Iterator[str]:
    """Paragraphs of texts in many languages, again and again."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((data / "languages").glob(f"{codes}.txt"))]
    paragraphs = [paragraph for text in texts for paragraph in text.split("\n\n")]
    while paragraphs:
        for paragraph in paragraphs:
            yield unicodedata.normalize(form, paragraph)


def column(texts: Iterator[str], byte_count: int) -> tuple[list[pa.Array], int]:
    """As many texts as make up `byte_count`, in batches, and their bytes."""
    chosen, taken = [], 0
    for text in texts:
        chosen.append(text)
        taken += len(text.encode("utf-8"))
        if taken >= byte_count:
            break
    return [pa.array(chosen[row : row + ROWS]) for row in range(0, len(chosen), ROWS)], taken


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


def cpu_seconds(work: Callable[[list[pa.Array]], None], batches: list[pa.Array]) -> float:
    """Best of three, after one run that pays for tables."""
    work(batches[:1])
    seconds = []
    for _ in range(3):
        started = time.process_time()
        work(batches)
        seconds.append(time.process_time() - started)
    return min(seconds)


def main() -> None:
    """Print one line per input and kernel."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=16, help="bytes of each input, in millions")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of rfc.parquet")
    arguments = parser.parse_args()
    inputs: dict[str, Callable[[], Iterator[str]]] = {"installed Python": installed_code}
    if (arguments.data / "rfc.parquet").is_file():
        inputs["RFCs"] = lambda: rfcs(arguments.data)
    if (arguments.data / "languages").is_dir():
        inputs["languages"] = lambda: languages(arguments.data, "NFC")
        inputs["Chinese"] = lambda: languages(arguments.data, "NFC", "zh")
        inputs["Thai"] = lambda: languages(arguments.data, "NFC", "th")
        inputs["languages, NFD"] = lambda: languages(arguments.data, "NFD")
    kernels = {"texts": (make_texts, naive_texts), "signals": (make_signals, naive_signals)}
    print(f"{'input':<18} {'kernel':<8} {'MB':>6} {'MB/s':>8} {'naive MB/s':>11} {'ratio':>7}")
    for name, read in inputs.items():
        batches, byte_count = column(read(), arguments.megabytes * 1_000_000)
        small, small_bytes = column(read(), 1_000_000)
        for kernel, (quick, naive) in kernels.items():
            speed = byte_count / 1e6 / cpu_seconds(quick, batches)
            slow = small_bytes / 1e6 / cpu_seconds(naive, small)
            print(f"{name:<18} {kernel:<8} {byte_count / 1e6:>6.1f} {speed:>8.1f} {slow:>11.2f} {speed / slow:>7.1f}")


if __name__ == "__main__":
    main()
