"""Records at size: texts of many Debian packages, or of folders, cut at blank lines, with copies planted among them.

What is planted stands in `planted.parquet` (id, copy_id, kind): a *whole* copy has the letters of its record, an *edit*
has a few words less at one place, a *near* copy has another word in one of sixty. A file that came before in another
package is left out by its hash, so that no text is there twice but by plan.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import math
import os
import random
import re
import subprocess
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from command import MissingError

# Packages by the form of their name, and the share of all text that each group gives at most: trees of sources first,
# packages of four languages, manual pages in all languages, and documentation for the rest.
GROUPS = (
    (r"(?:linux-source-[\d.]+|(?:gcc-12|binutils|gdb|glibc|newlib|fpc|openjdk-17|openjfx|xorg-server)-source)", 0.4),
    (r"golang-.*-dev", 0.15),
    (r"node-.*", 0.05),
    (r"librust-.*-dev", 0.05),
    (r"python3-.*", 0.15),
    (r"manpages.*", 0.05),
    (r".*-doc", 1.0),
)
_PACKAGES_AT_ONCE = 20
_FILE_BYTES = 200, 1_500_000
_PIECE_CHARACTERS = 600, 1200, 1900, 3000
_ROWS = 50_000
_PLANTED_WORDS = 60  # fewest of a record that has a copy: four of five records are longer
_PLANTED = 0.0625  # share of these; a third of it of each kind
_SUFFIXES_OF_NO_TEXT = (".css", ".js.map", ".map", ".svg", ".ps", ".eps", ".pdb", ".min.js", ".po", ".gmo")
_UNREADABLE = OSError, EOFError, tarfile.TarError, zlib.error, lzma.LZMAError


def packages_of_groups(groups: Iterable[tuple[str, float]] = GROUPS) -> Iterator[tuple[float, list[str]]]:
    """The share of each group with the names of its packages without programs, the largest first.

    Raises:
        MissingError: this machine has no apt, or its lists are empty.
    """
    try:
        listed = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise MissingError("no apt here whose packages could be read; give --folders") from error
    sizes = dict[str, int]()
    for paragraph in listed.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Architecture|Size): (.+)$", paragraph, re.MULTILINE))
        if fields.get("Architecture") == "all" or fields.get("Package", "").startswith("librust-"):  # sources too
            sizes[fields["Package"]] = int(fields["Size"])
    for pattern, share in groups:
        names = [name for name in sizes if re.fullmatch(pattern, name)]
        yield share, sorted(names, key=lambda name: (-sizes[name], name))


def texts_of_packages(names: list[str], scratch: Path) -> Iterator[tuple[str, str]]:
    """Path and text of the files of Debian packages, which are downloaded some at a time and deleted again."""
    for start in range(0, len(names), _PACKAGES_AT_ONCE):
        packages = names[start : start + _PACKAGES_AT_ONCE]
        subprocess.run(["apt-get", "download", *packages], cwd=scratch, capture_output=True, check=False)
        for path in sorted(scratch.glob("*.deb")):
            command = ["dpkg-deb", "--fsys-tarfile", path]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as unpacked:
                assert unpacked.stdout is not None
                yield from _texts_of_tar(unpacked.stdout, path.name.partition("_")[0])
                unpacked.kill()
            path.unlink()


def _texts_of_tar(stream: io.IOBase, name: str) -> Iterator[tuple[str, str]]:
    try:
        with tarfile.open(fileobj=stream, mode="r|*") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isfile() else None
                path = f"{name}/{member.name.removeprefix('./')}"
                if file is None or path.endswith(_SUFFIXES_OF_NO_TEXT):
                    continue
                if re.search(r"\.tar(?:\.\w+)?$", path):
                    yield from _texts_of_tar(file, path)
                elif member.size <= _FILE_BYTES[1]:
                    text = text_of(file.read())
                    if text is not None:
                        yield path, text
    except _UNREADABLE:
        return  # the rest of a damaged package; a stream that cannot be read is no text


def texts_of_folder(folder: Path) -> Iterator[tuple[str, str]]:
    """Path and text of the files below a folder, by path."""
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(root, name)
            if path.is_file() and not path.is_symlink() and not name.endswith(_SUFFIXES_OF_NO_TEXT):
                try:
                    text = text_of(path.read_bytes()) if path.stat().st_size <= _FILE_BYTES[1] else None
                except OSError:
                    continue  # what this user may not read
                if text is not None:
                    yield str(path), text


def text_of(data: bytes) -> str | None:
    """The text of a file, unpacked where it is gzip; None if it is no UTF-8, binary, or too short or long."""
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except _UNREADABLE:
            return None
    if not _FILE_BYTES[0] <= len(data) <= _FILE_BYTES[1] or b"\0" in data[:4096]:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def pieces(text: str, draw: random.Random) -> Iterator[str]:
    """A text cut into pieces of some .6 to 4 KB, at blank lines or, where none is near, at lines; no short rest."""
    start = 0
    while start < len(text):
        length = draw.choice(_PIECE_CHARACTERS)
        least, most = start + length, start + 2 * length
        end = text.find("\n\n", least, most) + 2
        if end == 1:
            end = text.find("\n", least, most) + 1 or most
        if min(end, len(text)) - start >= _FILE_BYTES[0]:
            yield text[start:end]
        start = end


def copy_of(text: str, kind: str, draw: random.Random) -> str:
    """A copy of a record of some kind of `planted.parquet`."""
    words = text.split(" ")
    if kind == "edit":
        at = draw.randrange(len(words) - 4)
        del words[at : at + 3]
    elif kind == "near":
        for _ in range(max(1, len(words) // 60)):
            words[draw.randrange(len(words))] = f"edited{draw.randrange(1000)}"
    return " ".join(words)


class Records:
    """Parquet files of records (`id`, `text`, `path`) in a folder."""

    def __init__(self, folder: Path, seed: int, first_id: int = 0) -> None:
        """Begin; identities are counted from `first_id`."""
        folder.mkdir(parents=True, exist_ok=True)
        self.byte_count, self.count, self.planted = 0, 0, list[tuple[str, str, str]]()
        self._folder, self._draw, self._first_id = folder, random.Random(seed), first_id
        self._rows: list[tuple[str, str, str]] = []

    def add_file(self, path: str, text: str) -> None:
        """Add the pieces of a file, and copies of some of them."""
        for piece in pieces(text, self._draw):
            identity = self._add(piece, path)
            if self._draw.random() < _PLANTED and piece.count(" ") >= _PLANTED_WORDS:
                kind = self._draw.choice(("whole", "edit", "near"))
                self.planted.append((identity, self._add(copy_of(piece, kind, self._draw), path), kind))

    def _add(self, text: str, path: str) -> str:
        identity = f"{self._first_id + self.count:09d}"
        self.count, self.byte_count = self.count + 1, self.byte_count + len(text.encode())
        self._rows.append((identity, text, path))
        if len(self._rows) >= _ROWS:
            self._write()
        return identity

    def _write(self) -> None:
        if self._rows:
            columns = dict(zip(("id", "text", "path"), map(list, zip(*self._rows, strict=True)), strict=True))
            name = f"records-{self._first_id + self.count:09d}.parquet"
            pq.write_table(pa.table(columns), self._folder / name, compression="zstd")
            self._rows = []

    def close(self) -> None:
        """Write what waits."""
        self._write()


def write_planted(planted: list[tuple[str, str, str]], path: Path) -> None:
    """Write pairs of a record and its copy."""
    columns = {name: [pair[at] for pair in planted] for at, name in enumerate(("id", "copy_id", "kind"))}
    pq.write_table(pa.table(columns, pa.schema([(name, pa.string()) for name in columns])), path)


def write_records(
    folder: Path, more: Path, gigabytes: float, folders: list[Path], scratch: Path
) -> tuple[Records, Records]:
    """Write records of so many GB, and 1% more of them into another folder.

    Args:
        folder: of the records.
        more: folder of what comes after them.
        gigabytes: of text, in UTF-8.
        folders: whose files are read; those of Debian packages where none is given.
        scratch: folder that packages are downloaded to.

    Returns:
        What was written, with what was planted in each.

    Raises:
        MissingError: nothing to read.
    """
    records, seen = Records(folder, seed=7), set[bytes]()
    later: Records | None = None
    limit = gigabytes * 1e9
    groups: Iterable[tuple[float, Iterator[tuple[str, str]]]] = (
        [(math.inf, texts_of_folder(path)) for path in folders]
        if folders
        else ((share, texts_of_packages(names, scratch)) for share, names in packages_of_groups())
    )
    for share, texts in groups:
        before = records.byte_count
        for path, text in texts:
            digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
            if digest in seen:
                continue
            seen.add(digest)
            if later is None and records.byte_count < limit:
                records.add_file(path, text)
                if records.byte_count - before > share * limit:
                    break
                continue
            later = later or Records(more, seed=8, first_id=records.count)
            later.add_file(path, text)
            if later.byte_count > limit / 100:
                break
        if later is not None and later.byte_count > limit / 100:
            break
    later = later or Records(more, seed=8, first_id=records.count)
    for part in (records, later):
        part.close()
    return records, later
