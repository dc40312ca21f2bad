"""What threads of one process share: values that are made once, and settings of the whole process.

Tasks of the embedded engine are threads. What they share never changes, belongs to one of them, or has a lock
(tests/test_shared_state.py lists all of it).
"""

from __future__ import annotations

import collections
import contextlib
import functools
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, Generic, ParamSpec, TypeVar, overload

_P = ParamSpec("_P")
_T = TypeVar("_T")
_R = TypeVar("_R")
_AHEAD = 16
_WARNINGS = threading.Lock()


class MadeOnce(Generic[_P, _T]):
    """A function that keeps what it gave, for threads: see `made_once`."""

    def __init__(self, make: Callable[_P, _T], most: int | None = None) -> None:
        """Wrap a function; see `made_once`."""
        functools.update_wrapper(self, make)
        self._kept, self._lock = functools.lru_cache(most)(make), threading.Lock()

    def __call__(self, *arguments: _P.args, **named: _P.kwargs) -> _T:
        """The value of these arguments."""
        with self._lock:
            return self._kept(*arguments, **named)  # type: ignore[arg-type]  # arguments are hashable

    def forget(self) -> None:
        """Make the values anew when they are asked for again."""
        self._kept.cache_clear()

    @property
    def count(self) -> int:
        """How many values are kept."""
        return self._kept.cache_info().currsize

    def __reduce__(self) -> str:
        """Functions are pickled by name."""
        return str(self.__qualname__)  # type: ignore[attr-defined]  # `update_wrapper` sets it


@overload
def made_once(make: Callable[_P, _T], /) -> MadeOnce[_P, _T]: ...
@overload
def made_once(*, most: int) -> Callable[[Callable[_P, _T]], MadeOnce[_P, _T]]: ...
def made_once(make: Any = None, /, *, most: int | None = None) -> Any:
    """Decorator: `functools.cache` for threads, which makes each value once, while all who ask for one wait.

    `functools.cache` lets threads that ask first at the same time make one each, and keeps the last: compiled code that
    reads another one by its address then reads memory that was given back, a large model is loaded as often as there
    are tasks, and libraries load what only one thread at a time may load.

    Args:
        make: a function of hashable arguments, which does not call itself.
        most: how many values are kept, the newest; all by default.
    """
    return MadeOnce(make, most) if make is not None else functools.partial(MadeOnce, most=most)


def in_order_of(pool: Executor, function: Callable[[_T], _R], items: Iterable[_T]) -> Iterator[_R]:
    """What a function gives of each item, in their order; a few are worked on ahead of the one that is asked for."""
    waiting = collections.deque[Future[_R]]()
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) > _AHEAD:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """Ignore Python's warnings inside, one thread at a time: what is ignored is a setting of the process.

    Two threads that set it and set it back in turns would leave it as the first one had set it.
    """
    with _WARNINGS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
