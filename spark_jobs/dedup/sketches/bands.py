"""Bands: groups of signature values; documents equal in all values of one band become candidates.

A scheme is solved from the wanted recall at the threshold, the size of the corpus and its *background*, the
similarities of random pairs. More rows per band give fewer false candidates and need more bands for the same recall.
*Disjoint* bands share no value, so their number times their rows is at most 256: enough for about 10^6 to 10^7
documents. *Overlapping* bands take random values of the same 256 each, so there may be many more of them.

With p = J + (1 - J) / 256, the probability that two values agree, a pair of similarity J becomes a candidate with

    disjoint      1 - (1 - p^rows)^bands
    overlapping   1 - sum over a of Binomial(a; 256, p) * (1 - C(a, rows) / C(256, rows))^bands,

a being the number of agreeing values: given a, each band, a random subset, agrees with probability C(a, r) / C(256, r).

A *false candidate* is a pair of the background below `false_below` (by default the threshold itself) that becomes a
candidate. Their number per document, (N - 1) * P[candidate and J < false_below], counts each pair at both of its ends
and grows with the corpus.

The cost of a document is counted in bytes: 16 for the key of each band, and 160 for each false candidate, which is
nearly always dropped when the 256 values of both signatures are compared, before a bag is read. A corpus may grow
without a limit: where the wanted recall would cost more than a document's budget, it is lowered to what that buys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace.kernels.compiling import compiled
from headrace.kernels.mixing import GOLDEN
from spark_jobs.arrays import Float64Array, Int16Array, Int64Array, UInt8Array, UInt64Array
from spark_jobs.dedup.sketches.darts import SIGNATURE_VALUES, mix64
from spark_jobs.exceptions import ConfigError

DISJOINT_FALSE_PER_DOCUMENT: Final = 50.0
"""Overlapping bands are used where even the best disjoint ones have more expected false candidates per document."""
BAND_BITS: Final = 10
"""Low bits of a key that hold the band's number."""
MAX_BANDS: Final = 1 << BAND_BITS

_KEY_BYTES: Final = 16.0  # a hash and a place, 8 bytes each
_FALSE_BYTES: Final = 160.0  # shuffling and verifying a false candidate costs as much as ten keys (measured)
_LOWER_RECALLS: Final = (0.999, 0.99, 0.95, 0.9, 0.8, 0.7, 0.5, 0.3, 0.1)
_MAX_ROWS: Final = 24
_VALUES: Final = 256  # number of different values of a signature, which have 8 bits


@dataclass(frozen=True)
class BandScheme:
    """Bands, with their expected recall and false candidates.

    Attributes:
        bands: number of bands.
        rows: values in each.
        positions: (bands, rows) int16 indices into the signature, fixed by (bands, rows).
        overlapping: whether bands share values.
        recall: probability that a pair exactly at the threshold becomes a candidate; more similar ones have a higher
            one.
        false_per_document: expected false candidates of a document at this corpus size.
    """

    bands: int
    rows: int
    positions: Int16Array
    overlapping: bool
    recall: float
    false_per_document: float

    @property
    def document_bytes(self) -> float:
        """Bytes of keys and false candidates of a document."""
        return _KEY_BYTES * self.bands + _FALSE_BYTES * self.false_per_document


def candidate_probability(bands: int, rows: int, overlapping: bool, similarity: Float64Array) -> Float64Array:
    """Probability that pairs become candidates, as in the module's formulas.

    Args:
        bands: number of bands.
        rows: values in each.
        overlapping: whether bands are random subsets of the same 256 values.
        similarity: (S,) float64 J of the pairs.

    Returns:
        (S,) float64.
    """
    p = similarity + (1.0 - similarity) / _VALUES
    if not overlapping:
        return _any_of(bands, p**rows)
    return _agreement_distribution(p) @ _any_of(bands, _band_given_agreement(rows))


