"""Compressed files are read up to the limits of their formats, and only damage is called damage."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import zlib
from collections.abc import Callable

import pyarrow as pa
import pytest
import zstandard

from spark_jobs.sources.opening.compression import decompressed, decompressed_by_name
from spark_jobs.sources.opening.limits import ArchiveLimits
from spark_jobs.sources.opening.streams import read_up_to
from spark_jobs.sources.refusals import RefusedError

PARTS = [f"record {n} of the crawl tells about the harbour and its {n} ships; ".encode() * 9 for n in range(40)]


def skippable(data: bytes, mark: int = 0x184D2A50) -> bytes:
    """A frame that holds no data."""
    return struct.pack("<LL", mark, len(data)) + data


TRAINED = zstandard.train_dictionary(2000, PARTS * 10).as_bytes()
RAW = b"of the crawl tells about the harbour and its ships; " * 20


@pytest.mark.parametrize("dictionary", [TRAINED, RAW], ids=["trained", "raw"])
@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("has_id", [False, True])
def test_the_dictionary_in_the_first_frame_is_used(dictionary: bytes, is_packed: bool, has_id: bool) -> None:
    """As .warc.zst has it: a frame for each record, skippable ones anywhere, the dictionary packed or not."""
    packed = zstandard.compress(dictionary) if is_packed else dictionary
    parameters = zstandard.ZstdCompressor(dict_data=zstandard.ZstdCompressionDict(dictionary), write_dict_id=has_id)
    frames = [parameters.compress(part) + skippable(b"x") for part in PARTS]
    data = skippable(packed, 0x184D2A5D) + b"".join(frames)
    assert read_up_to(decompressed(io.BytesIO(data), "zstd"), 1 << 20) == b"".join(PARTS)
    if has_id and dictionary is TRAINED:
        with pytest.raises(RefusedError, match="a zstd dictionary that is not in it") as caught:
            read_up_to(decompressed(io.BytesIO(b"".join(frames)), "zstd"), 1 << 20)
        assert caught.value.refusal.reason == "not_unpacked"


def xz(dictionary_bytes: int) -> bytes:
    """A file whose header asks for such a dictionary."""
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20}]
    data = bytearray(lzma.compress(b"".join(PARTS), filters=filters))
    bits = next(n for n in range(40) if (2 | n & 1) << (n // 2 + 11) >= dictionary_bytes)
    size = (data[12] + 1) * 4
    data[12 + 4] = bits
    data[12 + size - 4 : 12 + size] = struct.pack("<L", zlib.crc32(bytes(data[12 : 12 + size - 4])))
    return bytes(data)


def zstd_window(log: int) -> bytes:
    """A frame of a window of that many bits, with one block as it is."""
    body = b"".join(PARTS)
    return b"\x28\xb5\x2f\xfd\x00" + bytes([(log - 10) << 3]) + struct.pack("<L", len(body) << 3 | 1)[:3] + body


@pytest.mark.parametrize("make", [lambda: xz(1536 << 20), lambda: zstd_window(31), lambda: zstd_window(27)])
def test_the_largest_windows_are_read_and_a_smaller_limit_is_named(make: Callable[[], bytes]) -> None:
    """By default all that the formats' programs write is read; below a limit the file is whole and the limit told."""
    data = make()
    codec = "xz" if data[0] == 0xFD else "zstd"
    assert read_up_to(decompressed(io.BytesIO(data), codec), 1 << 20) == b"".join(PARTS)
    with pytest.raises(RefusedError, match=r"archives.max_memory_mb is 16, raise it") as caught:
        read_up_to(decompressed(io.BytesIO(data), codec, ArchiveLimits(max_memory_mb=16)), 1 << 20)
    assert caught.value.refusal.reason == "not_unpacked"


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".lzma", lambda data: lzma.compress(data, lzma.FORMAT_ALONE)),
        (".zst", zstandard.compress),
        (".deflate", zlib.compress),
        (".lz4", lambda data: pa.compress(data, "lz4", asbytes=True)),
    ],
)
def test_files_of_every_tail_and_of_several_streams_are_read(name: str, pack: Callable[[bytes], bytes]) -> None:
    """One stream, and several one behind the other; what is cut is damaged."""
    several = b"".join(map(pack, PARTS))
    for data in (pack(b"".join(PARTS)), several):
        assert read_up_to(decompressed_by_name(io.BytesIO(data), f"a.json{name}"), 1 << 20) == b"".join(PARTS)
    with pytest.raises((OSError, pa.ArrowException)) as caught:
        while decompressed_by_name(io.BytesIO(several[:-5]), f"a{name}").read(1 << 20) or True:
            read_up_to(decompressed_by_name(io.BytesIO(several[:-5]), f"a{name}"), 1 << 20)
    assert not isinstance(caught.value, RefusedError)
