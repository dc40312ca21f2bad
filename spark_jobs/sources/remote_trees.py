"""File systems that PyArrow does not know by itself: web servers, and others that fsspec opens by their scheme.

The files of a web server are those that its index pages link to, below the address that is listed. Its time for a file
is `Last-Modified`. Where there is none, the `ETag` stands for it: as a part of the location that no server is sent,
`https://host/a.txt#etag=5f1c..`, so that other content is at another location. A file with neither is read every time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

_CONNECTIONS = 8
_BLOCK_BYTES = 5 << 20
_ETAG = "#etag="
_MAX_DEPTH = 32  # of folders; a link on a disk that leads to a folder above it has no end on a web server


class WebFile(NamedTuple):
    """A file of a web server: its location, its path below the root, and what the server says of it, or why nothing."""

    location: str
    path: str
    byte_count: int | None
    modified: int | None
    fault: OSError | None = None


def is_web(location: str) -> bool:
    """Whether a location is an address of a web server."""
    return location.startswith(("http://", "https://"))


def has_validator(location: str, modified: int | None) -> bool:
    """Whether it can be told without reading a file of a web server whether it has changed."""
    return modified is not None or _ETAG in location


def file_system_of(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URI and the path in it: PyArrow's own, else fsspec's.

    Raises:
        OSError: neither knows the scheme, or what it needs is not installed.
        pyarrow.ArrowException: the URI is malformed.
    """
    try:
        known: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(uri)
        return known
    except pa.ArrowInvalid as error:
        if "Unrecognized filesystem type" not in str(error):
            raise
    import fsspec

    try:
        opened, path = fsspec.core.url_to_fs(uri.partition(_ETAG)[0], **_options(uri))
    except (ImportError, ValueError) as error:
        raise OSError(
            f"{error}; pip install 'headrace[ingest]' for http, the package of the scheme for others"
        ) from error
    return fs.PyFileSystem(fs.FSSpecHandler(opened)), path


def open_web(location: str) -> pa.NativeFile:
    """Open a file of a web server, at any offset where the server takes ranges; else it is held in memory.

    Raises:
        OSError: it is not there, or the server does not give it.
    """
    import aiohttp

    opened = _web(location)
    url = location.partition(_ETAG)[0]
    try:
        file = opened.open(url, "rb")
        if file.seekable():
            return pa.PythonFile(_WebReads(file), mode="r")
        file.close()
        return pa.BufferReader(opened.cat_file(url))
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise OSError(str(error) or type(error).__name__) from error


class _WebReads:
    """A file of a web server whose answers may break off, which is an error of the file as any other."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int = -1) -> bytes:
        """The next bytes.

        Raises:
            OSError: the server does not give them.
        """
        import aiohttp

        try:
            return bytes(self._file.read(size))
        except (aiohttp.ClientError, ValueError) as error:
            raise OSError(f"{type(error).__name__}: {error}"[:300]) from error


def find_web_files(root: str) -> Iterator[WebFile]:
    """Every file that the index pages at and below an address link to; the address itself if it is no index page.

    Raises:
        OSError: the server does not answer, or nothing is there.
    """
    import aiohttp

    opened, base = _web(root), root.rstrip("/") + "/"
    try:
        found = sorted(_linked(opened, base))
    except (aiohttp.ClientError, TimeoutError) as error:
        raise OSError(str(error) or type(error).__name__) from error
    with ThreadPoolExecutor(_CONNECTIONS) as threads:
        yield from threads.map(lambda url: _described(opened, url, base), found or [root])


def _linked(opened: Any, base: str) -> set[str]:
    """Addresses of files below an address, by its index pages, each of which is looked at once.

    Raises:
        OSError: folders are in each other without an end.
    """
    files, pages, seen = set[str](), [base], {base}
    while pages:
        page = pages.pop()
        if page.count("/") > base.count("/") + _MAX_DEPTH:
            raise OSError(f"{page[:200]} is below {_MAX_DEPTH} folders: an index page there leads to itself")
        for found in opened.ls(page, detail=False):
            link = found.replace("/./", "/")
            url = urlsplit(link)
            if not link.startswith(page) or url.query or url.fragment or link in seen or ".." in url.path.split("/"):
                continue
            seen.add(link)
            (pages.append if link.endswith("/") else files.add)(link)
    return files


def _described(opened: Any, url: str, base: str) -> WebFile:
    """What a server says of a file before it is read."""
    path = unquote(url[len(base) :]) or unquote(url.rpartition("/")[2])
    try:
        info = opened.info(url)
    except OSError as error:
        return WebFile(url, path, None, None, error)
    time, etag = info.get("Last-Modified"), info.get("ETag")
    try:
        modified = int(parsedate_to_datetime(time).timestamp() * 1_000_000) if time else None
    except ValueError:
        modified = None
    if modified is None and etag:
        url += f"{_ETAG}{hashlib.sha256(etag.encode()).hexdigest()[:16]}"
    return WebFile(url, path, info.get("size"), modified)


def _web(uri: str) -> Any:
    """The file system of web servers.

    Raises:
        OSError: aiohttp is not installed.
    """
    import fsspec

    try:
        return fsspec.filesystem(urlsplit(uri).scheme, **_options(uri))
    except ImportError as error:
        raise OSError("http needs aiohttp, which is not installed; pip install 'headrace[ingest]'") from error


def _options(uri: str) -> dict[str, Any]:
    """Options of fsspec: listings of web servers are never kept."""
    return {"use_listings_cache": False, "block_size": _BLOCK_BYTES} if is_web(uri) else {}
