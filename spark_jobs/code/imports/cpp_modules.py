"""Modules of C++20 between the files of a repository.

    export module a.b;      the file that is module a.b           module a.b;       a file that implements it: needs it
    export module a.b:p;    its partition p                       module a.b:p;     a partition for a.b alone
    import a.b;             needs the module                      export import a.b;   the same
    import :p;              needs the partition of the own module
    import "x.h";           a header unit, found as `#include` finds it; as is `import <x>;`

Names are never macros (C++20, 10.1), conditions are not evaluated. Of several files of one name the nearest is meant.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from spark_jobs.code.imports.c_includes import IncludedFiles
from spark_jobs.code.imports.dependency import Dependency, RepositoryTexts, evidence_of, utf8_of
from spark_jobs.code.imports.source_names import nearest
from spark_jobs.lexing.blank import blank

_ENDINGS: Final = (".cppm", ".ixx", ".mpp", ".ccm", ".cxxm", ".c++m")
_WORD: Final = rb"[A-Za-z_\x80-\xff][\w\x80-\xff]*+"
_NAME: Final = rb"%s(?:\s*+\.\s*+%s)*+" % (_WORD, _WORD)
_END: Final = rb"\s*+(?:\[\[[^\n;]*\]\]\s*+)?;"
_DECLARED: Final = re.compile(
    rb"^[ \t]*+(export\s++)?module\b\s*+(%s)\s*+(?::\s*+(%s))?%s" % (_NAME, _NAME, _END), re.MULTILINE
)
_IMPORTED: Final = re.compile(
    rb"^[ \t]*+(?:export\s++)?import\b\s*+(?:(%s)|:\s*+(%s)|\"( ++)\"|<([^>\n]++)>)%s" % (_NAME, _NAME, _END),
    re.MULTILINE,
)


class _Unit(NamedTuple):
    """What a file says of modules: its own (None without one) and partition, and matches of its imports."""

    source: bytes
    module: str | None
    partition: str
    exported: bool
    declared: str
    imports: list[re.Match[bytes]]


def cpp_modules(repository: RepositoryTexts) -> Iterator[Dependency]:
    """Yield the imports of modules, partitions and header units between the C++ files of a repository."""
    units = {}
    for number, (path, language) in enumerate(zip(repository.paths, repository.languages, strict=True)):
        if language == "C++" or path.endswith(_ENDINGS):
            unit = _read(repository.texts[number])
            if unit is not None:
                units[number] = unit
    places: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, unit in units.items():
        if unit.module is not None and (unit.exported or unit.partition):
            places[unit.module, unit.partition].append(number)
    headers = IncludedFiles(repository) if units else None
    for needs, unit in units.items():
        if unit.module is not None and not unit.exported and not unit.partition:
            yield from _edge(repository, needs, places.get((unit.module, ""), []), unit.declared)
        for match in unit.imports:
            statement = evidence_of(unit.source[match.start() : match.end()].decode(errors="replace"))
            if match[1] is not None:
                yield from _edge(repository, needs, places.get((_joined(match[1]), ""), []), statement)
            elif match[2] is not None and unit.module is not None:
                yield from _edge(repository, needs, places.get((unit.module, _joined(match[2])), []), statement)
            elif headers is not None and match[2] is None:
                form = 3 if match[3] is not None else 4
                name = unit.source[match.start(form) : match.end(form)].decode(errors="replace")
                needed = headers.find(repository.paths[needs], name, angled=form == 4)
                yield from _edge(repository, needs, [] if needed is None else [needed], statement)


def _edge(repository: RepositoryTexts, needs: int, needed: list[int], evidence: str) -> Iterator[Dependency]:
    if needed and (file := nearest(repository.paths, needs, needed)) != needs:
        yield Dependency(needs, file, "import", evidence)


def _read(text: str) -> _Unit | None:
    """What a text says of modules; None for nothing."""
    if "import" not in text and "module" not in text:
        return None
    source = utf8_of(text)
    code = blank(source, "C++").replace(b"\\\n", b"  ")  # a joined line is one: that of a macro, or of an import
    declared, imports = _DECLARED.search(code), list(_IMPORTED.finditer(code))
    if declared is None:
        return _Unit(source, None, "", False, "", imports) if imports else None
    partition = "" if declared[3] is None else _joined(declared[3])
    statement = evidence_of(declared[0].decode(errors="replace"))
    return _Unit(source, _joined(declared[2]), partition, declared[1] is not None, statement, imports)


def _joined(name: bytes) -> str:
    """A dotted name without white space: `a . b` -> `a.b`."""
    return b"".join(name.split()).decode()
