"""Refuse rows unfit for the reader: another tokenizer, window length, vocabulary or dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from blender_service.exceptions import WindowMismatchError


class Window(Protocol):
    """The facts of a blend's windows, on the server (`WindowFacts`) or on the client (`Blend`)."""

    @property
    def window_tokens(self) -> int:
        """Length of a row."""

    @property
    def tokenizer_sha256(self) -> str:
        """SHA-256 of the tokenizer's file."""

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids."""

    @property
    def token_bytes(self) -> int:
        """Width of a token id: 2 or 4."""


@dataclass(frozen=True)
class ExpectedWindow:
    """The window expected by a reader; facts of 0 or empty are not checked.

    Attributes:
        window_tokens: length of a row.
        tokenizer_sha256: SHA-256 of the tokenizer's file.
        vocabulary_size: number of token ids.
        token_bytes: width of a token id in its arrays, 2 (uint16) or 4 (uint32).
    """

    window_tokens: int = 0
    tokenizer_sha256: str = ""
    vocabulary_size: int = 0
    token_bytes: int = 0

    def check(self, blend_id: str, window: Window) -> None:
        """Compare with a blend.

        Raises:
            WindowMismatchError: naming the first differing fact.
        """
        if self.tokenizer_sha256 and self.tokenizer_sha256 != window.tokenizer_sha256:
            raise WindowMismatchError(
                f"blend {blend_id}: the reader's tokenizer {self.tokenizer_sha256} is not the blend's "
                f"{window.tokenizer_sha256}; load the one named in headrace.tokenizer-sha256"
            )
        if self.window_tokens and self.window_tokens != window.window_tokens:
            raise WindowMismatchError(
                f"blend {blend_id}: the reader wants windows of {self.window_tokens} tokens, the blend has "
                f"{window.window_tokens}; choose a blend of tables packed to {self.window_tokens}"
            )
        if self.vocabulary_size and self.vocabulary_size != window.vocabulary_size:
            raise WindowMismatchError(
                f"blend {blend_id}: the reader's vocabulary has {self.vocabulary_size} tokens, the blend's "
                f"{window.vocabulary_size}; build the model for {window.vocabulary_size}"
            )
        if self.token_bytes and self.token_bytes != window.token_bytes:
            raise WindowMismatchError(
                f"blend {blend_id}: the reader wants uint{8 * self.token_bytes} token ids, the blend's "
                f"{window.vocabulary_size} tokens come as uint{8 * window.token_bytes}; read them as that"
            )
