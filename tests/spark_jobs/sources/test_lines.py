"""Readers of lines: as many rows and refusals come out as lines went in, whatever marks stand in the fields."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_features.formats.log_lines import log_records
from spark_jobs.filters.contamination.eval_set import read_eval_set
from spark_jobs.sources.config.source_config import FilesSource
from spark_jobs.sources.formats.csv_records import csv_columns, csv_records
from spark_jobs.sources.formats.jsonl_records import jsonl_records
from spark_jobs.sources.records.records import Record, Refused
from tests.tiers import tries

MAPPING = FilesSource(path="x", text_column="body", id_column="id")
LOG = FilesSource(path="x", line_pattern="(?P<id>[^ ]+) (?P<body>.*)", text_column="body", id_column="id")
MARKS = ('"', '""', "'", "\\", "\\n", ",", ";", "|", "#", "[", "{", "`", "\u2028", "\x85", "\x0b", "\x1c", "NULL", "")
TEXTS = st.tuples(st.sampled_from(MARKS), st.sampled_from(MARKS), st.sampled_from(MARKS)).map(
    lambda marks: f"{marks[0]}one{marks[1]}two{marks[2]}"
)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


def tsv(rows: Iterable[list[str]], end: str) -> bytes:
    """Rows of TSV as they are."""
    return "".join("\t".join(row) + end for row in rows).encode()


def quoted(rows: Iterable[list[str]], end: str, delimiter: str = ",") -> bytes:
    """Rows of CSV as programs write them."""
    written = io.StringIO(newline="")
    csv.writer(written, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator=end).writerows(rows)
    return written.getvalue().encode()


def jsonl(rows: Iterable[list[str]], end: str) -> bytes:
    """Rows as lines of JSON, of which the first named them."""
    return "".join(json.dumps({"id": one, "body": body}) + end for one, body in list(rows)[1:]).encode()


def log(rows: Iterable[list[str]], end: str) -> bytes:
    """Rows as lines of a log, of which the first named them."""
    return "".join(f"{one} {body}{end}" for one, body in list(rows)[1:]).encode()


def read_csv(data: bytes, delimiter: str = ",") -> Iterator[Record | Refused]:
    """Records of CSV or TSV."""
    return csv_records(io.BytesIO(data), delimiter, MAPPING, 1000)


READERS: dict[str, tuple[Callable[..., bytes], Callable[[bytes], Iterator[Record | Refused]]]] = {
    "tsv": (tsv, lambda data: read_csv(data, "\t")),
    "tsv in quotes": (lambda rows, end: quoted(rows, end, "\t"), lambda data: read_csv(data, "\t")),
    "csv": (quoted, read_csv),
    "jsonl": (jsonl, lambda data: jsonl_records(io.BytesIO(data), MAPPING, 1000)),
    "log": (log, lambda data: log_records(io.BytesIO(data), LOG, 1000)),
}


@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=tries(2000))
@given(texts=st.lists(TEXTS, max_size=8), end=ENDS)
def test_every_line_is_a_row_with_its_text(reader: str, texts: list[str], end: str) -> None:
    """Marks of other dialects are characters, at the head, in the midst and at the end of a field."""
    write, read = READERS[reader]
    rows = [["id", "body"], *([str(number), text] for number, text in enumerate(texts))]
    found = list(read(write(rows, end)))
    assert [(one.record_id, one.text) for one in found if isinstance(one, Record)] == [
        (str(number), text.rstrip() if reader == "log" else text) for number, text in enumerate(texts)
    ]
    assert len(found) == len(texts)


@settings(max_examples=tries(5000, 100))
@given(st.lists(st.text('a",', max_size=7), max_size=12), ENDS)
def test_what_is_no_csv_costs_one_line(lines: list[str], end: str) -> None:
    """Of any lines of CSV: each begins a row or a refusal, or lies in a row that Python's reader has too."""
    data = ["a,body", *lines]
    found = list(csv_records(io.BytesIO(end.join(data).encode()), ",", FilesSource(path="x", text_column="body"), 99))
    at = 1
    for one in found:
        assert one.number is not None and not "".join(data[at : one.number - 1]).strip()  # blank lines are no rows
        at = one.number
        if isinstance(one, Record):
            row = next(csv.reader(io.StringIO(end.join(data[at - 1 :]), newline=""), strict=True))
            assert row[1] == one.text
            at += end.join(row).count(end)
        elif "fields, the header has" in one.refusal.detail:
            row = next(csv.reader(io.StringIO(end.join(data[at - 1 :]), newline=""), strict=True))
            at += end.join(row).count(end)
    assert not "".join(data[at:]).strip()


