"""Which features tell near-duplicates from strangers best, and what they cost; on one core and without Spark.

    python benchmarks/bench_dedup_features.py [--part PART] [--pairs N]

Parts: `edits`, documents edited in known ways beside strangers that look alike (labelled_duplicates.py); `known`, sets
whose near-duplicates somebody else labelled; `cost`, sizes, speed and the bands that the background asks for. Weights
are the steps' own, of a vocabulary of the set itself. JAVA_HOME adds the JDK's sources, `go` and `npm` theirs.
"""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Callable, Iterator
from math import ceil, log

import command
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from corpora import articles, manual, python_files, real, rfc_pieces, sentences
from dedup_in_memory import Corpus, all_pairs, cpu_seconds, frozen_units, rows_of, weighed
from labelled_duplicates import code_pairs, prose_pairs
from lexed_features import counted, lexed, mixed, parts, runs_of, words

from spark_jobs.arrays import Int64Array
from spark_jobs.dedup.bags.bag_arrays import Bags
from spark_jobs.dedup.bags.features import Features
from spark_jobs.dedup.bags.token_counts import TokenCounts
from spark_jobs.dedup.sketches.similarity import background_counts, overlaps
from spark_jobs.lexing.machine import TokenBlock

Float64Array = npt.NDArray[np.float64]
Count = Callable[[Corpus], TokenCounts]

FALSE_CANDIDATES = 50  # a document
RECALL = 0.9999
RELATIVES = 300  # thousandths: more alike than this are relatives, whose number a larger corpus does not square


# ---- features


def compiled(features: Features) -> Count:
    """As the steps make them."""
    return lambda corpus: corpus.counts(features)


def made(*of: Callable[[TokenBlock], npt.NDArray[np.uint64]]) -> Count:
    """Of lexed tokens; several kinds of features together share no hash."""

    def count(corpus: Corpus) -> TokenCounts:
        blocks = [lexed(text, corpus.lexer) for text in corpus.texts]
        kinds = ((mixed(one(block) ^ np.uint64(number)) for number, one in enumerate(of)) for block in blocks)
        return counted([np.concatenate(list(own)) for own in kinds])

    return count


def word_runs(size: int) -> Callable[[TokenBlock], npt.NDArray[np.uint64]]:
    """Words in a row."""
    return lambda block: runs_of(words(block), size)


def part_runs(size: int, names: bool = False) -> Callable[[TokenBlock], npt.NDArray[np.uint64]]:
    """Parts of code in a row."""
    return lambda block: runs_of(parts(block, names), size)


WORDS: dict[str, Count] = {
    "words": compiled(Features.model_validate("words")),
    "word_pairs": compiled(Features.model_validate("word_pairs")),
    "3 words": made(word_runs(3)),
    "5 words": made(word_runs(5)),
    "words and pairs": made(word_runs(1), word_runs(2)),
}
CODE: dict[str, Count] = {
    "words_and_structure": compiled(Features()),
    "words, runs of 8": made(words, part_runs(8)),
    "runs of 8": made(part_runs(8)),
    "3 parts with names": made(part_runs(3, names=True)),
}


def bags_of(corpus: Corpus, count: Count, weights: bool = True) -> Bags:
    """A bag of every document; without weights a set."""
    counts = count(corpus)
    if weights:
        return weighed(counts, frozen_units(counts)[0])
    ones = np.ones(len(counts.hashes), np.uint8)
    return Bags(counts.offsets, counts.hashes, ones, ones)


# ---- labelled edits


def edits(arguments: argparse.Namespace) -> None:
    """How well J ranks edited copies before strangers, and what of each edit is found where 5% of the strangers are."""
    for labelled in command.readable(itertools.chain(prose_pairs(arguments.pairs), code_pairs(arguments.pairs))):
        labels = np.array([pair.label for pair in labelled.pairs])
        same = np.array([pair.same for pair in labelled.pairs])
        kinds = list(dict.fromkeys(labels[same]))
        print(f"\n{labelled.name}: {same.sum()} edited, {(~same).sum()} strangers, {len(labelled.others)} others")
        for number, kind in enumerate(kinds):
            print(f"  {chr(97 + number)}: {kind}")
        print(
            f"{'':<24} {'tokens':>6} {'AUC':>5} {'avg prec':>8} | {'found, strangers at .7':>22} {'.8':>9} {'.9':>9} | "
            f"{'as words at .7 .8 .9':>20} | {'J':>4} {' '.join(f'{chr(97 + n):>4}' for n in range(len(kinds)))}"
        )
        corpus = Corpus(labelled.kind, labelled.language, labelled.texts)
        features = {**WORDS, **(CODE if labelled.kind == "code" else {})}
        by_words = similarities(bags_of(corpus, features["words"]), len(labels))[same]
        for name, count in features.items():
            print_edits(name, bags_of(corpus, count), labels, same, by_words)
        for name in ("words", "5 words"):
            print_edits(f"{name}, a set", bags_of(corpus, features[name], False), labels, same, by_words)
    print(
        "as words: where as many of the edited are found as by words at these; J: the least that 5% of strangers have"
    )


