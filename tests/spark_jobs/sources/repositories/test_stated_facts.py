"""What is stated about repositories: in a file of facts, or in columns of records."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.listed_file import ListedFile
from spark_jobs.sources.listing.changes import discover
from spark_jobs.sources.reading.rows import ReadingRules
from spark_jobs.sources.records.facts import Facts, stated_facts, stated_lines
from spark_jobs.sources.records.records import Refused
from tests.spark_jobs.sources.conftest import read_file

Configs = Callable[..., DocumentsConfig]


def test_keys_are_columns_and_all_else_is_metadata() -> None:
    """Stars are metadata too, as digits; a licence that is none of SPDX is kept in its words."""
    values = {
        "repository": "valkey",
        "fork_of": "redis",
        "stars": 24000.0,
        "licence": "bsd-3-clause",
        "topics": ["database"],
        "version": None,
        "owner": {"name": "é"},
        "archived": False,
    }
    metadata = {"stars": "24000", "owner": '{"name": "é"}', "archived": "false"}
    expected = Facts("valkey", licence="BSD-3-Clause", fork_of="redis", topics=["database"], metadata=metadata)
    assert stated_facts("valkey", values) == (expected, None)
    assert stated_facts("x", {"licence": "ours", "metadata": {"a": 1}}) == (
        Facts("x", licence="LicenseRef-stated-ours", metadata={"licence": "ours", "a": "1"}),
        None,
    )


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("stars", "many", "stars is many, not a whole number"),
        ("stars", True, "stars is true, not a whole number"),
        ("stars", -1, "stars is -1, not a whole number"),
        ("fork_of", 7, "fork_of is 7, not a text"),
        ("topics", "web", "topics is web, not a list of texts"),
        ("stars", float("nan"), None),
        ("stars", "17", None),
    ],
)
def test_a_value_that_cannot_be_read_is_told_and_kept(key: str, value: Any, said: str | None) -> None:
    """It stays in the metadata, so that nothing is lost where it stands in a record."""
    facts, fault = stated_facts("x", {key: value})
    assert fault == said
    assert said is None or list(facts.metadata) == [key]


def test_bad_lines_are_refused_and_the_others_count() -> None:
    """Each with its number and its reason; of lines about one repository the first counts."""
    lines = [
        b'{"repository": "a", "stars": 1}',
        b"{broken",
        b'["a"]',
        b'{"name": "b"}',
        b'{"repository": 7}',
        b'{"repository": "c", "stars": "many"}',
        b'{"repository": "a", "stars": 2}',
        b"",
        b'{"repository": "d", "fork_of": "\\ud800"}',
        b'{"repository": "e", "fork_of": "a"}',
    ]
    found = list(stated_lines(pa.BufferReader(b"\n".join(lines))))
    assert [one for one in found if isinstance(one, Facts)] == [
        Facts("a", metadata={"stars": "1"}),
        Facts("e", fork_of="a"),
    ]
    assert [(one.number, one.refusal.reason) for one in found if isinstance(one, Refused)] == [
        (2, "bad_record"),
        (3, "bad_record"),
        (4, "bad_record"),
        (5, "bad_record"),
        (6, "wrong_type"),
        (7, "repeated_record"),
        (9, "undecodable"),
    ]


def test_facts_of_columns_need_a_repository_and_no_other_file(files_config: Configs) -> None:
    """Refused when the config is made."""
    with pytest.raises(ValidationError, match="repository_column is missing"):
        files_config(text_column="body", fact_columns={"stars": "n"})
    with pytest.raises(ValidationError, match="choose one"):
        files_config(text_column="body", repository_column="r", fact_columns={"stars": "n"}, repositories="x.jsonl")


def readers(config: DocumentsConfig, empty_arrivals: pa.Table) -> dict[str, str]:
    """Reader of every listed file."""
    listing = discover(config, empty_arrivals)
    assert listing is not None
    return dict(zip(listing["path"].to_pylist(), listing["reader"].to_pylist(), strict=True))


def test_the_file_of_facts_is_found_in_the_root(
    files_config: Configs, data: Path, tmp_path: Path, empty_arrivals: pa.Table
) -> None:
    """Beside directories, below `path`, or where it is said to be; records without a repository may have its name."""
    (data / "redis").mkdir()
    (data / "redis" / "a.c").write_text("int a;")
    (data / "records.jsonl").write_text("{}")
    (data / "repositories.jsonl").write_text("{}")
    (tmp_path / "facts.jsonl").write_text("{}")
    code = DocumentsConfig.model_validate(
        {"dataset": "code", "source": {"kind": "python_code", "directories": [f"{data}/*"]}}
    )
    assert readers(code, empty_arrivals) == {"a.c": "text", "repositories.jsonl": "repositories"}
    mapped = {"text_column": "t", "glob": "*.jsonl", "repository_column": "r"}
    plain = {"records.jsonl": "jsonl", "repositories.jsonl": "jsonl"}
    found = {**plain, "repositories.jsonl": "repositories"}
    assert readers(files_config(**mapped), empty_arrivals) == found
    assert readers(files_config(text_column="t", glob="*.jsonl"), empty_arrivals) == plain
    assert readers(files_config(**mapped, fact_columns={"stars": "n"}), empty_arrivals) == plain
    named = files_config(**mapped, repositories=str(tmp_path / "facts.jsonl"))
    assert readers(named, empty_arrivals) == {**plain, "facts.jsonl": "repositories"}


def test_an_unchanged_file_of_facts_is_read_beside_changed_ones(
    files_config: Configs, data: Path, landing: Any
) -> None:
    """It lands once; where only others are new it gives its facts again, without arrivals and without touching."""
    config = files_config(text_column="t", repository_column="r")
    (data / "repositories.jsonl").write_text('{"repository": "x", "fork_of": "y"}\n{broken\n')
    (data / "1.jsonl").write_text('{"t": "one", "r": "x"}')
    os.utime(data / "repositories.jsonl", (1000, 1000))
    _, arrivals = landing.land(config)
    statuses = {row["location"].rpartition("/")[2]: row["status"] for row in arrivals}
    assert statuses["repositories.jsonl#line:2"] == "rejected"
    assert discover(config, pa.Table.from_pylist(landing.arrivals)) is None
    (data / "2.jsonl").write_text('{"t": "two", "r": "x"}')
    listing = discover(config, pa.Table.from_pylist(landing.arrivals))
    assert listing is not None
    (row,) = (row for row in listing.to_pylist() if row["reader"] == "repositories")
    rules = ReadingRules(config.dataset, 1, 1000, config.source)
    (read,) = read_file(ListedFile.of(row), rules)
    assert row["unchanged"] and read["location"] is None
    assert json.loads(read["facts"])["fork_of"] == "y" and not json.loads(read["facts"])["touches"]


def test_an_empty_text_is_no_original() -> None:
    """Tables write it where a repository is no fork."""
    assert stated_facts("a", {"fork_of": "", "licence": "", "stars": ""}) == (Facts("a"), None)
