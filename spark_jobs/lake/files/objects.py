"""Bytes of a namespace, kept as they came, each object named by the SHA-256 of its content.

    <warehouse>/<namespace>/landed/<first two digits>/<SHA-256>

An object is complete or not there: it is written under another name beside it and renamed, or sent to the store in one
request that ends with its last byte. Equal bytes are kept once, and an object is never written again.

Results of long computations lie beside them, each named by the SHA-256 of what decides it, so that a run that was
killed goes on where it was:

    <warehouse>/<namespace>/results/<first two digits>/<SHA-256>

Objects of a local folder can be frozen: moved to a cold folder, here or on a store, named in the file `frozen`
of the folder. They are read from there as before, and can be thawed: moved back.

Rows name an object by where it was when it was kept. In a relocated lake it is found by the end of that name,
and what its former lake had frozen is read and never removed: the file `frozen_elsewhere` names those folders.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa

from spark_jobs.exceptions import InputError
from spark_jobs.lake.files.storage import create, exists, files_below, local_path, open_input, remove

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_CHUNK_BYTES = 4 << 20
_FOLDER = "landed"
_COLD = "frozen"  # file of a folder with the cold ones, one a line
_OTHERS_COLD = "frozen_elsewhere"  # those of the lake that this one was relocated from
_PARTS_OF_LOCATION = 4  # namespace, landed, two digits, name


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none at the end."""


class KeptObject(NamedTuple):
    """A kept object: its location, the SHA-256 of its bytes in lower-case hex, and their number."""

    location: str
    sha256: str
    byte_count: int


