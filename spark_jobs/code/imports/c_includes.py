"""Includes between the C, C++ and Cuda files of a repository.

    "x/y.h"     the file beside the including one; else the file in the first directory of compile_commands.json that
                has it; else the nearest of all files at a path ending in x/y.h
    <x/y.h>     the same without the first rule; names of the standard library mean the compiler's files

In compile_commands.json, `{"directory": "/src/x/build", "file": "../app/main.c", "command": "cc -I../posix .."}`, paths
are those of some machine. The repository's top there (`/src/x`) is a compiled file's path without its path in the
repository; directories outside of it are ignored. For a file without a command, such as a header, the directories
common to all commands are searched.

Matching the end of a path makes up for include directories known only to a build, where there is no manifest. No edge
leads from the user of a header to the file implementing it; these are found by symbols. Out of scope: macros as names,
generated headers.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from spark_jobs.code.imports.dependency import Dependency, RepositoryTexts, evidence_of, utf8_of
from spark_jobs.code.imports.source_names import SuffixIndex
from spark_jobs.lexing.blank import blank

_LANGUAGES = frozenset({"C", "C++", "Cuda", "Objective-C", "Objective-C++"})
_STANDARD_C = """assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg
    stdatomic stdbit stdbool stdckdint stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar
    wctype alloca dirent dlfcn fcntl getopt glob grp malloc memory netdb poll pthread pwd regex sched semaphore spawn
    strings syslog termios unistd utime windows winsock2"""
_STANDARD_CPP = """algorithm any array atomic barrier bit bitset cassert ccomplex cctype cerrno cfenv cfloat charconv
    chrono cinttypes ciso646 climits clocale cmath codecvt compare complex concepts condition_variable coroutine csetjmp
    csignal cstdalign cstdarg cstdbool cstddef cstdint cstdio cstdlib cstring ctgmath ctime cuchar cwchar cwctype deque
    exception execution expected filesystem flat_map flat_set format forward_list fstream functional future generator
    initializer_list iomanip ios iosfwd iostream istream iterator latch limits list locale map mdspan memory
    memory_resource mutex new numbers numeric optional ostream print queue random ranges ratio regex scoped_allocator
    semaphore set shared_mutex source_location span spanstream sstream stack stacktrace stdexcept stdfloat stop_token
    streambuf string string_view strstream syncstream system_error thread tuple type_traits typeindex typeinfo
    unordered_map unordered_set utility valarray variant vector version"""
_STANDARD = frozenset([*(f"{name}.h" for name in _STANDARD_C.split()), *_STANDARD_CPP.split()])

_SPACE: Final = bytes(byte for byte in range(33) if byte != ord("\n"))
_GAP: Final = rb"(?:[\x00-\x20]|\\\n)*+"
_JOINED: Final = re.compile(rb"/\*.*?\*/|\\\n", re.DOTALL)  # a line end inside these does not end the statement
_INCLUDE: Final = re.compile(rb"#%s(?:include(?:_next)?|import)%s(?:\"( ++)\"|<([^>\n]++)>)" % (_GAP, _GAP))
_NAMED: Final = re.compile(rb"(?:[^\"</]++|/\*.*?\*/|/)*+.[^\n]*+", re.DOTALL)  # to the end of its line


def include_lines(source: bytes) -> Iterator[tuple[int, int, int, bool]]:
    """Find the include statements of a file, in the order of the text, outside of comments and strings.

    Conditions are not evaluated, since a branch of `#if` that one machine skips is compiled on another.

    Yields:
        Byte of the hash sign, first byte of the name, byte after it, and whether the name is in angle brackets.
    """
    last = _NAMED.match(source, max(source.rfind(b"include"), source.rfind(b"import"), 0))
    code = blank(source[: last.end()] if last else source, "C++")  # C with raw strings and digit separators
    for match in _INCLUDE.finditer(code):
        start, form = match.start(), 1 if match[1] is not None else 2
        begins_line = not code[code.rfind(b"\n", 0, start) + 1 : start].strip(_SPACE)
        if begins_line and b"\n" not in _JOINED.sub(b"", source[start : match.start(form)]):
            yield start, match.start(form), match.end(form), form == 2


def c_includes(repository: RepositoryTexts) -> Iterator[Dependency]:
    """Yield the includes between the files of C, C++, Cuda and Objective-C of a repository."""
    readers = [number for number, language in enumerate(repository.languages) if language in _LANGUAGES]
    if not readers:
        return
    included = IncludedFiles(repository)
    for needs in readers:
        text = repository.texts[needs]
        if "include" not in text and "import" not in text:
            continue
        data = utf8_of(text)
        for start, begin, end, angled in include_lines(data):
            needed = included.find(repository.paths[needs], data[begin:end].decode(errors="replace"), angled)
            if needed is not None and needed != needs:
                yield Dependency(needs, needed, "import", evidence_of(data[start : end + 1].decode(errors="replace")))


class IncludedFiles:
    """Finds the files of a repository behind names in `#include`."""

    def __init__(self, repository: RepositoryTexts) -> None:
        """Of all paths, with the directories of every compile_commands.json."""
        self._files = {path: number for number, path in enumerate(repository.paths)}
        self._by_end = SuffixIndex(self._files.items())
        self._search = HeaderSearch(repository)
        self._known: dict[tuple[str, tuple[str, ...], str, bool], int | None] = {}

    def find(self, path: str, name: str, angled: bool) -> int | None:
        """The file behind a name in the file at a path; None for one outside the repository."""
        key = (posixpath.dirname(path), self._search.of(path), name, angled)
        if key not in self._known:
            self._known[key] = _included(self._files, self._by_end, *key)
        return self._known[key]


def _included(
    files: dict[str, int], by_end: SuffixIndex, directory: str, searched: tuple[str, ...], name: str, angled: bool
) -> int | None:
    """The file behind `name` from a directory; None for one outside the repository."""
    if angled and name in _STANDARD:
        return None
    normal = posixpath.normpath(name.replace("\\", "/").strip())
    for place in searched if angled else (directory, *searched):
        file = files.get(posixpath.normpath(posixpath.join(place, normal)))
        if file is not None:
            return file
    while normal.startswith("../"):
        normal = normal[3:]
    return by_end.nearest(normal, directory) if normal not in ("", ".", "..") else None


_WORD: Final = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s"'])++""")
_FLAGS: Final = ("-iquote", "-isystem", "-idirafter", "-I")


