"""`njit` with a never stale cache of machine code: another source, other machine code.

Numba's own cache compares the file of the cached function alone, not those of the functions that it calls, nor of the
constants compiled into it. Here the folder of the machine code has a digest in its name: of the function's module and
of all modules imported at its top from the same package, from `headrace` and `spark_jobs`::

    spark_jobs/lexing/__pycache__/blank-6f0c../blank._blank_into-183.py311.nbi

Functions called by Python are `compiled`; one called by compiled code alone is `inner`, a part of its callers. Numba
alone would optimise it, make machine code of it and wrap it for Python, and again in each of its callers, level by
level: two thirds of the time of compiling.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import gc
import hashlib
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import llvmlite
import numba
from llvmlite.binding import Linkage
from numba import njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_lock import global_compiler_lock

_IMPORT: Final = re.compile(r"^from ([\w.]+) import (\([^)]*\)|.*)|^import ([\w.]+)", re.MULTILINE)
_BELOW: Final = ("headrace", "spark_jobs")  # packages whose compiled functions those of other packages may call
_RARE_COLLECTIONS: Final = (200_000, 20, 100)  # a fifth of the time goes into collecting nothing; 150 MB more are held
_KEPT_SECONDS: Final = 7 * 24 * 3600.0  # a process that began with older sources may still add to their folder


def compiled(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Decorator: compile at the first call, cache the code on disk, run without the GIL; `options` go to `njit`."""
    if function is None:
        return functools.partial(compiled, **options)
    whole = {"nogil": True, "no_cfunc_wrapper": True, "pipeline_class": _WholeCompiler}
    dispatcher = njit(**{**whole, **options})(function)
    dispatcher._cache = _Cache(function)  # as `njit(cache=True)` does with Numba's own class
    dispatcher.compile = functools.partial(_compile_once, dispatcher)
    return dispatcher


def inner(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Decorator: a part of its compiled callers; Python cannot call it. `options` go to `njit`."""
    if function is None:
        return functools.partial(inner, **options)
    return njit(pipeline_class=_PartCompiler, no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)(function)


def _compile_once(dispatcher: Any, signature: Any) -> Any:
    """Compile, or load from the cache: while another process compiles this module's functions, wait for it.

    Workers that begin together would otherwise each compile all that they need, which takes a core some seconds each.
    """
    with global_compiler_lock, _lock_on(dispatcher._cache.cache_path):
        return type(dispatcher).compile(dispatcher, signature)


_locked: set[str] = set()  # by this process; Numba's lock is around it


@contextlib.contextmanager
def _lock_on(folder: str) -> Iterator[None]:
    """Hold the only lock on a folder; a function that compiles another of its module has it already."""
    if folder in _locked:
        yield
        return
    descriptor = -1
    with contextlib.suppress(OSError):  # a file system without locks: each process compiles for itself
        os.makedirs(folder, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    _locked.add(folder)
    try:
        yield
    finally:
        _locked.remove(folder)
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # for closing leaves it to a copy that a forked child has
            os.close(descriptor)


class _WholeLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Code optimised once, with all its parts, which no other code sees by their names.

    Numba's names end in a number that is counted in each process, and a weak name is taken from whichever code has it
    first. Between code from the cache and code made now, a part of `sort` and one of `argsort` have met under one name.
    """

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if function.linkage == Linkage.linkonce_odr and not function.name.startswith("NRT_"):  # known by name
                function.linkage = Linkage.private  # a local name of an object, as `internal` gives, is seen too
        super()._optimize_final_module()


class _PartLibrary(_WholeLibrary):
    """Code linked into its callers' before it is optimised, without machine code of its own."""

    def _optimize_final_module(self) -> None:
        # Simplified by itself, or its callers come out slower (`text.counts` by a third); loops are left to them.
        passes, builder = self._codegen._module_pass_manager(
            loop_vectorize=False, slp_vectorize=False, opt=2, cost="cheap"
        )
        passes.run(self._final_module, builder)

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    @property
    def codegen(self) -> Any:
        """Numba's, where it would put what the function's machine code asks of Python."""
        return _NoEnvironment()

    def get_pointer_to_function(self, name: str) -> int:
        """What Python would call: a function that raises TypeError."""
        return ctypes.cast(ctypes.pythonapi.PyErr_BadArgument, ctypes.c_void_p).value or 0


class _NoEnvironment:
    def set_env(self, name: str, environment: object) -> None:
        """Nothing."""


class _PartCompiler(Compiler):  # type: ignore[misc]
    def __init__(self, typing: Any, target: Any, library: Any, *others: Any) -> None:
        super().__init__(typing, target, _PartLibrary(target.codegen(), "part"), *others)


class _WholeCompiler(Compiler):  # type: ignore[misc]
    """Numba's, for which what it compiles on the way (its own functions of arrays) is a part too."""

    def __init__(self, typing: Any, target: Any, library: Any, *others: Any) -> None:
        whole = _WholeLibrary(target.codegen(), "whole")
        whole.enable_object_caching()
        super().__init__(typing, target, whole, *others)

    def compile_extra(self, function: Any) -> Any:
        """Compile with Numba's lock held, so that no other thread makes libraries meanwhile."""
        codegen, thresholds = self.state.targetctx.codegen(), gc.get_threshold()
        before, codegen._library_class = codegen._library_class, _PartLibrary
        gc.set_threshold(*_RARE_COLLECTIONS)
        try:
            return super().compile_extra(function)
        finally:
            gc.set_threshold(*thresholds)
            codegen._library_class = before


@functools.cache
def sources_digest(module: str) -> str:
    """16 hexadecimal digits over Numba's version and the sources of a loaded module and its imports."""
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
    """A function's cache on disk: the folder of Numba's choice, and in it one named by `sources_digest`."""

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
    """Remove a module's cache folders last written more than a week ago."""
    for folder in chosen.glob(f"{stem}-{'[0-9a-f]' * 16}"):
        try:
            if time.time() - folder.stat().st_mtime > _KEPT_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
        except FileNotFoundError:  # another process removed it
            continue
