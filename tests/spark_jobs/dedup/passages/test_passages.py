"""All passages, beside every window of 50 words in a dictionary; and what is cut of texts."""

from __future__ import annotations

import functools
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest

from spark_jobs.dedup.passages.anchors import anchors
from spark_jobs.dedup.passages.passages import PassagesConfig, passages
from spark_jobs.dedup.passages.trimmed import TrimmedConfig, cuts_in, trimmed
from spark_jobs.dedup.passages.windows import words_in
from spark_jobs.lake.engine.arrangement import release
from spark_jobs.selection.cuts import with_cuts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TEXTS = "dataset string, shard int, doc_id string, kind string, language string, content string"
_NONE = "doc_id string, word_start long, words long"


class Text(NamedTuple):
    """A document of the tests; its name is its doc_id."""

    content: str
    kind: str = "prose"
    language: str | None = None
    increment: int = 0


def prose(draw: random.Random, words: int) -> str:
    """Sentences of made-up words, a paragraph of a few lines."""
    named = [f"{draw.choice('bcdfghklmnprst')}{draw.choice('aeiou')}{draw.randrange(3000)}" for _ in range(words)]
    lines = [" ".join(named[at : at + 9]) for at in range(0, words, 9)]
    return "\n".join(line.capitalize() + "." for line in lines)


def chinese(draw: random.Random, characters: int) -> str:
    """Sentences of ten characters and a stop."""
    drawn = [chr(0x4E00 + draw.randrange(3000)) for _ in range(characters)]
    return "".join("".join(drawn[at : at + 10]) + "。" for at in range(0, characters, 10))


def planted() -> dict[str, Text]:
    """Passages in prose, code, Chinese; runs of one token and of a short period; a chain; copies in one document."""
    draw = random.Random(5)
    shared, other = prose(draw, 70), prose(draw, 60)
    licence = "\n".join(f"# {line}" for line in prose(draw, 90).split("\n"))
    han = chinese(draw, 60)
    texts = {
        "a": Text(f"{prose(draw, 80)}\n{shared}\n{prose(draw, 30)}\n{other}\n"),
        "b": Text(f"{prose(draw, 40)}\n{shared}\n{prose(draw, 90)}\n"),
        "c": Text(f"{other}\n{prose(draw, 20)}\n{shared.upper()}"),
        "twice": Text(f"{prose(draw, 20)}\n{shared}\n{prose(draw, 20)}\n{shared}\n"),
        "own": Text(2 * (prose(random.Random(8), 70) + "\n")),
        "code1": Text(f"{licence}\nimport os\n\nvalue = {draw.random()}\n", "code", "Python"),
        "code2": Text(f"{licence}\nfrom os import path\n\nother = path.join('a', 'b')\n", "code", "Python"),
        "notice": Text(f"{prose(draw, 10)}\n{licence.replace('# ', '')}\n"),
        "han1": Text(f"{chinese(draw, 40)}\n{han}{chinese(draw, 30)}\n"),
        "han2": Text(f"{chinese(draw, 17)}{han}{chinese(draw, 55)}\n"),
        "han49": Text(f"{chinese(draw, 20)}{han[:50]}{chinese(draw, 20)}\n"),
        "zeros1": Text("0, " * 400, "data"),
        "zeros2": Text("x " + "0, " * 120 + "y " + "0, " * 49 + "z", "data"),
        "period1": Text("1 2 3 4 5 6 7 " * 30, "data"),
        "period2": Text("8 " + "4 5 6 7 1 2 3 " * 9, "data"),
        "short": Text(" ".join(shared.split()[:49])),
        "empty": Text(""),
    }
    return texts


