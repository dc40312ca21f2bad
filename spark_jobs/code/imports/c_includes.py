"""Includes between the C, C++ and Cuda files of a repository.

    "x/y.h"     the file beside the including one; else the file in the first directory of compile_commands.json that
                has it; else the nearest of all files whose path ends in x/y.h
    <x/y.h>     the same without the first rule; names of the standard library mean the compiler's files

Matching the end of a path makes up for include directories that only a build knows, where there is no manifest. No edge
leads from the user of a header to the file that implements it; these are found by symbols. Out of scope: names that are
macros, generated headers.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

import numpy as np

from spark_jobs.code.imports.c_commands import HeaderSearch
from spark_jobs.code.imports.c_directives import ANGLED, include_lines
from spark_jobs.code.imports.dependency import Dependency, Repository, evidence_of, utf8_of
from spark_jobs.code.imports.nearest import SuffixIndex

_LANGUAGES = frozenset({"C", "C++", "Cuda"})
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


def c_includes(repository: Repository) -> Iterator[Dependency]:
    """Yield what the C, C++ and Cuda files of a repository include of its files.

    Args:
        repository: all its files; any of them can be included.
    """
    readers = [number for number, language in enumerate(repository.languages) if language in _LANGUAGES]
    if not readers:
        return
    files = {path: number for number, path in enumerate(repository.paths)}
    by_end = SuffixIndex(files.items())
    search = HeaderSearch(repository)
    known: dict[tuple[str, tuple[str, ...], str, int], int | None] = {}
    for needs in readers:
        text = repository.texts[needs]
        if "include" not in text and "import" not in text:
            continue
        data = utf8_of(text)
        directory = posixpath.dirname(repository.paths[needs])
        searched = search.of(repository.paths[needs])
        for start, begin, end, form in include_lines(np.frombuffer(data, dtype=np.uint8)).tolist():
            name = data[begin:end].decode(errors="replace")
            key = (directory, searched, name, form)
            if key not in known:
                known[key] = _included(files, by_end, *key)
            needed = known[key]
            if needed is not None and needed != needs:
                yield Dependency(needs, needed, "import", evidence_of(data[start : end + 1].decode(errors="replace")))


def _included(
    files: dict[str, int], by_end: SuffixIndex, directory: str, searched: tuple[str, ...], name: str, form: int
) -> int | None:
    """The file that a name means in a directory; None for one that is not of the repository."""
    if form == ANGLED and name in _STANDARD:
        return None
    normal = posixpath.normpath(name.replace("\\", "/").strip())
    for place in searched if form == ANGLED else (directory, *searched):
        found = files.get(posixpath.normpath(posixpath.join(place, normal)))
        if found is not None:
            return found
    while normal.startswith("../"):
        normal = normal[3:]
    return by_end.nearest(normal, directory) if normal not in ("", ".", "..") else None
