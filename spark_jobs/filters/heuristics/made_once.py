"""Tables that compiled code reads by their address: made once, and never given back."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


def made_once(make: Callable[[], _T]) -> Callable[[], _T]:
    """Give the one object that a function makes, the same to all threads, for as long as the process lives.

    `functools.cache` lets threads that ask first at the same time make one each, and keeps the last: compiled code that
    reads another one by its address then reads memory that was given back.
    """
    lock = threading.Lock()
    kept: list[_T] = []

    @functools.wraps(make)
    def kept_one() -> _T:
        with lock:
            if not kept:
                kept.append(make())
        return kept[0]

    return kept_one
