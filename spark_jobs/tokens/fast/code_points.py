"""Look for code points in texts, in compiled code.

Imported by workers only: numba takes half a second to load.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.kernels.compiling import compiled
from headrace.kernels.utf8 import code_point, width


@compiled(_nrt=False)
def has_any(data: NDArray[np.uint8], wanted: NDArray[np.bool_]) -> bool:
    """Whether a text has any of the wanted code points, all beyond ASCII.

    Args:
        data: (B,) the text as valid UTF-8.
        wanted: (0x110000,) whether each code point is wanted.
    """
    at = 0
    while at < len(data):
        if data[at] >= 0x80 and wanted[code_point(data, at)]:
            return True
        at += width(data[at])
    return False
