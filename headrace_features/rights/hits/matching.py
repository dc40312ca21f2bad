"""Which opt-outs name a URL, repository, path, file, record or author: look-ups by value, never a loop over entries.

    entry                       names
    domain example.org          https://example.org/a, http://www.example.org:8080/
    url_prefix https://b.org/x  http://b.org/x, https://www.b.org/x/y, https://b.org/xy, https://b.org/%78
    repository ann/*            Ann/tools
    path docs/*                 docs/a/b.txt, docs/a.jsonl#7
    author [two hashes]         "Ann Miller <ann@example.org>", "Miller, Ann; Bob Lee"

A value may be named by several entries; `hits` gives all of them, in order of the register.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

from headrace_features.rights.register.register import Entry, Kind, author_hash
from headrace_features.rights.register.subjects import canonical_host, canonical_url
from headrace_features.rights.signals.robots import path_of
from spark_jobs.exceptions import InputError

ADDRESSES: Final = ("url", "source_url", "link", "permalink", "warc_target_uri")
"""Keys of a document's metadata that say where on the web it is."""
AUTHORS: Final = ("author", "authors", "byline", "creator", "creators", "from", "sender", "user", "username", "owner")
"""Keys that say who wrote it."""
_BLANKS: Final = "".join(
    map(chr, (*range(0x21), 0x85, 0xA0, 0x1680, *range(0x2000, 0x200C), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF))
)
"""What is blank to people, with the controls that readers of addresses leave out."""
BEGINNING: Final = f"(?i)^[{_BLANKS}]*https?://"
"""Of an address, in the syntax of `re` and of Arrow."""
_WEB: Final = re.compile(BEGINNING)
_PLAIN: Final = re.compile(rf"{BEGINNING}(?:[^/?#]*@)?([^/?#]+)([^#]*)")
_NONE: Final[tuple[str, ...]] = ()
_ADDRESS = re.compile(r"[^\s<>()\[\],;:\"]+@[^\s<>()\[\],;:\"]+")
_RESERVED = re.compile(r"%(2[1246789A-E]|3[ABD]|40|5B|5D)")  # those that `path_of` keeps, but `#`, `%`, `/` and `?`
_SEPARATORS = re.compile(r"\s*(?:[;,&|\n]|\band\b)\s*")


@dataclass(frozen=True)
class Matcher:
    """Entries by what they name; it can be pickled into tasks.

    Attributes:
        salt: of the register's author hashes.
        named: kind and compared value to the entries that name it, in order of the register.
        hosts: of URL prefixes, without ports.
        lengths: host to the lengths of the URL prefixes on it, so that a URL is looked up once for each length.
    """

    salt: str
    named: dict[tuple[Kind, str], tuple[str, ...]] = field(default_factory=dict)
    lengths: dict[str, tuple[int, ...]] = field(default_factory=dict)
    hosts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, entries: Iterable[Entry], salt: str, now: datetime | None = None) -> Matcher:
        """The matcher of those entries that hold at a moment, by default now."""
        moment = now or datetime.now(UTC)
        named: dict[tuple[Kind, str], list[str]] = {}
        lengths: dict[str, set[int]] = {}
        for entry in entries:
            asked = entry.opt_out
            if not entry.holds or (asked.since is not None and asked.since > moment):
                continue
            for value in asked.values:
                compared = _compared(asked.kind, value)
                named.setdefault((asked.kind, compared), []).append(entry.entry)
                if asked.kind == "url_prefix":
                    lengths.setdefault(_host(compared), set()).add(len(compared))
        by_value = {key: tuple(dict.fromkeys(entry_ids)) for key, entry_ids in named.items()}
        by_host = {host: tuple(sorted(of_host)) for host, of_host in lengths.items()}
        return cls(salt, by_value, by_host, frozenset(host.partition(":")[0] for host in by_host))

    @cached_property
    def _kinds(self) -> frozenset[Kind]:
        return frozenset(kind for kind, _ in self.named)

    def kinds(self) -> frozenset[Kind]:
        """Kinds of which there is an entry, so that nobody reads a column that no entry needs."""
        return self._kinds

    def naming(self, dataset: str, facts: Mapping[str, Any]) -> Iterator[str]:
        """The entries that name a file or document; one may come several times.

        Args:
            dataset: whose it is.
            facts: any of location, repository, path, content_sha256, doc_id and metadata, as tables have them.
        """
        kinds, metadata = self._kinds, facts.get("metadata") or {}
        path, repository = facts.get("path") or "", facts.get("repository") or ""
        if "dataset" in kinds:
            yield from self.hits("dataset", dataset)
        if "repository" in kinds and repository:
            yield from self.hits("repository", repository)
        if "path" in kinds:
            yield from self.hits("path", path)
        if "sha256" in kinds:
            yield from self.hits("sha256", facts.get("content_sha256") or "")
        if "record" in kinds:
            yield from self.hits("record", facts.get("doc_id") or "") + self.hits("record", path)
        if not kinds.isdisjoint(("domain", "url_prefix")):
            for address in filter(None, (facts.get("location"), path, *map(metadata.get, ADDRESSES))):
                if _WEB.match(address):  # most paths and locations are no addresses, which takes long to find out
                    yield from self.hits("domain", address) + self.hits("url_prefix", address)
        if "author" in kinds:
            for name in filter(None, (owner_of(repository), *map(metadata.get, AUTHORS))):
                yield from self.hits("author", name)

    def hits(self, kind: Kind, value: str) -> tuple[str, ...]:
        """All entries of a kind that name a value (of `domain` and `url_prefix`, a whole URL)."""
        entry_ids = [entry for key in self._keys(kind, value) for entry in self.named.get((kind, key), _NONE)]
        return tuple(dict.fromkeys(entry_ids)) if entry_ids else _NONE

    def host(self, host: str) -> tuple[str, ...]:
        """All entries of a domain that name a host, in its canonical form."""
        return tuple(entry for parent in _domains(host) for entry in self.named.get(("domain", parent), _NONE))

    def has_host(self, host: str) -> bool:
        """Whether an entry may name an address on a host, so that the others need no look."""
        return bool(self.host(host)) or host.removeprefix("www.") in self.hosts

    def _keys(self, kind: Kind, value: str) -> Iterable[str]:
        """The compared values that an entry may have to name this."""
        if kind in ("domain", "url_prefix"):
            key = url_key(value)
            if key is None:
                return _NONE
            host = _host(key)
            if kind == "domain":
                return _domains(host.partition(":")[0] if host.count(":") == 1 else host)
            key = _prefix_key(value) or key
            key += "" if key.endswith("/") or "?" in key else "/"  # `/blog` is the page of `/blog/`
            return [key[:length] for length in self.lengths.get(_host(key), ()) if length <= len(key)]
        if kind == "repository":
            name = _compared(kind, value)
            return (name, f"{name.rpartition('/')[0]}/*")
        if kind == "path":
            return _path_keys(value)
        if kind == "author":
            return [author_hash(self.salt, name) for name in author_names(value)]
        return (_compared(kind, value),)


