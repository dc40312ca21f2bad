"""Where the tokens of a document lie in its text, where they are not in its order (`tokens` with the column `pieces`).

token 0 1     3     6 7     tokens from `token` on are of the bytes [start, end) of the text, up to the next piece's
start -1 0    40    -1 9
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

PIECES: Final = "pieces"
NO_TEXT, HEADER = -1, -2
"""In place of bytes: of a token that stands for no text, and of a text in front of the document."""


class TextPiece(NamedTuple):
    """Tokens [token, stop) of a document, and the bytes [start, end) of its text behind them."""

    token: int
    stop: int
    start: int
    end: int


def piece_of(pieces: Sequence[Mapping[str, int]], token: int, token_count: int) -> TextPiece:
    """The piece of a token.

    Args:
        pieces: of a document, by their tokens; those without any may be among them.
        token: number of one of its tokens.
        token_count: how many it has.
    """
    at = max(number for number, piece in enumerate(pieces) if piece["token"] <= token)
    stop = next((piece["token"] for piece in pieces[at + 1 :]), token_count)
    return TextPiece(pieces[at]["token"], stop, pieces[at]["start"], pieces[at]["end"])
