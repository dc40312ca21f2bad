"""What all windows of a packed table share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

RULE_CODES = 128
"""Codes of masks with rules: 126 of these, so that ids of a vocabulary of 2^24 tokens are numbers of 31 bits."""


@dataclass(frozen=True)
class WindowForm:
    """Facts common to all windows of a packed table.

    Attributes:
        window_tokens: length of a window, L.
        end_of_document_id: token after the last piece of a document.
        padding_id: token after the last segment of a window.
        vocabulary_size: ids are below it.
        beginning_of_document_id: token before the first piece of a document; None where there is none.
        codes: all ids, these too, are multiplied by it, to carry the code of their mask (`masks`); 1 for no masks.
    """

    window_tokens: int
    end_of_document_id: int
    padding_id: int
    vocabulary_size: int
    beginning_of_document_id: int | None = None
    codes: int = 1

    @property
    def masked(self) -> bool:
        """Whether ids carry masks."""
        return self.codes > 1

    def with_masks(self, codes: int) -> WindowForm:
        """The form of windows with masks, of documents without a token at their beginning."""
        ids = (codes * self.end_of_document_id, codes * self.padding_id, codes * self.vocabulary_size)
        return WindowForm(self.window_tokens, *ids, codes=codes)

    @property
    def id_type(self) -> np.dtype[np.unsignedinteger]:
        """Narrowest integer type for every id of the vocabulary; ids are shuffled in it."""
        return np.dtype("<u2") if self.vocabulary_size <= 1 << 16 else np.dtype("<u4")
