"""Scorers: a function over texts becomes a step, and a helper tries it on hard texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pydantic import BaseModel

from spark_jobs.exceptions import ConfigError, StepDeclarationError, StepRunError
from spark_jobs.filters.scorer import HARD_TEXTS, check_scorer, scorer
from spark_jobs.lake.declare.step import Scope
from spark_jobs.lake.declare.tables import Column
from spark_jobs.registry import find_scorer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VOWELS = (
    Column("vowel_fraction", "double", "of all characters; null without any"),
    Column("words!", "list<string>", "words between blanks"),
)


class VowelsConfig(BaseModel):
    """Which letters are vowels."""

    letters: str = "aeiou"


@scorer(name="vowels", version="3", columns=VOWELS, config=VowelsConfig, fractions=("vowel_fraction",))
def vowels(content: pa.Array, config: VowelsConfig) -> dict[str, pa.Array]:
    """Measure how much of a text is vowels."""
    length = pc.utf8_length(content)
    without = pc.utf8_length(pc.replace_substring_regex(content, f"[{config.letters}]", ""))
    found = pc.divide(
        pc.cast(pc.subtract(length, without), pa.float64()), pc.if_else(pc.equal(length, 0), None, length)
    )
    return {"words": pc.split_pattern(content, " "), "vowel_fraction": found}


def test_a_function_becomes_a_step_with_a_table(spark: SparkSession) -> None:
    """The table has the identity, the columns in the order declared, and the checks of fractions."""
    assert (vowels.name, vowels.version, vowels.scope, vowels.inputs) == ("vowels", "3", Scope.INCREMENT, ("texts",))
    assert [column.name for column in vowels.table.columns] == ["shard", "doc_id", "kind", "vowel_fraction", "words"]
    assert vowels.table.comment == "One row per text. Measure how much of a text is vowels."
    assert [check.name for check in vowels.table.checks] == ["vowel_fraction_in_bounds"]
    assert (vowels.function.__module__, vowels.config) == (__name__, VowelsConfig)
    texts = spark.createDataFrame(
        [(1, "a", "prose", "ave maria"), (0, "b", "code", "")], "shard int, doc_id string, kind string, content string"
    )
    rows = vowels(texts, VowelsConfig(letters="a")).collect()
    assert sorted(tuple(row) for row in rows) == [
        (0, "b", "code", None, [""]),
        (1, "a", "prose", 3 / 9, ["ave", "maria"]),
    ]


def test_hard_texts_are_tried() -> None:
    """Empty, NULs, a huge line, right to left, no spaces; the values come back with their texts."""
    tried = check_scorer(vowels, more=["more"])
    assert tried.column_names == ["vowel_fraction", "words", "text"]
    assert tried["text"].to_pylist() == [*HARD_TEXTS, "more"]
    assert tried["vowel_fraction"][0].as_py() is None and tried["vowel_fraction"][-1].as_py() == 0.5
    assert {"", "\x00a\x00"} < set(HARD_TEXTS) and max(map(len, HARD_TEXTS)) >= 100_000


def _lengths(content: pa.Array) -> Any:
    return pc.utf8_length(content)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda content: {"m": _lengths(content)}, r"gives the columns \['m'\], declared are \['n'\]"),
        (lambda content: {"n": pa.array([1])}, "n has 1 values for "),
        (lambda content: {"n": content}, "n is string, declared is int"),
        (lambda content: {"n": pa.array([[1]] * len(content))}, "n is list<item: int64>, declared is int"),
        (lambda content: None, "it gives a NoneType; give a column of values by name"),
        (lambda content: {"n": 1 // 0}, "scorer wrong: ZeroDivisionError: .*; it may refuse no text"),
        (lambda content: {"n": pc.if_else(pc.equal(_lengths(content), 0), None, 1)}, "n is null somewhere"),
        (lambda content: {"n": pa.array(range(len(content)))}, "n of .* is .*, in reversed order .*; a row may depend"),
        (lambda content: {"n": pc.max(_lengths(content))}, "n is a Int32Scalar; give an Arrow array"),
    ],
)
def test_what_a_scorer_does_wrong_is_said(function: Callable[..., Any], said: str) -> None:
    """Other columns, lengths or types than declared; a row that depends on the texts beside it."""
    made = scorer(name="wrong", version="1", columns=(Column("n!", "int", "n"),))(function)
    with pytest.raises(StepRunError, match=said):
        check_scorer(made)


def test_scorers_are_found_by_name_and_by_place() -> None:
    """What is none is one line."""
    assert find_scorer(f"{__name__}:vowels").name == "vowels"
    for reference, said in (
        ("vowels", "scorer 'vowels' is not known"),
        (f"{__name__}:vowel", "has no 'vowel'; did you mean 'vowels'"),
        (f"{__name__}:VOWELS", r"is a tuple; it has to be a Scorer \(docs"),
    ):
        with pytest.raises(ConfigError, match=said):
            find_scorer(reference)
    with pytest.raises(StepDeclarationError, match="fractions names 'm'"):
        scorer(name="wrong", version="1", columns=VOWELS, fractions=("m",))
