"""Find the opt-out behind a name: by dictionaries of its values, so that a million documents take seconds.

A domain is its host's and all hosts' below it; a prefix of an address holds for http and https; `owner/*` and `docs/*`
are all of an owner's repositories and all paths below a folder. What is taken in asks whether an entry is about it; the
plan asks for all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import urlsplit

from headrace_features.rights.register import Entry, author_hash
from headrace_features.rights.subjects import canonical_url
from spark_jobs.exceptions import InputError


@dataclass(frozen=True)
class Matcher:
    """Entries by the values that they are about, by kind; prefixes of addresses by host, then as they are.

    Attributes:
        entries: the ids of entries by kind and value, the earliest first.
        prefixes: prefixes without scheme, each with its entry, by host and port.
        salt: of the register's hashes.
    """

    entries: Mapping[str, Mapping[str, tuple[str, ...]]]
    prefixes: Mapping[str, list[tuple[str, str]]]
    salt: str

    @classmethod
    def of(cls, entries: Iterable[Entry], salt: str) -> Matcher:
        """Those of some entries."""
        by_kind = dict[str, dict[str, tuple[str, ...]]]()
        prefixes = dict[str, list[tuple[str, str]]]()
        for entry in entries:
            for value in entry.opt_out.values:
                of_kind = by_kind.setdefault(entry.opt_out.kind, {})
                of_kind[value] = (*of_kind.get(value, ()), entry.entry)
                if entry.opt_out.kind == "url_prefix":
                    place = value.partition("://")[2]
                    prefixes.setdefault(place.partition("/")[0], []).append((place, entry.entry))
        return cls(by_kind, prefixes, salt)

    def every(self, kind: str, value: str) -> Iterator[str]:
        """All entries about a value of a kind, `url` for domains and prefixes of an address; one may come twice."""
        if kind == "url":
            yield from self._of_url(value)
        elif kind in self.entries:
            if kind == "author":
                values: Iterable[str] = (author_hash(self.salt, value),)
            else:
                values = (value, *_folders(value)) if kind in ("repository", "path") else (value,)
            yield from itertools.chain.from_iterable(self.entries[kind].get(one, ()) for one in values)

    def url(self, url: str) -> str | None:
        """The entry about the host of an address, a domain above it, or a prefix of it."""
        return next(self.every("url", url), None)

    def repository(self, name: str) -> str | None:
        """The entry about a repository, or its owner."""
        return next(self.every("repository", name), None)

    def path(self, path: str) -> str | None:
        """The entry about a path, or a folder above it."""
        return next(self.every("path", path), None)

    def sha256(self, digest: str) -> str | None:
        """The entry about a hash."""
        return next(self.every("sha256", digest), None)

    def dataset(self, name: str) -> str | None:
        """The entry about a dataset."""
        return next(self.every("dataset", name), None)

    def record(self, doc_id: str, path: str) -> str | None:
        """The entry about a document, by its id or as FILE#ID."""
        return next(itertools.chain(self.every("record", doc_id), self.every("record", path)), None)

    def author(self, name: str) -> str | None:
        """The entry about an author, by any alias."""
        return next(self.every("author", name), None)

    def has_host(self, host: str) -> bool:
        """Whether any entry may be about an address of a host."""
        of_domains, name = self.entries.get("domain", {}), host.lower()
        return not name.isascii() or any(domain in of_domains for domain in _domains(name)) or name in self._hosts

    @cached_property
    def _hosts(self) -> frozenset[str]:
        return frozenset(place.partition(":")[0] for place in self.prefixes)

    def _of_url(self, url: str) -> Iterator[str]:
        try:
            place = canonical_url(url).partition("://")[2]
        except InputError:
            return
        host, of_domains = urlsplit(f"//{place}").hostname or "", self.entries.get("domain", {})
        for domain in _domains(host):
            yield from of_domains.get(domain, ())
        there = self.prefixes.get(place.partition("/")[0], ())
        yield from (entry for prefix, entry in there if place.startswith(prefix))


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
