"""The stages of a corpus follow from what its tables were computed from."""

from __future__ import annotations

import inspect
import itertools

import pytest

from dagster_project.stages import STAGES, SURVIVORS, stages_between
from spark_jobs.plugins import attribute
from spark_jobs.registry import step_names
from tests.test_code_versions import step_of

CHAINS = [chosen for size in range(len(STAGES) + 1) for chosen in itertools.combinations(STAGES, size)]


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: "-".join(stage.table for stage in chain) or "none")
@pytest.mark.parametrize("last", ["tokens", "ordered"])
def test_stages_are_those_that_rows_went_through(chain: tuple[object, ...], last: str) -> None:
    """In order, whatever tables an earlier declaration left behind."""
    between = [stage.table for stage in STAGES if stage in chain]
    inputs = {
        table: {f"main.{before}", "notes.texts", "main.cut_texts"}
        for before, table in itertools.pairwise([SURVIVORS, *between, last])
    }
    left_behind = {stage.table for stage in STAGES} - set(between)
    inputs |= {table: {f"main.{SURVIVORS}"} for table in left_behind}
    assert stages_between("main", inputs, inputs.__getitem__) == chain


def test_a_corpus_that_was_not_tokenized_has_no_stage_yet() -> None:
    """Nothing reads the last one."""
    assert stages_between("main", {"survivors", "shaped"}, lambda table: set()) == ()


def test_each_stage_has_its_tables_and_its_finding() -> None:
    """What a stage names is there."""
    tables = {table.name for name in step_names() for table in step_of(name).tables}
    for stage in STAGES:
        assert {stage.table, stage.reasons} <= tables
        assert list(inspect.signature(attribute(stage.finding)).parameters) == ["catalogue", "corpus", "row"]
