"""Tables come back from CSV as they were written: by RFC 4180, by Spark, and by every dialect of Python's `csv`."""

from __future__ import annotations

import csv
import io
import random
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.sources.config.source_config import FilesSource
from spark_jobs.sources.formats.csv_records import csv_records
from spark_jobs.sources.records.records import Record, Refused

LETTERS = ["a", "b ", '"', "\\", ",", "\n", "\\n", '\\"', "C:\\nets", "\u00e9", "''"]


def table(seed: int, letters: list[str]) -> list[list[str]]:
    """Random rows; none is empty, because an empty text in the only other field is a missing one."""
    source = random.Random(seed)
    return [
        [str(n), "x" + "".join(source.choices(letters, k=source.randrange(9))), source.choice(letters) + "z"]
        for n in range(source.randrange(1, 12))
    ]


def read(data: str, delimiter: str = ",", escape: str = "auto") -> list[list[Any]]:
    """The table that is read."""
    options: dict[str, Any] = {"csv_escape": escape}
    source = FilesSource(path="x", text_column="text", id_column="id", metadata_columns=("more",), **options)
    found = csv_records(pa.BufferReader(data.encode()), delimiter, source, 10_000)
    return [[one.record_id, one.text, one.metadata["more"]] if isinstance(one, Record) else [one] for one in found]


def written(rows: list[list[str]], **dialect: Any) -> str:
    """A file with a header."""
    file = io.StringIO(newline="")
    csv.writer(file, **dialect).writerows([["id", "text", "more"], *rows])
    return file.getvalue()


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
def test_rfc_4180_is_never_taken_for_another_dialect(seed: int, quoting: int) -> None:
    """Backslashes anywhere in tables whose quotes are written twice are letters."""
    rows = table(seed, LETTERS)
    assert read(written(rows, quoting=quoting)) == rows


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_backslashes_that_are_declared_are_undone(seed: int, quoting: int) -> None:
    """Python's dialect with an escape character, for any table."""
    rows = table(seed, LETTERS)
    data = written(rows, quoting=quoting, doublequote=False, escapechar="\\")
    assert read(data, escape="backslash") == rows


def spark_line(row: list[str]) -> str:
    """A row as Spark 4.0.1 writes it (checked against its files): quotes where needed, escapes in quotes alone."""
    return ",".join(
        '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' if any(c in text for c in ',"\n\r') else text
        for text in row
    )


@pytest.mark.parametrize("seed", range(60))
def test_tables_of_spark_are_told_by_their_rows(seed: int) -> None:
    r"""From the first `\"` before a letter on it is plain what a backslash is, in the rows above it too."""
    rows = [*table(seed, LETTERS), ["z", 'She said "mend the net" and left', "z"]]
    assert read("\n".join(map(spark_line, [["id", "text", "more"], *rows])) + "\n") == rows


def test_nulls_and_escapes_of_databases_are_read_where_they_are_declared() -> None:
    r"""MySQL and PostgreSQL write null as `\N`, and in TSV a tab as `\t` or behind a backslash."""
    data = "id\ttext\tmore\n1\ta\\tb\\\\c\tx\n2\tnext\\\nline\ty\\\tz\n"
    assert read(data, "\t", "backslash") == [["1", "a\tb\\c", "x"], ["2", "next\nline", "y\tz"]]
    assert "null" in str(read("id,text,more\n1,\\N,x\n", ",", "backslash"))


def test_a_row_that_a_backslash_breaks_names_the_setting() -> None:
    r"""Where the first backslash says nothing and the next is 8 MB behind it, the refusal says what to state."""
    plain = "".join(f'{n},"C:\\d","{"x" * 1000}"\n' for n in range(9_000))
    data = f'id,name,text\n{plain}9000,"a","he said \\"no\\", twice"\n'.encode()
    source = FilesSource(path="x", text_column="text")
    found = list(csv_records(io.BytesIO(data), ",", source, 1 << 20))
    assert sum(isinstance(row, Record) for row in found) == 9_000
    (fault,) = (row for row in found if isinstance(row, Refused))
    assert "`csv_escape: backslash`" in fault.refusal.detail


@pytest.mark.nightly
def test_a_file_of_faults_takes_time_as_its_length() -> None:
    """Every row is no CSV in every way to read a backslash: what it means is told without a copy for each fault."""
    rows = [f'"a"{number}\\,b' for number in range(40_000)]
    found = read("\n".join(["id,text,more", *rows, ""]))
    assert len(found) == len(rows) and all(isinstance(refused, Refused) for (refused,) in found)
