"""Text that was decoded wrongly is mended, and every byte of it leads back."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("ftfy")

from spark_jobs.text.mojibake import mend
from spark_jobs.text.normalization import RULES, source_spans
from spark_jobs.text.text_columns import edits_of, normalized

words = st.sampled_from(["schön", "l’été", "–", "naïve", "plain", "\n", "привет", "你好", "a\r\n", "Å", " "])
codecs = st.sampled_from(["latin-1", "cp1252", "utf-8"])


def wrongly(text: str, codec: str) -> str:
    """UTF-8 read by another codec, where it can be."""
    try:
        return text.encode().decode(codec)
    except UnicodeDecodeError:
        return text


@given(st.lists(st.tuples(words, codecs), max_size=8).map(lambda pairs: " ".join(wrongly(*pair) for pair in pairs)))
def test_edits_rebuild_the_text(source: str) -> None:
    """Source and text are equal between edits, whose replacements have the lengths that are told."""
    text, edits = mend(source)
    before, after = source.encode(), text.encode()
    rebuilt, position = b"", 0
    for start, end, length, at in zip(
        edits.start.tolist(),
        edits.end.tolist(),
        edits.replacement_length.tolist(),
        edits.text_start.tolist(),
        strict=True,
    ):
        assert end > start >= position
        rebuilt += before[position:start] + after[at : at + length]
        assert len(rebuilt) == at + length
        position = end
    assert rebuilt + before[position:] == after
    assert {RULES[rule] for rule in edits.rule} <= {"mojibake"}


def test_every_letter_leads_back_to_what_it_was() -> None:
    """The two characters of a letter, and no others; line ends and composition are edits beside it."""
    source = "schÃ¶n\r\nund e\u0301 fÃ¼r â‚¬ 5\n"
    content, lists = normalized(pa.array([source]), mends=True)
    text = content[0].as_py()
    assert text == "schön\nund é für € 5\n"
    edits = edits_of(lists[0].as_py())
    assert [RULES[rule] for rule in edits.rule] == ["mojibake", "line_ends", "nfc", "mojibake", "mojibake"]
    for letter, was in (("ö", "Ã¶"), ("ü", "Ã¼"), ("€", "â‚¬"), ("é", "e\u0301"), ("5", "5")):
        start = text.encode().index(letter.encode())
        starts, ends = source_spans(edits, np.array([start]), np.array([start + len(letter.encode())]))
        assert source.encode()[starts[0] : ends[0]].decode() == was


def test_what_cannot_be_won_is_left() -> None:
    """Letters that were lost already, and text that only looks odd."""
    for text in ("conversaÃ§ï¿½o", "Cum se ďż˝ntďż˝mplďż˝", "Æther Ñandú ÅÄÖ ÃO", "\ufffd", "", "a\x00b"):
        assert mend(text)[0] == text
    kept, edits = normalized(pa.array(["schÃ¶n"]))
    assert (kept.to_pylist(), edits.to_pylist()) == (["schÃ¶n"], [[]])


def test_clean_text_in_many_languages_stays() -> None:
    """Of the first 100 sentences in 75 languages only those change that hold mojibake, 21 in all."""
    folder = Path(os.environ.get("REAL_DATA_DIR", "../shared/data")) / "languages"
    if not folder.is_dir():
        pytest.skip("REAL_DATA_DIR has no languages")
    changed = []
    for file in sorted(folder.glob("*.txt")):
        sentences = file.read_text(encoding="utf-8").splitlines()[:100]
        changed += [line for line in sentences if mend(line)[0] != line]
    assert len(changed) == 21
    assert all(re.search("[\x80-\x9f]|[ÃÂâĹĂ][^ \\w]", line) for line in changed)
