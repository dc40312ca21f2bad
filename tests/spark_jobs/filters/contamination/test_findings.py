"""Findings: where documents hold items, beside a plain search that knows nothing of seeds and hashes."""

from __future__ import annotations

import itertools
import math
import random
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.exceptions import InputError
from spark_jobs.filters.contamination.eval_set import EvalSet, EvalText, item_id, read_eval_set
from spark_jobs.filters.contamination.findings import FINDINGS_TYPE, score
from spark_jobs.filters.contamination.folded_document import Settings
from spark_jobs.filters.contamination.folding import fold_tables, folded_words
from spark_jobs.filters.contamination.index import ContaminationConfig, IndexContents, index_of
from spark_jobs.filters.contamination.kernel import MOST_ROWS, find
from spark_jobs.text.text_columns import utf8_arrays
from tests.tiers import sampled

QUESTION = (
    "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. How many clips did "
    "Natalia sell altogether in April and May, if nobody gave one back to her?"
)
CHINESE = "小明昨天在图书馆借了三本书，今天又借了五本书，请问他现在一共借了多少本书还没有归还给图书馆？"


def eval_set(name: str, *texts: str) -> EvalSet:
    """An eval set with these texts."""
    return EvalSet(name, tuple(EvalText(item_id(text), "question", text) for text in texts))


def findings(texts: list[str], contents: IndexContents) -> list[list[dict[str, Any]]]:
    """Findings of each text."""
    column = score(pa.array(texts, type=pa.string()), contents)["findings"]
    assert column.type == FINDINGS_TYPE
    return column.to_pylist()  # type: ignore[no-any-return]


class Spelled(NamedTuple):
    """A text as the plain search reads it.

    Letters as bytes; of each the byte of the text it came from and the one after that character; where words begin.
    """

    letters: bytes
    starts: list[int]
    ends: list[int]
    words: list[int]


def spelled(text: str) -> Spelled:
    """Fold a text character by character."""
    letters, starts, ends, words, place, separated = b"", list[int](), list[int](), list[int](), 0, True
    for character in text:
        size = len(character.encode())
        known = folded_words(character)  # of this test's characters, one word or none
        for part in (f" {known[0]} " if ord(character) > 0x2E00 else known[0]) if known else " ":
            if part == " ":
                separated = True
                continue
            if separated:
                words.append(len(letters))
            separated = False
            starts += [place] * len(part.encode())
            ends += [place + size] * len(part.encode())
            letters += part.encode()
        place += size
    return Spelled(letters, starts, ends, [*words, len(letters)])


def occurrences(document: Spelled, item: Spelled, first: int, last: int) -> list[int]:
    """Letters of a document at which words `first` to `last` of an item stand.

    At either end stands an end of a word, or the item goes on.
    """
    run, found = item.letters[first:last], list[int]()
    at = document.letters.find(run)
    while at >= 0:
        before, after = document.letters[:at], document.letters[at + len(run) :]
        begins = at in document.words or (first > 0 and before[-1:] == item.letters[first - 1 : first])
        goes_on = last < len(item.letters) and after[:1] == item.letters[last : last + 1]
        if begins and (at + len(run) in document.words or goes_on):
            found.append(at)
        at = document.letters.find(run, at + 1)
    return found


@pytest.mark.nightly
def test_exact_and_ngram_findings_are_those_of_a_plain_search() -> None:
    """On texts that repeat themselves as much as can be, nothing is missed and nothing made up."""
    draw = random.Random(3)
    vocabulary = ["ab", "abc", "a", "cab", "bb", "12", "東", "京", "bca", "aa"]
    config = ContaminationConfig(ngram_words=7, min_words=7, min_near_words=10**6)
    kinds = Counter[str]()
    for _ in range(60):
        texts = [" ".join(draw.choices(vocabulary, k=draw.randint(5, 40))) for _ in range(6)]
        contents = index_of([eval_set("e", *dict.fromkeys(texts))], config)
        documents = [mixed(texts, vocabulary, draw) for _ in range(12)]
        for document, found in zip(documents, findings(documents, contents), strict=True):
            kinds.update(one["kind"] for one in found)
            for text in texts:
                own = [one for one in found if one["item"] == item_id(text)]
                compare(document, text, own, contents)
    assert kinds["exact"] > 100 < kinds["ngram"]


