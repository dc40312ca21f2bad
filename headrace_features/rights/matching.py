"""Find the opt-out behind a name: by dictionaries of its values, so that a million documents take seconds.

A domain is its host's and all hosts' below it; a prefix of an address holds for http and https; `owner/*` and `docs/*`
are all of an owner's repositories and all paths below a folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from headrace_features.rights.register import Entry, author_hash
from headrace_features.rights.subjects import canonical_url
from spark_jobs.exceptions import InputError


@dataclass(frozen=True)
class Matcher:
    """Entries by the values that they are about, by kind; prefixes of addresses by host, then as they are.

    Attributes:
        entries: the id of an entry by kind and value.
        prefixes: prefixes without scheme, each with its entry, by host and port.
        salt: of the register's hashes.
    """

    entries: Mapping[str, Mapping[str, str]]
    prefixes: Mapping[str, list[tuple[str, str]]]
    salt: str

    @classmethod
    def of(cls, entries: Iterable[Entry], salt: str) -> Matcher:
        """Those of some entries; of two about the same the earlier one is named."""
        by_kind = dict[str, dict[str, str]]()
        prefixes = dict[str, list[tuple[str, str]]]()
        for entry in entries:
            for value in entry.opt_out.values:
                by_kind.setdefault(entry.opt_out.kind, {}).setdefault(value, entry.entry)
                if entry.opt_out.kind == "url_prefix":
                    place = value.partition("://")[2]
                    prefixes.setdefault(place.partition("/")[0], []).append((place, entry.entry))
        return cls(by_kind, prefixes, salt)

    def url(self, url: str) -> str | None:
        """The entry about the host of an address, a domain above it, or a prefix of it."""
        try:
            place = canonical_url(url).partition("://")[2]
        except InputError:
            return None
        host = urlsplit(f"//{place}").hostname or ""
        if (entry := self._first("domain", _domains(host))) is not None:
            return entry
        there = self.prefixes.get(place.partition("/")[0], ())
        return next((entry for prefix, entry in there if place.startswith(prefix)), None)

    def repository(self, name: str) -> str | None:
        """The entry about a repository, or its owner."""
        return self._first("repository", (name, *_folders(name)))

    def path(self, path: str) -> str | None:
        """The entry about a path, or a folder above it."""
        return self._first("path", (path, *_folders(path)))

    def sha256(self, digest: str) -> str | None:
        """The entry about a hash."""
        return self._first("sha256", (digest,))

    def dataset(self, name: str) -> str | None:
        """The entry about a dataset."""
        return self._first("dataset", (name,))

    def record(self, doc_id: str, path: str) -> str | None:
        """The entry about a document, by its id or as FILE#ID."""
        return self._first("record", (doc_id, path))

    def author(self, name: str) -> str | None:
        """The entry about an author, by any alias."""
        return self._first("author", (author_hash(self.salt, name),)) if "author" in self.entries else None

    def _first(self, kind: str, values: Iterable[str]) -> str | None:
        there = self.entries.get(kind)
        return None if there is None else next((there[value] for value in values if value in there), None)


def _domains(host: str) -> Iterator[str]:
    """A host and all domains above it."""
    while host:
        yield host
        host = host.partition(".")[2]


def _folders(path: str) -> Iterator[str]:
    """Values about all below a folder of a path, the innermost first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield f"{path}/*"