class HeaderSearch:
    """The directories where each file's headers are searched, in order, as paths in the repository."""

    def __init__(self, repository: RepositoryTexts) -> None:
        """Read every compile_commands.json."""
        files = set(repository.paths)
        self._own: dict[str, tuple[str, ...]] = {}
        for path, text in zip(repository.paths, repository.texts, strict=True):
            if posixpath.basename(path) == "compile_commands.json":
                commands = list(_commands(text))
                top = _top([file for file, _ in commands], files)
                for file, searched in commands:
                    if file.removeprefix(top) in files:
                        self._own.setdefault(file.removeprefix(top), _below(top, searched))
        every = set.intersection(*map(set, self._own.values())) if self._own else set()
        first = next(iter(self._own.values()), ())
        self._common = tuple(directory for directory in first if directory in every)

    def of(self, path: str) -> tuple[str, ...]:
        """The directories where one file's headers are searched."""
        return self._own.get(path, self._common)


def _commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """(compiled file, directories of headers) of a compile_commands.json, all absolute; skips malformed entries."""
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or not isinstance(entry.get("file"), str):
            continue
        base = entry.get("directory")
        directory = base if isinstance(base, str) else "/"
        searched = [posixpath.normpath(posixpath.join(directory, folder)) for folder in _searched(_arguments(entry))]
        yield posixpath.normpath(posixpath.join(directory, entry["file"])), searched


def _arguments(entry: dict[str, Any]) -> list[str]:
    """The words of an entry's command, unquoted."""
    arguments, command = entry.get("arguments"), entry.get("command")
    if isinstance(arguments, list):
        return [word for word in arguments if isinstance(word, str)]
    words = _WORD.findall(command) if isinstance(command, str) else []
    return [word.replace('"', "").replace("'", "") for word in words]


def _searched(arguments: list[str]) -> Iterator[str]:
    """The values of `-I` and its like: ["-Ia", "-isystem", "b"] -> a, b."""
    for place, word in enumerate(arguments):
        flag = next((flag for flag in _FLAGS if word.startswith(flag)), None)
        if flag is not None and word != flag:
            yield word[len(flag) :]
        elif flag is not None and place + 1 < len(arguments):
            yield arguments[place + 1]


def _top(compiled: list[str], files: set[str]) -> str:
    """The repository's top on that machine, with a slash at the end; empty where no compiled file is one of `files`."""
    tops: Counter[str] = Counter()
    most_parts = max((file.count("/") for file in files), default=0) + 1
    for file in compiled:
        parts = file.split("/")
        ends = ("/".join(parts[begin:]) for begin in range(max(0, len(parts) - most_parts), len(parts)))
        end = next((end for end in ends if end in files), None)
        if end is not None:
            tops[file[: len(file) - len(end)]] += 1
    return min(tops, key=lambda top: (-tops[top], top), default="")


def _below(top: str, directories: list[str]) -> tuple[str, ...]:
    """Directories at or below the top, each once, as paths in the repository."""
    folders = (f"{directory}/"[len(top) : -1] for directory in directories if f"{directory}/".startswith(top))
    return tuple(dict.fromkeys(folders))
