"""The stages of a corpus in a lake, by its ledger and table properties (`spark_jobs.selection.stages`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from pyiceberg.catalog import Catalog

from headrace.tables.catalogue import tables_in
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.registry import find_selection, selection_names
from spark_jobs.selection.stages import SelectionStage, stages_between, stated_stage


@functools.cache
def headrace_stages() -> Mapping[str, SelectionStage]:
    """The stages of headrace's selections and those of its features, by the names of their tables."""
    stages = [find_selection(name).stage for name in selection_names()]
    return {table: stage for stage in stages for table in (stage.table, stage.reasons)}


def stages_of(ledger: Ledger, corpus: str) -> tuple[SelectionStage, ...]:
    """The stages that the newest rows of a corpus went through, in order."""
    tables = _tables(ledger.catalogue, corpus)

    def inputs_of(table: str) -> set[str]:
        rows = list(ledger.increments_there(f"{corpus}.{table}").values()) if table in tables else []
        return set(rows[-1].inputs) if rows else set()

    return stages_between(corpus, tables, inputs_of, _stated(ledger.catalogue, corpus))


def cut_texts_of(catalogue: Catalog, corpus: str) -> str | None:
    """Identifier of the texts that a selection of a corpus cut; None where none did."""
    stated = _stated(catalogue, corpus)
    cuts = [stage for table in _tables(catalogue, corpus) if (stage := stated(table)) is not None and stage.cuts]
    if not cuts:  # then the ledger need not be read
        return None
    stages = stages_of(Ledger.fresh(catalogue), corpus)
    return next((f"{corpus}.{stage.reasons}" for stage in stages if stage.cuts), None)


def _tables(catalogue: Catalog, corpus: str) -> frozenset[str]:
    return frozenset(identifier.partition(".")[2] for identifier in tables_in(catalogue, corpus))


def _stated(catalogue: Catalog, corpus: str) -> Callable[[str], SelectionStage | None]:
    return functools.partial(stated_stage, catalogue, corpus, headrace_stages())
