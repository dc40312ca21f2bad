"""Score a trained model: bits a byte of documents, and the probability of right answers.

Both are per byte of text, not per token, so that models of different tokenizers compare. Sums are given for each
document and item, so that intervals can go by family: items of one passage are not independent.

A document longer than the window is read in windows overlapping by half; each token counts once, in the first window
that predicts it, so after the first window it is predicted from at least half a window. The first token of a
document is read, not predicted: its bytes count, its bits do not.

A question and its answers are tokenized together, for a tokenizer may join what is on both sides of the border. Tokens
that differ between the question alone and with any of its answers count as the answer's, in all of them:

    "The cat"     The| cat
    "The cats"    The| cats          counts: cats
    "The cat is"  The| cat| is       counts: cat, is

Sources: Biderman et al. 2024 (arXiv 2405.14782) on normalizing by bytes; Magnusson et al. 2025 (DataDecide, arXiv
2504.11393): the likelihood of the right answer foretells larger models where accuracy is still at chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headrace_features.models.network import Network, layout, logit_rows, on_device
from spark_jobs.arrays import BoolArray, Float64Array, Int64Array
from spark_jobs.exceptions import InputError

_BATCH_TOKENS: Final = {"cpu": 4096, "cuda": 65_536}

Tokens = Sequence[int] | NDArray[np.integer]


@dataclass(frozen=True)
class DocumentScores:
    """Bits and tokens of documents under a model.

    Attributes:
        bits: (D,) -log2 of the probability of each document's predicted tokens.
        byte_counts: (D,) of each document.
        token_counts: (D,) predicted tokens of each.
    """

    bits: Float64Array
    byte_counts: Int64Array
    token_counts: Int64Array

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte of all documents together."""
        return float(self.bits.sum() / self.byte_counts.sum())


@dataclass(frozen=True)
class ChoiceQuestion:
    """A question with answers to choose from; a cloze test has only the right one.

    Attributes:
        context: what comes before the answer, not empty.
        choices: the answers, each with the space before it where there is one.
        right: index of the right choice.
    """

    context: str
    choices: tuple[str, ...]
    right: int = 0


@dataclass(frozen=True)
class ItemScores:
    """A model's answers to items.

    Attributes:
        items: (I,) index of each scored item in the input.
        log_probabilities: (I,) of the right answer, in nats.
        byte_counts: (I,) of the right answer.
        correct: (I,) whether the right answer is the likeliest per byte; with one answer, whether each of its tokens is
            the likeliest of the vocabulary.
        chance: (I,) how likely a guess is right; 0 with one answer.
        left_out: reasons of unscored items, by their index.
    """

    items: Int64Array
    log_probabilities: Float64Array
    byte_counts: Int64Array
    correct: BoolArray
    chance: Float64Array
    left_out: dict[int, str] = field(default_factory=dict)

    @property
    def nats_per_byte(self) -> Float64Array:
        """(I,) log-probability of each right answer per byte, the score to compare by at small sizes."""
        return self.log_probabilities / self.byte_counts


def score_documents(network: Network, documents: Sequence[Tokens], byte_counts: Sequence[int]) -> DocumentScores:
    """Measure the bits of each document under a model.

    Args:
        network: trained, on any device.
        documents: token ids of each.
        byte_counts: bytes of UTF-8 of each text.

    Raises:
        InputError: a document has no bytes, or tokens outside of the vocabulary.
    """
    if len(documents) != len(byte_counts) or min(byte_counts, default=1) < 1:
        raise InputError("score_documents: each document has a number of bytes, at least 1; leave empty ones out")
    pieces: list[NDArray[np.int64]] = []
    counts_from: list[int] = []
    document_of: list[int] = []
    for number, document in enumerate(documents):
        for piece, first in _windows(np.asarray(document, np.int64), len(network.positions) - 1):
            pieces.append(piece)
            counts_from.append(first)
            document_of.append(number)
    bits, tokens = np.zeros(len(documents)), np.zeros(len(documents), np.int64)
    scored = _token_scores(network, pieces)
    for number, first, (nats, _) in zip(document_of, counts_from, scored, strict=True):
        bits[number] -= nats[first:].sum() / np.log(2)
        tokens[number] += len(nats) - first
    return DocumentScores(bits, np.asarray(byte_counts, np.int64), tokens)


def score_items(network: Network, items: Sequence[ChoiceQuestion], encode: Callable[[str], Tokens]) -> ItemScores:
    """Measure how likely a model finds the right answer of each item.

    Args:
        network: trained, on any device.
        items: to score; one longer than the window is read without its beginning.
        encode: text -> token ids, without an end-of-text token.
    """
    window = len(network.positions)
    sequences: list[NDArray[np.int64]] = []
    answers: list[int] = []
    kept: list[int] = []
    left_out: dict[int, str] = {}
    for number, item in enumerate(items):
        ids = [np.asarray(encode(item.context + choice), np.int64) for choice in item.choices]
        shared = min((_shared(np.asarray(encode(item.context), np.int64), choice_ids) for choice_ids in ids), default=0)
        if reason := _reason_against(item, shared, [len(choice_ids) - shared for choice_ids in ids], window):
            left_out[number] = reason
            continue
        kept.append(number)
        answers += [len(choice_ids) - shared for choice_ids in ids]
        sequences += [choice_ids[max(0, len(choice_ids) - window) :] for choice_ids in ids]
    nats, greedy = np.zeros(len(sequences)), np.zeros(len(sequences), np.bool_)
    for number, (token_nats, likeliest) in enumerate(_token_scores(network, sequences)):
        nats[number] = token_nats[len(token_nats) - answers[number] :].sum()
        greedy[number] = likeliest[len(token_nats) - answers[number] :].all()
    rights, correct = [], []
    start = 0
    for number in kept:
        item = items[number]
        sizes = [len(choice.encode()) for choice in item.choices]
        likeliest_choice = int(np.argmax(nats[start : start + len(sizes)] / sizes))
        rights.append(start + item.right)
        correct.append(bool(greedy[start]) if len(sizes) == 1 else likeliest_choice == item.right)
        start += len(sizes)
    return ItemScores(
        items=np.array(kept, np.int64),
        log_probabilities=nats[np.array(rights, np.int64)],
        byte_counts=np.array(
            [len(items[item_index].choices[items[item_index].right].encode()) for item_index in kept], np.int64
        ),
        correct=np.array(correct, np.bool_),
        chance=np.array(
            [1 / len(items[item_index].choices) if len(items[item_index].choices) > 1 else 0.0 for item_index in kept]
        ),
        left_out=left_out,
    )


