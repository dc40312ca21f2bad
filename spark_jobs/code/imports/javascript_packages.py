"""Names of modules defined in package.json and tsconfig.json files of a repository.

    package.json     name, and its main files: source, exports, module, main, types; #names in imports
    tsconfig.json    compilerOptions.paths and baseUrl, with what it extends and the projects it references

Files without valid JSON are ignored. Comments and trailing commas are allowed, as TypeScript allows them.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_JSONC = re.compile(r'("(?:\\.|[^"\\])*+"?)|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*+"?)|,(?=\s*[}\]])')
_CONDITIONS = ("source", "types", "import", "module", "default", "require", "node", "browser")
_MAX_EXTENDS = 16


def parse_json(text: str) -> Mapping[str, object]:
    """Read a JSON object with comments and trailing commas; {} if the text is none."""
    without_comments = _JSONC.sub(lambda match: match[1] or " ", text)
    try:
        value = json.loads(_TRAILING_COMMA.sub(lambda match: match[1] or "", without_comments))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class NodePackage:
    """A package.json.

    Attributes:
        directory: its directory.
        name: the package's name in imports; None without one.
        source: its main file before a build.
        entries: its main files after a build.
        exports: targets by subpath (`.`, `./x`, `./x/*`).
        imports: targets by `#name`.
    """

    directory: str
    name: str | None
    source: str | None
    entries: tuple[str, ...]
    exports: Mapping[str, tuple[str, ...]]
    imports: Mapping[str, tuple[str, ...]]


def read_package(directory: str, text: str) -> NodePackage:
    """Read the package.json of a directory."""
    facts = parse_json(text)
    name, exports = facts.get("name"), facts.get("exports")
    if isinstance(exports, str | list) or (isinstance(exports, dict) and not any(k.startswith(".") for k in exports)):
        exports = {".": exports}
    source = facts.get("source")
    entries = (facts.get(key) for key in ("module", "main", "types", "typings"))
    return NodePackage(
        directory=directory,
        name=name if isinstance(name, str) and name else None,
        source=source if isinstance(source, str) else None,
        entries=tuple(entry for entry in entries if isinstance(entry, str)),
        exports=_targets(exports),
        imports=_targets(facts.get("imports")),
    )


def _targets(table: object) -> dict[str, tuple[str, ...]]:
    """Files by key of an `exports` or `imports` table: {".": {"import": "a", "require": "b"}} -> {".": ("a", "b")}."""
    if not isinstance(table, dict):
        return {}
    return {key: tuple(_files(value)) for key, value in table.items()}


def _files(value: object, depth: int = 0) -> Iterator[str]:
    """Files of a target: a path, alternatives, or conditions."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth < 8:
        for entry in value:
            yield from _files(entry, depth + 1)
    elif isinstance(value, dict) and depth < 8:
        conditions = [condition for condition in _CONDITIONS if condition in value]
        for condition in [*conditions, *sorted(key for key in value if key not in conditions)]:
            yield from _files(value[condition], depth + 1)


def matching(table: Mapping[str, tuple[str, ...]], name: str) -> tuple[str, ...]:
    """Targets of a name in a table with keys of at most one `*`: the exact key's, else the longest prefix's."""
    if name in table:
        return table[name]
    best = -1
    matched: tuple[str, ...] = ()
    for key, targets in table.items():
        head, star, tail = key.partition("*")
        fits = star and name.startswith(head) and name.endswith(tail) and len(name) >= len(head) + len(tail)
        if fits and len(head) > best:
            middle = name[len(head) : len(name) - len(tail)]
            best, matched = len(head), tuple(target.replace("*", middle) for target in targets)
    return matched


@dataclass(frozen=True)
class PathsOfProject:
    """The names defined in a tsconfig.json.

    Attributes:
        paths: pattern -> paths in the repository.
        base: baseUrl, the directory to try names in; None without one.
    """

    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    base: str | None = None


def read_project(path: str, texts: Mapping[str, str]) -> PathsOfProject:
    """The names of a tsconfig.json, with those of the extended or referenced projects."""
    nearest_project = _project(path, texts, set())
    if nearest_project.paths or nearest_project.base is not None:
        return nearest_project
    references = parse_json(texts.get(path, "")).get("references")
    paths: dict[str, tuple[str, ...]] = {}
    base = None
    for reference in references if isinstance(references, list) else ():
        target = reference.get("path") if isinstance(reference, dict) else None
        if isinstance(target, str):
            joined = join(posixpath.dirname(path), target)
            project = _project(joined if joined in texts else join(joined, "tsconfig.json"), texts, {path})
            paths = {**project.paths, **paths}
            base = project.base if base is None else base
    return PathsOfProject(paths, base)


def _project(path: str, texts: Mapping[str, str], visited: set[str]) -> PathsOfProject:
    if path in visited or path not in texts or len(visited) > _MAX_EXTENDS:
        return PathsOfProject()
    visited.add(path)
    facts = parse_json(texts[path])
    directory = posixpath.dirname(path)
    of_files = PathsOfProject()
    extends = facts.get("extends")
    for parent in [extends] if isinstance(extends, str) else extends if isinstance(extends, list) else []:
        inherited = _extended(directory, parent, texts, visited)
        base = of_files.base if inherited.base is None else inherited.base
        of_files = PathsOfProject(inherited.paths or of_files.paths, base)
    options = facts.get("compilerOptions")
    if not isinstance(options, dict):
        return of_files
    base_url, table = options.get("baseUrl"), options.get("paths")
    base = join(directory, base_url) if isinstance(base_url, str) else of_files.base
    if not isinstance(table, dict):
        return PathsOfProject(of_files.paths, base)
    counted_from = directory if base is None else base
    paths = {
        pattern: tuple(join(counted_from, target) for target in targets if isinstance(target, str))
        for pattern, targets in table.items()
        if isinstance(targets, list)
    }
    return PathsOfProject(paths, base)


def _extended(directory: str, parent: object, texts: Mapping[str, str], visited: set[str]) -> PathsOfProject:
    """The project named in `extends` by a relative path; empty for an installed package."""
    if not isinstance(parent, str) or not parent.startswith("."):
        return PathsOfProject()
    path = join(directory, parent)
    for candidate in (path, f"{path}.json", join(path, "tsconfig.json")):
        if candidate in texts:
            return _project(candidate, texts, visited)
    return PathsOfProject()


def join(directory: str, path: str) -> str:
    """A path relative to a directory, normalized: ("a/b", "../c") -> "a/c"; one above the top begins with `..`."""
    joined = posixpath.normpath(posixpath.join(directory, path))
    return "" if joined == "." else joined
