"""Frozen tables: the increment that each is computed from, and when it is computed again.

A change of config or code alone never does that; other rows of that increment do, unless the step `stays`.
"""

from __future__ import annotations

from spark_jobs.lake.declare.step import Scope
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.materialization import Materialization
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.plan.reads import Reads, changed_places, is_path, slice_key, taken_of


def reads_of_other_rows(ledger: Ledger, binding: Binding, reads: Reads) -> bool:
    """Whether a frozen table does not exist, or was computed from other rows than it reads now."""
    key = slice_key(binding, reads, "0")
    rows = [ledger.places(table).get("0") for table in binding.tables]
    return any(row is None or _read_other_rows(row, reads, key) for row in rows)


def stays(ledger: Ledger, binding: Binding) -> bool:
    """Whether a step has computed its tables for good: what they were computed from may change, and they do not."""
    step = binding.step
    if step.scope is not Scope.FROZEN or step.stays is None or not step.stays(binding.config):
        return False
    return all(row is not None and row.row_count for row in (ledger.places(table).get("0") for table in binding.tables))


def frozen_from(ledger: Ledger, binding: Binding) -> int:
    """The increment that a frozen table is computed from: the first in which its first input has rows, else 0."""
    source = binding.inputs.get(binding.step.inputs[0])
    if binding.driving_table is None or not isinstance(source, str) or is_path(source):
        return binding.only or 0
    full = {number for number, row in ledger.increments(source).items() if row.row_count}
    taken = taken_of(binding, ledger, source)
    return min(
        full if taken is None else (ours for ours, theirs in taken.items() if full.intersection(theirs)), default=0
    )


def _read_other_rows(row: Materialization, reads: Reads, key: str) -> bool:
    """Whether a frozen table was computed from other rows than its inputs hold now.

    A change of its config or code does not count: the table stays as it is. The row of a withdrawal names no inputs;
    then the step key is compared instead.
    """
    if not row.inputs:
        return row.step_key != key
    now = {read.table: read for parts in reads.values() for read in parts}
    return any(changed_places(facts, now[table]) for table, facts in row.inputs.items() if table in now)
