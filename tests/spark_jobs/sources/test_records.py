"""Records out of Parquet and JSONL: what is usable lands, what is not is told with its number, nothing stops."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import random
import zlib
from decimal import Decimal
from functools import partial
from itertools import accumulate, pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from headrace_features.apis.api_config import ApiSource
from headrace_features.apis.streams import pages_of
from spark_jobs.sources.config.source_config import FilesSource
from spark_jobs.sources.encodings.decoding import Decoded, decode
from spark_jobs.sources.formats.csv_records import csv_records
from spark_jobs.sources.formats.jsonl_records import jsonl_records
from spark_jobs.sources.formats.parquet_records import parquet_records
from spark_jobs.sources.opening.compression import decompressed
from spark_jobs.sources.opening.gzip_members import GzipMembers
from spark_jobs.sources.paged.page_records import page_records
from spark_jobs.sources.records.plain_values import exact_number
from spark_jobs.sources.records.records import FileLine, Record, Refused, numbered_lines
from spark_jobs.sources.refusals import Reason
from tests.spark_jobs.sources.one_by_one import one_by_one
from tests.tiers import sampled, tries

MAPPING = FilesSource(
    path="x",
    text_column="body",
    id_column="id",
    repository_column="repo",
    language_column="lang",
    licence_column="licence",
    metadata_columns=("stars", "tags"),
)
TEXT_ONLY = FilesSource(path="x", text_column="body")


def read_jsonl(data: bytes, mapping: FilesSource = TEXT_ONLY, max_bytes: int = 1000) -> list[Record | Refused]:
    """Records of JSON lines in memory."""
    return list(jsonl_records(pa.BufferReader(data), mapping, max_bytes))


def read_parquet(table: pa.Table, mapping: FilesSource = TEXT_ONLY, **options: object) -> list[Record | Refused]:
    """Records of a Parquet file in memory."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return one_by_one(parquet_records(pa.BufferReader(sink.getvalue()), mapping, 1000))


def read_csv(data: bytes, mapping: FilesSource = TEXT_ONLY, delimiter: str = ",") -> list[Record | Refused]:
    """Records of a CSV file in memory."""
    return list(csv_records(pa.BufferReader(data), delimiter, mapping, 1000))


def reasons(records: list[Record | Refused]) -> list[tuple[int | None, str]]:
    """Number and reason of every refusal."""
    return [(record.number, str(record.refusal.reason)) for record in records if isinstance(record, Refused)]


def texts(records: list[Record | Refused]) -> list[str]:
    """The texts that are usable."""
    return [record.text for record in records if isinstance(record, Record)]


def test_mapped_columns_are_taken_and_others_left() -> None:
    """Strings stay as they are, other values become JSON, null is nothing."""
    record = {"body": "t", "id": 17, "repo": "r", "lang": "en", "licence": "mit", "stars": 3.5, "tags": ["é"], "x": 1}
    expected = Record(1, "t", "17", "r", "en", "mit", "prose", {"stars": "3.5", "tags": '["é"]'}, {})
    nothing = Record(2, "", None, None, None, None, "prose", {}, {})
    lines = json.dumps(record).encode() + b'\n{"body": "", "id": null, "stars": null}\n'
    assert read_jsonl(lines, MAPPING) == [expected, nothing]
    table = pa.Table.from_pylist([record, {"body": "", "id": None}])
    assert read_parquet(table, MAPPING) == [expected, nothing]


def test_the_kind_comes_from_its_column_or_is_that_of_all_records() -> None:
    """An empty kind is the stated one; one that nobody knows refuses the record and names the nearest."""
    mapping = FilesSource(path="x", text_column="body", kind_column="what", record_kind="data")
    rows = [{"body": "a", "what": "code"}, {"body": "b", "what": None}, {"body": "c", "what": "proze"}]
    for records in (
        read_jsonl("\n".join(map(json.dumps, rows)).encode(), mapping),
        read_parquet(pa.Table.from_pylist(rows), mapping),
    ):
        assert [record.kind for record in records if isinstance(record, Record)] == ["code", "data"]
        assert reasons(records) == [(3, "unknown_kind")]
        assert "'proze', no kind; did you mean 'prose'?" in records[2].refusal.detail  # type: ignore[union-attr]
    (number,) = read_jsonl(b'{"body": "a", "what": ["code"]}', mapping)
    assert isinstance(number, Refused) and number.refusal.reason == "unknown_kind"


