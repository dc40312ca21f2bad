"""The page of SQL that both engines answer alike, or not: each half of the tests asks its engine for every line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from pyspark.errors import PySparkException

from spark_jobs.lake.engine.embedded import is_embedded
from tests.tiers import on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAGE = Path(__file__).parents[2] / "docs" / "extend" / "sql.md"
_ALIKE = Path(__file__).with_name("sql_alike.txt")
_ERROR = "an error"
_AT_ONCE = 40  # expressions of one query: each query has its fixed costs


class Line(NamedTuple):
    """An expression of the page, the rows that it is asked of, and the answer of each engine as Python shows it."""

    expression: str
    rows: str
    spark: str
    sail: str


def _line(text: str, rows: str) -> Line:
    expression, _, answer = text.partition("  -- ")
    apart = re.fullmatch(r"Spark: (.*)  Sail: (.*)", answer)
    return Line(expression, rows, *(apart.groups() if apart else (answer, answer)))


def alike() -> Iterator[Line]:
    """Expressions with one answer; a line `# FROM ..` names the rows that those below it are asked of."""
    rows = ""
    for text in _ALIKE.read_text().splitlines():
        if text.startswith("#"):
            rows = text.removeprefix("#")
        else:
            yield _line(text, rows)


def different() -> Iterator[Line]:
    """Expressions with two answers, as the page has them."""
    below = _PAGE.read_text().partition("## Different")[2]
    for before, block in re.findall(r"(.*?)```sql\n(.*?)```", below, re.DOTALL):
        values = re.search(r"Of the rows `(.*?)`:", before)
        yield from (_line(text, f" FROM {values[1]}" if values else "") for text in block.splitlines())


def test_each_expression_is_asked_once_and_the_page_names_its_functions() -> None:
    """Some hundreds of expressions; those of two answers stand on the page."""
    expressions = [line.expression for line in (*alike(), *different())]
    assert len(set(expressions)) == len(expressions) > 250
    assert all(line.spark == line.sail for line in alike()) and all(line.spark != line.sail for line in different())
    listed = re.search(r"these functions:\n\n```text\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    asked = {name for line in alike() for name in re.findall(r"\b([a-z_][a-z_0-9]*)\(", line.expression)}
    assert listed is not None and listed[1].split() == sorted(asked - {"as", "decimal", "in"})


@on_spark
def test_an_engine_answers_as_the_page_says(spark: SparkSession) -> None:
    """Every expression, also those that end in an error."""
    answers = {line: line.sail if is_embedded(spark) else line.spark for line in (*alike(), *different())}
    for rows in {line.rows for line in answers}:
        asked = [line for line, answer in answers.items() if line.rows == rows and answer != _ERROR]
        for first in range(0, len(asked), _AT_ONCE):
            some = asked[first : first + _AT_ONCE]
            (row,) = spark.sql(f"SELECT {', '.join(line.expression for line in some)}{rows}").collect()
            for line, value in zip(some, row, strict=True):
                assert repr(value) == answers[line], line
    for line in (line for line, answer in answers.items() if answer == _ERROR):
        with pytest.raises(PySparkException):
            spark.sql(f"SELECT {line.expression}{line.rows}").collect()