def similarities(bags: Bags, pairs: int) -> Float64Array:
    """J of the first pairs of documents."""
    shared, united = overlaps(rows_of(bags, np.arange(pairs) * 2), rows_of(bags, np.arange(pairs) * 2 + 1))
    j: Float64Array = shared / np.maximum(united, 1)
    return j


def print_edits(
    name: str, bags: Bags, labels: npt.NDArray[np.str_], same: npt.NDArray[np.bool_], by_words: Float64Array
) -> None:
    """One row."""
    similarity = similarities(bags, len(labels))
    true, false = similarity[same], np.sort(similarity[~same])
    below = (np.searchsorted(false, true, "left") + np.searchsorted(false, true, "right")) / 2
    order = np.argsort(-similarity, kind="stable")
    precision = np.cumsum(same[order]) / np.arange(1, len(order) + 1)
    at = [f"{(true >= t).mean():.2f} {(false >= t).mean():.2f}" for t in (0.7, 0.8, 0.9)]
    alike = " ".join(f"{np.quantile(true, (by_words < t).mean()):.2f}" for t in (0.7, 0.8, 0.9))
    least = np.quantile(false, 0.95)
    kinds = dict.fromkeys(labels[same])
    found = " ".join(f"{(similarity[labels == kind] > least).mean():>4.2f}" for kind in kinds)
    tokens, auc, average = np.diff(bags.offsets).mean(), below.mean() / len(false), precision[same[order]].mean()
    print(
        f"{name:<24} {tokens:>6.0f} {auc:>5.3f} {average:>8.3f} | {at[0]:>22} {at[1]:>9} {at[2]:>9} | {alike:>20} | "
        f"{least:>4.2f} {found}",
        flush=True,
    )


# ---- known near-duplicates


def known(arguments: argparse.Namespace) -> None:
    """What J says of near-duplicates that others labelled, among all pairs of their sets."""
    print(
        f"{'documents (true pairs)':<36} {'features':<16} {'J of true pairs':>16} {'F1 .7':>6} {'.8':>5} {'.9':>5} "
        f"{'best F1 (at)':>13} {'avg prec':>8}"
    )
    for name, texts, true in command.readable(known_sets(arguments.known)):
        for feature in ("words", "word_pairs", "3 words", "5 words"):
            print_known(name, feature, bags_of(Corpus("prose", None, texts), WORDS[feature]), true)
    print("J of true pairs: quartiles")


def print_known(name: str, feature: str, bags: Bags, true: set[tuple[int, int]]) -> None:
    """One row: how well J tells the true pairs from all others."""
    left, right, shared, united = all_pairs(bags, 0.02)
    similarity = shared / united
    is_true = np.array([pair in true for pair in zip(left.tolist(), right.tolist(), strict=True)], bool)
    order = np.argsort(-similarity, kind="stable")
    hits = np.cumsum(is_true[order])
    ranks = np.arange(1, len(order) + 1)
    f1 = 2 * hits / (ranks + len(true))
    last = np.append(similarity[order][1:] < similarity[order][:-1], True)  # ties are taken together
    best = int(np.argmax(np.where(last, f1, 0)))
    average = (hits / ranks)[is_true[order]].sum() / len(true)
    at = [float(f1[count - 1]) if (count := int((similarity >= t).sum())) else 0.0 for t in (0.7, 0.8, 0.9)]
    missing = np.zeros(len(true) - int(is_true.sum()))
    quartiles = np.quantile(np.concatenate([similarity[is_true], missing]), (0.25, 0.5, 0.75))
    print(
        f"{name:<36} {feature:<16} {' '.join(f'{value:.2f}' for value in quartiles):>16} "
        f"{at[0]:>6.2f} {at[1]:>5.2f} {at[2]:>5.2f} {f'{f1[best]:.3f} ({similarity[order][best]:.2f})':>13} "
        f"{average:>8.3f}",
        flush=True,
    )


def known_sets(sizes: list[int]) -> Iterator[tuple[str, list[str], set[tuple[int, int]]]]:
    """Planted near-duplicates, versions of a manual, and documents that replace others: name, texts, true pairs."""
    for size in sizes:
        found = articles(size)
        row_of = {name: row for row, name in enumerate(found)}
        lines = (real("near_duplicates") / f"articles_{size}.truth").read_text().splitlines()
        true = {(min(ends), max(ends)) for ends in ([row_of[name] for name in line.split()] for line in lines)}
        yield f"{size:,} articles ({len(true)})", list(found.values()), true
    pages = {text: path.split("/", 1)[1] for path, text in reversed(manual().items())}
    names = list(pages.values())
    same = {(a, b) for b in range(len(names)) for a in range(b) if names[a] == names[b]}
    yield f"{len(names)} pages of a manual ({len(same)})", list(pages), same
    if max(sizes) < 1000:
        return
    rfcs = pq.read_table(real("rfc.parquet"), columns=["number", "obsoletes", "text"]).to_pylist()
    row_of = {rfc["number"]: row for row, rfc in enumerate(rfcs)}
    replaced = {
        (min(row, row_of[number]), max(row, row_of[number]))
        for row, rfc in enumerate(rfcs)
        for number in (int(re.sub(r"\D", "", old) or -1) for old in rfc["obsoletes"] or ())
        if number in row_of
    }
    yield f"{len(rfcs):,} RFCs, obsoletes ({len(replaced)})", [rfc["text"] for rfc in rfcs], replaced