def test_every_bad_line_is_refused_with_its_number_and_the_others_land() -> None:
    """One line for each fault; blank lines count as lines and are no records."""
    lines = [
        b'{"body": "first"}',
        b"",
        b"{not json}",
        b'["a", "list"]',
        b"null",
        b'{"text": "another column"}',
        b'{"body": null}',
        b'{"body": 17}',
        b'{"body": ["no", "text"]}',
        b'{"body": "\xff"}',
        b'{"body": "\\ud800"}',
        b'{"body": "' + b"x" * 1001 + b'"}',
        b"[" * 100_000,
        b'{"body": ' + b"9" * 5000 + b"}",
        b'{"body": "cut',
        b'  {"body": "last"}\r',
    ]
    records = read_jsonl(b"\n".join(lines))
    assert texts(records) == ["first", "last"]
    assert sorted(reasons(records)) == [
        (3, "bad_record"),
        (4, "bad_record"),
        (5, "bad_record"),
        (6, "missing_column"),
        (7, "null_text"),
        (8, "wrong_type"),
        (9, "wrong_type"),
        (10, "undecodable"),
        (11, "undecodable"),
        (12, "too_large"),
        (13, "bad_record"),
        (14, "bad_record"),
        (15, "bad_record"),
    ]
    assert all(len(record.refusal.detail.splitlines()) == 1 for record in records if isinstance(record, Refused))


def test_a_column_in_no_record_is_one_fault_of_the_file() -> None:
    """A mistyped column is told once, with the columns there are, not once for each record."""
    records = read_jsonl(b'{"text": "a", "id": 1}\n{"other": "b"}\n')
    assert reasons(records) == [(None, "missing_column")]
    assert "'body' in any of 2 records; the first has 'text', 'id'" in records[0].refusal.detail  # type: ignore[union-attr]


def test_a_byte_order_mark_before_the_first_line_is_no_fault() -> None:
    """Editors on Windows write one."""
    assert texts(read_jsonl(b'\xef\xbb\xbf{"body": "a"}\n')) == ["a"]


def test_a_huge_line_is_skipped_without_being_held() -> None:
    """Its end is found again, and the next line has the right number."""
    stream = pa.BufferReader(b"first\n" + b"x" * 1_000_000 + b"\nthird\n" + b"y" * 1_000_000)
    numbers = [(line.number, isinstance(line, FileLine)) for line in numbered_lines(stream, 1000)]
    assert numbers == [(1, True), (2, False), (3, True), (4, False)]


@given(
    st.lists(st.binary(max_size=5).map(lambda b: b.replace(b"\n", b"")), max_size=8), st.booleans(), st.integers(1, 9)
)
def test_lines_are_those_of_split(lines: list[bytes], ends: bool, chunk: int) -> None:
    """However the stream is cut into reads: the lines that bytes.split finds, less the blank ones."""

    class Trickle(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(chunk, size or chunk))

    data = b"\n".join(lines) + b"\n" * ends
    found = list(numbered_lines(Trickle(data), 1000))
    assert found == [FileLine(n, line.strip()) for n, line in enumerate(data.split(b"\n"), 1) if line.strip()]


COMPRESS = {
    "gzip": gzip.compress,
    "zstd": zstandard.compress,
    "bz2": bz2.compress,
    "xz": partial(lzma.compress, preset=0),
}


