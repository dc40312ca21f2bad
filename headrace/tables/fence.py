"""The last writing catalogue of a lake: a fencing token beside the files, raised by writers through compare-and-set.

A catalogue cloned with its address cannot be told from its original by any address. But the original goes on
writing, and each of its writing runs leaves a random name in both places, so that a clone is behind:

    catalogue    properties `headrace.fence.<name>` of `system`, the last ones:  {"number": 7, "tag": ".."}
    warehouse    the last one alone:  s3://.../headrace-fence.json                {"number": 7, "writer": "<name>"}
                                      /lake/headrace-fence/7-<name>               a file that is renamed

    1. the catalogue notes a new name       kill: a name that nobody knows elsewhere, and that goes later
    2. the warehouse has it next            if it still has the one that was read (`If-Match`, `rename`)
                                            kill: the catalogue knows the name, and the next writer goes on from there
    3. the catalogue notes the ETag         so that the next raise is one request

A warehouse with a name unknown to the catalogue was written by another one. The loser of 2 against a writer of the same
catalogue has what it wanted, since the token was raised after it began. Nothing here takes a clock for true.
Decision 20 says why; `identity.require_own` calls this before each write.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergNamespaceProperties, SqlCatalog
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.io import load_file_io
from sqlalchemy import delete, insert, update

from headrace.tables.locations import is_local, plain
from headrace.tables.s3_client import s3_client, status_of

SPACE, PREFIX, UNCONDITIONAL = "system", "headrace.fence.", "headrace.unconditional-writes"
OBJECT, FOLDER = "headrace-fence.json", "headrace-fence"
FRESH_SECONDS = 600.0
"""How long a process that raised the token of a store writes on before it asks again."""
KEPT_NAMES = 32  # in the catalogue: more than runs that end while one goes on, else that one raises once more
_TRIES = 64
_ATTEMPTS = 9  # about a minute, for a store that is restarted
_LOST = (HTTPStatus.PRECONDITION_FAILED, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
_UNCOMPARED = (
    "no store is asked to compare when it writes (If-Match), so of two catalogues that write at the same moment "
    "neither is told; see docs/operate/backup.md{mend}"
)
_log = logging.getLogger(__name__)


class BehindError(Exception):
    """Another catalogue wrote the warehouse since this one did; one line."""


@dataclass(frozen=True)
class Token:
    """The fencing token of a warehouse: a growing number, and the random name of its last writer."""

    number: int
    writer: str


@dataclass(frozen=True)
class _Note:
    """What a catalogue knows of a name: its number, and the tag of what it wrote, empty before that is known."""

    number: int
    tag: str = ""

    def to_json(self) -> str:
        return json.dumps({"number": self.number, "tag": self.tag})


class _TokenStore(Protocol):
    """Where a warehouse keeps its token."""

    def look(self) -> tuple[Token, str] | None:
        """The token, and a tag for `put`; None where there is none."""

    def put(self, token: Token, tag: str) -> str | None:
        """Raise the token if it has that tag (empty: there is none); gives the new tag, None if it has not."""


@dataclass(frozen=True)
class _Folder:
    """A local folder with one file, the token in its name: of two renaming writers one finds it."""

    path: str

    def look(self) -> tuple[Token, str] | None:
        with contextlib.suppress(FileNotFoundError):
            names = [name for name in os.listdir(self.path) if name.partition("-")[0].isdigit()]
            if names:  # several after a copy over an older one
                name = max(names, key=lambda file: int(file.partition("-")[0]))
                number, _, writer = name.partition("-")
                return Token(int(number), writer), name
        return None

    def put(self, token: Token, tag: str) -> str | None:
        name = f"{token.number}-{token.writer}"
        try:
            if tag:
                os.rename(f"{self.path}/{tag}", f"{self.path}/{name}")
            else:
                folder = f"{self.path}.{token.writer}"
                os.makedirs(folder)
                open(f"{folder}/{name}", "wb").close()
                os.rename(folder, self.path)  # fails where a folder with a file is
        except FileNotFoundError:
            return None
        except OSError:
            if tag or self.look() is None:
                raise
            os.remove(f"{folder}/{name}")
            os.rmdir(folder)
            return None
        return name


@dataclass(frozen=True)
class _Object:
    """An object of S3; a write compares its ETag."""

    client: Any
    bucket: str
    key: str

    def look(self) -> tuple[Token, str] | None:
        try:
            answer = self.client.get_object(Bucket=self.bucket, Key=self.key)
        except Exception as error:  # boto3 makes its classes of errors at run time; others go on
            if getattr(error, "response", {}).get("Error", {}).get("Code") == "NoSuchKey":
                return None
            raise self._translated(error) from error
        return Token(**json.loads(answer["Body"].read())), answer["ETag"]

    def put(self, token: Token, tag: str) -> str | None:
        condition = {"IfMatch": tag} if tag else {"IfNoneMatch": "*"}
        try:
            answer = self.client.put_object(Bucket=self.bucket, Key=self.key, Body=_json(token), **condition)
        except Exception as error:  # as above
            if status_of(error) in _LOST:
                return None
            raise self._translated(error) from error
        return str(answer["ETag"])

    def compares(self, token: Token) -> bool:
        """Whether the store refuses a wrong ETag; a store ignoring it writes the present content again."""
        return self.put(token, '"00000000000000000000000000000000"') is None

    def _translated(self, error: Exception) -> Exception:
        """Errors of the store as PyArrow's are: of the system, with `AWS Error` in the text."""
        if status_of(error) == HTTPStatus.NOT_IMPLEMENTED:
            return NotImplementedError(str(error))
        if not type(error).__module__.startswith("botocore"):
            return error
        code = getattr(error, "response", {}).get("Error", {}).get("Code", "NETWORK_CONNECTION")
        return OSError(f"{self.bucket}/{self.key}: AWS Error {code}: {' '.join(str(error).split())}")


