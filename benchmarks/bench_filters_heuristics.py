"""How fast texts are measured by the heuristics, and whether their verdicts are datatrove's, both in one run.

    python -m venv PEER && PEER/bin/pip install "datatrove[processing]" spacy
    python benchmarks/bench_filters_heuristics.py [--peer PEER/bin/python] [--documents 10000]

The documents are real and chosen by a seed: RFC pages and paragraphs, pages of jest's manual, articles, HTML, sentences
in 75 languages, and installed Python files and READMEs. Speeds are CPU seconds of this process, the best of three, in
batches of 20,000 rows. The peer runs its four filters with default settings, in a process of its own, on the same
documents; its verdicts are compared with those of the same thresholds over our measures.
"""

from __future__ import annotations

import pickle
import random
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import command
import numpy as np
import pyarrow as pa
from corpora import articles, manual, real, rfcs, sentences, source_paths
from cpu_time import megabytes, seconds

from spark_jobs.filters.heuristics.measure import score

ROWS = 20_000
WITHOUT_SPACES = ("lang_zh", "lang_ja", "lang_th")
RULES = {
    "gopher": (
        "gopher_word_count < 50",
        "gopher_word_count > 100000",
        "gopher_mean_word_length < 3",
        "gopher_mean_word_length > 10",
        "hash_word_ratio > 0.1",
        "ellipsis_word_ratio > 0.1",
        "bullet_line_fraction > 0.9",
        "ellipsis_line_fraction > 0.3",
        "alphabetic_word_fraction < 0.8",
        "stop_word_count < 2",
    ),
    "gopher_repetition": (
        "duplicate_paragraph_fraction > 0.3",
        "duplicate_paragraph_character_fraction > 0.2",
        "duplicate_line_fraction > 0.3",
        "duplicate_line_character_fraction > 0.2",
        *(f"top_{n}gram_character_fraction > {bound}" for n, bound in ((2, 0.2), (3, 0.18), (4, 0.16))),
        *(f"duplicate_{n}gram_character_fraction > {(20 - n) / 100}" for n in range(5, 11)),
    ),
    "c4": ("lorem_ipsum_count > 0", "curly_bracket_count > 0", "sentence_count < 5"),
    "fineweb": (
        "terminal_punctuation_line_fraction < 0.12",
        "short_line_fraction > 0.67",
        "fineweb_duplicate_line_character_fraction > 0.01",
        "newline_word_ratio > 0.3",
    ),
}
PEER = """
import pickle, sys, time
from datatrove.data import Document
from datatrove.pipeline.filters import (
    C4QualityFilter, FineWebQualityFilter, GopherQualityFilter, GopherRepetitionFilter)
filters = [GopherQualityFilter(), GopherRepetitionFilter(), C4QualityFilter(), FineWebQualityFilter()]
texts = pickle.load(open(sys.argv[1], "rb"))
filters[0].filter(Document(text="A b. " * 60, id="warm"))
began = time.process_time()
verdicts = [[f.filter(Document(text=text, id="")) is True for f in filters] for text in texts]
pickle.dump((verdicts, time.process_time() - began), open(sys.argv[1], "wb"))
"""


