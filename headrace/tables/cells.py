"""Cells of a corpus: what one is called, and how a blend chooses some of them.

A cell is a value for each dimension of the corpus: the number of a quantile or of a range between bounds, counted from
0, the lowest; a text; or None where a document has no value. It is written as JSON with sorted names, in the column
`cell` of packed tables::

    {"quality":15,"topic":"law"}

A choice of cells is written behind a table, in brackets, as conditions that all must hold::

    main.packed_web_2048[quality >= 15, topic in (law, 'public health'), language != none]

`none` is a value like others, equal to itself alone, and neither above nor below another.

Of tables packed by length classes a dimension more is how long the sequences of a window are, `length_class=512`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final, NamedTuple

from headrace.tables.exceptions import CellsError

CELL_COLUMN: Final = "cell"
LENGTH_CLASS: Final = "length_class"  # the dimension that packing adds
Value = int | str | None

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')|(?P<op><=|>=|!=|==|=|<|>)|(?P<mark>[(),])|(?P<word>[^\s'<>=!(),\[\]]+))"""
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # of a dimension, or of a column of a table of text
_LEVELS: Final = ("<", "<=", ">", ">=")


def cell_text(values: Mapping[str, Value]) -> str:
    """Write a cell."""
    return json.dumps(dict(values), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def cell_values(cell: str) -> dict[str, Value]:
    """Read a cell."""
    values: dict[str, Value] = json.loads(cell)
    return values


def cell_label(cell: str) -> str:
    """Write a cell for people: `quality=15, topic=law`."""
    return ", ".join(f"{name}={_written(value)}" for name, value in cell_values(cell).items())


def value_order(value: Value) -> tuple[bool, bool, Value]:
    """What values of a dimension are sorted by: numbers before texts, none behind both."""
    return value is None, isinstance(value, str), 0 if value is None else value


def in_order(values: Iterable[Value]) -> list[Value]:
    """Sort values of a dimension."""
    return sorted(values, key=value_order)


def sequence_tokens(cell: str, window_tokens: int) -> int:
    """Give the length of the sequences in windows of a cell: its length class, else a window is one."""
    length = cell_values(cell).get(LENGTH_CLASS)
    return length if isinstance(length, int) else window_tokens


class Condition(NamedTuple):
    """What must hold of one dimension.

    Attributes:
        name: of the dimension.
        operator: one of in, not in, <, <=, >, >=.
        values: ascending, each once; one whole number for the last four.
    """

    name: str
    operator: str
    values: tuple[Value, ...]

    def holds(self, value: Value) -> bool:
        """Whether it holds of a value; a boolean is the text true or false."""
        if isinstance(value, bool):
            value = str(value).lower()
        if self.operator in ("in", "not in"):
            return (value in self.values) == (self.operator == "in")
        bound = self.values[0]
        if not isinstance(value, int) or not isinstance(bound, int):
            return False
        return (value > bound if ">" in self.operator else value < bound) or ("=" in self.operator and value == bound)

    def __str__(self) -> str:
        """Write it as it is read."""
        if self.operator in _LEVELS:
            return f"{self.name}{self.operator}{self.values[0]}"
        if len(self.values) == 1:
            return f"{self.name}{'=' if self.operator == 'in' else '!='}{_written(self.values[0])}"
        return f"{self.name} {self.operator} ({', '.join(map(_written, self.values))})"


class CellChoice(NamedTuple):
    """A choice of cells: those for which all conditions hold."""

    conditions: tuple[Condition, ...]

    def takes(self, cell: str) -> bool:
        """Whether a cell is among them."""
        return self.holds(cell_values(cell))

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Whether all conditions hold of the values of a cell or a document."""
        return all(condition.holds(values.get(condition.name)) for condition in self.conditions)

    def __str__(self) -> str:
        """Write it in its one canonical form, which is kept with a blend."""
        return ", ".join(map(str, self.conditions))

    @property
    def slug(self) -> str:
        """A name for it, of lower-case letters, digits and hyphens."""
        words = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "in": "is", "not in": "not"}
        parts = [
            "-".join((name, words[operator], *map(str, values))).lower() for name, operator, values in self.conditions
        ]
        return re.sub(r"[^a-z0-9]+", "-", "-".join(parts)).strip("-")

    @property
    def length_class(self) -> int | None:
        """The one length of the sequences of all these cells, where they have one."""
        of = [c.values for c in self.conditions if (c.name, c.operator, len(c.values)) == (LENGTH_CLASS, "in", 1)]
        return of[0][0] if of and isinstance(of[0][0], int) else None

    def meets(self, other: CellChoice) -> bool:
        """Whether any cell could be of both, there today or not."""
        both = (*self.conditions, *other.conditions)
        # A condition changes what it says at its values alone, so these, their neighbours and a text stand for all.
        tried = {value for condition in both for value in condition.values} | {None, "\0"}
        tried |= {value + step for value in tried if isinstance(value, int) for step in (-1, 1)}
        return all(
            any(all(condition.holds(value) for condition in both if condition.name == name) for value in tried)
            for name in {condition.name for condition in both}
        )

    def select(self, cells: Iterable[str], where: str) -> list[str]:
        """Choose among cells, those of the table `where`.

        Raises:
            CellsError: a dimension is none of them, or no cell is chosen; the message has the nearest names.
        """
        there = {cell: cell_values(cell) for cell in cells}
        dimensions: dict[str, set[Value]] = {}
        for values_of_cell in there.values():
            for name, value in values_of_cell.items():
                dimensions.setdefault(name, set()).add(value)
        for condition in self.conditions:
            if condition.name not in dimensions:
                raise CellsError(
                    f"{where}[{self}]: cells have no {condition.name}{nearest(condition.name, dimensions)}; they are "
                    f"made by {', '.join(sorted(dimensions)) or 'nothing: the table is packed without cells'}"
                )
            if not any(map(condition.holds, dimensions[condition.name])):
                values = [_written(value) for value in in_order(dimensions[condition.name])]
                wanted = _written(condition.values[0])
                shown = ", ".join(values[:12]) + (f", .. {values[-1]}" if len(values) > 12 else "")
                raise CellsError(
                    f"{where}[{self}]: no cell has {condition}{nearest(wanted, values)}; {condition.name} is {shown}"
                )
        chosen = [cell for cell, values_of_cell in there.items() if self.holds(values_of_cell)]
        if not chosen:
            raise CellsError(f"{where}[{self}]: no cell has all of this together; see headrace corpus cells")
        return chosen


def parse_choice(text: str) -> CellChoice:
    """Read a choice of cells, without its brackets.

    Raises:
        CellsError: it is none; the message says where.
    """
    tokens = _tokens(text)
    conditions: list[Condition] = []
    while True:
        conditions.append(_condition(tokens, text))
        kind, token = tokens.pop(0)
        if kind == "end":
            break
        if token not in (",", "and"):
            raise _unread(text, token, "a comma between conditions")
    conditions.sort(key=lambda condition: (condition.name, condition.operator, str(condition)))
    return CellChoice(tuple(dict.fromkeys(conditions)))


def split_table(text: str) -> tuple[str, CellChoice | None]:
    """Split `namespace.table[conditions]`.

    Raises:
        CellsError: a bracket is missing, or what stands in them is no choice.
    """
    table, bracket, rest = text.partition("[")
    if not bracket:
        return text, None
    if not rest.endswith("]"):
        raise CellsError(f"{text!r}: no ] closes the cells; write {table}[quality>=15]")
    return table.strip(), parse_choice(rest[:-1])


def _condition(tokens: list[tuple[str, str]], text: str) -> Condition:
    kind, name = tokens.pop(0)
    if kind != "word" or not _NAME.fullmatch(name):
        raise _unread(text, name, "the name of a dimension")
    kind, operator = tokens.pop(0)
    if operator == "not" and tokens[0][1] == "in":
        operator = "not in"
        tokens.pop(0)
    if operator in ("in", "not in"):
        return Condition(name, operator, _listed(tokens, text))
    if kind != "op":
        raise _unread(text, operator, f"=, !=, <, <=, >, >= or in behind {name}")
    value = _value(tokens.pop(0), text)
    if operator in _LEVELS:
        if not isinstance(value, int):
            raise CellsError(f"{text!r}: {name} {operator} {_written(value)}: {operator} compares whole numbers")
        return Condition(name, operator, (value,))
    return Condition(name, "not in" if operator == "!=" else "in", (value,))


def _listed(tokens: list[tuple[str, str]], text: str) -> tuple[Value, ...]:
    if (mark := tokens.pop(0)[1]) != "(":
        raise _unread(text, mark, "( behind in")
    values = [_value(tokens.pop(0), text)]
    while (mark := tokens.pop(0)[1]) == ",":
        values.append(_value(tokens.pop(0), text))
    if mark != ")":
        raise _unread(text, mark, ") or a comma")
    return tuple(in_order(set(values)))


def _value(token: tuple[str, str], text: str) -> Value:
    kind, word = token
    if kind == "text":
        return word[1:-1].replace("''", "'")
    if kind != "word":
        raise _unread(text, word, "a value")
    return None if word == "none" else int(word) if re.fullmatch(r"-?[0-9]{1,19}", word) else word


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, place = [], 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None:
            raise CellsError(f"{text!r}: cannot read from {text[place:].strip()[:20]!r} on; quote a text: 'it''s'")
        tokens.append((str(match.lastgroup), match[match.lastgroup or 0]))
        place = match.end()
    return [*tokens, *[("end", "")] * 3]


def _unread(text: str, token: str, wanted: str) -> CellsError:
    return CellsError(
        f"{text!r}: {token or 'the end'!r} stands where {wanted} should; write quality>=15, topic in (3, 7)"
    )


def _written(value: Value) -> str:
    if value is None or isinstance(value, int):
        return "none" if value is None else str(value)
    plain = _TOKEN.fullmatch(value) is not None and re.fullmatch(r"[^\s'<>=!(),\[\]]+", value) is not None
    if plain and value not in ("none", "in", "not", "and") and not re.fullmatch(r"-?[0-9]+", value):
        return value
    return "'" + value.replace("'", "''") + "'"


def nearest(name: str, there: Iterable[str]) -> str:
    """Ask whether the nearest of some names was meant, as the end of a message; empty where none is near."""
    near = get_close_matches(name, list(there), 1)
    return f"; did you mean {near[0]}?" if near else ""
