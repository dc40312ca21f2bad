"""Values as text: sets by the order of their texts, long ones cut, a program's objects by its `repr` if asked."""

from __future__ import annotations

from typing import Any

_CUT = "..."
_MOST_BITS = 10_000  # longer integers are not written out


name_of = type.__dict__["__name__"].__get__  # a metaclass may have another, which is code of the program


class Shown:
    """Writes values, each in at most so many characters.

    Attributes:
        was_cut: whether one was cut since this was made.
    """

    def __init__(self, characters: int, calls_repr: bool, depth: int) -> None:
        """`calls_repr` calls the `repr` of a program's objects, its code; else their type is written."""
        self._characters, self._calls_repr, self._depth = characters, calls_repr, depth
        self.was_cut = False

    def text(self, value: Any) -> str:
        """A value as text."""
        text = self._text(value, self._characters, self._depth)
        if len(text) > self._characters:
            self.was_cut = True
            text = text[: self._characters] + _CUT
        return text

    def _text(self, value: Any, room: int, depth: int) -> str:
        kind = type(value)
        if kind in (str, bytes):
            if len(value) > room:
                self.was_cut = True
                return repr(value[:room]) + _CUT
            return repr(value)
        if kind is int and value.bit_length() > _MOST_BITS:
            return f"<int of {value.bit_length()} bits>"
        if kind in (int, float, bool, complex, type(None), type(Ellipsis), range):
            return repr(value)
        if kind in (list, tuple, set, frozenset, dict):
            if room <= 0 or depth <= 0:
                self.was_cut = True
                return _CUT
            return self._container(value, room, depth - 1)
        if not self._calls_repr:
            return f"<{name_of(value)}>" if issubclass(kind, type) else f"<{name_of(kind)} object>"
        return repr(value)

    def _container(self, value: Any, room: int, depth: int) -> str:
        """A list, tuple, set or dict, as much of it as there is room for."""
        kind = type(value)
        parts, used = [], 0
        for item in value.items() if kind is dict else value:
            if used > room:
                self.was_cut = True
                parts.append(_CUT)
                break
            if kind is dict:
                part = f"{self._text(item[0], room - used, depth)}: {self._text(item[1], room - used, depth)}"
            else:
                part = self._text(item, room - used, depth)
            parts.append(part)
            used += len(part) + 2
        if kind in (set, frozenset):
            parts.sort()
        inner = ", ".join(parts)
        if kind is tuple:
            return f"({inner},)" if len(parts) == 1 else f"({inner})"
        if kind is list:
            return f"[{inner}]"
        if kind is dict or (kind is set and parts):
            return f"{{{inner}}}"
        return f"{kind.__name__}({{{inner}}})" if parts else f"{kind.__name__}()"
