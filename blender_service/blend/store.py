"""Store configs of blends as objects of the warehouse: put if absent, never changed, deleted as a whole.

    blends/<id>.json        the config
    blends/heads/v1/<id>    its head (`resolved_blend`), derived from configs, and computed again where it is lost
    blends/names/<name>     the id that a name is bound to
    blends/named/<id>/<name>  the same from the other side, so that one listing gives the names of a blend

An object is complete or invisible whenever a crash happens, so replicas share nothing else and need no lock. A name is
bound to one blend until that is deleted.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import tempfile
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Protocol

from pyarrow import fs
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFileIO

from blender_service.blend.config import BLEND_ID, NAME_PATTERN, BlendConfig, load_config
from blender_service.exceptions import (
    BlendNameTakenError,
    BlendNotFoundError,
    CatalogueError,
    InvalidBlendError,
)
from blender_service.order.resolved_blend import HEAD_VERSION, Head, decode_head, encode_head
from headrace.tables.identity import warehouse_of
from headrace.tables.locations import is_local
from headrace.tables.s3_client import s3_client, status_of

MIN_ID_DIGITS: Final = 6
CONFLICT_ATTEMPTS: Final = 5  # S3 answers 409 while another writer's conditional put of the same key is under way
NAME: Final = re.compile(NAME_PATTERN.strip("^$"))  # `$` alone lets a line end through
HEADS: Final = f"heads/v{HEAD_VERSION}"

logger = logging.getLogger(__name__)


class ObjectStore(Protocol):
    """The operations of a store of blends."""

    def put_if_absent(self, path: str, content: bytes) -> bool:
        """Write a new object; False, and no change, where one exists."""

    def read(self, path: str) -> bytes | None:
        """Read an object, None if there is none."""

    def list(self, folder: str) -> list[str]:
        """List the names of the objects in a folder."""

    def delete(self, path: str) -> None:
        """Delete an object; no error where it does not exist."""


class LocalStore:
    """Objects as files of one directory tree."""

    def __init__(self, root: Path) -> None:
        """Keep objects under `root` (it need not exist yet)."""
        self._root = root

    def put_if_absent(self, path: str, content: bytes) -> bool:
        """Write a file whole, then link it to its name: the link is atomic and refuses an existing name."""
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".writing-", dir=target.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.link(temporary, target)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
        return True

    def read(self, path: str) -> bytes | None:
        """Read a file, None if there is none."""
        try:
            return (self._root / path).read_bytes()
        except FileNotFoundError:
            return None

    def list(self, folder: str) -> list[str]:
        """List the files of a folder, those still being written left out."""
        directory = self._root / folder
        if not directory.is_dir():
            return []
        return sorted(entry.name for entry in directory.iterdir() if entry.is_file() and entry.name[0] != ".")

    def delete(self, path: str) -> None:
        """Delete a file."""
        (self._root / path).unlink(missing_ok=True)


class RemoteStore:
    """Objects in an object store, where a write becomes visible when it is closed.

    PyArrow has no create-if-absent, so two writers of one new object can both succeed. Configs are named by their
    content, so both write the same bytes; of two that bind one name in the same moment, the last one wins. `S3Store`
    does better.
    """

    def __init__(self, filesystem: fs.FileSystem, root: str) -> None:
        """Keep objects under `root` of a pyarrow file system."""
        self._filesystem = filesystem
        self._root = root

    def put_if_absent(self, path: str, content: bytes) -> bool:
        """Write an object unless it exists."""
        full = f"{self._root}/{path}"
        if self._filesystem.get_file_info(full).type != fs.FileType.NotFound:
            return False
        try:
            stream = self._filesystem.open_output_stream(full)
        except FileNotFoundError:  # a file system that has folders
            self._filesystem.create_dir(full.rpartition("/")[0], recursive=True)
            stream = self._filesystem.open_output_stream(full)
        with stream:
            stream.write(content)
        return True

    def read(self, path: str) -> bytes | None:
        """Read an object, None if there is none."""
        try:
            with self._filesystem.open_input_file(f"{self._root}/{path}") as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def list(self, folder: str) -> list[str]:
        """List the objects of a folder."""
        selector = fs.FileSelector(f"{self._root}/{folder}".rstrip("/"), allow_not_found=True)
        return sorted(info.base_name for info in self._filesystem.get_file_info(selector) if info.is_file)

    def delete(self, path: str) -> None:
        """Delete an object."""
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.delete_file(f"{self._root}/{path}")


class S3Store(RemoteStore):
    """Objects in S3: it refuses by itself to write over an object (`If-None-Match`), so one of many writers wins."""

    def __init__(self, filesystem: fs.FileSystem, root: str, properties: Mapping[str, str]) -> None:
        """Keep objects under `root`, bucket first, of the S3 that PyIceberg's `properties` (`s3.*`) name."""
        super().__init__(filesystem, root)
        self._properties = properties

    def put_if_absent(self, path: str, content: bytes) -> bool:
        """Write an object unless it exists; S3 decides between simultaneous writers.

        Raises:
            CatalogueError: boto3 is not installed.
        """
        client = self._client
        from botocore.exceptions import BotoCoreError, ClientError

        bucket, _, folder = self._root.partition("/")
        attempts = iter(range(1, CONFLICT_ATTEMPTS))
        while True:
            try:
                client.put_object(Bucket=bucket, Key=f"{folder}/{path}", Body=content, IfNoneMatch="*")
            except (BotoCoreError, ClientError) as error:
                status = status_of(error)
                if status == HTTPStatus.PRECONDITION_FAILED:
                    return False
                if status != HTTPStatus.CONFLICT or next(attempts, None) is None:
                    raise OSError(f"writing {bucket}/{folder}/{path}: {error}") from error
            else:
                return True

    @functools.cached_property
    def _client(self) -> Any:
        """A client of boto3, with PyIceberg's settings."""
        try:
            return s3_client(self._properties)
        except ImportError as error:
            raise CatalogueError(
                "lake: the warehouse is in S3, where blends are written with boto3, which is not installed; install "
                "headrace[s3]"
            ) from error


