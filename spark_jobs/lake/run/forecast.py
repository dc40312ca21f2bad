"""What a run will compute and why, worked out from the ledger before any work starts; no row is read, no Spark needed.

Steps are looked at in the order of the run, and each knows what is forecast of the tables that it reads:

    certain    the place is new, or its step key differs whatever comes out of the steps before it
    possible   its inputs are computed again, so it follows where their rows come out differently (early cut-off)

Rows and seconds are estimates from the ledger: what the place had last time, or for a new one what earlier increments
had per row of the first input.
"""

from __future__ import annotations

import itertools
import json
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spark_jobs.exceptions import InputError, SparkJobsError
from spark_jobs.lake.declare.step import Scope
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.materialization import Materialization
from spark_jobs.lake.run.binding import Binding
from spark_jobs.lake.run.decisions import released
from spark_jobs.lake.run.plan import Task, frozen_from, is_known, other_settings, reads_of_other_rows, tasks, waits
from spark_jobs.lake.run.reads import Reads, changed_places, covers, reads_of, sizes_of
from spark_jobs.lake.session.catalogue import schema_difference
from spark_jobs.lake.session.shuffle_partitions import listed_size

_SHOWN = 3
_LIKE = 20  # places of a table that an estimate is made from


@dataclass(frozen=True)
class ForecastPlace:
    """A place that a run computes, or may compute.

    Attributes:
        place: increment or partition; empty for a whole table.
        reason: why, in words.
        certain: False where it is computed only if rows of its inputs come out differently.
        exists: whether the table holds the place now.
        rows: estimate; None where nothing is known.
        seconds: estimate, of wall-clock time; None where nothing is known.
    """

    place: str
    reason: str
    certain: bool
    exists: bool
    rows: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class StepForecast:
    """What a run does to the tables of one step.

    Attributes:
        binding: the step.
        places: those that are or may be computed, in order.
        kept: how many places stay as they are in any case.
        frozen: how a frozen table that is kept differs from its declaration; empty where it does not.
        problem: why the step will fail; empty where nothing is known of that.
        byte_count: the most bytes that one of the places reads, of tables as they are now, or of the files of a source;
            None where the source does not say.
    """

    binding: Binding
    places: tuple[ForecastPlace, ...] = ()
    kept: int = 0
    frozen: str = ""
    problem: str = ""
    byte_count: int | None = 0

    @property
    def is_idle(self) -> bool:
        """Whether the run has nothing to do for the step."""
        return not self.places and not self.problem


@dataclass
class _Upcoming:
    """What is forecast of the tables so far: places by table, and the increments that each table will have."""

    places: dict[str, dict[str, ForecastPlace]] = field(default_factory=dict)
    increments: dict[str, list[int]] = field(default_factory=dict)

    def again(self, row: Materialization) -> list[str]:
        """Inputs of a ledger's row that exist and may be computed again, as `table[place]`."""
        return [
            f"{table}[{place}]" if place else table
            for table, facts in row.inputs.items()
            for place, one in self.places.get(table, {}).items()
            if one.exists and covers(facts, place)
        ]

    def new(self, table: str) -> list[ForecastPlace]:
        """Places of a table that do not exist yet."""
        return [one for one in self.places.get(table, {}).values() if not one.exists]


def forecast(ledger: Ledger, bindings: Iterable[Binding]) -> list[StepForecast]:
    """Forecast a run of some steps."""
    upcoming = _Upcoming()
    found = []
    for binding in bindings:
        refused = other_columns(ledger, binding)
        try:
            for table in binding.tables:
                ledger.places(table)
            one = StepForecast(binding, problem=refused) if refused else _step(ledger, binding, upcoming)
        except SparkJobsError as error:
            one = StepForecast(binding, problem=str(error))
        found.append(one)
        for table in binding.tables:
            upcoming.places.setdefault(table, {}).update({place.place: place for place in one.places})
    return found


