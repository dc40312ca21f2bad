"""Units, what is packed: a document and its end-of-document token, cut into the fewest pieces if longer than a window.

A document of t tokens has n = t + 1 with its end-of-document token. For n <= L it is one unit; a longer one becomes
n // L pieces of L tokens and a tail of the rest, so only documents longer than a window are ever cut:

    L = 4, t = 9:   [0 1 2 3] [4 5 6 7] [8 eod]        piece 0, 1, 2 of lengths 4, 4, 2
    L = 4, t = 4:   [0 1 2 3] [eod]                    the end of document may stand alone

An empty document makes no unit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Units:
    """The units of some documents, in the order of the documents and of the pieces in each.

    Attributes:
        document: (N,) index of the document.
        document_start: (N,) first token of the piece in the document's own tokens.
        length: (N,) tokens of the unit with its end-of-document token.
    """

    document: Int64Array
    document_start: Int64Array
    length: Int64Array


def cut_documents(token_counts: Int64Array, window_tokens: int) -> Units:
    """Cut documents into units of at most `window_tokens`.

    Args:
        token_counts: (D,) tokens of each document without specials, >= 0.
        window_tokens: L.
    """
    lengths = np.where(token_counts > 0, token_counts + 1, 0)
    pieces = -(-lengths // window_tokens)
    document = np.repeat(np.arange(len(lengths), dtype=np.int64), pieces)
    first_unit = np.cumsum(pieces) - pieces
    piece = np.arange(len(document), dtype=np.int64) - first_unit[document]
    document_start = piece * window_tokens
    return Units(document, document_start, np.minimum(lengths[document] - document_start, window_tokens))


@dataclass(frozen=True)
class BucketRanks:
    """Where each order bucket starts to count the units of each length, as global slot numbers.

    The units of one length take that length's slots in metadata order. A bucket holds a contiguous run of that order,
    so its first slot of a length is the number of units of that length in the buckets before it: a prefix sum.

    Attributes:
        buckets: (B + 1,) row where each bucket starts in the arrays below.
        lengths: (R,) distinct lengths of each bucket, ascending within it.
        first_slots: (R,) the first slot of the bucket's units of that length.
    """

    buckets: Int64Array
    lengths: Int64Array
    first_slots: Int64Array

    def of_bucket(self, bucket: int, window_tokens: int) -> Int64Array:
        """(L + 1,) the first slot of each length in this bucket; 0 where it has none."""
        rows = slice(self.buckets[bucket], self.buckets[bucket + 1])
        slots = np.zeros(window_tokens + 1, dtype=np.int64)
        slots[self.lengths[rows]] = self.first_slots[rows]
        return slots


@dataclass(frozen=True)
class UnitCounts:
    """How many units of each length each order bucket holds; sorted by (length, bucket).

    Attributes:
        bucket: (R,) order bucket.
        length: (R,) tokens of the unit.
        count: (R,) units, > 0.
    """

    bucket: Int64Array
    length: Int64Array
    count: Int64Array

    def histogram(self) -> dict[int, int]:
        """Units per length over all buckets."""
        lengths, starts = np.unique(self.length, return_index=True)
        if not len(lengths):
            return {}
        totals = np.add.reduceat(self.count, starts)
        return dict(zip(lengths.tolist(), totals.tolist(), strict=True))

    def ranks(self, slot_lengths: Int64Array, length_first_slots: Int64Array, bucket_count: int) -> BucketRanks:
        """Exclusive prefix sums over the buckets within each length.

        Args:
            slot_lengths: (D,) the distinct lengths, ascending.
            length_first_slots: (D,) the number of each one's first slot.
            bucket_count: B; buckets are 0..B-1.
        """
        before = np.cumsum(self.count) - self.count
        lengths, starts = np.unique(self.length, return_index=True)
        nth = np.searchsorted(lengths, self.length)
        within = before - before[starts][nth] if len(starts) else before
        first = within + length_first_slots[np.searchsorted(slot_lengths, self.length)]
        order = np.lexsort((self.length, self.bucket))
        bounds = np.searchsorted(self.bucket[order], np.arange(bucket_count + 1))
        return BucketRanks(bounds.astype(np.int64), self.length[order], first[order])


def count_units(
    bucket: Int64Array, tail: Int64Array, documents: Int64Array, full_pieces: Int64Array, window_tokens: int
) -> UnitCounts:
    """Count units from counts of documents by what is left of them after their full pieces.

    Args:
        bucket: (R,) order bucket of a group of documents.
        tail: (R,) tokens of their last pieces, in 1..L.
        documents: (R,) documents of the group that are not empty.
        full_pieces: (R,) their pieces of L tokens before the last ones.
        window_tokens: L.
    """
    buckets = np.concatenate([bucket, bucket])
    lengths = np.concatenate([tail, np.full_like(tail, window_tokens)])
    units = np.concatenate([documents, full_pieces])
    keys, inverse = np.unique((lengths << 32 | buckets)[units > 0], return_inverse=True)
    counts = np.zeros(len(keys), dtype=np.int64)
    np.add.at(counts, inverse, units[units > 0])
    return UnitCounts(bucket=keys & 0xFFFFFFFF, length=keys >> 32, count=counts)
