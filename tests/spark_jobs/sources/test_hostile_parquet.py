"""Parquet files that are damaged, encrypted or made to burst: refusals with a reason; files beside them land."""

from __future__ import annotations

import base64
import io
import os
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from spark_jobs.child_processes import end_idle_children, idle_children
from spark_jobs.sources.config.source_config import FilesSource
from spark_jobs.sources.formats import parquet_batches
from spark_jobs.sources.formats import parquet_records as reader
from spark_jobs.sources.formats.parquet_records import parquet_columns, parquet_records
from spark_jobs.sources.opening import parser_process
from spark_jobs.sources.opening.parser_process import ChildEndedError, read_apart, run_apart
from spark_jobs.sources.records.records import Record, Refused
from spark_jobs.sources.refusals import Reason, Refusal
from tests.spark_jobs.sources.one_by_one import one_by_one
from tests.tiers import sampled, tries

MAPPING = FilesSource(path="x", text_column="text", id_column="id", metadata_columns=("tags", "day", "price"))
TEXT_ONLY = FilesSource(path="x", text_column="text")
LICENCE = "Permission is hereby granted, free of charge, to any person. " * 7000


@pytest.fixture(scope="module", autouse=True)
def no_child_is_left() -> Iterator[None]:
    """One child for the tests of this module."""
    yield
    end_idle_children()


