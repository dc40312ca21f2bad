"""Every member of an archive lands once, as it would as a file; what is hostile is a row, and the rest lands."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.opening.archives import Unpacking, archive_members
from spark_jobs.sources.opening.limits import ArchiveLimits
from spark_jobs.sources.opening.streams import HashedFile, read_up_to

Configs = Callable[..., DocumentsConfig]
Row = dict[str, Any]
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "tar": bytes,
    "tar.gz": gzip.compress,
    "tgz": gzip.compress,
    "tar.zst": zstandard.compress,
    "tar.xz": lzma.compress,
    "tar.bz2": bz2.compress,
}


def tar(files: dict[str, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    """A tar archive by the standard library."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=form) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return target.getvalue()


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive by the standard library."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return target.getvalue()


def faults(arrivals: list[Row], archive: str) -> dict[str, str]:
    """Reason by what follows the archive's name, of what was refused."""
    found = {row["location"].partition(archive)[2]: row["reason"] for row in arrivals if archive in row["location"]}
    return {place: reason for place, reason in found.items() if reason}


FILES = {f"d{number % 7}/{'x' * (number % 300)}{number}.txt": b"%d\n" % number * (number % 90) for number in range(400)}


def test_members_are_those_that_other_readers_list(files_config: Configs, data: Path, landing: Any) -> None:
    """Names, bytes and their number are those that were packed, in every form, and what the standard library reads."""
    (data / "a.zip").write_bytes(zipped(FILES))
    (data / "stored.zip").write_bytes(zipped(FILES, zipfile.ZIP_STORED))
    for extension, pack in PACKERS.items():
        (data / f"a.{extension}").write_bytes(pack(tar(FILES)))
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT):
        short = {name: content for name, content in FILES.items() if form == tarfile.GNU_FORMAT or len(name) < 90}
        (data / f"f{form}.tar").write_bytes(tar(short, form))
    documents, arrivals = landing.land(files_config())
    assert {row["reason"] for row in arrivals} == {None} and len(arrivals) == len(os.listdir(data))
    found: dict[str, dict[str, bytes]] = {}
    for row in documents:
        archive, _, name = row["path"].partition("#")
        assert name not in found.setdefault(archive, {})
        found[archive][name] = row["content"].encode()
    for name in os.listdir(data):
        if name.endswith(".zip"):
            with zipfile.ZipFile(data / name) as archive:
                assert found[name] == {one: archive.read(one) for one in archive.namelist()}
        elif name.endswith(".zst"):
            assert found[name] == FILES
        else:
            with tarfile.open(data / name) as archive:
                assert found[name] == {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]


def test_a_member_becomes_what_it_would_be_as_a_file(files_config: Configs, data: Path, landing: Any) -> None:
    """Records, compressed texts, pages and archives in archives; each document equals that of the file but its path."""
    table = io.BytesIO()
    pq.write_table(pa.table({"body": ["p", "q"]}), table)
    files = {
        "code/a.py": b"x = 1\n",
        "b.jsonl.gz": gzip.compress(b'{"body": "one"}\n{"body": 5}\n'),
        "c.csv": b"body\nc\n",
        "d.parquet": table.getvalue(),
        "e.txt.xz": lzma.compress(b"e") + lzma.compress(b"f"),
        "no/reader.bin": b"\1",
        ".hidden/x.txt": b"",
    }
    (data / "plain").mkdir()
    for name, content in files.items():
        (data / "plain" / name).parent.mkdir(parents=True, exist_ok=True)
        (data / "plain" / name).write_bytes(content)
    inner = zipped(files)
    (data / "a.zip").write_bytes(inner)
    (data / "b.tar.gz").write_bytes(gzip.compress(tar({"in/a.zip": inner, "in/b.tar.bz2": bz2.compress(tar(files))})))
    documents, arrivals = landing.land(files_config(text_column="body"))
    kept = ("kind", "language", "media_type", "content", "encoding", "content_sha256", "byte_count")
    places: dict[str, set[Any]] = {
        "plain/": set(),
        "a.zip#": set(),
        "b.tar.gz#in/a.zip#": set(),
        "b.tar.gz#in/b.tar.bz2#": set(),
    }
    for row in documents:
        prefix = max((place for place in places if row["path"].startswith(place)), key=len)
        places[prefix].add((row["path"].removeprefix(prefix), *(row[name] for name in kept)))
    assert len(documents) == 4 * len(places["plain/"]) == 4 * 6 and len(set(map(frozenset, places.values()))) == 1
    assert faults(arrivals, "b.tar.gz") == {
        "#in/a.zip#b.jsonl.gz#line:2": "wrong_type",
        "#in/a.zip#no/reader.bin": "unknown_format",
        "#in/a.zip#.hidden/x.txt": "hidden",
        "#in/b.tar.bz2#b.jsonl.gz#line:2": "wrong_type",
        "#in/b.tar.bz2#no/reader.bin": "unknown_format",
        "#in/b.tar.bz2#.hidden/x.txt": "hidden",
    }
    assert {row["location"] for row in documents} <= {row["location"] for row in arrivals}


