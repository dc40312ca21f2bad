"""The identity of compiled code: Numba's cache looks at the file of an entry only, not at the files that it calls."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable


def sources_number(modules: Iterable[str]) -> int:
    """63 bits over the sources of modules that are compiled together: another number is another cache.

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