def owner_of(repository: str) -> str:
    """The owner of `owner/name` or `host/owner/name`; empty where there is none."""
    return repository.rpartition("/")[0].rpartition("/")[2]


def url_key(url: str) -> str | None:
    """The compared form of a URL, `host/path?query`; None for text that is no address of the web.

    An address that no form fits (a host of odd characters) is compared by what stands between its slashes: a name that
    cannot be read must not be a way around an opt-out.
    """
    url = url.strip(_BLANKS)
    try:
        return canonical_url(url).partition("://")[2]
    except InputError:
        plain = _PLAIN.match(url)
        return None if plain is None else plain[1].strip(f". {_BLANKS}").lower() + (plain[2] or "/")


def _prefix_key(url: str) -> str | None:
    """A URL as prefixes are compared: without `www.`, with %xx of its path as the characters that they stand for.

    In a query they may tell `+` from a blank, so there they are as RFC 9309 compares them.
    """
    key = url_key(url)
    if key is None or "/" not in key:
        return key
    host, _, rest = key.removeprefix("www.").partition("/")
    path, mark, query = path_of(f"/{rest}").decode().partition("?")
    return f"{host}{_RESERVED.sub(lambda match: chr(int(match[1], 16)), path)}{mark}{query}"


def url_host(url: str) -> str | None:
    """The canonical host of a URL, without port."""
    key = url_key(url)
    return None if key is None else _host(key).partition(":")[0]


def author_names(text: str) -> list[str]:
    """Names and addresses in a text about authors, the whole text first; `Miller, Ann` is `Ann Miller` too."""
    addresses = _ADDRESS.findall(text)
    names = [text, *addresses, *(address.strip("'.") for address in addresses)]
    bare = re.sub(r"\s*[<(\[]?" + _ADDRESS.pattern + r"[>)\]]?\s*", ";", text)
    bare = re.sub(r"""["'],\s*["']""", ";", bare.strip("[] "))  # a list in JSON or Python
    for part in [bare, *re.split(r"[;&|\n]|\band\b", bare)]:
        names.append(part.strip(" ;,\"'"))
        family, comma, first = part.strip(" ;\"'").partition(",")
        if comma and "," not in first:
            names.append(f"{first.strip()} {family.strip()}")
    names += [part.strip(" \"'") for part in _SEPARATORS.split(bare)]
    return [name for name in dict.fromkeys(names) if name]


def _compared(kind: Kind, value: str) -> str:
    """A stored value as it is compared: schemes of addresses, and case where names have none, do not count."""
    if kind == "url_prefix":
        return _prefix_key(value) or value
    if kind == "domain":
        try:
            return canonical_host(value)
        except InputError:
            return value.lower()
    if kind == "repository":  # forges do not tell Ann/Tools from ann/tools
        return value.strip("/").removesuffix(".git").lower()
    return value.lower() if kind == "sha256" else value


def _host(key: str) -> str:
    return re.split(r"[/?]", key, maxsplit=1)[0]


def _parents(host: str) -> Iterator[str]:
    """A host and its parents: a.b.org, b.org, org."""
    while host:
        yield host
        host = host.partition(".")[2]


def _domains(host: str) -> Iterator[str]:
    """What entries of a domain call a host: itself, its parents, and `www.` of a host without."""
    yield from _parents(host)
    yield f"www.{host}"


def _path_keys(path: str) -> Iterator[str]:
    """A path, the files that it may be a record of, and the folders above it."""
    yield path
    for sign, end in (("#", ""), ("/", "/*")):
        at = path.find(sign)
        while at >= 0:
            yield path[:at] + end
            at = path.find(sign, at + 1)
