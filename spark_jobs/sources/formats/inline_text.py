"""The text of one block of a page: blanks collapsed, raised digits, readings, quotes and line breaks written out.

Markup inside a block is reduced to a few marks, which no text can hold, because `<` is escaped in it:

    <n> a line break    <^>..</^> raised    <_>..</_> lowered    <r>base<t>reading</t></r> ruby    <q>..</q> quoted
"""

from __future__ import annotations

import re
from html import unescape

RAISED, RAISED_END, LOWERED, LOWERED_END = "<^>", "</^>", "<_>", "</_>"
RUBY, RUBY_END, READING, READING_END = "<r>", "</r>", "<t>", "</t>"
QUOTE, QUOTE_END, BREAK = "<q>", "</q>", "<n>"

_BLANKS = re.compile(r"[ \t\n\r\f]+")
_BREAKS = re.compile(r" ?<n> ?")
_MARK = re.compile(r"<[^>]*>")
_RUBY = re.compile(r"<r>((?:(?!<r>).)*?)</r>", re.DOTALL)
_READING = re.compile(r"<t>((?:(?!<t>).)*?)</t>", re.DOTALL)
_QUOTE = re.compile(r"<(/?)q>")
_QUOTES = ("“”", "‘’")
_SCRIPT = re.compile(r"(.?)((?:</?(?:[btrq])>)*)<([\^_])>((?:(?!<[\^_]>|</[\^_]>).)*)</\3>(?=(.?))", re.DOTALL)
_VARIABLE = frozenset("nkxyzijpqN")  # after a digit a raised letter of these is an exponent; others are ordinals


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
    while RUBY in text:
        shorter = _RUBY.sub(lambda ruby: _ruby_text(ruby.group(1), readings), text)
        if shorter == text:
            break
        text = shorter
    if QUOTE in text:
        text = _quoted(text)
    while RAISED in text or LOWERED in text:
        shorter = _SCRIPT.sub(_script_text, text)
        if shorter == text:
            break
        text = shorter
    text = text.replace(BREAK, "\n") if preserved else _BREAKS.sub("\n", text)
    return _MARK.sub("", text)


def _ruby_text(content: str, readings: bool) -> str:
    """A base with its readings in brackets behind it."""
    found = "".join(_MARK.sub("", reading).strip() for reading in _READING.findall(content))
    while READING in content:
        shorter = _READING.sub("", content)
        if shorter == content:
            break
        content = shorter
    base = _MARK.sub("", content).strip(" ")
    return f"{base}({found})" if readings and found else base


def _quoted(text: str) -> str:
    """Quotes, the inner ones single."""
    depth, parts, last = 0, [], 0
    for mark in _QUOTE.finditer(text):
        depth -= bool(mark.group(1)) and depth > 0
        parts += [text[last : mark.start()], _QUOTES[depth % 2][bool(mark.group(1))]]
        depth += not mark.group(1)
        last = mark.end()
    return "".join([*parts, text[last:]])


def _script_text(script: re.Match[str]) -> str:
    """A raised or lowered part behind what it belongs to.

    Digits never touch digits. A raised number is an exponent (`10^23`, `m^2`), and so is another formula behind a
    letter or a digit (`2^(n+1)`); `1<sup>st</sup>` and `M<sup>me</sup>` are words. A raised number before a stroke
    begins a fraction (`1 1/2`).
    """
    before, between, mark, content, after = script.groups()
    inner = _MARK.sub("", content).strip()
    if not inner:
        return before + between
    touches = before.isalnum() or before in (")", "]", "’", "'")
    if mark == "_":
        separated = "_" if before.isdigit() and inner[0].isdigit() else ""
        text = f"{separated}{content}"
    elif after in ("/", "⁄") and inner.isdigit():
        text = f" {content}" if before.isdigit() else content
    elif not touches or not _is_exponent(inner, before):
        text = content
    else:
        text = f"^{content}" if re.fullmatch(r"[+\-−–±]?[\d.,]+|.|[+\-−–±]", inner) else f"^({content})"
    apart = " " if after.isdigit() and inner[-1].isdigit() else ""
    return before + between + text + apart


def _is_exponent(inner: str, before: str) -> bool:
    """Whether a raised text is a number or a formula, not the end of a word or a mark in brackets."""
    if inner.isalpha():
        return before.isdigit() and inner in _VARIABLE
    if inner[0] in "[(*†‡§¶®©™°ªº":
        return inner[0] in "[(" and inner[-1] not in "])"
    return any(letter.isdigit() for letter in inner) or inner in ("+", "-", "−", "–", "±", "2+", "3+")
