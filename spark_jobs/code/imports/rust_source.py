"""The modules that a Rust file declares, and the paths that each of them names.

    mod a;                     a module in another file                 mod b { ... }      one in this file
    #[path = "x.rs"] mod c;    its file                            use d::{e, f as g, h::*};
    crate::i::J, self::k       paths in code, which count for the module around them

Braces of macros and functions make no module of their own, so the declaration in `cfg_if! { mod a; }` is found. Modules
that are compiled only under conditions count too. Names that macros generate are not found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from spark_jobs.code.imports.dependency import evidence_of
from spark_jobs.code.imports.source_names import path_words
from spark_jobs.lexing.blank import blank

# A pattern that begins with a literal is found at the speed of memory; the bytes before it are checked afterwards.
_MOD: Final = re.compile(rb"mod\s+(?:r#)?(\w+)\s*([;{])")
_USE: Final = re.compile(  # ends before another `use`, so that a file of unfinished ones takes linear time
    rb"(?<![\w#])use\s+((?:::|(?!use\s)[\w{*])[^;u]*+(?:(?!(?<![\w#])use\s)u[^;u]*+)*+);"
)
_EXTERN: Final = re.compile(rb"extern\s+crate\s+(?:r#)?(\w+)(?:\s+as\s+(\w+))?\s*;")
_DEFINED: Final = tuple(
    re.compile(keyword + rb"\s+(?:r#)?([^\W\d]\w*)")
    for keyword in (b"fn", b"struct", b"enum", b"union", b"trait", b"type", b"const", b"static", b"macro_rules!")
)
_MACRO: Final = re.compile(rb"macro_rules!\s*(\w+)")
_PATH_ATTRIBUTE: Final = re.compile(rb'\bpath\s*=\s*(?:r#*)?"( *)"')
_TOKENS: Final = re.compile(r"::|\w+|[{},*]")
_MOST_NESTED: Final = 32
_MOST_ATTRIBUTES: Final = 16_384  # bytes before an item that are searched for its attributes
_TEST: Final = re.compile(rb"#\s*\[\s*cfg\s*\(\s*test\s*\)\s*\]")


class Use(NamedTuple):
    """One name that a `use` brings into scope.

    Attributes:
        segments: of the path, `crate`, `self` and `super` among them; "" first for a path that begins with `::`.
        name: its local name; "*" for all names of the module at the path.
        evidence: the statement.
    """

    segments: tuple[str, ...]
    name: str
    evidence: str


@dataclass
class RustScope:
    """The names in a module's source: a whole file, or the body of `mod x { ... }` in one.

    Attributes:
        is_test: whether only `cargo test` compiles it.
        declared: (name, value of its `#[path]` or None) of modules in other files; a name more than once under
            conditions.
        inner: name -> module in the same file.
        uses: names from `use` and `extern crate`.
        paths: other paths with `::` in its code.
        defined: names that it defines, at any depth.
        macros: macros that it defines by `macro_rules!`.
        called: macros that it calls.
    """

    is_test: bool = False
    declared: list[tuple[str, str | None]] = field(default_factory=list)
    inner: dict[str, RustScope] = field(default_factory=dict)
    uses: list[Use] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    defined: set[str] = field(default_factory=set)
    macros: set[str] = field(default_factory=set)
    called: set[str] = field(default_factory=set)


def read_rust(text: str) -> RustScope:
    """Read one file.

    Returns:
        The module that the file is; modules inside it are `inner`.
    """
    source = text.encode()
    return _scope(source, blank(source, "Rust"), (0, len(source)), 0, is_test=False)


def _scope(source: bytes, code: bytes, span: tuple[int, int], depth: int, *, is_test: bool) -> RustScope:
    """Read the module between two positions; modules nested deeper than `_MOST_NESTED` count as its own code."""
    begin, end = span
    scope, code_parts, at = RustScope(is_test), [], begin
    for match in _MOD.finditer(code, begin, end) if depth < _MOST_NESTED else ():
        if match.start() < at or not _begins_word(code, match.start()):
            continue  # inside a module that was read already
        name, attributes = match[1].decode(), _attributes(code, begin, match.start())
        if match[2] == b";":
            scope.declared.append((name, _path_value(source, code, *attributes)))
            code_parts.append(code[at : match.start()])
            at = match.end()
        else:
            close = _closing_brace(code, match.end(), end)
            for_tests = is_test or _TEST.search(code, *attributes) is not None
            scope.inner[name] = _scope(source, code, (match.end(), close), depth + 1, is_test=for_tests)
            code_parts.append(code[at : match.start()])
            at = close
    _read_own(scope, b" ".join([*code_parts, code[at:end]]))
    return scope


def _read_own(scope: RustScope, code: bytes) -> None:
    """Add to `scope` the names in a module's own code, which is `code` without its inner modules."""
    parts, at = [], 0
    for match in _USE.finditer(code):
        if _begins_word(code, match.start()) and match.start() >= at:
            evidence = evidence_of(match[0].decode("utf-8", "replace"))
            scope.uses += use_tree(match[1].decode("utf-8", "replace"), evidence)
            parts.append(code[at : match.start()])
            at = match.end()
    rest = b" ".join([*parts, code[at:]])
    for match in _EXTERN.finditer(rest):
        name = match[1].decode("utf-8", "replace")
        alias = (match[2] or match[1]).decode("utf-8", "replace")
        scope.uses.append(Use(("", name), alias, evidence_of(match[0].decode("utf-8", "replace"))))
    for token in path_words(rest):
        if "::" in token:
            scope.paths.add(token.strip(":!"))
        elif token[-1] == "!":
            scope.called.add(token.strip(":!"))
    scope.defined = {name.decode("utf-8", "replace") for kind in _DEFINED for name in kind.findall(rest)}
    scope.macros = {name.decode("utf-8", "replace") for name in _MACRO.findall(rest)}