def other_columns(ledger: Ledger, binding: Binding) -> str:
    """Which table of a step has other columns than declared; tables of a source get the columns that they lack."""
    if binding.step.discover is not None:
        return ""
    for declared, identifier in zip(binding.step.tables, binding.tables, strict=True):
        table = ledger.table(identifier)
        difference = schema_difference(table, declared) if table is not None else None
        if difference:
            return f"{identifier}: {difference}; run first: headrace table delete {identifier}"
    return ""


def _step(ledger: Ledger, binding: Binding, upcoming: _Upcoming) -> StepForecast:
    """The forecast of one step."""
    scope = binding.step.scope
    known = ledger.places(binding.tables[0])
    if binding.partition is not None:
        known = {key: row for key, row in known.items() if key == binding.partition.key}
    byte_count: int | None = 0
    if binding.step.discover is not None:
        due = list(tasks(ledger, binding))
        places, byte_count = [_discovered(ledger, binding, task) for task in due], _listed_bytes(due)
        if not places and not known and getattr(binding.config, "is_fetched", False):
            reason = "nothing was fetched yet; the run asks the source first"
            places, byte_count = [ForecastPlace("0", reason, certain=True, exists=False)], None
    elif scope is Scope.INTAKE:
        places = list(_intake(ledger, binding, upcoming))
    elif binding.partition is not None or scope is Scope.WHOLE:
        places = list(_whole(ledger, binding, upcoming))
    elif scope is Scope.FROZEN:
        places = list(_frozen(ledger, binding, upcoming))
    else:
        places = list(_increments(ledger, binding, upcoming))
    if binding.step.discover is not None or scope is Scope.INTAKE:
        numbers = {int(place) for place in known} | {int(one.place) for one in places}
        upcoming.increments.update(dict.fromkeys(binding.tables, sorted(numbers)))
    else:  # of a history the last place reads the most
        byte_count = max(
            (_read_bytes(ledger, binding, one) for one in (places[-1:] if scope is Scope.HISTORY else places)),
            default=0,
        )
    estimated = tuple(_estimated(ledger, binding, one, upcoming) for one in places)
    again = {one.place for one in places}
    frozen = "" if again else other_settings(ledger, binding)
    kept = sum(place not in again for place in known)
    return StepForecast(binding, estimated, kept, frozen, byte_count=byte_count)


def _discovered(ledger: Ledger, binding: Binding, task: Task) -> ForecastPlace:
    """The next increment of a dataset, with what its source has."""
    listing = task.discovered
    if listing is None or "unchanged" not in listing.column_names:
        return ForecastPlace(task.place.key, "the source has something new", certain=True, exists=False)
    arrived = ledger.increments(binding.tables[-1])
    settings = _changed_settings(arrived[max(arrived)], binding) if arrived else []
    gone = listing["gone"].to_pylist() if "gone" in listing.column_names else [False] * listing.num_rows
    counts = Counter(
        "gone" if left else "unchanged" if same else "new or changed"
        for left, same in zip(gone, listing["unchanged"].to_pylist(), strict=True)
    )
    files = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()) if name != "unchanged")
    reason = "; ".join([*settings, f"files: {files or 'all read again'}"])
    rows = counts["new or changed"]
    return ForecastPlace(task.place.key, reason, certain=True, exists=False, rows=rows)


def _intake(ledger: Ledger, binding: Binding, upcoming: _Upcoming) -> Iterator[ForecastPlace]:
    """The next increment of a corpus, where its datasets have or will have increments that it has not taken in."""
    coming = [f"{table}[{one.place}]" for table in _input_tables(binding) for one in upcoming.new(table) if one.certain]
    number = str(max(ledger.increments(binding.tables[0]), default=-1) + 1)
    try:
        there = next(tasks(ledger, binding), None)
    except InputError:
        if not coming:
            raise
        there = None
    if there is not None:
        taken = (f"{table}[{place}]" for table, facts in there.inputs.items() for place in facts["versions"])
        coming = [*dict.fromkeys([*taken, *coming])]
    if coming:
        yield ForecastPlace(number, f"new increment: {_some(coming)}", certain=True, exists=False)


