"""Logs become documents by line, by group and by blank line; no pattern and no line holds the reader."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("re2")

from headrace_features.formats.log_lines import log_records
from spark_jobs.exceptions import InputError
from spark_jobs.sources.config.source_config import FilesSource
from spark_jobs.sources.records.records import Record, Refused
from spark_jobs.sources.refusals import Reason

PATTERN = r"(?P<time>\d\d:\d\d) (?P<job>\w+) (?P<message>.*)"
LOG = """  at nothing
10:00 a starts
10:01 a fails
Traceback:

  File "x.py", line 1
10:02 b grüßt

10:03 b ends
"""


def read(text: str | bytes, max_bytes: int = 1000, **mapping: Any) -> list[Record | Refused]:
    """Records of a log in memory."""
    source = FilesSource(path="x", **{"line_pattern": PATTERN, **mapping})
    return list(log_records(io.BytesIO(text if isinstance(text, bytes) else text.encode()), source, max_bytes))


def texts(found: list[Record | Refused]) -> list[str | int | None]:
    """Texts of records, numbers of refusals."""
    return [one.text if isinstance(one, Record) else one.number for one in found]


def test_what_makes_a_document_is_chosen() -> None:
    """A line with what continues it, lines in a row with one value, or all up to a blank line."""
    failed = '10:01 a fails\nTraceback:\n\n  File "x.py", line 1'
    assert texts(read(LOG)) == [1, "10:00 a starts", failed, "10:02 b grüßt", "10:03 b ends"]
    by_job = [1, f"10:00 a starts\n{failed}", "10:02 b grüßt\n\n10:03 b ends"]
    assert texts(read(LOG, lines_by="job")) == by_job
    blocks = read("10:00 a x\n  y\n\n\n10:01 b z\n10:02 c w\n", lines_by="blank_line")
    assert texts(blocks) == ["10:00 a x\n  y", "10:01 b z\n10:02 c w"]
    refusing = read(LOG, unmatched_lines="refuse")
    assert [one.number for one in refusing if isinstance(one, Refused)] == [1, 4, 6]


def test_groups_are_columns(landing: Any, files_config: Any, data: Path) -> None:
    """Text, id and metadata by the groups of the first entry; `.log` without a pattern has no reader, as before."""
    (data / "app.log").write_text(LOG)
    mapping = {"line_pattern": PATTERN, "text_column": "message", "id_column": "time", "metadata_columns": ("job",)}
    documents, arrivals = landing.land(files_config(**mapping, record_kind="data"))
    assert [(row["path"], row["content"], row["metadata"]) for row in documents][1:3] == [
        ("app.log#10:01", 'fails\nTraceback:\n\n  File "x.py", line 1', {"job": "a"}),
        ("app.log#10:02", "grüßt", {"job": "b"}),
    ]
    assert {row["kind"] for row in documents} == {"data"}
    assert [row["reason"] for row in arrivals] == ["bad_record", None]
    _, arrivals = landing.__class__().land(files_config())
    assert [row["reason"] for row in arrivals] == ["unknown_format"]


def test_patterns_that_cannot_be_used_are_refused_before_work(landing: Any, files_config: Any, data: Path) -> None:
    """What RE2 does not take, and columns that are no group."""
    (data / "app.log").write_text(LOG)
    for said, mapping in (
        ("invalid perl operator", {"line_pattern": r"(?=a)b"}),
        ("no group 'level'", {"line_pattern": PATTERN, "id_column": "level"}),
        ("no group 'host'", {"line_pattern": PATTERN, "lines_by": "host"}),
    ):
        with pytest.raises(InputError, match=said):
            landing.land(files_config(**mapping))


def test_no_pattern_and_no_line_holds_the_reader() -> None:
    """A pattern that others match in exponential time, a line of 30 MB, bytes that are no text, null bytes."""
    evil = {"line_pattern": r"(?P<x>(a*)*)*b"}
    found = read(b"a" * (1 << 20) + b"\n" + b"a" * 2000 + b"b\n", **evil)
    assert [one.refusal.reason for one in found if isinstance(one, Refused)] == [Reason.BAD_RECORD, Reason.TOO_LARGE]
    found = read(b"10:00 a " + b"x" * (30 << 20) + b"\n10:01 b y\n10:02 c \xff\n10:03 d \0\n10:04 e z\r\n")
    assert texts(found) == [1, 3, "10:01 b y", 4, "10:04 e z"]
    assert texts(read(b"")) == []
    (cut,) = read("é\n", line_pattern=r"(?P<x>\C)", text_column="x")
    assert isinstance(cut, Refused) and cut.refusal.reason == Reason.UNDECODABLE
    (empty,) = read("a\n", line_pattern=r"(?P<x>b*)a(?P<y>c)?", text_column="x", metadata_columns=("y",))
    assert isinstance(empty, Record) and (empty.text, empty.metadata) == ("", {})
