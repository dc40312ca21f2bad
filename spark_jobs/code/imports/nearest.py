"""Find files by the end of their path; of several, the one nearest to the file that names it.

With vendored copies, several roots in one repository, or include directories that only a build file knows, a name fits
several files. The one that shares the most directories with the naming file is taken.

    asked for `json/reader.h` in `src/net`      src/json/reader.h          src shared: this one
                                                third_party/json/reader.h  nothing shared
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterable


class Nearest:
    """Candidates for one name, by the directory that asks.

    Most shared directories win; of those with as many the candidate with the fewest directories, then by path.
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
    """Paths by their ends, at whole components; results are cached by name."""

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
        """The nearest file whose path ends in `suffix`, as seen from a directory."""
        if suffix not in self._nearest:
            found = self.matches(suffix)
            self._nearest[suffix] = Nearest(found) if found else None
        known = self._nearest[suffix]
        return None if known is None else known.find(directory)
