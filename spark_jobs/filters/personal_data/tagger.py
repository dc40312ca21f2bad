"""A small model that tags names, places and addresses, trained by its user on labelled spans.

What patterns cannot find is found by a sequence of labels: each token begins a span of some kind, goes on with one, or
is outside. The model is a file of a few hundred kilobytes, the same for the same table and seed, and no better than the
texts that it was trained on: see docs/prepare/filters_personal.md for figures on texts of other templates.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_jobs.arrays import BoolArray, Int64Array, UInt64Array
from spark_jobs.exceptions import InputError
from spark_jobs.filters.personal_data.find import Span
from spark_jobs.filters.personal_data.tagger_kernels import (
    ROWS,
    add_differences,
    best_labels,
    token_hashes,
    tokenize,
)
from spark_jobs.text.text_columns import utf8_buffer

_FORMAT: Final = 1
_OUTSIDE: Final = 0
_BYTES_AT_ONCE: Final = 1 << 20


@dataclass(frozen=True)
class Lists:
    """Words of lists (gazetteers): of first names, cities and the like. A model has those that it was trained with.

    Attributes:
        words: (W,) hashes of words in small letters, ascending.
        bits: (W,) the lists that each is in, two bits a list: as the first word of an entry, as a later one.
    """

    words: UInt64Array = field(default_factory=lambda: np.zeros(0, np.uint64))
    bits: UInt64Array = field(default_factory=lambda: np.zeros(0, np.uint64))

    @classmethod
    def of(cls, written: Mapping[str, Iterable[str]]) -> Lists:
        """Lists by name, each of words and phrases; marks and digits in them are left out.

        Raises:
            InputError: there are more than 31.
        """
        if len(written) > 31:
            raise InputError(f"tagger: {len(written)} lists; 31 are read, put some together")
        found: dict[int, int] = {}
        for place, name in enumerate(sorted(written)):
            for entry in written[name]:
                data = entry.encode("utf-8")
                spans, hashes = _tokens(data, cls())
                own = [h for at, h in zip(spans[:, 0], hashes[:, 0].tolist(), strict=True) if _is_letter(data[at])]
                for number, word in enumerate(own):
                    found[word] = found.get(word, 0) | 1 << 2 * place + min(number, 1)
        words = sorted(found)
        return cls(np.array(words, np.uint64), np.array([found[word] for word in words], np.uint64))

    def bits_of(self, words: UInt64Array) -> UInt64Array:
        """(N,) the lists that words are in."""
        at = np.minimum(np.searchsorted(self.words, words), len(self.words) - 1)
        return np.where(self.words[at] == words, self.bits[at], np.uint64(0))


def train(table: pa.Table, seed: int, epochs: int = 8, lists: Mapping[str, Iterable[str]] | None = None) -> bytes:
    """Train a tagger on labelled spans.

    Args:
        table: `content`: strings; `spans`: lists of struct<start, end, kind, ..>, bytes of the text's UTF-8.
        seed: of the order in which texts are seen.
        epochs: how often each is seen.
        lists: words and phrases by name, such as of cities; which of them a capitalized word is in is a feature.

    Raises:
        InputError: a column is missing, or no span has a kind.
    """
    missing = {"content", "spans"} - set(table.column_names)
    if missing:
        raise InputError(f"tagger: the table has no column {sorted(missing)[0]!r}; it needs content and spans")
    spans = table.column("spans").to_pylist()
    kinds = sorted({span["kind"] for of_text in spans for span in of_text})
    if not kinds:
        raise InputError(
            f"tagger: none of {len(spans)} texts has a labelled span; label some, and texts without any too"
        )
    known = Lists.of(lists or {})
    examples = []
    for content, of_text in zip(table.column("content").to_pylist(), spans, strict=True):
        tokens, hashes = _tokens(content.encode("utf-8"), known)
        examples.append((hashes, _labels(tokens, of_text, kinds)))
    width = 2 * len(kinds) + 1
    weights, moves = np.zeros((ROWS, width), np.float32), np.zeros((width + 1, width), np.float32)
    sums, move_sums = np.zeros(weights.shape), np.zeros(moves.shape)
    allowed, step, random = _allowed(width), 1, np.random.default_rng(seed)
    for _ in range(epochs):
        for k in random.permutation(len(examples)).tolist():
            hashes, truth = examples[k]
            guess, _ = best_labels(hashes, weights, moves, allowed)
            if not np.array_equal(guess, truth):
                add_differences(hashes, truth, guess, step, weights, moves, sums, move_sums)
            step += 1
    file = io.BytesIO()
    np.savez_compressed(
        file,
        allow_pickle=False,
        weights=(weights - sums / step).astype(np.float16),
        moves=(moves - move_sums / step).astype(np.float32),
        kinds=np.array(kinds),
        format=np.array(_FORMAT),
        **({"listed": known.words, "listed_bits": known.bits} if len(known.words) else {}),
    )
    return file.getvalue()


@dataclass(frozen=True)
class Tagger:
    """A trained model.

    Attributes:
        kinds: that it tags.
        weights: (ROWS, 2 K + 1) of each feature for: outside, then each kind's first token, then its others.
        moves: (2 K + 2, 2 K + 1) of each label after each other.
        lists: that it was trained with.
    """

    kinds: tuple[str, ...]
    weights: NDArray[np.float32]
    moves: NDArray[np.float32]
    lists: Lists = Lists()

    def tag(self, content: pa.Array) -> list[list[Span]]:
        """Tag each text.

        Returns:
            Spans of each text by start, none overlapping, with the rule `tagger`. Their confidence falls with the lead
            of the label that was nearest to losing; it orders findings and is no probability.
        """
        offsets, buffer = utf8_buffer(content)
        allowed = _allowed(self.weights.shape[1])
        found: list[list[Span]] = []
        for low, high in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            of_text: list[Span] = []
            start = low
            while start < high:
                end = _cut(buffer, start, high)
                tokens, hashes = _tokens(bytes(buffer[start:end]), self.lists)
                labels, lead = best_labels(hashes, self.weights, self.moves, allowed)
                of_text += self._spans(tokens + (start - low), labels, lead)
                start = end
            found.append(of_text)
        return found

    def _spans(self, tokens: Int64Array, labels: Int64Array, lead: NDArray[np.float64]) -> list[Span]:
        """Runs of labels as spans."""
        firsts = np.flatnonzero((labels > 0) & (labels <= len(self.kinds)))
        spans = []
        for first in firsts.tolist():
            last = first
            while last + 1 < len(labels) and labels[last + 1] == labels[first] + len(self.kinds):
                last += 1
            sure = float(1 / (1 + np.exp(-lead[first : last + 1].min() / 4)))
            kind = self.kinds[labels[first] - 1]
            spans.append(Span(int(tokens[first, 0]), int(tokens[last, 1]), kind, "tagger", sure))
        return spans


def load(model: bytes) -> Tagger:
    """Read a model that `train` made.

    Raises:
        InputError: the bytes are no model, or one of another format.
    """
    try:
        with np.load(io.BytesIO(model), allow_pickle=False) as arrays:
            if int(arrays["format"]) != _FORMAT:
                raise InputError(
                    f"tagger: the model has format {arrays['format']}, this reads {_FORMAT}; train it again"
                )
            kinds, weights, moves = tuple(arrays["kinds"].tolist()), arrays["weights"], arrays["moves"]
            lists = Lists(arrays["listed"], arrays["listed_bits"]) if "listed" in arrays else Lists()
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise InputError(f"tagger: {len(model)} bytes are no model ({error}); train makes one") from error
    width = 2 * len(kinds) + 1
    if weights.shape != (ROWS, width) or moves.shape != (width + 1, width):
        raise InputError(f"tagger: weights of shape {weights.shape} for {len(kinds)} kinds; the file is damaged")
    if lists.words.shape != lists.bits.shape:
        raise InputError(f"tagger: {len(lists.bits)} bits for {len(lists.words)} listed words; the file is damaged")
    return Tagger(kinds, weights.astype(np.float32), moves, lists)


def _tokens(data: bytes, lists: Lists) -> tuple[Int64Array, UInt64Array]:
    """(N, 2) byte spans of a text's tokens, and (N, 5) hashes of them, or with lists (N, 6)."""
    array = np.frombuffer(data, np.uint8)
    spans = np.empty((len(array), 2), np.int64)
    spans = spans[: tokenize(array, spans)].copy()
    hashes = token_hashes(array, spans)
    if not len(lists.words):
        return spans, hashes
    first = array[spans[:, 0]]
    is_small = (first >= ord("a")) & (first <= ord("z"))
    return spans, np.column_stack([hashes, np.where(is_small, np.uint64(0), lists.bits_of(hashes[:, 0]))])


