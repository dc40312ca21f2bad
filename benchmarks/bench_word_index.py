"""An index of words for ranked search: SQLite's FTS5 beside tantivy, on RFCs cut into pieces.

Each engine builds in a process of its own from the same texts, which are read before: seconds, processor, most memory
beside the texts, size. Then the least processor time of five tries of each query: the 50 best by BM25, and how many
texts have all words.
"""

from __future__ import annotations

import ctypes
import json
import re
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import command
from corpora import rfc_pieces

ENGINES = ("fts5 none", "fts5 full", "tantivy 1", "tantivy 2")
QUERIES = ("the", "congestion", "denial service", "quoted printable", "congestion window threshold", "etransmission")
_BEST = 50
_WRITER_BYTES = 128_000_000


def main() -> None:
    """Build each, ask each."""
    arguments = command.parser(__doc__)
    arguments.add_argument("--piece-bytes", type=int, default=750, help="of a text: 218,000 of them")
    arguments.add_argument("--limit", type=int, help="texts")
    arguments.add_argument("--engine", choices=ENGINES, help="this one alone, in this process")
    given = command.read(arguments, limit=2000)
    if given.engine:
        print(json.dumps(measured(given.engine, rfc_pieces(given.limit, given.piece_bytes))))
        return
    sizes = ["--piece-bytes", str(given.piece_bytes), *(["--limit", str(given.limit)] if given.limit else [])]
    for engine in ENGINES:
        figures = command.attempt(_again, engine, sizes)
        for said, value in figures.items() if figures else ():
            print(f"{engine:12} {said:40} {value}", flush=True)


def _again(engine: str, sizes: list[str]) -> Any:
    if engine.startswith("tantivy"):
        try:
            import tantivy  # noqa: F401
        except ImportError as error:
            raise command.MissingError("tantivy; pip install tantivy") from error
    return command.again(__file__, "--engine", engine, *sizes)


def measured(engine: str, texts: list[str]) -> dict[str, str]:
    """What an engine takes."""
    _forget_memory()
    before, busy, began = _most_memory(), time.process_time(), time.perf_counter()
    with tempfile.TemporaryDirectory() as root:
        name, kind = engine.split()
        ask = (fts5 if name == "fts5" else tantivy_of)(Path(root), texts, kind)
        took, used = time.perf_counter() - began, time.process_time() - busy
        size = sum(file.stat().st_size for file in Path(root).rglob("*") if file.is_file())
        plain = sum(len(text.encode()) for text in texts)
        facts = {
            f"build of {len(texts):,} texts, {plain / 1e6:,.0f} MB": f"{took:.1f} s, processor {used:.1f} s, "
            f"{size / 1e6:,.0f} MB ({size / plain:.0%}), memory {_most_memory() - before:+,.0f} MB"
        }
        for words in QUERIES:
            tries = []
            for _ in range(5):
                start = time.process_time()
                count = ask(words)
                tries.append(time.process_time() - start)
            facts[f"{words}: {count:,} texts"] = f"{1000 * min(tries):.1f} ms"
    return facts


def fts5(root: Path, texts: list[str], detail: str) -> Callable[[str], int]:
    """An index without texts; with `none` it has no places of words, so nothing can be ranked."""
    with sqlite3.connect(root / "words") as database:
        database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -200000")
        more = "detail=none, columnsize=0" if detail == "none" else "detail=full"
        options = f"content='', {more}, tokenize='unicode61 remove_diacritics 0'"
        database.execute(f"CREATE VIRTUAL TABLE words USING fts5(content, {options})")
        database.executemany("INSERT INTO words (rowid, content) VALUES (?, ?)", enumerate(texts))
    order = "rowid" if detail == "none" else "rank"
    reader = sqlite3.connect(f"file:{root / 'words'}?mode=ro&immutable=1", uri=True)

    def ask(words: str) -> int:
        match = " ".join(f'"{word}"' for word in words.split())
        reader.execute(
            f"SELECT rowid FROM words WHERE words MATCH ? ORDER BY {order} LIMIT {_BEST}", [match]
        ).fetchall()
        return int(reader.execute("SELECT count(*) FROM words WHERE words MATCH ?", [match]).fetchone()[0])

    return ask


def tantivy_of(root: Path, texts: list[str], threads: str) -> Callable[[str], int]:
    """An index with frequencies and a stored number of each text."""
    import tantivy  # type: ignore[import-not-found]

    schema = tantivy.SchemaBuilder()
    schema.add_text_field("content", stored=False, index_option="freq")
    schema.add_unsigned_field("number", stored=True)
    index = tantivy.Index(schema.build(), str(root))
    writer = index.writer(_WRITER_BYTES, int(threads))
    for number, text in enumerate(texts):
        writer.add_document(tantivy.Document(content=text, number=number))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def ask(words: str) -> int:
        query = index.parse_query(" AND ".join(words.split()), ["content"])
        answer = searcher.search(query, _BEST)
        [searcher.doc(place)["number"] for _, place in answer.hits]
        return int(answer.count)

    return ask


def _most_memory() -> float:
    """Most megabytes that this process has held since `_forget_memory`."""
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(kilobytes) / 1e3


def _forget_memory() -> None:
    ctypes.CDLL(None).malloc_trim(0)  # else what reading the texts left is taken again
    Path("/proc/self/clear_refs").write_text("5")


if __name__ == "__main__":
    main()
