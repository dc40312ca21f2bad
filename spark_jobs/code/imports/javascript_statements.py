"""Find where a JavaScript or TypeScript file names other modules.

    import a from "x"     import "x"     export * from "x"     const a = require("x")      import
    import type A from "x"     export type { A } from "x"                                  import_type
    import("x")     function f() { require("x") }                                          import_inner

Comments (JSDoc is full of `import("x")`), strings, templates and regular expressions are blanked first (`blank`).
A `require` outside of all braces counts as run when the file is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from spark_jobs.lexing.blank import blank

LOADED, INNER, TYPE_ONLY = 0, 1, 2
_MAX_CLAUSE: Final = 32_768  # bytes
_BLANKS: Final = bytes(range(33))
_LETTER: Final = rb"[\w$\x80-\xff]"
_GAP: Final = rb"[\x00-\x20]*+"
_TEXT: Final = rb"(?:\"( ++)\"|'( ++)')"  # its inside is blank
_FROM: Final = rb"from(?!%s)" % _LETTER
_WORDS: Final = tuple(
    re.compile(rb"%s(?<!%s%s)(?!%s)" % (word, _LETTER, word, _LETTER)) for word in (b"import", b"export", b"require")
)
_CALL: Final = re.compile(rb"%s\(%s(?:\"( ++)\"|'( ++)'|`( ++)`)(?=%s[),])" % (_GAP, _GAP, _GAP))
_ALONE: Final = re.compile(_GAP + _TEXT)
_LISTED: Final = re.compile(_GAP + rb"[*{]")
_TYPE: Final = re.compile(
    rb"%stype(?!%s)%s(?:(?!,|%s)(?=.)|%s%s(?=[^\"'\x00-\x20]))" % (_GAP, _LETTER, _GAP, _FROM, _FROM, _GAP), re.DOTALL
)
_CLAUSE: Final = re.compile(
    rb"(?:[\x00-\x20,*]|\{(?:%s|[\x00-\x20,*\"'])*+\}|(?!(?:import|export)(?!%s))%s++)*?from%s%s"
    % (_LETTER, _LETTER, _LETTER, _GAP, _TEXT)
)


def module_references(source: bytes, language: str) -> Iterator[tuple[int, int, int, int]]:
    """Find where a file names other modules, in the order of the text.

    Yields:
        First byte of the statement's keyword, first byte of the name, byte after it, and `LOADED`, `INNER` or
        `TYPE_ONLY`.
    """
    code = blank(source, language)
    position = depth = counted = 0
    for start, word in sorted((match.start(), match[0]) for words in _WORDS for match in words.finditer(code)):
        before = code[max(0, start - 64) : start].rstrip(_BLANKS)
        if start < position or (before.endswith(b".") and not code.startswith(b".", start - 2)):
            continue  # inside of a name that was found, or a property
        position = start + len(word)
        if word == b"require":
            braces = code.count(b"{", counted, start) - code.count(b"}", counted, start)
            depth, counted = max(0, depth + braces), start
            named, kind = _CALL.match(code, position), INNER if depth else LOADED
        else:
            named, kind = _statement(code, word, position)
        if named is not None and named.lastindex is not None:
            yield start, named.start(named.lastindex), named.end(named.lastindex), kind
            position = named.end(named.lastindex) + 1


_LEADING: Final = re.compile(r"\s++|(//[^\n]*+)|/\*(?:[^*]++|\*(?!/))*+\*/|\A#![^\n]*+")
_DIRECTIVE: Final = re.compile(r"///\s*<reference(\s.*?)/>")
_NAMED: Final = {
    kind: re.compile(rf"\s{kind}\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
    for kind in ("no-default-lib", "types", "lib", "path")
}


def reference_directives(text: str) -> Iterator[tuple[bool, str, str]]:
    """Whether each `/// <reference ..>` names a path (else types), the name, and the line; only before all code.

    Of several attributes the compiler takes the first of `_NAMED`.
    """
    if "<reference" not in text:
        return
    position = 1 if text.startswith("\ufeff") else 0
    while leading := _LEADING.match(text, position):
        position = leading.end()
        directive = _DIRECTIVE.match(leading[1] or "")
        for kind, pattern in _NAMED.items() if directive else ():
            if directive and (value := pattern.search(directive[1])):
                name = value[1] or value[2]
                if kind in ("path", "types") and name:
                    yield kind == "path", name, leading[0]
                break


def _statement(code: bytes, word: bytes, position: int) -> tuple[re.Match[bytes] | None, int]:
    """Match of the module name after the keyword `word` up to `position`; None without one; and its kind."""
    if word == b"import":
        if alone := _ALONE.match(code, position):
            return alone, LOADED
        if called := _CALL.match(code, position):
            return called, INNER
    kind = TYPE_ONLY if _TYPE.match(code, position) else LOADED
    if word == b"export" and kind == LOADED and not _LISTED.match(code, position):
        return None, kind
    return _CLAUSE.match(code, position, position + _MAX_CLAUSE), kind
