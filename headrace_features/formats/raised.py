"""Write raised and lowered text in a line: `10^23` for a power, and nothing for `21st`, `Mme` and `H2O`.

Readers of formats put a mark before and after each raised or lowered piece; `with_scripts` writes them all at the end,
when it is known what stands on either side. What is raised has a `^` where it is a number, a sign or a formula, and
where it is one letter behind a number or another single letter, as in `x^n`; not where it ends a word (`1er`, `2e`). A
digit never touches one of another height: `log_2 8`.
"""

from __future__ import annotations

import re
from typing import Final

RAISED: Final = "\x11"
"""Stands before a raised piece. No character of a text: XML forbids it, readers of other formats leave it out."""
LOWERED: Final = "\x12"
"""Stands before a lowered piece."""
LEVEL: Final = "\x13"
"""Stands behind a raised or lowered piece."""
_AGAIN = re.compile(f"{LEVEL}([ \xa0]*)([{RAISED}{LOWERED}])")
_PIECE = re.compile(f"([{RAISED}{LOWERED}])([^{RAISED}{LOWERED}{LEVEL}]*){LEVEL}")
_STRAY = re.compile(f"[{RAISED}{LOWERED}{LEVEL}]")
_NESTED = re.compile(f"[{RAISED}{LOWERED}][^{RAISED}{LOWERED}{LEVEL}]*+[{RAISED}{LOWERED}]")
_ANY_MARK = re.compile(f"([{RAISED}{LOWERED}{LEVEL}])")
_ORDINAL_LETTERS = frozenset("aoerds")  # French 2e, Spanish 1a and 1o, English 2d, old English 1s
_STROKES = frozenset("/⁄")  # before them a raised number begins a fraction: 1 1/2
_TOKEN = re.compile(r"[-+−–±]?\w+(?:[.,]\w+)*[-+−–±]?|\W")
_BASE = re.compile(r"(?:\d|(?<![^\W_])[^\W\d_])$")


def scripted(text: str, height: str) -> str:
    """A text between the marks of a height, `RAISED` or `LOWERED`."""
    return f"{height}{text}{LEVEL}" if text else ""


def with_scripts(text: str) -> str:
    """The text with each marked piece written in the line."""
    if LEVEL not in text:
        return _STRAY.sub("", text)
    if _NESTED.search(text):
        text = _without_inner(text)
    text = _AGAIN.sub(lambda match: _joined(match, text), text)
    parts, end = list[str](), 0
    for piece in _PIECE.finditer(text):
        parts.append(text[end : piece.start()])
        parts.append(_written("".join(parts[-2:])[-40:], piece[1], piece[2], text[piece.end() : piece.end() + 2]))
        end = piece.end()
    return _STRAY.sub("", "".join([*parts, text[end:]]))


def _without_inner(text: str) -> str:
    """The text for pieces inside of others: `x^(2^3)`."""
    levels: list[tuple[str, list[str]]] = [("", [])]
    parts = _ANY_MARK.split(text)
    for place, part in enumerate(parts):
        if place % 2 == 0:
            levels[-1][1].append(part)
        elif part != LEVEL:
            levels.append((part, []))
        elif len(levels) > 1:
            height, inner = levels.pop()
            piece, around = "".join(inner), levels[-1][1]
            is_inner = len(levels) > 1
            written = _written("".join(around[-2:])[-40:], height, piece, parts[place + 1][:2]) if is_inner else ""
            around.append(written if is_inner else scripted(piece, height))
    return "".join(part for _, inner in levels for part in inner)


def _joined(match: re.Match[str], text: str) -> str:
    """Nothing between two pieces of the same height: they are one piece."""
    former = max(0, text.rfind(LEVEL, 0, match.start()))
    height = text[max(text.rfind(RAISED, former, match.start()), text.rfind(LOWERED, former, match.start()))]
    return match[1] if height == match[2] else match[0]


def _written(before: str, height: str, piece: str, after: str) -> str:
    """One piece in the line, with what stands before and behind it; white space at its ends stays outside."""
    core = piece.strip()
    if not core:
        return piece
    lead, trail = piece[: len(piece) - len(piece.lstrip())], piece[len(piece.rstrip()) :]
    last, following = (lead or before)[-1:], (trail + after)[:1]  # a piece of another height sees to itself
    touches = bool(last) and not last.isspace()
    meets = touches and last.isdigit() and core[0].isdigit()
    gap = " " if core[-1].isdigit() and following.isdigit() else ""
    if height == LOWERED:
        sign = "_" if meets or gap else ""
    elif following in _STROKES and core.isdigit():
        return f"{lead}{' ' if meets else ''}{core}{trail}"
    else:
        sign = "^" if gap or (touches and _has_sign(before, core)) else ""
    if sign and not _TOKEN.fullmatch(core):
        core = f"({core})"
    return f"{lead}{sign}{core}{gap}{trail}"


def _has_sign(before: str, raised: str) -> bool:
    """Whether a raised piece is a power, an index or a mark, and no end of a word."""
    if raised[0] in "[(":  # the mark of a note
        return False
    if raised.isalpha():
        return len(raised) == 1 and raised not in _ORDINAL_LETTERS and _BASE.search(before) is not None
    return any(character.isdigit() or character in "+-−–*∗′" for character in raised)
