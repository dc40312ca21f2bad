"""Shared by several resolvers: the names in a source without comments and strings, and the nearest of several files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

_DOTTED: Final = bytes(byte if chr(byte).isalnum() or byte in b"_.$" or byte >= 128 else 32 for byte in range(256))
_WORDS: Final = bytes(byte if byte != ord(".") else 32 for byte in _DOTTED)
_PATHS: Final = bytes(byte if byte in b":!" else at for byte, at in enumerate(_WORDS))


def dotted_names(code: bytes) -> set[str]:
    """Words and chains of words (`a.b.C`) of a blanked source; a chain goes on over line ends.

    The first word of a chain is one that this place sees by itself; what follows a dot is not: `x.y()` gives `x.y`,
    `f(x).y` gives `f` and `x.y`.
    """
    # Runs of blanks are long where comments were: split and join are linear, `\s+` before a dot is not.
    joined = b" ".join(code.replace(b"...", b" ").translate(_DOTTED).split())
    chained = joined.replace(b" .", b".").replace(b". ", b".")
    return set(chained.decode("utf-8", "replace").split())


def words(code: bytes) -> set[str]:
    """The words of a blanked source: letters, digits, `_`, `$` and whatever is not ASCII."""
    return set(code.translate(_WORDS).decode("utf-8", "replace").split())


def path_words(code: bytes) -> set[str]:
    """The words of a blanked source with the `:` and `!` next to them: `a::b::C`, `call!`, `label:`."""
    return set(code.translate(_PATHS).decode("utf-8", "replace").split())


def nearest(paths: Sequence[str], index: int, candidates: Iterable[int]) -> int:
    """The candidate that shares most leading directories with a file; of several, the one with the smallest index.

    Args:
        paths: all paths of the repository.
        index: of the file.
        candidates: at least one index.

    Returns:
        One of the candidates.
    """
    found = list(candidates)
    if len(found) == 1:
        return found[0]
    own = paths[index].split("/")[:-1]
    return min(found, key=lambda candidate: (-_shared(own, paths[candidate].split("/")[:-1]), candidate))


def _shared(left: list[str], right: list[str]) -> int:
    """How many leading parts two paths have in common."""
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count
