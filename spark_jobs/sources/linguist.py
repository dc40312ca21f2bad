"""The language of a file, as GitHub's Linguist tells it: by its name, its first line and rules about its content.

    modeline     -*- mode: C++ -*-, vim: ft=sh    in the first and last five lines
    name         Makefile, Jenkinsfile            the whole name
    first line   #!/usr/bin/env python3
    extension    .dart, .h.in                     the longest known one, in any letters
    XML          <?xml version=                   where nothing was said yet
    rules        .m with @interface is Objective-C

Each step gives languages, or takes from those of the step before; the first step after which there is one alone
decides. Names, extensions, interpreters and rules are Linguist's own (`setup/linguist.py` makes the file of them). Its
last step, a classifier trained on samples, is not here: where rules leave several, `preferred` takes one.

Rules are looked for by Arrow with RE2, in time linear in the text, in as many bytes as Linguist looks at.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.threads import made_once

_Names: TypeAlias = tuple[str, ...]
Rules: TypeAlias = Sequence[tuple[tuple[str, ...], Sequence[tuple[bool, str]]]]
"""In order: languages, and conditions that hold for their files: whether a pattern is in the text."""
_LOOKED_AT: Final = 50 << 10  # bytes that rules see; HEURISTICS_CONSIDER_BYTES of Linguist
_LAST_ID: Final = 1000  # later languages have ids of six digits and more
_LINES_BYTES: Final = 4 << 10  # of the beginning and the end, in which lines are looked at
_MODELINES: Final = 5  # lines at both ends in which linguist looks for one
_VIM = re.compile(rb"(?:^|[ \t])(?:[vV]im?(?:[<=>]?\d+)?|ex):(.*)")
_VIM_LANGUAGE = re.compile(rb"(?:^|[ \t:])(?:filetype|ft|syntax)[ \t]*=(\w+)(?=[\s:]|$)")
_EMACS = re.compile(rb"-\*-(.*?)-\*-")
_EMACS_MODE = re.compile(rb"(?i)(?:^|[;\s])mode\s*:\s*([^:;\s]+)")
_EXEC = re.compile(rb"exec (\w+)")
_ENV_ARGUMENT = re.compile(r"-[i0uCSv]*|--\S+|\S+=\S*")
_MAN_PAGE = re.compile(r"(?i)\.(?:[1-9](?![0-9])[a-z_0-9]*|0p|n|man|mdoc)(?:\.in)?$")


class LinguistTables(NamedTuple):
    """Linguist's data, indexed.

    Attributes:
        source: the packages of its origin, with versions.
        types: of each language, by its name: programming, markup, data or prose.
        media_types: of languages with one.
        late: languages taken up by Linguist when its ids were not in order any more.
        first: the extension stated first, of each language with one.
        extensions: languages by extension, in lower-case letters.
        filenames: languages by the whole name of a file.
        interpreters: languages by the program to run them.
        aliases: language by each of its names in lower-case letters.
        rules: by extension.
    """

    source: str
    types: Mapping[str, str]
    media_types: Mapping[str, str]
    late: frozenset[str]
    first: Mapping[str, str]
    extensions: Mapping[str, tuple[str, ...]]
    filenames: Mapping[str, tuple[str, ...]]
    interpreters: Mapping[str, tuple[str, ...]]
    aliases: Mapping[str, str]
    rules: Mapping[str, Rules]


@made_once
def tables() -> LinguistTables:
    """The data, read once per process."""
    data = json.loads(resources.files(__package__).joinpath("linguist.json").read_text("utf-8"))
    extensions, filenames, interpreters = by = dict[str, _Names](), dict[str, _Names](), dict[str, _Names]()
    aliases: dict[str, str] = {}
    for name, (_, _, _, *columns, names) in data["languages"].items():
        for index, values in zip(by, columns, strict=True):
            for value in values:
                key = value.lower() if index is extensions else value
                index[key] = (*index.get(key, ()), name) if name not in index.get(key, ()) else index[key]
        aliases |= dict.fromkeys((alias.lower() for alias in names), name)
    aliases |= {form: name for name in data["languages"] for form in (name.lower(), name.lower().replace(" ", "-"))}
    return LinguistTables(
        data["source"],
        {name: row[0] for name, row in data["languages"].items()},
        {name: row[2] for name, row in data["languages"].items() if row[2]},
        frozenset(name for name, row in data["languages"].items() if row[1] > _LAST_ID),
        {name: row[3][0].lower() for name, row in data["languages"].items() if row[3]},
        extensions,
        filenames,
        interpreters,
        aliases,
        {end: rules for ends, rules in data["heuristics"] for end in ends},
    )


def by_name(path: str) -> tuple[str, ...]:
    """The languages allowed by the name of a file; none where it says nothing."""
    linguist, name = tables(), posixpath.basename(path)
    if languages := linguist.filenames.get(name):
        return languages
    return next((linguist.extensions[end] for end in _extensions(name) if end in linguist.extensions), ())


def by_content(path: str, data: bytes) -> tuple[str, ...]:
    """The languages allowed by the name and the bytes of a file, one where they decide; none where they say nothing."""
    linguist, name = tables(), posixpath.basename(path)
    candidates: tuple[str, ...] = ()
    for step in _steps(linguist, name, data):
        both = tuple(language for language in step if language in candidates) if candidates else step
        if len(both) == 1:
            return both
        candidates = both or candidates
    if not candidates:
        if re.search(rb"<?xml version=", b"\n".join(data[:_LINES_BYTES].split(b"\n", 2)[:2])):
            return ("XML",)
        candidates = ("Roff Manpage", "Roff") if _MAN_PAGE.search(name) else ()
    rules = next((linguist.rules[end] for end in _extensions(name) if end in linguist.rules), ())
    return _ruled(rules, data) or candidates


def preferred(path: str, languages: Sequence[str]) -> str | None:
    """Of a file's possible languages the one taken where nothing decides; None of none.

    The one of the last rule of its extension, else the first of those known to editors with its extension as the first
    one stated by Linguist; of those the one from before Linguist gave ids at random.
    """
    if len(languages) < 2:
        return languages[0] if languages else None
    linguist, ends = tables(), list(_extensions(posixpath.basename(path)))
    last = next((linguist.rules[end][-1] for end in ends if end in linguist.rules), None)
    if last is not None and not last[1] and last[0][0] in languages:
        return last[0][0]

    def rank(name: str) -> tuple[bool, bool, bool, str]:
        return name not in linguist.media_types, linguist.first.get(name) not in ends, name in linguist.late, name

    return min(languages, key=rank)


def _steps(linguist: LinguistTables, name: str, data: bytes) -> Iterator[tuple[str, ...]]:
    """The languages told by each of the first steps, in order."""
    yield _of_modeline(linguist, data)
    yield linguist.filenames.get(name, ())
    yield _of_first_line(linguist, data) if data.startswith(b"#!") else ()
    yield next((linguist.extensions[end] for end in _extensions(name) if end in linguist.extensions), ())


def _extensions(name: str) -> Iterator[str]:
    """What stands from each point of a name on, the longest first: `.h.in`, then `.in`."""
    name, at = name.lower(), -1
    while (at := name.find(".", at + 1)) >= 0:
        yield name[at:]


def _ruled(rules: Rules, data: bytes) -> tuple[str, ...]:
    """The languages of the first rule with conditions that hold."""
    if not rules:
        return ()
    text = pa.scalar(data[:_LOOKED_AT], pa.binary())
    for languages, conditions in rules:
        if all(pc.match_substring_regex(text, pattern).as_py() == expected for expected, pattern in conditions):
            return tuple(languages)
    return ()


def _of_modeline(linguist: LinguistTables, data: bytes) -> tuple[str, ...]:
    """The language named in a line for Emacs or Vim."""
    ends = [data] if len(data) <= 2 * _LINES_BYTES else [data[:_LINES_BYTES], data[-_LINES_BYTES:]]
    if not any(mark in end for end in ends for mark in (b"-*-", b"vi", b"Vi", b"ex:")):
        return ()
    head, tail = ends[0].split(b"\n", _MODELINES)[:_MODELINES], ends[-1].rsplit(b"\n", _MODELINES)[-_MODELINES:]
    lines = [*head, *tail]
    for line in lines:
        if b"-*-" in line and (match := _EMACS.search(line)):
            mode = _EMACS_MODE.search(match[1])
            return _aliased(linguist, mode[1] if mode else match[1].strip())
    for line in lines:
        if (b"i" in line or b"ex:" in line) and b":" in line and (match := _VIM.search(line)):
            names = set(_VIM_LANGUAGE.findall(match[1]))
            return _aliased(linguist, names.pop()) if len(names) == 1 else ()
    return ()


def _aliased(linguist: LinguistTables, alias: bytes) -> tuple[str, ...]:
    name = linguist.aliases.get(alias.decode(errors="replace").lower())
    return (name,) if name else ()


def _of_first_line(linguist: LinguistTables, data: bytes) -> tuple[str, ...]:
    """The languages of the interpreter in the first line."""
    words = data[2:_LINES_BYTES].split(b"\n", 1)[0].decode(errors="replace").split()
    if not words:
        return ()
    interpreter = posixpath.basename(words[0])
    if interpreter == "env":
        arguments = words[1:]
        while len(arguments) > 1 and _ENV_ARGUMENT.fullmatch(arguments[0]):
            arguments = arguments[1:]
        interpreter = posixpath.basename(arguments[0]) if arguments else ""
    if interpreter == "sh":
        interpreter = _executed(data[:_LINES_BYTES].split(b"\n", _MODELINES)[:_MODELINES]) or interpreter
    if re.fullmatch(r"python\d\.\d+", interpreter):
        interpreter = interpreter.partition(".")[0]
    if interpreter == "osascript" and "-l" in words:
        return ()  # it runs other languages too
    return linguist.interpreters.get(interpreter, ())


def _executed(lines: Sequence[bytes]) -> str | None:
    """The program started by a script of the shell in its place: `exec tclsh "$0" "$@"`."""
    for line in lines:
        for match in _EXEC.finditer(line):
            if b"$@" in line[match.end() :].partition(b"$0")[2]:
                return match[1].decode()
    return None
