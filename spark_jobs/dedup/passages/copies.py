"""Which windows are copies of earlier documents' ones, in compiled code; consecutive copies make a run.

All equal windows come together. The first of them stays, in the order of whom to keep: by document, then by position.
Those in other documents are copies of it. Two passes over the windows, with a table of the different ones between them,
so a window of a million documents costs a million steps and no pair is looked at.

Consecutive copies of one document's windows are a run where the first windows follow one another too. They may also
step back by less than a window: so repeats of a short period, such as a table of zeros, are one run, not one for each
window. A run is then a copy of windows of a span of the first document, which may be shorter than itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace.kernels.compiling import compiled, inner
from headrace.kernels.hash_tables import key_slot
from spark_jobs.arrays import BoolArray, Int32Array, Int64Array, UInt64Array
from spark_jobs.dedup.passages.windows import WORDS

_FEWEST_SLOTS = 1 << 10
_MANY = 1


class CopyRuns(NamedTuple):
    """Runs of copies; windows are counted in their document, spans end with the window after the last.

    Attributes:
        documents: (N,) int64 number of the document with the copies.
        starts: (N,) int64 first window.
        ends: (N,) int64 window after the last.
        firsts: (N,) int64 number of the document that has them first.
        first_starts: (N,) int64 first of the windows there.
        first_ends: (N,) int64 window after the last.
    """

    documents: Int64Array
    starts: Int64Array
    ends: Int64Array
    firsts: Int64Array
    first_starts: Int64Array
    first_ends: Int64Array


@inner
def _follows(start: int, first_end: int) -> bool:
    """Whether windows from `start` on go on a copy of windows that ended before `first_end`, as the module says."""
    return first_end - 1 - WORDS < start <= first_end


@compiled
def find_copies(
    windows: UInt64Array, offsets: Int64Array, documents: Int32Array, positions: Int32Array, is_new: BoolArray
) -> Int64Array:
    """Runs of copies in new documents.

    Args:
        windows: (W,) hashes, never 0; a record is some consecutive ones of a document.
        offsets: (R + 1,) where the windows of each record begin.
        documents: (R,) number of the document of each record, in the order of whom to keep.
        positions: (R,) which of its windows the first one is.
        is_new: by number of document.

    Returns:
        (6, N) the fields of `CopyRuns`.
    """
    keys, firsts, used = np.zeros(_FEWEST_SLOTS, np.uint64), np.zeros(_FEWEST_SLOTS, np.int64), 0
    several = np.zeros(_FEWEST_SLOTS, np.uint8)
    for record in range(documents.size):
        occurrence = np.int64(documents[record]) << 32 | np.int64(positions[record])
        for at in range(offsets[record], offsets[record + 1]):
            slot = key_slot(keys, windows[at], windows[at])
            if keys[slot] == 0:
                # At most half full: probing stays short, and a free slot always ends it.
                if 2 * used >= keys.size:
                    old_keys, old_firsts, old_several = keys, firsts, several
                    keys, firsts = np.zeros(2 * keys.size, np.uint64), np.zeros(2 * keys.size, np.int64)
                    several = np.zeros(keys.size, np.uint8)
                    for k in range(old_keys.size):
                        if old_keys[k] != 0:
                            slot = key_slot(keys, old_keys[k], old_keys[k])
                            keys[slot], firsts[slot], several[slot] = old_keys[k], old_firsts[k], old_several[k]
                    slot = key_slot(keys, windows[at], windows[at])
                keys[slot], firsts[slot] = windows[at], occurrence
                used += 1
            else:
                # A window that its own document repeats is no copy: only another document makes it `several`.
                if firsts[slot] >> 32 != occurrence >> 32:
                    several[slot] = _MANY
                # Document and position in one number: the least is the first place in the order of whom to keep.
                firsts[slot] = min(firsts[slot], occurrence)
            occurrence += 1
    runs, count = np.empty((6, 1024), np.int64), 0
    for record in range(documents.size):
        document = np.int64(documents[record])
        if not is_new[document]:
            continue
        goes_on = False
        for at in range(offsets[record], offsets[record + 1]):
            slot = key_slot(keys, windows[at], windows[at])
            first, start = firsts[slot] >> 32, firsts[slot] & 0xFFFFFFFF
            # The first document to have a window keeps it.
            if several[slot] != _MANY or first == document:
                goes_on = False
                continue
            position = positions[record] + at - offsets[record]
            if goes_on and runs[3, count - 1] == first and _follows(start, runs[5, count - 1]):
                runs[4, count - 1] = min(runs[4, count - 1], start)
                runs[5, count - 1] = max(runs[5, count - 1], start + 1)
            else:
                if count == runs.shape[1]:
                    wider = np.empty((6, 2 * count), np.int64)
                    wider[:, :count] = runs
                    runs = wider
                runs[0, count], runs[1, count] = document, position
                runs[3, count], runs[4, count], runs[5, count] = first, start, start + 1
                count += 1
            runs[2, count - 1] = position + 1
            goes_on = True
    return runs[:, :count].copy()


@compiled
def joined(runs: Int64Array) -> Int64Array:
    """Join runs that go on one another: (6, N) and the result as `find_copies` gives, by document and start."""
    copies, count = runs.copy(), 0
    for k in range(runs.shape[1]):
        last = count - 1
        if (
            count
            and copies[0, last] == runs[0, k]
            and copies[2, last] == runs[1, k]
            and copies[3, last] == runs[3, k]
            and _follows(runs[4, k], copies[5, last])
        ):
            copies[2, last] = runs[2, k]
            copies[4, last], copies[5, last] = min(copies[4, last], runs[4, k]), max(copies[5, last], runs[5, k])
        else:
            copies[:, count] = runs[:, k]
            count += 1
    return copies[:, :count].copy()
