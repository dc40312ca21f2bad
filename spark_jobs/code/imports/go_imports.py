"""Dependencies between Go files: by imported packages, and by names inside a package.

    import "example.org/m/text"     the directory by the module path of a go.mod; of its files those that define a
                                    name used as `text.Name`                                                  import
    Name, without a package         the file of the same package with its definition at the top               symbol

A directory may hold two packages, `p` and `p_test`. Files named `*_test.go` depend on the others and never the other
way round, so tests close no cycles. Imports without a used name (`_ "..."`, generated code) lead to all files of their
package. Top-level declarations are those at the start of a line, as gofmt writes them. `replace a => ./b` in a go.mod
or go.work makes `a` a module path of that directory too.

Without go.mod the module path is guessed: the path under which most packages of the repository are imported. The top
package counts where its name is the last part of the path:

    imports    example.org/m/text  example.org/m  fmt       directories   (top, package m)  text
    guess      example.org/m: two packages
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from spark_jobs.code.imports.dependency import Dependency, RepositoryTexts, evidence_of, utf8_of
from spark_jobs.code.imports.source_names import dotted_names
from spark_jobs.lexing.blank import blank

_PACKAGE: Final = re.compile(rb"^[ \t]*package[ \t]+(\w+)", re.MULTILINE)
_IMPORT: Final = re.compile(rb"^import\b\s*(?:\([^()]*\)|[^\n]*)", re.MULTILINE)
_SPEC: Final = re.compile(rb"(?:(?<![\w.])([\w.]++)\s*+)?[\"`]( *)[\"`]")
_NAME: Final = re.compile(rb"^(?:func|type|var|const)\s+([^\W\d]\w*(?:\s*,\s*\w+)*)", re.MULTILINE)
_GROUP: Final = re.compile(rb"^(?:type|var|const)\s*\(\s*?\n(.*?)(?:^\)|\Z)", re.MULTILINE | re.DOTALL)
_LISTED: Final = re.compile(rb"^([ \t]*)([^\W\d]\w*(?:\s*,\s*\w+)*)", re.MULTILINE)
_MODULE: Final = re.compile(r"^[^\S\n]*module\s+\"?([^\s\"]+)", re.MULTILINE)
_REPLACE: Final = re.compile(
    r"^[^\S\n]*+(?:replace[^\S\n]++)?+(\S++)(?:[^\S\n]++v\S++)?+[^\S\n]++=>[^\S\n]*+(\.{1,2}(?:/\S*+)?)", re.MULTILINE
)
_VERSION: Final = re.compile(r"[./]v[0-9]+$")
_STANDARD_NAMES: Final = """
    archive bufio bytes cmp compress container context crypto database debug embed encoding errors expvar flag fmt go
    hash html image index internal io iter log maps math mime net os path plugin reflect regexp runtime slices sort
    strconv strings structs sync syscall testing text time unicode unique unsafe weak C"""
_STANDARD: Final = frozenset(_STANDARD_NAMES.split())
"""First parts of the standard library's import paths, which are no module of a repository."""
_TEST: Final = "_test.go"


class GoSource(NamedTuple):
    """The names in one Go file.

    Attributes:
        package: name in the package clause.
        imports: (alias or "", path, the line).
        defined: names declared at its top, methods left out.
        names: first word -> words behind it after a dot; `fmt.Println` gives fmt -> Println.
    """

    package: str
    imports: tuple[tuple[str, str, str], ...]
    defined: frozenset[str]
    names: dict[str, set[str]]


class GoPackage(NamedTuple):
    """A package's files without its tests; `defined`: name -> files declaring it, several under constraints."""

    name: str
    files: list[int]
    defined: dict[str, list[int]]


def read_go(text: str) -> GoSource:
    """Read the names of one file."""
    source = utf8_of(text)
    code = blank(source, "Go")
    package = _PACKAGE.search(code)
    imports, begin = [], 0
    for statement in _IMPORT.finditer(code):
        for spec in _SPEC.finditer(code, statement.start() + len("import"), statement.end()):
            path = source[spec.start(2) : spec.end(2)].decode()
            imports.append(((spec[1] or b"").decode(), path, evidence_of(source[spec.start() : spec.end()].decode())))
        begin = statement.end()
    names: dict[str, set[str]] = defaultdict(set)
    for name in dotted_names(code[begin:]):
        first, _, rest = name.partition(".")
        names[first].add(rest.partition(".")[0])
    return GoSource(package[1].decode() if package else "", tuple(imports), frozenset(_defined(code)), names)


def _defined(code: bytes) -> Iterator[str]:
    for match in _NAME.finditer(code):
        yield from _listed(match[1])
    for group in _GROUP.finditer(code):
        indent: bytes | None = None
        for line in _LISTED.finditer(group[1]):
            indent = line[1] if indent is None else indent
            if line[1] == indent:
                yield from _listed(line[2])


def _listed(names: bytes) -> list[str]:
    return [name.strip() for name in names.decode("utf-8", "replace").split(",") if name.strip() not in ("_", "init")]