def entry(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, link: str = "") -> tarfile.TarInfo:
    """A header of tar."""
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, link
    return info


def test_unsafe_names_links_and_doubles_are_rows(files_config: Configs, data: Path, landing: Any) -> None:
    """Each is refused at its own place; the good members around them land."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for info in (
            entry("first.txt"),
            entry("/etc/passwd.txt"),
            entry("a/../../up.txt"),
            entry("..\\up.txt"),
            entry("C:/x.txt"),
            entry("new\nline.txt"),
            entry("not\udcffutf8.txt"),
            entry("link.txt", tarfile.SYMTYPE, link="/etc/passwd"),
            entry("hard.txt", tarfile.LNKTYPE, link="first.txt"),
            entry("device.txt", tarfile.CHRTYPE),
            entry("pipe.txt", tarfile.FIFOTYPE),
            entry("./first.txt"),
            entry("folder", tarfile.DIRTYPE),
            entry("last.txt"),
        ):
            archive.addfile(info)
    (data / "a.tar").write_bytes(target.getvalue())
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(data / "b.zip", "w") as packed:
        link = zipfile.ZipInfo("link.txt")
        link.external_attr = 0o120777 << 16
        packed.writestr(link, "/etc/passwd")
        for name in ("first.txt", "../up.txt", "n\0ul.txt", "first.txt", "größe.txt"):
            packed.writestr(name.replace("\0", "N"), name)
    raw = (data / "b.zip").read_bytes().replace(b"nNul.txt", b"n\0ul.txt")
    (data / "b.zip").write_bytes(raw)
    documents, arrivals = landing.land(files_config())
    assert [row["path"] for row in documents] == [
        "a.tar#first.txt",
        "a.tar#last.txt",
        "b.zip#first.txt",
        "b.zip#größe.txt",
    ]
    assert faults(arrivals, "a.tar") == {
        **dict.fromkeys(["#/etc/passwd.txt", "#a/../../up.txt", "#..\\up.txt", "#C:/x.txt"], "bad_name"),
        **dict.fromkeys(["#new\\x0aline.txt", "#not\\xffutf8.txt"], "bad_name"),
        **dict.fromkeys(["#link.txt", "#hard.txt", "#device.txt", "#pipe.txt"], "not_a_file"),
        "#./first.txt": "listed_twice",
    }
    assert faults(arrivals, "b.zip") == {
        "#link.txt": "not_a_file",
        "#../up.txt": "bad_name",
        "#n\\x00ul.txt": "bad_name",
        "#first.txt": "listed_twice",
    }


ZEROS = bytes(20 << 20)


def test_bombs_are_refused_by_what_is_measured(files_config: Configs, data: Path, landing: Any) -> None:
    """Ratio, members, depth and total, each named; what came before lands."""
    good = {"good.txt": b"good"}
    (data / "ratio.zip").write_bytes(zipped({**good, "zeros.jsonl": ZEROS, "zeros.txt": ZEROS, "more.txt": b"more"}))
    (data / "ratio.tar.gz").write_bytes(gzip.compress(tar({**good, "zeros.txt": ZEROS, "more.txt": b"more"})))
    (data / "ratio.tar.bz2").write_bytes(bz2.compress(tar({**good, "zeros.txt": ZEROS})))
    (data / "many.zip").write_bytes(zipped({f"{number}.txt": b"%d" % number for number in range(60)}))
    (data / "many.tar").write_bytes(tar({f"{number}.txt": b"%d" % number for number in range(60)}))
    deep = zipped(good)
    for _ in range(3):
        deep = zipped({**good, "deep.zip": deep})
    (data / "deep.zip").write_bytes(deep)
    noise = random.Random(1).randbytes(1 << 20).hex().encode()
    total = tar({**good, **{f"{number}.txt": noise + b"%d" % number for number in range(30)}})
    (data / "total.tar.gz").write_bytes(gzip.compress(total, 0))
    limits = {"max_members": 50, "max_depth": 3, "max_unpacked_bytes": 50 << 20, "max_ratio": 100}
    documents, arrivals = landing.land(files_config(text_column="body", archives=limits))
    bomb = "decompression_bomb"
    assert faults(arrivals, "ratio.zip") == {"#zeros.jsonl": bomb, "#zeros.txt": bomb, "#rest": "corrupt_archive"}
    assert faults(arrivals, "ratio.tar.gz") == {"#zeros.txt": bomb, "#rest": bomb}
    assert faults(arrivals, "ratio.tar.bz2") == {"#zeros.txt": bomb, "#rest": bomb}
    assert faults(arrivals, "many.zip") == {"#rest": bomb} == faults(arrivals, "many.tar")
    assert faults(arrivals, "deep.zip") == {"#deep.zip#deep.zip#deep.zip": bomb, "#rest": "corrupt_archive"}
    assert faults(arrivals, "total.tar.gz") == {"#24.txt": bomb, "#rest": bomb}
    paths = {row["path"] for row in documents}
    assert {"ratio.zip#good.txt", "ratio.zip#more.txt", "ratio.tar.gz#good.txt", "total.tar.gz#good.txt"} <= paths
    assert sum(path.startswith("many") for path in paths) == 100 and "deep.zip#deep.zip#deep.zip#good.txt" in paths
    details = " ".join(row["detail"] or "" for row in arrivals)
    assert all(name in details for name in limits)


def test_what_is_before_a_damage_lands_and_the_rest_is_told(files_config: Configs, data: Path, landing: Any) -> None:
    """Archives cut at any byte and with any byte changed: no document that was not packed, none without a word."""
    rng = random.Random(7)
    files = {f"{number}.txt": rng.randbytes(rng.randrange(900)).hex().encode() for number in range(8)}
    whole = {"zip": zipped(files), "tar": tar(files), "tar.gz": gzip.compress(tar(files))}
    whole |= {"tar.bz2": bz2.compress(tar(files)), "tar.xz": lzma.compress(tar(files))}
    for extension, packed in whole.items():
        for number in range(30):
            cut = packed[: rng.randrange(len(packed))]
            (data / f"cut{number}.{extension}").write_bytes(cut)
            flipped = bytearray(packed)
            flipped[rng.randrange(len(packed))] ^= 1 << rng.randrange(8)
            (data / f"flip{number}.{extension}").write_bytes(flipped)
    documents, arrivals = landing.land(files_config())
    told = {row["location"].partition("#")[0] for row in arrivals if row["reason"]}
    landed: dict[str, list[Row]] = {}
    for row in documents:
        landed.setdefault(row["location"], []).append(row)
    partly = 0
    for row in arrivals:
        if "#" not in row["location"]:
            found = landed.get(row["location"], [])
            if row["location"] not in told and not row["location"].endswith(
                ".tar"
            ):  # plain tar has no checksum of data
                bad = [one for one in found if one["content"].encode() != files.get(one["path"].partition("#")[2])]
                assert len(found) == len(files) and not bad, row["location"]
            if os.path.basename(row["location"]).startswith("cut"):
                names = [one["path"].partition("#")[2] for one in found]
                assert [one["content"].encode() for one in found] == [files[name] for name in names]
                assert names == list(files)[: len(names)]
                assert row["location"] in told or len(names) == len(files)  # cut in the padding of a tar
                partly += bool(names)
    assert partly > 60


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("large", [False, True])
def test_a_zip_without_its_directory_gives_the_members_whose_headers_say_where_they_end(
    streamed: bool, large: bool
) -> None:
    """Whole ones and no others, wherever it is cut; one name that is called UTF-8 and is not refuses one member."""
    files = {"a.txt": b"a" * 5000, "\u00fc.txt": random.Random(1).randbytes(9000).hex().encode(), "empty.txt": b""}
    written = Unseekable() if streamed else io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            with archive.open(name, "w", force_zip64=large) as file:
                file.write(data)
    packed = written.getvalue()
    assert members(packed) == (files, [])
    end = packed.index(b"PK\x01\x02")
    for cut in (end, end + 40, len(packed) - 1, *range(40, end, 97)):
        whole, refused = members(packed[:cut])
        assert list(whole.items()) == list(files.items())[: len(whole)] and refused
        assert cut < end or len(whole) == len(files)
    renamed = packed.replace("\u00fc".encode(), b"\xff\xfe")
    assert members(renamed) == ({name: files[name] for name in ("a.txt", "empty.txt")}, ["\udcff\udcfe.txt"])


def test_the_directory_of_a_zip_inside_is_not_taken_for_that_of_the_file() -> None:
    """Of a cut zip that holds a stored one; of concatenated ones what is up to the first directory, and a word."""
    inner = zipped({"inner.txt": b"inner"})
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, data in {"a.txt": b"a", "inner.zip": inner, "b.txt": b"b" * 90}.items():
            archive.writestr(name, data)
    packed = written.getvalue()
    cut = packed[: packed.index(b"b" * 90) + 40]
    assert members(cut) == ({"a.txt": b"a", "inner.zip": inner}, ["b.txt", None])
    assert members(inner + packed) == ({"inner.txt": b"inner"}, [None])


class Unseekable(io.BytesIO):
    """A file as a pipe is one: zip writers put sizes behind the members then."""

    def seekable(self) -> bool:
        """Never."""
        return False

    def tell(self) -> int:
        """Nowhere.

        Raises:
            OSError: always.
        """
        raise OSError("a pipe")


def members(data: bytes) -> tuple[dict[str, bytes], list[str | None]]:
    """The members of an archive that can be read to their end, and the names of the others."""
    whole, refused = dict[str, bytes](), list[str | None]()
    for member in archive_members(HashedFile(io.BytesIO(data)), len(data), Unpacking(ArchiveLimits())):
        try:
            assert member.stream is not None
            whole[member.name or ""] = read_up_to(member.stream, 1 << 20)
        except (AssertionError, OSError):
            refused.append(member.name)
    return whole, refused


def test_zips_that_lie_are_found_out(files_config: Configs, data: Path, landing: Any) -> None:
    """Sizes that are not those, members that share their bytes, passwords, other packers, other names within."""
    text = b"text " * 1000
    plain = zipped({"a.txt": text, "b.txt": b"b"})
    entry_at = plain.index(b"PK\x01\x02")

    def lying(name: str, offset: int, value: bytes) -> None:
        packed = bytearray(plain)
        packed[entry_at + offset : entry_at + offset + len(value)] = value
        (data / name).write_bytes(packed)

    lying("small.zip", 24, struct.pack("<I", 10))
    lying("large.zip", 24, struct.pack("<I", 1 << 31))
    lying("packed.zip", 20, struct.pack("<I", 5))
    lying("name.zip", 46, b"x.txt")
    lying("secret.zip", 8, b"\1\0")
    lying("method.zip", 10, b"\x61\0")
    lying("place.zip", 42, struct.pack("<I", 1 << 30))
    (data / "bzip2.zip").write_bytes(zipped({"a.txt": text}, zipfile.ZIP_BZIP2))
    kernel = zipped({"a.txt": text})
    at = kernel.index(b"PK\x01\x02")
    directory = b"".join(kernel[at : at + 46] + b"%05d" % number for number in range(3000))
    tail = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 3000, 3000, len(directory), at, 0)
    (data / "kernel.zip").write_bytes(kernel[:at] + directory + tail)
    quoted = zipped({"q.txt": kernel[:at], "b.txt": b"b"}, zipfile.ZIP_STORED)
    own = quoted.index(b"PK\x01\x02")
    inner = bytearray(kernel[at : at + 51])
    inner[42:46] = struct.pack("<I", quoted.index(kernel[:at]))
    directory = quoted[own : quoted.index(b"PK\x05\x06")] + inner
    tail = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 3, 3, len(directory), own, 0)
    (data / "quoted.zip").write_bytes(quoted[:own] + directory + tail)
    documents, arrivals = landing.land(files_config(max_document_bytes=100_000))
    corrupt = {"#a.txt": "corrupt_archive", "#rest": "corrupt_archive"}
    assert faults(arrivals, "small.zip") == faults(arrivals, "packed.zip") == corrupt == faults(arrivals, "place.zip")
    assert faults(arrivals, "large.zip") == {"#a.txt": "too_large"}
    assert faults(arrivals, "name.zip") == {"#x.txt": "corrupt_archive", "#rest": "corrupt_archive"}
    assert faults(arrivals, "secret.zip") == {"#a.txt": "encrypted"}
    assert faults(arrivals, "method.zip") == {"#a.txt": "unknown_format"}
    assert faults(arrivals, "bzip2.zip") == {"": "no_usable_record", "#a.txt": "unknown_format"}
    assert set(faults(arrivals, "kernel.zip").values()) == {"corrupt_archive", "no_usable_record"}
    assert faults(arrivals, "quoted.zip") == corrupt | {"#q.txt": "corrupt_archive"}
    good = ["quoted", "small", "large", "packed", "name", "secret", "method", "place"]
    assert sorted(row["path"] for row in documents) == sorted(f"{name}.zip#b.txt" for name in good)


def test_tars_that_lie_are_found_out(files_config: Configs, data: Path, landing: Any) -> None:
    """Headers that claim what is not so end the archive there, in bounded memory; so do bytes after its end."""
    files = {"a.txt": b"a", "b.txt": b"b"}
    plain = tar(files)
    first, second, rest = plain[:1024], plain[1024:2048], plain[2048:]

    def pax(payload: bytes, size: int | None = None) -> bytes:
        info = entry("pax", tarfile.XHDTYPE, len(payload) if size is None else size)
        return info.tobuf(tarfile.USTAR_FORMAT) + payload + bytes(-len(payload) % 512)

    (data / "pax.tar").write_bytes(first + pax(b"99 path=x\n") + second + rest)
    (data / "digits.tar").write_bytes(first + pax(b"9" * 900_000) + second + rest)
    (data / "large.tar").write_bytes(first + pax(b"", 1 << 32) + second + rest)
    (data / "size.tar").write_bytes(first + pax(b"28 size=9999999999999999999\n") + second + rest)
    (data / "negative.tar").write_bytes(first + pax(b"12 size=-99\n") + second + rest)
    (data / "header.tar").write_bytes(first + b"x" * 512 + second + rest)
    (data / "two.tar").write_bytes(plain + plain)
    (data / "open.tar").write_bytes(first + second)
    sparse = entry("holes.txt", tarfile.GNUTYPE_SPARSE, 512).tobuf(tarfile.GNU_FORMAT)
    (data / "holes.tar").write_bytes(first + sparse + bytes(512) + second + rest)
    documents, arrivals = landing.land(files_config())
    for name in ("pax", "digits", "large", "size", "negative", "header", "two", "open"):
        found = faults(arrivals, f"{name}.tar")
        assert found["#rest"] == "corrupt_archive" and len(found) == 1 + (name == "size"), (name, found)
    assert faults(arrivals, "holes.tar") == {"#holes.txt": "not_a_file"}
    both = [row["path"] for row in documents if row["path"].endswith("b.txt")]
    assert both == ["holes.tar#b.txt", "open.tar#b.txt", "two.tar#b.txt"] and len(documents) == 9 + len(both)


def test_files_without_a_telling_name_are_told_by_content(files_config: Configs, data: Path, landing: Any) -> None:
    """Reader, kind and language are those of the content, in archives too; what nobody reads is a row."""
    pytest.importorskip("magika")
    python = Path(__file__).read_bytes()
    lines = b"".join(b'{"body": "text %d", "id": %d}\n' % (number, number) for number in range(50))
    files = {"code": python, "lines.x1": lines, "photo": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4, "empty": b""}
    for name, content in files.items():
        (data / name).write_bytes(content)
    (data / "zipped").write_bytes(zipped(files))
    deep = zipped({"code": python})
    for _ in range(5):
        deep = zipped({"inner": deep})
    (data / "deep").write_bytes(zipped({"a/again": zipped({"code": python + b"# 2"}), "inner": deep}))
    documents, arrivals = landing.land(files_config(text_column="body", id_column="id", unknown="detect"))
    assert len(documents) == 2 * 51 + 1
    assert {(row["path"], row["kind"], row["language"]) for row in documents if "code" in row["path"]} == {
        ("code", "code", "Python"),
        ("zipped#code", "code", "Python"),
        ("deep#a/again#code", "code", "Python"),
    }
    assert all("(magika " in row["metadata"]["headrace.detected"] for row in documents)
    bomb = {"deep#inner#inner#inner": "decompression_bomb", "deep#rest": "corrupt_archive"}
    unknown = dict.fromkeys(["photo", "empty", "zipped#photo", "zipped#empty"], "unknown_content")
    places = {row["location"].removeprefix(f"{data}/"): row["reason"] for row in arrivals if row["reason"]}
    assert places == unknown | bomb | dict.fromkeys(["deep#inner", "deep#inner#inner"], "no_usable_record")
    assert landing.land(files_config(text_column="body", id_column="id", unknown="detect")) is None
    assert files_config().source.unknown == "refuse"  # type: ignore[union-attr]
