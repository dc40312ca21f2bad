"""Hash tables of tokens: one counts tokens over many batches, one looks up their weights; neither sorts a batch.

Open addressing with linear probing. Hashes of tokens are mixed well, so their bits are used as the slot.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernels.compiling import compiled
from headrace.kernels.hash_tables import entry_slot, key_slot, slots_for
from spark_jobs.dedup.bags.token_counts import TokenCounts

_FREE = -1
_LEAST_SLOTS = 1 << 16
_SHIFT = np.uint64(20)


class TokenTable:
    """The distinct tokens of a partition, each with its counts and its first spelling."""

    def __init__(self) -> None:
        self._slots = np.full(_LEAST_SLOTS, _FREE, np.int32)
        size = _LEAST_SLOTS // 2
        self._hashes = np.zeros(size, np.uint64)
        self._documents = np.zeros(size, np.int64)
        self._occurrences = np.zeros(size, np.int64)
        self._kinds = np.zeros(size, np.uint8)
        self._ends = np.zeros(size, np.int64)
        self._texts = np.empty(1 << 20, np.uint8)
        self._used = np.zeros(2, np.int64)  # entries, bytes of text

    def __len__(self) -> int:
        return int(self._used[0])

    def _grow(self) -> None:
        """Quadruple the slots, and make room for half as many entries as slots."""
        self._slots = np.full(self._slots.size * 4, _FREE, np.int32)
        size = self._slots.size // 2
        self._hashes = _longer(self._hashes, size)
        self._documents = _longer(self._documents, size)
        self._occurrences = _longer(self._occurrences, size)
        self._kinds = _longer(self._kinds, size)
        self._ends = _longer(self._ends, size)
        _enter(self._slots, self._hashes, len(self))

    def add(self, counted: TokenCounts, kinds: NDArray[np.uint8], data: NDArray[np.uint8]) -> None:
        """Count the tokens of a batch.

        Args:
            counted: tokens of D documents.
            kinds: (D,) number of each document's kind.
            data: the bytes of the spellings.
        """
        token = 0
        token_kinds = np.repeat(kinds, np.diff(counted.offsets))
        while True:
            if (len(self) + 1) * 2 > self._slots.size:
                self._grow()
            token = _count(
                self._slots,
                (self._hashes, self._documents, self._occurrences, self._kinds, self._ends),
                self._texts,
                self._used,
                (counted.hashes, counted.counts, counted.starts, counted.lengths, token_kinds),
                data,
                token,
            )
            if token == len(counted.hashes):
                return
            if len(self) * 2 + 2 <= self._slots.size:  # slots are left, so the room for spellings was full
                wanted = int(self._used[1] + counted.lengths[token])
                self._texts = _longer(self._texts, 2 * wanted)

    def rows(self, kinds: list[str]) -> pa.RecordBatch:
        """All entries as rows (kind, token_hash, token, document_count, occurrence_count), as in `vocabulary`."""
        count, size = (int(value) for value in self._used)
        offsets = np.concatenate([[0], self._ends[:count]]).astype(np.int64)
        texts = [None, pa.py_buffer(offsets), pa.py_buffer(self._texts[:size].copy())]
        tokens = pc.utf8_lower(pa.Array.from_buffers(pa.large_string(), count, texts)).cast(pa.string())
        tokens = pc.if_else(pc.equal(pc.binary_length(tokens), 0), pa.scalar(None, pa.string()), tokens)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(kinds, pa.string()).take(pa.array(self._kinds[:count])),
                pa.array(self._hashes[:count].view(np.int64)),
                tokens,
                pa.array(self._documents[:count]),
                pa.array(self._occurrences[:count]),
            ],
            names=["kind", "token_hash", "token", "document_count", "occurrence_count"],
        )


def _longer(array: NDArray[Any], size: int) -> NDArray[Any]:
    """A copy of an array, padded with zeros to a size."""
    longer = np.zeros(size, array.dtype)
    longer[: array.size] = array
    return longer


@compiled
def _enter(slots, hashes, count):  # type: ignore[no-untyped-def]
    """Put the entries into an empty table of slots."""
    for entry in range(count):
        slots[entry_slot(slots, hashes, hashes[entry] >> _SHIFT, hashes[entry])] = entry


@compiled
def _count(slots, entries, texts, used, tokens, data, first):  # type: ignore[no-untyped-def]
    """Count tokens from `first` on; the index of the first without room, or the number of tokens."""
    hashes, documents, occurrences, kinds, ends = entries
    token_hashes, token_counts, starts, lengths, token_kinds = tokens
    for token in range(first, token_hashes.size):
        wanted = token_hashes[token]
        slot = entry_slot(slots, hashes, wanted >> _SHIFT, wanted)
        entry = slots[slot]
        if entry == _FREE:
            entry = used[0]
            length = lengths[token]
            if (entry + 1) * 2 > slots.size or used[1] + length > texts.size:
                return token
            slots[slot] = entry
            hashes[entry] = wanted
            kinds[entry] = token_kinds[token]
            texts[used[1] : used[1] + length] = data[starts[token] : starts[token] + length]
            used[1] += length
            ends[entry] = used[1]
            used[0] += 1
        documents[entry] += 1
        occurrences[entry] += token_counts[token]
    return token_hashes.size


class UnitTable:
    """Weights of the vocabulary by hash: a hash table of (hash, weight); hash 0 marks a free slot."""

    def __init__(self, hashes: NDArray[np.uint64], units: NDArray[np.uint8]) -> None:
        size = max(_LEAST_SLOTS, slots_for.py_func(hashes.size))
        self._hashes, self._units = np.zeros(size, np.uint64), np.zeros(size, np.uint8)
        _enter_units(self._hashes, self._units, hashes, units)

    def of(self, hashes: NDArray[np.uint64], others: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """(T,) weight of each token; for one outside the vocabulary its value in (T,) `others`."""
        units = others.copy()
        _look_up(self._hashes, self._units, hashes, units)
        return units


@compiled
def _enter_units(slot_hashes, slot_units, hashes, units):  # type: ignore[no-untyped-def]
    for token in range(hashes.size):
        slot = key_slot(slot_hashes, hashes[token] >> _SHIFT, hashes[token])
        slot_hashes[slot], slot_units[slot] = hashes[token], units[token]


@compiled
def _look_up(slot_hashes, slot_units, hashes, units):  # type: ignore[no-untyped-def]
    for token in range(hashes.size):
        slot = key_slot(slot_hashes, hashes[token] >> _SHIFT, hashes[token])
        if slot_hashes[slot] == hashes[token]:
            units[token] = slot_units[slot]
