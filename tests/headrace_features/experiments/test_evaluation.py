"""Evaluation: each token scored once, answers tokenized with their question, what cannot be scored said."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is an extra")

from headrace_features.experiments.evaluation import ChoiceQuestion, score_documents, score_items
from headrace_features.models.network import Network
from headrace_features.models.network_shape import ModelShape
from spark_jobs.exceptions import InputError
from tests.headrace_features.models.network_reference import log_probabilities, nats

NETWORK = Network(ModelShape(16, 2, 2, 2000), vocabulary_size=300, window_tokens=9).eval()
WORDS = ["The", " cat", " cats", " is", " sat", "s"]


def encode(text: str) -> list[int]:
    """The longest word that fits, else a byte: so `cat` and `s` join, and a text alone may end in other tokens."""
    found = []
    while text:
        word = max((one for one in WORDS if text.startswith(one)), key=len, default=text[0])
        found.append(256 + WORDS.index(word) if word in WORDS else ord(word))
        text = text[len(word) :]
    return found


def test_every_token_of_a_document_counts_once() -> None:
    """Of 9 a window reads 8 and predicts 8: the first one all, each later one (4 further) its last 4."""
    draw = np.random.default_rng(0)
    documents = [draw.integers(0, 300, size).tolist() for size in (1, 2, 9, 10, 13, 14, 40)]
    found = score_documents(NETWORK, documents, [10] * len(documents))
    for number, document in enumerate(documents):
        expected = 0.0
        for place in range(1, len(document)):
            start = 0 if place <= 8 else (place - 9) // 4 * 4 + 4
            expected += nats(NETWORK, document[start : place + 1])[-1]
        assert found.bits[number] == pytest.approx(-expected / np.log(2), rel=1e-4)
        assert found.token_counts[number] == len(document) - 1
    assert found.bits_per_byte == pytest.approx(found.bits.sum() / 70)
    for wrong in ([300, 1], [-1, 5]):
        with pytest.raises(InputError, match="the vocabulary has 300"):
            score_documents(NETWORK, [wrong], [2])


def test_question_and_answer_are_tokenized_together() -> None:
    """`The cats` is another last token than `The cat`; so from there on tokens count, for each of the answers."""
    item = ChoiceQuestion("The cat", ("s", " is", " sat"), right=1)
    found = score_items(
        NETWORK, [item, ChoiceQuestion("The cat is", ("s",)), ChoiceQuestion("The cat is", (" sat",))], encode
    )
    the, cat, cats, is_, sat, s = range(256, 262)
    answers = [
        nats(NETWORK, [the, cats])[0],
        nats(NETWORK, [the, cat, is_])[:].sum(),
        nats(NETWORK, [the, cat, sat]).sum(),
    ]
    assert found.log_probabilities[0] == pytest.approx(answers[1], rel=1e-4)
    assert found.byte_counts.tolist() == [3, 1, 4]
    per_byte = np.array(answers) / [1, 3, 4]
    assert found.correct[0] == (per_byte.argmax() == 1)
    assert found.log_probabilities[1] == pytest.approx(nats(NETWORK, [the, cat, is_, s])[-1], rel=1e-4)
    assert found.chance.tolist() == [pytest.approx(1 / 3), 0, 0]
    best = log_probabilities(NETWORK, [the, cat, is_])[-1].argmax()
    assert found.correct[2] == (best == sat)


def test_accuracy_is_that_of_the_likeliest_per_byte() -> None:
    """Over seeded items, by NumPy; a context that is too long loses its beginning."""
    draw = np.random.default_rng(1)
    letters = [chr(97 + one) for one in range(20)]
    items = [
        ChoiceQuestion(
            "".join(draw.choice(letters, 12)), tuple("".join(draw.choice(letters, n)) for n in (1, 2, 3)), n % 3
        )
        for n in range(12)
    ]
    found = score_items(NETWORK, items, encode)
    for number, item in enumerate(items):
        scores = []
        for choice in item.choices:
            ids = encode(item.context + choice)[-9:]
            scores.append(nats(NETWORK, ids)[-len(choice) :].sum() / len(choice))
        assert found.nats_per_byte[number] == pytest.approx(scores[item.right], rel=1e-4)
        assert found.correct[number] == (int(np.argmax(scores)) == item.right)


def test_items_that_cannot_be_scored_are_left_out_with_a_reason() -> None:
    """They neither stop nor shift those beside them."""
    good = ChoiceQuestion("The", (" cat", " sat"), 0)
    bad = [
        ChoiceQuestion("", ("The",)),
        ChoiceQuestion("The", (" cat",), 1),
        ChoiceQuestion("The", ("",)),
        ChoiceQuestion("The", ("abcdefghi",)),
    ]
    found = score_items(NETWORK, [bad[0], good, *bad[1:]], encode)
    assert found.items.tolist() == [1]
    assert found.log_probabilities.tolist() == score_items(NETWORK, [good], encode).log_probabilities.tolist()
    assert [found.left_out[number].split(",")[0] for number in (0, 2, 3, 4)] == [
        "no token of the context stays as it is before every choice",
        "right is 1",
        "a choice is empty",
        "a choice has 9 tokens",
    ]