def open_store(catalogue: Catalog) -> BlendStore:
    """Open the store of blends in a catalogue's warehouse.

    Raises:
        CatalogueError: the catalogue's settings do not say where that is.
    """
    location = warehouse_of(catalogue)
    if location is None:
        raise CatalogueError("lake: the catalogue has no warehouse setting; set PYICEBERG_CATALOG__LAKE__WAREHOUSE")
    if is_local(location):
        return BlendStore(LocalStore(Path(location) / "blends"))
    scheme, _, root = location.partition("://")
    filesystem = PyArrowFileIO(dict(catalogue.properties)).fs_by_scheme(scheme, root.partition("/")[0])
    if scheme == "s3":
        return BlendStore(S3Store(filesystem, f"{root}/blends", catalogue.properties))
    return BlendStore(RemoteStore(filesystem, f"{root}/blends"))


def check_name(name: str) -> None:
    """Refuse a malformed name, and one easily taken for an id.

    Raises:
        InvalidBlendError: with the rule broken by the name.
    """
    if not re.fullmatch(NAME_PATTERN, name) or re.fullmatch(rf"[0-9a-f]{{{MIN_ID_DIGITS},64}}", name):
        raise InvalidBlendError(
            f"blend name {name!r}: use a letter, then letters, digits, '_', '.', '-' in lower case, "
            "and something that does not read as a hex id"
        )


def not_found(blend_id: str) -> BlendNotFoundError:
    """Make the error of an id that no blend has."""
    return BlendNotFoundError(f"blend {blend_id} does not exist; see `headrace blend show` for ids and names")


