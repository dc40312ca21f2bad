"""How much a run reads and writes, and how long it takes: estimates from similar places in the ledger."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import NamedTuple

from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.plan.binding import Binding, tables_of
from spark_jobs.lake.plan.discovery import new_files
from spark_jobs.lake.plan.due import Due, ForecastPlace, Upcoming, input_tables
from spark_jobs.lake.plan.reads import Read, covers, is_path
from spark_jobs.lake.plan.text_bytes import listed_text_bytes, path_text_bytes, table_text_bytes


class TextBytes(NamedTuple):
    """Bytes of text: of what is new to a step, and of all that it may join with that."""

    new: int = 0
    held: int = 0


_LIKE = 20  # places of a table that an estimate is made from


def estimated(ledger: Ledger, binding: Binding, due: Due, upcoming: Upcoming) -> ForecastPlace:
    """Forecast of a due place; rows and seconds are estimated where the ledger has similar places."""
    place = due.place.key
    estimate = ForecastPlace(place, due.reason, due.certain, due.exists)
    history = ledger.places(binding.tables[0])
    before = history.get(place)
    if len(history) > _LIKE:  # what came last says enough of what comes
        history = {row.place: row for row in sorted(history.values(), key=lambda row: row.sequence_number)[-_LIKE:]}
    if before is not None:
        return replace(estimate, rows=before.row_count, seconds=before.seconds)
    if due.listing is None:
        read = _read_rows(ledger, binding, place, upcoming)
    else:
        count = binding.step.listed_rows
        read = count(binding.config, due.listing) if count is not None else None
        estimate = replace(estimate, files=new_files(due.listing))
    if not history:
        return replace(estimate, rows=read)
    typical = statistics.median(row.seconds for row in history.values())
    if read is None:
        return replace(estimate, seconds=typical)
    reads = {place: _read_rows(ledger, binding, place, upcoming) or row.row_count for place, row in history.items()}
    total = sum(reads.values())
    rows = round(sum(row.row_count for row in history.values()) * read / total) if total else read
    # Small increments cost their fixed part alone, so seconds shrink only to the least that was seen.
    largest = max(history.values(), key=lambda row: reads[row.place])
    least = min(row.seconds for row in history.values())
    scaled = largest.seconds * read / reads[largest.place] if reads[largest.place] else typical
    return replace(estimate, rows=rows, seconds=round(max(scaled, least), 3))


def _read_rows(ledger: Ledger, binding: Binding, place: str, upcoming: Upcoming) -> int | None:
    """Rows of the first input at a place; of a dataset's table all new places of this run."""
    if not binding.inputs:
        return None
    total = None
    for table in tables_of(next(iter(binding.inputs.values()))):
        coming = upcoming.places.get(table, {})
        if table.split(".")[0] == binding.namespace and place:
            forecast_place, row = coming.get(place), ledger.places(table).get(place)
            counts = [forecast_place.rows] if forecast_place is not None else [row.row_count] if row is not None else []
        elif place and ledger.places(binding.tables[0]).get(place) is not None:
            facts = ledger.places(binding.tables[0])[place].inputs.get(table, {"versions": {}})
            counts = [row.row_count for key, row in ledger.places(table).items() if covers(facts, key)]
        else:
            counts = [forecast_place.rows for forecast_place in coming.values()] or [
                row.row_count for row in ledger.places(table).values()
            ]
        counted = [count for count in counts if count is not None]
        total = sum(counted) + (total or 0) if counted else total
    return total


def read_bytes(ledger: Ledger, binding: Binding, due: Due) -> TextBytes:
    """Text read from tables for a place.

    What is new in this run is not there yet; whoever adds steps up counts it once, at the source. Of a history a step
    looks up what belongs to its own increment, so the increments before count for joins alone.
    """
    if due.reads is None:
        joined = sum(table_text_bytes(ledger, table, ledger.places(table)) for table in input_tables(binding))
        return TextBytes(0 if due.increment is not None and not due.exists else joined, joined)
    new = joined = 0
    for read in (read for parts in due.reads.values() for read in parts):
        if is_path(read.table):
            joined += path_text_bytes(read.table)
            new += path_text_bytes(read.table)
        else:
            joined += table_text_bytes(ledger, read.table, read.versions)
            new += table_text_bytes(ledger, read.table, _own_places(read, due.increment))
    return TextBytes(new, joined)


def _own_places(read: Read, increment: int | None) -> Collection[str]:
    """The places that are read of a table, of increments those alone that the reader takes for its own."""
    if increment is None or read.increments is None:
        return read.versions
    return {str(number) for number, reader in read.increments.items() if reader == increment}


def listed_bytes(due: Iterable[Due]) -> int | None:
    """Bytes of text in a source's new files; None where it does not say."""
    listings = [due_part.listing for due_part in due]
    sized = [listing for listing in listings if listing is not None and "unchanged" in listing.column_names]
    return sum(map(listed_text_bytes, sized)) if len(sized) == len(listings) else None
