"""What stands before the items of lists: bullets, and numbers as `start`, `reversed`, `type` and `value` say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from headrace_features.formats.web.markup import TOKEN_FIELDS, VOID

LISTS = frozenset(("ol", "ul", "menu", "dir"))

_NUMBER = re.compile(r' (start|value)="\s*([+-]?\d{1,9})')
_TYPE = re.compile(r' type="([1aAiI])"')
_ROMAN = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"),
          (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))  # fmt: skip
_INDENT = "  "
_MOST_INDENTS = 50


class _List:
    """An open list."""

    def __init__(self, number: int, step: int, kind: str, group: int) -> None:
        self.number, self.step, self.kind, self.group = number, step, kind, group


class ListMarks:
    """The open lists of a page, and the mark of the item beginning here."""

    def __init__(self) -> None:
        self._lists: list[_List] = []
        self.pending = ""

    @property
    def group(self) -> int:
        """The number of the innermost list, -1 outside of lists."""
        return self._lists[-1].group if self._lists else -1

    def open_list(self, name: str, attributes: str, item_count: int, group: int) -> None:
        """Begin a list; `item_count` is that of its items where it counts down."""
        if name != "ol":
            self._lists.append(_List(0, 0, "", group))
            return
        stated, kind = _NUMBER.search(attributes), _TYPE.search(attributes)
        step = -1 if item_count else 1
        first = int(stated.group(2)) if stated else (item_count or 1)
        self._lists.append(_List(first, step, kind.group(1) if kind else "1", group))

    def close_list(self) -> None:
        """End the innermost list."""
        if self._lists:
            self._lists.pop()
        self.pending = ""

    def open_item(self, attributes: str) -> None:
        """Begin an item; outside of a list it has a bullet."""
        items = self._lists[-1] if self._lists else _List(0, 0, "", -1)
        if not items.step:
            self.pending = "• "
            return
        stated = _NUMBER.search(attributes)
        if stated:
            items.number = int(stated.group(2))
        self.pending = f"{ordinal(items.number, items.kind)}. "
        items.number += items.step

    def marked(self, text: str) -> str:
        """A block's text with the mark of the item begun by it, indented as its lists are deep."""
        mark, self.pending = self.pending, ""
        return f"{_INDENT * min(len(self._lists) - 1, _MOST_INDENTS)}{mark}{text}" if mark else text


def ordinal(number: int, kind: str) -> str:
    """A number as a list of a kind (`1`, `a`, `A`, `i`, `I`) writes it; decimal where the kind cannot."""
    text = str(number)
    if kind in "aA" and number > 0:
        letters = ""
        while number:
            number, rest = divmod(number - 1, 26)
            letters = chr(ord("a") + rest) + letters
        text = letters
    elif kind in "iI" and 0 < number < 4000:
        text = ""
        for value, letter in _ROMAN:
            count, number = divmod(number, value)
            text += letter * count
    return text.upper() if kind in "AI" else text


def item_counts(fields: Sequence[str | None], is_hidden: Callable[[str], bool]) -> Counter[int]:
    """How many items each list of a page shows, by the place of its start tag.

    Args:
        fields: of the page's tags (markup.py).
        is_hidden: whether attributes hide their element.
    """
    counts, lists, path = Counter[int](), [0], list[str]()
    for place in range(0, len(fields) - 1, TOKEN_FIELDS):
        _, slash, name, attributes = fields[place : place + TOKEN_FIELDS]
        if name is None or name in VOID:
            continue
        is_list = name in LISTS or name == "template"
        if slash and path and path.pop() == name and is_list:
            lists.pop()
        elif not slash:
            counts[lists[-1]] += name == "li" and not (attributes and is_hidden(attributes))
            path.append(name)
            if is_list:
                lists.append(place)
    return counts
