"""A place: the part of a table that one materialization writes, which is an increment, a partition or all of it."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.expressions import AlwaysTrue, BooleanExpression, EqualTo, GreaterThanOrEqual


@dataclass(frozen=True)
class Place:
    """The part of a table that one materialization writes.

    Attributes:
        key: name in the ledger: an increment, a partition, or empty for the whole table.
        predicate: SQL condition that every written row meets and that selects the rows replaced.
        replaces: SQL condition for the rows replaced, where they are more than those written.
        replaced: the same for PyIceberg, where it is known and whole data files meet it.
    """

    key: str
    predicate: str
    replaces: str
    replaced: BooleanExpression | None = None

    @classmethod
    def increment(cls, number: int, and_later: bool = False) -> Place:
        """Increment `number`; with `and_later`, writing it also removes all later ones."""
        comparison, replaced = (">=", GreaterThanOrEqual) if and_later else ("=", EqualTo)
        return cls(
            str(number),
            f"increment = {number}",
            f"increment {comparison} {number}",
            replaced("increment", number),
        )

    @classmethod
    def whole(cls) -> Place:
        """The whole table."""
        return cls("", "true", "true", AlwaysTrue())
