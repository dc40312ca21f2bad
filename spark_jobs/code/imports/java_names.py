"""Dependencies between Java files, and between Kotlin files: the files that define the names a file uses.

    import a.b.Outer.Inner;     the longest part naming a type here                          import
    import static a.b.C.f;      the same                                                     import
    import a.b.*;  D            D of that package, unless something nearer has the name      import
    a.b.E in the code           a name with its package                                      import
    F in the code               a type of the own package, not imported                      symbol

In Java's code a type is recognized by its capital letter; imports may name any type. In Kotlin functions and properties
at the top of a file count as types do, extension functions also after a dot. An import never used in the code serves
comments (`import_type`). Not found: types inherited, or given by a chain of calls without a name, and names of the
other language.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from spark_jobs.code.imports.dependency import (
    MAX_EVIDENCE_CHARACTERS,
    Dependency,
    RepositoryTexts,
    evidence_of,
    utf8_of,
)
from spark_jobs.code.imports.source_names import dotted_names, nearest
from spark_jobs.lexing.blank import blank

_PACKAGE: Final = re.compile(rb"\bpackage[ \t]+([\w.]+)\s*;")
_IMPORT: Final = re.compile(
    rb"^[ \t]*import\s++(static\s++)?([\w$]++(?:\s*+\.\s*+[\w$]++)*+)(\s*+\.\s*+\*)?\s*+;", re.MULTILINE
)
_TYPE: Final = re.compile(rb"^(?:[^\s{}][^\n]*?[ \t@]|@)?(?:class|interface|enum|record)[ \t]+(\w+)", re.MULTILINE)
_MOST_PARTS: Final = 64  # of a full name; longer ones are ignored

Index = dict[str, dict[str, list[int]]]
"""Package -> name of a type -> the files that define it."""


class JavaSource(NamedTuple):
    """The names in one Java file: package ("" for none), types at its top, imports, and other names.

    Imports are (full name, whether it ends in `.*`, the statement); names are words and dotted chains outside imports.
    """

    package: str
    types: frozenset[str]
    imports: tuple[tuple[str, bool, str], ...]
    names: frozenset[str]


def read_java(path: str, text: str) -> JavaSource:
    """Read the names of one file."""
    code = blank(utf8_of(text), "Java")
    package = _PACKAGE.search(code)
    stem = path.rpartition("/")[2].partition(".")[0]
    types = frozenset(name.decode() for name in _TYPE.findall(code)) | {stem}
    imports = tuple(
        (_joined(match[2]), match[3] is not None, evidence_of(match[0].decode())) for match in _IMPORT.finditer(code)
    )
    begin = max((match.end() for match in _IMPORT.finditer(code)), default=package.end() if package else 0)
    return JavaSource(_joined(package[1]) if package else "", types, imports, frozenset(dotted_names(code[begin:])))


def java_names(repository: RepositoryTexts) -> Iterator[Dependency]:
    """Dependencies between the Java files of a repository; every pair of files at most once."""
    sources = {
        index: read_java(repository.paths[index], repository.texts[index])
        for index, language in enumerate(repository.languages)
        if language == "Java"
    }
    packages: Index = defaultdict(lambda: defaultdict(list))
    for index, source in sources.items():
        for name in source.types:
            packages[source.package][name].append(index)
    for index, source in sources.items():
        yield from _first_of_each(index, _needed(source, packages, repository.paths, index))


def _first_of_each(index: int, needed: Iterable[tuple[int, str, str]]) -> Iterator[Dependency]:
    """The first dependency of file `index` on each other file."""
    linked = {index}
    for other, kind, evidence in needed:
        if other not in linked:
            linked.add(other)
            yield Dependency(index, other, kind, evidence)


def _needed(source: JavaSource, packages: Index, paths: tuple[str, ...], index: int) -> Iterator[tuple[int, str, str]]:
    """Files that a file needs, with kind and evidence; what is used comes before what is only imported."""
    firsts = {name.partition(".")[0] for name in source.names}
    bound, unused, wildcards = set(source.types), [], []
    for name, is_wildcard, statement in source.imports:
        file = find_type(packages, name)
        if is_wildcard and file is None:
            wildcards.append((name, statement))
            continue
        simple = name.rpartition(".")[2]
        if not is_wildcard:
            bound.add(simple)
        if file is None:
            continue
        used = is_wildcard or simple in firsts
        step = (nearest(paths, index, file), "import" if used else "import_type", statement)
        if used:
            yield step
        else:
            unused.append(step)
    in_package = packages[source.package]
    for name in sorted(source.names):
        first = name.partition(".")[0]
        if first[:1].isupper():
            yield from _simple(first, bound, in_package, wildcards, packages, paths, index)
        elif "." in name and first not in ("this", "super"):
            file = find_type(packages, name) if not name.startswith(".") else None
            if file is not None:
                yield nearest(paths, index, file), "import", name[:MAX_EVIDENCE_CHARACTERS]
    yield from unused


def _simple(
    name: str,
    bound: set[str],
    in_package: dict[str, list[int]],
    wildcards: list[tuple[str, str]],
    packages: Index,
    paths: tuple[str, ...],
    index: int,
) -> Iterator[tuple[int, str, str]]:
    """The file of a type named without a package."""
    if name in bound:
        return
    if name in in_package:
        yield nearest(paths, index, in_package[name]), "symbol", name
        return
    for package, statement in wildcards:
        if package in packages and name in packages[package]:
            yield nearest(paths, index, packages[package][name]), "import", statement
            return


def find_type(packages: Index, name: str) -> list[int] | None:
    """Files of the type beginning a full name (`a.b.C.D` -> files of C in a.b, the shortest package); else None."""
    parts = name.split(".", _MOST_PARTS)
    for size in range(1, len(parts)):
        package = ".".join(parts[:size])
        if package in packages and parts[size] in packages[package]:
            return packages[package][parts[size]]
    return None


def _joined(name: bytes) -> str:
    """A dotted name without white space: `a . b` -> `a.b`."""
    return b"".join(name.split()).decode()


_KOTLIN_PACKAGE: Final = re.compile(rb"^[ \t]*package[ \t]+([\w.`]+)", re.MULTILINE)
_KOTLIN_IMPORT: Final = re.compile(
    rb"^[ \t]*import[ \t]+([\w.`]+?)(\.\*)?(?:[ \t]+as[ \t]+(\w+))?[ \t]*+;?[ \t]*+$", re.MULTILINE
)
_KOTLIN_TYPE: Final = re.compile(
    rb"^(?:[^\s{}][^\n=(]*?[ \t])?(?:class|interface|object|typealias)[ \t]+(\w+)", re.MULTILINE
)
_MEMBER: Final = re.compile(
    rb"^(?:[@a-z][^\n=(]{0,256}?[ \t])?(?:fun|val|var)[ \t]+(?:<[^\n(]{0,256}>[ \t]*)?([\w.<>?*, ]{1,256}\.)?(\w+)",
    re.MULTILINE,
)


class KotlinSource(NamedTuple):
    """The names in one Kotlin file, as in `JavaSource`.

    `defined` are names at its top, `extensions` those of them used after a dot. Imports are (full name, whether it ends
    in `.*`, the name here, the statement).
    """

    package: str
    defined: frozenset[str]
    extensions: frozenset[str]
    imports: tuple[tuple[str, bool, str, str], ...]
    names: frozenset[str]


def read_kotlin(text: str) -> KotlinSource:
    """Read the names of one file."""
    code = blank(utf8_of(text), "Kotlin")
    package = _KOTLIN_PACKAGE.search(code)
    types = {name.decode() for name in _KOTLIN_TYPE.findall(code)}
    members = [(receiver, name.decode()) for receiver, name in _MEMBER.findall(code)]
    imports, begin = [], package.end() if package else 0
    for match in _KOTLIN_IMPORT.finditer(code):
        full = match[1].decode().replace("`", "")
        name = (match[3] or b"").decode() or full.rpartition(".")[2]
        imports.append((full, match[2] is not None, name, evidence_of(match[0].decode())))
        begin = match.end()
    return KotlinSource(
        package[1].decode().replace("`", "") if package else "",
        frozenset(types | {name for _, name in members}),
        frozenset(name for receiver, name in members if receiver),
        tuple(imports),
        frozenset(dotted_names(code[begin:])),
    )


def kotlin_names(repository: RepositoryTexts) -> Iterator[Dependency]:
    """Dependencies between the Kotlin files of a repository; every pair of files at most once."""
    sources = {
        index: read_kotlin(repository.texts[index])
        for index, language in enumerate(repository.languages)
        if language == "Kotlin"
    }
    packages: Index = defaultdict(lambda: defaultdict(list))
    extensions: set[str] = set()
    for index, source in sources.items():
        extensions |= source.extensions
        for name in source.defined:
            packages[source.package][name].append(index)
    for index, source in sources.items():
        yield from _first_of_each(index, _kotlin_needed(source, packages, extensions, repository.paths, index))


def _kotlin_needed(
    source: KotlinSource, packages: Index, extensions: set[str], paths: tuple[str, ...], index: int
) -> Iterator[tuple[int, str, str]]:
    """Files that a file needs, with kind and evidence; what is used comes before what is only imported."""
    used = {name.partition(".")[0] for name in source.names}
    used |= extensions.intersection(part for name in source.names for part in name.split(".")[1:])
    bound, unused, wildcards = set(source.defined), [], []
    for full, is_wildcard, name, statement in source.imports:
        if is_wildcard and full in packages:
            wildcards.append((full, statement))
            continue
        bound.add(name)
        files = find_type(packages, full)
        if files is None:
            continue
        step = (nearest(paths, index, files), "import" if is_wildcard or name in used else "import_type", statement)
        if step[1] == "import":
            yield step
        else:
            unused.append(step)
    in_package = packages[source.package]
    for name in sorted(used - bound):
        if name in in_package:
            yield nearest(paths, index, in_package[name]), "symbol", name
            continue
        for package, statement in wildcards:
            if name in packages[package]:
                yield nearest(paths, index, packages[package][name]), "import", statement
                break
    for name in sorted(name for name in source.names if "." in name):
        files = find_type(packages, name)
        if files is not None and name.partition(".")[0] not in bound:
            yield nearest(paths, index, files), "import", name[:MAX_EVIDENCE_CHARACTERS]
    yield from unused
