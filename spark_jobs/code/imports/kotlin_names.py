"""Dependencies between Kotlin files: the files that define the classes, functions and properties a file names.

    import a.b.C          C, or what it is in, at the top of a file of package a.b           import
    import a.b.*          the names of that package which the code uses                      import
    D, f() in the code    what the own package has at the top of another file                symbol

An import that the code never uses is for comments (`import_type`). Extension functions are also found after a dot. Java
files of the same repository are ignored.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from spark_jobs.code.imports.dependency import MAX_EVIDENCE_CHARACTERS, Dependency, Repository, evidence_of
from spark_jobs.code.imports.java_names import Index, find_type
from spark_jobs.code.imports.source_names import dotted_names, nearest
from spark_jobs.lexing.blank import blank

_PACKAGE: Final = re.compile(rb"^[ \t]*package[ \t]+([\w.`]+)", re.MULTILINE)
_IMPORT: Final = re.compile(
    rb"^[ \t]*import[ \t]+([\w.`]+?)(\.\*)?(?:[ \t]+as[ \t]+(\w+))?[ \t]*+;?[ \t]*+$", re.MULTILINE
)
_TYPE: Final = re.compile(rb"^(?:[^\s{}][^\n=(]*?[ \t])?(?:class|interface|object|typealias)[ \t]+(\w+)", re.MULTILINE)
_MEMBER: Final = re.compile(
    rb"^(?:[@a-z][^\n=(]{0,256}?[ \t])?(?:fun|val|var)[ \t]+(?:<[^\n(]{0,256}>[ \t]*)?([\w.<>?*, ]{1,256}\.)?(\w+)",
    re.MULTILINE,
)


class KotlinSource(NamedTuple):
    """What names say in one file.

    Attributes:
        package: "" where there is none.
        defined: names that it declares at the top.
        extensions: those of them that are used after a dot.
        imports: (full name, whether it ends in `.*`, the name here, the statement), in order.
        names: words and chains of words outside imports.
    """

    package: str
    defined: frozenset[str]
    extensions: frozenset[str]
    imports: tuple[tuple[str, bool, str, str], ...]
    names: frozenset[str]


def read_kotlin(text: str) -> KotlinSource:
    """Read the names of one file."""
    code = blank(text.encode(), "Kotlin")
    package = _PACKAGE.search(code)
    types = {found.decode() for found in _TYPE.findall(code)}
    members = [(receiver, name.decode()) for receiver, name in _MEMBER.findall(code)]
    imports, begin = [], package.end() if package else 0
    for found in _IMPORT.finditer(code):
        full = found[1].decode().replace("`", "")
        name = (found[3] or b"").decode() or full.rpartition(".")[2]
        imports.append((full, found[2] is not None, name, evidence_of(found[0].decode())))
        begin = found.end()
    return KotlinSource(
        package[1].decode().replace("`", "") if package else "",
        frozenset(types | {name for _, name in members}),
        frozenset(name for receiver, name in members if receiver),
        tuple(imports),
        frozenset(dotted_names(code[begin:])),
    )


def kotlin_names(repository: Repository) -> Iterator[Dependency]:
    """Dependencies between the Kotlin files of a repository; every pair of files at most once.

    Args:
        repository: its files; those of other languages are left alone.

    Yields:
        Kinds `import`, `import_type` and `symbol`.
    """
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
        seen = {index}
        for needed, kind, evidence in _needed(source, packages, extensions, repository.paths, index):
            if needed not in seen:
                seen.add(needed)
                yield Dependency(index, needed, kind, evidence)


def _needed(
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
        found = find_type(packages, full)
        if found is None:
            continue
        step = (nearest(paths, index, found), "import" if is_wildcard or name in used else "import_type", statement)
        if step[1] == "import":
            yield step
        else:
            unused.append(step)
    own = packages[source.package]
    for name in sorted(used - bound):
        if name in own:
            yield nearest(paths, index, own[name]), "symbol", name
            continue
        for package, statement in wildcards:
            if name in packages[package]:
                yield nearest(paths, index, packages[package][name]), "import", statement
                break
    for name in sorted(name for name in source.names if "." in name):
        found = find_type(packages, name)
        if found is not None and name.partition(".")[0] not in bound:
            yield nearest(paths, index, found), "import", name[:MAX_EVIDENCE_CHARACTERS]
    yield from unused
