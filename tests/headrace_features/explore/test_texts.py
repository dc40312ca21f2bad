"""Texts are shown as what they are, whatever they hold."""

from __future__ import annotations

import html
import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_features.explore import texts
from headrace_features.explore.texts import WINDOW, Mark, flat, inline, lines, visible

HOSTILE = [
    "</mark><script>alert(1)</script>",
    '" onmouseover="alert(1)" x="',
    "<!-- --> <![CDATA[ ]]> &lt;b&gt; &amp;amp;",
    "a\0b\x01\x1b[31m\x7f\x85",
    "\u202eevil\u202c \u2066x\u2069 \u200b\u200d\ufeff\u00ad",
    "\ud800 lone \udfff",
    "\U000e0041\U000e007f",
    "'\"`{{ 7 * 7 }}{% raw %}",
]
TEXT = st.text(st.sampled_from("ab<>&\"'\n\0\u202e\u200b\ud800é日"), max_size=60)
MARKS = st.lists(
    st.builds(
        lambda start, length, kind: Mark(start, start + length, kind, kind),
        st.integers(0, 60),
        st.integers(0, 20),
        st.sampled_from(["hit", "edit", "personal"]),
    ),
    max_size=8,
)
ELEMENT = re.compile(r'</?(?:mark|i)(?: class="[a-z]+")?(?: title="[^"<>]*")?>')


def raw(shown: str) -> str:
    """What was shown, read back: elements of ours taken out, signs of unseen characters turned back."""
    back = re.sub(r'<i class="unseen" title="U\+([0-9A-F]+)">[^<]*</i>', lambda one: f"&#x{one[1]};", shown)
    pieces = re.split(r"(&#x[0-9A-F]+;)", re.sub(r"</?mark[^>]*>", "", back))
    return "".join(
        chr(int(one[3:-1], 16)) if re.fullmatch("&#x[0-9A-F]+;", one) else html.unescape(one) for one in pieces
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_is_inert(text: str) -> None:
    """No element but our own, nothing unseen, and the text can be read back from what is shown."""
    for shown in (visible(text), inline(text, [Mark(1, 4, "hit", text)]), lines(text, [Mark(0, 9, "hit")])[0].content):
        rest = ELEMENT.sub("", shown)
        assert "<" not in rest and ">" not in rest and '"' not in rest
        assert not re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b-\u200f\ud800-\udfff]", rest)
        shown.encode()
    assert raw(visible(text)) == text


@given(TEXT, MARKS, st.integers(0, 40), st.integers(0, 40))
def test_lines_hold_the_whole_part_and_its_marks(text: str, marks: list[Mark], start: int, length: int) -> None:
    """What is shown is the part of the text, its lines numbered; what is marked is what the marks are about."""
    start, end = min(start, len(text)), min(start + length, len(text))
    found = lines(text, marks, start, end)
    shown = "\n".join(raw(one.content) for one in found)
    assert shown == text[start:end].removesuffix("\n") or (shown, text[start:end]) == ("", "\n")
    for one in found:
        assert one.number == text.count("\n", 0, one.start) + 1
        assert one.marked == ("<mark" in one.content)
    marked = {at for mark in flat(marks, start, end) for at in range(mark.start, mark.end)}
    assert marked == {at for mark in marks for at in range(max(mark.start, start), min(mark.end, end))}


@given(MARKS)
def test_hits_are_whole_and_marks_do_not_overlap(marks: list[Mark]) -> None:
    """A hit inside a replaced passage is seen, however long that is."""
    placed = flat(marks, 0, 100)
    assert all(one.end <= other.start for one, other in itertools.pairwise(placed))
    hits = {at for mark in marks if mark.kind == "hit" for at in range(mark.start, mark.end)}
    assert hits == {at for mark in placed if mark.kind == "hit" for at in range(mark.start, mark.end)}


def test_a_hit_cuts_the_edit_that_it_is_in() -> None:
    """Of an edit the pieces before and behind are left."""
    assert flat([Mark(0, 10, "edit"), Mark(4, 6, "hit")], 0, 20) == [
        Mark(0, 4, "edit"),
        Mark(4, 6, "hit"),
        Mark(6, 10, "edit"),
    ]


def test_a_line_of_two_megabytes_is_broken_and_shown_by_windows() -> None:
    """No element has more than some thousand characters, and a window is 64 KB wherever it begins."""
    text = "x" * 2_000_000
    for start in (0, WINDOW * 10, WINDOW * 30):
        found = lines(text, [Mark(start + 5, start + 8, "hit")], start, start + WINDOW)
        assert max(len(one.content) for one in found) < 5000
        assert sum(len(raw(one.content)) for one in found) == min(WINDOW, len(text) - start)
        assert [one.number for one in found] == [1] + [0] * (len(found) - 1)


def test_the_empty_text_has_one_empty_line() -> None:
    """Of no character, as a file may be; line ends at the end open no line of their own."""
    assert [(one.number, one.content) for one in lines("")] == [(1, "")]
    assert [(one.number, str(one.content)) for one in lines("a\n\nb\n")] == [(1, "a"), (2, ""), (3, "b")]


def test_a_line_looks_at_its_own_marks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 5,000 hits in as many lines each is looked at once, so a text of hits costs as much as it is long."""
    seen: list[int] = []
    joined = texts._joined

    def counted(text: str, marks: list[Mark], start: int, end: int) -> object:
        seen.append(len(marks))
        return joined(text, marks, start, end)

    monkeypatch.setattr(texts, "_joined", counted)
    found = lines("ab\n" * 5000, [Mark(at, at + 1, "hit") for at in range(0, 15_000, 3)])
    assert seen == [1] * 5000 and all(one.marked for one in found)
