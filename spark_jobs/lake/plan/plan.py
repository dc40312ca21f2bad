"""What has to be computed: the increments of a step whose step keys are not known, worked out from the ledger alone.

    WHOLE, a partition    one task, when an input's version, the code or the config changed
    INCREMENT, HISTORY    one task for each increment of the step's driving table for which that is so, in order
    FROZEN                one task, once, and again when the increment that it was computed from was computed anew,
                          unless its step `stays`
    INTAKE                one task, the next increment, when inputs hold increments that no earlier one took in
    a source              one task, the next increment, when the source has something new

No Spark is needed: a run in which nothing changed never starts a session. A forecast asks the same of every step of a
run before any is computed; then `upcoming` says what the steps before will have made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import Scope
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.materialization import Materialization, TableSlice
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.plan.decisions import decisions_in, released
from spark_jobs.lake.plan.discovery import next_increment
from spark_jobs.lake.plan.due import Due, ForecastPlace, Upcoming
from spark_jobs.lake.plan.excisions import excisions_in, excisions_read, without_excised
from spark_jobs.lake.plan.frozen import frozen_from, reads_of_other_rows, stays
from spark_jobs.lake.plan.reads import (
    Read,
    Reads,
    reads_of,
    slice_key,
    snapshots_of,
    taken_of,
)
from spark_jobs.lake.plan.reasons import UNKNOWN, changed_columns, changed_settings, some, why_again


@dataclass(frozen=True)
class Task:
    """One increment (or partition) to compute.

    Attributes:
        place: where its rows go.
        increment: of the driving table or the source; None for a table without increments.
        key: its step key.
        reads: what the step reads.
        discovered: what `Step.discover` listed, for steps at the source of data.
        excised: the list of excised documents that the reads leave out, as `excisions_read` gives it; of an increment
            that leaves quarantine, the decision.
    """

    place: TableSlice
    increment: int | None
    key: str
    reads: Reads
    discovered: pa.Table | None = None
    excised: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def inputs(self) -> dict[str, Mapping[str, Any]]:
        """What the ledger records as its inputs."""
        return {**snapshots_of(self.reads), **self.excised}


def tasks(ledger: Ledger, binding: Binding) -> Iterator[Task]:
    """The tasks of a step, in order; each is worked out only after the one before it was recorded."""
    for due_part in due(ledger, binding, Upcoming()):
        reads = due_part.reads or {}
        excised = {**excisions_read(ledger, binding), **due_part.decided}
        key = due_part.key or slice_key(binding, reads, due_part.place.key, due_part.chained, excised)
        narrowed = without_excised(ledger, binding, reads, excised)
        yield Task(due_part.place, due_part.increment, key, narrowed, due_part.listing, excised)


def due(ledger: Ledger, binding: Binding, upcoming: Upcoming) -> Iterator[Due]:
    """The due places of a step's tables, in order. The caller records each before it takes the next.

    Args:
        ledger: what was computed.
        binding: the step.
        upcoming: what is forecast of steps before it; places of this one are looked up there as they are recorded.

    Raises:
        InputError: an input is missing, and nothing upcoming makes it.
    """
    scope, planner = binding.step.scope, _Planner(ledger, binding, upcoming, changed_columns(ledger, binding))
    if binding.step.discover is not None:
        upcoming_increment = next_increment(ledger, binding)
        yield from () if upcoming_increment is None else (upcoming_increment,)
    elif binding.partition is not None or scope is Scope.WHOLE:
        yield from planner.one(binding.partition or TableSlice.whole(), None)
    elif scope is Scope.INTAKE:
        yield from planner.intake()
    elif scope is Scope.FROZEN:
        if not _waits(ledger, binding) or upcoming.increments.get(binding.driving_table or ""):
            yield from planner.one(TableSlice.increment(0), 0)
    else:
        yield from planner.increments()


def first_surplus_increment(ledger: Ledger, binding: Binding, followed: Sequence[int] | None = None) -> int | None:
    """From which increment on a table must be computed anew, because it has more increments than its driving table.

    This happens after the driving table began a new generation (refreeze) or was rolled back. Of a table with ordinals
    all increments are computed anew, of others the driving table's last one, since writing it removes the later ones.

    Args:
        ledger: what was computed.
        binding: the step.
        followed: the driving table's increments, ascending, where they are not those of the ledger.

    Returns:
        The increment; None where the table has no increment that the driving table lacks.
    """
    step = binding.step
    if step.scope not in (Scope.INCREMENT, Scope.HISTORY) or step.discover is not None or binding.driving_table is None:
        return None
    last = max(ledger.increments(binding.driving_table) if followed is None else followed, default=None)
    if last is None or binding.only is not None or not _has_later(ledger, binding, last):
        return None
    return 0 if step.numbered else last


def _has_later(ledger: Ledger, binding: Binding, increment: int) -> bool:
    """Whether a table has valid increments after a number."""
    return any(next(reversed(ledger.increments(table)), -1) > increment for table in binding.tables)


@dataclass(frozen=True)
class _Planner:
    """Find the due places of one step."""

    ledger: Ledger
    binding: Binding
    upcoming: Upcoming
    columns: str

    @property
    def _is_frozen(self) -> bool:
        return self.binding.step.scope is Scope.FROZEN and self.binding.partition is None

    def increments(self) -> Iterator[Due]:
        """Increments of the driving table, in order."""
        ledger, binding = self.ledger, self.binding
        if binding.only is not None and binding.driving_table is None:
            yield from self.one(TableSlice.increment(binding.only), binding.only)
            return
        numbers = self._followed()
        since = first_surplus_increment(ledger, binding, numbers)
        decided = self._decided(numbers)
        if decided is not None:
            numbers = [
                number for number in numbers if number in decided or number in ledger.increments(binding.tables[0])
            ]
        self.upcoming.increments.update(dict.fromkeys(binding.tables, numbers))
        chained, before = "", None  # of a numbered table: the key before; else the first place that is computed again
        for number in numbers:
            if binding.only in (None, number) and (decided is None or number in decided):
                place = TableSlice.increment(number, binding.step.numbered or not _has_later(ledger, binding, number))
                anew = "later increments were withdrawn" if since is not None and number >= since else ""
                yield from self.one(place, number, chained, before, anew, None if decided is None else decided[number])
            if number == binding.only:
                return
            if binding.step.numbered:
                coming = self.upcoming.places.get(binding.tables[0], {}).get(str(number))
                if coming is not None and (before is None or (coming.certain and not before.certain)):
                    before = coming
                chained = "" if before is not None else _key_before(ledger, binding, number)

    def _followed(self) -> list[int]:
        """Increments of the driving table, upcoming ones included."""
        binding, followed = self.binding, self.binding.driving_table
        if followed in self.upcoming.increments:
            return self.upcoming.increments[followed]
        table = self.ledger.table(followed) if followed else None
        if followed is None or table is None:
            raise InputError(
                f"{binding.tables[0]}: {followed} has not been materialized; "
                f"run `headrace run {(followed or binding.namespace).split('.')[0]}` first"
            )
        numbers = list(self.ledger.increments(followed))
        if table.current_snapshot() is not None and not numbers:
            raise InputError(
                f"{binding.tables[0]}: {followed} begins a new generation; run `headrace run {binding.namespace}`, "
                "which takes all increments in again"
            )
        return numbers

    def _decided(self, numbers: Collection[int]) -> dict[int, dict[str, Any]] | None:
        """Of a step behind quarantine, the decision by increment: empty where rules may release it in the same run."""
        decided = released(self.ledger, self.binding)
        if decided is None or self.binding.step.gate != "policy":
            return decided
        unseen = set(numbers) - self.ledger.increments(self.binding.driving_table or "").keys()
        return {**{number: {} for number in unseen}, **decided}

    def intake(self) -> Iterator[Due]:
        """A corpus's next increment, where a dataset has, or will have, increments that no earlier one took in."""
        increments = self.ledger.increments(self.binding.tables[0])
        coming = self.upcoming.new(self.binding)
        taken: dict[str, set[str]] = {}
        for row in increments.values():
            for table, facts in row.inputs.items():
                taken.setdefault(table, set()).update(facts["versions"])
        fresh: dict[str, tuple[Read, ...]] = {}
        for parameter, parts in (self._reads(None) or {}).items():
            chosen = []
            for read in parts:
                versions = {p: v for p, v in read.versions.items() if p not in taken.get(read.table, set())}
                numbers = {int(place): int(place) for place in versions}
                if versions:
                    chosen.append(replace(read, versions=versions, increments=numbers, predicate=None, labelled=True))
            fresh[parameter] = tuple(chosen)
        there = [f"{read.table}[{place}]" for parts in fresh.values() for read in parts for place in read.versions]
        if names := [*dict.fromkeys([*there, *coming])]:
            number = max(increments, default=-1) + 1
            place = TableSlice.increment(number, and_later=True)
            certain = bool(there or self.upcoming.new(self.binding, certain=True))
            reason = f"new increment: {some(names)}" if certain else f"if there will be {some(names)}"
            yield Due(place, number, reason, certain, reads=fresh)

    def one(
        self,
        place: TableSlice,
        increment: int | None,
        chained: str = "",
        before: ForecastPlace | None = None,
        anew: str = "",
        decided: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Iterator[Due]:
        """Give a place if it is due.

        Args:
            place: where its rows go.
            increment: see `Due`.
            chained: see `Due`.
            before: of a numbered table, an earlier place that is, or may be, computed again.
            anew: why it is computed again in any case; empty where that is not so.
            decided: of a step behind quarantine, the decision; None for other steps.
        """
        row = self.ledger.places(self.binding.tables[0]).get(place.key)
        anew = anew or self.columns
        if not anew and stays(self.ledger, self.binding):
            return
        reads = self._reads(frozen_from(self.ledger, self.binding) if self._is_frozen else increment)
        if row is None:
            follows = self.upcoming.places.get(self.binding.driving_table or "", {}).get(place.key)
            certain = follows is None or follows.exists or follows.certain
            reason = self._why_new(place, decided) if certain else f"if {self.binding.driving_table} gets an increment"
        elif anew:
            reason, certain = anew, True
        else:
            reason, certain = self._why_again(row, reads, chained, before)
        if reason:
            yield Due(place, increment, reason, certain, row is not None, reads, chained, decided or {})

    def _reads(self, increment: int | None) -> Reads | None:
        """What a place reads; None where an input is missing that an earlier step of the run makes.

        Raises:
            InputError: an input is missing, and this run does not compute it.
        """
        try:
            return reads_of(self.binding, self.ledger, increment)
        except InputError:
            if self.upcoming.new(self.binding):
                return None
            raise

    def _why_new(self, place: TableSlice, decided: Mapping[str, Any] | None) -> str:
        """Why a place outside of the table is computed."""
        if decided is not None:
            return "released" if decided else "if its rules release it"
        return f"new increment {place.key}" if self.ledger.places(self.binding.tables[0]) else "never computed"

    def _why_again(
        self, row: Materialization, reads: Reads | None, chained: str, before: ForecastPlace | None
    ) -> tuple[str, bool]:
        """Why a present place is computed again, and whether that is certain; empty where it stays."""
        binding, driving_table = self.binding, self.binding.driving_table or ""
        follows_settings = not self._is_frozen
        unknown = self.upcoming.new(binding) if reads is None else []
        if follows_settings and row.place in self.upcoming.places.get(driving_table, {}):
            unknown = [f"{driving_table}[{row.place}]"]  # what the increment takes in is not known yet
        if reads is None or unknown:  # only changed settings are certain to matter
            settings = changed_settings(row, binding) if follows_settings else []
            return "; ".join(settings) or f"if rows change in {some(unknown)}", bool(settings)
        if before is not None and before.certain:
            return f"follows increment {before.place} in its numbering", True
        if before is not None:
            if (reason := why_again(row, binding, reads)) != UNKNOWN:
                return reason, True
        elif not self._stays(reads, row.place, chained):
            return why_again(row, binding, reads, follows_settings), True
        reads_all = binding.partition is not None or binding.step.scope is Scope.WHOLE
        if reads_all and (new := self.upcoming.new(binding, certain=True)):
            return f"input {some(new)} is new", binding.partition is None
        again = self.upcoming.again(row) + ([f"{binding.tables[0]}[{before.place}]"] if before is not None else [])
        again += self._earlier_without_rows() if self._is_frozen else []
        return f"if rows change in {some([*dict.fromkeys(again)])}" if again else "", False

    def _stays(self, reads: Reads, place: str, chained: str) -> bool:
        """Whether all tables of the step hold a place under the step key of what it reads now."""
        if self._is_frozen:
            return not reads_of_other_rows(self.ledger, self.binding, reads)
        return is_known(self.ledger, self.binding, reads, place, chained)

    def _earlier_without_rows(self) -> list[str]:
        """Upcoming places of a frozen table's first input that would replace its present start if they get rows."""
        source = self.binding.inputs.get(self.binding.step.inputs[0])
        if not isinstance(source, str):
            return []
        start = frozen_from(self.ledger, self.binding)
        empty = not any(row.row_count for row in self.ledger.increments(source).values())
        taken = taken_of(self.binding, self.ledger, source) or {}
        ours = {number: increment for increment, numbers in taken.items() for number in numbers}
        places = [place for place in self.upcoming.places.get(source, {}) if place.isdigit()]
        return [f"{source}[{place}]" for place in places if empty or ours.get(int(place), int(place)) < start]


def _key_before(ledger: Ledger, binding: Binding, increment: int) -> str:
    """Step key of an increment of a numbered table, a part of the key of the next.

    Raises:
        InputError: the increment does not exist, so the first ordinal of the next one is not known.
    """
    row = ledger.increments(binding.tables[0]).get(increment)
    if row is None:
        raise InputError(
            f"{binding.tables[0]}: increment {increment} has not been computed, and its rows number those of the next; "
            "compute it first"
        )
    return row.step_key


def is_known(ledger: Ledger, binding: Binding, reads: Reads, place: str, chained: str = "") -> bool:
    """Whether all tables of a step hold one place as its present inputs, code and config make it."""

    def knows(row: Materialization | None) -> bool:
        if row is None:
            return False
        listed = {**excisions_in(row.inputs), **decisions_in(row.inputs)}
        return row.step_key == slice_key(binding, reads, place, chained, listed)

    return all(knows(ledger.places(table).get(place)) for table in binding.tables)


def _waits(ledger: Ledger, binding: Binding) -> bool:
    """Whether a step's driving table has no increment yet because all are in quarantine."""
    driving_table = ledger.table(binding.driving_table) if binding.driving_table is not None else None
    return driving_table is not None and driving_table.current_snapshot() is None