def test_an_open_quote_swallows_no_row() -> None:
    """In CSV the rows behind it land; in TSV it is a character; in a header it is a fault of the file."""
    lines = b'id,body\n1,"one\n2,two\n3,"three\n4,four\n'
    assert [(one.number, isinstance(one, Record)) for one in read_csv(lines)] == [
        (2, False),
        (3, True),
        (4, False),
        (5, True),
    ]
    found = list(read_csv(lines.replace(b",", b"\t"), "\t"))
    assert [one.text for one in found if isinstance(one, Record)] == ['"one', "two", '"three', "four"]
    (fault,) = read_csv(b'id,"body\n1,one\n')
    assert isinstance(fault, Refused) and fault.number is None and "the header: not CSV" in fault.refusal.detail


def test_many_open_quotes_are_read_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in which every row would be read again to its end is no CSV, and that is told."""
    monkeypatch.setattr("spark_jobs.sources.formats.csv_records.LONG_BYTES", 1000)
    found = list(read_csv(b"id,body\n" + b'a","b\n' * 20_000))
    assert len(found) < 20_000 and all(isinstance(one, Refused) for one in found)
    assert "not CSV in lines" in found[-1].refusal.detail  # type: ignore[union-attr]


def test_lines_that_end_with_cr_alone_are_lines() -> None:
    """As old Macs wrote them; a file that has LF in its beginning keeps its CRs."""
    found = list(read_csv(b'id,body\r1,one\r2,"two\rlines"\r3,three'))
    assert [(one.number, one.text) for one in found if isinstance(one, Record)] == [
        (2, "one"),
        (3, "two\rlines"),
        (5, "three"),
    ]
    assert csv_columns(io.BytesIO(b"id,body\r1,one\r"), ",", 1000) == ["id", "body"]
    found = list(log_records(io.BytesIO(b"1 10%\r20%\n2 done\n"), LOG, 1000))
    assert [one.text for one in found if isinstance(one, Record)] == ["10%\r20%", "done"]


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
@settings(max_examples=tries(300))
@given(texts=st.lists(TEXTS, min_size=1, max_size=6), end=ENDS)
def test_every_line_of_an_eval_set_is_a_row(
    tmp_path_factory: pytest.TempPathFactory, kind: str, texts: list[str], end: str
) -> None:
    """Its items are what stands in the lines."""
    write = {"csv": quoted, "tsv": tsv, "jsonl": jsonl}[kind]
    path = tmp_path_factory.mktemp("evals") / f"e.{kind}"
    rows = [["id", "body"], *([str(number), f"{text} {number}"] for number, text in enumerate(texts))]
    path.write_bytes(write(rows, end))
    found = read_eval_set("e", path, ["body"])
    assert found.row_count == len(texts) and sorted(item.text for item in found.items) == sorted(
        body for _, body in rows[1:]
    )


def test_small_inputs_of_others_land(real_data: Path) -> None:
    """Each row of TSV with quotes, as it stands."""
    for name, texts in (("R1-inner", ['"one" is a word', "two"]), ("R1-min", ['"one', "two", 'three"'])):
        data = (real_data / "bugs" / f"{name}.tsv").read_bytes()
        mapping = FilesSource(path="x", text_column="text")
        found = list(csv_records(pa.BufferReader(data), "\t", mapping, 1000))
        assert [one.text for one in found if isinstance(one, Record)] == texts
