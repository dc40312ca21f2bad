"""Conditions that people write: what holds of which rows, and one line where nothing can be asked so."""

from __future__ import annotations

import pytest
from pyiceberg.table import Table as IcebergTable

from dagster_project.exceptions import CommandError
from dagster_project.inspect.conditions import parse_condition
from headrace.tables.settings import settings_at
from spark_jobs.filters.verdicts import VERDICTS
from spark_jobs.lake.files.lookups import first_rows
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.inspect.test_lake_status import put


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> IcebergTable:
    """Documents that fail no, one or two rules, in two increments."""
    catalogue = open_catalogue(settings_at(tmp_path_factory.mktemp("conditions")))
    for increment, fails in enumerate(([], ["long"], ["short", "dull"]), start=0):
        failed = [{"rule": rule, "value": float(increment), "threshold": 1.0} for rule in fails]
        row = {"doc_id": str(increment), "kept": not fails, "failed": failed}
        put(catalogue, "notes", VERDICTS, increment, [row])
    return catalogue.load_table("notes.verdicts")


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("kept", ["0"]),
        ("not kept", ["1", "2"]),
        ("not (kept or doc_id = '2')", ["1"]),
        ("kept = false and increment > 1", ["2"]),
        ("failed.rule = 'dull'", ["2"]),
        ("failed.element.rule in ('long', 'dull')", ["1", "2"]),
        ("not failed.rule = 'dull'", ["0", "1"]),
        ("failed.rule like 'l%' or kept", ["0", "1"]),
        ("failed.value >= 2 and not kept", ["2"]),
        ("doc_id = 'kept'", []),
        ("failed is not null and kept", ["0"]),
        ("failed.rule like '%l_'", ["2"]),
        ("failed.rule contains 'ON' or failed.rule like '_hort'", ["1", "2"]),
        ("doc_id not like '%2' and not doc_id contains '0'", ["1"]),
        ("doc_id like '1%'", ["1"]),
        ("doc_id contains '%'", []),
    ],
)
def test_rows_that_meet_a_condition(verdicts: IcebergTable, where: str, expected: list[str]) -> None:
    """Boolean columns alone, negated and compared; a list where one of its elements does."""
    condition, elements = parse_condition(verdicts.schema(), where, ())
    rows = first_rows(verdicts, ["doc_id"], 10, condition, elements)
    assert sorted(rows["doc_id"].to_pylist()) == expected


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("failed.rle = 'x'", "the elements of the list have no 'rle'; did you mean 'rule'"),
        ("failed = 'x'", "failed has the fields rule, value, threshold; ask of one of them"),
        ("failed.value contains '1'", "failed.value is a double, no text"),
        ("rule contains '1'", "no column rule"),
        ("kept kept", "not a condition; write e.g."),
        ("kept and doc_id = '0", "not a condition; write e.g."),
        ("failed.rule = 'x'", "failed holds texts, which the declaration of the table hides"),
    ],
)
def test_what_cannot_be_asked_is_one_line(verdicts: IcebergTable, where: str, said: str) -> None:
    """With what can be asked instead."""
    with pytest.raises(CommandError, match=said.replace("'", ".")):
        parse_condition(verdicts.schema(), where, ["failed"])