@sampled()
@pytest.mark.parametrize("codec", COMPRESS)
def test_a_cut_archive_lands_what_comes_before_the_cut(codec: str) -> None:
    """However many streams follow each other: records of those that are whole stand, and the fault is told once."""
    draw = random.Random(7)
    for _ in range(tries(300)):
        sizes = [draw.choice((1, 3, 200, draw.randrange(1, 4000))) for _ in range(draw.randint(1, 6))]
        ends = list(accumulate(sizes, initial=0))
        pieces = [
            b"".join(b'{"body": "%d %d"}\n' % (number, number**7) for number in range(*span)) for span in pairwise(ends)
        ]
        packed = [COMPRESS[codec](piece) for piece in pieces]
        whole = list(accumulate(map(len, packed), initial=0))
        cut = draw.choice((draw.randrange(1, whole[-1]), draw.choice(whole[1:]), draw.choice(whole[1:]) - 1))
        begun = max(number for number, start in enumerate(whole) if start < cut)
        least, is_whole, data = ends[begun], cut == whole[begun + 1], bytearray(b"".join(packed)[:cut])
        if codec == "zstd" and draw.random() < 0.2:  # cut or not, what the last begins with is another byte
            data[whole[begun]] ^= 255
            is_whole = False
        records = list(jsonl_records(decompressed(io.BytesIO(data), codec), TEXT_ONLY, 1000))
        landed = texts(records)
        assert landed == [f"{number} {number**7}" for number in range(len(landed))]
        assert len(landed) >= (ends[begun + 1] if is_whole else least)
        assert reasons(records) == [(None, "corrupt_archive")] * (not is_whole)