def _reason_against(item: ChoiceQuestion, shared: int, token_counts: Sequence[int], window: int) -> str:
    """Why an item cannot be scored; empty where it can."""
    if not 0 <= item.right < len(item.choices):
        return f"right is {item.right}, there are {len(item.choices)} choices"
    if not all(item.choices):
        return "a choice is empty"
    if not shared:
        return "no token of the context stays as it is before every choice, so nothing predicts the answer"
    if not min(token_counts):
        return "a choice adds no token to the context"
    if max(token_counts) >= window:
        return f"a choice has {max(token_counts)} tokens, the model reads {window} with one before it"
    return ""


def _shared(ids: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    """Length of the common prefix of two sequences of tokens."""
    size = min(len(ids), len(other))
    differing = np.flatnonzero(ids[:size] != other[:size])
    return int(differing[0]) if len(differing) else size


def _windows(ids: NDArray[np.int64], size: int) -> Iterator[tuple[NDArray[np.int64], int]]:
    """(window, first) pairs: `size` + 1 tokens, and the index of the first counting one of its `size` predictions."""
    half = max(size // 2, 1)
    for start in range(0, len(ids) - 1, half):
        yield ids[start : start + size + 1], size - half if start else 0
        if start + size >= len(ids) - 1:
            return


def _token_scores(network: Network, sequences: Sequence[NDArray[np.int64]]) -> Iterator[tuple[Float64Array, BoolArray]]:
    """For each sequence, of its tokens from the second on: log-probability in nats, and whether it is the likeliest.

    Raises:
        InputError: a token is outside of the vocabulary.
    """
    vocabulary_size = len(network.tokens.weight)
    for sequence in sequences:
        if len(sequence) and not 0 <= sequence.min() <= sequence.max() < vocabulary_size:
            raise InputError(
                f"evaluation: token ids from {sequence.min()} to {sequence.max()}; the vocabulary has {vocabulary_size}"
            )
    device = network.positions.device
    begin = 0
    while begin < len(sequences):
        end, total = begin, 0
        while end < len(sequences) and (end == begin or total + len(sequences[end]) <= _BATCH_TOKENS[device.type]):
            total += len(sequences[end])
            end += 1
        yield from _scores_together(network, sequences[begin:end])
        begin = end


@torch.no_grad()
def _scores_together(
    network: Network, sequences: Sequence[NDArray[np.int64]]
) -> Iterator[tuple[Float64Array, BoolArray]]:
    """`_token_scores` of sequences fitting in memory together: each is a row of a padded batch."""
    lengths = np.array([max(len(sequence) - 1, 0) for sequence in sequences])
    width = int(lengths.max(initial=0))
    if width == 0:
        return iter([(np.empty(0), np.empty(0, np.bool_))] * len(sequences))
    ids, targets = np.zeros((2, len(sequences), width), np.int64)
    for row, sequence in enumerate(sequences):
        ids[row, : lengths[row]], targets[row, : lengths[row]] = sequence[:-1], sequence[1:]
    documents = np.where(np.arange(width) < lengths[:, None], np.int32(0), np.int32(-1))
    places = layout(documents, width)
    device = network.positions.device
    with torch.autocast("cuda", torch.bfloat16, enabled=device.type == "cuda"):
        flat = torch.from_numpy(ids.ravel()[places.places]).to(device)
        narrow = network.outputs(flat, places.positions.to(device), on_device(places.pieces, device))
    wanted = torch.from_numpy(targets.ravel()[places.places]).to(device)
    nats, likeliest = np.zeros(ids.size), np.zeros(ids.size, np.bool_)
    nats[places.places], likeliest[places.places] = _target_scores(narrow.float(), network.tokens.weight, wanted)
    starts = np.arange(len(sequences)) * width
    return ((nats[a : a + n], likeliest[a : a + n]) for a, n in zip(starts, lengths, strict=True))


def _target_scores(narrow: Tensor, table: Tensor, wanted: Tensor) -> tuple[Float64Array, BoolArray]:
    """`_token_scores` of (N, rank) outputs and (N,) wanted tokens, a few rows of logits at a time."""
    nats, likeliest = [], []
    for rows in logit_rows(len(wanted), len(table), narrow.device):
        logits = narrow[rows] @ table.T
        nats.append((logits.gather(1, wanted[rows, None])[:, 0] - logits.logsumexp(dim=1)).double())
        likeliest.append(logits.argmax(dim=1) == wanted[rows])
    return torch.cat(nats).cpu().numpy(), torch.cat(likeliest).cpu().numpy()