def go_imports(repository: RepositoryTexts) -> Iterator[Dependency]:
    """Dependencies between the Go files of a repository; every pair of files at most once."""
    chosen = [index for index, language in enumerate(repository.languages) if language == "Go"]
    if not chosen:
        return
    sources = {index: read_go(repository.texts[index]) for index in chosen}
    packages = _packages(repository.paths, sources)
    importable = _importable(packages)
    modules = _modules(repository) or _guessed_modules(sources, importable)
    tests = _test_definitions(repository.paths, sources)
    for index, source in sources.items():
        directory = repository.paths[index].rpartition("/")[0]
        is_test = repository.paths[index].endswith(_TEST)
        linked = {index}
        bound = set()
        for alias, path, line in source.imports:
            imported = _imported(path, directory, modules, importable)
            bound.add(alias or (imported.name if imported else path.rpartition("/")[2]))
            for needed in _used(imported, alias, source) if imported else ():
                if needed not in linked:
                    linked.add(needed)
                    yield Dependency(index, needed, "import", line)
        defined_here = packages[directory, source.package].defined if (directory, source.package) in packages else {}
        visible = tests.get((directory, source.package), {}) if is_test else {}
        for name in sorted(source.names.keys() - bound - source.defined):
            for needed in (*defined_here.get(name, ()), *visible.get(name, ())):
                if needed not in linked:
                    linked.add(needed)
                    yield Dependency(index, needed, "symbol", name)


def _used(imported: GoPackage, alias: str, source: GoSource) -> list[int]:
    """Files of an imported package defining a name used in `source`; all its files where none does."""
    used = source.names.keys() if alias == "." else source.names.get(alias or imported.name, set())
    files = {file for name in used if name in imported.defined for file in imported.defined[name]}
    return sorted(files) or imported.files


def _packages(paths: tuple[str, ...], sources: dict[int, GoSource]) -> dict[tuple[str, str], GoPackage]:
    """(directory, name) -> package."""
    packages: dict[tuple[str, str], GoPackage] = {}
    for index, source in sources.items():
        if paths[index].endswith(_TEST):
            continue
        key = (paths[index].rpartition("/")[0], source.package)
        package = packages.setdefault(key, GoPackage(source.package, [], {}))
        package.files.append(index)
        for name in source.defined:
            package.defined.setdefault(name, []).append(index)
    return packages


def _importable(packages: dict[tuple[str, str], GoPackage]) -> dict[str, GoPackage]:
    """Directory -> the package it is imported as: the largest, `main` only if there is no other."""
    ranked = sorted(packages.items(), key=lambda item: (item[0][1] != "main", len(item[1].files), item[0][1]))
    return {directory: package for (directory, _), package in ranked}


def _test_definitions(
    paths: tuple[str, ...], sources: dict[int, GoSource]
) -> dict[tuple[str, str], dict[str, list[int]]]:
    """(directory, package) -> name -> the test files declaring it."""
    definitions: dict[tuple[str, str], dict[str, list[int]]] = {}
    for index, source in sources.items():
        if paths[index].endswith(_TEST):
            defined = definitions.setdefault((paths[index].rpartition("/")[0], source.package), {})
            for name in source.defined:
                defined.setdefault(name, []).append(index)
    return definitions


def _modules(repository: RepositoryTexts) -> list[tuple[str, str]]:
    """(module path, directory) of every go.mod and of every replacement by a directory, longest module path first."""
    modules = []
    for path, text in zip(repository.paths, repository.texts, strict=True):
        directory, _, name = path.rpartition("/")
        if name not in ("go.mod", "go.work"):
            continue
        match = _MODULE.search(text) if name == "go.mod" else None
        if match:
            modules.append((match[1], directory))
        for module, target in _REPLACE.findall(text):
            place = posixpath.normpath(posixpath.join(directory, target))
            modules.append((module, "" if place == "." else place))
    return sorted(set(modules), key=lambda module: (-len(module[0]), module))


def _guessed_modules(sources: dict[int, GoSource], importable: dict[str, GoPackage]) -> list[tuple[str, str]]:
    """Guess [(module path, "")]: the path under which most packages of the repository are imported.

    Of paths with equally many the shortest is taken: its packages have the longest names inside the repository.
    """
    packages: dict[str, set[str]] = defaultdict(set)
    for path in {path for source in sources.values() for _, path, _ in source.imports}:
        parts = path.split("/")
        if parts[0] in _STANDARD:
            continue
        for size in range(1, len(parts)):
            if "/".join(parts[size:]) in importable:
                packages["/".join(parts[:size])].add("/".join(parts[size:]))
        if "" in importable and importable[""].name == _VERSION.sub("", path).rpartition("/")[2]:
            packages[path].add("")
    return [(min(packages, key=lambda path: (-len(packages[path]), len(path), path)), "")] if packages else []


def _imported(
    path: str, importer: str, modules: list[tuple[str, str]], importable: dict[str, GoPackage]
) -> GoPackage | None:
    """The package at an import path: by its module, else vendored beside or above the importer."""
    for module, directory in modules:
        if (path + "/").startswith(module + "/"):
            rest = path[len(module) + 1 :]
            folder = "/".join(part for part in (directory, rest) if part)
            if folder in importable:
                return importable[folder]
    above = importer
    while True:
        folder = f"{above}/vendor/{path}" if above else f"vendor/{path}"
        if folder in importable:
            return importable[folder]
        if not above:
            return None
        above = above.rpartition("/")[0]
