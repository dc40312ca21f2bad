"""Which tokens of which documents stand in which row of a text blend: arithmetic on lengths, no text is read.

Neighbouring documents of a table make groups of `group_documents`. A document longer than a row is cut into
whole rows and a rest; the pieces of a group are put, the longest first, each into the row of its group where it leaves
the least space. With groups of one document each document begins a row of its own::

    window 8, groups of 2     a: 11 tokens, b: 4 | c: 9, d: 2       rows  aaaaaaaa | aaabbbb. | cccccccc | cdd.....
    window 8, groups of 1     the same documents                    rows  aaaaaaaa | aaa..... | bbbb.... | cccccccc | ..
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from blender_service.arrays import Int32Array, Int64Array
from headrace.kernels.compiling import compiled

MOST_GROUP_DOCUMENTS: Final = 4096  # best fit looks at every row of the group for every piece
EMPTY, TOO_LONG = "empty", "longer_than_a_row"


class TextRule(BaseModel):
    """How rows are made of tables of text; the tokenizer is that of the window facts, named by its hash."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    group_documents: int = Field(ge=1, le=MOST_GROUP_DOCUMENTS, description="neighbouring documents packed together")
    whole: bool = Field(description="whether a document that is longer than a row is left out instead of cut")
    text: str = Field(min_length=1, description="column of the text")
    doc_id: str = Field(min_length=1, description="column of the document's id")
    trainable: str | None = Field(None, description="column of the spans that a loss is taken on")
    template: str | None = Field(None, description="column of the hash of the chat template")
    tools: str | None = Field(None, description="column of definitions of tools, where the text is messages")
    conversations: str | None = Field(None, description="hash of the rule that renders messages; none for plain text")
    objectives: str | None = Field(None, description="hash of what documents become in each epoch; none: as they are")


class RowPieces(NamedTuple):
    """U pieces of documents, ascending by row, inside a row by document.

    Attributes:
        documents: (U,) index of the document, int64.
        firsts: (U,) first token, in the document's own tokens, int64.
        tokens: (U,) number of tokens, int32.
        rows: (U,) row, from 0, int64.
    """

    documents: Int64Array
    firsts: Int64Array
    tokens: Int32Array
    rows: Int64Array


@compiled
def pack(lengths: Int32Array, window: int, group: int, whole: bool) -> tuple[RowPieces, Int64Array]:
    """Put documents into rows; one of a single token, its end, is empty and has no row.

    Args:
        lengths: (D,) tokens of each document, with the one that ends it; the first one begins a group.
        window: tokens of a row.
        group: documents of a group.
        whole: leave documents longer than a row out.

    Returns:
        The pieces, and the (G,) number of rows of each group.
    """
    counts = np.zeros(lengths.size, dtype=np.int64)
    for document in range(lengths.size):
        if lengths[document] > 1 and (lengths[document] <= window or not whole):
            counts[document] = (lengths[document] + window - 1) // window
    total = counts.sum()
    documents, firsts = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64)
    tokens, rows = np.empty(total, dtype=np.int32), np.empty(total, dtype=np.int64)
    groups = (lengths.size + group - 1) // group
    row_counts = np.zeros(groups, dtype=np.int64)
    at = base = 0
    for number in range(groups):
        begin = at
        for document in range(number * group, min(lengths.size, (number + 1) * group)):
            for piece in range(counts[document]):
                documents[at], firsts[at] = document, piece * window
                tokens[at] = min(window, lengths[document] - piece * window)
                at += 1
        free = np.empty(at - begin, dtype=np.int64)
        used = 0
        for place in np.argsort(-tokens[begin:at], kind="mergesort"):  # stable: equal ones in the order of documents
            size = tokens[begin + place]
            best = -1
            if size < window:  # a whole row fits into no begun one
                for row in range(used):
                    if free[row] >= size and (best < 0 or free[row] < free[best]):
                        best = row
            if best < 0:
                best, used = used, used + 1
                free[best] = window
            free[best] -= size
            rows[begin + place] = base + best
        base += used
        row_counts[number] = used
    order = np.argsort(rows, kind="mergesort")
    return RowPieces(documents[order], firsts[order], tokens[order], rows[order]), row_counts


@compiled
def lay_out(
    pieces: RowPieces, ids: Int32Array, starts: Int64Array, windows: NDArray[np.unsignedinteger]
) -> tuple[Int32Array, Int32Array]:
    """Copy the pieces of documents into rows, one after the other.

    Args:
        pieces: rows and documents counted from the first of those given here.
        ids: tokens of the documents, one document after the other.
        starts: (D + 1,) first of them of each document.
        windows: (R, L) filled with padding.

    Returns:
        (U,) first token of each piece, in its row; (R,) tokens of each row.
    """
    places = np.empty(pieces.tokens.size, dtype=np.int32)
    filled = np.zeros(windows.shape[0], dtype=np.int32)
    for piece in range(places.size):
        row, count = pieces.rows[piece], pieces.tokens[piece]
        source = starts[pieces.documents[piece]] + pieces.firsts[piece]
        places[piece] = filled[row]
        for token in range(count):
            windows[row, filled[row] + token] = ids[source + token]
        filled[row] += count
    return places, filled


def dropped(lengths: Int32Array, window: int, whole: bool) -> dict[str, int]:
    """Count the documents without a row, by the reason; reasons without any are left out."""
    counts = {EMPTY: int((lengths <= 1).sum()), TOO_LONG: int((lengths > window).sum()) if whole else 0}
    return {reason: count for reason, count in counts.items() if count}


def lay_out_mask(
    mask: NDArray[np.bool_], pieces: RowPieces, starts: Int64Array, shape: tuple[int, ...]
) -> NDArray[np.bool_]:
    """(R, L) whether a loss is taken on a token, laid out as the tokens are; false in the padding."""
    windows = np.zeros(shape, dtype=np.uint16)
    lay_out(pieces, mask.astype(np.int32), starts, windows)
    return windows.astype(bool)


def some(pieces: RowPieces, chosen: NDArray[np.bool_]) -> RowPieces:
    """Give the chosen ones."""
    return RowPieces(pieces.documents[chosen], pieces.firsts[chosen], pieces.tokens[chosen], pieces.rows[chosen])
