"""Header blocks, beside the library that the server uses."""

from __future__ import annotations

import random

import hpack
import pytest

from blender_service.direct.hpack import HeaderBlockError, read_headers, write_headers

NAMES = [b":status", b":path", b"content-type", b"grpc-status", b"grpc-message", b"via", b"own-bin", b"x" * 200]


def some_headers(random_: random.Random) -> list[tuple[bytes, bytes]]:
    """Draw headers: known and unknown names, known values, any bytes."""
    values = [b"200", b"404", b"POST", b"gzip, deflate", b"application/grpc", b"", random_.randbytes(300)]
    values += [bytes(random_.choices(b"abc /+%ABC019~", k=random_.randint(1, 200))), random_.randbytes(5)]
    return [(random_.choice(NAMES), random_.choice(values)) for _ in range(random_.randint(0, 12))]


@pytest.mark.parametrize("huffman", [True, False])
def test_what_a_server_writes_is_read(huffman: bool) -> None:
    """As the library writes it for a client that keeps no table."""
    random_ = random.Random(1)
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    for _ in range(1000):
        headers = some_headers(random_)
        assert read_headers(encoder.encode(headers, huffman=huffman)) == headers


def test_every_byte_has_its_code() -> None:
    """All 256, each alone, so that none hides behind another."""
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    for byte in range(256):
        headers = [(b"x", bytes((byte,)) * 3)]
        assert read_headers(encoder.encode(headers, huffman=True)) == headers


def test_what_is_written_a_server_reads() -> None:
    """As the library reads it, and without being kept in its table."""
    random_ = random.Random(2)
    for _ in range(1000):
        headers = some_headers(random_)
        decoder = hpack.Decoder()
        found = decoder.decode(write_headers(headers), raw=True)
        assert [(bytes(name), bytes(value)) for name, value in found] == headers
        assert len(decoder.header_table.dynamic_entries) == 0


@pytest.mark.parametrize(
    ("block", "complaint"),
    [
        (b"\x80", "header 0 of"),
        (b"\xbe", "header 62 of"),
        (b"\x3f\xe1\x1f", "a table of 4096 bytes"),
        (b"\x00", "it ends where a string should be"),
        (b"\x00\x03ab", "a string of 3 bytes, 2 are there"),
        (b"\xff" + b"\x80" * 9, "a number that does not end"),
        (b"\x00\x01a\x84\xff\xff\xff\xff", "the end inside a string"),
        (b"\x00\x01a\x81\x00", "a string that breaks off"),
    ],
)
def test_a_block_that_cannot_be_read_is_refused(block: bytes, complaint: str) -> None:
    """With what is wrong with it."""
    with pytest.raises(HeaderBlockError, match=complaint):
        read_headers(block)


def test_damaged_blocks_are_read_or_refused_nothing_else() -> None:
    """Whatever comes, the one error is what callers expect; what the library reads as well is read the same."""
    random_ = random.Random(3)
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    outcomes = {"same": 0, "refused": 0}
    for _ in range(5000):
        block = bytearray(encoder.encode(some_headers(random_), huffman=random_.random() < 0.5))
        for _ in range(random_.randint(1, 3)):
            if block:
                block[random_.randrange(len(block))] = random_.randrange(256)
        try:
            found = read_headers(bytes(block))
        except HeaderBlockError:
            outcomes["refused"] += 1
            continue
        decoder = hpack.Decoder(max_header_list_size=1 << 20)
        decoder.max_allowed_table_size = 0
        decoder.header_table_size = 0
        try:
            known = [(bytes(name), bytes(value)) for name, value in decoder.decode(bytes(block), raw=True)]
        except hpack.HPACKError:
            continue
        assert found == known
        outcomes["same"] += 1
    assert min(outcomes.values()) > 500