class BlendStore:
    """Configs by id, and ids by name."""

    def __init__(self, objects: ObjectStore) -> None:
        """Keep configs in `objects`."""
        self._objects = objects

    @property
    def objects(self) -> ObjectStore:
        """Where configs are kept."""
        return self._objects

    def shows(self, blend_id: str) -> bool:
        """Whether a blend may be seen, here always; `visible_lake.VisibleBlends` hides some."""
        return True

    def put(self, config: BlendConfig, head: Head | None = None) -> str:
        """Store a config if it is new, its head first, and give its id.

        Args:
            config: of the blend.
            head: of the blend; may be left out for one without parent.
        """
        blend_id = config.blend_id
        self._objects.put_if_absent(f"{HEADS}/{blend_id}", encode_head(head or config.resolve()))
        self._objects.put_if_absent(f"{blend_id}.json", config.canonical_json())
        return blend_id

    def head(self, config: BlendConfig) -> Head:
        """Give the head of a blend: one read, or a walk over its ancestors where the stored head is lost or damaged.

        Raises:
            BlendNotFoundError: the head is lost, and an ancestor's config too.
        """
        unresolved = [config]
        head = self._stored_head(config.blend_id)
        while head is None and (parent := unresolved[-1].parent) is not None:
            head = self._stored_head(parent)
            unresolved.append(self.get(parent))
        while unresolved and (head is None or head.blend_id != config.blend_id):
            following = unresolved.pop()
            if head is None or following.blend_id != head.blend_id:
                head = following.resolve(head)
        assert head is not None
        return head

    def _stored_head(self, blend_id: str) -> Head | None:
        """Read the head stored beside a config, None if there is no usable one."""
        content = self._objects.read(f"{HEADS}/{blend_id}")
        head = decode_head(blend_id, content) if content is not None else None
        if head is None:
            logger.warning("blend %s: its stored head is lost or damaged, so it is computed again", blend_id)
        return head

    def bind(self, name: str, blend_id: str) -> None:
        """Bind a name to an id, for good.

        Raises:
            BlendNameTakenError: it is bound to another id.
        """
        if not self._objects.put_if_absent(f"names/{name}", blend_id.encode()):
            bound = (self._objects.read(f"names/{name}") or b"").decode()
            if bound != blend_id:
                raise BlendNameTakenError(
                    f"blend name {name}: already stands for {bound}, not for {blend_id}; choose another name"
                )
        self._objects.put_if_absent(f"named/{blend_id}/{name}", b"")

    def resolve(self, reference: str) -> str:
        """Turn an id, the start of one (6 digits or more) or a name into the id.

        Raises:
            BlendNotFoundError: it refers to no blend, or to more than one.
        """
        if BLEND_ID.fullmatch(reference):
            return reference
        bound = self._bound(reference)
        if bound is not None:
            return bound
        starting = [blend_id for blend_id in self.list_ids() if blend_id.startswith(reference)]
        if len(reference) >= MIN_ID_DIGITS and len(starting) == 1:
            return starting[0]
        problem = f"is the start of {len(starting)} ids" if len(starting) > 1 else "does not exist"
        raise BlendNotFoundError(f"blend {reference!r} {problem}; see `headrace blend show` for ids and names")

    def get(self, blend_id: str) -> BlendConfig:
        """Read a config by its full id.

        Raises:
            BlendNotFoundError: there is none.
            StoredBlendError: it is damaged or of an unknown version.
        """
        content = self._objects.read(f"{blend_id}.json")
        if content is None:
            raise not_found(blend_id)
        return load_config(blend_id, content)

    def _bound(self, name: str) -> str | None:
        """Give the id that a name is bound to, None if it is no name or is not bound."""
        if not NAME.fullmatch(name):
            return None
        bound = self._objects.read(f"names/{name}")
        return bound.decode() if bound is not None else None

    def list_ids(self) -> list[str]:
        """List all ids, ascending."""
        names = self._objects.list("")
        return [name[:-5] for name in names if name.endswith(".json") and BLEND_ID.fullmatch(name[:-5])]

    def has(self, blend_id: str) -> bool:
        """Whether there is a blend of that id."""
        return self._objects.read(f"{blend_id}.json") is not None

    def names_of(self, blend_id: str) -> list[str]:
        """List the names of a blend, ascending: one listing, however many names there are."""
        return self._objects.list(f"named/{blend_id}")

    def names(self) -> dict[str, list[str]]:
        """List the names of each id that has any."""
        by_id = {blend_id: self.names_of(blend_id) for blend_id in self.list_ids()}
        return {blend_id: names for blend_id, names in by_id.items() if names}

    def delete(self, blend_id: str) -> None:
        """Delete a config, its head and its names; the config last, so an interrupted deletion leaves it listed."""
        for name in self.names_of(blend_id):
            self._objects.delete(f"names/{name}")
            self._objects.delete(f"named/{blend_id}/{name}")
        self._objects.delete(f"{HEADS}/{blend_id}")
        self._objects.delete(f"{blend_id}.json")