def solve_bands(
    background: Int64Array,
    documents: int,
    threshold: float,
    recall: float,
    false_below: float | None = None,
    most_bytes: float = math.inf,
) -> BandScheme:
    """Find the cheapest scheme with the wanted recall, or with the highest recall within the budget.

    Disjoint bands are taken where a scheme of them has at most 50 false candidates per document, else overlapping ones.
    Where neither keeps a document within `most_bytes`, the recall is lowered to .999, .99, .95 and so on until one
    does.

    Args:
        background: (B + 1,) int64 number of sampled pairs by floor(J * B); millions, since the tail decides.
        documents: N, size of the corpus.
        threshold: lowest J of a duplicate, in (0, 1].
        recall: wanted probability that a pair at the threshold becomes a candidate, in (0, 1).
        false_below: J below which a candidate counts as false; by default the threshold. Pairs between the two are
            related documents rather than chance, and grow more slowly than N where a corpus grows by new kinds.
        most_bytes: budget of bytes for keys and false candidates of a document.

    Raises:
        ConfigError: an argument is out of range, or the threshold is so low that nothing finds its pairs.
    """
    _check(background, documents, threshold, recall)
    chance = _false_chances(background, threshold if false_below is None else false_below)
    best = None
    for wanted_recall in (recall, *(lower for lower in _LOWER_RECALLS if lower < recall)):
        best = _cheapest(chance, documents, threshold, wanted_recall) or best
        if best is not None and best.document_bytes <= most_bytes:
            break
    if best is None:
        raise ConfigError(
            f"bands: no 256 values find a pair of similarity {threshold} with a recall of {_LOWER_RECALLS[-1]}; raise "
            "the threshold"
        )
    return best


def _cheapest(
    chance: tuple[Float64Array, Float64Array], documents: int, threshold: float, recall: float
) -> BandScheme | None:
    """The cheapest disjoint scheme with a recall and few enough false candidates, else the cheapest overlapping one."""
    best: tuple[float, int, int, bool, float] | None = None
    for overlapping in (False, True):
        for rows, bands in _least_bands(threshold, recall, overlapping):
            false = _false_candidates(bands, rows, overlapping, chance, documents)
            cost = round(
                _KEY_BYTES * bands + _FALSE_BYTES * false, 4
            )  # rounded, so that the last bits of a float decide nothing
            holds = overlapping or false <= DISJOINT_FALSE_PER_DOCUMENT
            if holds and (best is None or (cost, bands) < best[:2]):
                best = (cost, bands, rows, overlapping, false)
        if best is not None:
            break
    if best is None:
        return None
    _, bands, rows, overlapping, false = best
    return BandScheme(
        bands=bands,
        rows=rows,
        positions=band_positions(bands, rows, overlapping),
        overlapping=overlapping,
        recall=float(candidate_probability(bands, rows, overlapping, np.array([threshold]))[0]),
        false_per_document=false,
    )


def band_positions(bands: int, rows: int, overlapping: bool) -> Int16Array:
    """Indices into the signature that each band compares; a fixed function of its arguments, in every version.

    Args:
        bands: number of bands.
        rows: values in each, at most 256; all bands together at most 256 where they are disjoint.
        overlapping: random subsets of the 256 values; else the bands lie one after another.

    Returns:
        (bands, rows) int16, ascending and distinct in each row.
    """
    if not overlapping:
        return np.arange(bands * rows, dtype=np.int16).reshape(bands, rows)
    positions = np.empty((bands, rows), dtype=np.int16)
    _draw_positions(positions)
    return np.sort(positions, axis=1)


def band_keys(
    signatures: UInt8Array, scheme: BandScheme, salts: UInt64Array, bands: range | None = None
) -> UInt64Array:
    """Hash the values of every band: documents of equal salts share a key if all values of a band agree.

    Args:
        signatures: (D, 256) uint8.
        scheme: see `solve_bands`.
        salts: (D,) uint64; documents of different salts meet by chance only (2^-54).
        bands: consecutive ones of the scheme; None for all.

    Returns:
        (D, bands) uint64: a hash of salt and values in the high 54 bits, the band's number in the low 10.
    """
    bands = range(scheme.bands) if bands is None else bands
    keys = np.empty((len(signatures), len(bands)), dtype=np.uint64)
    _hash_bands(np.ascontiguousarray(signatures), scheme.positions[bands.start : bands.stop], salts, bands.start, keys)
    return keys


def _check(background: Int64Array, documents: int, threshold: float, recall: float) -> None:
    """Raise a ConfigError if an argument is out of range."""
    if not (0 < threshold <= 1 and 0 < recall < 1 and documents >= 1):
        raise ConfigError(
            f"bands: threshold {threshold}, recall {recall}, documents {documents}; wanted a threshold in (0, 1], a "
            "recall in (0, 1) and at least 1 document"
        )
    if len(background) < 2:
        raise ConfigError("bands: the background has no bin; measure it on a sample of the corpus")


