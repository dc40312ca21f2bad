"""A number that identifies the source of compiled code, so that Numba's cache never serves that of another version.

Numba's cache compares the file of the cached function only, not those of the functions that it calls.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable


def sources_number(modules: Iterable[str]) -> int:
    """63 bits over the sources of modules that are compiled together; the cached function encloses it as its key.

    Args:
        modules: their dotted names.

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
