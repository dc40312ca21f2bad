"""A keyed permutation of [0, N) that orders the windows of an increment in the table.

Blends use the same one (`headrace.kernels.permutation`). Golden values guard it: a change moves every row of every
packed table.
"""

from __future__ import annotations

import hashlib

import numpy as np

from spark_jobs.arrays import Int64Array


def permutation_key(table: str, increment: int, seed: int = 0, cell: str = "") -> int:
    """Key of one increment, or one cell of it, of one packed table: 8 bytes of a SHA-256, little-endian."""
    text = f"headrace.packed.order.1\0{seed}\0{table}\0{increment}" + f"\0{cell}" * bool(cell)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def permute(values: Int64Array, size: int, key: int) -> Int64Array:
    """Permute values by the permutation of [0, size) chosen by `key`.

    Args:
        values: (N,) in [0, size).
        size: length of the permuted range, >= 1 and below 2^62.
        key: 64 well mixed bits, see `permutation_key`.

    Returns:
        (N,) permuted values in [0, size), distinct for distinct values.
    """
    from headrace.kernels.permutation import permute_all

    places: Int64Array = permute_all(values, np.uint64(size), np.uint64(key))
    return places
