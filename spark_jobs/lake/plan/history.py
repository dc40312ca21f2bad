"""The increments of a table that steps of scope history read: for every increment of the reader, all up to it.

The reader's increment n reads a prefix of one list, so what is known of all prefixes is worked out in one pass:

    reader's increment    0    1         2
    theirs, in order      0    1    3    2        (a corpus took 1 and 3 in together)
    digest                d0   d1   d2   d3       d(k) = SHA-256 of d(k-1), the numbers of both and the data version

The digest of a prefix represents all its numbers and data versions, in the step key and in the ledger, so neither grows
with the number of increments.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from spark_jobs.lake.ledger.materialization import Materialization

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class MappingPrefix(Mapping[_Key, _Value], Generic[_Key, _Value]):
    """The first entries of a mapping, without a copy of them."""

    def __init__(self, whole: Mapping[_Key, _Value], order: Mapping[_Key, int], count: int) -> None:
        self._whole, self._order, self._count = whole, order, count

    def __getitem__(self, key: _Key) -> _Value:
        if self._order[key] >= self._count:
            raise KeyError(key)
        return self._whole[key]

    def __iter__(self) -> Iterator[_Key]:
        return (key for _, key in zip(range(self._count), self._whole, strict=False))

    def __len__(self) -> int:
        return self._count


@dataclass(frozen=True)
class IncrementFacts:
    """What the ledger keeps of the increments that were read: how many, the highest number, and one digest."""

    count: int
    last: int
    digest: str


def facts_of(versions: Mapping[str, str]) -> IncrementFacts:
    """Count, highest number and one digest of many versions by place, whatever their order."""
    text = "\n".join(f"{place}\0{version}" for place, version in sorted(versions.items()))
    last = max((int(place) for place in versions if place.isdigit()), default=-1)
    return IncrementFacts(len(versions), last, hashlib.sha256(text.encode()).hexdigest())


class History:
    """What every increment of a reader reads of one table.

    Attributes:
        missing: the first of their increments that the table does not have; None where it has all.
    """

    def __init__(self, pairs: Iterable[tuple[int, int]], rows: Mapping[int, Materialization]) -> None:
        """Take the increments read.

        Args:
            pairs: the reader's increment, and theirs that it reads beside those of earlier ones; in order.
            rows: the table's, by increment; what comes after one that is missing is left out.
        """
        self._ours: list[int] = []
        self._numbers: dict[int, int] = {}
        self._versions: dict[str, str] = {}
        self._facts: list[IncrementFacts] = []
        self.missing: tuple[int, int] | None = None
        digest, last = "", -1
        for ours, theirs in pairs:
            if theirs not in rows:
                self.missing = (ours, theirs)
                return
            version = str(rows[theirs].data_version)
            digest = hashlib.sha256(f"{digest}\0{ours}\0{theirs}\0{version}".encode()).hexdigest()
            last = max(last, theirs)
            self._ours.append(ours)
            self._numbers[theirs] = ours
            self._versions[str(theirs)] = version
            self._facts.append(IncrementFacts(len(self._ours), last, digest))

    def count(self, increment: int) -> int:
        """How many of their increments the reader's increment reads."""
        return bisect_right(self._ours, increment)

    def facts(self, increment: int) -> IncrementFacts | None:
        """Count, highest number and digest of all that the reader's increment reads; None where that is nothing."""
        count = self.count(increment)
        return self._facts[count - 1] if count else None

    def versions(self, increment: int) -> Mapping[str, str]:
        """Data version by their increment."""
        return MappingPrefix(self._versions, self._places, self.count(increment))

    def numbers(self, increment: int) -> Mapping[int, int]:
        """Their increments, with the reader's number of each."""
        return MappingPrefix(self._numbers, self._order, self.count(increment))

    @cached_property
    def _order(self) -> Mapping[int, int]:
        return {theirs: at for at, theirs in enumerate(self._numbers)}

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {str(theirs): at for theirs, at in self._order.items()}
