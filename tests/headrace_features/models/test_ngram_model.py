"""N-gram models: smoothing by its definition, scores of an ARPA file, merged counts, a file known by its bytes."""

from __future__ import annotations

import math
import random
import re
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from headrace_features.models.ngram_kernel import hash_ngram
from headrace_features.models.ngram_model import NgramConfig, read_arpa, read_kenlm, read_ngram_model
from headrace_features.models.ngram_training import (
    count_ngrams,
    estimate,
    merge_counts,
    train,
    train_on_spark,
)
from spark_jobs.exceptions import ConfigError, InputError, SetupError
from spark_jobs.filters.scorer import HARD_TEXTS
from spark_jobs.lexing.word_characters import FIRST_SCRIPT, word_tables
from spark_jobs.text.hash_sample import smallest_hashes
from tests.tiers import sampled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Ngram = tuple[str, ...]


def _texts(count: int, seed: int) -> list[str]:
    """Texts of a few words that follow one another unevenly."""
    draw = random.Random(seed)
    words = [f"w{chr(97 + k)}" for k in range(12)]
    texts = []
    for _ in range(count):
        lines = []
        for _ in range(draw.randint(1, 3)):
            at, line = draw.randrange(12), []
            for _ in range(draw.randint(0, 9)):
                line.append(words[at])
                at = (at + draw.choice([1, 1, 1, 2, 5, draw.randrange(12)])) % 12
            lines.append(" ".join(line))
        texts.append("\n".join(lines))
    return texts


def _sentences(text: str) -> list[Ngram]:
    """Lines that are not blank, each word folded, by the definition."""
    classes, found = word_tables().classes, []
    for line in text.split("\n"):
        words: list[str] = []
        run = ""
        for character in line:
            lower = character.lower() if len(character.lower()) == 1 else character
            lower = "0" if lower in "0123456789" else lower
            inside = character == "_" or unicodedata.category(character)[0] in "LMN"
            if inside and classes[ord(character)] < FIRST_SCRIPT:
                run += lower
                continue
            words += [run] if run else []
            run = ""
            if not (character <= " " or character in "\x85\xa0\u3000\u2028\u2029"):
                words.append(lower)
        words += [run] if run else []
        if words:
            found.append(("<s>", *words, "</s>"))
    return found


class SlowModel:
    """Interpolated modified Kneser-Ney, word for word as the papers define it."""

    def __init__(self, texts: list[str], config: NgramConfig) -> None:
        self.order, least = config.order, config.min_counts
        self.counts: Counter[Ngram] = Counter()
        for sentence in (sentence for text in texts for sentence in _sentences(text)):
            for n in range(1, self.order + 1):
                self.counts.update(g for i in range(len(sentence)) if (g := sentence[i : i + n]) and len(g) == n)
        del self.counts["<s>",]
        before: defaultdict[Ngram, set[str]] = defaultdict(set)
        for ngram in self.counts:
            before[ngram[1:]].add(ngram[0])
        self.adjusted = {
            g: c if len(g) == self.order or g[0] == "<s>" else len(before[g]) for g, c in self.counts.items()
        }
        self.kept: set[Ngram] = set()
        for g in sorted(self.counts, key=len):
            frequent = self.counts[g] >= least[min(len(g), len(least)) - 1] or g == ("</s>",)
            whole = len(g) == 1 or ((g[:-1] in self.kept or g[:-1] == ("<s>",)) and g[1:] in self.kept)
            if frequent and whole:
                self.kept.add(g)
        self.discounts = {n: self._discounts(n) for n in range(1, self.order + 1)}
        self.behind: defaultdict[Ngram, list[Ngram]] = defaultdict(list)
        for g in self.counts:
            self.behind[g[:-1]].append(g)
        self.vocabulary = [g[0] for g in self.kept if len(g) == 1] + ["<unk>"]

    def _discounts(self, n: int) -> list[float]:
        t = Counter(a for g, a in self.adjusted.items() if len(g) == n)
        try:
            found = [k - (k + 1) * t[1] / (t[1] + 2 * t[2]) * t[k + 1] / t[k] for k in (1, 2, 3)]
        except ZeroDivisionError:
            return [0.5, 1.0, 1.5]
        return found if all(0 <= d <= k for k, d in enumerate(found, 1)) else [0.5, 1.0, 1.5]

    def _taken(self, g: Ngram) -> float:
        return self.discounts[len(g)][min(self.adjusted[g], 3) - 1]

    def probability(self, word: str, history: Ngram) -> float:
        """p(word | history), of which at most order - 1 words count."""
        history = history[max(0, len(history) - self.order + 1) :]
        behind = self.behind[history]
        shorter = self.probability(word, history[1:]) if history else 1 / len(self.vocabulary)
        if not behind or (history and history != ("<s>",) and history not in self.kept):
            return shorter
        total = sum(self.adjusted[g] for g in behind)
        freed = sum(self._taken(g) if g in self.kept else self.adjusted[g] for g in behind)
        g = (*history, word)
        own = self.adjusted[g] - self._taken(g) if g in self.kept else 0
        return own / total + freed / total * shorter

    def perplexity(self, text: str) -> float | None:
        """Of a text, None without a word."""
        logs = []
        for sentence in _sentences(text):
            known = [w if (w,) in self.kept or w == "<s>" else "<unk>" for w in sentence]
            logs += [math.log10(self.probability(known[i], tuple(known[:i]))) for i in range(1, len(known))]
        return 10 ** (-sum(logs) / len(logs)) if logs else None


