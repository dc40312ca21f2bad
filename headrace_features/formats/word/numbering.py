"""Give each paragraph of a list the number or bullet shown before it in Word: `2.`, `b)`, `1.1`, `•`.

A paragraph names a list and a level, itself or by its style. Lists of one abstract list count together; one that states
a start of its own begins anew where it is first used. A level begins anew behind a paragraph of a level above it, or of
the level named by `lvlRestart` (ECMA-376 part 1, 17.9).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from headrace_features.formats.word.styles import Styles, is_on, look_of
from headrace_features.formats.word.symbols import symbol

_WHOLE = re.compile(r"-?\d{1,9}")
_ARGUMENT = re.compile("%([1-9])")
_BULLET: Final = "•"
_ROMAN = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"))
_SMALL_ROMAN = ((10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))
_CHINESE, _MOST_CHINESE = "〇一二三四五六七八九", 100
_HIGHEST_ROMAN = 4000


class _Level(NamedTuple):
    """A level of a list: its first number, form, text with `%1` for numbers, and what makes it begin anew."""

    start: int = 1
    form: str = "decimal"
    text: str = ""
    restart: int | None = None
    is_decimal: bool = False
    gap: str = " "
    style: str | None = None


class Numbering:
    """The lists of a document, and how far each of their levels has counted."""

    def __init__(self, root: Element | None, styles: Styles) -> None:
        self._styles = styles
        self._abstract = dict[str, Element]()
        self._lists = dict[str, tuple[str, dict[int, _Level], dict[int, int]]]()
        self._counts = dict[str, dict[int, int]]()
        self._begun = set[str]()
        if root is not None:
            self._abstract = {part.get("w_abstractNumId", ""): part for part in root.iterfind("w_abstractNum")}
            for part in root.iterfind("w_num"):
                self._lists[part.get("w_numId", "")] = self._list(part)

    def label(self, paragraph: Element | None) -> str:
        """What stands before a paragraph, by its properties, with the gap behind it; it is counted."""
        name, depth = self._place(paragraph)
        if name not in self._lists:
            return ""
        abstract, levels, starts = self._lists[name]
        counts = self._counts.setdefault(abstract, {})
        if name not in self._begun:
            self._begun.add(name)
            for begun in starts:
                counts.pop(begun, None)
        level = levels.get(depth, _Level())
        counts[depth] = counts[depth] + 1 if depth in counts else starts.get(depth, level.start)
        for below in [other for other in counts if other > depth]:
            restart = levels.get(below, _Level()).restart
            if restart is None or depth < restart:
                del counts[below]
        return self._written(level, levels, counts, starts)

    def _written(self, level: _Level, levels: dict[int, _Level], counts: dict[int, int], starts: dict[int, int]) -> str:
        """The text of a level with the numbers of it and of those above it."""

        def number(match: re.Match[str]) -> str:
            of = int(match[1]) - 1
            shown = levels.get(of, _Level())
            form = "decimal" if level.is_decimal and shown.form not in ("decimalZero", "bullet") else shown.form
            return in_form(counts.get(of, starts.get(of, shown.start)), form)

        text = level.text if level.form == "bullet" else _ARGUMENT.sub(number, level.text)
        return f"{text}{level.gap}" if text.strip() else ""

    def _place(self, paragraph: Element | None) -> tuple[str, int]:
        """The list and the level of a paragraph; an empty name where it is in none."""
        of_style = self._styles.paragraph_style(paragraph)
        holders = [paragraph, *(style.find("w_pPr") for style in self._styles.chain(of_style))]
        properties = [part for holder in holders if holder is not None for part in holder.iterfind("w_numPr")]
        name = next((value for part in properties if (value := _text(part, "w_numId")) is not None), "0")
        stated = next((value for part in properties if (value := _text(part, "w_ilvl")) is not None), None)
        levels = self._lists[name][1] if name in self._lists else {}
        named = {level.style: depth for depth, level in levels.items() if level.style}
        by_style = next((named[id_] for id_ in self._style_ids(of_style) if id_ in named), 0)
        direct = paragraph is not None and paragraph.find("w_numPr") is not None
        return name, _number(stated) if stated is not None and (direct or not by_style) else by_style

    def _style_ids(self, name: str | None) -> Iterator[str]:
        """The ids of a style and of its base styles."""
        yield from (style.get("w_styleId", "") for style in self._styles.chain(name))

    def _list(self, part: Element) -> tuple[str, dict[int, _Level], dict[int, int]]:
        """A list: the abstract one that counts it, its levels, and its own stated starts."""
        abstract = self._resolved(_text(part, "w_abstractNumId") or "")
        levels = dict(_levels(self._abstract[abstract])) if abstract in self._abstract else {}
        starts = dict[int, int]()
        for override in part.iterfind("w_lvlOverride"):
            depth = _number(override.get("w_ilvl"))
            levels.update(_levels(override))
            if (start := _text(override, "w_startOverride")) is not None:
                starts[depth] = _number(start)
        return abstract, levels, starts

    def _resolved(self, name: str) -> str:
        """An abstract list, or that of the style of lists linked by it."""
        link = _text(self._abstract[name], "w_numStyleLink") if name in self._abstract else None
        if link is None:
            return name
        linked = (id_ for id_, part in self._abstract.items() if _text(part, "w_styleLink") == link)
        return next(linked, name)


def in_form(number: int, form: str) -> str:
    """A number in one of the forms of ECMA-376 part 1, 17.18.59; as a decimal in unknown ones."""
    if form in ("none", "bullet"):
        return ""
    if form.isdecimal():
        return f"{number:0{len(form)}d}"
    write = _FORMS.get(form)
    return write(number) if write and number > 0 else str(number)


def _form(stated: Element) -> str:
    """The form of a level; of the custom ones, `001, 002, ..`, the zeros before it."""
    form = stated.get("w_val", "")
    return stated.get("w_format", "").partition(",")[0].strip() if form == "custom" else form


def _levels(holder: Element) -> Iterator[tuple[int, _Level]]:
    """The levels of a list."""
    for part in holder.iterfind("w_lvl"):
        form = next((_form(child) for child in part.iter("w_numFmt")), "decimal")
        look, text = look_of(part.find("w_rPr")), _text(part, "w_lvlText") or ""
        if look.is_hidden:
            text = ""
        elif form == "bullet":
            text = _bullet(text, look.font)
        legal, restart = part.find("w_isLgl"), _text(part, "w_lvlRestart")
        yield (
            _number(part.get("w_ilvl")),
            _Level(
                _number(_text(part, "w_start")),
                form,
                text,
                None if restart is None else _number(restart),
                legal is not None and is_on(legal.get("w_val", "1")),
                "" if _text(part, "w_suff") == "nothing" else " ",
                _text(part, "w_pStyle"),
            ),
        )


def _bullet(text: str, font: str | None) -> str:
    """The bullet of a level; the usual one where its font is not known. An `o` of Courier is a ring."""
    if text == "o" and font and font.lower().startswith("courier"):
        return "◦"
    return "".join(symbol(ord(character), font) or _BULLET for character in text)


def _text(element: Element, name: str) -> str | None:
    """The value of a child, if there is one."""
    child = element.find(name)
    return None if child is None else child.get("w_val")


def _number(value: str | None) -> int:
    """A whole number; 0 for what is none, as Word takes it."""
    return int(value) if value and _WHOLE.fullmatch(value) else 0


def _roman(number: int) -> str:
    """A Roman number in small letters."""
    if number >= _HIGHEST_ROMAN:
        return str(number)
    text = ""
    for value, letters in (*_ROMAN, *_SMALL_ROMAN):
        text += letters * (number // value)
        number %= value
    return text


def _ordinal(number: int) -> str:
    """An English ordinal number, in digits."""
    is_teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if is_teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _chinese(number: int) -> str:
    """A Chinese or Japanese number below a hundred; digits one by one above."""
    tens, units = divmod(number, 10)
    if number >= _MOST_CHINESE:
        return "".join(_CHINESE[int(digit)] for digit in str(number))
    return ("" if tens < 2 else _CHINESE[tens]) + "十" * (tens > 0) + (_CHINESE[units] if units or not tens else "")


def _repeated(signs: str) -> Callable[[int], str]:
    """Signs by their turn; from the last on they are doubled, as in y z aa bb."""
    return lambda number: signs[(number - 1) % len(signs)] * ((number - 1) // len(signs) + 1)


def _digits(zero: str) -> Callable[[int], str]:
    """Decimals in the digits of a script."""
    return lambda number: "".join(chr(ord(zero) + int(digit)) for digit in str(number))


def _circled(number: int) -> str:
    """A number in a circle, up to 20."""
    return chr(0x245F + number) if number <= 20 else str(number)


_LATIN, _RUSSIAN = "abcdefghijklmnopqrstuvwxyz", "абвгдежзиклмнопрстуфхцчшщыэюя"
_FORMS: Final[dict[str, Callable[[int], str]]] = {
    "decimalZero": lambda number: f"{number:02d}",
    "lowerRoman": _roman,
    "upperRoman": lambda number: _roman(number).upper(),
    "lowerLetter": _repeated(_LATIN),
    "upperLetter": _repeated(_LATIN.upper()),
    "russianLower": _repeated(_RUSSIAN),
    "russianUpper": _repeated(_RUSSIAN.upper()),
    "ordinal": _ordinal,
    "chicago": _repeated("*†‡§"),
    "hex": lambda number: f"{number:X}",
    "numberInDash": lambda number: f"- {number} -",
    "decimalEnclosedCircle": _circled,
    "decimalEnclosedCircleChinese": _circled,
    "decimalFullWidth": _digits("０"),
    "decimalFullWidth2": _digits("０"),
    "hindiNumbers": _digits("०"),
    "thaiNumbers": _digits("๐"),
    "ganada": _repeated("가나다라마바사아자차카타파하"),
    "aiueoFullWidth": _repeated(
        "アイウエオカキクケコサシスセソタチツテトナニヌネノハヒフヘホマミムメモヤユヨラリルレロワヲン"
    ),
    "irohaFullWidth": _repeated(
        "イロハニホヘトチリヌルヲワカヨタレソツネナラムウヰノオクヤマケフコエテアサキユメミシヱヒモセス"
    ),
    "ideographDigital": lambda number: "".join(_CHINESE[int(digit)] for digit in str(number)),
    "ideographTraditional": _repeated("甲乙丙丁戊己庚辛壬癸"),
    **dict.fromkeys(
        ("chineseCounting", "chineseCountingThousand", "taiwaneseCountingThousand", "japaneseCounting"), _chinese
    ),
}
