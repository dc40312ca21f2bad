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
_ERROR = "an error"
_AT_ONCE = 40  # expressions of one query: each query has its fixed costs


class Line(NamedTuple):
    """An expression of the page, the rows that it is asked of, and the answer of each engine as Python shows it."""

    expression: str
    rows: str
    spark: str
    sail: str


def lines() -> Iterator[Line]:
    """The lines of the page's blocks of SQL."""
    for before, block in re.findall(r"(.*?)```sql\n(.*?)```", _PAGE.read_text(), re.DOTALL):
        if values := re.search(r"Of the rows `(.*?)`:", before):
            named = f" FROM {values[1]}"
        rows = named if "Of the rows" in before else ""
        for text in block.splitlines():
            expression, _, answer = text.partition("  -- ")
            apart = re.fullmatch(r"Spark: (.*)  Sail: (.*)", answer)
            yield Line(expression, rows, *(apart.groups() if apart else (answer, answer)))


def test_the_page_lists_each_expression_once_and_differences_as_such() -> None:
    """Some hundreds of lines; a line with two answers is under "Different", and the answers differ."""
    found = list(lines())
    assert len({line.expression for line in found}) == len(found) > 250
    different = _PAGE.read_text().partition("## Different")[2]
    for line in found:
        assert (line.spark != line.sail) == (f"\n{line.expression}  -- " in different), line


@on_spark
def test_an_engine_answers_as_the_page_says(spark: SparkSession) -> None:
    """Every expression, also those that end in an error."""
    answers = {line: line.sail if is_embedded(spark) else line.spark for line in lines()}
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