def _whole(ledger: Ledger, binding: Binding, upcoming: _Upcoming) -> Iterator[ForecastPlace]:
    """A table without increments, or one partition of it."""
    place = binding.partition.key if binding.partition is not None else ""
    row = ledger.places(binding.tables[0]).get(place)
    new = [f"{table}[{one.place}]" for table in _input_tables(binding) for one in upcoming.new(table) if one.certain]
    if row is None:
        yield _new(ledger, binding, place, None, upcoming)
        return
    reads = _reads(ledger, binding, None, upcoming)
    if reads is None:
        yield _unknown_inputs(row, binding, _missing(binding, upcoming))
    elif not is_known(ledger, binding, reads, place):
        yield ForecastPlace(place, _reason(row, binding, reads), certain=True, exists=True)
    elif new:
        yield ForecastPlace(place, f"input {_some(new)} is new", certain=binding.partition is None, exists=True)
    elif again := upcoming.again(row):
        yield ForecastPlace(place, f"if rows change in {_some(again)}", certain=False, exists=True)


def _frozen(ledger: Ledger, binding: Binding, upcoming: _Upcoming) -> Iterator[ForecastPlace]:
    """A frozen table: computed once, and again where the rows that it was computed from change."""
    row = ledger.places(binding.tables[0]).get("0")
    if waits(ledger, binding) and not upcoming.increments.get(binding.clock or ""):
        return
    if row is None:
        yield _new(ledger, binding, "0", frozen_from(ledger, binding), upcoming)
        return
    start = frozen_from(ledger, binding)
    reads = _reads(ledger, binding, start, upcoming)
    if reads is None:
        yield ForecastPlace("0", f"if rows change in {_some(_missing(binding, upcoming))}", certain=False, exists=True)
        return
    if reads_of_other_rows(ledger, binding, reads):
        yield ForecastPlace("0", _reason(row, binding, reads, settings=False), certain=True, exists=True)
        return
    again = upcoming.again(row)
    source = binding.inputs.get(binding.step.inputs[0])
    if isinstance(source, str):
        # An earlier increment without rows may get some, and then it is the one that counts.
        empty = not any(one.row_count for one in ledger.increments(source).values())
        again += [
            f"{source}[{place}]"
            for place in upcoming.places.get(source, {})
            if place.isdigit() and (empty or int(place) < start)
        ]
    if again:
        yield ForecastPlace("0", f"if rows change in {_some([*dict.fromkeys(again)])}", certain=False, exists=True)


def _increments(ledger: Ledger, binding: Binding, upcoming: _Upcoming) -> Iterator[ForecastPlace]:
    """A table that follows the increments of its clock."""
    step, main = binding.step, binding.tables[0]
    numbers = _leaving(ledger, binding, _clock_increments(ledger, binding, upcoming))
    upcoming.increments.update(dict.fromkeys(binding.tables, numbers))
    known = ledger.increments(main)
    last = max(numbers, default=-1)
    surplus = any(number > last for table in binding.tables for number in ledger.increments(table))
    since = None if not surplus or not numbers else 0 if step.numbered else numbers[-1]
    own: dict[str, ForecastPlace] = {}
    upcoming.places[main] = own  # own history is an input too
    chained = ""  # the first earlier place of a numbered table that is, or may be, computed again
    for number in numbers:
        row = known.get(number)
        if row is None:
            found: ForecastPlace | None = _new(ledger, binding, str(number), number, upcoming)
        elif since is not None and number >= since:
            found = ForecastPlace(str(number), "later increments were withdrawn", certain=True, exists=True)
        else:
            found = _existing(ledger, binding, row, upcoming, own.get(chained))
        if found is not None:
            own[found.place] = found
            if step.numbered and (not chained or (found.certain and not own[chained].certain)):
                chained = found.place
            yield found


