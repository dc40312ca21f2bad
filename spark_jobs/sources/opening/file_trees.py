"""List every file below a path, on the local file system or on any opened by PyArrow or fsspec by URI.

Hidden files and directories (a leading dot), `__pycache__` and `node_modules` are left out: version control and build
tools keep their own there. A directory reached by a link is walked after all real ones and never twice, so a loop of
links ends, and the real path of a file wins over a linked one. An unreadable file or directory, a directory met a
second time, and a link out of the root, are listed with their refusals.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple
from urllib.parse import quote

import pyarrow as pa
from pyarrow import fs

from spark_jobs.exceptions import InputError
from spark_jobs.sources.opening.remote_trees import WebFile, file_system_of, find_web_files, is_web, open_web, web_file
from spark_jobs.sources.opening.table_folders import engine_name
from spark_jobs.sources.refusals import Reason, Refusal, RefusedError

_FOREIGN_BYTE = re.compile("[\udc80-\udcff]")  # a byte of a name that is not UTF-8, as Python gives it
LEFT_OUT = frozenset({"__pycache__", "node_modules"})
STALL_SECONDS = 60.0
"""How long a web server may give nothing, where no source says so."""
Links = Literal["inside", "follow"]
ABOUT_LINKS: Final = "symbolic links that lead out of the folder: inside refuses them, follow reads what they lead to"
"""What a source says of its field `links`."""


class FoundFile(NamedTuple):
    """One file: where it is, its path below the root, its size in bytes and its time in microseconds since 1970 UTC.

    A path ending in a slash is a directory with its files not listed there; it always has a refusal.
    """

    location: str
    path: str
    byte_count: int | None
    modified: int | None
    refusal: Refusal | None = None


def is_hidden(name: str) -> bool:
    """Whether files and folders of a name are left out; what an engine keeps is told as such."""
    return name in LEFT_OUT or (name.startswith(".") and engine_name(name) is None)


def is_uri(path: str) -> bool:
    """Whether a path names a file system (`s3://bucket/key`)."""
    return "://" in path


def absolute(path: str) -> str:
    """The path with `~` and relative parts resolved; a URI as it is."""
    return path.rstrip("/") if is_uri(path) else os.path.abspath(os.path.expanduser(path))


def open_file(location: str, stall_seconds: float = STALL_SECONDS) -> pa.NativeFile:
    """Open a location for reading at any offset.

    Raises:
        OSError: it is gone, a directory, or may not be read.
    """
    if is_web(location):
        return open_web(location, stall_seconds)
    if is_uri(location):
        try:
            file_system, path = file_system_of(location)
        except pa.ArrowException as error:  # such as a file system that only the driver is configured for
            raise OSError(str(error)) from error
        return file_system.open_input_file(path)
    return fs.LocalFileSystem().open_input_file(location)


def is_file(location: str) -> bool:
    """Whether a file is there, at a path or a URI.

    Raises:
        InputError: the file system cannot be reached.
    """
    if not is_uri(location):
        return os.path.isfile(location)
    try:
        file_system, path = file_system_of(location)
        return bool(file_system.get_file_info(path).type == fs.FileType.File)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{location}: {str(error).splitlines()[0]}; check the URI and the credentials") from error


def leads_out(path: str, root: str) -> Refusal | None:
    """Why a path below a root is not read without `links: follow`: its real place is not below that of the root."""
    real, inside = os.path.realpath(path), os.path.realpath(root)
    if real == inside or real.startswith(inside.rstrip("/") + "/"):
        return None
    return Refusal(Reason.OUTSIDE_LINK, f"a link to {real}, out of the source's folder; `links: follow` reads it")


def find_files(
    root: str, stall_seconds: float = STALL_SECONDS, tells_hidden: bool = False, links: Links = "inside"
) -> Iterator[FoundFile]:
    """Every file below `root` (an absolute path or URI), or `root` itself where it is a file; in any order.

    Args:
        root: where.
        stall_seconds: how long a web server may give nothing.
        tells_hidden: whether hidden files and folders of a local tree are told, each with its refusal.
        links: whether links of a local tree may lead out of it; the root itself may be one.

    Raises:
        InputError: nothing is there, or the file system cannot be reached.
    """
    if is_uri(root):
        yield from _find_by_uri(root, stall_seconds, links)
    elif os.path.isdir(root):
        yield from _walk(root, tells_hidden, links)
    elif os.path.lexists(root):
        yield stat_file(root, os.path.basename(root))
    else:
        raise InputError(f"{root}: no such file or directory; check the path of the source")


def stat_file(location: str, path: str, entry: os.DirEntry[str] | None = None) -> FoundFile:
    """Size and time of one local file (links followed), or why it cannot be read."""
    try:
        status = os.stat(location) if entry is None else entry.stat()
    except OSError as error:
        return FoundFile(location, path, None, None, unreadable(error))
    modified = status.st_mtime_ns // 1000
    if not stat.S_ISREG(status.st_mode):
        what = "a directory" if stat.S_ISDIR(status.st_mode) else "a pipe, socket or device"
        return FoundFile(location, path, None, modified, Refusal(Reason.NOT_A_FILE, f"{what}, not a file"))
    return FoundFile(location, path, status.st_size, modified)


def same_file(file: FoundFile, before: Mapping[str, object]) -> bool:
    """Whether a file has the size and the time of its last arrival."""
    return (file.byte_count, file.modified) == (before["byte_count"], before["modified"])


def unreadable(error: OSError) -> Refusal:
    """The refusal in a `RefusedError`; for any other error one with its message, without the path."""
    if isinstance(error, RefusedError):
        return error.refusal
    return Refusal(Reason.UNREADABLE, (error.strerror or str(error) or type(error).__name__).splitlines()[0])


def glob_pattern(glob: str) -> re.Pattern[str]:
    """A pattern for paths below the root: `*` and `?` stay inside one name, `**/` spans any number of directories.

    A glob without a slash is matched against the file's name, in whatever directory it is.
    """
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    body = "".join(parts.get(part, re.escape(part)) for part in re.split(r"(\*\*/|\*\*|\*|\?)", glob))
    return re.compile(body if "/" in glob else f"(?:.*/)?{body}")


def _walk(root: str, tells_hidden: bool, links: Links) -> Iterator[FoundFile]:
    """Walk real directories first, then linked ones; each directory once."""
    directories: dict[tuple[int, int], str] = {}
    real, linked = [(root, "")], list[tuple[str, str]]()
    while real or linked:
        directory, below = real.pop() if real else linked.pop(0)
        try:
            status = os.stat(directory)
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except OSError as error:
            yield FoundFile(directory, below or "/", None, None, unreadable(error))
            continue
        earlier = directories.setdefault((status.st_dev, status.st_ino), directory)
        if earlier != directory:
            detail = f"leads to {earlier}, whose files are listed there"
            yield FoundFile(directory, below, None, None, Refusal(Reason.LISTED_TWICE, detail))
            continue
        for entry in entries:
            path = below + entry.name
            if is_hidden(entry.name):
                if tells_hidden and not _FOREIGN_BYTE.search(path):
                    refusal = Refusal(Reason.HIDDEN, f"{entry.name} in its path")
                    yield FoundFile(entry.path, path + "/" * _is_directory(entry), None, None, refusal)
                continue
            out = leads_out(entry.path, root) if links == "inside" and entry.is_symlink() else None
            if _FOREIGN_BYTE.search(path):
                yield _badly_named(entry.path, path)
            elif out is not None:
                yield FoundFile(entry.path, path + "/" * _is_directory(entry), None, None, out)
            elif _is_directory(entry):
                (linked if entry.is_symlink() else real).append((entry.path, path + "/"))
            else:
                yield stat_file(entry.path, path, entry)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is or links to a directory; a loop of links is none, and `stat_file` refuses it."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _badly_named(location: str, path: str) -> FoundFile:
    """A file with a name other than UTF-8; its foreign bytes are shown as escapes."""
    shown, shown_path = (os.fsencode(text).decode(errors="backslashreplace") for text in (location, path))
    return FoundFile(shown, shown_path, None, None, Refusal(Reason.BAD_NAME, "the name is not UTF-8; rename the file"))


def _find_by_uri(root: str, stall_seconds: float, links: Links) -> Iterator[FoundFile]:
    """Files of a PyArrow file system; locations stay URIs."""
    if is_web(root):
        yield from _find_on_web(root, stall_seconds)
        return
    scheme, _, rest = root.partition("://")
    query = "".join(rest.partition("?")[1:])
    try:
        file_system, base = file_system_of(root)
        if isinstance(file_system, fs.LocalFileSystem):  # PyArrow follows links wherever they lead
            for local in find_files(base, links=links):
                yield local._replace(location=f"{scheme}://{quote(local.location)}{query}")
            return
        info = file_system.get_file_info(base)
        matching = (
            [info]
            if info.type == fs.FileType.File
            else file_system.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True))
        )
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{root}: {str(error).splitlines()[0]}; check the URI and the credentials") from error
    for file in matching:
        path = file.base_name if file.path == base else file.path[len(base) :].lstrip("/")
        if file.type == fs.FileType.File and not any(map(is_hidden, path.split("/"))):
            modified = None if file.mtime_ns is None else file.mtime_ns // 1000
            location = f"{scheme}://{quote(file.path)}{query}"
            yield FoundFile(location, path, file.size, modified)


def stat_web_file(location: str, path: str, stall_seconds: float = STALL_SECONDS) -> FoundFile:
    """What a web server says of one file, or why it cannot be read."""
    return _found(web_file(location, path, stall_seconds))


def _found(file: WebFile) -> FoundFile:
    return FoundFile(*file[:4], None if file.fault is None else unreadable(file.fault))


def _find_on_web(root: str, stall_seconds: float) -> Iterator[FoundFile]:
    """Files of a web server."""
    try:
        for file in find_web_files(root, stall_seconds):
            if not any(map(is_hidden, file.path.split("/"))):
                yield _found(file)
    except OSError as error:
        raise InputError(f"{root}: {str(error).splitlines()[0]}; check the address") from error
