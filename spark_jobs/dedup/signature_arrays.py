"""Signatures of an Arrow column as one array."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

SIGNATURE_BYTES = 256


def signature_rows(column: pa.Array) -> NDArray[np.uint8]:
    """(D, 256) values of a column of byte strings of 256 bytes each, without copying where Arrow allows it."""
    wide = column.cast(pa.large_binary())
    _, offsets, data = wide.buffers()
    if not len(wide) or data is None:
        return np.zeros((0, SIGNATURE_BYTES), np.uint8)
    start = int(np.frombuffer(offsets, np.int64)[wide.offset])
    values = np.frombuffer(data, np.uint8)[start : start + len(wide) * SIGNATURE_BYTES]
    return values.reshape(len(wide), SIGNATURE_BYTES)
