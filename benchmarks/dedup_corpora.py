"""Real documents for the benchmarks of deduplication: RFCs in pieces, Python files, as many as are asked for."""

from __future__ import annotations

import hashlib
import os
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

REAL_DATA = Path(os.environ.get("REAL_DATA_DIR", Path(__file__).parents[2] / "shared" / "data"))
PIECE_BYTES = 2000


def rfc_pieces(piece_bytes: int = PIECE_BYTES) -> list[str]:
    """RFCs cut at line ends into pieces of about `piece_bytes`: real prose, 82,000 pieces of 2 KB."""
    pieces: list[str] = []
    for text in pq.read_table(REAL_DATA / "rfc.parquet", columns=["text"]).column("text").to_pylist():
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
    return pieces


def python_files(limit: int | None = None) -> list[str]:
    """Python files of the environment and of the standard library, in the order of their paths; no copies."""
    roots = [Path(sysconfig.get_path(name)) for name in ("purelib", "stdlib")]
    seen: set[bytes] = set()
    found: list[str] = []
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            if root != roots[0] and "site-packages" in path.parts:
                continue
            data = path.read_bytes()
            digest = hashlib.sha256(data).digest()
            if not data or len(data) > 500_000 or digest in seen:
                continue
            try:
                found.append(data.decode("utf-8"))
            except UnicodeDecodeError:
                continue
            seen.add(digest)
            if limit is not None and len(found) == limit:
                return found
    return found


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
    common = sorted({word for text in rfc_pieces()[:300] for word in text.split() if word.isalpha()})
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
