"""Collects what is wrong with a request, so that one answer names every mistake with its field."""

from __future__ import annotations

from blender_service.exceptions import FieldViolation, InvalidBlendError, UpdateRefusedError


class Findings:
    """Mistakes (the request cannot be) and conflicts (it could be, were the tables or the rows read so far others)."""

    def __init__(self) -> None:
        self.mistakes: list[FieldViolation] = []
        self.conflicts: list[FieldViolation] = []

    def mistake(self, field: str, problem: str) -> None:
        """Note that a field's value is wrong."""
        self.mistakes.append(FieldViolation(field, problem))

    def conflict(self, field: str, problem: str) -> None:
        """Note that a field asks for what cannot be exact."""
        self.conflicts.append(FieldViolation(field, problem))

    @property
    def any(self) -> bool:
        """Whether anything was found."""
        return bool(self.mistakes or self.conflicts)

    def raise_any(self) -> None:
        """Report everything at once.

        Raises:
            UpdateRefusedError: there are conflicts only.
            InvalidBlendError: there are mistakes.
        """
        if self.mistakes:
            raise InvalidBlendError.from_violations((*self.mistakes, *self.conflicts))
        if self.conflicts:
            raise UpdateRefusedError.from_violations(self.conflicts)
