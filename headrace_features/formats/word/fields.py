r"""Read the fields of a Word document: what is a code and not shown, and what a code shows that has no result.

A field begins, may have a result behind a separator, and ends; fields stand in codes and results of others (ECMA-376
part 1, 17.16). All that stands in a code is not shown, were it a paragraph. Word draws `SYMBOL` and `EQ` from the code:

    SYMBOL 97 \f Symbol    α          EQ \f(1,2)    1/2          EQ \o\ad(\s\up 9(とう),東)    東(とう)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree.ElementTree import Element

from headrace_features.formats.raised import LOWERED, RAISED, scripted
from headrace_features.formats.word.symbols import symbol

_SYMBOL = re.compile(r'\s*SYMBOL\s+"?(0x[0-9a-f]+|\d+|.)"?(.*)', re.IGNORECASE | re.DOTALL)
_FONT = re.compile(r'\\f\s*(?:"([^"]*)"|(\S+))', re.IGNORECASE)
_EQUATION = re.compile(r"\s*EQ\b(?:\s*\\\*\s*(?:\"[^\"]*\"|\S+))*", re.IGNORECASE)
_SWITCH = re.compile(r"\\([a-z]+)\s*(-?\d*)\s*", re.IGNORECASE)
_SHOWN = ("w_t", "w_sym", "m_oMath", "w_drawing", "w_pict", "w_object")
_DEEPEST = 20
_SIMPLE = re.compile(r"\w*|\W")
_BRACKETS = {"(": ")", "[": "]", "{": "}", "<": ">"}


class Fields:
    """The fields of a part, by the marks in its elements; one without an end is none."""

    def __init__(self, elements: Iterable[Element]) -> None:
        self._coded = set[int]()  # elements that stand in a code, by their ids
        self._codes = dict[int, str]()  # codes of fields whose result is empty, by the ids of the marks of their ends
        stack = list[tuple[list[Element], list[Element]]]()  # of each open field its code, and what is behind that
        for element in elements:
            kind = element.get("w_fldCharType") if element.tag == "w_fldChar" else None
            if kind == "begin":
                stack.append(([], []))
            elif kind == "separate" and stack and not stack[-1][1]:
                stack[-1][1].append(element)
            elif kind == "end" and stack:
                code, result = stack.pop()
                self._coded.update(map(id, code))
                if not any(shown.tag in _SHOWN for shown in result):
                    self._codes[id(element)] = _joined(code)
                inner = [*code, *result]
                if stack:
                    stack[-1][bool(stack[-1][1])].extend(inner)
            if stack:
                stack[-1][bool(stack[-1][1])].append(element)

    def is_code(self, element: Element) -> bool:
        """Whether an element stands in the code of a field."""
        return id(element) in self._coded

    def drawn(self, end: Element) -> str:
        """What a field shows that ends here without a result."""
        return "" if self.is_code(end) else field_text(self._codes.get(id(end), ""))


def field_text(code: str) -> str:
    """What Word draws from the code of a field; nothing for an undrawn field."""
    if match := _SYMBOL.fullmatch(code):
        return _symbol(match[1], match[2])
    if match := _EQUATION.match(code):
        return _equation(code[match.end() :].strip())
    return ""


def _joined(code: list[Element]) -> str:
    """The words of a code."""
    return "".join(element.text or "" for element in code if element.tag in ("w_instrText", "w_t"))


def _symbol(place: str, switches: str) -> str:
    """The character at a place of a font, in Windows' encoding unless it is said to be Unicode's."""
    if len(place) == 1 and not place.isdigit():
        return place
    code = int(place, 16 if place[:2].lower() == "0x" else 10)
    font = _FONT.search(switches)
    if font is None and "\\u" not in switches and code < 256:
        return bytes([code]).decode("cp1252", "replace").replace("\ufffd", "")
    return (symbol(code, (font[1] or font[2]) if font else None) if 0 < code < 0x110000 else None) or ""


def _equation(text: str, depth: int = 0) -> str:
    """An equation in a line."""
    pieces, place = list[str](), 0
    while place < len(text):
        switch = _SWITCH.match(text, place) if text[place] == "\\" else None
        if switch is None:
            place += text[place] == "\\" and place + 1 < len(text)  # a sign that stands for itself
            pieces.append(text[place])
            place += 1
            continue
        switches = list[tuple[str, str]]()
        while switch:
            switches.append((switch[1].lower(), switch[2]))
            place = switch.end()
            signs = re.match(r"\\?([^\w\s])\s*", text[place:]) if switch[1].lower() in ("bc", "lc", "rc") else None
            if signs:
                switches[-1] = (switches[-1][0], signs[1])
                place += signs.end()
            switch = _SWITCH.match(text, place)
        arguments, place = _arguments(text, place)
        if depth < _DEEPEST:
            pieces.append(_form(switches, [_equation(argument, depth + 1) for argument in arguments]))
    return "".join(pieces)


def _arguments(text: str, place: int) -> tuple[list[str], int]:
    """The arguments in brackets from a place on, and the place behind them."""
    if place >= len(text) or text[place] != "(":
        return [], place
    arguments, depth = [""], 0
    while place < len(text):
        sign, step = text[place], 1
        if sign == "\\" and place + 1 < len(text):
            sign, step = text[place : place + 2], 2
        depth += (sign == "(") - (sign == ")")
        place += step
        if not depth:
            break
        if depth == 1 and sign in ",;":
            arguments.append("")
        elif depth > 1 or sign != "(":
            arguments[-1] += sign
    return [argument.strip() for argument in arguments], place


def _form(switches: list[tuple[str, str]], arguments: list[str]) -> str:
    """One form of an equation, by its switches, in a line."""
    names = dict(switches)
    first, rest = switches[0][0], arguments[1:]
    if first == "f" and rest:
        return f"{_fenced(arguments[0])}/{_fenced(rest[0])}"
    if first == "r" and arguments:
        return f"√({arguments[0]}&{rest[0]})" if rest else f"√{_fenced(arguments[0])}"
    if first == "s" and arguments:
        height = LOWERED if "do" in names else RAISED
        return "".join(
            scripted(argument, height if not number else LOWERED) for number, argument in enumerate(arguments)
        )
    if first == "o" and rest and RAISED in arguments[0]:  # a reading over its base
        reading = re.sub("[\x11-\x13]", "", arguments[0])
        return f"{''.join(rest)}({reading})"
    if first == "b" and arguments:
        left = names.get("lc") or names.get("bc") or ("" if "rc" in names else "(")
        right = names.get("rc") or _BRACKETS.get(names.get("bc", ""), names.get("bc")) or ("" if "lc" in names else ")")
        return f"{left}{arguments[0]}{right}"
    if first == "i" and arguments:
        sign = "∑" if "su" in names else "∏" if "pr" in names else "∫"
        low, high, of = [*arguments, "", "", ""][:3]
        return f"{sign}{f'_{_fenced(low)}' * bool(low)}{f'^{_fenced(high)}' * bool(high)} {of}".rstrip()
    if first == "a":
        return " ".join(arguments)
    return (", " if first == "l" else "").join(arguments)


def _fenced(text: str) -> str:
    """An argument with brackets, unless it is one word or one sign."""
    return text if _SIMPLE.fullmatch(text) else f"({text})"
