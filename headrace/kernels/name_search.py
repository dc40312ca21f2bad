"""Look for names in texts by an automaton of Aho and Corasick, in compiled code (`control_names` makes it)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.kernels.compiling import compiled


@compiled
def find_names(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    after: NDArray[np.int32],
    first: NDArray[np.int32],
    following: NDArray[np.int32],
    ends: NDArray[np.int32],
    last: NDArray[np.int64],
    texts: NDArray[np.int64],
    names: NDArray[np.int64],
) -> int:
    """Count pairs of a text and a name in it, and write as many as there is room for; `last` begins as -1."""
    begins = after[0] > 0
    count = 0
    for text in range(offsets.size - 1):
        at, end = offsets[text], offsets[text + 1]
        state = 0
        while at < end:
            if state == 0:  # nearly all of a text: no name goes on, so the first byte of one is looked for
                while at < end and not begins[data[at]]:
                    at += 1
                if at == end:
                    break
            state = after[state, data[at]]
            at += 1
            ending = first[state]
            while ending > 0:
                name = ends[ending]
                if last[name] != text:
                    last[name] = text
                    if count < texts.size:
                        texts[count], names[count] = text, name
                    count += 1
                ending = following[ending]
    return count