CONFIGS = {
    "words": NgramConfig(order=1, min_counts=(1,)),
    "pairs": NgramConfig(order=2, min_counts=(1,)),
    "three": NgramConfig(order=3, min_counts=(1, 1, 2)),
    "five": NgramConfig(order=5, min_counts=(1,)),
    "pruned": NgramConfig(order=5, min_counts=(15, 1, 2, 3, 2)),
    "even": NgramConfig(order=4, min_counts=(1, 2)),
}


@sampled(2)
@pytest.mark.parametrize("name", CONFIGS)
def test_perplexities_are_those_of_the_definition(name: str) -> None:
    """Trained and tested on small texts, with words that were never seen; float32 of the file is the difference."""
    config = CONFIGS[name]
    texts = _texts(8 if name == "even" else 60, seed=1)
    slow, model = SlowModel(texts, config), train(pa.table({"content": texts}), config)
    tested = [
        *_texts(30, seed=2),
        *texts[:5],
        "wa zz wb",
        "zz zz",
        "",
        "\n \n",
        "wa\n\nwb",
        "Wa, wB! 東京",
        "wa</s> <s>",
    ]
    found = model.score(pa.array(tested))["perplexity"].to_pylist()
    for text, perplexity in zip(tested, found, strict=True):
        wanted = slow.perplexity(text)
        assert perplexity == (None if wanted is None else pytest.approx(wanted, rel=1e-5)), text


def test_probabilities_add_up_to_one() -> None:
    """Of all words, </s> and <unk>, behind every history, pruned or not: what pruning takes goes to shorter n-grams."""
    config = CONFIGS["pruned"]
    texts = _texts(60, seed=1)
    slow = SlowModel(texts, config)
    assert len(slow.kept) < len(slow.counts) / 2
    for history in [(), ("<s>",), *list(slow.kept)[:50]]:
        assert sum(slow.probability(word, history) for word in slow.vocabulary) == pytest.approx(1)


def test_words_are_counted_by_the_definition() -> None:
    """Also of hard texts; a letter of a script without spaces is a word."""
    model = train(pa.table({"content": ["a b"]}))
    texts = [text for text in HARD_TEXTS if len(text) < 50_000] + ["Fox 12, 東京\u2028x_1 ΣΊΣ İ ß", "ก็ดี"]
    counted = model.score(pa.array(texts))["word_count"].to_pylist()
    assert counted == [sum(len(sentence) - 2 for sentence in _sentences(text)) for text in texts]
    assert model.score(pa.array(["Fox 12, 東京"]))["word_count"].to_pylist() == [5]


def test_counts_merge_in_any_order_and_any_parts() -> None:
    """The model has the same bytes however texts are split and merged, and counts are those of a slow count."""
    texts, config = _texts(40, seed=3), NgramConfig(order=4)
    whole = merge_counts([count_ngrams(pa.array(texts), 4)])
    parts = [count_ngrams(pa.array(texts[at : at + 7]), 4) for at in range(0, 40, 7)]
    nested = merge_counts([merge_counts(parts[3:]), *reversed(parts[:3]), count_ngrams(pa.array([], pa.string()), 4)])
    assert whole.equals(nested)
    slow = SlowModel(texts, config)
    known = dict(zip(whole["ngram"].to_numpy().view(np.uint64).tolist(), whole["ngram_count"].to_pylist(), strict=True))
    assert known == {hash_ngram(list(g)): count for g, count in slow.counts.items()}
    shuffled = random.Random(0).sample(texts, len(texts))
    assert estimate(whole, config).to_bytes() == train(pa.table({"content": shuffled}), config).to_bytes()


