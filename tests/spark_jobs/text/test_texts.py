"""The step that makes texts."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from spark_jobs.text.compared_texts import letters_column
from spark_jobs.text.normalization import RULES, normalize
from spark_jobs.text.texts import TEXTS, TextsConfig, texts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

CONTENTS = [
    "plain text\n",
    "def f():\r\n    return 'é'\r\n",
    "old mac\rfile\r",
    "e\u0301\u0327 decomposed, long enough to be compared by its letters\n",
    "",
    "A Title: long enough to be compared by its letters, twice\n",
    "a title LONG enough to be compared by its letters twice",
]


def documents(spark: SparkSession, order: int = 1) -> DataFrame:
    """One document per content, in ascending or descending order."""
    rows = [(row % 4, f"{row:032x}", "prose", "en" if row else None, text, "more") for row, text in enumerate(CONTENTS)]
    names = "shard int, doc_id string, kind string, language string, content string, other string"
    return spark.createDataFrame(rows[::order], names)


def texts_of(frame: DataFrame, min_letters: int = TextsConfig().min_letters) -> DataFrame:
    """Rows of the table."""
    return texts(frame, TextsConfig(min_letters=min_letters)).frames[TEXTS.name]


def by_id(frame: DataFrame) -> list[Row]:
    """Rows by doc_id; sorting them here spares Spark a second run of the step."""
    return sorted(frame.collect(), key=lambda row: str(row.doc_id))


def test_every_document_has_its_text(spark: SparkSession) -> None:
    """One row per document: text, letters and edits as the kernels say."""
    found = {row.doc_id: row for row in texts_of(documents(spark)).collect()}
    assert len(found) == len(CONTENTS)
    for number, content in enumerate(CONTENTS):
        row = found[f"{number:032x}"]
        text, edits = normalize(content)
        assert row.content == text
        assert row.letters_sha256 == letters_column(pa.array([text]), pa.array(["prose"]), 32)[0].as_py()
        assert [RULES.index(edit.rule) for edit in row.edits] == edits.rule.tolist()
        assert [edit.start for edit in row.edits] == edits.start.tolist()
        assert (row.shard, row.kind, row.language) == (number % 4, "prose", "en" if number else None)
    assert found[f"{5:032x}"].letters_sha256 == found[f"{6:032x}"].letters_sha256 is not None


def test_min_letters_decides_who_is_compared(spark: SparkSession) -> None:
    """With a bound of one letter only the empty text has no hash."""
    rows = texts_of(documents(spark), min_letters=1).where("letters_sha256 is null").collect()
    assert [row.content for row in rows] == [""]


def test_repeated_blocks_are_cut_where_the_dataset_says_so(spark: SparkSession) -> None:
    """The first place stays; edits and letters are those of the cut text, and other texts are as without."""
    block = " ".join(f"word{number}" for number in range(40))
    rows = [(0, f"{9:032x}", "prose", "en", f"{block}\r\nend\r\n{block}\r\n", "more")]
    frame = documents(spark)
    frame = frame.union(spark.createDataFrame(rows, frame.schema))
    config = TextsConfig.model_validate({"repeated_blocks": {"least_words": 30}})
    found = by_id(texts(frame, config).frames[TEXTS.name])
    assert found[:-1] == by_id(texts_of(documents(spark)))
    assert found[-1].content == f"{block}\nend\n"
    assert [edit.rule for edit in found[-1].edits] == ["line_ends", "line_ends", "repeated_block"]
    assert found[-1].letters_sha256 == letters_column(pa.array([found[-1].content]), pa.array(["prose"]), 32)[0].as_py()


@pytest.mark.nightly
def test_texts_are_identical_for_1_2_and_7_partitions(spark: SparkSession) -> None:
    """Neither the number of partitions nor the order of rows shows."""
    plain = by_id(texts_of(documents(spark)))
    for partitions in (1, 2, 7):
        moved = by_id(texts_of(documents(spark, order=-1).repartition(partitions)))
        assert moved == plain


def test_rows_fit_the_table(spark: SparkSession) -> None:
    """Columns and types are those declared, and every row passes the blocking checks."""
    frame = texts_of(documents(spark))
    edit = "struct<rule:string,start:bigint,end:bigint,replacement_length:bigint>"
    assert frame.columns == [column.name for column in TEXTS.columns]
    assert [kind for _, kind in frame.dtypes] == ["int", *["string"] * 5, f"array<{edit}>"]
    passed = frame.selectExpr(*(f"count_if({check.predicate}) as {check.name}" for check in TEXTS.checks)).first()
    assert passed is not None
    assert set(passed) == {len(CONTENTS)}


def test_checks_hold_alike_in_sql_and_in_arrow(spark: SparkSession) -> None:
    """Workers that write the rows check them; what they find is what the declared predicates say."""
    rows = texts_of(documents(spark)).toArrow().to_pylist()
    rows[1]["content"] = "line\r\n"
    rows[2]["edits"] = [{"rule": "nfc", "start": 2, "end": 2, "replacement_length": 1}]
    rows[3]["edits"] = [*rows[1]["edits"], {"rule": "nfc", "start": -1, "end": 2, "replacement_length": 1}]
    rows[4]["edits"] = [{"rule": "nfc", "start": 0, "end": 2, "replacement_length": -1}]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows)).coalesce(1)
    found = frame.selectExpr(*(f"{check.predicate} as {check.name}" for check in TEXTS.checks)).toArrow()
    arrow_rows = pa.RecordBatch.from_pylist(rows)
    for check, bad in zip(TEXTS.checks, (1, 3), strict=True):
        expected = found.column(check.name).to_pylist()
        assert check.holds is not None
        assert check.holds(arrow_rows).tolist() == expected
        assert check.holds(arrow_rows.slice(2)).tolist() == expected[2:]
        assert expected.count(False) == bad


def test_declarations_load_without_spark() -> None:
    """Dagster loads every step in seconds: pyspark, pandas and matplotlib wait until rows are computed."""
    steps = (
        "text.texts",
        "text.signals",
        "filters.verdicts",
        "dedup.membership.members",
        "dedup.membership.exact_duplicates",
        "dedup.removal.survivors",
    )
    code = f"import sys\nfor name in {(*steps, 'code.ordered')}: __import__('spark_jobs.' + name)\n"
    code += "print(sorted({'pyspark', 'pandas', 'matplotlib', 'numba'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