def written(table: pa.Table, **options: Any) -> bytes:
    """A Parquet file."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def read(data: bytes, mapping: FilesSource = TEXT_ONLY, max_bytes: int = 1 << 20) -> list[Record | Refused]:
    """Records of a file in memory."""
    return one_by_one(parquet_records(io.BytesIO(data), mapping, max_bytes))


def landed(found: list[Record | Refused]) -> int:
    """How many records are usable."""
    return sum(isinstance(one, Record) for one in found)


def seeds() -> list[bytes]:
    """Files of several kinds."""
    count = 60
    table = pa.table(
        {
            "id": pa.array(range(count)),
            "text": [f"text {number} " * (number % 7) for number in range(count)],
            "tags": [["a", "b"][: number % 3] for number in range(count)],
            "day": pa.array(range(count), pa.date32()),
            "price": pa.array(range(count), pa.int64()).cast(pa.decimal128(22, 2)),
            "other": [{"x": number, "y": str(number)} for number in range(count)],
        }
    )
    options: list[dict[str, Any]] = [
        {"compression": "none"},
        {"compression": "zstd", "row_group_size": 20, "write_page_checksum": True},
        {"compression": "snappy", "use_dictionary": False, "data_page_version": "2.0", "row_group_size": 20},
        {"compression": "gzip", "use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}},
        {"compression": "none", "write_page_index": True, "store_schema": False},
    ]
    return [written(table, **one) for one in options]


def mutant(data: bytes, draw: random.Random) -> bytes:
    """A file with a few bytes that are others, more often in its footer; sometimes cut, or with a piece twice."""
    bytes_ = bytearray(data)
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for _ in range(draw.choice((1, 1, 1, 2, 5, 20))):
        at = draw.randrange(footer, len(data)) if draw.random() < 0.7 else draw.randrange(len(data))
        bytes_[at] = draw.choice((draw.randrange(256), bytes_[at] ^ 1 << draw.randrange(8), 0, 0x7F, 0xFF))
    if draw.random() < 0.05:
        at, size = draw.randrange(len(data)), draw.randrange(1, 200)
        bytes_[at:at] = bytes_[at : at + size]
    elif draw.random() < 0.05:
        del bytes_[draw.randrange(len(data)) :][: draw.randrange(1, 200)]
    return bytes(bytes_)


def test_a_damaged_file_is_records_and_refusals() -> None:
    """No error leaves the reader, whatever bytes are others."""
    draw, files = random.Random(31), seeds()
    assert [landed(read(data, MAPPING)) for data in files] == [60] * len(files)
    for number in range(tries(10_000, 60)):
        data = mutant(files[number % len(files)], draw)
        found = read(data, MAPPING)
        assert all(isinstance(one, Record | Refused) for one in found), number
    assert landed(read(files[0], MAPPING)) == 60


@sampled()
@pytest.mark.parametrize("footer_is_plain", [True, False])
@pytest.mark.parametrize("column", ["text", "other"])
def test_encrypted_columns_are_refused_and_others_read(footer_is_plain: bool, column: str) -> None:
    """Arrow ends its process at an encrypted column whose footer can be read."""

    class Keys(pe.KmsClient):  # type: ignore[misc]
        def __init__(self, _: object) -> None:
            super().__init__()

        def wrap_key(self, key: bytes, _: str) -> bytes:
            return base64.b64encode(key)

    table, sink = pa.table({"text": ["a", "b"], "other": ["c", "d"]}), io.BytesIO()
    rules = pe.EncryptionConfiguration(footer_key="f", column_keys={"k": [column]}, plaintext_footer=footer_is_plain)
    keys = pe.CryptoFactory(Keys).file_encryption_properties(pe.KmsConnectionConfig(), rules)
    with pq.ParquetWriter(sink, table.schema, encryption_properties=keys) as writer:
        writer.write_table(table)
    found = read(sink.getvalue())
    if footer_is_plain and column == "other":
        assert landed(found) == 2
    else:
        (fault,) = found
        assert isinstance(fault, Refused) and fault.number is None
        assert fault.refusal.reason == (Reason.TOO_COMPLEX if footer_is_plain else Reason.ENCRYPTED)
        assert "encrypted" in fault.refusal.detail
    assert landed(read(written(table))) == 2


def test_a_column_name_that_is_no_utf8_refuses_its_file() -> None:
    """Whether it is mapped or not."""
    data = written(pa.table({"text": ["a"], "unmapped": [1]})).replace(b"unmapped", b"\xff\xfemapped")
    (fault,) = read(data)
    assert isinstance(fault, Refused) and fault.number is None and fault.refusal.reason == Reason.CORRUPT_FILE
    assert parquet_columns(io.BytesIO(data)) == []


@sampled()
@pytest.mark.parametrize("how", ["dictionary", "prefixes", "categorical"])
def test_a_long_text_that_is_repeated_takes_no_memory(how: str) -> None:
    """A file of a few kilobytes with 128 MB of text lands in batches of 8 MB."""
    texts = pa.array([LICENCE] * 300)
    delta = {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}
    table = pa.table({"text": texts.dictionary_encode() if how == "categorical" else texts})
    data = written(table, **(delta if how == "prefixes" else {}))
    assert len(data) < 50_000
    end_idle_children()
    assert landed(one_by_one(parquet_records(io.BytesIO(data), TEXT_ONLY, 1 << 20))) == 300
    (child,) = idle_children(parser_process._kind(reader._MEMORY_BYTES))
    with open(f"/proc/{child.pid}/status", encoding="ascii") as status:
        (peak,) = (int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    assert peak < 200_000  # kB


@pytest.mark.nightly
def test_what_does_not_fit_into_the_child_is_tried_in_smaller_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Very many short texts with a long one behind them: no size in the file tells of it."""
    monkeypatch.setattr(reader, "_MEMORY_BYTES", 512 << 20)
    data = written(pa.table({"text": ["a"] * 21_000 + [LICENCE] * 1000}), row_group_size=30_000)
    found = one_by_one(parquet_records(io.BytesIO(data), TEXT_ONLY, 1 << 20))
    numbers = [one.number for one in found if isinstance(one, Record)]
    assert numbers == list(range(1, 22_001))


