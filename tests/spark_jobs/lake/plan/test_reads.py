"""What a step reads: increments of datasets in a corpus's own numbering, unions, history."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from spark_jobs.exceptions import InputError, StepDeclarationError
from spark_jobs.lake.declare.step import NoConfig, Scope, step
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.plan.increments import increments
from spark_jobs.lake.run.materialize import Lake, materialize
from tests.spark_jobs.lake.steps import FolderConfig, bind, doubles, land, numbers, one, rows

_COLUMNS = (
    Column("dataset!", "string", "dataset"),
    Column("theirs!", "int", "increment of the dataset"),
    Column("seen!", "int", "increment of the corpus that the input carries"),
    Column("n!", "long", "number"),
)
GATHERED = Table("gathered", "numbers of this increment", _COLUMNS, partition=("increment",))
ALL_SO_FAR = Table("all_so_far", "numbers up to this increment", _COLUMNS, partition=("increment",))
_AS_READ = ("dataset", "dataset_increment AS theirs", "increment AS seen", "n")


@step(version="1", scope=Scope.INCREMENT, tables=(GATHERED,))
def gathered(numbers):  # type: ignore[no-untyped-def]
    """What one increment of the corpus reads."""
    return numbers.selectExpr(*_AS_READ)


@step(version="1", scope=Scope.HISTORY, tables=(ALL_SO_FAR,))
def all_so_far(numbers):  # type: ignore[no-untyped-def]
    """What history reads."""
    return numbers.selectExpr(*_AS_READ)


def landed(lake: Lake, folder: Path, dataset: str) -> None:
    """Bring the numbers of a dataset up to date."""
    binding = dataclasses.replace(bind(numbers, FolderConfig(folder=str(folder))), namespace=dataset)
    materialize(lake, binding)


def taken_in(lake: Lake) -> tuple[str, ...]:
    """The next increment of the corpus, where there is one."""
    inputs = {"arrivals": ("one.arrivals", "two.arrivals")}
    return one(materialize(lake, Binding(increments, "both", inputs, NoConfig()))).computed


def test_a_corpus_reads_its_datasets_by_its_own_increments(lake: Lake, tmp_path: Path) -> None:
    """Corpus increment 0 takes two increments of one dataset, 1 takes one of the other alone, nothing comes twice."""
    ones, twos = tmp_path / "ones", tmp_path / "twos"
    for name, values in (("a.txt", [1, 2]), ("b.txt", [3])):
        land(ones, name, values)
        landed(lake, ones, "one")
    land(twos, "a.txt", [10])
    landed(lake, twos, "two")
    assert taken_in(lake) == ("0",)
    assert taken_in(lake) == ()
    land(twos, "b.txt", [11])
    landed(lake, twos, "two")
    assert taken_in(lake) == ("1",)

    inputs = {"numbers": ("one.numbers", "two.numbers")}
    for what in (gathered, all_so_far):
        binding = Binding(what, "both", inputs, NoConfig(), driving_table="both.increments")
        assert one(materialize(lake, binding)).computed == ("0", "1")
        assert one(materialize(lake, binding)).computed == ()
    first = [("one", 0, 0, 1), ("one", 0, 0, 2), ("one", 1, 0, 3), ("two", 0, 0, 10)]
    second = ("two", 1, 1, 11)
    names = ("increment", "dataset", "theirs", "seen", "n")
    assert rows(lake, "both.gathered", *names) == [*((0, *row) for row in first), (1, *second)]
    assert rows(lake, "both.all_so_far", *names) == [
        *((0, *row) for row in first),
        *((1, *row) for row in (*first, second)),
    ]


@pytest.mark.nightly
def test_an_increment_that_took_nothing_from_a_dataset_reads_no_rows_of_it(lake: Lake, tmp_path: Path) -> None:
    """The input is there, empty, with its columns."""
    ones, twos = tmp_path / "ones", tmp_path / "twos"
    land(ones, "a.txt", [1])
    land(twos, "a.txt", [10])
    landed(lake, ones, "one")
    landed(lake, twos, "two")
    taken_in(lake)
    land(ones, "b.txt", [2])
    landed(lake, ones, "one")
    taken_in(lake)
    binding = Binding(gathered, "both", {"numbers": ("two.numbers",)}, NoConfig(), driving_table="both.increments")
    materialize(lake, binding)
    assert rows(lake, "both.gathered", "increment", "n") == [(0, 10)]


def test_an_increment_that_an_input_lacks_is_named(lake: Lake, folder: Path) -> None:
    """Downstream of a step that did not run for the newest increment."""
    materialize(lake, bind(doubles))
    land(folder, "b.txt", [50])
    materialize(lake, bind(numbers, FolderConfig(folder=str(folder))))
    late = dataclasses.replace(bind(doubles, numbers="demo.doubles"), namespace="later")
    with pytest.raises(
        InputError, match=r"input demo\.doubles has no increment 1 yet; run `headrace run demo/doubles`"
    ):
        materialize(lake, late)


def test_bindings_that_cannot_be_run_are_refused() -> None:
    """Inputs that are not bound or unknown, and no table to follow."""
    with pytest.raises(StepDeclarationError, match=r"inputs \['numbers'\] are not bound"):
        Binding(doubles, "demo", {}, doubles.config(), driving_table="demo.arrivals")
    with pytest.raises(StepDeclarationError, match=r"inputs \['wrong'\] are unknown"):
        Binding(doubles, "demo", {"numbers": "a.b", "wrong": "a.c"}, doubles.config(), driving_table="demo.arrivals")
    with pytest.raises(StepDeclarationError, match="needs a table to follow"):
        Binding(doubles, "demo", {"numbers": "a.b"}, doubles.config())
