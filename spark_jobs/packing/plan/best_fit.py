"""Best-fit decreasing packing, computed on the histogram of lengths alone.

Which lengths share a window does not depend on which unit has which length, so the plan needs only {length: count}: its
cost grows with the number of distinct lengths, never with the number of units. The plan is a table of slots. Window
length 10, units 6, 6, 4, 3, 3, 1:

    length  first_slot  copies  start_window  offset     windows
         6           0       1             0       0     0: 6 6 6 6 6 6 4 4 4 4
         4           2       1             0       6     1: 6 6 6 6 6 6 3 3 3 1
         3           3       1             1       6     2: 3 3 3 . . . . . . .
         3           4       1             2       0
         1           5       1             1       9

Windows with the same history form a class: a contiguous range of windows with equal room. A child class takes the front
of its parent's range, so a slot row is a few integers however many windows it covers. Every step of the plan shrinks
room r of a class to r mod length < r / 2 or ends a length, so there are at most about 2 * distinct lengths * log2(L)
rows (measured: at most 3.1 per distinct length).

The loop is plain Python over classes (not over units): 1,000 rows of plan take about a millisecond, while compiling the
same loop to machine code costs seconds in every fresh process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from spark_jobs.arrays import Int64Array
from spark_jobs.exceptions import InputError

_BLOCK_BITS = 512


@dataclass(frozen=True)
class SlotTable:
    """The plan: for the units of every length, slots in windows; slots are numbered over all lengths, longest first.

    Attributes:
        window_tokens: length of a window, L.
        window_count: windows of the plan; they are dense from 0.
        lengths: (D,) distinct lengths, descending.
        counts: (D,) units of that length.
        first_slot: (R,) number of the row's first slot, ascending, from 0.
        copies: (R,) neighbouring slots of one window of the row.
        start_window: (R,) first window of the row.
        offset: (R,) position of the first of the copies in each window.
        sequences: sequences of a window; the rows are of sequences then, which fill windows in order.
    """

    window_tokens: int
    window_count: int
    lengths: Int64Array
    counts: Int64Array
    first_slot: Int64Array
    copies: Int64Array
    start_window: Int64Array
    offset: Int64Array
    sequences: int = 1

    def look_up(self, slots: Int64Array, lengths: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Look up the window and position of slots.

        Args:
            slots: (N,) slot numbers as `first_slots` counts them.
            lengths: (N,) the length of the unit in each slot.

        Returns:
            (N,) windows and (N,) positions of the units' first tokens in them.
        """
        row = np.searchsorted(self.first_slot, slots, side="right") - 1
        nth = slots - self.first_slot[row]
        copies = self.copies[row]
        windows, sequence = np.divmod(self.start_window[row] + nth // copies, self.sequences)
        start = sequence * (self.window_tokens // self.sequences)
        return windows, start + self.offset[row] + (nth % copies) * lengths

    def first_slots(self) -> tuple[Int64Array, Int64Array]:
        """(D,) distinct lengths, ascending, and (D,) number of the first slot of each."""
        first = np.cumsum(self.counts) - self.counts
        return self.lengths[::-1], first[::-1]


class _OpenClasses:
    """Classes of windows by room; finds the smallest room for a length by a bit set of two levels over stacks."""

    def __init__(self, window_tokens: int) -> None:
        self._stacks: dict[int, list[tuple[int, int]]] = {}
        self._words = [0] * (window_tokens // _BLOCK_BITS + 1)
        self._summary = 0

    def push(self, room: int, start: int, windows: int) -> None:
        """Add the class of windows [start, start + windows), unless it has no room left or no window."""
        if room == 0 or windows == 0:
            return
        stack = self._stacks.setdefault(room, [])
        if not stack:
            word, bit = divmod(room, _BLOCK_BITS)
            self._words[word] |= 1 << bit
            self._summary |= 1 << word
        stack.append((start, windows))

    def pop(self, length: int) -> tuple[int, int, int] | None:
        """Take the class with the least room >= length, of equals the last added: (room, start, windows), or None."""
        word, bit = divmod(length, _BLOCK_BITS)
        here = self._words[word] >> bit
        if here:
            room = length + (here & -here).bit_length() - 1
        else:
            above = self._summary >> (word + 1)
            if not above:
                return None
            word += (above & -above).bit_length()
            low = self._words[word]
            room = word * _BLOCK_BITS + (low & -low).bit_length() - 1
        stack = self._stacks[room]
        start, windows = stack.pop()
        if not stack:
            word, bit = divmod(room, _BLOCK_BITS)
            self._words[word] ^= 1 << bit
            if not self._words[word]:
                self._summary ^= 1 << word
        return room, start, windows


def plan_sequences(histogram: Mapping[int, int], window_tokens: int, length: int) -> SlotTable:
    """Pack units of the given lengths into sequences, and these into windows, whose length is a multiple of theirs."""
    plan, sequences = plan_slots(histogram, length), window_tokens // length
    windows = -(-plan.window_count // sequences)
    return replace(plan, window_tokens=window_tokens, window_count=windows, sequences=sequences)


def plan_slots(histogram: Mapping[int, int], window_tokens: int) -> SlotTable:
    """Pack units of the given lengths into windows by best-fit decreasing.

    The multiset of fill levels equals that of best-fit decreasing over single units: longest unit first, each into the
    fullest window with room, else into a new one.

    Args:
        histogram: units per length; lengths in 1..window_tokens, counts >= 0.
        window_tokens: L.

    Raises:
        InputError: a length outside 1..L or a negative count.
    """
    present = {length: count for length, count in histogram.items() if count}
    for length, count in present.items():
        if not 1 <= length <= window_tokens or count < 0:
            raise InputError(
                f"packing plan: {count} units of length {length}, wanted counts >= 0 of lengths in 1..{window_tokens}; "
                "cut longer documents first"
            )
    lengths = sorted(present, reverse=True)
    open_classes = _OpenClasses(window_tokens)
    rows: list[tuple[int, int, int, int]] = []
    window_count = 0
    slot = 0
    for length in lengths:
        left = present[length]
        while left:
            slots = open_classes.pop(length)
            if slots is None:
                windows = -(-left // (window_tokens // length))
                slots = (window_tokens, window_count, windows)
                window_count += windows
            room, start, windows = slots
            copies = room // length
            filled = min(windows, left // copies)
            if filled:
                rows.append((slot, copies, start, window_tokens - room))
                open_classes.push(room - copies * length, start, filled)
                slot += copies * filled
                left -= copies * filled
            if filled < windows and 0 < left < copies:
                rows.append((slot, left, start + filled, window_tokens - room))
                open_classes.push(room - left * length, start + filled, 1)
                slot += left
                left = 0
                filled += 1
            open_classes.push(room, start + filled, windows - filled)
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    return SlotTable(
        window_tokens=window_tokens,
        window_count=window_count,
        lengths=np.array(lengths, dtype=np.int64),
        counts=np.array([present[length] for length in lengths], dtype=np.int64),
        first_slot=np.ascontiguousarray(table[:, 0]),
        copies=np.ascontiguousarray(table[:, 1]),
        start_window=np.ascontiguousarray(table[:, 2]),
        offset=np.ascontiguousarray(table[:, 3]),
    )