def _false_chances(background: Int64Array, below: float) -> tuple[Float64Array, Float64Array]:
    """Similarities at the middles of the occupied bins that end at or below `below`, and the share of pairs in each."""
    bins = len(background) - 1
    counted = max(1, min(bins, math.floor(below * bins + 1e-9)))
    occupied = np.flatnonzero(background[:counted])
    pairs = max(1, int(background.sum()))
    return (occupied + 0.5) / bins, background[occupied] / pairs


def _false_candidates(
    bands: int, rows: int, overlapping: bool, chance: tuple[Float64Array, Float64Array], documents: int
) -> float:
    """Expected false candidates of a document."""
    similarity, share = chance
    return float((documents - 1) * (candidate_probability(bands, rows, overlapping, similarity) @ share))


def _least_bands(threshold: float, recall: float, overlapping: bool) -> Iterator[tuple[int, int]]:
    """For each number of rows that allows the recall: the rows, and the fewest bands that reach it."""
    at = np.array([threshold])
    for rows in range(1, _MAX_ROWS + 1):
        most = MAX_BANDS if overlapping else SIGNATURE_VALUES // rows
        if candidate_probability(most, rows, overlapping, at)[0] < recall:
            continue
        low, high = 0, most  # low misses the recall, high has it
        while high - low > 1:
            middle = (low + high) // 2
            if candidate_probability(middle, rows, overlapping, at)[0] >= recall:
                high = middle
            else:
                low = middle
        yield rows, high


def _any_of(bands: int, single: Float64Array) -> Float64Array:
    """1 - (1 - single)^bands, computed without loss of precision where `single` is small."""
    result: Float64Array = -np.expm1(bands * np.log1p(-np.minimum(single, 1 - 1e-16)))
    return result


def _band_given_agreement(rows: int) -> Float64Array:
    """(257,) C(a, rows) / C(256, rows): probability that a band agrees if a of the 256 values do, for a = 0 .. 256."""
    whole = math.comb(SIGNATURE_VALUES, rows)
    return np.array([math.comb(agreeing, rows) / whole for agreeing in range(SIGNATURE_VALUES + 1)])


def _agreement_distribution(p: Float64Array) -> Float64Array:
    """(S, 257) probability of each number of agreeing values; a value agrees with probability p[s]."""
    k = SIGNATURE_VALUES
    agreeing = np.arange(k + 1)
    choices = np.array([math.log(math.comb(k, a)) for a in range(k + 1)])
    inside = np.clip(p, 1e-300, 1 - 1e-16)[:, None]
    result: Float64Array = np.exp(choices + agreeing * np.log(inside) + (k - agreeing) * np.log1p(-inside))
    return result


_U0: Final = np.uint64(0)
_U1: Final = np.uint64(1)
_U8: Final = np.uint64(8)
_U32: Final = np.uint64(32)
_BAND_BITS: Final = np.uint64(BAND_BITS)
_WORD_VALUES: Final = 8  # values of a band that are mixed at once, as one word


@compiled
def _draw_positions(positions: Int16Array) -> None:
    """Draw each row without repetition by the first steps of a Fisher-Yates shuffle."""
    bands, rows = positions.shape
    state = np.uint64(bands) * GOLDEN + np.uint64(rows)
    order = np.empty(SIGNATURE_VALUES, dtype=np.int16)
    for band in range(bands):
        for value in range(SIGNATURE_VALUES):
            order[value] = value
        for row in range(rows):
            state += GOLDEN
            left = np.uint64(SIGNATURE_VALUES - row)
            chosen = row + np.int64(((mix64(state) >> _U32) * left) >> _U32)
            order[row], order[chosen] = order[chosen], order[row]
            positions[band, row] = order[row]


@compiled
def _hash_bands(
    signatures: UInt8Array, positions: Int16Array, salts: UInt64Array, first: int, keys: UInt64Array
) -> None:
    """Write the key of every band of every signature to `keys`; `first` is the number of the first band."""
    bands, rows = positions.shape
    flat = positions.ravel().astype(np.uint8)
    for doc in range(signatures.shape[0]):
        values = signatures[doc]
        salt = mix64(salts[doc] + GOLDEN)
        index = _U0
        for band in range(bands):
            number = np.uint64(first + band)
            state = salt
            word = _U0
            for row in range(rows):
                word = (word << _U8) | np.uint64(values[flat[index]])
                index += _U1
                if row % _WORD_VALUES == _WORD_VALUES - 1:
                    state = mix64((state ^ word) * GOLDEN + number)
                    word = _U0
            if rows % _WORD_VALUES:
                state = mix64((state ^ word) * GOLDEN + number)
            keys[doc, band] = ((state >> _BAND_BITS) << _BAND_BITS) | number
