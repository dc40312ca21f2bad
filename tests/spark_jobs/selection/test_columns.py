"""Selections as functions of columns: what a function may give, what becomes of it, and what is said of mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace import Column, ConfigModel, Cut, Failed, Scope, Table, selection, step
from spark_jobs.exceptions import InputError, StepDeclarationError, StepRunError
from spark_jobs.lake.declare.step import Output
from spark_jobs.selection.columns import _judged, _SelectionNames
from spark_jobs.selection.declared import Selection, SelectionPlace
from spark_jobs.selection.verdicts import Verdicts, edited
from spark_jobs.spark_sql import DataFrame, F, SparkSession

ROW = "dataset string, shard int, doc_id string, value bigint"
LARGEST = Table("largest", "The largest value of the first increment.", (Column("largest", "long", "it"),))


@step(version="1", scope=Scope.FROZEN, tables=(LARGEST,))
def largest(values: DataFrame) -> DataFrame:
    """Find the largest value."""
    return values.agg(F.max("value").alias("largest"))


class Share(ConfigModel):
    """A share of the largest value."""

    share: float = 0.5


@selection(reads=("values",), version="1", frozen=largest)
def below(value: pa.Array, largest: pa.Table, config: Share) -> Iterator[Failed]:
    """Leave out what is above a share of the largest value."""
    most = largest["largest"][0].as_py() * config.share
    yield Failed("above", pc.greater(value, most), value, most)


def bound(chosen: Selection, config: Any, place: SelectionPlace) -> list[Any]:
    """The steps of a selection at a place."""
    return list(chosen.arrange(config, place))


def test_a_frozen_table_is_computed_first_and_given_whole(spark: SparkSession) -> None:
    """Its inputs are named as those of the selection; the function gets all of its rows."""
    place = SelectionPlace("main", ("a", "b"), "main.shaped", frozenset({"shaped"}))
    first, then = bound(below, Share(share=0.25), place)
    assert first.inputs == {"values": ("a.values", "b.values")}
    assert then.inputs == {"survivors": "main.shaped", "values": ("a.values", "b.values"), "largest": "main.largest"}
    values = spark.createDataFrame([("d", 0, f"{n:032x}", n) for n in range(9)], ROW)
    made = then.step(survivors=values.drop("value"), values=values, largest=largest(values), config=Share(share=0.25))
    assert isinstance(made, Output)
    assert {row["doc_id"][-1] for row in made.frames["below"].collect()} == {"0", "1", "2"}
    assert {row["failed"][0]["threshold"] for row in made.frames["below_rejected"].collect()} == {2.0}


def test_names_of_tables_mean_the_corpus_then_its_datasets() -> None:
    """Another namespace is named; `survivors` are those that came so far; a dataset of no corpus is refused."""
    place = SelectionPlace("main", ("a", "b"), "main.shaped", frozenset({"clusters"}))
    sources = {name: place.source(name) for name in ("survivors", "clusters", "texts", "lab.losses")}
    assert sources == {
        "survivors": "main.shaped",
        "clusters": "main.clusters",
        "texts": ("a.texts", "b.texts"),
        "lab.losses": "lab.losses",
    }


def test_every_form_of_values_is_taken() -> None:
    """Arrays of Arrow and NumPy, lists, one value for all, none; nulls and NaN are no value."""
    given = [
        Failed("one", pa.array([True, None, False]), pa.array([1, 2, 3]), 5),
        Failed("two", np.array([True, True, False]), [0.5, float("nan"), 1.5], pa.scalar(2.5)),
        Failed("all", True),
    ]
    verdicts = Verdicts.of(given, 3)
    assert verdicts.counts.tolist() == [3, 2, 1]
    everywhere = {"rule": "all", "value": None, "threshold": None}
    assert verdicts.column().to_pylist() == [
        [{"rule": "one", "value": 1.0, "threshold": 5.0}, {"rule": "two", "value": 0.5, "threshold": 2.5}, everywhere],
        [{"rule": "two", "value": None, "threshold": 2.5}, everywhere],
        [everywhere],
    ]
    assert Verdicts.of([], 2).column().to_pylist() == [[], []]


def test_spans_are_cut_by_characters_and_edits_are_in_bytes() -> None:
    """Of spans that overlap the first is cut; a text without any stays as it is."""
    batch = pa.RecordBatch.from_pydict({"content": ["aé<bc>d", "whole"]})
    texts, edits = edited(
        batch, [Cut("tag", [[(2, 6)], None]), Cut("letter", pa.array([[{"start": 3, "end": 7}], []]))]
    )
    assert texts == ["aéd", "whole"]
    assert edits == [[{"rule": "tag", "start": 3, "end": 7, "replacement_length": 0}], []]
    with pytest.raises(ValueError, match="outside of a text of 7 characters"):
        edited(batch, [Cut("tag", [[(2, 9)], []])])
    with pytest.raises(ValueError, match="cut tag: lists of spans for 1 of 2 documents"):
        edited(batch, [Cut("tag", [[(2, 6)]])])
    with pytest.raises(TypeError, match="float"):
        edited(batch, [Cut("tag", [[(2.5, 6)], []])])


def wrong_length(value: pa.Array) -> Iterator[Failed]:
    """Give one value too many."""
    yield Failed("no", [True] * (len(value) + 1))


def raises(value: pa.Array) -> Iterator[Failed]:
    """Fail."""
    raise KeyError("gone")


def unknown(valeu: pa.Array) -> Iterator[Failed]:
    """Take a column that there is not."""
    yield Failed("no", valeu)


def twice(value: pa.Array) -> Iterator[Failed]:
    """Take a column that two tables have."""
    yield Failed("no", value)


def bare(value: pa.Array) -> Iterator[Any]:
    """Give flags that belong to no rule."""
    yield pc.greater(value, 1)


def silent_cut(value: pa.Array) -> Iterator[Cut]:
    """Cut, as a selection that cuts nothing."""
    yield Cut("head", [[(0, 1)]] * len(value))


def nameless(value: pa.Array) -> Iterator[Failed]:
    """Give a rule without a name."""
    yield Failed(None, pc.greater(value, 1))  # type: ignore[arg-type]


def words(value: pa.Array) -> Iterator[Failed]:
    """Say no by a word, which is true in Python."""
    yield Failed("no", ["no"] * len(value))


def quotient(value: pa.Array) -> Iterator[Failed]:
    """Give numbers for flags; NaN is true in Python."""
    yield Failed("no", pc.divide(pa.scalar(0.0), pc.cast(pc.subtract(value, 1), pa.float64())))


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (bare, "BooleanArray is no Failed; give a Failed for each rule"),
        (silent_cut, "head is a Cut, and the selection is not declared with cuts=True"),
        (nameless, "the rule None is no name"),
        (words, "where of no has values of type str, not booleans"),
        (quotient, "where of no has values of type float, not booleans"),
        (wrong_length, "values for 2 documents; give a Failed for each rule"),
        (raises, "selection raises: KeyError: 'gone'"),
    ],
)
def test_a_function_that_fails_is_named(function: Callable[..., Any], said: str) -> None:
    """Where it runs, with what it has to give."""
    stage = selection(reads=("values",), version="1")(function).stage
    declared = _SelectionNames(stage, function, ("values",))
    batch = pa.RecordBatch.from_pydict({"dataset": ["d"] * 2, "shard": [0] * 2, "doc_id": ["a", "b"], "value": [1, 2]})
    with pytest.raises(StepRunError, match=said):
        list(_judged([batch], declared, None, {}))


@pytest.mark.parametrize(
    ("function", "reads", "said"),
    [
        (unknown, ("values",), "none of values has a column 'valeu'; did you mean 'value'"),
        (twice, ("values", "others"), "others and values have a column 'value'; call the parameter others__value"),
    ],
)
def test_a_column_that_is_not_there_or_twice_is_named(
    spark: SparkSession, function: Callable[..., Any], reads: tuple[str, ...], said: str
) -> None:
    """Before anything is computed."""
    (only,) = bound(
        selection(reads=reads, version="1")(function), ConfigModel(), SelectionPlace("main", ("a",), "main.survivors")
    )
    rows = spark.createDataFrame([("d", 0, "a", 1)], ROW)
    with pytest.raises(InputError, match=said):
        only.step(survivors=rows.drop("value"), **dict.fromkeys(reads, rows))


@pytest.mark.parametrize(
    ("function", "reads", "said"), [(unknown, ("values",), "'value'"), (twice, ("values", "others"), "others__value")]
)
def test_such_a_column_is_told_before_the_run(function: Callable[..., Any], reads: tuple[str, ...], said: str) -> None:
    """By the columns of what it reads, which declarations tell; those of `survivors` are none of them."""
    place = SelectionPlace("main", ("a",), "main.survivors")
    (only,) = bound(selection(reads=reads, version="1")(function), ConfigModel(), place)
    refuse = only.step.refuse_columns
    assert refuse is not None
    there = {name: frozenset({"doc_id", "value"}) for name in ("survivors", *reads)}
    with pytest.raises(InputError, match=said):
        refuse(there)
    right = {**there, "values": frozenset({"doc_id", "valeu"}), "others": frozenset({"doc_id"})}
    if function is unknown:
        refuse({name: right[name] for name in there})


def test_a_selection_of_the_name_of_a_table_that_it_reads_is_refused() -> None:
    """Its own table would be taken for that."""
    with pytest.raises(StepDeclarationError, match="it reads a table of its name"):
        selection(reads=("twice",), version="1")(twice)
    with pytest.raises(StepDeclarationError, match="it reads twice_rejected, which it makes"):
        selection(reads=("main.twice_rejected",), version="1")(twice)
