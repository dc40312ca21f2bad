"""`njit` with a cache of machine code that is never stale: another source, other machine code.

Numba's own cache compares the file of the cached function alone, not those of the functions that it calls, nor of the
constants compiled into it. Here the folder of the machine code has a digest in its name: of the function's module and
of all modules that it imports at its top from the same package, from `headrace` and `spark_jobs`::

    spark_jobs/lexing/__pycache__/blank-6f0c../blank._blank_into-183.py311.nbi

Functions that Python calls are `compiled`; one that only compiled code calls is a plain `njit`, a part of its callers.
"""

from __future__ import annotations

import functools
import hashlib
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import llvmlite
import numba
from numba import njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache

_IMPORT: Final = re.compile(r"^from ([\w.]+) import (\([^)]*\)|.*)|^import ([\w.]+)", re.MULTILINE)
_BELOW: Final = ("headrace", "spark_jobs")  # packages whose compiled functions those of other packages may call
_KEPT_SECONDS: Final = 7 * 24 * 3600.0  # a process that began with older sources may still add to their folder


def compiled(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Decorator: compile at the first call, cache the code on disk, run without the GIL; `options` go to `njit`."""
    if function is None:
        return functools.partial(compiled, **options)
    dispatcher = njit(**{"nogil": True, **options})(function)
    dispatcher._cache = _Cache(function)  # as `njit(cache=True)` does with Numba's own class
    return dispatcher


@functools.cache
def sources_digest(module: str) -> str:
    """16 hexadecimal digits over Numba's version and the sources of a loaded module and of those that it imports."""
    roots = {module.partition(".")[0], *_BELOW}
    sources: dict[str, bytes] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        spec = sys.modules[name].__spec__ if name in sys.modules else None
        read = getattr(spec and spec.loader, "get_source", None)
        if name in sources or read is None:
            continue
        sources[name] = (read(name) or "").encode()
        for package, names, whole in _IMPORT.findall(sources[name].decode()):
            if (package or whole).partition(".")[0] in roots:
                waiting += [package or whole, *(f"{package}.{name}" for name in re.findall(r"\w+", names))]
    versions = numba.__version__.encode(), llvmlite.__version__.encode()
    parts = [*versions, *(part for name in sorted(sources) for part in (name.encode(), sources[name]))]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


class _CacheFolder(CompileResultCacheImpl):  # type: ignore[misc]
    """A function's cache on disk: the folder that Numba chooses, and in it one named by `sources_digest`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        chosen = Path(self.locator.get_cache_path())
        stem = function.__module__.rpartition(".")[2]
        folder = chosen / f"{stem}-{sources_digest(function.__module__)}"
        if not folder.is_dir():
            _remove_old(chosen, stem)
        self.locator._cache_path = str(folder)  # Numba makes it before it writes


class _Cache(FunctionCache):  # type: ignore[misc]
    _impl_class = _CacheFolder


def _remove_old(chosen: Path, stem: str) -> None:
    """Remove a module's cache folders that were last written more than a week ago."""
    for folder in chosen.glob(f"{stem}-{'[0-9a-f]' * 16}"):
        try:
            if time.time() - folder.stat().st_mtime > _KEPT_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
        except FileNotFoundError:  # another process removed it
            continue
