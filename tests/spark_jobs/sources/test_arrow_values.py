"""Values of Parquet that JSON has no form for: texts without quotes, as metadata, as ids and as facts, under a rule."""

from __future__ import annotations

import datetime
import decimal
import io
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.filters.judge import failed_of
from spark_jobs.filters.policy import Rule
from spark_jobs.sources.config.source_config import FilesSource
from spark_jobs.sources.formats.parquet_records import parquet_records
from spark_jobs.sources.records.facts import stated_facts
from spark_jobs.sources.records.records import Record, Refused
from tests.spark_jobs.sources.one_by_one import one_by_one

NOON = datetime.datetime(2026, 1, 31, 12, 0, 0, 500_000)
EAST = pa.timestamp("us", "Asia/Tokyo")
VALUES: dict[str, tuple[Any, pa.DataType, str]] = {
    "bool": (True, pa.bool_(), "true"),
    "int8": (-7, pa.int8(), "-7"),
    "uint64": (2**64 - 1, pa.uint64(), str(2**64 - 1)),
    "half float": (1.5, pa.float16(), "1.5"),
    "float": (0.5, pa.float32(), "0.5"),
    "double": (-2.25, pa.float64(), "-2.25"),
    "decimal32": (decimal.Decimal("12.50"), pa.decimal32(6, 2), "12.50"),
    "decimal64": (decimal.Decimal("-0.05"), pa.decimal64(12, 2), "-0.05"),
    "decimal128": (decimal.Decimal("0E-10"), pa.decimal128(20, 10), "0.0000000000"),
    "decimal256": (decimal.Decimal(10) ** 50, pa.decimal256(60, 0), "1" + 50 * "0"),
    "date32": (datetime.date(2026, 1, 31), pa.date32(), "2026-01-31"),
    "date64": (datetime.date(2026, 1, 31), pa.date64(), "2026-01-31"),
    "time32": (datetime.time(12, 0), pa.time32("ms"), "12:00:00"),
    "time64": (1, pa.time64("ns"), "00:00:00.000000001"),
    "timestamp": (NOON, pa.timestamp("us"), "2026-01-31T12:00:00.5"),
    "timestamp in seconds": (NOON.replace(microsecond=0), pa.timestamp("ms"), "2026-01-31T12:00:00"),
    "timestamp in ns": (1, pa.timestamp("ns"), "1970-01-01T00:00:00.000000001"),
    "timestamp of a zone": (NOON.replace(tzinfo=datetime.UTC), EAST, "2026-01-31T12:00:00.5Z"),
    "timestamp of no zone": (0, pa.timestamp("us", "Nowhere/Else"), "1970-01-01T00:00:00Z"),
    "duration": (datetime.timedelta(seconds=90, milliseconds=500), pa.duration("ms"), "90.500"),
    "string": ("wörd", pa.string(), "wörd"),
    "large string": ("x", pa.large_string(), "x"),
    "string view": ("x", pa.string_view(), "x"),
    "binary": (b"a\xff", pa.binary(), "a\\xff"),
    "binary view": (b"x", pa.binary_view(), "x"),
    "fixed size binary": (b"abc", pa.binary(3), "abc"),
    "uuid": (uuid.UUID(int=1).bytes, pa.uuid(), "00000000-0000-0000-0000-000000000001"),
    "json": ('{"a": 1}', pa.json_(), '{"a": 1}'),
    "dictionary": ("x", pa.dictionary(pa.int8(), pa.string()), "x"),
    "dictionary of decimals": (decimal.Decimal("1.50"), pa.dictionary(pa.int8(), pa.decimal128(5, 2)), "1.50"),
    "list": ([1, 2], pa.list_(pa.int64()), "[1, 2]"),
    "list of decimals": ([decimal.Decimal("1.50")], pa.list_(pa.decimal128(5, 2)), '["1.50"]'),
    "struct": ({"day": datetime.date(2026, 1, 31)}, pa.struct([("day", pa.date32())]), '{"day": "2026-01-31"}'),
    "map": ([("a", 1)], pa.map_(pa.string(), pa.int8()), '[["a", 1]]'),
}
MAPPING = FilesSource(
    path="x",
    text_column="body",
    id_column="value",
    metadata_columns=("value",),
    repository_column="repo",
    fact_columns={"version": "value"},
)


