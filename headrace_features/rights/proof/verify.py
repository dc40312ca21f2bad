"""Check the opt-out register: its rows, their order, the root that each append wrote, and those of snapshots.

    rows        leaves are dense from 0, in order of time, and each hash is that of its row
    root        the property `headrace.rights-root` is over all rows
    days        each row of `system.rights_roots` is over the first rows, as many as it says
    snapshots   so is the root in the summary of each snapshot of the lake

A row that was changed with its hash, a removed and a late row differ from every root since, unless those are written
again too, in all tables and in all copies that anybody has of them, statements included.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NamedTuple

from pyiceberg.catalog import Catalog

from headrace.tables.catalogue import load_table, metadata_locations
from headrace.tables.rights_root import OPT_OUTS, ROOT_PROPERTY, current_root
from headrace_features.rights.register.merkle import leaf_hash, prefix_roots
from headrace_features.rights.register.register import ROOTS, leaf_bytes, read_log, roots


class StatedRoot(NamedTuple):
    """A root in a summary: of which snapshot of which day, over how many leaves."""

    where: str
    leaves: int
    root: str


@dataclass(frozen=True)
class Log:
    """The register with all that says its root.

    Attributes:
        rows: of the register, by leaf.
        stated: `COUNT:ROOT` of its table.
        days: rows of `system.rights_roots`.
        snapshots: roots that snapshots say.
    """

    rows: Sequence[Mapping[str, Any]]
    stated: str | None
    days: Sequence[Mapping[str, Any]]
    snapshots: Sequence[StatedRoot]

    @classmethod
    def read(cls, catalogue: Catalog) -> Log:
        """Read it; the metadata of all tables is looked at."""
        return cls(read_log(catalogue), current_root(catalogue), roots(catalogue), list(stated_roots(catalogue)))

    @functools.cached_property
    def prefixes(self) -> list[str]:
        """The roots over the first 0, 1, 2, .. rows as they are now, hex."""
        return [root.hex() for root in prefix_roots(leaf_hash(leaf_bytes(row)) for row in self.rows)]

    def faults(self) -> Iterator[str]:
        """What is not as it was written, a sentence each, with the name of the row or root."""
        yield from _faults_of_rows(self.rows)
        yield from _faults_of_property(self.stated, self.prefixes)
        if self.rows and not self.days:
            yield f"{ROOTS}: has no root of any day, and the register has {len(self.rows)} rows"
        for row in self.days:
            if fault := _fault(row["leaves"], row["root"], self.prefixes) or _fault_of_day(row, self.rows):
                yield f"root of {row['day']} over {row['leaves']} leaves in {ROOTS}: {fault}"
        noted = {row["leaves"] for row in self.days}
        for count, (row, later) in enumerate(pairwise(self.rows), 1):
            if row["at"].date() != later["at"].date() and count not in noted:
                yield f"root of {row['at'].date()} over {count} leaves in {ROOTS}: was removed"
        for where, count, root in self.snapshots:
            if fault := _fault(count, root, self.prefixes):
                yield f"root of {where} over {count} leaves: {fault}"


def stated_roots(catalogue: Catalog) -> Iterator[StatedRoot]:
    """The roots in the summaries of snapshots of all tables."""
    for identifier in sorted(metadata_locations(catalogue)):
        table = load_table(catalogue, identifier)
        for snapshot in table.snapshots() if table is not None else ():
            stated = snapshot.summary.additional_properties.get(ROOT_PROPERTY) if snapshot.summary is not None else None
            if stated is not None:
                count, root = _stated(stated)
                day = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC).date()
                yield StatedRoot(f"snapshot {snapshot.snapshot_id} of {identifier}, {day},", count, root)


def _faults_of_rows(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    numbers = Counter(row["leaf"] for row in rows)
    for before, leaf in pairwise([-1, *sorted(numbers)]):
        if leaf > before + 1:
            yield f"leaf {before + 1}: its row was removed" + (f", and all to {leaf - 1}" if leaf > before + 2 else "")
        if numbers[leaf] > 1:
            yield f"leaf {leaf}: {numbers[leaf]} rows have this number"
    for row in rows:
        if (hashed := leaf_hash(leaf_bytes(row)).hex()) != row["leaf_hash"]:
            yield f"{_named(row)}: was changed, its hash is {row['leaf_hash'][:16]}.., of its row {hashed[:16]}.."
    for former, row in pairwise(rows):
        if row["at"] < former["at"]:
            yield f"{_named(row)}: was inserted late, its time {row['at']} is before that of leaf {former['leaf']}"


def _faults_of_property(stated: str | None, whole: Sequence[str]) -> Iterator[str]:
    count, root = (0, "") if stated is None else _stated(stated)
    if stated is None and len(whole) > 1:
        yield f"{OPT_OUTS}: has rows, and no root in {ROOT_PROPERTY}"
    elif stated is not None and (fault := _fault(count, root, whole)):
        yield f"{OPT_OUTS}: its root over {count} leaves in {ROOT_PROPERTY}: {fault}"
    for leaf in range(max(count, 0), len(whole) - 1):
        yield f"leaf {leaf}: was inserted beside the register, whose root is over {count} leaves"


def _stated(text: str) -> tuple[int, str]:
    """Count and root of `COUNT:ROOT`; -1 where somebody wrote anything else."""
    count, _, root = text.partition(":")
    return int(count) if count.isdecimal() and root else -1, root


def _fault(count: int, root: str, whole: Sequence[str]) -> str:
    if count < 0:
        return "no register has fewer than 0 rows: it was written by hand"
    if count >= len(whole):
        return f"only {len(whole) - 1} rows are there"
    return "" if root == whole[count] else f"is {root[:16]}.., that of the first {count} rows is {whole[count][:16]}.."


def _fault_of_day(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    last = rows[row["leaves"] - 1]["at"] if row["leaves"] else row["at"]
    same = row["at"].astimezone(UTC) == last and row["day"] == last.date()
    return "" if same else f"is of {row['at']}, its last leaf of {last}"


def _named(row: Mapping[str, Any]) -> str:
    return f"leaf {row['leaf']} ({row['act']} of entry {row['entry']})"
