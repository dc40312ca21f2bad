"""Real documents for benchmarks: of REAL_DATA_DIR, of this environment, and made ones where there are no RFCs."""

from __future__ import annotations

import csv
import functools
import gzip
import hashlib
import io
import itertools
import os
import random
import sysconfig
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from command import MissingError

REAL_DATA = Path(os.environ.get("REAL_DATA_DIR", Path(__file__).parents[2] / "shared" / "data"))
PIECE_BYTES = 2000
TWEET_LABELS = ("hate", "offensive", "neither")


def real(name: str) -> Path:
    """A file or folder of the real data.

    Raises:
        MissingError: it is not there.
    """
    if not (REAL_DATA / name).exists():
        raise MissingError(f"no {name} in {REAL_DATA}; set REAL_DATA_DIR")
    return REAL_DATA / name


def rfcs(limit: int | None = None, every: int = 1) -> list[str]:
    """RFCs in the order of their numbers, at most `limit` of every so manyth; made texts where they are missing."""
    try:
        file = pq.ParquetFile(real("rfc.parquet"))
    except MissingError as reason:
        print(f"made texts in place of RFCs: {reason}")
        return [made_text(number) for number in range(limit or 300)]
    texts = (text for batch in file.iter_batches(100, columns=["text"]) for text in batch["text"].to_pylist() if text)
    return list(itertools.islice(texts, 0, limit and limit * every, every))


def made_text(number: int) -> str:
    """About 12 kB in paragraphs and pages, of words by Zipf's law."""
    draw = random.Random(number)
    syllables = [first + last for first in "bcdfghklmnprstvw" for last in ("a", "e", "in", "or", "um", "ai")]
    words = ["the", "of", "and", *(one + other for one in syllables for other in syllables)]
    totals = list(itertools.accumulate(1 / rank for rank in range(1, len(words) + 1)))
    lines = [" ".join(draw.choices(words, cum_weights=totals, k=10)) + "." for _ in range(240)]
    return "\n".join(line + ("\f" if at % 50 == 49 else "\n" if at % 6 == 5 else "") for at, line in enumerate(lines))