def _is_letter(byte: int) -> bool:
    return byte >= 128 or chr(byte).isalpha()


def _labels(tokens: Int64Array, spans: list[dict[str, Any]], kinds: list[str]) -> Int64Array:
    """The label of each token: outside, `1 + kind` where a span begins, `1 + K + kind` where it goes on."""
    labels = np.full(len(tokens), _OUTSIDE, np.int64)
    for span in spans:
        inside = np.flatnonzero((tokens[:, 0] < span["end"]) & (tokens[:, 1] > span["start"]))
        label = 1 + kinds.index(str(span["kind"]))
        labels[inside] = label + len(kinds)
        labels[inside[:1]] = label
    return labels


def _allowed(width: int) -> BoolArray:
    """(L + 1, L) which label may follow which: a span goes on only where one of its kind began."""
    kinds = width // 2
    allowed = np.ones((width + 1, width), np.bool_)
    allowed[:, 1 + kinds :] = False
    for kind in range(kinds):
        allowed[[1 + kind, 1 + kinds + kind], 1 + kinds + kind] = True
    return allowed


def _cut(buffer: memoryview, low: int, high: int) -> int:
    """Where a text may be cut so that memory stays bounded: after a line end or blank, else before a character."""
    if high - low <= _BYTES_AT_ONCE:
        return high
    end = low + _BYTES_AT_ONCE
    piece = bytes(buffer[end - 4096 : end])
    cut = max(piece.rfind(b"\n"), piece.rfind(b" ")) + 1
    if cut:
        return end - 4096 + cut
    while buffer[end] & 0xC0 == 0x80:
        end -= 1
    return end