def frames(spark: SparkSession, texts: Mapping[str, Text], increment: int) -> dict[str, DataFrame]:
    """The inputs of `anchors` for an increment: the place of a document is the rank of its name."""
    new = {name: text for name, text in texts.items() if text.increment == increment}
    rows = [("notes", 0, name, text.kind, text.language, text.content) for name, text in new.items()]
    read = spark.createDataFrame(rows, TEXTS)
    places = [("notes", 0, name, place) for place, name in enumerate(sorted(texts)) if name in new]
    members = spark.createDataFrame(places, "dataset string, shard int, doc_id string, place long")
    return {"survivors": members.drop("place"), "members": members, "texts": read}


def found_in(
    spark: SparkSession,
    texts: Mapping[str, Text],
    known: Iterable[dict[str, Any]] = (),
    cut: bool = False,
    left: tuple[str, ...] = (),
) -> list[dict[str, Any]]:
    """Rows of `passages`, increment after increment; some are known, and all but the newest increment of these."""
    rows = list(known)
    increments = sorted({text.increment for text in texts.values()})
    of_each = [frames(spark, texts, increment) for increment in increments]
    made = [pa.table(anchors(**own).toArrow()) for own in of_each]
    for increment in increments[-1:] if rows else increments:
        numbered = [
            one.append_column("increment", pa.array([number] * len(one), pa.int32()))
            for number, one in zip(increments, made, strict=True)
            if number <= increment
        ]
        read = [own["texts"] for number, own in zip(increments, of_each, strict=True) if number <= increment]
        before = [(row["doc_id"], row["word_start"], row["words"]) for row in rows]
        output = passages(
            spark.createDataFrame(pa.concat_tables(numbered)),
            functools.reduce(lambda one, other: one.unionByName(other), read),
            spark.createDataFrame(before, _NONE),
            increment,
            PassagesConfig(cut_from=50 if cut else None),
            spark.createDataFrame([(name, True) for name in left], "doc_id string, leaves boolean"),
        )
        rows += [{**row.asDict(), "increment": increment} for row in output.frames["passages"].collect()]
        for frame in output.persisted:
            release(frame)
    return rows


@functools.cache
def read_words(text: Text) -> tuple[list[str], list[tuple[int, int]]]:
    """The words of a text as they are written, in prose and code in small letters, and the characters that they are."""
    language = pa.array([text.language], pa.string())
    batch = pa.record_batch({"content": [text.content], "kind": [text.kind], "language": language})
    words = words_in(batch)
    characters = list(accumulate(((byte & 0xC0) != 0x80 for byte in text.content.encode()), initial=0))
    spans = [(characters[start], characters[end]) for start, end in zip(words.starts, words.ends, strict=True)]
    folded = text.kind in ("prose", "code")
    return [text.content[start:end].lower() if folded else text.content[start:end] for start, end in spans], spans


def copied_windows(texts: Mapping[str, Text]) -> set[tuple[str, int]]:
    """Document and number of each window of 50 words that a better document has: all windows in a dictionary."""
    holders: dict[tuple[str, ...], list[tuple[int, str, int]]] = defaultdict(list)
    for name, text in texts.items():
        words, _ = read_words(text)
        for at in range(len(words) - 49):
            holders[tuple(words[at : at + 50])].append((text.increment, name, at))
    return {(name, at) for held in holders.values() for _, name, at in held if name != min(held)[1]}


def check(rows: Iterable[dict[str, Any]], texts: Mapping[str, Text]) -> None:
    """Rows are the copied windows, all of them and no others, and the words are those of the first occurrence."""
    covered: set[tuple[str, int]] = set()
    for row in rows:
        words, spans = read_words(texts[row["doc_id"]])
        first_words, first_spans = read_words(texts[row["first_doc_id"]])
        start, end = row["word_start"], row["word_start"] + row["words"]
        assert (row["start"], row["end"]) == (spans[start][0], spans[end - 1][1])
        inside = [at for at, span in enumerate(first_spans) if row["first_start"] <= span[0] < row["first_end"]]
        there = first_words[inside[0] : inside[-1] + 1]
        assert (first_spans[inside[0]][0], first_spans[inside[-1]][1]) == (row["first_start"], row["first_end"])
        windows = {tuple(there[at : at + 50]) for at in range(len(there) - 49)}
        assert all(tuple(words[at : at + 50]) in windows for at in range(start, end - 49))
        assert (texts[row["first_doc_id"]].increment, row["first_doc_id"]) < (row["increment"], row["doc_id"])
        own = {(row["doc_id"], at) for at in range(start, end - 49)}
        assert not own & covered
        covered |= own
    assert covered == copied_windows(texts)