def _existing(
    ledger: Ledger, binding: Binding, row: Materialization, upcoming: _Upcoming, before: ForecastPlace | None
) -> ForecastPlace | None:
    """One increment that the table holds; `before` is an earlier one of a numbered table that is computed again."""
    number = row.increment
    clock = binding.clock or ""
    if row.place in upcoming.places.get(clock, {}):  # what the increment takes in is not known yet
        return _unknown_inputs(row, binding, [f"{clock}[{row.place}]"])
    reads = _reads(ledger, binding, number, upcoming)
    if reads is None:
        return _unknown_inputs(row, binding, _missing(binding, upcoming))
    chained = ""
    if binding.step.numbered and before is None:
        rows = ledger.increments(binding.tables[0])
        keys = ledger.derived(binding.tables[0], "keys before", lambda: {at: one.step_key for at, one in _next(rows)})
        chained = keys.get(number, "")
    if before is not None and before.certain:
        return ForecastPlace(row.place, f"follows increment {before.place} in its numbering", certain=True, exists=True)
    if before is None and not is_known(ledger, binding, reads, row.place, chained):
        return ForecastPlace(row.place, _reason(row, binding, reads), certain=True, exists=True)
    if before is not None and _reason(row, binding, reads) != _UNKNOWN:
        return ForecastPlace(row.place, _reason(row, binding, reads), certain=True, exists=True)
    again = upcoming.again(row) + ([f"{binding.tables[0]}[{before.place}]"] if before is not None else [])
    if again:
        return ForecastPlace(row.place, f"if rows change in {_some(again)}", certain=False, exists=True)
    return None


def _next(rows: Mapping[int, Materialization]) -> Iterator[tuple[int, Materialization]]:
    """Each increment but the first, with the row of the one before."""
    return zip(itertools.islice(rows, 1, None), rows.values(), strict=False)


def _clock_increments(ledger: Ledger, binding: Binding, upcoming: _Upcoming) -> list[int]:
    """Increments that the step's clock has after the run.

    Raises:
        InputError: the clock was never computed, and this run does not compute it.
    """
    if binding.only is not None:
        return [binding.only]
    clock = binding.clock or ""
    numbers = upcoming.increments.get(clock, list(ledger.increments(clock)))
    if not numbers and ledger.table(clock) is None and clock not in upcoming.increments:
        raise InputError(
            f"{binding.tables[0]}: {clock} has not been materialized; run `headrace run {binding.namespace}` first"
        )
    return numbers


def _leaving(ledger: Ledger, binding: Binding, numbers: list[int]) -> list[int]:
    """Of the increments of a clock those that a step computes: behind quarantine, what is or may be released."""
    decided = released(ledger, binding)
    if decided is None:
        return numbers
    there = {*decided, *ledger.increments(binding.tables[0])}
    if binding.step.gate == "policy":  # what is not scanned yet may be released by rules in the same run
        there |= set(numbers) - ledger.increments(binding.clock or "").keys()
    return [one for one in numbers if one in there]


def _new(ledger: Ledger, binding: Binding, place: str, increment: int | None, upcoming: _Upcoming) -> ForecastPlace:
    """A place that the table does not hold.

    Raises:
        InputError: an input is missing, and this run does not compute it.
    """
    _reads(ledger, binding, increment, upcoming)
    decided = released(ledger, binding)
    if decided is not None:
        reason = "released" if increment in decided else "if its rules release it"
        return ForecastPlace(place, reason, certain=True, exists=False)
    reason = "never computed" if not ledger.places(binding.tables[0]) else f"new increment {place}"
    return ForecastPlace(place, reason, certain=True, exists=False)


def _reads(ledger: Ledger, binding: Binding, increment: int | None, upcoming: _Upcoming) -> Reads | None:
    """What a place reads now; None where an input is missing that an earlier step of the run makes.

    Raises:
        InputError: an input is missing, and this run does not compute it.
    """
    try:
        return reads_of(binding, ledger, increment)
    except InputError:
        if any(upcoming.new(table) for table in _input_tables(binding)):
            return None
        raise


def _input_tables(binding: Binding) -> list[str]:
    sources = [(source,) if isinstance(source, str) else source for source in binding.inputs.values()]
    tables = [table for source in sources for table in source]
    return [*dict.fromkeys([*tables, *([binding.clock] if binding.clock else [])])]


