"""Imports between the Python files of a repository.

    import a.b.c                    the module a.b.c; packages on the way are no edge of their own
    from a.b import c               the module a.b.c where there is one, else a.b
    from ..x import y               relative to the file's own directory
    from a import *                 a
    lazy import a.b                 a.b, when it is used first (PEP 810)

A dotted name fits every path ending in its parts. Of several such files those at a path relative to a root (a directory
without `__init__`) are preferred, and of these the nearest is taken; a repository may have several roots (`src`, one
per distribution) and vendored copies. Packages without `__init__` are found by the end of their path alone, and
directories renamed by setuptools (`package-dir` in pyproject.toml or setup.cfg) by that name too. Names of the standard
library refer to files of the repository only from files below a root with them.

Out of scope: `importlib.import_module` and `__import__`, changes of `sys.path`, modules without a file.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from collections.abc import Iterator

import numpy as np

from spark_jobs.code.imports.dependency import Dependency, RepositoryTexts, evidence_of, utf8_of
from spark_jobs.code.imports.python_statements import INNER, LOADED, TYPE_ONLY, import_statements
from spark_jobs.code.imports.source_names import Nearest, SuffixIndex

_STANDARD_NAMES = """
    abc aifc annotationlib antigravity argparse array ast asynchat asyncio asyncore atexit audioop base64 bdb binascii
    bisect builtins bz2 cProfile calendar cgi cgitb chunk cmath cmd code codecs codeop collections colorsys compileall
    compression concurrent configparser contextlib contextvars copy copyreg crypt csv ctypes curses dataclasses
    datetime dbm decimal difflib dis distutils doctest email encodings ensurepip enum errno faulthandler fcntl filecmp
    fileinput fnmatch fractions ftplib functools gc genericpath getopt getpass gettext glob graphlib grp gzip hashlib
    heapq hmac html http idlelib imaplib imghdr imp importlib inspect io ipaddress itertools json keyword lib2to3
    linecache locale logging lzma mailbox mailcap marshal math mimetypes mmap modulefinder msilib msvcrt
    multiprocessing netrc nis nntplib nt ntpath nturl2path numbers opcode operator optparse os ossaudiodev pathlib pdb
    pickle pickletools pipes pkgutil platform plistlib poplib posix posixpath pprint profile pstats pty pwd py_compile
    pyclbr pydoc pydoc_data pyexpat queue quopri random re readline reprlib resource rlcompleter runpy sched secrets
    select selectors shelve shlex shutil signal site smtpd smtplib sndhdr socket socketserver spwd sqlite3 sre_compile
    sre_constants sre_parse ssl stat statistics string stringprep struct subprocess sunau symtable sys sysconfig syslog
    tabnanny tarfile telnetlib tempfile termios textwrap this threading time timeit tkinter token tokenize tomllib
    trace traceback tracemalloc tty turtle turtledemo types typing unicodedata unittest urllib uu uuid venv warnings
    wave weakref webbrowser winreg winsound wsgiref xdrlib xml xmlrpc zipapp zipfile zipimport zlib zoneinfo
"""
STANDARD_LIBRARY = frozenset(_STANDARD_NAMES.split())
"""Top-level modules of CPython 3.11 to 3.14, private ones left out; fixed, so that edges do not depend on ours."""


KIND_NAMES = {LOADED: "import", INNER: "import_inner", TYPE_ONLY: "import_type"}
_EXTENSIONS = (".py", ".pyw", ".pyx", ".pyi", ".pxd")  # in order of preference if one module has several files
_READ = (".py", ".pyw", ".pyi")
_SOURCE_DIRECTORIES = ("src", "lib", "python")
_COMMENT = re.compile(r"#[^\n]*")
_IMPORT_WORD = re.compile(r"(?<!\w)c?import(?!\w)")
_LAZY = re.compile(r"lazy(?:\s|\\\n)+")

Target = tuple[int, str, str]
"""Leading dots, dotted module, and the name taken from it ('' for the module itself)."""


def python_imports(repository: RepositoryTexts) -> Iterator[Dependency]:
    """Yield the imports between the Python files of a repository, each statement's targets once."""
    readers = [
        number
        for number, (path, language) in enumerate(zip(repository.paths, repository.languages, strict=True))
        if language == "Python" and path.endswith(_READ)
    ]
    if not readers:
        return
    modules = Modules(repository.paths, renamed_directories(repository))
    for needs in readers:
        text = repository.texts[needs]
        if "import" not in text:
            continue
        data = utf8_of(text)
        directory = posixpath.dirname(repository.paths[needs])
        for start, end, kind in import_statements(np.frombuffer(data, dtype=np.uint8)).tolist():
            statement = data[start:end].decode(errors="replace")
            for needed in modules.targets(directory, statement):
                if needed != needs:
                    yield Dependency(needs, needed, KIND_NAMES[kind], evidence_of(statement))


