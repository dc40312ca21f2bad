"""An increment in which a source tells nothing new is not published; the ledger notes what read the source again."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence

from spark_jobs.lake.files.branches import Written
from spark_jobs.lake.files.rows import table_rows
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.step_key import config_json
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.plan.plan import Task
from spark_jobs.spark_sql import SparkSession

_log = logging.getLogger(__name__)


def has_no_news(spark: SparkSession, ledger: Ledger, binding: Binding, task: Task, written: Sequence[Written]) -> bool:
    """Whether a source that is read again, for other config, code or columns, tells what its tables say already.

    Args:
        spark: session that reads the rows.
        ledger: what the tables hold.
        binding: the step at the source.
        task: the increment.
        written: its rows, on branches of all tables of the step.
    """
    news, increment = binding.step.news, task.increment
    if news is None or not increment or written[0].row_count:
        return False
    last = ledger.increments(binding.tables[-1]).get(increment - 1)
    if last is None or (last.config, last.code_version) == (config_json(binding.config), binding.step.version):
        return False
    return all(
        news(declared.name, table_rows(spark, rows.identifier, rows.snapshot_id), increment).isEmpty()
        for declared, rows in zip(binding.step.tables, written, strict=True)
    )


def note_read_again(ledger: Ledger, binding: Binding) -> None:
    """Record that the last increment of a source is what the present config and code make of it."""
    config, version = config_json(binding.config), binding.step.version
    complete = ledger.increments(binding.tables[-1])
    last = max(complete)
    rows = [ledger.increments(table)[last] for table in binding.tables]
    ledger.record([dataclasses.replace(row, config=config, code_version=version) for row in rows])
    _log.info("%s: all files were read again and came out the same; there is no increment of it", binding.tables[0])