_UNKNOWN = "its step key differs"


def _missing(binding: Binding, upcoming: _Upcoming) -> list[str]:
    """Places of inputs that an earlier step of the run makes."""
    return [f"{table}[{one.place}]" for table in _input_tables(binding) for one in upcoming.new(table)]


def _unknown_inputs(row: Materialization, binding: Binding, inputs: list[str]) -> ForecastPlace:
    """A place that exists and whose inputs are made in this run: only changed settings are certain to matter."""
    settings = _changed_settings(row, binding)
    reason = "; ".join(settings) or f"if rows change in {_some(inputs)}"
    return ForecastPlace(row.place, reason, certain=bool(settings), exists=True)


def _reason(row: Materialization, binding: Binding, reads: Reads, settings: bool = True) -> str:
    """Why a place that exists is computed again: changed code, config or inputs, with their names."""
    changed = _changed_settings(row, binding) if settings else []
    now = {read.table: read for parts in reads.values() for read in parts}
    for table in sorted(now.keys() | (row.inputs.keys() if row.inputs else now.keys())):
        if table.startswith("system."):
            continue
        if table not in now or table not in row.inputs:
            if row.inputs:
                changed.append(f"input {table} is {'read now' if table in now else 'no longer read'}")
            continue
        differ = changed_places(row.inputs[table], now[table])
        if differ:
            changed.append(f"input {_some([f'{table}[{place}]' if place else table for place in differ])} changed")
    return "; ".join(changed) or _UNKNOWN


def _changed_settings(row: Materialization, binding: Binding) -> list[str]:
    """Changes of code and config since a place was computed."""
    changed = []
    if row.code_version != binding.step.version:
        changed.append(f"code version {row.code_version} -> {binding.step.version}")
    had, wanted = json.loads(row.config), json.loads(binding.config_json)
    return [*changed, *_differences(had, wanted, "")]


def _differences(had: Any, wanted: Any, path: str) -> Iterator[str]:
    """Values of two configs that differ, by path; of lists of rules that have one order, those inside the rules."""
    if isinstance(had, list) and isinstance(wanted, list):
        before, after = ([_rule_name(one) for one in many] for many in (had, wanted))
        if before == after and all(before):
            had, wanted = (dict(zip(before, many, strict=True)) for many in (had, wanted))
    if path and not (isinstance(had, dict) and isinstance(wanted, dict)):
        if had != wanted:
            yield f"{path} {json.dumps(had)} -> {json.dumps(wanted)}"
        return
    for name in sorted(had.keys() | wanted.keys()):
        yield from _differences(had.get(name), wanted.get(name), f"{path}.{name}" if path else name)


def _rule_name(one: Any) -> str:
    """What a rule of a policy is called among those of other kinds; empty where the value is no rule."""
    return ".".join([*one.get("kinds", ()), one.get("rule", "")]) if isinstance(one, dict) else ""


def _some(names: list[str]) -> str:
    """The first few of some names."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def _listed_bytes(due: Iterable[Task]) -> int | None:
    """Bytes of a source's files that are new; None where it does not say."""
    listings = [task.discovered for task in due]
    known = [one for one in listings if one is not None and "unchanged" in one.column_names]
    return sum(listed_size(one).byte_count for one in known) if len(known) == len(listings) else None


def _read_bytes(ledger: Ledger, binding: Binding, one: ForecastPlace) -> int:
    """Bytes that a place reads of tables as they are now."""
    increment = int(one.place) if one.place.isdigit() and binding.partition is None else None
    if binding.step.scope is Scope.FROZEN:
        increment = frozen_from(ledger, binding)
    try:
        return sum(size.byte_count for size in sizes_of(reads_of(binding, ledger, increment), ledger))
    except InputError:  # this run makes some of its inputs: all that there is of them
        return sum(row.byte_count for table in _input_tables(binding) for row in ledger.places(table).values())