def test_repeated_lines_are_found_as_by_a_plain_search() -> None:
    """An item that says a line a few times, in documents that say it too: every place of it, up to dozens."""
    config = ContaminationConfig(ngram_words=7, min_words=7, min_near_words=10**6)
    line = "the quick brown fox jumps over a lazy dog "
    texts = [line * 4, line * 3 + "and sleeps", "now " + line * 5 + "then " + line * 2]
    contents = index_of([eval_set("e", *texts)], config)
    documents = [line * 9, f"so {texts[1]} {texts[2]} {texts[0]}", (line * 2 + "x ") * 6 + texts[2]]
    for document, found in zip(documents, findings(documents, contents), strict=True):
        assert found
        for text in texts:
            compare(document, text, [one for one in found if one["item"] == item_id(text)], contents)


@sampled()
@pytest.mark.parametrize("unit", ["the quick brown fox jumps over a lazy dog and sleeps ", "ab ", "a "])
@pytest.mark.parametrize("tail", ["", "and what nobody else says"])
def test_repetition_without_end_costs_no_more_than_its_length(unit: str, tail: str) -> None:
    """Rows of a line that item and document repeat grow with the document's letters, not with pairs of lines."""
    item, document = unit * 60 + tail, unit * 5000
    contents = index_of([eval_set("e", item)])
    assert contents.arrays is not None
    data, offsets = utf8_arrays(pa.array([document]))
    rows = find(data, offsets, fold_tables(), contents.arrays, Settings(1 << 60, 0, 1.0))
    assert len(rows) <= MOST_ROWS + len(document) / MOST_ROWS + 2 * len(document) / len(item)
    found = findings([document], contents)[0]
    assert found[0]["start"] == 0
    assert found[-1]["end"] > len(document) - len(item)
    assert ("exact" in {one["kind"] for one in found}) == (not tail)
    assert "exact" in {one["kind"] for one in findings([document + item], contents)[0]}


def test_a_phrase_between_other_words_costs_no_more_than_its_length() -> None:
    """An item with a phrase in 60 places, in a document with it in a thousand: not 60 rows for each of these."""
    phrase = "the quick brown fox jumps over a lazy dog and he sleeps very well"
    numbered = [f"{phrase} {'bcdfghjklm'[n % 10] * 3}{'npqrstvwxz'[n // 10 % 10] * 3}" for n in range(1000)]
    contents = index_of([eval_set("e", " ".join(numbered[:60]))])
    assert contents.arrays is not None
    document = " unlike anything that stands there ".join(numbered)
    data, offsets = utf8_arrays(pa.array([document]))
    rows = find(data, offsets, fold_tables(), contents.arrays, Settings(1 << 60, 0, 1.0))
    assert len(rows) <= MOST_ROWS + len(document) / MOST_ROWS + 1000
    (found,) = (one for one in findings([document], contents)[0] if one["kind"] == "ngram")
    assert found["start"] == 0
    assert found["end"] > len(document) - 100


def mixed(texts: list[str], vocabulary: list[str], draw: random.Random) -> str:
    """A document of parts of items and other words, with anything between them."""
    words = list[str]()
    for _ in range(draw.randint(0, 5)):
        part = draw.choice(texts).split()
        if draw.random() < 0.6:
            start = draw.randrange(len(part))
            part = part[start : start + draw.randint(1, 30)]
        words += [*draw.choices(vocabulary, k=draw.randint(0, 6)), *part]
    return "".join(word.upper() + draw.choice([" ", "  ", "-\n", ", ", "", "\\n"]) for word in words)


