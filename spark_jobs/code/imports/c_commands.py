"""The directories in which C and C++ files look for headers, from compile_commands.json.

    [{"directory": "/src/x/build", "file": "../app/main.c", "command": "cc -I../posix -c ../app/main.c"}]

Its paths are absolute paths of some machine. The top of the repository there (`/src/x`) is what remains of a compiled
file's path without its path in the repository; directories outside of it are ignored. For a file without a command,
such as a header, the directories that all commands have in common are taken.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from spark_jobs.code.imports.dependency import Repository

_WORD: Final = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s"'])++""")
_FLAGS: Final = ("-iquote", "-isystem", "-idirafter", "-I")


class HeaderSearch:
    """The directories in which each file looks for headers, as paths of the repository, in order."""

    def __init__(self, repository: Repository) -> None:
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
        """The directories in which one file looks."""
        return self._own.get(path, self._common)


def _commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Compiled files, each with the directories that it looks in, all absolute; malformed entries are left out."""
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or not isinstance(entry.get("file"), str):
            continue
        base = entry.get("directory")
        directory = base if isinstance(base, str) else "/"
        searched = [posixpath.normpath(posixpath.join(directory, found)) for found in _searched(_arguments(entry))]
        yield posixpath.normpath(posixpath.join(directory, entry["file"])), searched


def _arguments(entry: dict[str, Any]) -> list[str]:
    """The words of a command."""
    arguments, command = entry.get("arguments"), entry.get("command")
    if isinstance(arguments, list):
        return [word for word in arguments if isinstance(word, str)]
    words = _WORD.findall(command) if isinstance(command, str) else []
    return [word.replace('"', "").replace("'", "") for word in words]


def _searched(arguments: list[str]) -> Iterator[str]:
    """The values of the flags that name directories of headers."""
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
    """Directories at or below the top, each once, as paths of the repository."""
    found = (f"{directory}/"[len(top) : -1] for directory in directories if f"{directory}/".startswith(top))
    return tuple(dict.fromkeys(found))
