"""Token ids of whole documents, and on which of them a loss is taken, as text blends serve them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blender_service.arrays import Int32Array, Int64Array
from blender_service.exceptions import PackedTableError
from headrace.kernels.control_names import control_names
from headrace.kernels.fixed_texts import fixed_ids
from headrace.kernels.token_bounds import character_bounds
from headrace.kernels.tokenizer_file import open_tokenizer

BATCH_CHARACTERS: Final = 1 << 20  # encoded at once; the library needs about 115 bytes of memory a byte


class Encoded(NamedTuple):
    """Tokens of D documents, one after the other, each with its end token; (D + 1,) first one of each."""

    ids: Int32Array
    starts: Int64Array


class EncodedDocuments(NamedTuple):
    """Tokens of the units of D documents, one unit after the other, each with its end token.

    Attributes:
        ids: (T,).
        starts: (U + 1,) first token of each unit.
        trainable: (T,) whether a loss is taken; None: on each.
        unit_counts: (D,) units of each document; None: one.
        refused: documents without a unit, by the reason.
        changed: (U,) whether an objective made a unit another than it was measured as; None: none.
    """

    ids: Int32Array
    starts: Int64Array
    trainable: NDArray[np.bool_] | None = None
    unit_counts: Int64Array | None = None
    refused: Mapping[str, int] = MappingProxyType({})
    changed: NDArray[np.bool_] | None = None

    def digested(self) -> Int32Array:
        """(T,) ids for a digest, with the mask where a rule and not a column of the table makes it."""
        if self.unit_counts is None or self.trainable is None:
            return self.ids
        return np.asarray(self.ids * 2 + self.trainable, np.int32)


class Units(NamedTuple):
    """Units of D documents, for objectives.

    Attributes:
        counts: (D,) units of each document.
        ends: (U,) character behind the last of each, in its document.
        room: (U,) most tokens of each, its end token counted.
    """

    counts: Int64Array
    ends: Int64Array
    room: Int32Array


class DividedDocuments(NamedTuple):
    """How documents are divided.

    Attributes:
        units: of the documents.
        plain: what the units are where no objective changes them.
    """

    units: Units
    plain: EncodedDocuments


Spans = Sequence[Mapping[str, int]] | None
"""Where a loss is taken, as `start` and `end` in characters of a document; None for all of it."""


class TextEncoder:
    """Gives the ids of `tokenizers` for whole documents: no special tokens, whose names are encoded as text."""

    def __init__(self, file: str, end_of_document_id: int) -> None:
        """Read a tokenizer.json.

        Raises:
            PackedTableError: it is none, or has a field able to change ids unseen.
        """
        try:
            self._tokenizer = open_tokenizer(file)
        except ValueError as error:
            raise PackedTableError(f"the tokenizer of a table of text: {error}") from error
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.post_processor = None  # of no effect on ids without special tokens; it trims offsets
        self._normalize = self._tokenizer.normalizer and self._tokenizer.normalizer.normalize_str
        self._end = np.array([end_of_document_id], dtype=np.int32)
        self.control_names = control_names(file, self._ids_of)

    def _ids_of(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Encode documents."""
        return self._joined(self._encodings(texts, self._tokenizer.encode_batch_fast))

    def encode_trainable(self, texts: Sequence[str], spans: Sequence[Spans]) -> tuple[Encoded, NDArray[np.bool_]]:
        """Encode documents, each with the spans of its loss; (T,) whether it is taken on a token.

        It is slower than `encode`, for the library also says which characters a token is of.
        """
        masks: list[NDArray[np.bool_]] = []

        def noted() -> Iterator[Any]:
            for text, text_spans, encoding in zip(
                texts, spans, self._encodings(texts, self._tokenizer.encode_batch), strict=True
            ):
                masks.append(trainable(text, text_spans, encoding.offsets, self._normalize))
                yield encoding

        return self._joined(noted()), np.concatenate([*masks, np.empty(0, dtype=bool)])

    def fixed_ids(self, file: str) -> str:
        """The ids telling encoders of a tokenizer.json apart (`fixed_texts`)."""
        return fixed_ids(file, lambda texts: [row.ids for row in self._encodings(texts, self._tokenizer.encode_batch)])

    def _encodings(self, texts: Sequence[str], encode: Callable[..., list[Any]]) -> Iterator[Any]:
        """Let the library encode documents, about a million characters at a time."""
        batch: list[str] = []
        characters = 0
        for number, text in enumerate(texts, start=1):
            batch.append(text)
            characters += len(text)
            if characters >= BATCH_CHARACTERS or number == len(texts):
                yield from encode(batch, add_special_tokens=False)
                batch, characters = [], 0

    def _joined(self, encodings: Iterable[Any]) -> Encoded:
        """The ids of encodings, and the token that ends a document behind each."""
        parts: list[Int32Array] = []
        lengths: list[int] = []
        for encoding in encodings:
            parts += (np.array(encoding.ids, dtype=np.int32), self._end)
            lengths.append(len(parts[-2]) + 1)
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
        return Encoded(np.concatenate([*parts, np.empty(0, dtype=np.int32)]), starts)


def trainable(
    text: str, spans: Spans, offsets: Sequence[tuple[int, int]], normalize: Callable[[str], str] | None = None
) -> NDArray[np.bool_]:
    """Say which tokens of a document a loss is taken on: those whose characters all lie in one span.

    The end token belongs to the span reaching the end of the text.

    Args:
        text: of the document.
        spans: [start, end) in characters; None for the whole document.
        offsets: [start, end) of each token in characters, see `character_bounds`.
        normalize: the tokenizer's normalizer; None if it has none.

    Returns:
        (T + 1,) one for each token, and one for the document's end token.
    """
    if spans is None:
        return np.ones(len(offsets) + 1, dtype=bool)
    bounds = np.array(sorted((span["start"], span["end"]) for span in spans), dtype=np.int64).reshape(-1, 2)
    starts, ends = character_bounds(text, offsets, normalize)
    furthest = np.concatenate([[-1], np.maximum.accumulate(bounds[:, 1])])  # end of the first n spans
    begun = np.searchsorted(bounds[:, 0], starts, side="right")  # spans that begin at or before a token
    return np.append(ends <= furthest[begun], furthest[-1] >= len(text))