def compare(document: str, text: str, found: list[dict[str, Any]], contents: IndexContents) -> None:
    """The findings of an item in a document against the plain search."""
    index = contents.arrays
    assert index is not None
    there, item = spelled(document.replace("\\n", "  ")), spelled(text)
    bounds = index.word_starts[index.text_words]
    texts = [bytes(index.letters[a:b]) for a, b in itertools.pairwise(bounds)]
    base = index.text_words[texts.index(item.letters)]
    if item_id(text) not in contents.holders.field("item").to_pylist():
        assert found == []
        return
    whole = {
        (there.starts[at], there.ends[at + len(item.letters) - 1])
        for at in occurrences(there, item, 0, len(item.letters))
    }
    assert {(one["start"], one["end"]) for one in found if one["kind"] == "exact"} == whole
    grams = [
        (item.words[word], item.words[index.gram_ends[base + word] - base], word)
        for word in range(len(item.words) - 1)
        if index.counting[base + word + 1] > index.counting[base + word]
    ]
    held = {word: occurrences(there, item, first, last) for first, last, word in grams}
    spans = [(there.starts[at], there.ends[at + last - first - 1]) for first, last, word in grams for at in held[word]]
    for start, end in spans:
        assert any(one["start"] <= start and end <= one["end"] for one in found)
    for one in found:
        inside = [span for span in spans if one["start"] <= span[0] and span[1] <= one["end"]]
        assert one["kind"] == "exact" or inside
    if [one["kind"] for one in found] == ["ngram"]:
        assert found[0]["share"] == pytest.approx(sum(map(bool, held.values())) / len(grams))


def test_near_findings_have_the_similarity_that_they_tell() -> None:
    """Every near copy, looked at again word by word, is one; and copies with a few other words are found."""
    draw = random.Random(5)
    vocabulary = [
        f"{a}{b}{c}" for a in ("ka", "to", "mi", "ru") for b in ("len", "sor", "pat") for c in ("a", "o", "7")
    ]
    texts = [" ".join(draw.choices([*vocabulary, "5", "77"], k=draw.randint(26, 60))) for _ in range(40)]
    contents = index_of([eval_set("e", *texts)])
    documents = []
    for text in texts:
        copy = [draw.choice(vocabulary) if draw.random() < 0.12 else word for word in text.split()]
        around = draw.choices(["other", "words", "900", *vocabulary], k=400)
        documents.append(" ".join([*around[:200], *copy, *around[200:]]))
    by_id = {item_id(text): text for text in texts}
    hits = 0
    for text, document, found in zip(texts, documents, findings(documents, contents), strict=True):
        hits += any(one["item"] == item_id(text) for one in found)
        for one in found:
            if one["kind"] == "near":
                span = document.encode()[one["start"] : one["end"]].decode()
                assert one["share"] == pytest.approx(similarity(by_id[one["item"]], span, texts))
                assert one["share"] >= contents.config.min_similarity
    assert hits >= 38


TYPOS = {
    "swapped": lambda word: word[:1] + word[2] + word[1] + word[3:],
    "left out": lambda word: word[:2] + word[3:],
    "added": lambda word: f"{word[:2]}q{word[2:]}",
    "other": lambda word: f"{word[:2]}q{word[3:]}",
    "two": lambda word: f"q{word[:2]}q{word[3:]}",
}


@pytest.mark.parametrize("typo", TYPOS)
def test_words_with_a_typo_are_the_same(typo: str) -> None:
    """A fourth of the words mistyped in one place are a near copy, in two places they are none."""
    draw = random.Random(11)
    letters = "bcdfghjklmnprstvw"
    vocabulary = ["".join(draw.choices(letters, k=9)) for _ in range(400)]
    texts = [" ".join(draw.choices(vocabulary, k=40)) for _ in range(30)]
    changed = [
        " ".join(TYPOS[typo](word) if number % 4 == 0 else word for number, word in enumerate(text.split()))
        for text in texts
    ]
    found = findings(changed, index_of([eval_set("e", *texts)], ContaminationConfig(min_similarity=0.7)))
    held = [
        any(one["kind"] == "near" and one["item"] == item_id(text) for one in some)
        for text, some in zip(texts, found, strict=True)
    ]
    assert all(held) if typo != "two" else not any(held)


def similarity(one: str, other: str, texts: list[str]) -> float:
    """Weighted Jaccard similarity of two texts' words, weighed by their inverse document frequency in all items."""
    documents = Counter(word for text in texts for word in set(folded_words(text)))

    def weight(word: str) -> int:
        return 1 if word.isdigit() else max(round(100 * math.log((len(texts) + 1) / documents.get(word, 1))), 1)

    first, second = Counter(folded_words(one)), Counter(folded_words(other))
    shared = sum(weight(word) * count for word, count in (first & second).items())
    return shared / sum(weight(word) * count for word, count in (first | second).items())


