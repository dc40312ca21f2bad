"""What the default tier leaves out."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tiers import leave_cases_out, sampled


class Case:
    """As much of a collected test as is asked."""

    def __init__(self, nodeid: str, *marks: pytest.MarkDecorator) -> None:
        self.nodeid, self.marks = nodeid, list(marks)

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        """The mark of a name."""
        return next((mark.mark for mark in self.marks if mark.name == name), None)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        """Add a mark."""
        self.marks.append(mark)


def left(*cases: Case) -> list[str]:
    """The cases of the default tier."""
    items: list[Any] = list(cases)
    leave_cases_out(items)
    return [case.nodeid for case in cases if case.get_closest_marker("nightly") is None]


@pytest.mark.parametrize(
    ("count", "of", "kept"), [(1, 9, [0]), (4, 9, [0, 2, 4, 6]), (3, 3, [0, 1, 2]), (5, 2, [0, 1]), (2, 5, [0, 2])]
)
def test_so_many_cases_stay_and_are_spread_evenly(count: int, of: int, kept: list[int]) -> None:
    """Of each test that says so; a case that is nightly by itself is none of them, and other tests stay."""
    mine = [Case(f"a.py::test[{number}]", sampled(count)) for number in range(of)]
    others = [Case("a.py::other[0]"), Case("a.py::test_alone", sampled())]
    long = Case("a.py::test[long]", sampled(count), pytest.mark.nightly)
    assert left(long, *mine, *others) == [*(f"a.py::test[{number}]" for number in kept), *(c.nodeid for c in others)]