def bytes_to_read(steps: Iterable[StepForecast]) -> int | None:
    """About the most bytes that a step of a run reads: what its sources have that is new, and the largest input now.

    None where a source does not say how much it has.
    """
    new = largest = 0
    for one in steps:
        if one.byte_count is None:
            return None
        if one.binding.step.discover is not None:
            new += one.byte_count
        else:
            largest = max(largest, one.byte_count)
    return new + largest


def _estimated(ledger: Ledger, binding: Binding, one: ForecastPlace, upcoming: _Upcoming) -> ForecastPlace:
    """A forecast with rows and seconds, as far as the ledger has seen the like."""
    history = ledger.places(binding.tables[0])
    before = history.get(one.place)
    if len(history) > _LIKE:  # what came last says enough of what comes
        history = {row.place: row for row in sorted(history.values(), key=lambda row: row.sequence_number)[-_LIKE:]}
    if before is not None:
        return replace(one, rows=before.row_count, seconds=before.seconds)
    read = one.rows if binding.step.discover is not None else _read_rows(ledger, binding, one.place, upcoming)
    if not history or read is None:
        return replace(one, rows=read)
    reads = {place: _read_rows(ledger, binding, place, upcoming) or row.row_count for place, row in history.items()}
    total = sum(reads.values())
    rows = round(sum(row.row_count for row in history.values()) * read / total) if total else read
    # Small increments cost their fixed part alone, so seconds shrink only to the least that was seen.
    largest = max(history.values(), key=lambda row: reads[row.place])
    least = min(row.seconds for row in history.values())
    typical = statistics.median(row.seconds for row in history.values())
    scaled = largest.seconds * read / reads[largest.place] if reads[largest.place] else typical
    return replace(one, rows=rows, seconds=round(max(scaled, least), 3))


def _read_rows(ledger: Ledger, binding: Binding, place: str, upcoming: _Upcoming) -> int | None:
    """Rows of the first input at a place; of a dataset's table all places that are new in this run."""
    if not binding.inputs:
        return None
    first = next(iter(binding.inputs.values()))
    found = None
    for table in (first,) if isinstance(first, str) else first:
        coming = upcoming.places.get(table, {})
        if table.split(".")[0] == binding.namespace and place:
            one, row = coming.get(place), ledger.places(table).get(place)
            counts = [one.rows] if one is not None else [row.row_count] if row is not None else []
        elif place and ledger.places(binding.tables[0]).get(place) is not None:
            facts = ledger.places(binding.tables[0])[place].inputs.get(table, {"versions": {}})
            counts = [row.row_count for key, row in ledger.places(table).items() if covers(facts, key)]
        else:
            counts = [one.rows for one in coming.values()] or [row.row_count for row in ledger.places(table).values()]
        known = [count for count in counts if count is not None]
        found = sum(known) + (found or 0) if known else found
    return found


@dataclass(frozen=True)
class Foreseen:
    """Existing tables whose rows a run may change, or keep though somebody may expect a change.

    Attributes:
        kept_frozen: frozen tables that differ from their declaration and stay as they are, each with a sentence.
        recomputed_frozen: frozen tables that were computed from rows which are computed again.
        renumbered: numbered tables of which existing rows are computed again.
        failing: tables whose step will fail, each with why.
    """

    kept_frozen: tuple[tuple[str, str], ...]
    recomputed_frozen: tuple[str, ...]
    renumbered: tuple[str, ...]
    failing: tuple[tuple[str, str], ...] = ()


def surprises(steps: Iterable[StepForecast]) -> Foreseen:
    """Of a forecast what is more than added increments."""
    kept, again, renumbered, failing = [], [], [], []
    for one in steps:
        table = one.binding.tables[0]
        if one.problem:
            failing.append((table, one.problem))
        if one.frozen:
            kept.append((table, one.frozen))
        if any(place.exists for place in one.places):
            if one.binding.step.scope is Scope.FROZEN:
                again.append(table)
            elif one.binding.step.numbered:
                renumbered.append(table)
    return Foreseen(tuple(kept), tuple(again), tuple(renumbered), tuple(failing))
