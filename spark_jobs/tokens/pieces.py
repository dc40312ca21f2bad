"""Where the tokens of a document lie in its text, where they are not in its order (`tokens` with the column `pieces`).

token 0 1     3     6 7     tokens from `token` on are of the bytes [start, end) of the text, up to the next piece's
start -1 0    40    -1 9
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

PIECES: Final = "pieces"
SENTINELS: Final = "headrace.sentinels"
"""Property of such tables: JSON of the ids of tokens without text, by kind of document and by name."""
NO_TEXT, HEADER = -1, -2
"""In place of bytes: of a token that stands for no text, and of a text in front of the document."""


WITHOUT_BYTES: Final = {NO_TEXT: "sentinel", HEADER: "header"}


class TextPiece(NamedTuple):
    """Tokens [token, stop) of a document, and the bytes [start, end) of its text behind them, where they are known."""

    token: int
    stop: int
    start: int
    end: int | None


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


def sentinels_in(properties: Mapping[str, str]) -> set[int]:
    """The ids of tokens without text."""
    by_kind = json.loads(properties.get(SENTINELS, "{}")).values()
    return {int(number) for ids in by_kind for number in ids.values()}


def with_letters(file_text: str, sentinels: Iterable[int]) -> str:
    """A tokenizer.json whose sentinels are special, so that their names in texts are letters; as it is if they are."""
    declared, wanted = json.loads(file_text), set(sentinels)
    plain = [t for t in declared.get("added_tokens") or [] if t["id"] in wanted and not t.get("special")]
    for token in plain:
        token["special"] = True
    return json.dumps(declared) if plain else file_text


def without_prefix(file_text: str) -> str:
    """A tokenizer.json that puts no blank in front of a text, as for texts that go on; as it is if it never does."""
    declared = json.loads(file_text)
    for name, parts in (("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers")):
        stated = declared.get(name) or {}
        listed = stated.get(parts, [stated])
        kept = [part for part in listed if part.get("type") != "Prepend"]
        for part in kept:
            if part.get("type") == "Metaspace" and part.get("prepend_scheme", "always") != "never":
                part["prepend_scheme"] = "never"
            if part.get("add_prefix_space"):
                part["add_prefix_space"] = False
        if parts in stated:
            stated[parts] = kept
        elif kept != listed:
            declared[name] = None
    return file_text if declared == json.loads(file_text) else json.dumps(declared)
