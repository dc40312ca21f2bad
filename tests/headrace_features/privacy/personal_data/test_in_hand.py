"""Personal data of texts in hand."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import headrace
from headrace_features.privacy.personal_data.find import score
from spark_jobs.exceptions import InputError
from spark_jobs.text.text_columns import normalized

MAIL = "ada@lovelace.org"
PIECES = (
    *(MAIL, "DE89 3704 0044 0532 0130 00", "+49 30 901820", "4111 1111 1111 1111", "192.168.7.23", "٠٣٠ ٩٠١٨٢٠"),
    *("Cafe\u0301", "a\r\nb", "\r", "日本語", "e\u0323\u0301", "ﬁ", "\U0001f600", "plain words", "한글", "\n"),
)


def test_a_finding_is_where_it_stands() -> None:
    """In characters of the text as it came, whatever its line ends and accents are."""
    text = f"Cafe\u0301 in Köln\r\nmail {MAIL}\r\n"
    (finding,) = headrace.find_personal_data(text)
    assert finding[:4] == ("mail", text.index(MAIL), text.index(MAIL) + len(MAIL), MAIL)
    assert finding.confidence > 0.5
    assert headrace.find_personal_data(text, min_confidence=1.0) == []


def test_findings_are_those_of_the_table() -> None:
    """Kind by kind and byte by byte of 300 random texts, in all the forms in which texts come."""
    draw = random.Random(7)
    texts = [" ".join(draw.choices(PIECES, k=draw.randrange(12))) for _ in range(300)]
    content, _ = normalized(pa.array(texts))
    expected = [
        [(span["kind"], span["rule"], span["confidence"], text.encode()[span["start"] : span["end"]]) for span in spans]
        for text, spans in zip(content.to_pylist(), score(content)["spans"].to_pylist(), strict=True)
    ]
    for data in (texts, pa.table({"text": texts}), pa.chunked_array([texts[:100], texts[100:]])):
        findings = headrace.find_personal_data(data)
        as_in_table = [
            [(f.kind, f.rule, f.confidence, normalized(pa.array([f.text]))[0][0].as_py().encode()) for f in of_text]
            for of_text in findings
        ]
        assert as_in_table == expected
        for text, of_text in zip(texts, findings, strict=True):
            assert all(text[f.start : f.end] == f.text for f in of_text)
    assert sum(map(len, expected)) > 300


def test_what_holds_no_text_is_refused_in_a_line() -> None:
    """Null has no findings; numbers, lone surrogates and an odd confidence are refused."""
    assert headrace.find_personal_data([None, "", MAIL])[:2] == [[], []]
    assert headrace.find_personal_data([]) == []
    for data in ([1], "\ud800"):
        with pytest.raises(InputError, match="holds no texts"):
            headrace.find_personal_data(data)
    with pytest.raises(InputError, match="min_confidence 7 is not between 0 and 1"):
        headrace.find_personal_data(MAIL, min_confidence=7)