def test_passages_are_those_of_a_dictionary_of_all_windows(spark: SparkSession) -> None:
    """Of prose, code, Chinese and runs; nothing is found within one document, and one row is a run of zeros."""
    texts = planted()
    rows = found_in(spark, texts)
    check(rows, texts)
    of = defaultdict(list)
    for row in rows:
        of[row["doc_id"]].append(row)
    assert set(of) == {"b", "c", "twice", "code2", "notice", "han2", "zeros2", "period2"}
    assert [len(of[name]) for name in ("twice", "zeros2", "period2", "han2")] == [2, 1, 1, 1]
    assert [row["words"] for row in of["han2"]] == [60]
    assert {row["passage"] for row in of["b"]} == {row["passage"] for row in of["twice"]}
    assert {row["first_doc_id"] for row in of["notice"]} == {"code1"}


@pytest.mark.nightly
def test_later_increments_are_compared_with_earlier_ones(spark: SparkSession) -> None:
    """The first occurrence is in the earliest increment, whatever its place; one that has left is none."""
    draw = random.Random(6)
    shared = prose(draw, 60)
    texts = {
        "z": Text(f"{prose(draw, 30)}\n{shared}", increment=0),
        "y": Text(f"{shared}\n{prose(draw, 60)}", increment=1),
        "a": Text(f"{prose(draw, 20)}\n{shared}", increment=2),
        "b": Text(f"{prose(draw, 10)}\n{shared}", increment=2),
    }
    rows = found_in(spark, texts)
    check(rows, texts)
    assert {(row["doc_id"], row["first_doc_id"]) for row in rows} == {("y", "z"), ("a", "z"), ("b", "z")}
    earlier = [row for row in rows if row["increment"] < 2]
    assert {row["first_doc_id"] for row in found_in(spark, texts, earlier, left=("z",))[1:]} == {"y"}
    # `y` was cut against `z`, so it has the passage no more when `z` has left: `a` is the first that does.
    later = found_in(spark, texts, earlier, cut=True, left=("z",))[1:]
    assert [(row["doc_id"], row["first_doc_id"]) for row in later] == [("b", "a")]


@pytest.mark.nightly
def test_passages_of_versions_of_a_manual(spark: SparkSession, real_data: Path) -> None:
    """Markdown pages in four versions, cut into increments."""
    pages = sorted((real_data / "jest_docs").rglob("*.md"))[::3]
    texts = {
        f"{number:03d}": Text(page.read_text(), "markup", "Markdown", number % 2) for number, page in enumerate(pages)
    }
    rows = found_in(spark, texts)
    check(rows, texts)
    assert len(rows) > 50


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(8))
def test_passages_of_random_texts(spark: SparkSession, seed: int) -> None:
    """Texts made of few words, of pieces of one another and of runs, in two increments."""
    draw = random.Random(seed)
    pool = [" ".join(draw.choice("abcdefgh") * 2 for _ in range(draw.randrange(1, 90))) for _ in range(6)]
    pool += ["0 " * 60, "1 2 3 " * 30, chinese(draw, 60), prose(draw, 50), "x " * 49]
    texts = {
        f"{number:02d}": Text(
            " ".join(draw.choice(pool) if draw.random() < 0.7 else prose(draw, 9) for _ in range(draw.randrange(8))),
            draw.choice(("prose", "data")),
            increment=number % 2,
        )
        for number in range(40)
    }
    check(found_in(spark, texts), texts)


