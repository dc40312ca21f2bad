"""How fast listed words are found, how often by list and language, and what they say of labelled tweets.

    python benchmarks/bench_filters_profanity.py

The peer is glin-profanity, whose lists both use, in the same run. Times are CPU seconds of this process, the best of
three for headrace; megabytes are of UTF-8.
"""

from __future__ import annotations

import argparse

import command
import numpy as np
import pyarrow as pa
from corpora import TWEET_LABELS, rfcs, sentences, tweets
from cpu_time import megabytes, seconds
from glin_profanity import Filter

from headrace_features.privacy.profanity.profanity import LISTS, ProfanityConfig, phrases_to_count
from headrace_features.privacy.profanity.profanity_kernel import score


def main() -> None:
    """Print the figures."""
    parser = command.parser(__doc__)
    parser.set_defaults(documents=None, peer_texts=200)
    given = command.read(parser, documents=60, peer_texts=5)
    command.attempt(measure, given)


def measure(given: argparse.Namespace) -> None:
    """Print MB/s, then the share of texts with a word of the lists, by label and by language."""
    english, every = (phrases_to_count(ProfanityConfig(languages=names)) for names in (("en",), tuple(LISTS)))
    labelled = tweets()[: given.documents and 20 * given.documents]
    texts = [text for text, _ in labelled]
    peer = Filter({"languages": ["english"], "word_boundaries": True})
    for name, documents in (("tweets", texts), ("RFCs", rfcs(given.documents, every=30))):
        column, size = pa.array(documents), megabytes(documents)
        score(column, english)
        own, all_lists = (seconds(lambda p=p, c=column: score(c, p)) for p in (english, every))
        few = (
            documents[: given.peer_texts]
            if name == "tweets"
            else [text[:2000] for text in documents[: given.peer_texts // 10 + 1]]
        )
        theirs = megabytes(few) / seconds(lambda few=few: [peer.is_profane(text) for text in few], 1)
        print(f"{name}, {size:.1f} MB: {size / own:.1f} MB/s, all lists {size / all_lists:.1f}, peer {theirs:.3f}")
    counts = np.array(score(pa.array(texts), english)["profanity_count"])
    for label in TWEET_LABELS:
        mine = counts[[own == label for _, own in labelled]]
        print(f"{label}: {len(mine)} tweets, {np.mean(mine > 0):.3f} have a listed word")
    sample = range(0, len(texts), 50)
    said = [bool(peer.is_profane(texts[k])) for k in sample]
    mine = [bool(counts[k]) for k in sample]
    both = {
        pair: sum(one == pair for one in zip(mine, said, strict=True)) for pair in set(zip(mine, said, strict=True))
    }
    print(f"of {len(said)} tweets, (headrace, peer): {both}")
    print([texts[k] for k, own, other in zip(sample, mine, said, strict=True) if own != other][:8])
    lines_of = {code: lines[: given.documents] for code, lines in sentences().items()}
    for language in LISTS:
        phrases = phrases_to_count(ProfanityConfig(languages=(language,)))
        found = {
            other: float(np.mean(np.array(score(pa.array(lines), phrases)["profanity_count"]) > 0))
            for other, lines in lines_of.items()
        }
        own = found.pop({"no": "nb"}.get(language, language))
        others = sorted(found, key=found.__getitem__)[:-4:-1]
        print(f"list {language}: {own:.3f} of its sentences; " + ", ".join(f"{one} {found[one]:.3f}" for one in others))


if __name__ == "__main__":
    main()
