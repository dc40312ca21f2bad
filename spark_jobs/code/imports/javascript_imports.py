"""Imports between the JavaScript and TypeScript files of a repository.

A name is resolved by these rules in order, to the first existing file:

    ./x  ../x      beside the file: as it stands; .ts for .js; with an extension; package.json or index of a directory
    #x             `imports` of the package.json above
    any            `paths` of the tsconfig.json above (with what it extends), then its baseUrl
        name, name/x   a package of the repository by the name in its package.json: sources before built files
    @/x  ~/x       below `src` of a directory above, as bundlers are mostly set up

    /// <reference path="x" />     the file beside this one, as it stands, with .ts, .tsx or .d.ts
    /// <reference types="x" />    the declarations of a package of the repository, or of `@types/x`

Out of scope: AMD's `define`, `require` of computed names, aliases in the configuration of a bundler.
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterator

from spark_jobs.code.imports.dependency import Dependency, RepositoryTexts, evidence_of, utf8_of
from spark_jobs.code.imports.javascript_packages import (
    NodePackage,
    PathsOfProject,
    join,
    matching,
    read_package,
    read_project,
)
from spark_jobs.code.imports.javascript_statements import (
    INNER,
    LOADED,
    TYPE_ONLY,
    module_references,
    reference_directives,
)
from spark_jobs.code.imports.source_names import Nearest

_KIND_NAMES = {LOADED: "import", INNER: "import_inner", TYPE_ONLY: "import_type"}
_TYPED = ("TypeScript", "TSX")
_LANGUAGES = frozenset({"JavaScript", *_TYPED})
_TYPESCRIPT = (".ts", ".tsx", ".d.ts", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs", ".json")
_JAVASCRIPT = (".js", ".jsx", ".mjs", ".cjs", ".json", ".ts", ".tsx", ".d.ts", ".mts", ".cts")
_SWAPS = {".js": (".ts", ".tsx", ".d.ts", ".jsx"), ".jsx": (".tsx",), ".mjs": (".mts",), ".cjs": (".cts",)}
_BUILT = frozenset({"dist", "lib", "build", "out", "es", "esm", "cjs", "types", "umd"})
_NODE_MODULES = """
    assert async_hooks buffer child_process cluster console constants crypto dgram diagnostics_channel dns domain
    events fs http http2 https inspector module net os path perf_hooks process punycode querystring readline repl
    stream string_decoder sys timers tls trace_events tty url util v8 vm wasi worker_threads zlib"""
_NODE = frozenset(_NODE_MODULES.split())
_EVIDENCE_BYTES = 80
_TOLD_BY = ("import", "require", "export", "<reference")
_DECLARATIONS = (".d.ts", ".d.mts", ".d.cts")


def javascript_imports(repository: RepositoryTexts) -> Iterator[Dependency]:
    """Yield the imports between the JavaScript and TypeScript files of a repository."""
    readers = [number for number, language in enumerate(repository.languages) if language in _LANGUAGES]
    if not readers:
        return
    modules = _Modules(repository)
    for needs in readers:
        text = repository.texts[needs]
        if not any(word in text for word in _TOLD_BY):
            continue
        data = utf8_of(text)
        path = repository.paths[needs]
        directory, typescript = posixpath.dirname(path), repository.languages[needs] in _TYPED
        for start, begin, end, kind in module_references(data, repository.languages[needs] or ""):
            needed = modules.find(directory, data[begin:end].decode(errors="replace"), typescript)
            if needed is not None and needed != needs:
                yield Dependency(needs, needed, _KIND_NAMES[kind], _evidence(data, start, end))
        for is_path, name, line in reference_directives(text):
            needed = modules.beside(directory, name) if is_path else modules.types(directory, name)
            if needed is not None and needed != needs:
                is_declared = not is_path or repository.paths[needed].endswith(_DECLARATIONS)
                yield Dependency(needs, needed, "import_type" if is_declared else "import", evidence_of(line))


def _evidence(data: bytes, start: int, end: int) -> str:
    """The statement from the beginning of its line to the end of the name; of a long line only the part near it."""
    line = data.rfind(b"\n", max(0, start - _EVIDENCE_BYTES), start) + 1 or max(0, start - _EVIDENCE_BYTES)
    if end - line > 2 * _EVIDENCE_BYTES:
        line = start
    return evidence_of(data[line : end + 1].decode(errors="replace"))


class _Modules:
    """Finds the file of a repository behind a module name."""

    def __init__(self, repository: RepositoryTexts) -> None:
        self._file = {path: number for number, path in enumerate(repository.paths)}
        self._json = {
            path: text
            for path, text in zip(repository.paths, repository.texts, strict=True)
            if path.endswith(".json") and text
        }
        self._packages: dict[str, NodePackage] = {}
        named: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for path, text in self._json.items():
            if posixpath.basename(path) == "package.json":
                package = read_package(posixpath.dirname(path), text)
                self._packages[package.directory] = package
                if package.name is not None and package.name not in _NODE:
                    named[package.name].append((path, self._file[path]))
        self._named = {name: Nearest(places) for name, places in named.items()}
        self._paths = repository.paths
        self._projects: dict[str, PathsOfProject] = {}
        self._found: dict[tuple[str, str, bool], int | None] = {}

    def find(self, directory: str, name: str, typescript: bool) -> int | None:
        """The file behind `name` from a directory; None for one outside the repository."""
        key = (directory, name, typescript)
        if key not in self._found:
            extensions = _TYPESCRIPT if typescript else _JAVASCRIPT
            plain = name.rpartition("!")[2].partition("?")[0]
            self._found[key] = self._search(directory, plain, extensions)
        return self._found[key]

    def beside(self, directory: str, name: str) -> int | None:
        """The file at a path in a directive, from a directory."""
        return self._first(join(directory, name), ("", ".ts", ".tsx", ".d.ts"))

    def types(self, directory: str, name: str) -> int | None:
        """The declarations of a package in a directive: those of the repository, else of `@types`."""
        scoped = "@types/" + name.removeprefix("@").replace("/", "__")
        above = directory
        while True:
            for package in (scoped, name):
                for folder in ("node_modules", "types", "typings", ""):
                    file = self._at(join(above, join(folder, package)), _DECLARATIONS)
                    if file is not None:
                        return file
            if not above:
                return self.find(directory, name, True)
            above = posixpath.dirname(above)

    def _search(self, directory: str, name: str, extensions: tuple[str, ...]) -> int | None:
        if not name:
            return None
        if name.startswith(".") and (name in (".", "..") or name.startswith(("./", "../"))):
            return self._at(join(directory, name), extensions)
        if name.startswith("#"):
            return self._private(directory, name, extensions)
        for try_one in (self._by_project, self._by_package, self._by_convention):
            file = try_one(directory, name, extensions)
            if file is not None:
                return file
        return None

    def _at(self, path: str, extensions: tuple[str, ...]) -> int | None:
        """The file for a path, perhaps without its extension or of a directory: `a/b` -> a/b.ts, a/b/index.ts."""
        file = self._file_at(path, extensions)
        if file is not None:
            return file
        package = self._packages.get(path)
        if package is not None:
            for entry in package.entries:
                inner = self._file_at(join(path, entry), extensions)
                if inner is not None:
                    return inner
        return self._first(f"{path}/index" if path else "index", extensions)

    def _file_at(self, path: str, extensions: tuple[str, ...]) -> int | None:
        if path in self._file:
            return self._file[path]
        stem, extension = posixpath.splitext(path)
        swapped = self._first(stem, _SWAPS.get(extension, ()))
        return self._first(path, extensions) if swapped is None else swapped

    def _first(self, stem: str, extensions: tuple[str, ...]) -> int | None:
        for extension in extensions:
            number = self._file.get(stem + extension)
            if number is not None:
                return number
        return None

    def _by_project(self, directory: str, name: str, extensions: tuple[str, ...]) -> int | None:
        project = self._project(directory)
        for target in matching(project.paths, name):
            file = self._at(target, extensions)
            if file is not None:
                return file
        return None if project.base is None else self._at(join(project.base, name), extensions)

    def _project(self, directory: str) -> PathsOfProject:
        """The settings of the tsconfig.json (or jsconfig.json) at or above a directory."""
        if directory not in self._projects:
            for name in ("tsconfig.json", "jsconfig.json"):
                path = join(directory, name)
                if path in self._json:
                    self._projects[directory] = read_project(path, self._json)
                    break
            else:
                above = self._project(posixpath.dirname(directory)) if directory else PathsOfProject()
                self._projects[directory] = above
        return self._projects[directory]

    def _by_package(self, directory: str, name: str, extensions: tuple[str, ...]) -> int | None:
        parts = name.split("/")
        own_parts = 2 if name.startswith("@") else 1
        nearest = self._named.get("/".join(parts[:own_parts]))
        manifest = None if nearest is None else nearest.find(directory)
        if manifest is None:
            return None
        package = self._packages[posixpath.dirname(self._paths[manifest])]
        rest = "/".join(parts[own_parts:])
        exported = matching(package.exports, f"./{rest}" if rest else ".")
        if rest:
            candidates = [*exported, rest, f"src/{rest}"]
        else:
            candidates = [package.source or "src/index", "src/index", *exported, *package.entries, "index"]
        for candidate in candidates:
            file = self._source_of(package.directory, candidate, extensions)
            if file is not None:
                return file
        return None

    def _source_of(self, directory: str, path: str, extensions: tuple[str, ...]) -> int | None:
        """A file of a package; if it is built and not in the repository, its source: dist/a.js -> src/a.ts."""
        file = self._at(join(directory, path), extensions)
        if file is not None:
            return file
        parts = posixpath.normpath(path).split("/")
        while parts and parts[0] in _BUILT:
            parts = parts[1:]
        stem = posixpath.splitext("/".join(parts).removesuffix(".d.ts"))[0]
        return self._at(join(directory, f"src/{stem}"), extensions) if stem else None

    def _private(self, directory: str, name: str, extensions: tuple[str, ...]) -> int | None:
        """Resolve a `#name` by `imports` of the package around the directory, else by `paths` of the tsconfig.json."""
        while directory not in self._packages and directory:
            directory = posixpath.dirname(directory)
        package = self._packages.get(directory)
        for target in matching(package.imports, name) if package is not None else ():
            file = self._source_of(directory, target, extensions)
            if file is not None:
                return file
        return self._by_project(directory, name, extensions)

    def _by_convention(self, directory: str, name: str, extensions: tuple[str, ...]) -> int | None:
        if not name.startswith(("@/", "~/")):
            return None
        while True:
            for candidate in (f"src/{name[2:]}", name[2:]):
                file = self._at(join(directory, candidate), extensions)
                if file is not None:
                    return file
            if not directory:
                return None
            directory = posixpath.dirname(directory)
