"""The step `buckets`: its buckets are the groups of equal keys, and `bands` says what its bands were solved for."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from spark_jobs.dedup.bags.features import kind_salt
from spark_jobs.dedup.near import bucket_records, buckets_by_band, key_filter
from spark_jobs.dedup.near import buckets as step_module
from spark_jobs.dedup.near.buckets import BucketsConfig, buckets
from spark_jobs.dedup.sketches.bands import MAX_BANDS, BandScheme, band_keys, candidate_probability, solve_bands
from tests.tiers import sampled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS = ("code", "prose", "data")
BACKGROUND = {"code": {0: 5000, 150: 40, 400: 9, 1000: 1}, "prose": {0: 90_000, 299: 60, 300: 7}}  # none of data


class Signed(NamedTuple):
    """A document."""

    increment: int
    kind: str
    place: int
    signature: bytes


def signed_documents(increments: int = 2) -> list[Signed]:
    """Documents of three kinds, half of them copies of one before, with some values changed or of another kind."""
    draw = np.random.default_rng(11)
    found: list[Signed] = []
    for number in range(60):
        values = draw.integers(0, 256, 256)
        if number % 2:
            values = np.frombuffer(found[draw.integers(len(found))].signature, np.uint8).copy()
            values[draw.integers(0, 256, draw.integers(0, 30))] = 0
        kind = KINDS[draw.integers(0, 3) if number % 3 else 0]
        found.append(
            Signed(
                int(draw.integers(0, increments)),
                kind,
                int(draw.integers(0, 1 << 60)),
                values.astype(np.uint8).tobytes(),
            )
        )
    return found


def run(spark: SparkSession, documents: list[Signed], increment: int, **config: Any) -> Any:
    """The step over documents, with the background of two kinds."""
    schema = pa.schema(
        [("increment", pa.int32()), ("kind", pa.string()), ("place", pa.int64()), ("signature", pa.binary())]
    )
    frame = spark.createDataFrame(pa.Table.from_pylist([one._asdict() for one in documents], schema=schema))
    rows = [(kind, at / 1000, count) for kind, counts in BACKGROUND.items() for at, count in counts.items()]
    measured = spark.createDataFrame(rows, "kind string, similarity double, pair_count bigint")
    return buckets(frame, measured, increment, BucketsConfig(**config))


def mixed(sizes: Mapping[str, int]) -> np.ndarray:
    """2^52 random pairs by bin: two documents are of one kind as often as sizes say, else alike in nothing."""
    total = sum(sizes.values())
    bins = [Fraction(0)] * 1001
    for kind, size in sizes.items():
        for at, count in BACKGROUND.get(kind, {0: 1}).items():
            bins[at] += Fraction(size, total) ** 2 * Fraction(count, sum(BACKGROUND.get(kind, {0: 1}).values()))
    bins[0] += 1 - sum(Fraction(size, total) ** 2 for size in sizes.values())
    return np.array([round(one * 2**52) for one in bins], np.int64)


def scheme_of(sizes: Mapping[str, int], threshold: float, documents: int | None = None) -> BandScheme:
    """The bands of documents of these kinds, now or at another size."""
    count = documents or sum(sizes.values())
    return solve_bands(mixed(sizes), count, threshold, 0.999, min(threshold, 0.3), 16_384)


def sizes_of(documents: list[Signed]) -> dict[str, int]:
    """Documents by kind."""
    return {kind: sum(one.kind == kind for one in documents) for kind in KINDS}


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """Rows by similarity."""
    return sorted((row.asDict() for row in frame.collect()), key=lambda row: row["similarity"])


@sampled()
@pytest.mark.parametrize("increment", [0, 1])
@pytest.mark.parametrize("by_kind", [False, True])
def test_buckets_are_the_groups_of_equal_keys(
    spark: SparkSession, by_kind: bool, increment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least two members, one of them new; keys are of a kind, whose bands are its own where thresholds differ.

    In several partitions or groups of bands, and batches of few members.
    """
    monkeypatch.setattr(step_module, "PARTITION_RECORDS", 500)
    monkeypatch.setattr(bucket_records, "_BATCH_MEMBERS", 10)
    monkeypatch.setattr(buckets_by_band, "_KEYS_BYTES", 8 * 60 * 7)
    documents = [one for one in signed_documents() if one.increment <= increment]
    threshold: Any = {"code": 0.6, "default": 0.8} if by_kind else 0.7
    output = run(spark, documents, increment, threshold=threshold, recall=0.999)
    sizes = sizes_of(documents)
    expected: dict[tuple[int, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    schemes = {}
    for kind in KINDS:
        least = {"code": 0.6}.get(kind, 0.8)
        schemes[kind] = scheme_of({kind: sizes[kind]}, least) if by_kind else scheme_of(sizes, 0.7)
        for one in documents:
            if one.kind == kind:
                salts = np.array([kind_salt(kind)], np.uint64)
                for key in band_keys(np.frombuffer(one.signature, np.uint8)[None], schemes[kind], salts)[0].tolist():
                    expected[key % MAX_BANDS, key][one.increment < increment].append(one.place)
    found = {
        (row.band, row.bucket % 2**64): (row.members, row.earlier, row.member_count)
        for row in output.frames["buckets"].collect()
    }
    assert found == {
        key: (sorted(new), sorted(old), len(new) + len(old))
        for key, (new, old) in expected.items()
        if new and len(new) + len(old) > 1
    }
    assert len(found) > 20
    summary = {f"bands-of-{kind}": f"{one.bands} x {one.rows}" for kind, one in schemes.items()}
    assert output.summary == (summary if by_kind else {})


@sampled()
@pytest.mark.parametrize("expected_documents", [None, 50, 1000])
def test_bands_say_what_they_were_solved_for(spark: SparkSession, expected_documents: int | None) -> None:
    """A hundredth of similarity a row: the background of all kinds together, and the curve of the bands.

    The forecast is for ten times the documents there are, or for those that are expected if these are more.
    """
    documents = signed_documents()
    sizes = sizes_of(documents)
    output = run(spark, documents, 1, threshold=0.7, recall=0.999, expected_documents=expected_documents)
    rows = rows_of(output.frames["bands"])
    scheme, later = scheme_of(sizes, 0.7), {None: 600, 50: 60, 1000: 1000}[expected_documents]
    forecast = scheme_of(sizes, 0.7, later)
    assert [row["similarity"] for row in rows] == [at / 100 for at in range(101)]
    curve = candidate_probability(scheme.bands, scheme.rows, scheme.overlapping, np.arange(101) / 100)
    assert [row["candidate_probability"] for row in rows] == pytest.approx(curve.tolist(), abs=1e-12)
    shares = [int(mixed(sizes)[10 * at : 10 * at + 10].sum()) / 2**52 for at in range(101)]
    assert [row["background_fraction"] for row in rows] == shares
    assert {tuple(row.values())[3:] for row in rows} == {
        (
            scheme.bands, scheme.rows, scheme.overlapping, 60, 0.999, scheme.recall, scheme.false_per_document,
            scheme.document_bytes, later, forecast.bands, forecast.rows, forecast.recall, forecast.document_bytes,
        )
    }  # fmt: skip


def test_bands_of_several_kinds_are_told_by_their_means(spark: SparkSession) -> None:
    """Probabilities and costs are means over documents, recall is the lowest, bands are of the lowest threshold."""
    documents = signed_documents()
    sizes, least = sizes_of(documents), {"code": 0.9, "prose": 0.5, "data": 0.8}
    output = run(spark, documents, 1, threshold={**least, "markup": 0.8}, recall=0.999, expected_documents=100)
    rows = rows_of(output.frames["bands"])
    schemes = {kind: scheme_of({kind: sizes[kind]}, least[kind]) for kind in KINDS}
    later = {kind: max(sizes[kind], 100 * sizes[kind] // 60) for kind in KINDS}
    forecasts = {kind: scheme_of({kind: sizes[kind]}, least[kind], later[kind]) for kind in KINDS}

    def mean(values: dict[str, float]) -> Any:
        return pytest.approx(sum(sizes[kind] / 60 * value for kind, value in values.items()), rel=1e-12, abs=1e-12)

    for at in (0, 30, 60, 85, 100):
        curve = {
            kind: float(candidate_probability(one.bands, one.rows, one.overlapping, np.array([at / 100]))[0])
            for kind, one in schemes.items()
        }
        assert rows[at]["candidate_probability"] == mean(curve)
    row = rows[0]
    assert (row["band_count"], row["row_count"]) == (schemes["prose"].bands, schemes["prose"].rows)
    assert (row["expected_band_count"], row["expected_row_count"]) == (
        forecasts["prose"].bands,
        forecasts["prose"].rows,
    )
    assert (row["documents"], row["expected_documents"]) == (60, sum(later.values()))
    assert row["recall"] == min(one.recall for one in schemes.values())
    assert row["expected_recall"] == min(one.recall for one in forecasts.values())
    assert row["document_bytes"] == mean({kind: one.document_bytes for kind, one in schemes.items()})
    assert row["false_per_document"] == mean({kind: one.false_per_document for kind, one in schemes.items()})
    assert row["expected_document_bytes"] == mean({kind: one.document_bytes for kind, one in forecasts.items()})


def test_a_recall_that_costs_too_much_is_lowered_with_a_warning(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """Now and for the forecast, each with its number of documents; where it can be paid nothing is said."""
    with caplog.at_level(logging.WARNING):
        run(spark, signed_documents(), 1, threshold=0.7, recall=0.99)
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        output = run(spark, signed_documents(), 1, threshold=0.4, recall=0.9999, document_bytes=256)
    said = [record.getMessage() for record in caplog.records]
    assert [text.split(" the recall")[0] for text in said] == [
        "buckets: over the 60 documents",
        "buckets: once there are 600 documents",
    ]
    assert rows_of(output.frames["bands"])[0]["recall"] < 0.9999


def test_an_empty_corpus_has_bands_and_no_bucket(spark: SparkSession) -> None:
    """As one document has: no pair, no false candidate."""
    output = run(spark, [], 0, threshold={"code": 0.6, "default": 0.8})
    assert output.frames["buckets"].count() == 0
    row = rows_of(output.frames["bands"])[0]
    assert (row["documents"], row["background_fraction"], row["false_per_document"]) == (1, 1.0, 0.0)


@pytest.mark.parametrize(
    ("field", "refused", "taken", "default"),
    [
        ("recall", (0, 1), (0.0001, 0.9999), 0.9999),
        ("document_bytes", (255,), (256,), 16_384),
        ("expected_documents", (0,), (1, None), None),
    ],
)
def test_settings_end_at_their_bounds(
    field: str, refused: tuple[Any, ...], taken: tuple[Any, ...], default: Any
) -> None:
    """A recall is inside of 0 and 1; a document takes 256 bytes at least; a corpus has one document."""
    for value in refused:
        with pytest.raises(ValidationError, match=field):
            BucketsConfig(**{field: value})
    assert [getattr(BucketsConfig(**{field: value}), field) for value in taken] == list(taken)
    assert getattr(BucketsConfig(), field) == default and BucketsConfig().threshold.of("prose") == 0.7


def test_a_split_of_members_by_blocks_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of a partition, in batches of the input and blocks of the output of any size; without records no row."""
    draw = np.random.default_rng(5)
    keys, places = draw.integers(0, 40, 300).astype(np.uint64), np.arange(300) * 7
    earlier = draw.integers(0, 2, 300).astype(bool)
    parts = []
    for is_earlier in (False, True):
        chosen = earlier == is_earlier
        parts.append((keys[chosen].tobytes(), places[chosen].tobytes(), is_earlier))
    blocks = [
        pa.RecordBatch.from_arrays(
            [pa.array([0]), *(pa.array([one]) for one in part)], names=["part", "keys", "places", "earlier"]
        )
        for part in parts
    ]
    expected = {
        int(key): (places[(keys == key) & ~earlier].tolist(), places[(keys == key) & earlier].tolist())
        for key in set(keys.tolist())
    }
    for most in (1, 7, 10_000):
        monkeypatch.setattr(bucket_records, "_BATCH_MEMBERS", most)
        batches = list(step_module.bucket_lists(blocks))
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert {row["bucket"]: (row["members"], row["earlier"]) for row in rows} == {
            key: lists for key, lists in expected.items() if lists[0] and len(lists[0]) + len(lists[1]) > 1
        }
        assert all(row["member_count"] == len(row["members"]) + len(row["earlier"]) for row in rows)
        assert all(row["band"] == row["bucket"] % MAX_BANDS for row in rows)
        assert len(rows) == len({row["bucket"] for row in rows}) and (len(batches) == 1) == (most == 10_000)
    assert sum(batch.num_rows for batch in step_module.bucket_lists([])) == 0


@pytest.mark.parametrize("by_kind", [False, True])
def test_the_filter_is_sized_by_the_keys_of_new_documents(
    spark: SparkSession, by_kind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a key a band of its kind; where nothing came before there is no filter."""
    counts: list[int] = []
    real = key_filter.filter_of

    def filter_of(new: Any, keys: Any, count: int) -> bytes:
        counts.append(count)
        return real(new, keys, count)

    for module in (key_filter, buckets_by_band):
        monkeypatch.setattr(module, "filter_of", filter_of)
    threshold: Any = {"code": 0.6, "default": 0.8} if by_kind else 0.7
    documents = signed_documents()
    run(spark, [one for one in documents if not one.increment], 0, threshold=threshold, recall=0.999)
    assert counts == []
    run(spark, documents, 1, threshold=threshold, recall=0.999)
    sizes = sizes_of(documents)
    bands = {
        kind: (scheme_of({kind: sizes[kind]}, {"code": 0.6}.get(kind, 0.8)) if by_kind else scheme_of(sizes, 0.7)).bands
        for kind in KINDS
    }
    assert counts == [sum(bands[one.kind] for one in documents if one.increment)]
