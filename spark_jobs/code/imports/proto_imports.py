"""Imports between the Protocol Buffers files of a repository.

    import "a/b.proto";     import public "..";     import weak "..";     import option "..";

A path is one below a root named only in the call of protoc, so it fits every file at a path ending in it; of several
the nearest is taken. Strings side by side are one, as in C.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Final

from spark_jobs.code.imports.dependency import Dependency, RepositoryTexts, evidence_of, utf8_of
from spark_jobs.code.imports.source_names import SuffixIndex
from spark_jobs.lexing.blank import blank

LANGUAGE: Final = "Protocol Buffer"
_STRING: Final = rb"(?:\"[^\"\n]*+\"|'[^'\n]*+')\s*+"
_IMPORT: Final = re.compile(rb"(?<![\w.])import\b\s*+(?:(?:public|weak|option)\b\s*+)?((?:%s)++);" % _STRING)
_PART: Final = re.compile(r"\"([^\"\n]*)\"|'([^'\n]*)'")


def proto_imports(repository: RepositoryTexts) -> Iterator[Dependency]:
    """Yield the imports between the Protocol Buffers files of a repository."""
    readers = [number for number, path in enumerate(repository.paths) if path.endswith(".proto")]
    by_end = SuffixIndex((repository.paths[number], number) for number in readers)
    for needs in readers:
        source = utf8_of(repository.texts[needs])
        directory = posixpath.dirname(repository.paths[needs])
        for match in _IMPORT.finditer(blank(source, "C")):
            statement = source[match.start() : match.end()].decode(errors="replace")
            strings = source[match.start(1) : match.end(1)].decode(errors="replace")
            path = "".join(quoted or other for quoted, other in _PART.findall(strings))
            needed = by_end.nearest(path, directory) if path else None
            if needed is not None and needed != needs:
                yield Dependency(needs, needed, "import", evidence_of(statement))
