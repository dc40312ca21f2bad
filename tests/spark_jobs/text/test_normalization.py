"""Normal form of texts, and the way back to the source."""

from __future__ import annotations

import time
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.text.normalization import NO_EDITS, RULES, Edits, normalize, source_positions, source_spans

# Where normalization and line ends are hard: marks of several classes, composites that fall apart, singletons, Hangul
# syllables and their parts, characters that decompose into marks, compatibility ideographs, line ends between them.
_HARD = (
    "\r\n\u000b\u2028 aeAoks"
    "\u0301\u0300\u0327\u0323\u0338\u0345\u0344\u0340\u0341\u0374\u037e\u0387"
    "éẹ́ǖÅ\u212b\u212a\u2126ﬁſ\u0958\u095b\u09c7\u09be\u0cca\u0cc6\u0cc2\u0f73\u0f71\u0f72\u0f81"
    "가각\u1100\u1161\u1162\u11a7\u11a8\u11c2\u1175\u3099か\u304b\ufb1d\ufb2a\uf900豈\U0001d15e\U0001d165\U00011131\U00011127"
)
hard_texts = st.text(alphabet=_HARD, max_size=40)
any_texts = st.text(alphabet=st.characters(codec="utf-8"), max_size=60)


def obvious(source: str) -> str:
    """NFC of the whole text, then line ends."""
    return unicodedata.normalize("NFC", source).replace("\r\n", "\n").replace("\r", "\n")


def obvious_bytes(span: bytes) -> bytes:
    """The same for a part of a text in UTF-8, which may begin or end within a character."""
    return obvious(span.decode(errors="surrogateescape")).encode(errors="surrogateescape")


def rewritten(source: str, edits: Edits) -> bytes:
    """The source with every span replaced as its rule says, and nothing else."""
    data, parts, done = source.encode(), [], 0
    for rule, start, end, length in zip(edits.rule, edits.start, edits.end, edits.replacement_length, strict=True):
        span = data[start:end]
        if RULES[rule] == "nfc":
            replacement = unicodedata.normalize("NFC", span.decode()).encode()
        else:
            replacement = b"" if data[end : end + 1] == b"\n" else b"\n"
            assert span == b"\r"
        assert len(replacement) == length
        parts += [data[done:start], replacement]
        done = end
    return b"".join([*parts, data[done:]])


@given(hard_texts | any_texts)
def test_text_is_nfc_with_lf_line_ends(source: str) -> None:
    """Span by span gives what the whole gives."""
    assert normalize(source)[0] == obvious(source)


@given(hard_texts | any_texts)
def test_edits_applied_to_the_source_yield_the_text(source: str) -> None:
    """The edits are all that happened: applied alone they make the text, byte for byte."""
    text, edits = normalize(source)
    assert rewritten(source, edits) == text.encode()
    assert (edits.end > edits.start).all()
    assert (edits.start[1:] >= edits.end[:-1]).all()


@given(hard_texts | any_texts)
def test_normal_form_is_stable(source: str) -> None:
    """A text in normal form needs no edit."""
    text, _ = normalize(source)
    again, edits = normalize(text)
    assert again == text
    assert len(edits) == 0


@given(hard_texts | any_texts)
def test_every_position_leads_back_to_the_source(source: str) -> None:
    """A kept byte leads to the very same byte, a replaced one to the start of what it stands for."""
    text, edits = normalize(source)
    data, normal = source.encode(), text.encode()
    expected, done = [], 0
    for start, end, length in zip(edits.start, edits.end, edits.replacement_length, strict=True):
        expected += [*range(done, start), *[start] * length]
        done = end
    expected += range(done, len(data) + 1)
    found = source_positions(edits, np.arange(len(normal) + 1))
    assert found.tolist() == expected
    replaced = np.zeros(len(normal), dtype=bool)
    for start, length in zip(edits.text_start, edits.replacement_length, strict=True):
        replaced[start : start + length] = True
    for position in np.flatnonzero(~replaced):
        assert data[found[position]] == normal[position]