def test_pages_that_would_not_fit_are_refused_and_others_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """By row group, with the numbers of the rows; what stands beside it is read."""
    monkeypatch.setattr(parquet_batches, "PAGE_BYTES", 1000)
    sink = io.BytesIO()
    table = pa.table({"text": ["a", *(f"{number:0900d}" for number in range(9)), "c"]})
    with pq.ParquetWriter(sink, table.schema, compression="none") as writer:
        for start, size in ((0, 1), (1, 9), (10, 1)):
            writer.write_table(table.slice(start, size))
    found = list(parquet_batches.batches(sink, ["text"], "text", 0, 100))[1:]
    assert [(one["row"], one["rows"], "refusal" in one) for one in found if isinstance(one, dict)] == [
        (0, 1, False),
        (1, 9, True),
        (10, 1, False),
    ]


def _environment() -> list[str]:
    return list(os.environ)


def _says(answer: bytes) -> None:
    os.write(3, answer)  # the duplicate of standard output in the child
    os._exit(0)


def _numbers(file: Any, count: int) -> Iterator[Any]:
    for number in range(count):
        file.seek(number)
        yield [number, file.read(1)]


@pytest.mark.nightly
def test_the_child_has_no_secret_and_runs_nothing_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Its environment is what programs are found by; an answer that is a pickle is no answer."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    end_idle_children()
    allowed = {*parser_process._INHERITED, *parser_process._SET, "LC_CTYPE"}
    assert set(run_apart(_environment, 5)) <= allowed
    target = tmp_path / "made"
    code = f"cos\nsystem\n(S'touch {target}'\ntR.".encode()
    for answer in (code, len(code).to_bytes(8, "little") + code, b"\xff" * 64, b"\x02\0\0\0\0\0\0\0[]", b""):
        found = run_apart(_says, 5, answer)
        assert isinstance(found, Refusal) and found.reason == Reason.TOO_COMPLEX
    assert not target.exists()


def test_a_file_is_read_by_questions_and_an_abandoned_reading_harms_no_later_one() -> None:
    """What a generator of the child yields comes in order; who stops early ends the child."""
    file, memory = io.BytesIO(b"abcdef"), 400 << 20
    assert list(read_apart(_numbers, 5, file, 3, memory_bytes=memory)) == [[0, b"a"], [1, b"b"], [2, b"c"]]
    one, other = (read_apart(_numbers, 5, file, 100_000, memory_bytes=memory) for _ in range(2))
    assert next(one) == next(other) == [0, b"a"]
    assert next(one)[0] == next(other)[0] == 1
    one.close()  # type: ignore[attr-defined]
    assert next(other) == [2, b"c"]
    other.close()  # type: ignore[attr-defined]
    assert list(read_apart(_numbers, 5, file, 1, memory_bytes=memory)) == [[0, b"a"]]
    with pytest.raises(ChildEndedError, match="status -6"):
        list(read_apart(_aborts, 5, file, memory_bytes=memory))


def _aborts(_: Any) -> Iterator[int]:
    yield 1
    os.abort()


def test_answers_that_are_no_rows_are_a_fault_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers that do not hold what they should are found before anything is read out of them."""
    columns = {"text": pa.array(["ab", "c"])}
    good = {"row": 0, "rows": 2, "columns": [["string", False, [None, *map(bytes, columns["text"].buffers()[1:])]]]}
    offsets, data = good["columns"][0][2][1:]  # type: ignore[index]
    rows = reader._rows(good, ["text"])
    assert isinstance(rows, reader.ParquetRows) and rows.values() == {"text": ["ab", "c"]}
    bad: list[Any] = [
        {**good, "rows": 3000},
        {**good, "rows": -1},
        {**good, "columns": []},
        {**good, "columns": [["string", False, [None, offsets]]]},
        {**good, "columns": [["string", False, [None, b"\xff" * len(offsets), data]]]},
        {**good, "columns": [["string", True, [None, offsets, data]]]},
        {**good, "columns": [["list<element: string>", False, [None, offsets, data]]]},
        {**good, "columns": [["int64", False, [None, None]]]},
        {"row": 0},
        [],
        7,
    ]
    for answer in bad:
        found = reader._rows(answer, ["text"])
        assert isinstance(found, Refused) and found.number is None and found.refusal.reason == Reason.CORRUPT_FILE
