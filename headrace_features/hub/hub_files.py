"""Files of a data set on the Hub: where one is, and the digest by which the Hub names its content."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

_LOCATION = re.compile(r"hf://datasets/([^@]+)@([0-9a-f]{40})/([^#]+)#(sha256|git)=([0-9a-f]+)&bytes=(\d+)")
_COMMIT = re.compile(r"@[0-9a-f]{40}/")
_READ_BYTES = 1 << 20


class HubFile(NamedTuple):
    """A file of a commit.

    Attributes:
        kind: of the digest: `sha256` where the file is in LFS, as nearly all Parquet is; `git` of a small one.
        digest: of the content, in hex.
    """

    repo_id: str
    commit: str
    path: str
    kind: str
    digest: str
    byte_count: int

    @classmethod
    def listed(cls, repo_id: str, commit: str, entry: dict[str, Any]) -> HubFile:
        """The file of an entry of the Hub's tree."""
        lfs = entry.get("lfs")
        kind, stored = ("sha256", lfs) if lfs else ("git", entry)
        return cls(repo_id, commit, str(entry["path"]), kind, str(stored["oid"]), int(stored["size"]))

    @classmethod
    def at(cls, location: str) -> HubFile:
        """The file at a location that `location` gave.

        Raises:
            OSError: it is no such location.
        """
        parts = _LOCATION.fullmatch(location)
        if parts is None:
            raise OSError(f"{location} is no file of the Hub")
        repo_id, commit, path, kind, digest, byte_count = parts.groups()
        return cls(repo_id, commit, unquote(path), kind, digest, int(byte_count))

    @property
    def location(self) -> str:
        """Where it is: whoever has the location can ask for the file and check what comes."""
        of_content = f"{self.kind}={self.digest}&bytes={self.byte_count}"
        return f"hf://datasets/{self.repo_id}@{self.commit}/{quote(self.path)}#{of_content}"

    @property
    def is_parquet(self) -> bool:
        """Whether its name says that it is Parquet."""
        return self.path.lower().endswith(".parquet")

    def is_in(self, file: Path) -> bool:
        """Whether a file has its content."""
        head = b"" if self.kind == "sha256" else b"blob %d\0" % self.byte_count  # as git hashes a blob
        hashed = hashlib.new("sha256" if self.kind == "sha256" else "sha1", head, usedforsecurity=False)
        with file.open("rb") as stream:
            while data := stream.read(_READ_BYTES):
                hashed.update(data)
        return hashed.hexdigest() == self.digest


def without_commit(location: str) -> str:
    """A location without its commit: equal where path and content are."""
    return _COMMIT.sub("/", location, count=1)
