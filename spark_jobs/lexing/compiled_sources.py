"""A number that identifies the source of compiled code, so that Numba's cache never serves that of another version.

Numba's cache compares the file of the cached function only, not those of the functions that it calls.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import types
from collections.abc import Callable, Iterable
from typing import Any

from numba import njit


def compiled(*modules: str) -> Callable[[Callable[..., Any]], Any]:
    """`njit` with a cache that serves no other version of some modules."""

    def compile_lazily(function: Callable[..., Any]) -> Any:
        # What a function encloses is part of the key that Numba caches it under, whether or not it reads it.
        code = function.__code__.replace(co_freevars=("sources",))
        enclosed = (types.CellType(sources_number(modules)),)
        made = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, enclosed)
        return njit(cache=True, nogil=True)(functools.update_wrapper(made, function))

    return compile_lazily


def sources_number(modules: Iterable[str]) -> int:
    """63 bits over the sources of modules that are compiled together; the cached function encloses it as its key.

    Raises:
        ModuleNotFoundError: one of them has no source file.
    """
    digest = hashlib.sha256()
    for module in modules:
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"{module}: there is no source of it")
        with open(spec.origin, "rb") as file:
            digest.update(file.read())
    return int.from_bytes(digest.digest()[:8], "little") >> 1
