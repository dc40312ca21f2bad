"""A worker's error in one line, whichever engine it comes through."""

from __future__ import annotations

import pytest

from spark_jobs.lake.session.spark_errors import failure_line, spark_cause

MESSAGE = "doubles: number 12 is unlucky; leave it out"


@pytest.mark.parametrize("before", ["spark_jobs.exceptions.InputError", "RuntimeError: External error: InputError"])
def test_an_error_that_a_step_raised_on_purpose_is_its_message(before: str) -> None:
    """Spark names the module of its class; Sail names the class alone, behind errors of its own."""
    assert failure_line(RuntimeError(f"a trace\n{before}: {MESSAGE}\n")) == MESSAGE


@pytest.mark.parametrize("before", ["", "RuntimeError: External error: "])
def test_another_error_has_its_kind(before: str) -> None:
    """A class of Python's, or one of no module that only has the ending of our names."""
    for line in ("AttributeError: no such method", "StrangeError: what is it"):
        assert spark_cause(RuntimeError(f"a trace\n{before}{line}")) == line
        assert failure_line(RuntimeError(f"a trace\n{before}{line}")).startswith(f"{line}; the table is as it was")