def column_of(value: Any, kind: pa.DataType) -> pa.Array:
    """A column with one value; moments may be given as Arrow counts them."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array([value], kind.storage_type))
    if pa.types.is_dictionary(kind):
        return pa.array([value], kind.value_type).dictionary_encode()
    if isinstance(value, int) and pa.types.is_temporal(kind):
        return pa.array([value], pa.int64()).cast(kind)
    return pa.array([value], kind)


def read(value: Any, kind: pa.DataType) -> Record | Refused:
    """The record of a file with one row."""
    column = column_of(value, kind)
    written = io.BytesIO()
    pq.write_table(pa.table({"body": ["a"], "repo": ["r"], "value": column}), written)
    (record,) = one_by_one(parquet_records(written, MAPPING, 1000))
    return record


@pytest.mark.parametrize("name", VALUES)
def test_every_type_is_a_text_without_quotes(name: str) -> None:
    """The same as id, as metadata and as a fact; null is nothing."""
    value, kind, text = VALUES[name]
    record = read(value, kind)
    assert isinstance(record, Record), record
    assert (record.record_id, record.metadata) == (text, {"value": text})
    facts, fault = stated_facts("r", record.facts)
    assert text in (facts.version, facts.metadata.get("version")), fault
    nothing = read(None, kind)
    assert isinstance(nothing, Record) and nothing.record_id is None and nothing.metadata == {}


@pytest.mark.parametrize("name", [name for name in VALUES if "decimal" in name and " " not in name])
def test_rules_compare_decimals_as_numbers(name: str) -> None:
    """A rule on the metadata fails what it should."""
    _, _, text = VALUES[name]
    number = float(text)
    for limit, fails in ((2 * abs(number) + 1, True), (-2 * abs(number) - 1, False)):
        rule = Rule(rule="too_low", signal="metadata.value", below=limit)
        rows = pa.RecordBatch.from_pydict({"metadata.value": [text], "kind": ["prose"], "language": ["en"]})
        assert bool(failed_of(rows, [rule])[0].as_py()) is fails


def test_stars_may_be_decimals() -> None:
    """Databases export numbers so."""
    facts, fault = stated_facts("r", {"stars": "12.00"})
    assert fault is None and facts.metadata["stars"] == "12"


def test_what_has_no_form_refuses_its_record_alone() -> None:
    """Strings in a list that are no UTF-8; a time zone that nobody knows needs no knowledge, times are in UTC."""
    bytes_ = pa.array([[b"\xff"], None, [b"\xfe"]], pa.list_(pa.binary()))
    bad = pa.ListArray.from_arrays(bytes_.offsets, bytes_.values.view(pa.string()), mask=bytes_.is_null())
    written = io.BytesIO()
    pq.write_table(pa.table({"body": ["a", "b", "c"], "value": bad}), written)
    found = one_by_one(
        parquet_records(written, FilesSource(path="x", text_column="body", metadata_columns=("value",)), 99)
    )
    assert [isinstance(one, Record) for one in found] == [False, True, False]
    assert "column 'value'" in found[0].refusal.detail  # type: ignore[union-attr]


def test_small_inputs_of_others_have_no_quotes(real_data: Path) -> None:
    """Decimals, dates and moments as a database writes them."""
    with (real_data / "bugs" / "R8-decimal.parquet").open("rb") as file:
        names = [name for name in pq.read_schema(file).names if name != "text"]
        mapping = FilesSource(path="x", text_column="text", metadata_columns=tuple(names))
        found = [one for one in one_by_one(parquet_records(file, mapping, 10_000)) if isinstance(one, Record)]
    assert found and not any('"' in value for one in found for value in one.metadata.values())
