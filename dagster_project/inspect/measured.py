"""Shares of counts: one of nothing is None, not zero; it is shown as `not measured` and compared with nothing."""

from __future__ import annotations

from typing import Final

NOT_MEASURED: Final = "not measured"


def share_of(part: float, whole: float) -> float | None:
    """The share that a part has of a whole; None of an empty whole."""
    return part / whole if whole else None


def share_text(share: float | None, form: str = ".1%") -> str:
    """A share for people, formatted like `12.5%` or as `form` says; `not measured` for None."""
    return NOT_MEASURED if share is None else format(share, form)
