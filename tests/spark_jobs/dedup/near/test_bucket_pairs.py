"""Agreeing pairs of buckets are those of a list of their candidates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.dedup.graph.threshold_pairs import KindThreshold
from spark_jobs.dedup.near import bucket_pairs
from spark_jobs.dedup.near.bucket_members import all_pairs
from spark_jobs.dedup.near.bucket_pairs import agreeing_in_buckets
from spark_jobs.dedup.near.comparison import SignatureColumns, agreeing_rows
from spark_jobs.dedup.near.key_filter import filter_bytes, put_keys
from spark_jobs.dedup.sketches.darts import SIGNATURE_VALUES
from tests.spark_jobs.dedup.near.test_verification import made

COUNT = 60


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("part", [1, 40, 8_000_000])
def test_pairs_are_those_of_all_candidates_once(
    seed: int, part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of kinds, versions, sizes and signatures that agree or not, of one and several increments, with and without pool.

    Two documents at one place may meet where only one of them should: their bags decide.
    """
    monkeypatch.setattr(bucket_pairs, "_PART_MEMBERS", part)
    draw = np.random.default_rng(seed)
    known, _, _ = made(seed, COUNT)
    hashed = np.sort(draw.integers(0, 1 << 60, COUNT // 2))
    places = hashed[known["place"].to_numpy()] if seed % 2 else draw.integers(0, 1 << 60, COUNT)
    signatures = draw.integers(0, 256, (4, SIGNATURE_VALUES)).astype(np.uint8)[draw.integers(0, 4, COUNT)]
    other = draw.random(signatures.shape) < draw.choice([0.0, 0.05, 0.2, 0.5, 1.0], (COUNT, 1))
    signatures[other] = draw.integers(0, 256, int(other.sum()))
    increments = places % 2
    columns = {
        "place": pa.array(places),
        "increment": pa.array(increments, pa.int32()),
        "signature": pa.array([row.tobytes() for row in signatures], pa.binary()),
        "signature_version": pa.array(draw.choice(["1", "2"], COUNT, p=[0.8, 0.2])),
    }
    for name, column in columns.items():
        known = known.set_column(known.column_names.index(name), name, column)
    new, old = (np.unique(places[increments == increment]) for increment in (1, 0))
    buckets = [
        [np.sort(draw.choice(of, draw.integers(least, 7), replace=False)) for of, least in ((new, 1), (old, 0))]
        for _ in range(40)
    ]
    batches = [
        pa.RecordBatch.from_arrays(
            [pa.array([row[at] for row in buckets[cut]], pa.list_(pa.int64())) for at in range(2)],
            names=["members", "earlier"],
        )
        for cut in (slice(0, 0), slice(0, 3), slice(3, 40))
    ]
    inside = None
    if seed > 2:
        filled = np.zeros(filter_bytes(20), np.uint8)
        put_keys(draw.choice(places, 20).view(np.uint64), filled)
        inside = filled.tobytes()
    lowest = KindThreshold(code=0.75, prose=0.7)

    documents = SignatureColumns.of(known, lowest)
    first_new = int((increments == 0).sum())
    found = agreeing_in_buckets(
        pa.Table.from_batches(batches), documents, first_new, inside, tmp_path / "buckets", threads=2
    )
    pairs = [pair for left, right in found for pair in zip(left.tolist(), right.tolist(), strict=True)]
    candidates = pa.Table.from_batches([*all_pairs(batches, inside)])
    expected = {*zip(*(side.tolist() for side in agreeing_rows(candidates, known, lowest)), strict=True)}
    assert len(pairs) == len(set(pairs)) and expected <= set(pairs)
    assert all(places[left] == places[right] for left, right in set(pairs) - expected)
    assert expected
