"""The text of one block of a page: blanks collapsed, raised digits, readings, quotes and line breaks written out.

Markup inside a block is reduced to a few marks. No text can hold them, because `<` is escaped in it:

    <n> a line break    <^>..</^> raised    <_>..</_> lowered    <r>base<t>reading</t></r> ruby    <q>..</q> quoted
"""

from __future__ import annotations

import re
from html import unescape

from headrace_features.formats import raised
from headrace_features.formats.raised import with_scripts

RAISED, RAISED_END, LOWERED, LOWERED_END = "<^>", "</^>", "<_>", "</_>"
RUBY, RUBY_END, READING, READING_END = "<r>", "</r>", "<t>", "</t>"
QUOTE, QUOTE_END, BREAK = "<q>", "</q>", "<n>"

_BLANKS = re.compile(r"[ \t\n\r\f]+")
_BREAKS = re.compile(r" ?<n> ?")
_MARK = re.compile(r"<[^>]*>")
_RUBY = re.compile(r"(</?[rt]>)")
_QUOTE = re.compile(r"<(/?)q>")
_QUOTES = ("“”", "‘’")
_HEIGHTS = re.compile(r"</?[\^_]>")
_HEIGHT_OF = {RAISED: raised.RAISED, LOWERED: raised.LOWERED, RAISED_END: raised.LEVEL, LOWERED_END: raised.LEVEL}
_STRAY = re.compile(f"[{raised.RAISED}{raised.LOWERED}{raised.LEVEL}]")


def block_text(pieces: str, preserved: bool, readings: bool) -> str:
    """The text of a block.

    Args:
        pieces: its texts as they stand in regular markup, with marks between.
        preserved: whether blanks and line ends are kept.
        readings: whether readings of ruby stand in brackets behind their base; else they are left out.
    """
    text = pieces if preserved else _BLANKS.sub(" ", pieces)
    if "<" in text:
        text = _without_marks(text, preserved, readings)
    if "&" in text:
        text = unescape(text)
    return text.strip("\r\n") if preserved else text.strip(" \n")


def _without_marks(text: str, preserved: bool, readings: bool) -> str:
    """Write out what marks stand for."""
    if RUBY in text:
        text = _with_readings(text, readings)
    if QUOTE in text:
        text = _quoted(text)
    if _HEIGHTS.search(text):
        text = with_scripts(_HEIGHTS.sub(lambda mark: _HEIGHT_OF[mark.group()], _STRAY.sub("", text)))
    text = text.replace(BREAK, "\n") if preserved else _BREAKS.sub("\n", text)
    return _MARK.sub("", text)


def _with_readings(text: str, readings: bool) -> str:
    """Bases with their readings in brackets behind them."""
    opened: list[tuple[list[str], list[str]]] = [([], [])]  # bases and readings of ruby in ruby
    depths = [0]  # of readings in readings
    for part in _RUBY.split(text):
        if part == RUBY:
            opened.append(([], []))
            depths.append(0)
        elif part == RUBY_END and len(opened) > 1:
            bases, reading_parts = opened.pop()
            depths.pop()
            reading = "".join(reading_parts)
            written = "".join(bases).strip(" ") + (f"({reading})" if readings and reading else "")
            opened[-1][depths[-1] > 0].append(written)
        elif part in (READING, READING_END):
            depths[-1] += (1 if part == READING else -1) if len(opened) > 1 else 0
        elif part != RUBY_END:
            opened[-1][depths[-1] > 0].append(part.strip() if depths[-1] > 0 else part)
    return "".join(part for bases, readings in opened for part in (*bases, *readings))


def _quoted(text: str) -> str:
    """Quotes, the inner ones single."""
    depth, parts, last = 0, [], 0
    for mark in _QUOTE.finditer(text):
        depth -= bool(mark.group(1)) and depth > 0
        parts += [text[last : mark.start()], _QUOTES[depth % 2][bool(mark.group(1))]]
        depth += not mark.group(1)
        last = mark.end()
    return "".join([*parts, text[last:]])