def test_zstd_lands_blocks_of_a_frame_that_is_cut() -> None:
    """A frame has blocks of 128 KiB; each that is whole is read."""
    data = b"".join(b'{"body": "%d %d"}\n' % (number, number**9) for number in range(40_000))
    packed = zstandard.compress(data)
    records = list(jsonl_records(decompressed(io.BytesIO(packed[: len(packed) // 2]), "zstd"), TEXT_ONLY, 1000))
    assert 16_000 < len(texts(records)) < 24_000
    assert reasons(records) == [(None, "corrupt_archive")]


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_truncated_gzip_gives_every_whole_line(cut: int) -> None:
    """However short the file: what zlib can still tell is read up to the last line end, and the break is told."""
    data = b"".join(b'{"body": "%d"}\n' % number for number in range(20))
    packed = gzip.compress(data)[:-cut]
    whole = zlib.decompressobj(31).decompress(packed).count(b"\n")
    records = list(jsonl_records(GzipMembers(io.BytesIO(packed)), TEXT_ONLY, 1000))
    assert texts(records) == [str(number) for number in range(whole)]
    (told,) = (record for record in records if isinstance(record, Refused))
    assert told.number is None and told.refusal.reason == "corrupt_archive"
    assert told.refusal.detail.startswith(f"breaks off in line {whole + 1}: ")


def test_csv_has_a_header_and_one_record_a_row() -> None:
    """Quoted fields hold delimiters, line ends and quotes; an empty field says nothing, an empty text is one."""
    rows = b'\xef\xbb\xbfbody,id,stars\r\n"a,\r\n ""b"" ",1,3\r\n\r\nplain,,\r\n,3,""'
    mapping = FilesSource(path="x", text_column="body", id_column="id", metadata_columns=("stars",))
    assert read_csv(rows, mapping) == [
        Record(2, 'a,\r\n "b" ', "1", None, None, None, "prose", {"stars": "3"}, {}),
        Record(5, "plain", None, None, None, None, "prose", {}, {}),
        Record(6, "", "3", None, None, None, "prose", {}, {}),
    ]
    assert texts(read_csv(b"id\tbody\n1\ta, b\n", mapping=TEXT_ONLY, delimiter="\t")) == ["a, b"]
    assert texts(read_csv(b"body\n\none column\n \n")) == ["one column"]
    assert read_csv(b"") == read_csv(b"body,id\n") == []


@given(st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=2)))
def test_csv_that_python_writes_is_read_as_it_was(rows: list[list[str]]) -> None:
    """Whatever the texts hold, those of the named column come back."""
    written = io.StringIO()
    csv.writer(written, quoting=csv.QUOTE_ALL).writerows([["body", "other"], *(row[:2] for row in rows)])
    assert texts(read_csv(written.getvalue().encode())) == [row[0] for row in rows]


def test_bad_rows_of_csv_are_refused_with_their_line() -> None:
    """Another number of fields, text after a quote, bytes that are no UTF-8, a quote that nobody closes."""
    bad = [b"2", b"3,a,b", b'4,"x"y', b"5,\xff", b"6," + b"x" * 1001]
    records = read_csv(b"\n".join([b"id,body", b"1,one", *bad, b"7,good", b'8,"open', b"9,z"]))
    assert texts(records) == ["one", "good", "z"]
    assert reasons(records) == [
        (3, "bad_record"),
        (4, "bad_record"),
        (5, "bad_record"),
        (6, "undecodable"),
        (7, "too_large"),
        (9, "bad_record"),
    ]
    told = "not CSV: a quote is not closed; the lines after it are read on their own"
    assert [one.refusal.detail for one in records if isinstance(one, Refused)][-1] == told


def test_csv_files_that_are_read_at_once_have_limits_of_their_own() -> None:
    """Python's `csv` has one limit for the whole process: tasks of two datasets are threads of it."""
    long = b"body\none\n" + b"w" * 3_000_000 + b"\n"
    records = csv_records(pa.BufferReader(long), ",", TEXT_ONLY, 4_000_000)
    first = next(records)
    assert texts(read_csv(b"body\nshort\n")) == ["short"]
    assert texts([first, *records]) == ["one", "w" * 3_000_000]


def test_a_row_of_csv_goes_with_a_line_of_it_that_is_too_long() -> None:
    """Without the line that is too long to be held, its text would be another one."""
    long = b"x" * (2 * 1000 + (1 << 20) + 1)
    records = read_csv(b'id,body\n1,"first\n' + long + b'\nlast"\n2,after\n' + long + b"\n3,end\n")
    assert texts(records) == ["after", "end"]
    assert reasons(records) == [(3, "too_large"), (6, "too_large")]


@pytest.mark.parametrize(
    ("data", "reason", "told"),
    [
        (b"id;body\n1;2\n", Reason.MISSING_COLUMN, "no column 'body' in the header; it has 'id;body'"),
        (b"body,body\n1,2\n", Reason.MISSING_COLUMN, "2 columns are named 'body' in the header"),
        ("id,body\n1,2\n".encode("utf-16-le"), Reason.BINARY, "save the file as UTF-8"),
    ],
)
def test_a_header_against_the_mapping_is_one_fault_of_the_file(data: bytes, reason: Reason, told: str) -> None:
    """Nothing is read, and the detail says what the header has."""
    (fault,) = read_csv(data)
    assert isinstance(fault, Refused) and fault.number is None
    assert fault.refusal.reason == reason and told in fault.refusal.detail


def test_a_null_character_near_the_start_is_refused_in_every_format() -> None:
    """As the bytes of a file are judged: within the first 8,192 of the text, and no further."""
    for text, lands in (("a\0", False), ("x" * 8191 + "\0", False), ("x" * 8192 + "\0", True)):
        found = {
            "text": isinstance(decode(text.encode()), Decoded),
            "utf-16": isinstance(decode(text.encode("utf-16")), Decoded),
        }
        sources = {
            "jsonl": jsonl_records(pa.BufferReader(json.dumps({"body": text}).encode()), TEXT_ONLY, 10_000),
            "csv": csv_records(pa.BufferReader(b"body\n" + text.encode()), ",", TEXT_ONLY, 10_000),
        }
        sink = io.BytesIO()
        pq.write_table(pa.table({"body": [text]}), sink)
        sources["parquet"] = one_by_one(parquet_records(pa.BufferReader(sink.getvalue()), TEXT_ONLY, 10_000))
        for name, (record,) in sources.items():
            found[name] = isinstance(record, Record) or record.refusal.reason != "binary"
        assert found == dict.fromkeys(found, lands)


def test_what_would_not_fit_into_memory_is_refused_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of very many values, a row of CSV over many lines; what stands before or beside them is read."""
    for name in ("LONG_BYTES", "_MOST_BYTES"):
        monkeypatch.setattr(f"spark_jobs.sources.records.records.{name}", 1000)
    lines = b'{"body": "a"}\n{"body": "b", "x": [' + b"[]," * 400 + b"1]}\n" + b'{"body": "c"}\n'
    assert texts(found := read_jsonl(lines, max_bytes=3000)) == ["a", "c"]
    assert reasons(found) == [(2, "too_complex")]
    rows = b"body\na\n" + b'"' + b"b\n" * (1 << 20) + b'"\nc\n'
    assert texts(found := read_csv(rows)) == ["a"] and reasons(found) == [(None, "too_large")]


def test_row_groups_are_one_run_of_rows() -> None:
    """Numbers go on over row groups, and the text column may be large, dictionary or binary."""
    body = [f"row {number}" for number in range(1, 101)]
    for column in (
        pa.array(body),
        pa.array(body, pa.large_string()),
        pa.array(body).dictionary_encode(),
        pa.array([text.encode() for text in body]),
    ):
        records = read_parquet(pa.table({"body": column, "n": range(100)}), row_group_size=7)
        assert [(record.number, record.text) for record in records if isinstance(record, Record)] == list(
            enumerate(body, 1)
        )


def test_bad_rows_of_parquet_are_refused_with_their_number() -> None:
    """Null, too long, and bytes that Parquet calls a string but are no UTF-8."""
    raw = pa.array([b"a", None, b"x" * 1001, b"\xff\xfe", b"b"])
    string = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    records = read_parquet(pa.table({"body": string}))
    assert texts(records) == ["a", "b"]
    assert reasons(records) == [(2, "null_text"), (3, "too_large"), (4, "undecodable")]


@pytest.mark.parametrize(
    ("table", "reason", "told"),
    [
        (
            pa.table({"text": ["a"], "id": [1]}),
            Reason.MISSING_COLUMN,
            "no column 'body' in the file; it has 'text', 'id'",
        ),
        (pa.table({"body": [1, 2]}), Reason.WRONG_TYPE, "is int64, not text"),
        (pa.Table.from_arrays([pa.array(["a"])] * 2, ["body", "body"]), Reason.MISSING_COLUMN, "2 columns are named"),
    ],
)
def test_a_schema_against_the_mapping_is_one_fault_of_the_file(table: pa.Table, reason: Reason, told: str) -> None:
    """Nothing is read, and the detail says what the file has."""
    (fault,) = read_parquet(table)
    assert isinstance(fault, Refused) and fault.number is None
    assert fault.refusal.reason == reason and told in fault.refusal.detail


def test_a_broken_parquet_file_is_one_fault() -> None:
    """No footer, a cut file, a damaged page: told, never raised."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"body": [str(n) * 50 for n in range(5000)]}), sink, compression="zstd")
    whole = sink.getvalue()
    damaged = whole[:2000] + bytes(100) + whole[2100:]
    for data in (b"", b"PAR1", b"not parquet at all", whole[:-20], whole[len(whole) // 2 :], damaged):
        records = list(parquet_records(pa.BufferReader(data), TEXT_ONLY, 1000))
        assert reasons(records) == [(None, "corrupt_file")]


def test_moments_beyond_the_calendar_become_text() -> None:
    """A timestamp that Python's datetime cannot hold stops nothing."""
    moments = pa.array([0, 2**62], pa.timestamp("us"))
    (first, second) = read_parquet(
        pa.table({"body": ["a", "b"], "when": moments}),
        FilesSource(path="x", text_column="body", metadata_columns=("when",)),
    )
    assert isinstance(first, Record) and first.metadata["when"].startswith("1970-01-01")
    assert isinstance(second, Record) and second.metadata["when"]


def test_a_name_that_a_line_has_twice_is_refused() -> None:
    """JSON readers keep the last value without a word; one that says the same again, or that is not mapped, may."""
    lines = ('{"body": "a", "id": 1, "body": "b"}', '{"body": "a", "id": 1, "id": 2}', '{"body": "a", "body": "a"}')
    others = ('{"x": 1, "x": 2, "body": "a"}', '{"body": "a", "in": {"body": 1, "body": 2}}')
    found = read_jsonl("\n".join((*lines, *others)).encode(), MAPPING)
    assert [(one.number, one.refusal.detail) for one in found if isinstance(one, Refused)] == [
        (1, "column 'body' is there twice, with different values"),
        (2, "column 'id' is there twice, with different values"),
    ]
    assert [one.number for one in found if isinstance(one, Record)] == [3, 4, 5]


def test_an_empty_text_names_nothing() -> None:
    """Files without a repository are no repository of the name ""; nor are all of them forks of it."""
    (found,) = read_jsonl(b'{"body": "a", "id": "", "repo": "", "lang": "", "licence": ""}', MAPPING)
    assert isinstance(found, Record) and found[2:6] == (None, None, None, None)


def test_a_name_that_an_item_of_a_page_has_twice_is_refused() -> None:
    """As in lines; by the part of a path that stands in the item itself."""
    source = ApiSource(url="https://x.example", text_column="body", id_column="id", metadata_columns=("m.a",))
    items = (
        b'[{"id": 1, "body": "a", "body": "b"}, {"id": 2, "body": "c", "m": 1, "m": {"a": 2}}, {"id": 3, "body": "d"}]'
    )
    found = list(page_records(items, "", source, "x", 1000))
    assert [isinstance(one, Record) for one in found] == [False, False, True]


NUMBERS = {
    "1.50": "1.5",
    "1e2": "100.0",
    "0.1": "0.1",
    "-0.0": "-0.0",
    "5e-324": "5e-324",
    "1.7976931348623157e308": "1.7976931348623157e+308",
    "0e999": "0.0",
}
EXACT = [
    "123456789012345678901234567890",
    "1e400",
    "-1E+400",
    "1e-400",
    "1e99999999999999999999",
    "1e-99999999999999999999",
    "12345678901234567890.5",
    "3.14159265358979323846264338327950288",
]


def test_numbers_are_exact_or_as_they_were_written() -> None:
    """Of lines, and of pages of an API: none is infinite or rounded, and none of these is a text."""
    values = {**NUMBERS, **{value: value for value in EXACT}}
    source = FilesSource(path="x", text_column="body", id_column="n", metadata_columns=("v",))
    lines = "".join(f'{{"body": "b", "n": {written}, "v": [{written}]}}\n' for written in values)
    found = [record for record in jsonl_records(io.BytesIO(lines.encode()), source, 1000) if isinstance(record, Record)]
    assert [record.record_id for record in found] == list(values.values())
    assert [record.metadata["v"].strip('["]') for record in found] == list(values.values())
    (page,) = pages_of(lines.splitlines())
    api = ApiSource(url="https://a.example", text_column="body", id_column="n")
    for data in (json.dumps(page).encode(), b"[" + b",".join(lines.encode().splitlines()) + b"]"):
        records = page_records(data, "", api, "e", 1000)
        assert [record.record_id for record in records if isinstance(record, Record)] == list(values.values())
    refused = list(jsonl_records(io.BytesIO(b'{"body": 1e400}\n{"body": 1.5}'), TEXT_ONLY, 1000))
    assert reasons(refused) == [(1, "wrong_type"), (2, "wrong_type")]


def test_any_number_is_exact_or_as_it_was_written() -> None:
    """By decimal arithmetic, of random digits, points and exponents."""
    draw = random.Random(7)
    for _ in range(tries(20_000, 500)):
        digits = "".join(draw.choices("0123456789", k=draw.choice((1, 3, 15, 16, 17, 18, 30))))
        whole = str(int(digits[: draw.randint(1, len(digits))]))
        literal = f"{draw.choice(('', '-'))}{whole}.{digits}{draw.choice(('', '', f'e{draw.randint(-340, 340)}'))}"
        found = exact_number(literal)
        assert found == literal or Decimal(repr(found)) == Decimal(literal), literal
