"""How fast listed words are found, how often by list and language, and what they say of labelled tweets.

    python benchmarks/bench_filters_profanity.py [--data ../shared/data]

The peer is glin-profanity, whose lists both use, in the same run. Times are CPU seconds of this process, the best of
three for headrace; megabytes are of UTF-8.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cpu_time import megabytes, seconds
from glin_profanity import Filter

from spark_jobs.filters.profanity.profanity import LISTS, ProfanityConfig, phrases_to_count
from spark_jobs.filters.profanity.profanity_kernel import score

LABELS = ("hate", "offensive", "neither")


def tweets(data: Path) -> list[tuple[str, str]]:
    """Label and text."""
    (path,) = (data / "toxicity").glob("*.csv*")
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
    return [(LABELS[int(row["class"])], row["tweet"]) for row in csv.DictReader(io.StringIO(text))]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    data = parser.parse_args().data
    english, every = (phrases_to_count(ProfanityConfig(languages=names)) for names in (("en",), tuple(LISTS)))
    labelled = tweets(data)
    texts = [text for _, text in labelled]
    rfcs = pq.read_table(data / "rfc.parquet", columns=["text"])["text"].to_pylist()[::30]
    peer = Filter({"languages": ["english"], "word_boundaries": True})
    for name, documents in (("tweets", texts), ("RFCs", rfcs)):
        column, size = pa.array(documents), megabytes(documents)
        score(column, english)
        own, all_lists = (seconds(lambda p=p, c=column: score(c, p)) for p in (english, every))
        few = documents[:200] if name == "tweets" else [text[:2000] for text in documents[:20]]
        theirs = megabytes(few) / seconds(lambda few=few: [peer.is_profane(text) for text in few], 1)
        print(f"{name}, {size:.1f} MB: {size / own:.1f} MB/s, all lists {size / all_lists:.1f}, peer {theirs:.3f}")
    counts = np.array(score(pa.array(texts), english)["profanity_count"])
    for label in LABELS:
        mine = counts[[own == label for own, _ in labelled]]
        print(f"{label}: {len(mine)} tweets, {np.mean(mine > 0):.3f} have a listed word")
    sample = range(0, len(texts), 50)
    said = [bool(peer.is_profane(texts[k])) for k in sample]
    mine = [bool(counts[k]) for k in sample]
    both = {
        pair: sum(one == pair for one in zip(mine, said, strict=True)) for pair in set(zip(mine, said, strict=True))
    }
    print(f"of {len(said)} tweets, (headrace, peer): {both}")
    print([texts[k] for k, own, other in zip(sample, mine, said, strict=True) if own != other][:8])
    sentences = {
        file.stem: [line for line in file.read_text("utf-8").split("\n") if line.strip()]
        for file in sorted((data / "languages").glob("??.txt"))
    }
    for language in LISTS:
        phrases = phrases_to_count(ProfanityConfig(languages=(language,)))
        found = {
            other: float(np.mean(np.array(score(pa.array(lines), phrases)["profanity_count"]) > 0))
            for other, lines in sentences.items()
        }
        own = found.pop({"no": "nb"}.get(language, language))
        others = sorted(found, key=found.__getitem__)[:-4:-1]
        print(f"list {language}: {own:.3f} of its sentences; " + ", ".join(f"{one} {found[one]:.3f}" for one in others))


if __name__ == "__main__":
    main()