def documents(count: int) -> Iterator[tuple[str, str]]:
    """Kind and text of every document that may be drawn; a fifth of `count` RFCs."""
    rng = random.Random(17)
    texts = rfcs()
    for text in rng.sample(texts, min(count // 5, len(texts))):
        pages, paragraphs = text.split("\f"), text.split("\n\n")
        page, paragraph = rng.randrange(len(pages)), rng.randrange(len(paragraphs))
        yield "rfc", "\f".join(pages[page : page + rng.choice([1, 2, 3, 5])])
        yield "rfc_paragraphs", "\n\n".join(paragraphs[paragraph : paragraph + rng.choice([2, 5, 10])])
    for pattern, kind, share in ((".py", "code", 4), ("METADATA", "readme", 20), (".md", "readme", 20)):
        paths = source_paths(pattern)
        for path in rng.sample(paths, min(count // share, len(paths))):
            yield kind, path.read_text(errors="replace")
    yield from (("jest", part) for page in manual().values() for part in page.split("\n## "))
    for size in (100, 1000, 2500):
        yield from (("articles", text) for text in articles(size).values())
    for path in sorted(real("html_articles").rglob("expected.html")):
        yield "html", path.read_text()
        yield "html_text", re.sub(r"<[^>]+>", "", path.read_text())
    for language, lines in sentences().items():
        for number in range(20):
            first = rng.randrange(len(lines))
            yield f"lang_{language}", "\n "[number % 2].join(lines[first : first + rng.choice([3, 5, 10, 20])])


def speed(texts: list[str]) -> tuple[float, float]:
    """Megabytes of the texts in UTF-8, and how many are measured in a CPU second."""
    batches = [pa.array(texts[row : row + ROWS], pa.large_string()) for row in range(0, len(texts), ROWS)]
    size = megabytes(texts)
    return size, size / seconds(lambda: [score(batch) for batch in batches])


def kept(texts: list[str]) -> dict[str, np.ndarray]:
    """Whether each text passes the rules of each filter; null passes, but a text of white space alone is dropped."""
    measures = {name: column.to_numpy(zero_copy_only=False) for name, column in score(pa.array(texts)).items()}
    blank = np.isnan(measures["terminal_punctuation_line_fraction"].astype(float))
    passed = {}
    for name, rules in RULES.items():
        failed = blank.copy()
        for signal, side, bound in map(str.split, rules):
            values = measures[signal].astype(float)
            failed |= values < float(bound) if side == "<" else values > float(bound)
        passed[name] = ~failed
    return passed


def compare(chosen: list[tuple[str, str]], peer: str) -> None:
    """Print the peer's speed and where its verdicts differ."""
    texts = [text for _, text in chosen]
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        Path(file.name).write_bytes(pickle.dumps(texts))
        command.peer(peer, "-c", PEER, file.name)
        verdicts, spent = pickle.loads(Path(file.name).read_bytes())
    print(f"datatrove, four filters: {megabytes(texts) / spent:.2f} MB/s ({spent:.0f} s)")
    for index, (name, passed) in enumerate(kept(texts).items()):
        differing = [row for row, kept_by_peer in enumerate(verdicts) if kept_by_peer[index] != passed[row]]
        kinds = Counter(chosen[row][0] for row in differing)
        spaced = sum(count for kind, count in kinds.items() if kind not in WITHOUT_SPACES)
        print(
            f"{name}: datatrove keeps {sum(v[index] for v in verdicts)}; "
            f"agreement {1 - len(differing) / len(texts):.2%}, "
            f"without zh, ja, th {1 - spaced / len(texts):.2%}; {dict(kinds)}"
        )


def main() -> None:
    """Measure, and compare where a peer is given."""
    parser = command.parser(__doc__)
    parser.add_argument("--peer", help="Python with datatrove[processing] and spacy")
    parser.add_argument("--documents", type=int, default=10_000)
    options = command.read(parser, documents=200)
    chosen = [(kind, text) for kind, text in command.readable(documents(options.documents)) if text.strip()]
    random.Random(17).shuffle(chosen)
    chosen = chosen[: options.documents]
    score(pa.array(["Compile."]))
    kinds: dict[str, list[str]] = defaultdict(list)
    for kind, text in chosen:
        kinds[kind.partition("_")[0]].append(text)
        kinds["all"].append(text)
    kinds["whole rfcs"] = rfcs(min(600, options.documents))
    for kind, texts in kinds.items():
        size, rate = speed(texts)
        print(f"{kind}: {len(texts):,} texts, {size:.1f} MB, {rate:.0f} MB/s")
    if options.peer:
        command.attempt(compare, chosen, options.peer)


if __name__ == "__main__":
    main()
