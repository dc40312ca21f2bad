"""Move the clock: Linux lets no process have a time of day of its own, so Python's functions for it are replaced.

They are replaced in every run, so that runs differ in the time alone. Compiled code may still ask the kernel.
"""

from __future__ import annotations

import datetime
import time
from typing import Any


def move_clock(seconds: int) -> None:
    """Let `time` and `datetime` be so many seconds later."""
    real = {name: getattr(time, name) for name in ("time_ns", "gmtime", "localtime", "ctime", "asctime", "strftime")}

    def time_ns() -> int:
        return int(real["time_ns"]() + seconds * 10**9)

    def now() -> float:
        return time_ns() / 1e9

    changed: dict[str, Any] = {
        "time_ns": time_ns,
        "time": now,
        "gmtime": lambda at=None: real["gmtime"](now() if at is None else at),
        "localtime": lambda at=None: real["localtime"](now() if at is None else at),
        "ctime": lambda at=None: real["ctime"](now() if at is None else at),
        "asctime": lambda at=None: real["asctime"](real["localtime"](now()) if at is None else at),
        "strftime": lambda form, at=None: real["strftime"](form, real["localtime"](now()) if at is None else at),
    }
    for name, function in changed.items():
        setattr(time, name, function)
    _move_datetime(now)


def _move_datetime(now: Any) -> None:
    """Replace the class `datetime` by one asking the moved clock; instances of the real one count as its own."""
    real: Any = datetime.datetime

    class Kind(type(real)):  # type: ignore[misc]
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, real)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, real)

    class Moved(real, metaclass=Kind):  # type: ignore[misc]
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.fromtimestamp(now(), tz)

        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(now())

        @classmethod
        def utcnow(cls) -> Any:
            return cls.fromtimestamp(now(), datetime.UTC).replace(tzinfo=None)

        def __repr__(self) -> str:
            text = super().__repr__()
            return text if text.startswith("datetime.") else f"datetime.{text}"

    Moved.__name__ = Moved.__qualname__ = "datetime"
    Moved.__module__ = "datetime"
    datetime.datetime = Moved  # type: ignore[misc]
