"""What a filled-in template is made of: parts, their fields, and what is missing.

A field's answer is counted in the lake, stated by people, or missing, and then says what to write where.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Origin = Literal["lake", "stated", "missing"]


class Value(NamedTuple):
    """The answer to one field: its text or rows, and where it is from; of a missing one, what to write where."""

    label: str
    value: str | list[dict[str, Any]]
    origin: Origin


@dataclass(frozen=True)
class Part:
    """A numbered part of the template with its fields."""

    number: str
    title: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Summary:
    """The whole template, filled in."""

    subject: str
    version: str
    parts: tuple[Part, ...]

    @property
    def missing(self) -> tuple[str, ...]:
        """A line for each missing field: its part, its label, what to write where."""
        lines = ((part, value) for part in self.parts for value in part.values if value.origin == "missing")
        return tuple(f"{part.number} {value.label}: {value.value}" for part, value in lines)

    def facts(self) -> dict[str, Any]:
        """As JSON has it."""
        parts = [
            {"number": part.number, "title": part.title, "fields": [value._asdict() for value in part.values]}
            for part in self.parts
        ]
        return {"of": self.subject, "version": self.version, "parts": parts, "missing": list(self.missing)}


def stated(label: str, value: str, field_name: str) -> Value:
    """What people stated in a field of their facts; an empty value is missing."""
    return Value(label, value, "stated") if value else missing(label, field_name)


def yes_or_no(answer: bool | None) -> str:
    """The answer in words; empty where there is none."""
    return "" if answer is None else "yes" if answer else "no"


def missing(label: str, mend: str) -> Value:
    """A field without an answer; `mend` names the fact to state, or the command that counts it."""
    return Value(label, mend, "missing")


def rows_of(groups: list[tuple[str | None, int, int]], column: str) -> list[dict[str, Any]]:
    """Rows of a table: the value of a column, documents and tokens."""
    return [{column: name or "none", "documents": documents, "tokens": tokens} for name, documents, tokens in groups]
