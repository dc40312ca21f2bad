"""The text layer of a PDF in the order of reading, with the hyphens that are the words' own."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

pytest.importorskip("pypdfium2")

from headrace_features.formats.pages.line_hyphens import MARK, join_lines, words_of
from headrace_features.formats.pages.pdf import layers
from spark_jobs.sources.config.file_reading import OcrRules
from spark_jobs.sources.refusals import Reason, Refusal
from tests.headrace_features.formats.made_pdf import pdf
from tests.tiers import tries

TURNS = {0: "1 0 0 1 80 600", 90: "0 1 -1 0 100 100", 180: "-1 0 0 -1 500 400", 270: "0 -1 1 0 100 700"}
SHARED = Path(os.environ.get("REAL_DATA_DIR", "../shared/data"))


def drawn(*lines: str, turned: int = 0) -> str:
    """The drawing of lines below each other, turned to the left."""
    shown = " T* ".join(f"<{line.encode().hex()}> Tj" for line in lines)
    return f"BT /F1 12 Tf 14 TL {TURNS[turned]} Tm {shown} ET"


def text_of(data: bytes) -> str:
    """The text of the first page."""
    found = layers(data, OcrRules())
    assert not isinstance(found, Refusal), found
    return found[0][0].text


@pytest.mark.parametrize("rotate", [0, 90, 180, 270, -90, 450])
@pytest.mark.parametrize("turned", TURNS)
def test_lines_come_in_order_however_a_page_is_turned(rotate: int, turned: int) -> None:
    """Whatever the page's own rotation and that of its text; what stands across it changes nothing."""
    rng = random.Random(rotate * 7 + turned)
    for _ in range(tries(40, 3)):
        lines = [
            " ".join(f"w{row}x{column}" for column in range(rng.randrange(1, 6))) for row in range(rng.randrange(1, 9))
        ]
        page = pdf("700 700", drawn(*lines, turned=turned))
        turn = page.replace(b"/Type/Page/Parent", b"/Type/Page/Rotate %d/Parent" % rotate)
        assert text_of(turn) == "\n".join(lines)
    across = drawn("a stamp", turned=(turned + 90) % 360)
    found = text_of(pdf("700 700", f"{drawn('first line', 'second line', 'third line', turned=turned)} {across}"))
    assert found.replace("a stamp", "").split() == ["first", "line", "second", "line", "third", "line"]


def test_a_file_that_needs_a_password_is_told() -> None:
    """Of the standard handler, and of one that is not known."""
    plain = pdf("600 800", drawn("text"))
    for handler in (f"/Standard/V 1/R 2/O<{'00' * 32}>/U<{'11' * 32}>/P -4", "/Other/V 9"):
        locked = plain.replace(b"trailer<<", f"trailer<</Encrypt<</Filter{handler}>>/ID[<00><00>]".encode())
        found = layers(locked, OcrRules())
        assert isinstance(found, Refusal) and found.reason == Reason.ENCRYPTED, found


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["The old exam-", "ple of a"], "The old example of a"),
        (["(exam-", "ple), EXAM-", "PLE"], "(example), EXAMPLE"),
        (["is a well-", "known one"], "is a well-known one"),
        (["in 1998-", "2004 and COVID-", "19"], "in 1998-\n2004 and COVID-19"),
        (["an e-", "mail of Jean-", "Paul"], "an e-mail of Jean-Paul"),
        (["GPT-", "based state-of-", "the-art"], "GPT-based state-of-the-art"),
        (["a fine re-election, a re-", "election"], "a fine re-election, a re-election"),
        (["understand under stand under-", "stand"], "understand under stand understand"),
        (["crown sack crown-", "sack"], "crown sack crown-sack"),
        (["http://a.org/b-", "c and end-"], "http://a.org/b-c and end-"),
    ],
)
def test_a_hyphen_at_a_line_end_stays_where_it_is_the_words_own(lines: list[str], text: str) -> None:
    """By its form, by the other words of the file, by the frequent words of its language."""
    assert text_of(pdf("600 800", drawn(*lines))) == text


def test_words_that_are_broken_anywhere_are_whole_again() -> None:
    """Words that were joined come back joined, of random ones; of words with a hyphen those that are there twice."""
    rng = random.Random(3)
    words = [
        "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randrange(5, 12))) for _ in range(tries(5000, 500))
    ]
    compounds = [f"{left}-{right}" for left, right in zip(words[::2], words[1::2], strict=False)]
    whole = " ".join(compounds)
    broken = " ".join(f"{word[:cut]}{MARK}{word[cut:]}" for word in words for cut in [rng.randrange(2, len(word) - 1)])
    assert join_lines(broken, words_of([broken])) == " ".join(words)
    assert join_lines(whole.replace("-", MARK), words_of([whole])) == whole
    many = MARK * 100_000
    assert len(join_lines(many, frozenset())) == len(many)


def test_the_sample_of_other_tools_bug_reports_reads_right() -> None:
    """A true hyphen, a year range and a broken word in one paragraph."""
    sample = SHARED / "bugs" / "P1-hyphens.pdf"
    if not sample.exists():
        pytest.skip(f"{sample} is not here")
    expected = "The old example is a well-known one in the years 1998-\n2004 and e-mail lists."
    assert text_of(sample.read_bytes()) == expected