# ---- cost


def cost(arguments: argparse.Namespace) -> None:
    """Sizes, speed, the tail of the background, and the bands that it asks for at growing corpora."""
    print(f"rows x bands for recall {RECALL} at J .7 with at most {FALSE_CANDIDATES} false candidates a document;")
    print("bytes of a document: its bag, and 16 for each key at 10^7 and 10^9 documents")
    print(
        f"{'':<34} {'features':<20} {'docs/s':>8} {'tokens':>6} {'q99':>5} {'q99.9':>5} {'q99.99':>6} "
        f"{'10^6':>9} {'10^7':>9} {'10^8':>9} {'10^9':>9} {'bytes':>7} {'':>7}"
    )
    for corpus, name in command.readable(background_corpora(arguments.documents)):
        names = ("words", "word_pairs", "words_and_structure") if corpus.kind == "code" else ("words", "word_pairs")
        for feature in names:
            print_cost(corpus, name, feature, {**WORDS, **CODE}[feature])


def print_cost(corpus: Corpus, name: str, feature: str, count: Count) -> None:
    """One row."""
    counts = count(corpus)
    units, _ = frozen_units(counts)
    seconds = cpu_seconds(lambda: weighed(count(corpus), units))
    bags = weighed(counts, units)
    histogram = background_counts(rows_of(bags, np.flatnonzero(np.diff(bags.offsets))))
    shares = np.cumsum(histogram) / histogram.sum()
    tail = [np.searchsorted(shares, share) / 1000 for share in (0.99, 0.999, 0.9999)]
    histogram[RELATIVES:] = 0
    schemes = [cheapest(histogram, 10**power) for power in (6, 7, 8, 9)]
    shapes = [f"{rows} x {bands:,}" for rows, bands in schemes]
    tokens = np.diff(bags.offsets).mean()
    spent = [10 * tokens + 16 * schemes[place][1] for place in (1, 3)]
    print(
        f"{name:<34} {feature:<20} {len(corpus.texts) / seconds:>8,.0f} {tokens:>6.0f} {tail[0]:>5.2f} {tail[1]:>5.2f} "
        f"{tail[2]:>6.2f} {' '.join(f'{shown:>9}' for shown in shapes)} "
        f"{spent[0]:>7,.0f} {spent[1]:>7,.0f}",
        flush=True,
    )


def cheapest(histogram: Int64Array, documents: int) -> tuple[int, int]:
    """The fewest rows, and their bands, that leave few enough false candidates."""
    j = np.arange(len(histogram)) / (len(histogram) - 1)
    agree, pairs = j + (1 - j) / 256, histogram / histogram.sum() * documents
    for rows in range(2, 64):
        bands = ceil(log(1 - RECALL) / log(1 - (0.7 + 0.3 / 256) ** rows))
        if (pairs * (1 - (1 - agree**rows) ** bands)).sum() <= FALSE_CANDIDATES:
            return rows, bands
    raise ValueError("no number of rows is selective enough; the background is as alike as duplicates are")


def background_corpora(count: int) -> Iterator[tuple[Corpus, str]]:
    """RFCs in pieces, Python files, texts of eight languages: so many of the first, half as many of the second."""
    pieces = rfc_pieces(16 * count)[::16]
    yield Corpus("prose", None, pieces), f"{len(pieces):,} pieces of RFCs"
    files = python_files(2 * count)[::4]
    yield Corpus("code", "Python", files), f"{len(files):,} Python files"
    texts = []
    for code in ("zh", "ja", "ko", "th", "ru", "ar", "de", "en"):
        lines = sentences(code)[code]
        texts += [" ".join(lines[at : at + 6]) for at in range(0, len(lines), 6)][:count]
    yield Corpus("prose", None, texts), f"{len(texts):,} texts of 8 languages"


PARTS = {"edits": edits, "known": known, "cost": cost}


def main() -> None:
    """Run the parts asked for."""
    parser = command.parser(__doc__)
    parser.add_argument("--part", choices=PARTS, action="append", help="one part; all by default")
    parser.add_argument("--pairs", type=int, default=60, help="pairs of each kind of edit")
    parser.set_defaults(known=[1000, 2500], documents=5000)
    arguments = command.read(parser, pairs=3, known=[100], documents=300)
    command.run_parts(PARTS, arguments.part, arguments)


if __name__ == "__main__":
    main()
