"""A band scheme finds what it says it finds, at the cost it says."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.dedup.near.buckets import DEFAULT_DOCUMENT_BYTES
from spark_jobs.dedup.sketches.bands import (
    MAX_BANDS,
    BandScheme,
    band_keys,
    band_positions,
    candidate_probability,
    solve_bands,
)
from spark_jobs.exceptions import ConfigError
from tests.tiers import tries

UInt8Array = npt.NDArray[np.uint8]

GOLDEN_POSITIONS = [[111, 117, 173, 245], [34, 150, 222, 246], [63, 101, 123, 160]]
GOLDEN_KEYS = [3663746844626238464, 10171634235050996737, 6329818185820920834]

shapes = st.one_of(
    st.tuples(st.integers(1, 24)).flatmap(
        lambda r: st.tuples(st.integers(1, 256 // r[0]), st.just(r[0]), st.just(False))
    ),
    st.tuples(st.integers(1, 300), st.integers(1, 24), st.just(True)),
)


def scheme_of(bands: int, rows: int, overlapping: bool) -> BandScheme:
    """A scheme of which only the places matter."""
    return BandScheme(bands, rows, band_positions(bands, rows, overlapping), overlapping, 0.0, 0.0)


def like_prose() -> npt.NDArray[np.int64]:
    """Background of the prose of notes/dedup.md below J = .3: mean .023, q99 .064, q99.9 .133, a tail of e^(-J/.03)."""
    similarity = (np.arange(1001) + 0.5) / 1000
    counts = np.where(similarity < 0.06, 0.99 / 60, 0.011 / 30 * np.exp(-(similarity - 0.06) / 0.03)) * 4e6
    return np.rint(np.where(similarity < 0.3, counts, 0)).astype(np.int64)


def random_signatures(rng: np.random.Generator, count: int, similarity: float) -> tuple[UInt8Array, UInt8Array]:
    """Signatures of pairs of bags of this similarity, by the law that signatures obey."""
    left, other = (rng.integers(0, 256, (count, 256), dtype=np.uint8) for _ in range(2))
    return left, np.where(rng.random((count, 256)) < similarity, left, other)


@pytest.mark.parametrize(
    ("bands", "rows", "overlapping", "similarity"),
    [
        (50, 5, False, 0.5),
        (50, 5, False, 0.3),
        (25, 8, False, 0.65),
        (240, 8, True, 0.5),
        (500, 10, True, 0.6),
        (1000, 12, True, 0.6),
        (158, 7, True, 0.4),
    ],
)
def test_recall_is_what_a_simulation_finds(bands: int, rows: int, overlapping: bool, similarity: float) -> None:
    """The formulas against keys of simulated signatures, with the very positions that are used."""
    trials = 4000
    left, right = random_signatures(np.random.default_rng(1), trials, similarity)
    scheme, salts = scheme_of(bands, rows, overlapping), np.zeros(trials, dtype=np.uint64)
    found = (band_keys(left, scheme, salts) == band_keys(right, scheme, salts)).any(axis=1).mean()
    wanted = candidate_probability(bands, rows, overlapping, np.array([similarity]))[0]
    assert 0.02 < wanted < 0.98
    assert abs(found - wanted) < 4 * math.sqrt(wanted * (1 - wanted) / trials) + 0.005 * overlapping


@pytest.mark.parametrize(
    ("bands", "rows", "recall", "tolerance"),
    [(240, 8, 1.0, 5e-4), (500, 10, 0.9996, 5e-4), (1000, 12, 0.999, 1e-3)],
)
def test_overlapping_bands_of_the_notes(bands: int, rows: int, recall: float, tolerance: float) -> None:
    """What notes/dedup.md found by simulation at J = .7, the formula gives."""
    assert abs(candidate_probability(bands, rows, True, np.array([0.7]))[0] - recall) < tolerance


@pytest.mark.parametrize(
    ("threshold", "recall", "documents", "bands", "rows"),
    [
        (0.7, 0.99, 10**5, 25, 5),
        (0.7, 0.9999, 10**5, 50, 5),
        (0.8, 0.9999, 10**5, 31, 6),
        (0.8, 0.99, 10**8, 25, 8),
    ],
)
def test_schemes_of_the_notes(threshold: float, recall: float, documents: int, bands: int, rows: int) -> None:
    """On a background like that of the notes, the disjoint schemes of its table are found again."""
    scheme = solve_bands(like_prose(), documents, threshold, recall, false_below=0.3)
    assert (scheme.bands, scheme.rows, scheme.overlapping) == (bands, rows, False)


def test_bands_overlap_where_disjoint_ones_do_not_hold() -> None:
    """At .7 with recall .9999 over 10^8 documents: disjoint bands would have thousands of false candidates each."""
    scheme = solve_bands(like_prose(), 10**8, 0.7, 0.9999, false_below=0.3)
    assert scheme.overlapping
    assert scheme.bands * scheme.rows > 256
    assert scheme.document_bytes <= DEFAULT_DOCUMENT_BYTES
    assert scheme.recall >= 0.9999


@pytest.mark.parametrize("documents", [10**6, 10**8, 10**10])
def test_a_corpus_never_outgrows_its_bands(documents: int) -> None:
    """At any size there is a scheme that a document can pay for: the wanted recall while it lasts, then a lower one."""
    generous = solve_bands(like_prose(), documents, 0.5, 0.9999)
    assert generous.recall >= 0.9999
    scheme = solve_bands(like_prose(), documents, 0.5, 0.9999, most_bytes=DEFAULT_DOCUMENT_BYTES)
    assert scheme.document_bytes <= DEFAULT_DOCUMENT_BYTES
    assert (scheme.recall >= 0.9999) == (generous.document_bytes <= DEFAULT_DOCUMENT_BYTES)
    assert scheme.recall > 0.05


@pytest.mark.parametrize(
    ("threshold", "recall", "documents"),
    [(0.0, 0.9, 10), (1.1, 0.9, 10), (0.7, 1.0, 10), (0.7, 0.0, 10), (0.7, 0.9, 0)],
)
def test_wishes_without_meaning_are_refused(threshold: float, recall: float, documents: int) -> None:
    """A threshold, recall or size out of range is an error, not a scheme."""
    with pytest.raises(ConfigError, match=r"wanted a threshold in \(0, 1\], a recall in \(0, 1\)"):
        solve_bands(like_prose(), documents, threshold, recall)


def test_a_background_without_pairs_still_gives_a_scheme() -> None:
    """A corpus of one document has no pair: the cheapest scheme with the recall, and no false candidate."""
    scheme = solve_bands(np.zeros(1001, dtype=np.int64), 1, 0.7, 0.9999)
    assert scheme.recall >= 0.9999
    assert scheme.false_per_document == 0


@settings(max_examples=tries(60))
@given(
    st.floats(0.5, 1.0),
    st.floats(0.5, 0.9999),
    st.integers(1, 10**7),
    st.lists(st.integers(0, 50), min_size=5, max_size=5),
)
def test_schemes_keep_their_promises(threshold: float, recall: float, documents: int, tail: list[int]) -> None:
    """Recall reached where it can be paid, false candidates counted as said."""
    background = np.zeros(101, dtype=np.int64)
    background[0], background[[5, 15, 25, 40, 60]] = 10**6, tail
    scheme = solve_bands(background, documents, threshold, recall, most_bytes=DEFAULT_DOCUMENT_BYTES)
    assert scheme.recall >= recall or scheme.document_bytes <= DEFAULT_DOCUMENT_BYTES
    assert scheme.positions.shape == (scheme.bands, scheme.rows)
    assert scheme.bands <= (MAX_BANDS if scheme.overlapping else 256 // scheme.rows)
    below = np.arange(101) < math.floor(threshold * 100 + 1e-7)
    chance = candidate_probability(scheme.bands, scheme.rows, scheme.overlapping, (np.arange(101) + 0.5) / 100)
    false = (chance * background)[below].sum() / background.sum()
    assert scheme.false_per_document == pytest.approx(false * (documents - 1), rel=1e-9)
    assert scheme.document_bytes == pytest.approx(16 * scheme.bands + 160 * scheme.false_per_document)


@given(shapes)
def test_probability_grows_with_similarity_and_bands_and_falls_with_rows(shape: tuple[int, int, bool]) -> None:
    """The curve is a curve: monotone in J, in the number of bands and in the rows, between 0 and 1."""
    bands, rows, overlapping = shape
    similarity = np.linspace(0, 1, 41)
    curve = candidate_probability(bands, rows, overlapping, similarity)
    assert np.all(np.diff(curve) >= -1e-12)
    assert np.all((curve >= 0) & (curve <= 1 + 1e-12))
    assert curve[-1] == pytest.approx(1.0)
    assert np.all(candidate_probability(bands + 1, rows, overlapping, similarity) >= curve - 1e-12)
    assert np.all(candidate_probability(bands, rows + 1, overlapping, similarity) <= curve + 1e-12)


@given(shapes)
def test_positions_are_distinct_and_fixed(shape: tuple[int, int, bool]) -> None:
    """Distinct in a band, ascending, in the signature; disjoint bands share none; drawn again they are the same."""
    positions = band_positions(*shape)
    assert positions.shape == shape[:2]
    assert positions.dtype == np.int16
    assert np.all((positions >= 0) & (positions < 256))
    assert np.all(np.diff(positions, axis=1) > 0)
    assert shape[2] or len(np.unique(positions)) == positions.size
    assert np.array_equal(band_positions(*shape), positions)


def test_overlapping_positions_are_spread_evenly() -> None:
    """Every place is in about as many bands as any other: bands are uniform random subsets."""
    counts = np.bincount(band_positions(1000, 12, True).ravel(), minlength=256)
    assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 255 + 4 * math.sqrt(2 * 255)


def test_golden_positions_and_keys() -> None:
    """These places and keys, in every version: buckets kept earlier are met again."""
    assert band_positions(300, 4, True)[[0, 1, 299]].tolist() == GOLDEN_POSITIONS
    signature = np.arange(256, dtype=np.uint8)[None, :]
    keys = band_keys(signature, scheme_of(3, 10, False), np.array([9], dtype=np.uint64))
    assert keys[0].tolist() == GOLDEN_KEYS


@settings(max_examples=tries(60))
@given(shapes, st.integers(0, 2**32 - 1))
def test_keys_are_equal_where_the_values_are(shape: tuple[int, int, bool], seed: int) -> None:
    """Two documents share the key of a band iff its values and their salts are equal; its number is in the low bits."""
    scheme = scheme_of(*shape)
    rng = np.random.default_rng(seed)
    documents = rng.integers(0, 3, (12, 256), dtype=np.uint8)
    documents[::2] = np.where(rng.random((6, 256)) < 0.05, documents[::2], documents[0])
    salts = np.repeat(np.array([0, 2**64 - 1], dtype=np.uint64), 6)
    keys = band_keys(documents, scheme, salts)
    assert keys.shape == (12, scheme.bands)
    assert np.all(keys & np.uint64(MAX_BANDS - 1) == np.arange(scheme.bands, dtype=np.uint64))
    for row in range(12):
        for other in range(row):
            values = (documents[row][scheme.positions] == documents[other][scheme.positions]).all(axis=1)
            assert np.array_equal(keys[row] == keys[other], values & bool(salts[row] == salts[other]))


def test_keys_of_different_values_spread_over_all_bits() -> None:
    """Of two million random bands only those of equal values meet; each of the 54 bits is set in half of the keys."""
    documents = np.random.default_rng(2).integers(0, 256, (40_000, 256), dtype=np.uint8)
    keys = band_keys(documents, scheme_of(51, 5, False), np.zeros(len(documents), dtype=np.uint64))
    hashes = keys.ravel() >> np.uint64(10)
    assert len(np.unique(keys[:, 0])) == len({bytes(row) for row in documents[:, :5]})
    for bit in range(54):
        assert abs(((hashes >> np.uint64(bit)) & np.uint64(1)).mean() - 0.5) < 5 * 0.5 / math.sqrt(hashes.size)
