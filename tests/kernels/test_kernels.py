"""Shared kernels beside plain Python."""

import numpy as np
import pytest
from numba import njit

from headrace.kernels.hash_tables import entry_slot, key_address, key_slot, slots_for
from headrace.kernels.memory import byte_at, eight_bytes_at, four_bytes_at, trailing_zeros
from headrace.kernels.mixing import GOLDEN, hash_step, mix64, plain_hash
from headrace.kernels.permutation import domain_bits, inverted, mix, permuted
from headrace.kernels.utf8 import code_point, width


def test_mixing_is_splitmix64() -> None:
    """First outputs from seed 0, as its authors publish them; on arrays and compiled."""
    states = GOLDEN * np.arange(1, 3, dtype=np.uint64)
    assert mix64(states).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]
    assert int(njit(mix64)(GOLDEN)) == 0xE220A8397B1DCDAF


def test_the_plain_hash_is_that_of_steps() -> None:
    """Tables that Python fills are searched by compiled code."""
    words = np.random.default_rng(1).integers(0, 1 << 63, (20, 50), np.uint64)
    h = np.zeros(50, np.uint64)
    for row in words:
        h = hash_step(h, row)
    assert h.tolist() == [plain_hash(words[:, k].tolist()) for k in range(50)]


@njit
def _search(keys, rows, slots, entries, wanted):  # type: ignore[no-untyped-def]
    found = np.zeros((wanted.size, 3), np.int64)
    for k in range(wanted.size):
        h = wanted[k]
        found[k, 0] = keys[key_slot(keys, h, h)] == h
        found[k, 1] = eight_bytes_at(key_address(rows.ctypes.data, 16, np.uint64(len(rows) - 1), h, h) + 8)
        found[k, 2] = slots[entry_slot(slots, entries, h, h)]
    return found


@pytest.mark.parametrize("count", [0, 1, 8, 1000])
def test_tables_find_what_was_entered_and_nothing_else(count: int) -> None:
    """Half full, with keys whose low bits collide, at the end of the table too."""
    size = slots_for.py_func(count)
    made = np.random.default_rng(count).permutation(np.arange(1, 2 * count + 9, dtype=np.uint64)) << np.uint64(2)
    entries, others = made[:count], made[count:]
    keys, rows, slots = np.zeros(size, np.uint64), np.zeros((size, 2), np.uint64), np.full(size, -1, np.int32)
    for k, h in enumerate(entries):
        keys[key_slot.py_func(keys, h, h)] = h
        rows[key_slot.py_func(rows[:, 0], h, h)] = h, k + 1
        slots[entry_slot.py_func(slots, entries, h, h)] = k
    assert _search(keys, rows, slots, entries, entries).tolist() == [[1, k + 1, k] for k in range(count)]
    assert _search(keys, rows, slots, entries, others).tolist() == [[0, 0, -1]] * len(others)


@njit
def _points(data):  # type: ignore[no-untyped-def]
    found, at = [0][:0], 0
    while at < data.size:
        found.append(code_point(data, at))
        at += width(data[at])
    return found


def test_every_character_of_utf8_is_read() -> None:
    """All code points but surrogates."""
    text = "".join(chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000)
    assert _points(np.frombuffer(text.encode(), np.uint8)) == [*map(ord, text)]


@njit
def _there_and_back(size, word):  # type: ignore[no-untyped-def]
    bits, rotation = domain_bits(size), mix(word) % size
    for k in range(size):
        if inverted(permuted(np.uint64(k), word, size, bits, rotation), word, size, bits, rotation) != np.uint64(k):
            return False
    return True


@pytest.mark.parametrize("size", [1, 2, 255, 256, 257, 5000])
def test_the_permutation_has_its_inverse(size: int) -> None:
    """For several words each."""
    assert all(_there_and_back(np.uint64(size), np.uint64(word)) for word in (0, 7, (1 << 64) - 1))


@njit
def _read(data):  # type: ignore[no-untyped-def]
    at = data.ctypes.data + 1
    return byte_at(at), four_bytes_at(at), eight_bytes_at(at), trailing_zeros(np.uint64(96))


def test_memory_is_little_endian_at_any_address() -> None:
    """One, four and eight bytes from an odd place."""
    data = np.arange(200, 220, dtype=np.uint8)
    number = int.from_bytes(data[1:9].tobytes(), "little")
    assert _read(data) == (201, number & 0xFFFFFFFF, number, 5)
