"""The order of versions, as each registry has it: PEP 440 of PyPI, semantic versions of npm and crates.io."""

from __future__ import annotations

import re
from typing import Any, Final

from packaging.version import InvalidVersion, Version

_NUMBER: Final = "(?:0|[1-9][0-9]*)"
_IDENTIFIER: Final = f"(?:{_NUMBER}|[0-9]*[a-zA-Z-][a-zA-Z0-9-]*)"
_SEMANTIC: Final = re.compile(
    rf"\s*v?(?P<core>{_NUMBER}\.{_NUMBER}\.{_NUMBER})(?:-(?P<pre>{_IDENTIFIER}(?:\.{_IDENTIFIER})*))?"
    r"(?:\+[a-zA-Z0-9-]+(?:\.[a-zA-Z0-9-]+)*)?\s*"
)
_MOST_DIGITS: Final = 4000  # of what becomes a number: Python refuses 4,300, and nobody has them


def version_key(kind: str, version: str) -> tuple[Any, ...]:
    """A key to order the versions of packages of a kind: `sdist` and `wheel` by PEP 440, the others by Semver 2.0.

    Build metadata of semantic versions do not count. What is no version is before all versions, in the order of its
    numbers and words.
    """
    is_python = kind in ("sdist", "wheel")
    parsed = (_pep440 if is_python else _semantic)(version) if len(version) <= _MOST_DIGITS else None
    return (is_python, parsed is not None, parsed if parsed is not None else _words(version))


def _pep440(version: str) -> Version | None:
    try:
        return Version(version)
    except InvalidVersion:
        return None


def _semantic(version: str) -> tuple[Any, ...] | None:
    """A key by clause 11 of semver.org: a release after its pre-releases, numbers before words."""
    match = _SEMANTIC.fullmatch(version)
    if match is None:
        return None
    core = tuple(map(int, match["core"].split(".")))
    if match["pre"] is None:
        return (*core, 1)
    parts = match["pre"].split(".")
    return (*core, 0, tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts))


def _words(version: str) -> tuple[tuple[int, int, str], ...]:
    words = re.findall(r"[0-9]+|[a-z]+", version.lower())
    return tuple((1, int(word[:18]), "") if word.isdigit() else (0, 0, word) for word in words)
