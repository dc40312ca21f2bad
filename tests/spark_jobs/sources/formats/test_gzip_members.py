"""All bytes before a damage, wherever it is, and the place of each member."""

from __future__ import annotations

import gzip
import io
import random
import zlib

import pytest

from spark_jobs.sources.opening.gzip_members import GzipMembers

PARTS = [b"first" * 50, b"", random.Random(1).randbytes(3000), b"last"]


def everything(packed: bytes, size: int) -> tuple[bytes, str | None]:
    """All that can be read in pieces of a size, and the message of the damage that ends it."""
    members, pieces = GzipMembers(io.BytesIO(packed)), list[bytes]()
    try:
        while piece := members.read(size):
            assert len(piece) <= size and members.tell() == sum(map(len, pieces)) + len(piece)
            pieces.append(piece)
    except OSError as error:
        return b"".join(pieces), str(error)
    return b"".join(pieces), None


@pytest.mark.parametrize("size", [1, 7, 1 << 16])
def test_members_are_read_one_after_the_other(size: int) -> None:
    """Whatever the size of a read; null bytes after a member are padding."""
    packed = gzip.compress(PARTS[0]) + b"\0" * 70_000 + b"".join(map(gzip.compress, PARTS[1:])) + b"\0"
    assert everything(packed, size) == (b"".join(PARTS), None)
    assert everything(b"", size) == (b"", None)


def test_every_cut_is_told_and_nothing_before_it_is_lost() -> None:
    """A file cut at any byte gives a beginning of the bytes; only between members is it whole."""
    packed = [gzip.compress(part) for part in PARTS]
    ends = {sum(map(len, packed[:count])) for count in range(len(packed) + 1)}
    whole, file = b"".join(PARTS), b"".join(packed)
    for cut in range(len(file) + 1):
        data, damage = everything(file[:cut], 1000)
        assert whole.startswith(data) and (damage is None) == (cut in ends)
        flushed = sum(len(part) for part, end in zip(PARTS, sorted(ends)[1:], strict=True) if end <= cut)
        assert len(data) >= flushed


def test_a_wrong_checksum_or_length_is_damage() -> None:
    """What a member says of itself is checked."""
    for place in (-8, -1):
        lying = bytearray(gzip.compress(PARTS[0]))
        lying[place] ^= 1
        assert "damaged gzip" in str(everything(bytes(lying) + gzip.compress(b"next"), 1000)[1])


def test_a_member_is_found_by_a_position_in_what_it_gave() -> None:
    """The bytes from its start decompress to the bytes from its first position."""
    file = b"".join(map(gzip.compress, PARTS))
    members = GzipMembers(io.BytesIO(file))
    while members.read(100):
        pass
    for position in (0, 249, 250, 3000, 3250, 3253):
        start = members.member_start(position)
        part = next(part for part in PARTS if part and position < sum(map(len, PARTS[: PARTS.index(part) + 1])))
        assert zlib.decompressobj(31).decompress(file[start:]) == part