@pytest.mark.nightly
def test_spark_makes_the_same_model(spark: SparkSession) -> None:
    """To the byte, of a sample that is the same whatever the partitions."""
    rows = [(f"d{k}", text) for k, text in enumerate(_texts(60, seed=5))]
    frame = spark.createDataFrame(rows, "doc_id string, content string").selectExpr(
        "xxhash64(doc_id) AS hash", "content"
    )
    frames = [frame.repartition(n) for n in (1, 3)]
    samples = [sorted(row["content"] for row in smallest_hashes(one, 600).collect()) for one in frames]
    assert samples[0] == samples[1]
    assert 600 <= sum(len(text.encode()) for text in samples[0]) < 800
    made = train_on_spark(smallest_hashes(frames[1], 600), NgramConfig(order=3))
    assert made.to_bytes() == train(pa.table({"content": samples[0]}), NgramConfig(order=3)).to_bytes()
    assert len(smallest_hashes(frames[0], 10**9).collect()) == 60


def test_no_more_ngrams_are_kept_than_allowed() -> None:
    """Thresholds of all but single words rise until the rest fits."""
    table = pa.table({"content": _texts(60, seed=1)})
    sizes = [len(train(table, NgramConfig(max_ngrams=most)).hashes) for most in (10_000, 300, 100)]
    assert sizes[0] > 300 >= sizes[1] - 2 > 100 >= sizes[2] - 2 >= 12


def _arpa(order: int, closed: bool) -> tuple[str, dict[Ngram, tuple[float, float]]]:
    """A random model as a file, and by n-gram; not closed, some n-grams have no shorter one behind their first word."""
    draw = random.Random(order)
    words = ["<unk>", "<s>", "</s>", "a", "B", "c,", "d\u00e9", "東京"]
    known: dict[Ngram, tuple[float, float]] = {}
    for n in range(1, order + 1):
        for g in product(words, repeat=n):
            middle = g[1:-1] if n > 1 else ()
            possible = "<s>" not in g[1:] and "</s>" not in g[:-1] and "<s>" not in middle and "<unk>" not in g[1:]
            whole = n == 1 or (g[:-1] in known and (g[1:] in known or not closed))
            if possible and whole and (n == 1 or draw.random() < 0.4):
                last = n == order or g[-1] == "</s>"
                known[g] = (round(-draw.random() * 3 - 0.01, 6), 0.0 if last else round(-draw.random(), 6))
    lines = ["made by a test", "", "\\data\\"]
    lines += [f"ngram {n}={sum(len(g) == n for g in known)}" for n in range(1, order + 1)]
    for n in range(1, order + 1):
        lines += ["", f"\\{n}-grams:"]
        for g, (probability, backoff) in known.items():
            if len(g) == n:
                lines.append(f"{probability}\t{' '.join(g)}" + (f"\t{backoff}" if n < order else ""))
    return "\n".join([*lines, "", "\\end\\", ""]), known


def _backed_off(known: dict[Ngram, tuple[float, float]], word: str, history: Ngram) -> float:
    if (*history, word) in known:
        return known[*history, word][0]
    return (known[history][1] if history in known else 0.0) + _backed_off(known, word, history[1:])


LINES = ["a", "a B c, d\u00e9 東京", "B a B a zzz a B", "zzz", "  a\tB  ", "c, c, c, c, a a a", "東京 東京 a B a"]


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_scores_of_an_arpa_file_are_those_of_the_format(order: int, closed: bool) -> None:
    """The longest n-gram that is known, and the back-off weights of the histories that are longer."""
    file, known = _arpa(order, closed)
    model = read_arpa(file.encode(), "made.arpa")
    found = model.score(pa.array([*LINES, "\n".join(LINES)]))
    sums = []
    for line in LINES:
        words = ["<s>", *(word if (word,) in known else "<unk>" for word in line.split()), "</s>"]
        sums.append(
            sum(_backed_off(known, words[i], tuple(words[max(0, i - order + 1) : i])) for i in range(1, len(words)))
        )
    counts = [len(line.split()) for line in LINES]
    wanted = [10 ** (-total / (count + 1)) for total, count in zip(sums, counts, strict=True)]
    wanted.append(10 ** (-sum(sums) / (sum(counts) + len(LINES))))
    assert found["perplexity"].to_pylist() == pytest.approx(wanted, rel=1e-6)
    assert found["word_count"].to_pylist() == [*counts, sum(counts)]


SPECIAL_LINES = ["a </s> B", "<s> a B", "a <unk> <s> B a", "</s>", "a B </s>"]


