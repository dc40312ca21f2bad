"""How much a run reads and writes, and how long it takes: estimates from what the ledger has seen of the like."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import replace

from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import Scope
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.run.binding import Binding
from spark_jobs.lake.run.foreseen import ForecastPlace, Upcoming
from spark_jobs.lake.run.plan import Task, frozen_from
from spark_jobs.lake.run.reads import covers, reads_of, sizes_of
from spark_jobs.lake.session.shuffle_partitions import listed_size

_LIKE = 20  # places of a table that an estimate is made from  # places of a table that an estimate is made from


def estimated(ledger: Ledger, binding: Binding, one: ForecastPlace, upcoming: Upcoming) -> ForecastPlace:
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


def _read_rows(ledger: Ledger, binding: Binding, place: str, upcoming: Upcoming) -> int | None:
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


def read_bytes(ledger: Ledger, binding: Binding, one: ForecastPlace) -> int:
    """Bytes that a place reads of tables as they are now."""
    increment = int(one.place) if one.place.isdigit() and binding.partition is None else None
    if binding.step.scope is Scope.FROZEN:
        increment = frozen_from(ledger, binding)
    try:
        return sum(size.byte_count for size in sizes_of(reads_of(binding, ledger, increment), ledger))
    except InputError:  # this run makes some of its inputs: all that there is of them
        return sum(row.byte_count for table in input_tables(binding) for row in ledger.places(table).values())


def listed_bytes(due: Iterable[Task]) -> int | None:
    """Bytes of a source's files that are new; None where it does not say."""
    listings = [task.discovered for task in due]
    known = [one for one in listings if one is not None and "unchanged" in one.column_names]
    return sum(listed_size(one).byte_count for one in known) if len(known) == len(listings) else None


def input_tables(binding: Binding) -> list[str]:
    """Tables that a step reads, and its clock, each once."""
    sources = [(source,) if isinstance(source, str) else source for source in binding.inputs.values()]
    tables = [table for source in sources for table in source]
    return [*dict.fromkeys([*tables, *([binding.clock] if binding.clock else [])])]
