"""Keys of signatures: two documents share that of a band if their kinds and all values of the band are equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.arrays import UInt64Array
from spark_jobs.dedup.bags.features import kind_salt
from spark_jobs.dedup.sketches.bands import BandScheme, band_keys
from spark_jobs.dedup.sketches.signatures import signature_rows


def keys_of(batch: pa.RecordBatch, scheme: BandScheme, bands: range | None = None) -> UInt64Array:
    """(D, bands) keys of a batch of signatures.

    Args:
        batch: columns kind and signature.
        scheme: of its documents.
        bands: consecutive ones of the scheme; None for all.
    """
    kinds = batch.column("kind").dictionary_encode()
    salts = np.array([kind_salt(kind) for kind in kinds.dictionary.to_pylist()], np.uint64)
    return band_keys(signature_rows(batch.column("signature")), scheme, salts[kinds.indices.to_numpy()], bands)


def by_scheme(
    batch: pa.RecordBatch, schemes: Mapping[str | None, BandScheme]
) -> Iterator[tuple[pa.RecordBatch, BandScheme]]:
    """(documents, their bands) of a batch, by kind if kinds have bands of their own."""
    for kind, scheme in schemes.items():
        part = batch if kind is None else batch.filter(pc.equal(batch.column("kind"), kind))
        if part.num_rows:
            yield part, scheme


def all_keys(batch: pa.RecordBatch, schemes: Mapping[str | None, BandScheme]) -> UInt64Array:
    """The keys of a batch of signatures, in any order."""
    parts = [keys_of(*part).ravel() for part in by_scheme(batch, schemes)]
    return np.concatenate([np.zeros(0, np.uint64), *parts])
