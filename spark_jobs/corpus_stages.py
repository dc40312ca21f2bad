"""The stages that a corpus of a lake went through: `spark_jobs.selection.stages` with what is known of each table."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from spark_jobs.features import brought
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.registry import find_selection, selection_names
from spark_jobs.selection.stages import Stage, stages_between, stated_stage


@functools.cache
def headrace_stages() -> Mapping[str, Stage]:
    """The stages of headrace's selections and those of its features, by the names of their tables."""
    stages = [find_selection(name).stage for name in (*selection_names(), *brought("selections"))]
    return {table: stage for stage in stages for table in (stage.table, stage.reasons)}


def stages_of(ledger: Ledger, corpus: str) -> tuple[Stage, ...]:
    """The stages that the newest rows of a corpus went through, in order."""
    tables = frozenset(table for _, table in ledger.catalogue.list_tables(corpus))

    def inputs_of(table: str) -> set[str]:
        rows = list(ledger.increments_there(f"{corpus}.{table}").values()) if table in tables else []
        return set(rows[-1].inputs) if rows else set()

    stated = functools.partial(stated_stage, ledger.catalogue, corpus, headrace_stages())
    return stages_between(corpus, tables, inputs_of, stated)