@dataclass(frozen=True)
class _Uncompared:
    """A store without comparison: two writers within the same second may both win."""

    location: str
    properties: Mapping[str, str]

    def look(self) -> tuple[Token, str] | None:
        with contextlib.suppress(FileNotFoundError):
            with load_file_io(dict(self.properties), self.location).new_input(self.location).open() as stream:
                token = Token(**json.loads(stream.read()))
            return token, token.writer
        return None

    def put(self, token: Token, tag: str) -> str | None:
        there = self.look()
        if (there[1] if there else "") != tag:
            return None
        output = load_file_io(dict(self.properties), self.location).new_output(self.location)
        with output.create(overwrite=True) as stream:
            stream.write(_json(token))
        return token.writer


def _json(token: Token) -> bytes:
    return json.dumps({"number": token.number, "writer": token.writer}).encode()


def _place(catalogue: Catalog, warehouse: str, compares: bool = True) -> _TokenStore:
    if is_local(warehouse):
        return _Folder(f"{plain(warehouse)}/{FOLDER}")
    if compares and warehouse.startswith("s3"):
        with contextlib.suppress(ImportError):
            bucket, _, key = warehouse.partition("://")[2].partition("/")
            return _Object(s3_client(catalogue.properties, _ATTEMPTS), bucket, f"{key}/{OBJECT}".lstrip("/"))
    return _Uncompared(f"{warehouse}/{OBJECT}", catalogue.properties)


@dataclass
class _CatalogueNotes:
    """What a catalogue notes: names of its writers, and whether the store compares."""

    catalogue: Catalog
    notes: dict[str, _Note]
    compares: bool

    @classmethod
    def of(cls, catalogue: Catalog) -> _CatalogueNotes:
        properties: Mapping[str, str] = {}
        with contextlib.suppress(NoSuchNamespaceError):
            properties = catalogue.load_namespace_properties(SPACE)
        names = {key.removeprefix(PREFIX): value for key, value in properties.items() if key.startswith(PREFIX)}
        notes = {name: _Note(**json.loads(value)) for name, value in names.items()}
        return cls(catalogue, notes, UNCONDITIONAL not in properties)

    @property
    def number(self) -> int:
        """The newest number."""
        return max((note.number for note in self.notes.values()), default=0)

    def add(self, writer: str, note: _Note) -> None:
        """Note a new name."""
        self.change({PREFIX + writer: note.to_json()}, is_new=True)
        self.notes[writer] = note

    def confirm(self, writer: str, note: _Note) -> None:
        """Note the tag of a name, and forget the warehouse's names of long ago."""
        old = [name for name, noted in self.notes.items() if noted.number <= note.number - KEPT_NAMES]
        self.change({PREFIX + writer: note.to_json()}, [PREFIX + name for name in old])

    def change(self, values: Mapping[str, str], removed: list[str] | None = None, is_new: bool = False) -> None:
        """Set and remove properties of the namespace, in one transaction where the catalogue has any."""
        if not isinstance(self.catalogue, SqlCatalog):
            self.catalogue.update_namespace_properties(SPACE, set(removed or ()), dict(values))
            return
        row = IcebergNamespaceProperties
        here = row.catalog_name == self.catalogue.name, row.namespace == SPACE
        with self.catalogue.engine.begin() as connection:
            for key, value in values.items():
                at = {"catalog_name": self.catalogue.name, "namespace": SPACE, "property_key": key}
                if is_new:
                    connection.execute(insert(row).values(**at, property_value=value))
                else:
                    connection.execute(update(row).where(*here, row.property_key == key).values(property_value=value))
            if removed:
                connection.execute(delete(row).where(*here, row.property_key.in_(removed)))


_fresh: dict[tuple[str, str], tuple[str, float]] = {}
_lock = threading.Lock()


