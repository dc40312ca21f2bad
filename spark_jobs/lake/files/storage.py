"""Open data files in Python workers: local ones directly, others by PyIceberg's FileIO.

PyIceberg takes half a second to load; workers with only local files are spared it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.tables.locations import plain

if TYPE_CHECKING:
    from pyiceberg.io import FileIO


def local_path(path: str) -> str | None:
    """The path of a local file, given as path or URI; None for files elsewhere."""
    location = plain(path)
    return None if "://" in location else location


def open_input(path: str, properties: Mapping[str, str]) -> pa.NativeFile:
    """Open a file to read, a local one as a memory map."""
    local = local_path(path)
    if local is not None:
        return pa.memory_map(local)
    return _native(_file_io(path, properties).new_input(path).open(), "r")


def create(path: str, properties: Mapping[str, str]) -> pa.NativeFile:
    """Open a new file to write, with its folder; arguments as of `open_input`."""
    local = local_path(path)
    if local is not None:
        os.makedirs(os.path.dirname(local), exist_ok=True)
        return pa.OSFile(local, "wb")
    return _native(_file_io(path, properties).new_output(path).create(overwrite=True), "w")


def exists(path: str, properties: Mapping[str, str]) -> bool:
    """Whether a file is there; arguments as of `open_input`."""
    local = local_path(path)
    return os.path.exists(local) if local is not None else _file_io(path, properties).new_input(path).exists()


def remove(path: str, properties: Mapping[str, str]) -> None:
    """Remove a file; arguments as of `open_input`."""
    local = local_path(path)
    if local is not None:
        os.remove(local)
    else:
        _file_io(path, properties).delete(path)


def files_below(folder: str, properties: Mapping[str, str], before: float = math.inf) -> list[str]:
    """All files in a folder and its folders, sorted; none where it does not exist; arguments as of `open_input`.

    Files changed at a moment or later, in seconds since 1970, are left out where `before` is given.
    """
    from pyarrow import fs

    local = local_path(folder)
    if local is not None:
        system, path, prefix = fs.LocalFileSystem(), local, ""
    else:
        from pyiceberg.io.pyarrow import PyArrowFileIO

        scheme, _, path = folder.partition("://")
        system, prefix = PyArrowFileIO(dict(properties)).fs_by_scheme(scheme, path.partition("/")[0]), f"{scheme}://"
    infos = system.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
    old = (info for info in infos if info.type == fs.FileType.File and info.mtime_ns / 1e9 < before)
    return sorted(f"{prefix}{info.path}" for info in old)


def _file_io(path: str, properties: Mapping[str, str]) -> FileIO:
    from pyiceberg.io import load_file_io

    return load_file_io(dict(properties), path)


def _native(stream: object, mode: str) -> pa.NativeFile:
    return stream if isinstance(stream, pa.NativeFile) else pa.PythonFile(stream, mode)