def parse_import(statement: str) -> list[Target]:
    """The modules named in one import statement; none where it cannot be parsed.

    Args:
        statement: from its first word on, comments and joined lines included, without the line end.
    """
    if "\n" in statement:
        statement = _COMMENT.sub("", statement).replace("\\\n", " ")
    statement = _LAZY.sub("", statement, count=1) if statement.startswith("lazy") else statement
    if statement.startswith(("import", "cimport")):
        names = (part.split() for part in statement.partition("import")[2].split(","))
        return [(0, words[0], "") for words in names if words]
    match = _IMPORT_WORD.search(statement, len("from"))
    if match is None:
        return []
    source = "".join(statement[len("from") : match.start()].split())
    module = source.lstrip(".")
    names = (part.split() for part in statement[match.end() :].strip().strip("()").split(","))
    taken = [words[0].strip("()") for words in names if words]
    return [(len(source) - len(module), module, "" if name == "*" else name) for name in taken if module or source]


class Modules:
    """Finds modules of a repository by path without extension (a package: its directory) or by the end of that path."""

    def __init__(
        self, paths: tuple[str, ...], renamed: dict[str, str], extensions: tuple[str, ...] = _EXTENSIONS
    ) -> None:
        """Of files with some extensions; a package is one by any `__init__`."""
        self._file: dict[str, int] = {}
        self._packages: set[str] = set()
        ranks: dict[str, int] = {}
        for number, path in enumerate(paths):
            module, extension = posixpath.splitext(path)
            directory, name = posixpath.split(module)
            if extension in _EXTENSIONS and name == "__init__":
                self._packages.add(directory)
            if extension not in extensions:
                continue
            rank = extensions.index(extension)
            if name == "__init__":
                module, rank = directory, rank - len(_EXTENSIONS)  # a package hides a module of its name
            if rank < ranks.get(module, len(_EXTENSIONS)):
                ranks[module] = rank
                self._file[module] = number
        self._path = {number: module for module, number in self._file.items()}
        self._by_end = SuffixIndex([*self._file.items(), *self._renamed_modules(renamed)])
        self._candidates: dict[str, tuple[Nearest, Nearest]] = {}
        self._found: dict[tuple[str, str], str | None] = {}
        self._targets: dict[tuple[str, str], tuple[int, ...]] = {}

    def _renamed_modules(self, renamed: dict[str, str]) -> Iterator[tuple[str, int]]:
        """(import path, file) of modules in renamed directories; adds their packages to `_packages` under that path."""
        for module, number in self._file.items() if renamed else ():
            directory: str | None = module
            while directory is not None:
                if directory in renamed:
                    below = module[len(directory) :].lstrip("/")
                    path = _join(renamed[directory], below)
                    if module in self._packages:
                        self._packages.add(path)
                    yield path, number
                directory = _ancestor(directory, 1)

    def targets(self, directory: str, statement: str) -> tuple[int, ...]:
        """Files named in an import statement of a file in `directory`, each once, in its order."""
        key = (directory, statement)
        if key not in self._targets:
            files = (self._target(directory, *target) for target in parse_import(statement))
            self._targets[key] = tuple(dict.fromkeys(number for number in files if number is not None))
        return self._targets[key]

    def _target(self, directory: str, dots: int, module: str, name: str) -> int | None:
        if dots:
            base = _ancestor(directory, dots - 1)
            return None if base is None else self._taken_from(_join(base, module.replace(".", "/")), name)
        path = self._find(module, directory)
        if path is not None:
            return self._taken_from(path, name)
        inner = self._find(f"{module}.{name}", directory) if name else None
        return None if inner is None else self._file[inner]

    def _taken_from(self, path: str, name: str) -> int | None:
        """The module `name` in the package at a path, else the package or module itself."""
        inner = self._file.get(_join(path, name)) if name else None
        return self._file.get(path) if inner is None else inner

    def _find(self, module: str, directory: str) -> str | None:
        """Path of the module behind an absolute dotted name from a directory."""
        key = (module, directory)
        if key not in self._found:
            self._found[key] = self._search(module.replace(".", "/"), directory)
        return self._found[key]

    def _search(self, ending: str, directory: str) -> str | None:
        first, _, rest = ending.partition("/")
        if first in STANDARD_LIBRARY:
            return self._above(ending, directory) if rest else self._beside(ending, directory)
        if not rest:
            file_above = self._above(ending, directory)
            if file_above is not None:
                return file_above
        at_root, anywhere = self._nearest(ending)
        file = at_root.find(directory)
        if file is None and rest:
            file = anywhere.find(directory)
        return None if file is None else self._path[file]

    def _nearest(self, ending: str) -> tuple[Nearest, Nearest]:
        """Candidates for a path's end: modules at this path below a root, and all with this end.

        A module of one part is a candidate only in a source directory (`src`, `lib`, `python`) or as a package.
        """
        if ending not in self._candidates:
            matches = self._by_end.matches(ending)
            roots = [path[: -len(ending)].rstrip("/") for path, _ in matches]
            single = "/" not in ending
            at_root = [
                (path, file)
                for (path, file), root in zip(matches, roots, strict=True)
                if self._root(path) == root
                and (not single or path in self._packages or posixpath.basename(root) in _SOURCE_DIRECTORIES)
            ]
            # What lies inside a regular package has a longer name: `ext/mypy/plugin.py` there is not `mypy.plugin`.
            loose = [match for match, root in zip(matches, roots, strict=True) if root not in self._packages]
            self._candidates[ending] = (Nearest(at_root), Nearest(loose))
        return self._candidates[ending]

    def _above(self, ending: str, directory: str) -> str | None:
        """The module of this name at the nearest root at or above a directory."""
        while True:
            path = _join(directory, ending)
            if path in self._file and self._root(path) == directory:
                return path
            if not directory:
                return None
            directory = posixpath.dirname(directory)

    def _beside(self, name: str, directory: str) -> str | None:
        """The module of this name in `directory` itself, if that is no package."""
        path = _join(directory, name)
        return path if path in self._file and directory not in self._packages else None

    def _root(self, path: str) -> str:
        """The directory where a module's dotted name begins: the nearest one above it without `__init__`."""
        directory = posixpath.dirname(path)
        while directory and directory in self._packages:
            directory = posixpath.dirname(directory)
        return directory


