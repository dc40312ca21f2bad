"""File systems unknown to PyArrow by itself: web servers, and others opened by fsspec by their scheme.

The files of a web server are those linked to in its index pages, below the listed address. Its time for a file is
`Last-Modified`. Where there is none, the `ETag` stands for it: as a part of the location sent to no server,
`https://host/a.txt#etag=5f1c..`, so that other content is at another location. A file with neither is read every time.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from spark_jobs.credentials import filled, without_secrets
from spark_jobs.sources.opening.destinations import forbidden_in
from spark_jobs.sources.refusals import Reason, RefusedError

_CONNECTIONS = 8
_BLOCK_BYTES = 5 << 20
_ETAG = "#etag="
_ANSWER_SECONDS = 300  # for a whole answer, that of a range or of a file where the server takes none
_MAX_DEPTH = 32  # of folders; a link on a disk that leads to a folder above it has no end on a web server


class WebFile(NamedTuple):
    """A file of a web server: location, path below the root, size and date by the server, or why it is not read."""

    location: str
    path: str
    byte_count: int | None
    modified: int | None
    fault: OSError | None = None


def is_web(location: str) -> bool:
    """Whether a location is an address of a web server."""
    return location.startswith(("http://", "https://"))


def has_validator(location: str, modified: int | None) -> bool:
    """Whether a change of a web file can be seen without reading it, by its time or ETag."""
    return modified is not None or _ETAG in location


def file_system_of(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URI and the path in it: PyArrow's own, else fsspec's.

    Raises:
        OSError: neither knows the scheme, or what it needs is not installed.
        pyarrow.ArrowException: the URI is malformed.
    """
    uri = filled(uri, "source.path", in_address=True)
    try:
        opened_system: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(uri)
        return opened_system
    except pa.ArrowInvalid as error:
        if "Unrecognized filesystem type" not in str(error):
            raise
    import fsspec

    try:
        opened, path = fsspec.core.url_to_fs(uri)
    except (ImportError, ValueError) as error:
        raise OSError(
            f"{error}; pip install 'headrace[ingest]' for http, the package of the scheme for others"
        ) from error
    return fs.PyFileSystem(fs.FSSpecHandler(opened)), path


def open_web(location: str, stall_seconds: float) -> pa.NativeFile:
    """Open a file of a web server, at any offset where the server takes ranges; else it is held in memory.

    Raises:
        OSError: it is not there, or the server does not give it.
    """
    opened = _web(location, stall_seconds)
    url = location.partition(_ETAG)[0]
    with _as_os_errors(stall_seconds):
        file = opened.open(url, "rb")
        if file.seekable():
            return pa.PythonFile(_WebReads(file, stall_seconds), mode="r")
        file.close()
        return pa.BufferReader(opened.cat_file(url))


@contextlib.contextmanager
def _as_os_errors(stall_seconds: float) -> Iterator[None]:
    """Raise errors of a server as OSError, as the errors of files are."""
    import aiohttp

    try:
        yield
    except TimeoutError as error:
        detail = f"the server gave nothing for {stall_seconds:g} s, the source.stall_seconds, or no end in 5 minutes"
        raise RefusedError(Reason.NO_ANSWER, detail) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        if (forbidden := forbidden_in(error)) is not None:
            raise forbidden from error
        if isinstance(error, OSError) and not isinstance(error, aiohttp.ClientError):
            raise
        raise OSError(without_secrets(f"{type(error).__name__}: {error}")[:300]) from error


class _WebReads:
    """A file of a web server; its answers may break off: an error of the file as any other."""

    def __init__(self, file: Any, stall_seconds: float) -> None:
        self._file, self._stall_seconds = file, stall_seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int = -1) -> bytes:
        """The next bytes.

        Raises:
            OSError: the server does not give them.
        """
        with _as_os_errors(self._stall_seconds):
            return bytes(self._file.read(size))


def find_web_files(root: str, stall_seconds: float) -> Iterator[WebFile]:
    """Every file linked to in the index pages at and below an address; the address itself if it is no index page.

    Raises:
        OSError: the server does not answer, or nothing is there.
    """
    opened, base = _web(root, stall_seconds), root.rstrip("/") + "/"
    with _as_os_errors(stall_seconds):
        files = sorted(_linked(opened, base))
    with ThreadPoolExecutor(_CONNECTIONS) as threads:
        yield from threads.map(lambda url: _described(opened, url, base, stall_seconds), files or [root])


def web_file(url: str, path: str, stall_seconds: float) -> WebFile:
    """One file of a web server, whatever its content links to."""
    return _described(_web(url, stall_seconds), url, url[: -len(path)], stall_seconds)


def _linked(opened: Any, base: str) -> set[str]:
    """Addresses of files below an address, by its index pages, each looked at once.

    Raises:
        OSError: folders are nested too deep, as where an index page leads back to itself.
    """
    files, pages, visited = set[str](), [base], {base}
    while pages:
        page = pages.pop()
        if page.count("/") > base.count("/") + _MAX_DEPTH:
            raise OSError(f"{page[:200]} is below {_MAX_DEPTH} folders: an index page there leads to itself")
        for entry in opened.ls(page, detail=False):
            link = entry.replace("/./", "/")
            url = urlsplit(link)
            if not link.startswith(page) or url.query or url.fragment or link in visited or ".." in url.path.split("/"):
                continue
            visited.add(link)
            (pages.append if link.endswith("/") else files.add)(link)
    return files


def _described(opened: Any, url: str, base: str, stall_seconds: float) -> WebFile:
    """What a server says of a file before it is read."""
    path = unquote(url[len(base) :]) or unquote(url.rpartition("/")[2])
    try:
        with _as_os_errors(stall_seconds):
            info = opened.info(url)
    except OSError as error:
        return WebFile(url, path, None, None, error)
    time, etag = info.get("Last-Modified"), info.get("ETag")
    modified = None
    with contextlib.suppress(ValueError):
        modified = int(parsedate_to_datetime(time).timestamp() * 1_000_000) if time else None
    if modified is None and etag:
        url += f"{_ETAG}{hashlib.sha256(etag.encode()).hexdigest()[:16]}"
    return WebFile(url, path, info.get("size"), modified)


def _web(uri: str, stall_seconds: float) -> Any:
    """The file system of web servers.

    Raises:
        OSError: aiohttp is not installed.
    """
    try:
        import aiohttp
        import fsspec

        from spark_jobs.sources.opening.web_connections import guarded_session

        waits = aiohttp.ClientTimeout(total=_ANSWER_SECONDS, sock_connect=stall_seconds, sock_read=stall_seconds)
        parts = urlsplit(uri)
        client = {"timeout": waits, "named": f"{parts.scheme}://{parts.netloc}"}
        options = {"use_listings_cache": False, "block_size": _BLOCK_BYTES}
        return fsspec.filesystem(parts.scheme, get_client=guarded_session, client_kwargs=client, **options)
    except ImportError as error:
        raise OSError("http needs aiohttp, which is not installed; pip install 'headrace[ingest]'") from error