@pytest.mark.parametrize(
    "change",
    [
        str.upper,
        lambda text: textwrap.fill(text, 30),
        lambda text: text.replace("friends", "fri-\nends"),
        lambda text: "> " + textwrap.fill(text, 50).replace("\n", "\n> "),
        lambda text: text.replace(",", "").replace("?", ""),
        lambda text: text.replace(" ", "\\n"),
        lambda text: text.replace(" ", "\u3000\r\n"),
        lambda text: text.translate({c: c + 0xFEE0 for c in range(0x21, 0x7F)}),
    ],
)
def test_an_item_is_found_exactly_however_it_is_set(change: Any) -> None:
    """Case, spacing, punctuation, line breaks and width do not matter; the span is that of the text as it stands."""
    contents = index_of([eval_set("e", QUESTION)])
    changed = change(QUESTION)
    document = f"Ça va? {'x ' * 5000}{changed} {'y ' * 5000}"
    (found,) = findings([document], contents)[0]
    assert (found["kind"], found["share"], found["eval_set"]) == ("exact", 1.0, "e")
    stripped = changed.removeprefix("> ").rstrip("?\uff1f")
    assert document.encode()[found["start"] : found["end"]].decode() == stripped


def test_a_part_tells_its_share_and_a_copy_with_other_numbers_is_near() -> None:
    """Half an item is a run of n-grams; a changed number breaks the runs, not the likeness."""
    contents = index_of([eval_set("e", QUESTION)])
    words = QUESTION.split()
    part, numbers = findings([" ".join(words[:20]), QUESTION.replace("48", "52")], contents)
    grams = len(words) - 12
    assert [(one["kind"], one["share"]) for one in part] == [("ngram", pytest.approx(8 / grams))]
    assert {one["kind"] for one in numbers} == {"ngram", "near"}
    assert max(one["share"] for one in numbers) > 0.95


def test_a_word_at_the_end_must_be_a_word_of_the_document() -> None:
    """`18` is not in `180`: that item is not there whole."""
    text = f"{QUESTION} The answer is 18"
    contents = index_of([eval_set("e", text)], ContaminationConfig(min_near_words=1000))
    whole, other = findings([f"{text}.", f"{text}0"], contents)
    assert [one["kind"] for one in whole] == ["exact"]
    assert [one["kind"] for one in other] == ["ngram"]


@pytest.mark.parametrize("text", [CHINESE, "ผู้หญิงคนหนึ่งซื้อแอปเปิ้ลสิบสองผลและกล้วยห้าผลที่ตลาดเมื่อวานนี้กี่ผลรวมกันทั้งหมด"])
def test_scripts_without_spaces_are_found(text: str) -> None:
    """Their letters are words; a run must be as long as 13 words are there, not 13 letters."""
    contents = index_of([eval_set("e", text)])
    whole, short = findings([f"前{text}後", text[:13]], contents)
    assert [one["kind"] for one in whole] == ["exact"]
    assert short == []


def test_short_items_and_rows_of_numbers_are_not_searched_for() -> None:
    """Nobody is accused of `yes`, of a common question, or of the first primes; the index says how many it leaves."""
    primes = "2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97"
    contents = index_of([eval_set("e", "yes", "Who wrote Hamlet?", primes)])
    assert contents.short_count == 3
    assert findings([primes, "yes", ""], contents) == [[], [], []]
    assert str(contents).startswith("0 items of 1 eval sets")


def test_an_item_that_repeats_one_word_is_counted_not_searched() -> None:
    """An item whose every seed is in too many places is told, and costs no time."""
    contents = index_of([eval_set("e", "word " * 500, QUESTION)])
    assert (contents.short_count, contents.common_count) == (0, 1)
    assert findings(["word " * 10_000], contents) == [[]]


