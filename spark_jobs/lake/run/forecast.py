"""What a run will compute and why, worked out from the ledger before any work starts; no row is read, no Spark needed.

Steps are looked at in the order of the run, and each knows what is forecast of the tables that it reads:

    certain    the place is new, or its step key differs whatever comes out of the steps before it
    possible   its inputs are computed again, so it follows where their rows come out differently (early cut-off)

Rows and seconds are estimates from the ledger: what the place had last time, or for a new one what earlier increments
had per row of the first input.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from spark_jobs.exceptions import InputError, SparkJobsError
from spark_jobs.lake.declare.step import Scope
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.materialization import Materialization
from spark_jobs.lake.run.binding import Binding
from spark_jobs.lake.run.decisions import released
from spark_jobs.lake.run.estimates import estimated, input_tables, listed_bytes, read_bytes
from spark_jobs.lake.run.foreseen import ForecastPlace, StepForecast, Upcoming
from spark_jobs.lake.run.plan import Task, frozen_from, is_known, other_settings, reads_of_other_rows, tasks, waits
from spark_jobs.lake.run.reads import Reads, reads_of
from spark_jobs.lake.run.reasons import UNKNOWN, changed_settings, some, why_again
from spark_jobs.lake.session.catalogue import schema_difference


def forecast(ledger: Ledger, bindings: Iterable[Binding]) -> list[StepForecast]:
    """Forecast a run of some steps."""
    upcoming = Upcoming()
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


def _step(ledger: Ledger, binding: Binding, upcoming: Upcoming) -> StepForecast:
    """The forecast of one step."""
    scope = binding.step.scope
    known = ledger.places(binding.tables[0])
    if binding.partition is not None:
        known = {key: row for key, row in known.items() if key == binding.partition.key}
    byte_count: int | None = 0
    if binding.step.discover is not None:
        due = list(tasks(ledger, binding))
        places, byte_count = [_discovered(ledger, binding, task) for task in due], listed_bytes(due)
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
            (read_bytes(ledger, binding, one) for one in (places[-1:] if scope is Scope.HISTORY else places)),
            default=0,
        )
    places = [estimated(ledger, binding, one, upcoming) for one in places]
    again = {one.place for one in places}
    frozen = "" if again else other_settings(ledger, binding)
    kept = sum(place not in again for place in known)
    return StepForecast(binding, tuple(places), kept, frozen, byte_count=byte_count)


def _discovered(ledger: Ledger, binding: Binding, task: Task) -> ForecastPlace:
    """The next increment of a dataset, with what its source has."""
    listing = task.discovered
    if listing is None or "unchanged" not in listing.column_names:
        return ForecastPlace(task.place.key, "the source has something new", certain=True, exists=False)
    arrived = ledger.increments(binding.tables[-1])
    settings = changed_settings(arrived[max(arrived)], binding) if arrived else []
    gone = listing["gone"].to_pylist() if "gone" in listing.column_names else [False] * listing.num_rows
    counts = Counter(
        "gone" if left else "unchanged" if same else "new or changed"
        for left, same in zip(gone, listing["unchanged"].to_pylist(), strict=True)
    )
    files = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()) if name != "unchanged")
    reason = "; ".join([*settings, f"files: {files or 'all read again'}"])
    rows = counts["new or changed"]
    return ForecastPlace(task.place.key, reason, certain=True, exists=False, rows=rows)


def _intake(ledger: Ledger, binding: Binding, upcoming: Upcoming) -> Iterator[ForecastPlace]:
    """The next increment of a corpus, where its datasets have or will have increments that it has not taken in."""
    coming = [f"{table}[{one.place}]" for table in input_tables(binding) for one in upcoming.new(table) if one.certain]
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
        yield ForecastPlace(number, f"new increment: {some(coming)}", certain=True, exists=False)


def _whole(ledger: Ledger, binding: Binding, upcoming: Upcoming) -> Iterator[ForecastPlace]:
    """A table without increments, or one partition of it."""
    place = binding.partition.key if binding.partition is not None else ""
    row = ledger.places(binding.tables[0]).get(place)
    new = [f"{table}[{one.place}]" for table in input_tables(binding) for one in upcoming.new(table) if one.certain]
    if row is None:
        yield _new(ledger, binding, place, None, upcoming)
        return
    reads = _reads(ledger, binding, None, upcoming)
    if reads is None:
        yield _unknown_inputs(row, binding, _missing(binding, upcoming))
    elif not is_known(ledger, binding, reads, place):
        yield ForecastPlace(place, why_again(row, binding, reads), certain=True, exists=True)
    elif new:
        yield ForecastPlace(place, f"input {some(new)} is new", certain=binding.partition is None, exists=True)
    elif again := upcoming.again(row):
        yield ForecastPlace(place, f"if rows change in {some(again)}", certain=False, exists=True)


def _frozen(ledger: Ledger, binding: Binding, upcoming: Upcoming) -> Iterator[ForecastPlace]:
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
        yield ForecastPlace("0", f"if rows change in {some(_missing(binding, upcoming))}", certain=False, exists=True)
        return
    if reads_of_other_rows(ledger, binding, reads):
        yield ForecastPlace("0", why_again(row, binding, reads, settings=False), certain=True, exists=True)
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
        yield ForecastPlace("0", f"if rows change in {some([*dict.fromkeys(again)])}", certain=False, exists=True)


def _increments(ledger: Ledger, binding: Binding, upcoming: Upcoming) -> Iterator[ForecastPlace]:
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
    ledger: Ledger, binding: Binding, row: Materialization, upcoming: Upcoming, before: ForecastPlace | None
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
        return ForecastPlace(row.place, why_again(row, binding, reads), certain=True, exists=True)
    if before is not None and why_again(row, binding, reads) != UNKNOWN:
        return ForecastPlace(row.place, why_again(row, binding, reads), certain=True, exists=True)
    again = upcoming.again(row) + ([f"{binding.tables[0]}[{before.place}]"] if before is not None else [])
    if again:
        return ForecastPlace(row.place, f"if rows change in {some(again)}", certain=False, exists=True)
    return None


def _next(rows: Mapping[int, Materialization]) -> Iterator[tuple[int, Materialization]]:
    """Each increment but the first, with the row of the one before."""
    return zip(itertools.islice(rows, 1, None), rows.values(), strict=False)


def _clock_increments(ledger: Ledger, binding: Binding, upcoming: Upcoming) -> list[int]:
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


def _new(ledger: Ledger, binding: Binding, place: str, increment: int | None, upcoming: Upcoming) -> ForecastPlace:
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


def _reads(ledger: Ledger, binding: Binding, increment: int | None, upcoming: Upcoming) -> Reads | None:
    """What a place reads now; None where an input is missing that an earlier step of the run makes.

    Raises:
        InputError: an input is missing, and this run does not compute it.
    """
    try:
        return reads_of(binding, ledger, increment)
    except InputError:
        if any(upcoming.new(table) for table in input_tables(binding)):
            return None
        raise


def _missing(binding: Binding, upcoming: Upcoming) -> list[str]:
    """Places of inputs that an earlier step of the run makes."""
    return [f"{table}[{one.place}]" for table in input_tables(binding) for one in upcoming.new(table)]


def _unknown_inputs(row: Materialization, binding: Binding, inputs: list[str]) -> ForecastPlace:
    """A place that exists and whose inputs are made in this run: only changed settings are certain to matter."""
    settings = changed_settings(row, binding)
    reason = "; ".join(settings) or f"if rows change in {some(inputs)}"
    return ForecastPlace(row.place, reason, certain=bool(settings), exists=True)
