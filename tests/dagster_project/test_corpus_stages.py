"""The stages of a corpus follow from what its tables were computed from."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Collection

import pytest

from spark_jobs.corpus_stages import headrace_stages
from spark_jobs.plugins import attribute
from spark_jobs.registry import find_selection, selection_names, step_names
from spark_jobs.selection.stages import SURVIVORS, SelectionStage, stages_between
from tests.test_code_versions import step_of

STAGES = [find_selection(name).stage for name in selection_names() if name != "semantic"]
SEMANTIC = find_selection("semantic").stage
CHAINS = [chosen for size in range(len(STAGES) + 1) for chosen in itertools.permutations(STAGES, size)]


def walked(inputs: dict[str, set[str]], tables: Collection[str] | None = None) -> tuple[SelectionStage, ...]:
    """The stages of a corpus with some tables, each made of some others."""
    there = inputs if tables is None else tables
    return stages_between("main", there, lambda table: inputs.get(table, set()), headrace_stages().get)


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: "-".join(stage.table for stage in chain) or "none")
@pytest.mark.parametrize("last", ["tokens", "ordered"])
def test_stages_are_those_that_rows_went_through(chain: tuple[SelectionStage, ...], last: str) -> None:
    """In their order, whatever tables an earlier declaration left behind, and whatever else a stage reads."""
    between = [stage.table for stage in chain]
    inputs = {
        table: {f"main.{before}", "notes.texts", "main.cut_texts", f"main.{SURVIVORS}"}
        for before, table in itertools.pairwise([SURVIVORS, *between, last])
    }
    left_behind = {stage.table for stage in STAGES} - set(between)
    inputs |= {table: {f"main.{SURVIVORS}"} for table in left_behind}
    assert walked(inputs) == chain


@pytest.mark.parametrize("base", [{"main.distinct"}, {"main.members", "main.exact_duplicates", "main.removals"}])
def test_a_selection_of_duplicates_at_the_head_leaves_survivors(base: set[str]) -> None:
    """In a lake of now, and in one of an earlier version, in which it was a level of deduplication."""
    inputs = {SURVIVORS: {*base, "main.semantic_removals"}, "tokens": {f"main.{SURVIVORS}"}}
    assert walked(inputs) == (dataclasses.replace(SEMANTIC, table=SURVIVORS),)
    assert walked({SURVIVORS: base, "tokens": {f"main.{SURVIVORS}"}, "semantic_removals": set()}) == ()


def test_a_corpus_that_was_not_tokenized_has_no_stage_yet() -> None:
    """Nothing reads the last one."""
    assert walked({}, {"survivors", "shaped"}) == ()


def test_each_stage_has_its_tables_and_its_finding() -> None:
    """What a stage names is there."""
    tables = {table.name for name in step_names() for table in step_of(name).tables} | {SEMANTIC.table}
    for stage in [*STAGES, SEMANTIC]:
        assert {stage.table, stage.reasons} <= tables
        if stage.finding:
            expected = ["catalogue", "corpus", "document", "row", "stage"]
            assert list(inspect.signature(attribute(stage.finding)).parameters) == expected
