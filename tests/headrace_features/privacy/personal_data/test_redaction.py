"""Placeholders, and edits that lead back to the source."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace_features.privacy.personal_data.find import DetectedSpan, score
from headrace_features.privacy.personal_data.redacted_texts import redact
from spark_jobs.text.normalization import NO_EDITS, REDACTED, Edits, compose, normalize, source_spans
from spark_jobs.text.text_columns import EDITS_TYPE, edits_column, edits_of

FIELDS = ("rule", "start", "end", "replacement_length")


def spans_of(text: str) -> list[DetectedSpan]:
    """What patterns find in a text."""
    return [DetectedSpan(**span) for span in score(pa.array([text]))["spans"][0].as_py()]


def test_placeholders_are_stable_inside_a_document() -> None:
    """The same value has the same number, whatever its case and marks; what is not given stays."""
    text = "a@x.org, b@x.org, A@X.ORG; +1 408 562 6222 is +1-408-562-6222; é 81.3.4.200"
    new, edits = redact(text, [span for span in spans_of(text) if span.kind != "ip"])
    assert new == "<MAIL_1>, <MAIL_2>, <MAIL_1>; <PHONE_1> is <PHONE_1>; é 81.3.4.200"
    assert edits.rule.tolist() == [REDACTED] * 5
    rows = edits_column([NO_EDITS, edits])
    assert rows.type == EDITS_TYPE
    again = edits_of(rows[1].as_py())
    assert [getattr(again, name).tolist() for name in FIELDS] == [getattr(edits, name).tolist() for name in FIELDS]


def test_a_placeholder_that_the_text_holds_is_not_given_again() -> None:
    """Another value would seem to be the same."""
    text = "<MAIL_1> and a@x.org"
    assert redact(text, spans_of(text))[0] == "<MAIL_1> and <MAIL_2>"


@st.composite
def drawn_edits(draw: st.DrawFn, length: int) -> Edits:
    """Edits of a text of some length, some of them neighbours, some deletions."""
    marks = sorted(draw(st.lists(st.integers(0, length), max_size=10)))
    spans = [(a, b) for a, b in zip(marks[::2], marks[1::2], strict=False) if a < b]
    lengths = [draw(st.integers(0, 4)) for _ in spans]
    columns = ([1] * len(spans), [a for a, _ in spans], [b for _, b in spans], lengths)
    return Edits(*(np.array(column, dtype=np.int64) for column in columns))


def applied(pieces: list[object], edits: Edits, name: str) -> list[object]:
    """A text as a list of things, edited: what is put in is new."""
    out, last = [], 0
    for k in range(len(edits)):
        out += pieces[last : edits.start[k]]
        out += [(name, k, i) for i in range(edits.replacement_length[k])]
        last = edits.end[k]
    return out + pieces[last:]


@given(st.data())
def test_composed_edits_are_those_of_a_slow_reference(data: st.DataObject) -> None:
    """Overlapping edits become one; all others, and every byte between them, stay as they are."""
    length = data.draw(st.integers(0, 24))
    first = data.draw(drawn_edits(length))
    middle = applied(list(range(length)), first, "first")
    second = data.draw(drawn_edits(len(middle)))
    last = applied(middle, second, "second")
    composed = compose(first, second)
    # Positions of the middle text that each edit covers; those that share one, or swallow a deletion, hang together.
    ends = first.text_start + first.replacement_length
    reaches = list(zip(first.text_start.tolist(), ends.tolist(), strict=True))
    groups = [{("first", k)} for k in range(len(first))] + [{("second", k)} for k in range(len(second))]
    for k, (a, b) in enumerate(reaches):
        for j in range(len(second)):
            s, e = int(second.start[j]), int(second.end[j])
            if (a < e and s < b) or (a == b and s < a < e):
                mine = next(g for g in groups if ("first", k) in g)
                other = next(g for g in groups if ("second", j) in g)
                if mine is not other:
                    mine |= other
                    groups.remove(other)
    assert len(composed) == len(groups)
    assert len(applied(list(range(length)), composed, "x")) == len(last)
    # What no edit touched stands where it stood.
    lasts = [piece if isinstance(piece, int) else None for piece in last]
    ours = [piece if isinstance(piece, int) else None for piece in applied(list(range(length)), composed, "x")]
    assert all(mine is None or mine == theirs for mine, theirs in zip(ours, lasts, strict=True))
    # No source byte is covered beyond what a group needs: those of its edits, and kept bytes that its second replaced.
    covered = set()
    for group in groups:
        low = min([int(first.start[k]) for side, k in group if side == "first"] + _kept(group, middle, second))
        high = max([int(first.end[k]) - 1 for side, k in group if side == "first"] + _kept(group, middle, second))
        covered |= set(range(low, high + 1))
    assert covered == {b for s, e in zip(composed.start, composed.end, strict=True) for b in range(s, e)}
    assert (composed.start[1:] >= composed.end[:-1]).all()
    assert (composed.end > composed.start).all()


def _kept(group: set[tuple[str, int]], middle: list[object], second: Edits) -> list[int]:
    """Source bytes that the second edits of a group replaced directly."""
    spans = [(second.start[k], second.end[k]) for side, k in group if side == "second"]
    return [piece for s, e in spans for piece in middle[s:e] if isinstance(piece, int)]


@given(st.text(alphabet="ae\u0301\u0323\r\n @.x1", max_size=40), st.data())
def test_every_placeholder_leads_back_to_the_bytes_it_stands_for(source: str, data: st.DataObject) -> None:
    """Normalized, then redacted: the span of the source normalizes to the value, give or take what hangs on it."""
    text, first = normalize(source)
    if not text:
        return
    low = data.draw(st.integers(0, len(text) - 1))
    high = data.draw(st.integers(low + 1, len(text)))
    start, end = len(text[:low].encode()), len(text[:high].encode())
    new, second = redact(text, [DetectedSpan(start, end, "name", "r", 1.0)])
    assert new == f"{text[:low]}<NAME_1>{text[high:]}"
    composed = compose(first, second)
    starts, ends = source_spans(composed, np.array([start]), np.array([start + len("<NAME_1>")]))
    led = source.encode()[starts[0] : ends[0]]
    assert text[low:high] in normalize(led.decode())[0] or normalize(led.decode())[0] in text[low:high]
    wanted_starts, wanted_ends = source_spans(first, np.array([start]), np.array([end]))
    assert starts[0] <= wanted_starts[0] and wanted_ends[0] <= ends[0]
