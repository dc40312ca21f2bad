"""Characters of valid UTF-8, in compiled code.

Compiled without Numba's counting of references to arrays (`_nrt=False`), so that loops without it may call them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.kernels.compiling import compiled, inner

Integer = Any
"""The integer that a compiled function returns; run by Python it is one of NumPy's."""


@inner(_nrt=False, inline="always")
def width(lead: int) -> Integer:
    """Length in bytes of the character with the first byte `lead`."""
    return 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


@inner(_nrt=False, inline="always")
def code_point(data: NDArray[np.uint8], at: int) -> Integer:
    """Code point of the character with the first byte `data[at]`."""
    lead = np.int64(data[at])
    if lead < 0x80:
        return lead
    if lead < 0xE0:
        return (lead & 0x1F) << 6 | (data[at + 1] & 0x3F)
    if lead < 0xF0:
        return (lead & 0x0F) << 12 | (np.int64(data[at + 1]) & 0x3F) << 6 | (data[at + 2] & 0x3F)
    tail = (np.int64(data[at + 2]) & 0x3F) << 6 | (data[at + 3] & 0x3F)
    return (lead & 0x07) << 18 | (np.int64(data[at + 1]) & 0x3F) << 12 | tail


@compiled
def code_points_at(data: NDArray[np.uint8], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """(N,) code points of the characters at (N,) byte offsets."""
    points = np.empty(places.size, np.int64)
    for k in range(places.size):
        points[k] = code_point(data, places[k])
    return points
