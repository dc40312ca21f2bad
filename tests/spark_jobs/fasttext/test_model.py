"""Models of fastText: labels and probabilities are fastText's own, and what is no whole model is one error line."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.exceptions import ConfigError, InputError
from spark_jobs.fasttext.model import FastTextModel, read_fasttext
from spark_jobs.filters.languages.languages import installed_model_path
from tests.spark_jobs.fasttext.model_files import WORDS, fasttext_bytes

fasttext = pytest.importorskip("fasttext", reason="fasttext-predict is in the extra dev")

TEXTS = [
    "the quick brown fox",
    "",
    " \t\x0b\x0c\r\0 ",
    "unheard words, naïve 日本語 слово и слова",
    "a" * 5000,
    "日" * 700,
    "שלום עולם the مرحبا",
    "x",
    "\x00nul\x00inside\x00",
    "it's it's it's " * 300,
    "éé éé \U0001f600\U0001f600",
]


def _own(model: Any, text: str, count: int) -> dict[str, float]:
    labels, probabilities = model.predict(text.replace("\n", " "), k=count)
    return dict(zip((label.removeprefix("__label__") for label in labels), probabilities, strict=True))


def _check_equal(ours: FastTextModel, theirs: Any, texts: list[str], count: int) -> None:
    """Every probability that fastText gives is given here, and the best label is the first.

    One-vs-all reads its logistic function from a table, so a sum that lies on the edge of a step may be one step off.
    """
    off_by_a_step = 0
    best, confidence, found = ours.judge(pa.array(texts), ours.labels)
    assert ours.judge(pa.array(texts), [])[0].equals(best)  # the tree of labels is left early
    for row, text in enumerate(texts):
        own = _own(theirs, text, count)
        assert bool(own) == best[row].is_valid == confidence[row].is_valid
        for label, p in own.items():
            off = abs(found[label][row].as_py() - min(p, 1))
            off_by_a_step += off >= 1e-4
            assert off < (1e-4 if ours.tables.loss in (1, 3) else 1 / 128), (text[:40], label)
            assert confidence[row].as_py() >= found[label][row].as_py()
        assert not own or found[best[row].as_py()][row] == confidence[row]
    assert off_by_a_step <= len(texts) // 25


@pytest.mark.parametrize("loss", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "settings",
    [{}, {"word_ngrams": 3}, {"low": 2, "high": 4}, {"word_ngrams": 2, "low": 1, "high": 3, "labels": 2}],
    ids=str,
)
def test_every_loss_and_every_ngram_is_as_fasttext_has_it(tmp_path: Path, loss: int, settings: dict[str, int]) -> None:
    """Words, word n-grams, subwords and all four losses agree with the program on random models."""
    for seed in range(2):
        data = fasttext_bytes(loss, seed=seed, **settings)
        (tmp_path / "model.bin").write_bytes(data)
        ours, theirs = read_fasttext(data, "model"), fasttext.load_model(str(tmp_path / "model.bin"))
        generator = random.Random(seed)
        made = [" ".join(generator.choices([*WORDS[1:], "fo", "foxes", "слов"], k=9)) for _ in range(40)]
        _check_equal(ours, theirs, TEXTS + made, len(ours.labels))


def test_a_quantized_pruned_model_is_read_as_fasttext_reads_it(real_data: Path) -> None:
    """lid.176.ftz: the best label of sentences in 75 languages, and its probability."""
    path = installed_model_path()
    ours, theirs = read_fasttext(path.read_bytes(), "lid.176.ftz"), fasttext.load_model(str(path))
    assert len(ours.labels) == 176
    texts = TEXTS + [
        line for file in sorted((real_data / "languages").glob("??.txt")) for line in file.read_text().split("\n")[:20]
    ]
    _check_equal(ours, theirs, texts, 1)
    _check_equal(ours, theirs, texts[:200], 5)


def _hash(word: bytes) -> int:
    h = 2166136261
    for byte in word:
        h = ((h ^ (byte | 0xFFFFFF00 if byte >= 128 else byte)) * 16777619) & 0xFFFFFFFF
    return h


def _by_hand(model: FastTextModel, text: str, low: int, high: int, word_ngrams: int) -> list[float]:
    """Probabilities by label of a model with softmax, as fastText has them; no word of a text is a control."""
    t, rows, hashes = model.tables, list[int](), list[int]()
    entries = [bytes(t.entry_bytes[a:b]).decode() for a, b in zip(t.entry_starts, t.entry_starts[1:], strict=False)]
    numbers = {word: number for number, word in enumerate(entries[: t.word_count])}
    for word in [*text.split(), None]:
        shown = word or "</s>"
        if word is None or (word in numbers and word != "</s>"):
            rows.append(numbers[shown])
        if word is not None and high:
            letters = f"<{word}>"
            for start in range(len(letters)):
                for size in range(low, min(high, len(letters) - start) + 1):
                    if not (size == 1 and (start == 0 or start + 1 == len(letters))):
                        rows.append(t.word_count + _hash(letters[start : start + size].encode()) % t.bucket)
        hashes.append(_hash(shown.encode()))
    for start, first in enumerate(hashes):
        h = first | 0xFFFFFFFF00000000 if first >> 31 else first
        for other in hashes[start + 1 : start + word_ngrams]:
            h = (h * 116049371 + (other | 0xFFFFFFFF00000000 if other >> 31 else other)) & (1 << 64) - 1
            rows.append(t.word_count + h % t.bucket)
    scores = t.output @ t.rows[rows].mean(axis=0)
    found = np.exp(scores - scores.max())
    return list(found / found.sum())


CONTROLS = ["</s>", "__label__topic1", "__label__unheard", "__label__", "<s>", "<unk>"]


@pytest.mark.parametrize(
    "settings",
    [{}, {"word_ngrams": 3}, {"low": 2, "high": 4}, {"low": 1, "high": 3, "word_ngrams": 2}],
    ids=str,
)
def test_a_word_of_a_text_is_no_control(tmp_path: Path, settings: dict[str, int]) -> None:
    """`</s>` ends no text and labels are not left out: each is a word like one that the model does not know."""
    data = fasttext_bytes(3, **settings)
    (tmp_path / "model.bin").write_bytes(data)
    ours, theirs = read_fasttext(data, "model"), fasttext.load_model(str(tmp_path / "model.bin"))
    how = {"low": 0, "high": 0, "word_ngrams": 1, **settings}
    draw = random.Random(3)
    plain = [" ".join(draw.choices([*WORDS[1:], "foxes", "слов"], k=7)) for _ in range(20)]
    mixed = [" ".join(draw.choices([*WORDS[1:], "foxes", *CONTROLS], k=7)) for _ in range(60)]
    for text in plain:
        own = _own(theirs, text, 5)
        assert _by_hand(ours, text, **how) == pytest.approx([own[label] for label in ours.labels], abs=1e-4)
    found = ours.judge(pa.array(mixed), ours.labels)[2]
    for row, text in enumerate(mixed):
        wanted = _by_hand(ours, text, **how)
        assert [found[label][row].as_py() for label in ours.labels] == pytest.approx(wanted, abs=1e-4), text


@pytest.mark.parametrize("control", CONTROLS)
def test_a_page_with_a_control_word_has_the_language_of_its_other_words(control: str) -> None:
    """By lid.176: an English page that names `</s>` after its first word was German."""
    model = read_fasttext(installed_model_path().read_bytes(), "lid.176.ftz")
    page = "Tutorial: how the end of a sentence is marked, and why the model needs to see it in every line of the text."
    words = page.split()
    texts = [" ".join([*words[:at], control, *words[at:]]) for at in range(len(words))]
    best, sure, _ = model.judge(pa.array([page, *texts]), [])
    assert set(best.to_pylist()) == {"en"} and min(sure.to_pylist()) > 0.8 * sure[0].as_py()


def test_an_unknown_label_is_one_error_line() -> None:
    """It names the nearest."""
    with pytest.raises(ConfigError, match="quality: has no label 'topic_3'; did you mean 'topic3'"):
        read_fasttext(fasttext_bytes(3), "quality").judge(pa.array(["the fox"]), ["topic_3"])


def test_a_column_may_be_a_slice_or_empty() -> None:
    """Offsets of Arrow slices are honoured, with either width of offsets."""
    model = read_fasttext(fasttext_bytes(1, low=2, high=3), "model")
    whole = model.judge(pa.array(TEXTS), [])[1]
    for kind in (pa.string(), pa.large_string()):
        assert model.judge(pa.array(TEXTS, kind).slice(3, 4), [])[1].equals(whole.slice(3, 4))
    assert len(model.judge(pa.array([], pa.string()), [])[0]) == 0


def test_what_is_no_whole_model_is_one_error_line() -> None:
    """Another kind of file, another version, word vectors, any prefix, bytes too many: InputError with the name."""
    data = fasttext_bytes(3, word_ngrams=2)
    for bad, message in (
        (b"", "q.bin: is damaged, its 0 bytes"),
        (b"PK\3\4" + data, "no fastText model, it begins with"),
        (data[:4] + b"\x0d\0\0\0" + data[8:], "has version 13, known are 11 and 12"),
        (data[: 8 + 4 * 7] + b"\1" + data[8 + 4 * 7 + 1 :], "word vectors and has no labels"),
        (data + b"\0", "damaged"),
        *((data[:size], "damaged") for size in range(1, len(data), 61)),
    ):
        with pytest.raises(InputError, match=message) as raised:
            read_fasttext(bad, "q.bin")
        assert "\n" not in str(raised.value)


def test_flipped_bytes_never_end_the_process() -> None:
    """A changed byte in settings, entries or sizes is an error or another model; scoring it stays in bounds."""
    data = fasttext_bytes(1, word_ngrams=2, low=1, high=2)
    for at in range(8, 360):
        for value in (0, 0x7F, 0xFF):
            changed = bytearray(data)
            changed[at] = value
            try:
                model = read_fasttext(bytes(changed), "changed")
            except InputError:
                continue
            if model.tables.max_characters < 1000 and model.tables.word_ngrams < 1000:
                model.judge(pa.array(TEXTS[:6]), [])


@pytest.mark.nightly
def test_a_large_matrix_is_scored_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices that are not copied, at any alignment, give what copies give."""
    for labels in (2, 3, 4, 5):
        data = fasttext_bytes(3, word_ngrams=2, labels=labels)
        copied = read_fasttext(data, "copied").judge(pa.array(TEXTS), [])[1]
        monkeypatch.setattr("spark_jobs.fasttext.model._COPIED_BYTES", 0)
        in_place = read_fasttext(bytearray(data), "in place")
        assert in_place.tables.rows.base is not None
        assert in_place.judge(pa.array(TEXTS), [])[1].equals(copied)
        monkeypatch.undo()
