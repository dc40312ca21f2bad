"""Ids and languages of texts in hand."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from spark_jobs.exceptions import ConfigError, InputError
from spark_jobs.in_hand.tokens import detect_language, tokenize
from spark_jobs.tokens.hf_tokenizer import train_byte_pairs

TEXTS = [
    "two words",
    None,
    "",
    "ein Satz auf Deutsch, mit Umlauten: äöü",
    "x = f(1)\n\n    return x\n",
    "日本語のテキスト",
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A small tokenizer.json."""
    path = tmp_path / "tokenizer.json"
    path.write_text(train_byte_pairs([text or "" for text in TEXTS] * 20, 400, 2))
    return path


def test_ids_are_those_of_the_library(file: Path) -> None:
    """Text by text, without special tokens; no text has no ids."""
    library = Tokenizer.from_file(str(file))
    expected = [None if text is None else library.encode(text, add_special_tokens=False).ids for text in TEXTS]
    column = pa.chunked_array([pa.array(TEXTS[:2]), pa.array(["x", *TEXTS[2:]]).slice(1)])
    for data in (TEXTS, column, pa.table({"text": column})):
        ids = tokenize(data, file)
        assert ids.to_pylist() == expected and ids.type == pa.list_(pa.int32())


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    """In a line with its name."""
    with pytest.raises(ConfigError, match=r"missing\.json"):
        tokenize(["a"], tmp_path / "missing.json")


def test_languages_of_a_text_and_of_many() -> None:
    """A dictionary of one text, a table of many."""
    german = "Dies ist ein langer deutscher Satz, den man leicht erkennen kann."
    assert detect_language(german)["language"] == "de"
    table = detect_language([german, "...", "This is an English sentence, and a rather long one."])
    assert table["language"].to_pylist() == ["de", None, "en"]
    with pytest.raises(InputError, match="no text"):
        detect_language([])