def test_what_many_items_share_is_no_finding_but_each_whole_item_is() -> None:
    """The stem of a multiple-choice question does not count, unless the whole item stands there."""
    stem = "Which of the following statements about the history of the early Roman republic is most likely to be"
    ends = ["true", "false", "wrong", "made up", "sure", "known", "old", "new", "told", "lost", "read", "won"]
    contents = index_of([eval_set("e", *(f"{stem} {end}" for end in ends))], ContaminationConfig(min_near_words=100))
    none, one = findings([f"{stem} disputed", f"{stem} true"], contents)
    assert none == []
    assert [(found["kind"], found["item"]) for found in one] == [("exact", item_id(f"{stem} true"))]
    few = index_of([eval_set("e", *(f"{stem} {end}" for end in ends[:4]))], ContaminationConfig(min_near_words=100))
    assert [found["kind"] for found in findings([f"{stem} disputed"], few)[0]] == ["ngram"] * 4


def test_sets_that_share_an_item_each_have_a_finding() -> None:
    """One text in two sets is searched for once and told for both."""
    contents = index_of([eval_set("b", QUESTION), eval_set("a", QUESTION.upper(), CHINESE)])
    (found,) = findings([QUESTION], contents)
    assert [(one["eval_set"], one["item"]) for one in found] == [(name, item_id(QUESTION)) for name in "ab"]
    with pytest.raises(InputError, match="a is there twice"):
        index_of([eval_set("a", QUESTION), eval_set("a", CHINESE)])


def test_findings_depend_on_the_text_alone() -> None:
    """The order of sets, the batch and the place in it change nothing."""
    draw = random.Random(2)
    sets = [eval_set("a", QUESTION, CHINESE), eval_set("b", QUESTION[:150])]
    texts = ["", QUESTION, "\0", CHINESE, f"é {QUESTION[:120]} ü", "x" * 5000, QUESTION.replace("clips", "pens")]
    expected = findings(texts, index_of(sets))
    assert [bool(found) for found in expected] == [False, True, False, True, True, False, True]
    contents = index_of(sets[::-1])
    order = draw.sample(range(len(texts)), len(texts))
    assert findings([texts[k] for k in order], contents) == [expected[k] for k in order]
    column = pa.array(["before", *texts, "after"], type=pa.large_string()).slice(1, len(texts))
    assert score(column, contents)["findings"].to_pylist() == expected
    assert findings([], contents) == []


def test_large_and_odd_documents_are_searched() -> None:
    """One long line, spaces without end, nothing but marks: measured, never an error."""
    contents = index_of([eval_set("e", QUESTION, CHINESE)])
    long = "lorem ipsum " * 400_000
    texts = [long + QUESTION, " " * 3_000_000 + QUESTION, "\u0301" * 5000, "ﷺ" * 5000 + CHINESE, "\\", "\\n" * 3000]
    found = findings(texts, contents)
    assert [[one["kind"] for one in rows] for rows in found] == [["exact"], ["exact"], [], ["exact"], [], []]
    assert found[1][0]["start"] == 3_000_000
    assert findings([f"{QUESTION[:60]} more " * 20_000], contents) == [[]]


def test_no_eval_set_finds_nothing() -> None:
    """An empty registry is an index too."""
    contents = index_of([])
    assert findings([QUESTION], contents) == [[]]


@pytest.mark.nightly
def test_real_items_are_found_in_real_text_and_nothing_else(real_data: Path) -> None:
    """HumanEval in RFCs: every planted item, in lower case on one line, and no finding without one."""
    evals = read_eval_set("h", real_data / "evals" / "HumanEval.jsonl.gz", ["prompt", "canonical_solution", "test"])
    contents = index_of([evals])
    hosts = pq.read_table(real_data / "rfc.parquet", columns=["text"]).column("text").slice(0, 60).to_pylist()
    assert findings(hosts, contents) == [[] for _ in hosts]
    searched = set(contents.holders.field("item").to_pylist())
    items = [item for item in evals.items if item.item_id in searched][::7]
    planted = [
        host[:2000] + "\n" + " ".join(item.text.lower().split()) + "\n" + host[2000:4000]
        for host, item in zip(hosts * 2, items, strict=False)
    ]
    for item, found in zip(items, findings(planted, contents), strict=True):
        assert "exact" in {one["kind"] for one in found if one["item"] == item.item_id}


def test_index_is_as_large_as_it_says() -> None:
    """The memory that the index takes is that of its arrays."""
    contents = index_of([eval_set("e", QUESTION)])
    assert contents.arrays is not None
    assert contents.byte_count == sum(np.asarray(array).nbytes for array in contents.arrays)
