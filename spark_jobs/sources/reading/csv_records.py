"""Read records from CSV files one by one, in bounded memory; records.py says what records are."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from spark_jobs.sources.reading.records import (
    LINE_SLACK_BYTES,
    LONG_BYTES,
    Record,
    Refused,
    Stream,
    all_lines,
    names_refusal,
    usable_record,
)
from spark_jobs.sources.refusals import Reason, Refusal, RefusedError
from spark_jobs.sources.source_config import FilesSource


def csv_records(stream: Stream, delimiter: str, source: FilesSource, max_bytes: int) -> Iterator[Record | Refused]:
    """Records of a file with a header and one record in each row, whose number is that of its first line.

    Fields may stand in double quotes, and then hold delimiters, line ends and quotes that are written twice (RFC 4180).
    An empty field says nothing, but for the text, which is empty then. Blank lines are no records.

    Args:
        stream: the file, decompressed.
        delimiter: what stands between fields.
        source: the column mapping; every column it names must be in the header.
        max_bytes: as for `jsonl_records`.
    """
    names: list[str] = []
    for row in _csv_rows(stream, delimiter, max_bytes + LINE_SLACK_BYTES):
        if isinstance(row, Refused):
            yield row
        elif not names:
            names = row[1]
            null = Refusal(Reason.BINARY, "null byte in the header; save the file as UTF-8")
            if refusal := null if "\0" in "".join(names) else names_refusal(names, source, "header"):
                yield Refused(None, refusal)
                return
        elif len(row[1]) != len(names):
            yield Refused(row[0], Refusal(Reason.BAD_RECORD, f"{len(row[1])} fields, the header has {len(names)}"))
        else:
            fields = dict(zip(names, row[1], strict=True))
            said = {name: value or None for name, value in fields.items()}
            yield usable_record(row[0], fields[source.text_column or ""], said, source, max_bytes)


def _csv_rows(stream: Stream, delimiter: str, max_bytes: int) -> Iterator[tuple[int, list[str]] | Refused]:
    """Rows that are not blank, each with the number of its first line; bytes that are not UTF-8 are lone surrogates."""
    refused, numbers, found = list[Refused](), list[int](), all_lines(stream, max_bytes)
    held = 0  # bytes of the row's lines

    def lines() -> Iterator[str]:
        nonlocal held
        for line in found:
            if isinstance(line, Refused):
                refused.append(line)
                continue
            numbers.append(line.number)
            held += len(line.data) + 1
            if held > max_bytes:
                detail = f"the row that begins in line {numbers[0]} is longer than {max_bytes} bytes"
                raise RefusedError(Reason.TOO_LARGE, f"{detail}; the rows before it are read")
            data = line.data.removeprefix(b"\xef\xbb\xbf") if line.number == 1 else line.data
            yield data.decode(errors="surrogateescape") + "\n"

    csv.field_size_limit(max_bytes)
    rows = csv.reader(lines(), delimiter=delimiter, strict=True)
    row: list[str] | None = []
    while row is not None:
        try:
            row = next(rows, None)
        except RefusedError as error:
            yield Refused(None, error.refusal)
            return
        except csv.Error as error:
            row = []
            fault = "a quote is not closed" if str(error) == "unexpected end of data" else error
            detail = f"not CSV in lines {numbers[0]} to {numbers[-1]}: {fault}"
            refused.append(Refused(numbers[0], Refusal(Reason.BAD_RECORD, detail)))
        if row and any(line.number is not None and line.number > numbers[0] for line in refused):
            row = []  # a line inside of a quoted field was refused, and the row with it
        yield from refused
        if held > LONG_BYTES:  # a reader keeps the memory of its largest field
            rows = csv.reader(lines(), delimiter=delimiter, strict=True)
        held = 0
        if row and (len(row) > 1 or row[0].strip()):
            yield numbers[0], row
        refused.clear()
        numbers.clear()


def csv_columns(stream: Stream, delimiter: str, max_bytes: int) -> list[str]:
    """Names in the header of a file; none where it has none."""
    return next((row[1] for row in _csv_rows(stream, delimiter, max_bytes) if not isinstance(row, Refused)), [])
