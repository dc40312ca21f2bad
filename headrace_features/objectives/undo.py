"""Give the text of a document back from its tokens: sentinels out, prefix, middle and suffix in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace_features.objectives.sentinels import Sentinels


def undo(ids: Sequence[int], sentinels: Sentinels, end_id: int, decode: Callable[[list[int]], str]) -> str:
    """The text of a row, cut in three or whole.

    Args:
        ids: of the row, with or without its end token.
        sentinels: of the tokenizer.
        end_id: of the token that ends a document.
        decode: gives the text of ids of one piece, special tokens as they are.
    """
    own = list(ids[:-1] if len(ids) and ids[-1] == end_id else ids)
    places = {token: own.index(token) for token in sentinels if token in own}
    if len(places) < len(sentinels):
        return decode(own)
    prefix, middle, suffix = (places[token] for token in sentinels)
    ordered = [*sorted((prefix, middle, suffix)), len(own)]

    def piece(place: int) -> str:
        return decode(own[place + 1 : ordered[ordered.index(place) + 1]])

    if suffix == prefix + 1:  # PRE SUF suffix MID prefix middle: their texts follow one another
        return piece(middle) + piece(suffix)
    return piece(prefix) + piece(middle) + piece(suffix)
