"""What a reason says is the same in every run."""

from __future__ import annotations

import functools
import io
import threading

import pytest

from spark_jobs.messages import kept_message
from spark_jobs.sources.opening.parser_process import run_apart
from spark_jobs.sources.refusals import Reason, Refusal, RefusedError, first_line


class _Thing:
    def method(self) -> None:
        """Nothing."""


OBJECTS: list[object] = [
    io.BytesIO(),
    object(),
    _Thing,
    _Thing(),
    _Thing().method,
    len,
    first_line,
    lambda: None,
    threading.Lock(),
]
OBJECTS += [functools.partial(first_line), (0 for _ in range(0)), [io.BytesIO()], {"a": object()}, iter([])]


@pytest.mark.parametrize("thing", OBJECTS, ids=lambda thing: type(thing).__name__)
def test_a_reason_never_holds_an_address(thing: object) -> None:
    """Of objects, functions, methods, in containers; however the message becomes a reason."""
    error = ValueError(f"file '{thing!r}' is not a Word file")
    for text in (Refusal(Reason.CORRUPT_FILE, str(error)).detail, first_line(error), kept_message(str(error))):
        assert " at 0x" not in text and text.startswith("file '") and text.endswith("' is not a Word file")
    both = Refusal(Reason.EMPTY, "a").and_also(Refusal(Reason.EMPTY, repr(thing)))
    assert " at 0x" not in both.detail
    assert " at 0x" not in RefusedError(Reason.EMPTY, repr(thing)).refusal.detail


def test_an_address_that_a_text_is_about_stays() -> None:
    """Places in a file are no addresses of objects."""
    assert Refusal(Reason.EMPTY, "wrong magic at 0x1f").detail == "wrong magic at 0x1f"


def fails() -> None:
    """A parser that fails with an object in its message."""
    raise ValueError(f"no relationship in {io.BytesIO()}")


def test_the_failure_of_a_parser_holds_no_address() -> None:
    """Where any error of a library becomes a reason."""
    found = run_apart(fails, 5)
    assert found == Refusal(
        Reason.CORRUPT_FILE, "its parser failed: ValueError: no relationship in <_io.BytesIO object>"
    )
