"""Shared by several resolvers: the names in a source without comments and strings, and the nearest of several files.

With vendored copies, several roots in one repository, or include directories known only to a build file, a name fits
several files. The one with the most directories in common with the naming file is taken:

    asked for `json/reader.h` in `src/net`      src/json/reader.h          src shared: this one
                                                third_party/json/reader.h  nothing shared
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

_DOTTED: Final = bytes(byte if chr(byte).isalnum() or byte in b"_.$" or byte >= 128 else 32 for byte in range(256))
_WORDS: Final = bytes(byte if byte != ord(".") else 32 for byte in _DOTTED)
_PATHS: Final = bytes(byte if byte in b":!" else at for byte, at in enumerate(_WORDS))


def dotted_names(code: bytes) -> set[str]:
    """Words and dotted chains (`a.b.C`) of a blanked source; a chain may cross line ends.

    Only the first word of a chain is a name in scope: `x.y()` gives `x.y`, `f(x).y` gives `f` and `x.y`.
    """
    # Runs of blanks are long where comments were: split and join are linear, `\s+` before a dot is not.
    joined = b" ".join(code.replace(b"...", b" ").translate(_DOTTED).split())
    chained = joined.replace(b" .", b".").replace(b". ", b".")
    return set(chained.decode("utf-8", "replace").split())


def words(code: bytes) -> set[str]:
    """The words of a blanked source: runs of letters, digits, `_`, `$` and non-ASCII characters."""
    return set(code.translate(_WORDS).decode("utf-8", "replace").split())


def path_words(code: bytes) -> set[str]:
    """The words of a blanked source with the `:` and `!` next to them: `a::b::C`, `call!`, `label:`."""
    return set(code.translate(_PATHS).decode("utf-8", "replace").split())


def nearest(paths: Sequence[str], index: int, candidates: Iterable[int]) -> int:
    """Of at least one candidate the one with most leading directories in common with a file; ties: the first."""
    files = list(candidates)
    if len(files) == 1:
        return files[0]
    folders = paths[index].split("/")[:-1]
    return min(files, key=lambda candidate: (-_shared(folders, paths[candidate].split("/")[:-1]), candidate))


def _shared(left: list[str], right: list[str]) -> int:
    """Number of leading parts common to two paths."""
    count = 0
    for folder, other in zip(left, right, strict=False):
        if folder != other:
            break
        count += 1
    return count


class Nearest:
    """Finds the nearest candidate for one name from a directory.

    Most shared directories win; ties go to the candidate with the fewest directories, then by path.
    """

    def __init__(self, candidates: Iterable[tuple[str, int]]) -> None:
        ordered = sorted((path.count("/"), path, file) for path, file in candidates)
        self._best: dict[str, int] = {}
        for _, path, file in ordered:
            directory = posixpath.dirname(path)
            self._best.setdefault(directory, file)
            while directory:
                directory = posixpath.dirname(directory)
                self._best.setdefault(directory, file)

    def find(self, directory: str) -> int | None:
        """The nearest candidate as seen from a directory; None where there is no candidate."""
        while directory and directory not in self._best:
            directory = posixpath.dirname(directory)
        return self._best.get(directory)


class SuffixIndex:
    """Finds paths by their last components; results are cached by suffix."""

    def __init__(self, entries: Iterable[tuple[str, int]]) -> None:
        self._by_last: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self._nearest: dict[str, Nearest | None] = {}
        for path, file in entries:
            self._by_last[path.rpartition("/")[2]].append((path, file))

    def matches(self, suffix: str) -> list[tuple[str, int]]:
        """All (path, file) that are `suffix` or end in `/suffix`."""
        ending = f"/{suffix}"
        same_name = self._by_last.get(suffix.rpartition("/")[2], ())
        return [(path, file) for path, file in same_name if path == suffix or path.endswith(ending)]

    def nearest(self, suffix: str, directory: str) -> int | None:
        """The nearest file at a path ending in `suffix`, as seen from a directory."""
        if suffix not in self._nearest:
            matches = self.matches(suffix)
            self._nearest[suffix] = Nearest(matches) if matches else None
        nearest_file = self._nearest[suffix]
        return None if nearest_file is None else nearest_file.find(directory)
