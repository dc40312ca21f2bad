"""Whether an example of a docstring gave what its file states: as Python's own doctest compares them."""

from __future__ import annotations
import __future__

import doctest
import io
import traceback
from types import ModuleType
from typing import Any


def future_flags(module: ModuleType) -> int:
    """The flags of a module's compilation, as far as it says so by `from __future__ import`."""
    names, features = vars(module), vars(__future__)
    declared = [name for name in __future__.all_feature_names if name in names and names[name] is features[name]]
    return sum(features[name].compiler_flag for name in declared)


class Session:
    """What one statement shows on a terminal: what it prints on its standard output, and its values.

    Attributes:
        printed: on standard output.
        values: that were shown; None is not.
    """

    def __init__(self) -> None:
        """Nothing was shown yet."""
        self.printed = io.BytesIO()
        self.values: list[object] = []
        self._places: list[int] = []

    def show(self, value: object) -> None:
        """Note a value for the interpreter's output (`sys.displayhook`)."""
        if value is not None:
            self.values.append(value)
            self._places.append(self.printed.tell())

    def is_as_stated(self, stated: list[Any], exception: BaseException | None) -> bool:
        """Whether this is what a docstring states, under the options of the example alone.

        Args:
            stated: what is to be shown, the message of the exception or None, the options as pairs.
            exception: that the statement raised.
        """
        want, message, options = stated
        flags = sum(flag for flag, is_set in options if is_set)
        try:
            checked = doctest.OutputChecker().check_output
            if exception is None:
                return checked(want, self._text(), flags)
            raised = "".join(traceback.format_exception_only(type(exception), exception)[-1:])
            if message is None:
                return False
            if flags & doctest.IGNORE_EXCEPTION_DETAIL:
                return _kind(message) == _kind(raised)
            return checked(message, raised, flags)
        except BaseException:  # noqa: BLE001 - a value whose `repr` raises is not what is stated
            return False

    def _text(self) -> str:
        """What was printed and shown, in its order."""
        data, begin, parts = self.printed.getvalue(), 0, list[str]()
        for value, place in zip(self.values, self._places):  # noqa: B905 - Python 3.9 has no `strict`
            parts += [data[begin:place].decode("utf-8", "backslashreplace"), repr(value), "\n"]
            begin = place
        return "".join(parts) + data[begin:].decode("utf-8", "backslashreplace")


def _kind(message: str) -> str:
    """The name of an exception without its module and its text: `a.b.Error: c` gives `Error`."""
    return message.partition("\n")[0].partition(":")[0].rpartition(".")[2].strip()