@pytest.mark.parametrize(
    ("kind", "text", "left"),
    [
        ("prose", "Read this. <In no event shall we be liable>. But do ask.", "Read this. But do ask."),
        ("prose", "Read this. In <no event shall we be liable>. But do ask.", None),
        ("prose", "One.\n<Two is here. Three>, and more. Four.\n", "One.\nThree, and more. Four.\n"),
        ("prose", "甲乙。「<丙丁戊。己庚>」。辛壬。", "甲乙。辛壬。"),
        ("code", "a = 1\n# <One. Two>\nb = 2\n", "a = 1\nb = 2\n"),
        ("code", "return <one(two)\nthree(four)>; five()\n", None),
        ("code", "a\nreturn <one\ntwo>\n<three>\nif four\n", "a\nreturn one\nif four\n"),
        ("markup", "<one two>", ""),
        ("data", "é = <é\né\né> é", "é = é\né é"),
    ],
)
def test_a_cut_ends_at_a_line_or_a_sentence(kind: str, text: str, left: str | None) -> None:
    """Its passage is marked; nothing but its words goes, and no part of a line or sentence that has others."""
    places: list[int] = []
    for mark in "<>" * text.count("<"):
        places.append(text.index(mark))
        text = text.replace(mark, "", 1)
    cuts = cuts_in(text, kind, list(zip(places[::2], places[1::2], strict=True)))
    ends = [0, *(place for cut in cuts for place in cut), len(text)]
    kept = "".join(text[start:end] for start, end in zip(ends[::2], ends[1::2], strict=True))
    assert kept == (text if left is None else left)


def test_trimmed_texts_lead_back_and_short_ones_go(spark: SparkSession) -> None:
    """Edits are bytes of the text; what is left of a document decides; words brought together are counted."""
    draw = random.Random(9)
    shared, other, left, right = prose(draw, 60), prose(draw, 60), prose(draw, 40), prose(draw, 40)
    texts = {
        "a": Text(f"{other}\n{prose(draw, 40)}\n{shared}\n"),
        "b": Text(f"Größe.\n{left}\n{shared}\n{right}\n"),
        "c": Text(f"{left}\n{other}\n{right}\n"),
        "d": Text(f"{shared}\nToo little.\n"),
        "e": Text(prose(draw, 60)),
    }
    rows = found_in(spark, texts)
    own = frames(spark, texts, 0)
    output = trimmed(own["survivors"], own["texts"], spark.createDataFrame(rows), TrimmedConfig())
    cut = {row["doc_id"]: row.asDict(recursive=True) for row in output.frames["cut_texts"].collect()}
    assert set(cut) == {"b", "c", "d"}
    assert cut["c"]["content"] == f"{left}\n{right}\n" and cut["d"]["content"] == "Too little.\n"
    for name, row in cut.items():
        source = texts[name].content.encode()
        for edit in reversed(row["edits"]):
            assert (edit["rule"], edit["replacement_length"]) == ("passage", 0)
            source = source[: edit["start"]] + source[edit["end"] :]
        assert source.decode() == row["content"]
    assert {name: row["failed"] for name, row in cut.items()} == {
        "b": [],
        "c": [],
        "d": [{"rule": "too_little_left", "value": 11.0, "threshold": 200.0}],
    }
    assert {row["doc_id"] for row in output.frames["trimmed"].collect()} == {"a", "b", "c", "e"}
    assert output.summary == {"new-repeats": "1"}
    read = {row["doc_id"]: row["content"] for row in with_cuts(own["texts"], output.frames["cut_texts"]).collect()}
    assert read["b"] == f"Größe.\n{left}\n{right}\n" and read["a"] == texts["a"].content and len(read) == 5
    for frame in output.persisted:
        release(frame)
