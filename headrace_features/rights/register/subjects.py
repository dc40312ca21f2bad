"""What opt-outs are about, in the one form that is stored and compared: `HTTPS://Example.ORG:443/a` and so on.

repository   owner/name, as its documents have it; `owner/*` for all of an owner
author       salted hashes of names and addresses (`register.author_hash`)
domain       example.org: the host, and all hosts below it; IDNA, lower case
url_prefix   scheme and host as above, the path as it is: https://example.org/blog/
path         a path of a file or record below its repository or source; `docs/*` for all below
sha256       of the bytes of a file or document, hex
dataset      a dataset of the lake
record       a doc_id, or FILE#ID of a record
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog import Catalog

from headrace_features.rights.register.register import Kind, OptOut, Scope, author_hash, register_salt
from spark_jobs.exceptions import InputError
from spark_jobs.sources.opening.destinations import ascii_host

_HEX = re.compile(r"[0-9a-f]{64}")
_REPOSITORY_ADDRESS = re.compile(r"(?i)https?://[^/]+/([^/?#]+)/([^/?#]+?)(?:\.git)?(?:[/?#].*)?\Z")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def canonical(kind: Kind, value: str) -> str:
    """A value in its stored form.

    Raises:
        InputError: it is none of its kind; the message says the form.
    """
    value = value.strip()
    if kind == "domain":
        return canonical_host(value)
    if kind == "url_prefix":
        return canonical_url(value)
    if kind == "sha256":
        value = value.lower().removeprefix("sha256:")
        if not _HEX.fullmatch(value):
            raise InputError(f"opt-out of sha256 {value[:80]!r}: give 64 hex digits of the file's SHA-256")
    if kind == "repository" and (address := _REPOSITORY_ADDRESS.match(value)):
        value = f"{address[1]}/{address[2]}"
    if not value:
        raise InputError(f"opt-out of a {kind}: the value is empty; name what is to be left out")
    return value


def canonical_host(host: str) -> str:
    """A host in lower case and IDNA, without a final dot, `www.` as it is.

    Raises:
        InputError: it is no name of a host.
    """
    try:
        name = ascii_host(unquote(host).removeprefix("*.").rstrip("."))
    except UnicodeError:
        name = ""
    if not name or not re.fullmatch(r"[a-z0-9_.:\[\]-]+", name) or "/" in host:
        raise InputError(f"opt-out of domain {host[:80]!r}: give a host such as example.org, without path")
    return name


def canonical_url(url: str) -> str:
    """An address with canonical host, without default port, user and fragment; path and query as they are.

    Raises:
        InputError: it is no address of the web.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InputError(f"opt-out of address {url[:80]!r}: {error}") from error
    if parts.scheme.lower() not in _DEFAULT_PORTS or not parts.hostname:
        raise InputError(f"opt-out of address {url[:80]!r}: give one such as https://example.org/blog/")
    host = canonical_host(parts.hostname)
    shown = host if port in (None, _DEFAULT_PORTS[parts.scheme.lower()]) else f"{host}:{port}"
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme.lower()}://{shown}{parts.path or '/'}{query}"


def opt_outs_of(
    catalogue: Catalog,
    kind: Kind,
    values: Sequence[str],
    asker: str,
    *,
    scope: Scope = "all",
    since: datetime | None = None,
    evidence: str = "",
    request: str = "",
    salt: str | None = None,
) -> list[OptOut]:
    """Opt-outs of some values: one for an author with all aliases hashed, else one for each value.

    The asker of an author's entry is kept as a hash too, where it is one of the aliases. Give the register's `salt` for
    many authors, so that it is read once.

    Raises:
        InputError: a value has not the form of its kind.
    """
    if kind == "author":
        salt = salt or register_salt(catalogue)
        aliases = tuple(sorted({author_hash(salt, canonical(kind, value)) for value in values}))
        asker_hash = author_hash(salt, asker)
        named = f"author {asker_hash[:16]}" if asker_hash in aliases else asker
        return [OptOut(named, kind, aliases, scope, since, evidence, request)]
    return [
        OptOut(asker, kind, (value,), scope, since, evidence, request)
        for value in dict.fromkeys(canonical(kind, value) for value in values)
    ]