def _join(directory: str, path: str) -> str:
    """Join two paths with `/`; either may be empty."""
    return f"{directory}/{path}" if directory and path else directory or path


def _ancestor(directory: str, levels: int) -> str | None:
    """The directory `levels` levels up; None above the top."""
    for _ in range(levels):
        if not directory:
            return None
        directory = posixpath.dirname(directory)
    return directory


def renamed_directories(repository: RepositoryTexts) -> dict[str, str]:
    """Directory -> the path by which its modules are imported: with `package-dir = {a = "x"}`, x -> a."""
    directories = {}
    for path, text in zip(repository.paths, repository.texts, strict=True):
        above, name = posixpath.split(path)
        if name in ("pyproject.toml", "setup.cfg"):
            declared = _of_pyproject(text) if name == "pyproject.toml" else _of_setup(text)
            for package, directory in declared.items():
                place = posixpath.normpath(posixpath.join(above, directory)).removeprefix(".")
                imported = posixpath.join(above, package.replace(".", "/"))
                if package and not place.startswith(".") and place != imported:
                    directories[place] = imported
    return directories


def _of_pyproject(text: str) -> dict[str, str]:
    """Package -> directory by a pyproject.toml's `package-dir`; {} where it has none or is no TOML."""
    try:
        table: object = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}
    for key in ("tool", "setuptools", "package-dir"):
        table = table.get(key) if isinstance(table, dict) else None
    return {key: value for key, value in table.items() if isinstance(value, str)} if isinstance(table, dict) else {}


def _of_setup(text: str) -> dict[str, str]:
    """Package -> directory by a setup.cfg; its values continue in lines beginning with a blank."""
    directories = {}
    section = key = ""
    for line in text.splitlines():
        if line.startswith("["):
            section, key = line.strip(), ""
        elif section == "[options]":
            value = line
            if not line[:1].isspace():
                key, _, value = line.partition("=")
            package, equals, directory = value.partition("=")
            if key.strip() == "package_dir" and equals:
                directories[package.strip()] = directory.strip()
    return directories
