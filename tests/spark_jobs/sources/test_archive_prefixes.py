"""Archives behind what a format allows before them, and names of zip members in an extra field."""

from __future__ import annotations

import gzip
import io
import random
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from spark_jobs.sources.config.source_config import DocumentsConfig
from tests.spark_jobs.sources.test_archives import FILES, faults, members, tar, zipped
from tests.tiers import tries

Configs = Callable[..., DocumentsConfig]
SHELL = b'#!/bin/sh\nexec unzip "$0"\n'


def skipped(rng: random.Random, most: int = 40) -> bytes:
    """A frame that zstd and lz4 skip."""
    payload = rng.randbytes(rng.randrange(most))
    return struct.pack("<LL", 0x184D2A50 + rng.randrange(16), len(payload)) + payload


def pieces(rng: random.Random, data: bytes) -> Iterator[bytes]:
    """A text cut at random places."""
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(6)))
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        yield data[start:end]


def framed(rng: random.Random, data: bytes) -> bytes:
    """Frames of zstd with skipped ones before, between and behind them, as pzstd and seekable zstd write them."""
    written = b"".join(
        b"".join(skipped(rng) for _ in range(rng.randrange(3))) + zstandard.compress(piece)
        for piece in pieces(rng, data)
    )
    return b"".join(skipped(rng, 90_000) for _ in range(1 + rng.randrange(2))) + written + skipped(rng)


def program(rng: random.Random) -> bytes:
    """What may stand before a zip file: a script, a program with marks of zip in it, noise."""
    noise = rng.randbytes(rng.choice([1, 100, 300_000]))
    marked = b"MZ" + noise + b"PK\3\4" + b"\xff" * 40 + b"PK\1\2PK\5\6" + noise
    return rng.choice([SHELL, SHELL + noise, marked, b"MZ" + noise, b"PK00", b"\n"])


def counted(prefix: bytes, packed: bytes) -> bytes:
    """A zip file behind a prefix that its places count, as `zip -A` and Python's append mode make it."""
    target = io.BytesIO(prefix)
    with zipfile.ZipFile(io.BytesIO(packed)) as read, zipfile.ZipFile(target, "a") as archive:
        for info in read.infolist():
            archive.writestr(info, read.read(info))
    return target.getvalue()


def test_archives_behind_a_legal_prefix_give_every_member() -> None:
    """Of zstd behind and between skipped frames, and of zip files behind a program, whether it is counted or not."""
    rng = random.Random(31)
    for number in range(tries(400)):
        files = {f"{n}/ü{n}.txt": rng.randbytes(rng.randrange(500)).hex().encode() for n in range(rng.randrange(1, 9))}
        packed = zipped(files, rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
        made = (framed(rng, tar(files)), program(rng) + packed, counted(program(rng), packed))
        for place, data in enumerate(made):
            assert members(data) == (files, []), (number, place)


def test_a_zip_file_behind_another_one_that_is_damaged_is_told() -> None:
    """What stands before the members of the directory is no program then, and lands nowhere."""
    first, second = zipped({"lost.txt": b"lost" * 20}), zipped({"read.txt": b"read"})
    assert members(b"?" + first + second) == ({"read.txt": b"read"}, [None])
    assert members(b"?" + first[:60] + second) == ({"read.txt": b"read"}, [None])
    assert members(SHELL + first[:60]) == ({}, [None])
    assert members(b"?" * 2000) == ({}, [None])


def test_files_behind_a_prefix_land_as_others_do(files_config: Configs, data: Path, landing: Any) -> None:
    """Archives on a disk and inside of each other, and single files of several frames and members."""
    rng = random.Random(5)
    lines = b"".join(b'{"body": "text %d"}\n' % number for number in range(300))
    files = dict(list(FILES.items())[:20])
    (data / "a.tar.zst").write_bytes(framed(rng, tar(files)))
    (data / "b.zip").write_bytes(SHELL + zipped(files))
    (data / "c.zip").write_bytes(zipped({"in/a.tar.zst": framed(rng, tar(files)), "in/b.zip": SHELL + zipped(files)}))
    (data / "d.jsonl.zst").write_bytes(framed(rng, lines))
    (data / "e.jsonl.gz").write_bytes(b"".join(map(gzip.compress, pieces(rng, lines))))
    (data / "f.txt.zst").write_bytes(framed(rng, lines))
    documents, arrivals = landing.land(files_config(text_column="body"))
    assert {row["reason"] for row in arrivals} == {None}
    counts = {
        name: sum(row["location"].endswith(name) for row in documents) for name in sorted(map(str, data.iterdir()))
    }
    assert list(counts.values()) == [20, 20, 40, 300, 300, 1]
    (data / "g.zip").write_bytes(SHELL + zipped(files)[:-30])
    _, arrivals = landing.land(files_config(text_column="body"))
    assert faults(arrivals, "g.zip") == {"": "corrupt_archive"}


def with_path(name: str, path: bytes, checksum: int | None = None, version: int = 1) -> bytes:
    """A zip file whose only member has a name for DOS, and a path in Unicode beside it."""
    found = zlib.crc32(name.encode("cp437")) if checksum is None else checksum
    info = zipfile.ZipInfo(name)
    info.extra = struct.pack("<HHBL", 0x7075, 5 + len(path), version, found) + path
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr(info, b"x")
    return target.getvalue()


@pytest.mark.parametrize("cut", [False, True])
def test_a_member_has_the_path_that_its_extra_field_says(cut: bool) -> None:
    """In a directory and without one; a field that was made for another name, or of a later version, counts not."""

    def names(packed: bytes) -> list[str]:
        whole, _ = members(packed[: packed.index(b"PK\1\2")] if cut else packed)
        return list(whole)

    assert names(with_path("??.txt", "привет.txt".encode())) == ["привет.txt"]
    assert names(with_path("a.txt", b"b.txt", checksum=1)) == ["a.txt"]
    assert names(with_path("a.txt", b"b.txt", version=2)) == ["a.txt"]
    assert names(with_path("a.txt", b"")) == ["a.txt"]
    assert names(with_path("a.txt", b"../b.txt")) == ["../b.txt"]