@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_special_word_in_a_text_is_a_word_that_no_model_knows(order: int) -> None:
    """`</s>` in a text is no end of its line, to an ARPA file's words and to counts of texts."""
    model = read_arpa(_arpa(order, closed=True)[0].encode(), "made.arpa")
    unheard = [re.sub(r"</?s>|<unk>", "unheard", line) for line in SPECIAL_LINES]
    assert model.score(pa.array(SPECIAL_LINES)) == model.score(pa.array(unheard))


@pytest.mark.parametrize("order", [2, 3, 4])
def test_scores_are_those_of_kenlm(order: int, tmp_path: Path) -> None:
    """Of the same ARPA file, where the package is installed."""
    kenlm = pytest.importorskip("kenlm", reason="kenlm is a peer, installed by hand")
    file, _ = _arpa(order, closed=True)
    path = tmp_path / "made.arpa"
    path.write_text(file[file.index("\\data") :], "utf-8")  # KenLM takes no line before it
    theirs = kenlm.Model(str(path))
    found = read_arpa(file.encode(), "made.arpa").score(pa.array(LINES))["perplexity"].to_pylist()
    assert found == pytest.approx([theirs.perplexity(line) for line in LINES], rel=1e-5)
    texts = pa.array(["\n".join(LINES), " \n", *LINES, *SPECIAL_LINES])
    mine, others = (model.score(texts) for model in (read_arpa(file.encode(), "made.arpa"), read_kenlm(str(path))))
    assert mine["word_count"] == others["word_count"]
    assert mine["perplexity"].to_pylist()[1] is others["perplexity"].to_pylist()[1] is None
    assert mine["perplexity"].drop_null().to_pylist() == pytest.approx(others["perplexity"].drop_null().to_pylist())
    path.write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"made\.arpa: kenlm cannot read it"):
        read_kenlm(str(path))


def test_without_kenlm_its_files_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """What to install, or to write instead."""
    monkeypatch.setitem(sys.modules, "kenlm", None)
    with pytest.raises(SetupError, match=r"^wiki\.bin: needs the package kenlm"):
        read_kenlm("wiki.bin")


def test_a_file_is_known_by_its_bytes() -> None:
    """Written and read, a model is itself; its hash ends the file."""
    model = train(pa.table({"content": _texts(20, seed=4)}), NgramConfig(order=3))
    data = model.to_bytes()
    again = read_ngram_model(data, "m")
    assert again.to_bytes() == data
    assert again.sha256 == data[-32:].hex() == model.sha256
    assert again.score(pa.array(LINES)) == model.score(pa.array(LINES))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"\\data\\", "is no file of 'headrace n-grams'"),
        (lambda data: data[:-1], "is damaged"),
        (lambda data: data[:20], "is damaged"),
        (
            lambda data: data.replace(b"n-grams\n\x01", b"n-grams\n\x02"),
            "has version 2, this headrace reads version 1",
        ),
        (lambda data: data.replace(b'"order": 5', b'"order": 4'), "is damaged"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(damage: Callable[[bytes], bytes], message: str) -> None:
    """What it is, and what to do."""
    data = train(pa.table({"content": ["a b"]})).to_bytes()
    with pytest.raises(InputError, match=f"^m: {message}") as error:
        read_ngram_model(damage(data), "m")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("\\data\\", "\\date\\"), r"has no line \\data\\"),
        (("ngram 1=8", "ngram 1=9"), "copy it again"),
        (("ngram 1=8", "ngram one=8"), "line 4 is 'ngram one=8'"),
        (("\t<s>\t", "\t<s> a\t"), "which is no line of an ARPA file"),
        (("\t<s>\t", "\t<s>\tx"), "which is no line of an ARPA file"),
        (("\\2-grams:", "\\6-grams:"), "which is no line of an ARPA file"),
    ],
)
def test_an_arpa_file_that_cannot_be_read_is_one_line(change: tuple[str, str], message: str) -> None:
    """The line is named."""
    file = _arpa(2, closed=True)[0].replace(*change)
    with pytest.raises(InputError, match=f"^m: .*{message}"):
        read_arpa(file.encode(), "m")


def test_what_cannot_be_trained_on_is_one_line() -> None:
    """A misspelt column, texts without words, thresholds that are none."""
    with pytest.raises(ConfigError, match="no column 'content'; did you mean 'contents'"):
        train(pa.table({"contents": ["a"]}))
    with pytest.raises(InputError, match="have no word"):
        train(pa.table({"content": ["", " \n"]}))
    with pytest.raises(ValueError, match="each at least 1"):
        NgramConfig(min_counts=(0,))