def rfc_pieces(limit: int | None = None, piece_bytes: int = PIECE_BYTES) -> list[str]:
    """RFCs cut at line ends into pieces of about `piece_bytes`: real prose, 82,000 pieces of 2 KB."""
    pieces: list[str] = []
    for text in rfcs(limit and max(limit // 4, 20)):
        lines: list[str] = []
        size = 0
        for line in text.splitlines(keepends=True):
            lines.append(line)
            size += len(line)
            if size >= piece_bytes:
                pieces.append("".join(lines))
                lines, size = [], 0
        if lines:
            pieces.append("".join(lines))
    return pieces[:limit]


@functools.cache
def source_paths(ending: str = ".py") -> list[Path]:
    """Installed files that end so, then those of the standard library, each in the order of their paths."""
    installed, standard = (Path(sysconfig.get_path(name)) for name in ("purelib", "stdlib"))
    own = sorted(installed.rglob(f"*{ending}"))
    return own + sorted(path for path in standard.rglob(f"*{ending}") if "site-packages" not in path.parts)


def python_files(limit: int | None = None) -> list[str]:
    """Python files of the environment and of the standard library, in the order of their paths; no copies."""
    return list(itertools.islice(distinct(source_paths()), limit))


def distinct(paths: Iterable[Path]) -> Iterator[str]:
    """Texts of files that are UTF-8, not empty and at most 500 kB; no copies."""
    seen: set[bytes] = set()
    for path in paths:
        data = path.read_bytes()
        digest = hashlib.sha256(data).digest()
        if not data or len(data) > 500_000 or digest in seen:
            continue
        try:
            yield data.decode("utf-8")
        except UnicodeDecodeError:
            continue
        seen.add(digest)


def some_python_files(count: int) -> list[str]:
    """Python files by chance that are not small."""
    paths = [path for path in source_paths() if path.stat().st_size > 2000]
    return [path.read_bytes().decode("utf-8", "ignore") for path in random.Random(0).sample(paths, count)]


def sentences(codes: str = "??") -> dict[str, list[str]]:
    """Sentences by the ISO code of their language."""
    files = sorted(real("languages").glob(f"{codes}.txt"))
    return {file.stem: [line for line in file.read_text("utf-8").split("\n") if line.strip()] for file in files}


def paragraphs(form: str, codes: str = "??") -> Iterator[str]:
    """Texts in many languages in a Unicode form, again and again."""
    texts = [path.read_text("utf-8") for path in sorted(real("languages").glob(f"{codes}.txt"))]
    for paragraph in itertools.cycle([one for text in texts for one in text.split("\n\n")]):
        yield unicodedata.normalize(form, paragraph)


def articles(size: int = 2500) -> dict[str, str]:
    """News articles by name: 100, 1,000 or 2,500."""
    lines = gzip.decompress(real(f"near_duplicates/articles_{size}.train.gz").read_bytes()).decode("utf-8", "replace")
    return dict(line.split(" ", 1) for line in lines.splitlines() if line)


def manual() -> dict[str, str]:
    """Pages of four versions of jest's manual, by version and path."""
    folder = real("jest_docs")
    return {str(path.relative_to(folder)): path.read_text("utf-8") for path in sorted(folder.rglob("*.md"))}


def tweets() -> list[tuple[str, str]]:
    """Tweets with their label, of `TWEET_LABELS`."""
    with gzip.open(real("toxicity") / "davidson_labeled_data.csv.gz") as file:
        rows = list(csv.DictReader(io.TextIOWrapper(file, encoding="utf-8")))
    return [(row["tweet"], TWEET_LABELS[int(row["class"])]) for row in rows]


def up_to(texts: Iterable[str], byte_count: float) -> list[str]:
    """The first texts that make up so many bytes."""
    chosen, taken = [], 0
    for text in texts:
        chosen.append(text)
        taken += len(text.encode())
        if taken >= byte_count:
            break
    return chosen


def multiplied(texts: list[str], count: int, seed: int = 1) -> Iterator[str]:
    """The texts in a fixed random order, and then as many more as are wanted, made of their lines.

    A made document mixes the lines of three random ones, so that words keep their frequencies and no pair becomes a
    duplicate by it; one in twenty is a near-copy of an earlier one instead, with 1 to 20% of its words replaced.
    """
    draw = random.Random(seed)
    order = list(range(len(texts)))
    draw.shuffle(order)
    for number in range(count):
        if number < len(order):
            yield texts[order[number]]
        elif draw.random() < 0.05:
            words = texts[order[draw.randrange(len(order))]].split(" ")
            for place in draw.sample(range(len(words)), max(1, int(len(words) * draw.uniform(0.01, 0.2)))):
                words[place] = f"w{draw.randrange(100_000)}"
            yield " ".join(words)
        else:
            lines = [line for _ in range(3) for line in texts[draw.randrange(len(texts))].splitlines(keepends=True)]
            draw.shuffle(lines)
            yield "".join(lines[: len(lines) // 3 + 1])


def near_identical(text: str, count: int, left_out: int = 3, seed: int = 2) -> Iterator[str]:
    """Boilerplate: one text again and again, with a few words left out: J about 0.98."""
    draw = random.Random(seed)
    words = text.split(" ")
    for _ in range(count):
        gone = set(draw.sample(range(len(words)), left_out))
        yield " ".join(word for place, word in enumerate(words) if place not in gone)


def own_word_each(text: str, count: int, seed: int = 2) -> Iterator[str]:
    """The harder case: each copy has a word that occurs once, which weighs much where half of all is this text."""
    draw = random.Random(seed)
    words = text.split(" ")
    for number in range(count):
        copy = list(words)
        copy[draw.randrange(len(copy))] = f"only{number}"
        yield " ".join(copy)


def template_pages(count: int, seed: int = 3) -> tuple[list[str], list[str]]:
    """Twins of every third page, and pages that share a template of 667 words three times each: .5 to .7 alike."""
    draw = random.Random(seed)
    template = " ".join([f"template{number}" for number in range(667)] * 3)
    common = sorted({word for text in rfc_pieces(300) for word in text.split() if word.isalpha()})
    pages, changed = [], []
    for number in range(count):
        own = draw.sample(common, 8) + [f"own{number}x{place}" for place in range(8)]
        pages.append(" ".join([template, *own]))
        if number % 3 == 0:
            lost = draw.uniform(0.15, 0.5)
            kept = [word for word in own if draw.random() > lost]
            changed.append(" ".join([template, *kept, f"twin{number}"]))
    return changed, pages


def documents_table(texts: Iterator[str] | list[str], kind: str, language: str | None, start: int = 0) -> pa.Table:
    """Texts as rows of `texts` and `members`: ids are hashes of the place and the content."""
    contents = list(texts)
    named = (f"{start + number}\0{text}" for number, text in enumerate(contents))
    ids = [hashlib.sha256(name.encode()).hexdigest()[:32] for name in named]
    count = len(contents)
    return pa.table(
        {
            "dataset": ["bench"] * count,
            "shard": pa.array([0] * count, pa.int32()),
            "doc_id": ids,
            "kind": [kind] * count,
            "language": pa.array([language] * count, pa.string()),
            "place": pa.array([int(one[:15], 16) >> 1 for one in ids], pa.int64()),
            "content": pa.array(contents, pa.string()),
        }
    )
