"""What all windows of a packed table share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class WindowForm:
    """Facts common to all windows of a packed table.

    Attributes:
        window_tokens: length of a window, L.
        end_of_document_id: token after the last piece of a document.
        padding_id: token after the last segment of a window.
        vocabulary_size: ids are below it.
        beginning_of_document_id: token before the first piece of a document; None where there is none.
        masked: whether all ids, these too, are doubled and carry whether they are trained on (`masks`).
    """

    window_tokens: int
    end_of_document_id: int
    padding_id: int
    vocabulary_size: int
    beginning_of_document_id: int | None = None
    masked: bool = False

    def with_masks(self) -> WindowForm:
        """The form of windows with masks, of documents without a token at their beginning."""
        ids = (2 * self.end_of_document_id, 2 * self.padding_id, 2 * self.vocabulary_size)
        return WindowForm(self.window_tokens, *ids, masked=True)

    @property
    def id_type(self) -> np.dtype[np.unsignedinteger]:
        """Narrowest integer type for every id of the vocabulary; ids are shuffled in it."""
        return np.dtype("<u2") if self.vocabulary_size <= 1 << 16 else np.dtype("<u4")