@dataclass(frozen=True)
class ObjectFolder:
    """The kept objects of a namespace.

    Attributes:
        root: path or URI of the folder.
        properties: of PyIceberg's FileIO, for object stores.
    """

    root: str
    properties: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, catalogue: Catalog, namespace: str) -> ObjectFolder:
        """The folder of a namespace of a lake."""
        warehouse = catalogue.properties["warehouse"].removeprefix("file://").rstrip("/")
        passed = {key: value for key, value in catalogue.properties.items() if key.startswith(("s3.", "client."))}
        return cls(f"{warehouse}/{namespace}/{_FOLDER}", tuple(sorted(passed.items())))

    def keep(self, stream: _Readable) -> KeptObject:
        """Keep what is left of a stream, in bounded memory.

        Raises:
            OSError: the stream breaks off, or the object cannot be written; nothing is kept then.
        """
        folder = local_path(self.root)
        if folder is not None:
            os.makedirs(folder, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".part-") as part:
            digest, byte_count = hashlib.sha256(), 0
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
                part.write(chunk)
                byte_count += len(chunk)
            part.flush()
            name = digest.hexdigest()
            kept = KeptObject(_below(self.root, name), name, byte_count)
            if not exists(kept.location, dict(self.properties)):
                self._publish(part.name, kept.location)
        return kept

    def _publish(self, part: str, location: str) -> None:
        """Give a complete file its name."""
        path = local_path(location)
        if path is None:
            with open(part, "rb") as source, create(location, dict(self.properties)) as target:
                shutil.copyfileobj(source, target, _CHUNK_BYTES)
            return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(part, "rb") as source:
            os.fsync(source.fileno())
        os.chmod(part, 0o444)
        try:
            os.link(part, path)
        except FileExistsError:  # another writer kept the same bytes in between
            return

    def result(self, key: str) -> bytes | None:
        """The result kept under a key; None where there is none."""
        location = self._of_result(key)
        if not exists(location, dict(self.properties)):
            return None
        with self.open(location) as stream:
            return bytes(stream.read())

    def keep_result(self, key: str, data: bytes) -> None:
        """Keep a result under the SHA-256 of all that decides it; an existing one stays."""
        location = self._of_result(key)
        folder = local_path(self.root)
        if folder is not None:
            os.makedirs(folder, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".part-") as part:
            part.write(data)
            part.flush()
            self._publish(part.name, location)

    def _of_result(self, key: str) -> str:
        return _below(f"{self.root.removesuffix(_FOLDER)}results", key)

    def open(self, location: str) -> pa.NativeFile:
        """Open an object to read at any offset, where it is kept or frozen.

        Raises:
            OSError: it is not there, or may not be read.
        """
        location = self._here(location)
        path = local_path(location)
        if path is None:
            return open_input(location, dict(self.properties))
        if not os.path.exists(path):
            for cold in (*self.cold_folders(), *self.cold_folders(_OTHERS_COLD)):
                frozen = _below(cold, os.path.basename(path))
                if exists(frozen, dict(self.properties)):
                    return open_input(frozen, dict(self.properties))
        return pa.OSFile(path, "r")

    def _here(self, location: str) -> str:
        """Location of an object in this lake; a row may name it by its place before the lake was relocated."""
        warehouse = self.root.rsplit("/", 2)[0]
        parts = location.rsplit("/", _PARTS_OF_LOCATION)
        return location if len(parts) <= _PARTS_OF_LOCATION else "/".join((warehouse, *parts[1:]))

    def freeze(self, cold: str, before: float) -> int:
        """Move objects from before a moment to a cold folder; returns how many were moved.

        An object is copied, read back and compared with its hash, and only then removed here; a run that is cut off
        leaves it in both places.

        Args:
            cold: path or URI of the folder, in which the namespace has one of its own; it is noted once it can be
                written, since whatever asks for an object looks there from then on.
            before: seconds since 1970.

        Raises:
            InputError: the objects are in a store, whose own rules of life cycle move them, or the cold folder is that
                of the lake that this one was relocated from.
            OSError: an object cannot be read or written, or has other bytes than its name says; the others move.
        """
        old, local = self.older(before), local_path(cold)
        cold = cold if local is None else os.path.abspath(os.path.expanduser(local))
        cold = f"{cold.rstrip('/')}/{self.root.split('/')[-2]}"
        if cold in self.cold_folders(_OTHERS_COLD):
            raise InputError(f"{cold} is of the lake that this one was relocated from; name another cold folder")
        if old and cold not in self.cold_folders():
            try:
                create(probe := f"{cold}/.probe", dict(self.properties)).close()
                remove(probe, dict(self.properties))
            except ValueError as error:  # an unknown scheme
                raise OSError(f"{cold}: {error}") from error
            with open(f"{local_path(self.root)}/{_COLD}", "a", encoding="utf-8") as names:
                names.write(f"{cold}\n")
        unequal = list[str]()
        for path in old:
            target = _below(cold, os.path.basename(path))
            with open(path, "rb") as source, create(target, dict(self.properties)) as copy:
                shutil.copyfileobj(source, copy, _CHUNK_BYTES)
            with open_input(target, dict(self.properties)) as copy:
                if sha256_of(copy) != os.path.basename(path):
                    unequal.append(path)
                    continue
            os.remove(path)
        if unequal:
            raise OSError(f"{len(unequal)} of {len(old)} objects are damaged here and stay, first {unequal[0]}")
        return len(old)

    def older(self, before: float) -> list[str]:
        """Paths of the objects here from before a moment, in seconds since 1970; sorted.

        Raises:
            InputError: as `freeze`.
        """
        root = local_path(self.root)
        if root is None:
            raise InputError(f"{self.root} is in an object store; move its objects by the store's rules of life cycle")
        return sorted(
            entry.path
            for folder in (os.scandir(root) if os.path.isdir(root) else ())
            if folder.is_dir()
            for entry in os.scandir(folder.path)
            if entry.stat().st_mtime < before
        )

    def thaw(self) -> int:
        """Move frozen objects back; returns how many. Each is compared with its hash before the cold copy goes.

        What this lake had frozen before its relocation is copied back.

        Raises:
            OSError: an object cannot be read or written, or has other bytes than its name says; the others move.
        """
        count, unequal, properties = 0, list[str](), dict(self.properties)
        ours = self.cold_folders()
        for cold in (*ours, *self.cold_folders(_OTHERS_COLD)):
            for frozen in files_below(cold, properties):
                name = frozen.rpartition("/")[2]
                with open_input(frozen, properties) as stream:
                    equal = sha256_of(stream) == name
                if equal:
                    with open_input(frozen, properties) as stream:
                        self.keep(stream)
                    with self.open(_below(self.root, name)) as here:  # which may have been here before, and damaged
                        equal = sha256_of(here) == name
                if not equal:
                    unequal.append(frozen)
                    continue
                if cold in ours:
                    remove(frozen, properties)
                count += 1
        if unequal:
            raise OSError(f"{len(unequal)} objects are damaged and stay cold, first {unequal[0]}")
        for names in (_COLD, _OTHERS_COLD):
            if self.cold_folders(names):
                os.remove(f"{local_path(self.root)}/{names}")
        return count

    def delete(self, name: str) -> bool:
        """Delete the object of a SHA-256 for good, here and in cold folders; returns whether there was one."""
        properties = dict(self.properties)
        places = (_below(self.root, name), *(_below(cold, name) for cold in self.cold_folders()))
        there = [place for place in places if exists(place, properties)]
        for place in there:
            remove(place, properties)
        return bool(there)

    def cold_folders(self, names: str = _COLD) -> list[str]:
        """Where objects of this folder are frozen, a folder of the namespace's own each."""
        try:
            with open(f"{local_path(self.root)}/{names}", encoding="utf-8") as lines:
                return lines.read().split("\n")[:-1]
        except FileNotFoundError:
            return []

    def leave_cold_folders(self) -> None:
        """Read what is frozen from now on without ever removing it, for another lake goes on using it."""
        root = local_path(self.root)
        if root is None or not self.cold_folders():
            return
        kept = list(dict.fromkeys((*self.cold_folders(_OTHERS_COLD), *self.cold_folders())))
        with open(f"{root}/{_OTHERS_COLD}", "w", encoding="utf-8") as lines:
            lines.writelines(f"{folder}\n" for folder in kept)
        os.remove(f"{root}/{_COLD}")


def _below(folder: str, name: str) -> str:
    """Where the object of a SHA-256 is in a folder of objects."""
    return f"{folder}/{name[:2]}/{name}"


def sha256_of(stream: _Readable) -> str:
    """SHA-256 of what is left of a stream, in lower-case hex."""
    digest = hashlib.sha256()
    while chunk := stream.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()