@given(hard_texts.filter(bool), st.data())
def test_a_span_of_the_text_leads_to_the_span_that_made_it(source: str, data: st.DataObject) -> None:
    """Normalizing the source's span gives the text's span again, with what else its first and last edits made."""
    text, edits = normalize(source)
    normal = text.encode()
    start = data.draw(st.integers(0, len(normal) - 1))
    end = data.draw(st.integers(start + 1, len(normal)))
    (first,), (last,) = source_spans(edits, np.array([start]), np.array([end]))
    assert 0 <= first < last <= len(source.encode())
    assert first == source_positions(edits, np.array([start]))[0]
    assert normal[start:end].strip(b"\n") in obvious_bytes(source.encode()[first:last])


def test_worked_example() -> None:
    """The example of the module's docstring."""
    text, edits = normalize("a\r\nbe\u0301c")
    assert text == "a\nb\u00e9c"
    assert [RULES[rule] for rule in edits.rule] == ["line_ends", "nfc"]
    assert edits.start.tolist() == [1, 4]
    assert edits.end.tolist() == [2, 7]
    assert edits.replacement_length.tolist() == [0, 2]
    (starts, ends) = source_spans(edits, np.array([0, 3, 4]), np.array([2, 4, 6]))
    assert starts.tolist() == [0, 4, 4]
    assert ends.tolist() == [3, 7, 8]


@pytest.mark.parametrize(
    ("source", "text", "spans"),
    [
        ("a\r\nb", "a\nb", [(1, 2, 0)]),
        ("a\rb", "a\nb", [(1, 2, 1)]),
        ("\r\r\n\r", "\n\n\n", [(0, 1, 1), (1, 2, 0), (3, 4, 1)]),
        ("é\r\n", "é\n", [(2, 3, 0)]),
        ("\r\u0301\u0327", "\n\u0327\u0301", [(0, 1, 1), (1, 5, 4)]),
        ("\u212b\u212b", "ÅÅ", [(0, 3, 2), (3, 6, 2)]),
        ("\u1100\u1161\u11a8x", "각x", [(0, 9, 3)]),
        ("\u0958x", "\u0915\u093cx", [(0, 3, 6)]),
    ],
)
def test_edits_are_as_narrow_as_the_rule_allows(source: str, text: str, spans: list[tuple[int, int, int]]) -> None:
    """Golden edits: (start, end, replacement length) in bytes."""
    found, edits = normalize(source)
    assert found == text
    assert list(zip(edits.start, edits.end, edits.replacement_length, strict=True)) == spans


def test_every_character_normalizes_between_others() -> None:
    """Every character that has a decomposition or may have one, after a letter and before a mark, as one text."""
    points = [
        *range(0x0D),
        *range(0x0E, 0xD800),
        *range(0xE000, 0x12000),
        *range(0x1D000, 0x1E000),
        *range(0x2F800, 0x2FA20),
    ]
    source = "\n".join(f"a{chr(point)}\u0323b{chr(point)}" for point in points)
    assert normalize(source)[0] == unicodedata.normalize("NFC", source)


@pytest.mark.nightly
def test_marks_in_the_worst_order_take_no_longer_than_their_number() -> None:
    """Sorting marks by insertion would take minutes for these 800 kB."""
    source = "a" + "\u0301\u0327" * 200_000
    started = time.process_time()
    text, edits = normalize(source)
    assert time.process_time() - started < 10
    assert text == "\u00e1" + "\u0327" * 200_000 + "\u0301" * 199_999
    assert len(edits) == 1


def test_no_edits_lead_nowhere_else() -> None:
    """Without edits source and text are the same."""
    positions = np.array([0, 5, 9])
    assert source_positions(NO_EDITS, positions).tolist() == [0, 5, 9]
    starts, ends = source_spans(NO_EDITS, positions, positions + 2)
    assert starts.tolist() == [0, 5, 9]
    assert ends.tolist() == [2, 7, 11]
