"""A trace of a call: lines of the repository with their values, and the result or exception.

An event is a line of text; values are written without running code of the program:

    call wrap  text='', width=70
    line 391  w=<TextWrapper object>      about to run; values changed since the last event of the function
    return []
    exception ValueError: invalid width 0
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from .shown import Shown, name_of

_VALUES = 12  # most values in an event


class CallTracer:
    """Notes events until there are enough.

    Attributes:
        events: as text.
        was_cut: whether there were more.
    """

    def __init__(self, folder: str, steps: int, characters: int) -> None:
        """Note so many events of code in files of a folder."""
        self.events: list[str] = []
        self.was_cut = False
        self._folder, self._steps = folder, steps
        self.shown = Shown(characters, calls_repr=False, depth=4)
        self._before: dict[int, dict[str, str]] = {}
        self._raised: set[int] = set()

    def start(self) -> None:
        """Trace what is called from now on."""
        sys.settrace(self._called if self._steps else None)

    def stop(self) -> None:
        """Trace nothing more."""
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, value: Any) -> Any:
        if self.was_cut or not frame.f_code.co_filename.startswith(self._folder):
            return None
        self._note(f"call {frame.f_code.co_name}", self._changes(frame))
        return self._inside

    def _inside(self, frame: FrameType, event: str, value: Any) -> Any:
        if event == "line":
            self._note(f"line {frame.f_lineno}", self._changes(frame))
        elif event == "exception":
            message = _message(value[1])
            self._note(f"exception {name_of(value[0])}" + (f": {self.shown.text(message)}" if message else ""), "")
        elif event == "return":
            self._before.pop(id(frame), None)
            if id(frame) not in self._raised:  # else it is left by what was raised
                self._note(f"return {self.shown.text(value)}", "")
        (self._raised.add if event == "exception" else self._raised.discard)(id(frame))
        return None if self.was_cut else self._inside

    def _note(self, head: str, values: str) -> None:
        if len(self.events) >= self._steps:
            self.was_cut = True
            sys.settrace(None)
        else:
            self.events.append(f"{head}  {values}" if values else head)

    def _changes(self, frame: FrameType) -> str:
        """The changed values of a function's variables since its last event."""
        before = self._before.setdefault(id(frame), {})
        parts = []
        for name, value in list(frame.f_locals.items()):
            text = self.shown.text(value)
            if before.get(name) != text:
                before[name] = text
                parts.append(f"{name}={text}")
        if len(parts) > _VALUES:
            self.shown.was_cut = True
            parts = [*parts[:_VALUES], "..."]
        return ", ".join(parts)


def _message(error: Any) -> str:
    """The plain values among an exception's arguments, as text."""
    arguments: tuple[Any, ...] = BaseException.__dict__["args"].__get__(
        error
    )  # a class may have its own, which is code
    return (
        arguments[0]
        if len(arguments) == 1 and type(arguments[0]) is str
        else ", ".join(map(str, filter(_is_plain, arguments)))
    )


def _is_plain(value: object) -> bool:
    return type(value) in (str, int, float, bool, type(None))