def _begins_word(code: bytes, at: int) -> bool:
    return at == 0 or not (code[at - 1 : at].isalnum() or code[at - 1] == ord("_"))


def _attributes(code: bytes, begin: int, at: int) -> tuple[int, int]:
    """Span of the attributes of the item at a position: from the end of the item before it."""
    begin = max(begin, at - _MOST_ATTRIBUTES)
    return max(begin, 1 + max(code.rfind(end, begin, at) for end in (b";", b"{", b"}"))), at


def _path_value(source: bytes, code: bytes, begin: int, end: int) -> str | None:
    """The file that `#[path = "..."]` names, also inside `cfg_attr`."""
    match = _PATH_ATTRIBUTE.search(code, begin, end)
    return source[match.start(1) : match.end(1)].decode("utf-8", "replace") if match else None


def _closing_brace(code: bytes, begin: int, end: int) -> int:
    """Position of the brace that closes the one before `begin`; `end` without one."""
    depth, at = 1, begin
    while depth:
        close = code.find(b"}", at, end)
        if close < 0:
            return end
        depth += code.count(b"{", at, close) - 1
        at = close + 1
    return at - 1


def use_tree(tree: str, evidence: str) -> Iterator[Use]:
    """Parse the names that a `use` brings into scope.

    Yields:
        One `Use` per leaf: `a::{b, c as d, e::*}` gives three. `self` as a leaf is the path before it.
    """
    tokens = _TOKENS.findall(tree.replace("r#", ""))
    prefix: list[str] = [""] if tokens[:1] == ["::"] else []
    open_segments: list[list[str]] = []
    segments, alias = list(prefix), ""
    for token, following in zip(tokens, [*tokens[1:], ","], strict=True):
        if token == "{":
            if len(open_segments) == _MOST_NESTED:
                return
            open_segments.append(segments)
            segments = list(segments)
        elif token in ",}":
            if len(segments) > len(open_segments[-1] if open_segments else prefix):
                yield _leaf(segments, alias, evidence)
            segments, alias = list(open_segments[-1] if open_segments else []), ""
            if token == "}" and open_segments:
                open_segments.pop()
                segments = list(open_segments[-1]) if open_segments else []
        elif alias == "as":
            alias = token
        elif token == "as" and following not in ("::", ","):
            alias = "as"
        elif token != "::":
            segments.append(token)
    if segments and not open_segments and len(segments) > len(prefix):
        yield _leaf(segments, alias, evidence)


def _leaf(segments: list[str], alias: str, evidence: str) -> Use:
    path = tuple(segments[:-1]) if segments[-1] in ("self", "*") and len(segments) > 1 else tuple(segments)
    return Use(path, "*" if segments[-1] == "*" else alias or path[-1], evidence)