def is_fresh(catalogue: Catalog, warehouse: str) -> bool:
    """Whether this process raised the token of a store minutes ago, and the catalogue knows of it.

    A local folder is looked at each time, since this costs nothing.
    """
    writer, since = _fresh.get(_key(catalogue, warehouse), ("", 0.0))
    if not writer or time.monotonic() - since > FRESH_SECONDS:
        return False
    notes = _CatalogueNotes.of(catalogue)
    if writer not in notes.notes:
        return False
    if not is_local(warehouse):
        return True
    there = _place(catalogue, warehouse).look()
    return there is not None and there[0].writer in notes.notes


def forget() -> None:
    """Raise the token with the next write, as a new process does."""
    with _lock:
        _fresh.clear()


def _key(catalogue: Catalog, warehouse: str) -> tuple[str, str]:
    return warehouse, str(catalogue.properties.get("uri", ""))


def raise_fence(catalogue: Catalog, warehouse: str, over: bool = False) -> None:
    """Raise the fencing token of a lake, in a store by one request where nobody else does; see the module.

    Args:
        catalogue: of the lake, with the namespace `system`.
        warehouse: where its files are.
        over: whether it is raised over that of the catalogue replaced by this one.

    Raises:
        BehindError: the warehouse was last written by another catalogue.
    """
    with _lock:
        if over or not is_fresh(catalogue, warehouse):
            _fresh[_key(catalogue, warehouse)] = (
                _raised(_CatalogueNotes.of(catalogue), warehouse, over),
                time.monotonic(),
            )


def _raised(notes: _CatalogueNotes, warehouse: str, over: bool) -> str:
    """Raise it; gives the warehouse's name then, of this writer or of one that came in between."""
    begun, place = set(notes.notes), _place(notes.catalogue, warehouse, notes.compares)
    if isinstance(place, _Uncompared) and notes.compares:
        _log.warning("%s: %s", warehouse, _UNCOMPARED.format(mend="; for S3: pip install 'headrace[s3]'"))
    last = max((noted for noted in notes.notes.values() if noted.tag), key=lambda noted: noted.number, default=_Note(0))
    if over or not last.tag or is_local(warehouse):
        last = _looked(place, notes, warehouse, over)[1]
    for _ in range(_TRIES):
        writer = uuid.uuid4().hex
        token = Token(max(last.number, notes.number if over or not last.tag else 0) + 1, writer)
        notes.add(writer, _Note(token.number))
        try:
            tag = place.put(token, last.tag)
        except NotImplementedError:
            tag, place = None, _without_comparison(notes, warehouse)
        if tag is None:
            there, last = _looked(place, notes, warehouse, over)
            if there != writer:
                if there and there not in begun and not over:
                    return there
                continue
            tag = last.tag  # the store had written it, and its answer was lost
        if token.number == 1 and isinstance(place, _Object) and not place.compares(token):
            place = _without_comparison(notes, warehouse)
            tag = writer
        notes.confirm(writer, _Note(token.number, tag))
        return writer
    raise OSError(f"{warehouse}: its fencing token is raised by others all the time; run again")


def _looked(place: _TokenStore, notes: _CatalogueNotes, warehouse: str, over: bool) -> tuple[str, _Note]:
    """The name of a warehouse, empty without any, with number and tag to go on from."""
    there = place.look()
    if there is None:
        return "", _Note(0)
    token, tag = there
    if token.writer not in notes.notes and not over:
        notes.notes = _CatalogueNotes.of(notes.catalogue).notes
        if token.writer not in notes.notes:
            raise BehindError(_behind(warehouse, token, notes))
    return token.writer, _Note(token.number, tag)


def _without_comparison(notes: _CatalogueNotes, warehouse: str) -> _TokenStore:
    """Go on with a store without comparison, and say so once."""
    _log.warning("%s: %s", warehouse, _UNCOMPARED.format(mend=""))
    if notes.compares:
        notes.compares = False
        with contextlib.suppress(Exception):  # another writer notes it at this moment
            notes.change({UNCONDITIONAL: "true"}, is_new=True)
    return _place(notes.catalogue, warehouse, compares=False)


def require_newest_token(catalogue: Catalog, warehouse: str) -> None:
    """Refuse an outdated catalogue without raising the token: for readers.

    Raises:
        BehindError: the warehouse was last written by another catalogue.
    """
    notes = _CatalogueNotes.of(catalogue)
    _looked(_place(catalogue, warehouse, notes.compares), notes, warehouse, over=False)


def _behind(warehouse: str, token: Token, notes: _CatalogueNotes) -> str:
    return (
        f"lake: {warehouse} was last written through another catalogue (fencing token {token.number}, writer "
        f"{token.writer[:8]}), of which the one that is open is a clone or an older copy (it knows up to token "
        f"{notes.number}); nothing was written or deleted. Go on with the other, or, if that one is gone for good, "
        f"take its place: headrace relocate --from {warehouse} --to {warehouse}"
    )
