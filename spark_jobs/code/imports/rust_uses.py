"""Dependencies between Rust files, by the module tree of every crate and the paths in the code.

    src/lib.rs: mod a; pub use a::T;      needs src/a.rs (`module`, and `import` for the `use`)
    src/b.rs:   use crate::T;             needs src/a.rs: `pub use` is followed to where a name is defined
    src/b.rs:   #[cfg(test)] mod tests { use crate::c::U; }     needs src/c.rs, for tests alone (`import_inner`)
    src/d.rs:   call!();                  needs the one file of the crate with `macro_rules! call` (`symbol`)

Roots of crates are the targets found by Cargo (src/lib.rs, src/main.rs, src/bin, tests, examples, benches, build.rs),
those named in a Cargo.toml, and every file outside of all module trees. Other crates of the repository are known by the
names of their packages.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from spark_jobs.code.imports.dependency import MAX_EVIDENCE_CHARACTERS, Dependency, RepositoryTexts
from spark_jobs.code.imports.rust_source import RustScope, Use, read_rust

_TARGETS: Final = re.compile(r"(?:src/(?:lib|main)|build|(?:src/bin|tests|examples|benches)/(?:[^/]+|[^/]+/main))\.rs")
_MOST_HOPS: Final = 8
_MOST_PLACES: Final = 16
"""Most modules of a crate that share one file: files that declare each other twice would otherwise make 2^n."""


@dataclass
class Module:
    """A module of a crate.

    Attributes:
        file: index of the file with its code.
        scope: the names in its source.
        crate: the root module; None in the root itself.
        parent: the module around it; None for the root.
        children: by name; of several files under conditions the first.
        parts: (name, index) of all files declared in it.
        directory: where its children's files are searched.
        package: its Cargo package.
    """

    file: int
    scope: RustScope
    crate: Module | None
    parent: Module | None
    directory: str
    package: CargoPackage
    children: dict[str, Module] = field(default_factory=dict)
    parts: list[tuple[str, int]] = field(default_factory=list)

    @property
    def root(self) -> Module:
        """The root module of its crate."""
        return self.crate or self


@dataclass
class CargoPackage:
    """A Cargo package.

    Attributes:
        directory: directory of its Cargo.toml.
        name: its name, with `_` for `-`.
        edition: "2015" where none is given, as Cargo has it.
        targets: files it names as roots of crates.
        renamed: name in its code -> name of the package, of dependencies.
    """

    directory: str
    name: str
    edition: str
    targets: tuple[str, ...]
    renamed: dict[str, str]


def rust_uses(repository: RepositoryTexts) -> Iterator[Dependency]:
    """Dependencies between the Rust files of a repository; every pair of files once, but for an extra `module`."""
    scopes = {
        index: read_rust(repository.texts[index])
        for index, language in enumerate(repository.languages)
        if language == "Rust"
    }
    if not scopes:
        return
    trees = _Trees(repository, scopes)
    steps: set[tuple[int, int, bool]] = set()
    strong: list[Dependency] = []
    weak: list[Dependency] = []
    for module in trees.modules:
        for step in _edges(module, trees):
            (weak if step.kind in ("import_inner", "symbol") else strong).append(step)
    for step in [*strong, *weak]:
        key = (step.needs, step.needed, step.kind == "module")
        if step.needs != step.needed and key not in steps:
            steps.add(key)
            yield step


class _Trees:
    """The module trees of all crates of a repository, and its libraries and macros by name."""

    def __init__(self, repository: RepositoryTexts, scopes: dict[int, RustScope]) -> None:
        self.paths = repository.paths
        self.scopes = scopes
        self.files = {repository.paths[index]: index for index in scopes}
        self.packages = _packages(repository) or [CargoPackage("", "", "2021", (), {})]
        self.modules: list[Module] = []
        self.reached: set[int] = set()
        self.libraries: dict[str, Module] = {}
        self.macros: dict[tuple[int, str], set[int]] = defaultdict(set)
        for path in self._roots():
            self._grow_crate(path)
        # Files that no tree reaches, the shallowest first: their `mod` lines may reach the others.
        for path in sorted(self.files, key=lambda path: (path.count("/"), path)):
            if self.files[path] not in self.reached:
                self._grow_crate(path)

    def package_of(self, path: str) -> CargoPackage:
        """The package with the nearest directory above a file."""
        around = [
            package for package in self.packages if not package.directory or path.startswith(f"{package.directory}/")
        ]
        fallback = CargoPackage(_above_target(path), "", "2021", (), {})
        return max(around, key=lambda package: len(package.directory), default=fallback)

    def _roots(self) -> list[str]:
        named = {target for package in self.packages for target in package.targets}
        crate_roots = []
        for path in self.files:
            directory = self.package_of(path).directory
            below = path[len(directory) + 1 :] if directory else path
            if path in named or _TARGETS.fullmatch(below):
                crate_roots.append(path)
        return sorted(crate_roots, key=lambda path: (not path.endswith("src/lib.rs"), path))

    def _grow_crate(self, path: str) -> None:
        index, package = self.files[path], self.package_of(path)
        root = Module(index, self.scopes[index], None, None, posixpath.dirname(path), package)
        if path.endswith("src/lib.rs") or (path in package.targets[:1]):
            self.libraries.setdefault(package.name, root)
        waiting = [root]
        places: Counter[int] = Counter()
        while waiting:
            module = waiting.pop()
            self.modules.append(module)
            self.reached.add(module.file)
            for name in module.scope.macros:
                self.macros[root.file, name].add(module.file)
            for name, scope in module.scope.inner.items():
                directory = posixpath.join(module.directory, name)
                module.children[name] = Module(module.file, scope, root, module, directory, package)
            waiting += module.children.values()
            for name, value in module.scope.declared:
                child = self._file_module(module, name, value)
                if child is not None and places[child.file] < _MOST_PLACES:
                    places[child.file] += 1
                    module.parts.append((name, child.file))
                    module.children.setdefault(name, child)
                    waiting.append(child)

    def _file_module(self, module: Module, name: str, value: str | None) -> Module | None:
        """The module declared by `mod name;`; None if its file is missing or is that of a module around it."""
        file_folder = posixpath.dirname(self.paths[module.file])
        if value is not None:
            base = module.directory if module.parent is not None and module.parent.file == module.file else file_folder
            path = posixpath.normpath(posixpath.join(base, value))
            candidates = [(path, posixpath.dirname(path))]
        else:
            flat = posixpath.join(module.directory, name)
            candidates = [(f"{flat}.rs", flat), (f"{flat}/mod.rs", flat)]
        for path, directory in candidates:
            index = self.files.get(path)
            if index is None or self._is_around(module, index):
                continue
            return Module(index, self.scopes[index], module.root, module, directory, module.package)
        return None

    @staticmethod
    def _is_around(module: Module | None, index: int) -> bool:
        """Whether a file is that of a module or one around it; such a cycle would make the tree endless."""
        while module is not None:
            if module.file == index:
                return True
            module = module.parent
        return False


def _edges(module: Module, trees: _Trees) -> Iterator[Dependency]:
    """The dependencies of one module."""
    kind = "import_inner" if module.scope.is_test else "import"
    for name, file in module.parts:
        yield Dependency(module.file, file, "module", f"mod {name};")
    for use in module.scope.uses:
        segments = (*use.segments, "*") if use.name == "*" else use.segments
        for file in find_path(module, segments, trees.libraries, is_use=True):
            yield Dependency(module.file, file, kind, use.evidence)
    for path in sorted(module.scope.paths):
        for file in find_path(module, tuple(path.split("::")), trees.libraries, is_use=False):
            yield Dependency(module.file, file, kind, path[:MAX_EVIDENCE_CHARACTERS])
    for name in sorted(module.scope.called):
        files = trees.macros.get((module.root.file, name), set())
        if len(files) == 1 and name not in module.scope.macros:
            yield Dependency(module.file, min(files), "symbol", f"{name}!")


def find_path(module: Module, segments: tuple[str, ...], libraries: dict[str, Module], *, is_use: bool) -> list[int]:
    """[file defining the item at a path], or [] for an item outside this repository.

    Args:
        module: the module around the path.
        segments: its parts; "*" last for all names of a module.
        libraries: crates of the repository by name.
        is_use: whether the path is in a `use`.
    """
    file = _follow(module, segments, libraries, is_use, _MOST_HOPS)
    return [] if file is None else [file]


def _follow(
    module: Module, segments: tuple[str, ...], libraries: dict[str, Module], is_use: bool, hops: int
) -> int | None:
    start = _start(module, segments, libraries, is_use)
    if start is None:
        named = _named_use(module, segments[0], segments) if hops else None
        if named is None:
            return None
        return _follow(module, (*named.segments, *segments[1:]), libraries, True, hops - 1)
    at, rest = start
    for place, segment in enumerate(rest):
        if segment in at.children:
            at = at.children[segment]
            continue
        if segment == "*" or segment in at.scope.defined or not hops:
            return at.file
        named = _named_use(at, segment, segments)
        if named is not None:
            file = _follow(at, (*named.segments, *rest[place + 1 :]), libraries, True, hops - 1)
            return at.file if file is None else file
        file = _through_globs(at, segment, libraries, hops)
        return at.file if file is None else file
    return at.file


def _start(
    module: Module, segments: tuple[str, ...], libraries: dict[str, Module], is_use: bool
) -> tuple[Module, tuple[str, ...]] | None:
    """The module at the first part of a path, and the parts after it."""
    first, rest = segments[0], segments[1:]
    if first in ("crate", "$crate"):
        return module.root, rest
    at: Module | None = module
    if first in ("self", "super"):
        while segments and segments[0] in ("self", "super"):
            at = at.parent if at is not None and segments[0] == "super" else at
            segments = segments[1:]
        return (at, segments) if at is not None else None
    if first == "":
        first, rest = (rest[0], rest[1:]) if rest else ("", ())
    elif first in module.children:
        return module.children[first], rest
    elif (
        is_use
        and module.package.edition == "2015"
        and (first in module.root.children or first in module.root.scope.defined)
    ):
        return module.root, segments
    library = libraries.get(module.package.renamed.get(first, first))
    return (library, rest) if library is not None and library is not module.root else None


def _named_use(module: Module, name: str, path: tuple[str, ...]) -> Use | None:
    """The `use` behind a name in a module; not the one with this very path: it would loop."""
    for use in module.scope.uses:
        if use.name == name and use.segments != path and use.segments[:1] != (name,):
            return use
    return None


def _through_globs(module: Module, name: str, libraries: dict[str, Module], hops: int) -> int | None:
    """The file defining a name brought into a module by some `use ...::*`."""
    for use in module.scope.uses:
        if use.name != "*":
            continue
        at = _module_at(module, use.segments, libraries)
        if at is None or at is module:
            continue
        if name in at.scope.defined or name in at.children:
            return at.children[name].file if name in at.children else at.file
        named = _named_use(at, name, ())
        if named is not None and hops:
            return _follow(at, named.segments, libraries, True, hops - 1)
    return None


def _module_at(module: Module, segments: tuple[str, ...], libraries: dict[str, Module]) -> Module | None:
    """The module at a path, without following `use`."""
    start = _start(module, segments, libraries, True)
    if start is None:
        return None
    at, rest = start
    for segment in rest:
        if segment not in at.children:
            return None
        at = at.children[segment]
    return at


def _packages(repository: RepositoryTexts) -> list[CargoPackage]:
    """The Cargo packages of a repository; a Cargo.toml without valid TOML is skipped."""
    packages = []
    for path, text in zip(repository.paths, repository.texts, strict=True):
        if posixpath.basename(path) != "Cargo.toml":
            continue
        try:
            manifest: dict[str, Any] = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError):
            continue
        if isinstance(manifest.get("package"), dict):
            packages.append(_package(posixpath.dirname(path), manifest))
    return packages


def _package(directory: str, manifest: dict[str, Any]) -> CargoPackage:
    """The package of a manifest; values of a type not accepted by Cargo are left out."""
    about = manifest["package"]
    library = manifest.get("lib")
    tables = [library] if isinstance(library, dict) else []
    for kind in ("bin", "test", "example", "bench"):
        tables += [table for table in _list(manifest.get(kind)) if isinstance(table, dict)]
    library_path = library.get("path") if isinstance(library, dict) else None
    first = library_path if isinstance(library_path, str) else "src/lib.rs"
    targets = [first, *(table["path"] for table in tables if isinstance(table.get("path"), str))]
    if isinstance(about.get("build"), str):
        targets.append(about["build"])
    name = library.get("name") if isinstance(library, dict) else None
    name = name if isinstance(name, str) else str(about.get("name", ""))
    renamed = {}
    for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
        needed = manifest.get(kind)
        for key, value in needed.items() if isinstance(needed, dict) else ():
            if isinstance(value, dict) and isinstance(value.get("package"), str):
                renamed[key.replace("-", "_")] = value["package"].replace("-", "_")
    edition = about.get("edition", "2015")
    return CargoPackage(
        directory,
        name.replace("-", "_"),
        edition if isinstance(edition, str) else "2021",  # inherited from a workspace, which is a newer idea
        tuple(posixpath.normpath(posixpath.join(directory, target)) for target in targets),
        renamed,
    )


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _above_target(path: str) -> str:
    """The directory above the last `src` in a path, else the file's own; for files without a Cargo.toml."""
    parts = path.split("/")
    return (
        "/".join(parts[: len(parts) - 1 - parts[::-1].index("src")]) if "src" in parts[:-1] else posixpath.dirname(path)
    )
