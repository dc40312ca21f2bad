"""Pieces of documents and counts of units. A unit, what is packed, is a piece or a run of pieces of one repository.

A document of t tokens has n tokens with its special ones: the end of document, and a beginning of document where the
config asks for one. For n <= L it is one piece. A longer one is cut into the fewest pieces, ceil(n / L), every L tokens
or where `line_cuts` says. A document of several rows (`tokens.MASKED_TOKENS`) is cut where they begin, each as if it
were a document:

    L = 4, t = 9:   [0 1 2 3] [4 5 6 7] [8 eod]        pieces of lengths 4, 4, 2
    L = 4, t = 4:   [0 1 2 3] [eod]                    the end of document may stand alone

With length classes it is cut into as many of the longest as it has, then of the next; what is left is shorter than all:

    4 2, t = 9:     [0 1 2 3] [4 5 6 7] [8 eod]        classes 4, 4, 2
    4 2, t = 6:     [0 1 2 3] [4 5] [eod]              classes 4, 2, and less than 2

An empty document makes no piece. `repository_runs` decides which pieces form one unit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spark_jobs.arrays import BoolArray, Int64Array


@dataclass(frozen=True)
class Pieces:
    """The pieces of some documents, in the order of the documents and of the pieces in each.

    Attributes:
        document: (N,) index of the document.
        start: (N,) first token of the piece in the document with its specials.
        length: (N,) tokens of the piece, specials included.
        begins: (N,) whether the piece holds the beginning-of-document token.
        ends: (N,) whether the piece holds the end-of-document token.
        first: (N,) whether it is the first piece of its document.
        leading: 1 where documents have a beginning-of-document token, else 0.
    """

    document: Int64Array
    start: Int64Array
    length: Int64Array
    begins: BoolArray
    ends: BoolArray
    first: BoolArray
    leading: int

    @property
    def document_start(self) -> Int64Array:
        """(N,) first token of the piece in the document's own tokens."""
        return np.maximum(self.start - self.leading, 0)

    @property
    def own_tokens(self) -> Int64Array:
        """(N,) tokens of the piece without specials."""
        return self.length - self.begins - self.ends


@dataclass(frozen=True)
class Cuts:
    """Where documents are cut, apart from every L tokens.

    Attributes:
        document: (C,) index of each cut's document, ascending.
        start: (C,) first token of the piece after the cut, in the document with its specials; ascending in each.
    """

    document: Int64Array
    start: Int64Array


def with_specials(token_counts: Int64Array, leading: int) -> Int64Array:
    """(D,) token counts with specials: t -> t + 1 + leading; 0 stays 0."""
    return np.where(token_counts > 0, token_counts + 1 + leading, 0)


def cut_documents(
    token_counts: Int64Array,
    window_tokens: int,
    leading: int = 0,
    cuts: Cuts | None = None,
    classes: tuple[int, ...] = (),
) -> Pieces:
    """Cut documents, where they are to be cut and then into the fewest pieces of at most `window_tokens`.

    Args:
        token_counts: (D,) tokens of each document without specials, >= 0.
        window_tokens: L.
        leading: 1 where documents have a beginning-of-document token, else 0.
        cuts: where to cut documents; what lies between is cut every L tokens.
        classes: lengths to cut it into instead, descending.
    """
    lengths = row_lengths = with_specials(token_counts, leading)
    document, start = np.arange(len(lengths), dtype=np.int64), np.zeros(len(lengths), dtype=np.int64)
    if cuts is not None and len(cuts.document):
        document, start = np.append(document, cuts.document), np.append(start, cuts.start)
        order = np.argsort(document, kind="stable")
        document, start = document[order], start[order]
        row_lengths = pieces_between(document, start, lengths, leading).length
    row, within = _decomposed(row_lengths, classes or (window_tokens,))
    return pieces_between(document[row], start[row] + within, lengths, leading)


def _decomposed(lengths: Int64Array, classes: tuple[int, ...]) -> tuple[Int64Array, Int64Array]:
    """(N,) row of each piece, and (N,) where it starts in the row."""
    counts = np.empty((len(lengths), len(classes) + 1), np.int64)
    rest = lengths
    for number, length in enumerate(classes):
        counts[:, number], rest = np.divmod(rest, length)
    counts[:, -1] = rest > 0
    row = np.repeat(np.arange(len(lengths)), counts.sum(axis=1))
    sizes = np.repeat(np.tile(np.array([*classes, 0]), len(lengths)), counts.reshape(-1))  # the last of a row ends it
    before = np.cumsum(sizes) - sizes
    firsts = np.searchsorted(row, np.arange(len(lengths)))
    return row, before - before[np.minimum(firsts, max(len(row) - 1, 0))][row] if len(row) else before


def pieces_between(document: Int64Array, start: Int64Array, lengths: Int64Array, leading: int) -> Pieces:
    """Build `Pieces` from where they start: each ends at the next one's start, the last of a document at its end.

    Args:
        document: (N,) index of the document, ascending.
        start: (N,) first token of each piece in the document with its specials, the first of a document being 0.
        lengths: (D,) tokens of the documents with their specials.
        leading: 1 where documents have a beginning-of-document token, else 0.
    """
    first = start == 0
    ends = np.append(first[1:], True) if len(first) else first
    following = np.append(start[1:], 0) if len(start) else start
    stop = np.where(ends, lengths[document], following)
    return Pieces(document, start, stop - start, first & bool(leading), ends, first, leading)


@dataclass(frozen=True)
class BucketRanks:
    """The first slot of each order bucket's units of each length.

    The units of one length take that length's slots in metadata order. A bucket holds a contiguous run of that order,
    so its first slot of a length is the number of units of that length in the buckets before it: a prefix sum.

    Attributes:
        bucket: (R,) ascending order buckets.
        length: (R,) distinct lengths of each bucket, ascending within it.
        first_slot: (R,) the first slot of the bucket's units of that length.
    """

    bucket: Int64Array
    length: Int64Array
    first_slot: Int64Array

    def of_bucket(self, bucket: int, window_tokens: int) -> Int64Array:
        """(L + 1,) the first slot of each length in this bucket; 0 where it has none."""
        rows = slice(*np.searchsorted(self.bucket, [bucket, bucket + 1]).tolist())
        slots = np.zeros(window_tokens + 1, dtype=np.int64)
        slots[self.length[rows]] = self.first_slot[rows]
        return slots


@dataclass(frozen=True)
class UnitCounts:
    """Number of units by order bucket and length.

    Attributes:
        bucket: (R,) order bucket.
        length: (R,) tokens of the unit.
        count: (R,) units, > 0; every (bucket, length) comes once.
    """

    bucket: Int64Array
    length: Int64Array
    count: Int64Array

    def ranks(self, slot_lengths: Int64Array, length_first_slots: Int64Array) -> BucketRanks:
        """First slots of each bucket: exclusive prefix sums of `count` over the buckets within each length.

        Args:
            slot_lengths: (D,) the distinct lengths, ascending.
            length_first_slots: (D,) the number of each one's first slot.
        """
        order = np.lexsort((self.bucket, self.length))
        bucket, length, count = self.bucket[order], self.length[order], self.count[order]
        before = np.cumsum(count) - count
        _, starts, sizes = np.unique(length, return_index=True, return_counts=True)
        within = before - np.repeat(before[starts], sizes)
        first = within + length_first_slots[np.searchsorted(slot_lengths, length)]
        by_bucket = np.lexsort((length, bucket))
        return BucketRanks(bucket[by_bucket], length[by_bucket], first[by_bucket])
