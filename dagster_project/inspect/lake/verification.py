"""Read the rows of a table once more, and compare their data versions with the ledger's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.exceptions import StepRunError, TableMismatchError
from spark_jobs.lake.files.audit import changed_places
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.validity import is_of_a_step
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AS_RECORDED = "as recorded"
BY_COMMANDS = "as it can be read; people or other programs add to it, so nothing is recorded"


def verified(spark: SparkSession, ledger: Ledger, identifier: str) -> tuple[int, str]:
    """Give the number of rows on record and the verdict: `AS_RECORDED`, `BY_COMMANDS`, or the faults in one line.

    Every file is read. Only a table that a step computes can have other rows than were recorded.
    """
    table = ledger.table(identifier)
    snapshot = table.current_snapshot() if table is not None else None
    if table is None or snapshot is None:
        return 0, AS_RECORDED
    known = identifier in ledger.recorded_tables()
    by_commands = not is_of_a_step(table) or not (known or SCOPE_PROPERTY in table.properties)
    try:
        places = {} if by_commands else ledger.places(identifier)
        expected = {place: row.data_version for place, row in places.items()}
        changed = changed_places(spark, identifier, table, expected)
    except (StepRunError, TableMismatchError) as error:
        return 0, " ".join(str(error).split())
    if by_commands:
        return sum(found.count for found in changed.values()), BY_COMMANDS
    wrong = (f"increment {place or 'all'}: {found.count:,} rows of another version" for place, found in changed.items())
    return sum(row.row_count for row in places.values()), "; ".join(wrong) or AS_RECORDED
