"""Columns are found by a path wherever they are: in objects, structs, maps, JSON, and names of folders."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import random
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.exceptions import InputError
from spark_jobs.sources.config.source_config import DocumentsConfig, FilesSource
from spark_jobs.sources.formats.json_records import json_values
from spark_jobs.sources.formats.jsonl_records import jsonl_records
from spark_jobs.sources.formats.parquet_records import parquet_records
from spark_jobs.sources.opening.table_folders import engine_name, partitions
from spark_jobs.sources.records.records import Record, Refused
from tests.spark_jobs.sources.one_by_one import one_by_one

Configs = Callable[..., DocumentsConfig]
NESTED = FilesSource(path="x", text_column="doc.text", id_column="doc.id.key", metadata_columns=("doc.tags", "a.b"))
ROWS = [
    {"doc": {"text": f"text {n}", "id": {"key": f"k{n}"}, "tags": ["x", n]}, "a.b": f"literal {n}", "a": {"b": "path"}}
    for n in range(5)
]


def shown(records: list[Record | Refused]) -> list[Any]:
    """What was taken, or why not."""
    return [
        str(one.refusal.reason) if isinstance(one, Refused) else (one.text, one.record_id, one.metadata)
        for one in records
    ]


def as_parquet(table: pa.Table, **options: Any) -> io.BytesIO:
    """A Parquet file in memory."""
    written = io.BytesIO()
    pq.write_table(table, written, **options)
    return written


def test_a_path_leads_to_the_same_value_in_every_format() -> None:
    """Objects of JSON, structs, and columns of JSON give one answer; a name with a dot wins over a path."""
    wanted = [(f"text {n}", f"k{n}", {"doc.tags": json.dumps(["x", n]), "a.b": f"literal {n}"}) for n in range(5)]
    lines = "\n".join(map(json.dumps, ROWS)).encode()
    assert shown(list(jsonl_records(io.BytesIO(lines), NESTED, 1000))) == wanted
    of_text = [{**row, "doc": {**row["doc"], "tags": list(map(str, row["doc"]["tags"]))}} for row in ROWS]
    found = shown(one_by_one(parquet_records(as_parquet(pa.Table.from_pylist(of_text)), NESTED, 1000)))
    assert [one[:2] for one in found] == [one[:2] for one in wanted]
    assert [one[2]["a.b"] for one in found] == [one[2]["a.b"] for one in wanted]
    payload = pa.ExtensionArray.from_storage(pa.json_(), pa.array([json.dumps(row["doc"]) for row in ROWS]))
    table = pa.table({"doc": payload, "a.b": [row["a.b"] for row in ROWS]})
    assert shown(one_by_one(parquet_records(as_parquet(table, store_schema=False), NESTED, 1000))) == wanted


def test_null_above_a_path_is_null_and_nothing_is_a_missing_column() -> None:
    """`doc: null` has a null text; a file where no record has the path is told, with the nearest name."""
    found = list(jsonl_records(io.BytesIO(b'{"doc": null}\n{"doc": {"text": "a"}}\n{"doc": {}}'), NESTED, 99))
    assert [isinstance(one, Refused) and str(one.refusal.reason) for one in found] == [
        "null_text",
        False,
        "missing_column",
    ]
    (fault,) = jsonl_records(io.BytesIO(b'{"doc": {"txt": "a"}}'), NESTED, 99)
    assert isinstance(fault, Refused) and "did you mean 'doc.txt'" in fault.refusal.detail
    (fault,) = parquet_records(
        as_parquet(pa.table({"doc": [{"txt": "a"}]})), FilesSource(path="x", text_column="doc.text"), 9
    )
    assert isinstance(fault, Refused) and "did you mean 'doc.txt'" in fault.refusal.detail


def test_a_key_of_a_map_and_a_column_of_json_are_columns() -> None:
    """Maps have their keys as columns; a column of JSON as a whole is the text that it is."""
    maps = pa.array([[("text", "a")], [("other", "b")], None], pa.map_(pa.string(), pa.string()))
    source = FilesSource(path="x", text_column="doc.text")
    assert shown(one_by_one(parquet_records(as_parquet(pa.table({"doc": maps})), source, 99))) == [
        ("a", None, {}),
        "null_text",
        "null_text",
    ]
    texts = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}']))
    source = FilesSource(path="x", text_column="doc")
    assert shown(one_by_one(parquet_records(as_parquet(pa.table({"doc": texts})), source, 99))) == [
        ('{"a": 1}', None, {})
    ]


def test_a_file_is_read_whose_arrow_schema_has_types_of_another_library() -> None:
    """Polars writes 128-bit integers as 16 bytes, and a width into the Arrow schema at which Arrow ends."""
    table = pa.table({"doc": [{"text": "a"}], "wide": pa.array([7], pa.int64())})
    data = bytearray(as_parquet(table).getvalue())
    at = data.index(b"ARROW:schema") + len(b"ARROW:schema")
    start = data.index(b"/////", at)
    end = start + len(re.match(rb"[A-Za-z0-9+/=]+", data[start:])[0])  # type: ignore[index]
    flat = base64.b64decode(bytes(data[start:end]))
    places = (place for place in range(len(flat) - 4) if flat[place : place + 4] == (64).to_bytes(4, "little"))
    for place in places:
        wide = flat[:place] + (128).to_bytes(4, "little") + flat[place + 4 :]
        data[start:end] = base64.b64encode(wide)
        try:
            pq.ParquetFile(io.BytesIO(data))
        except pa.ArrowNotImplementedError as error:
            assert "more than 64 bits" in str(error)
            break
        except (OSError, pa.ArrowException):  # another number of the schema
            continue
    else:
        pytest.fail("the width of the integers was not found")
    source = FilesSource(path="x", text_column="doc.text")
    assert shown(one_by_one(parquet_records(io.BytesIO(data), source, 99))) == [("a", None, {})]


INNER = [
    pa.array([1, None], pa.time64("ns")),
    pa.array([1_000, None], pa.time64("us")),
    pa.array([1, None], pa.time32("ms")),
    pa.array([1, None], pa.timestamp("ns")),
    pa.array([1, None], pa.timestamp("ns", "Nowhere/Else")),
    pa.array([1, None], pa.duration("ns")),
    pa.array([1, None], pa.date32()),
    pa.array([1, None], pa.date64()),
    pa.array([b"x", None], pa.binary()),
    pa.array(["x", None], pa.large_string()),
    pa.array(["x", None], pa.dictionary(pa.int8(), pa.string())),
    pa.array([1.5, None], pa.float16()),
    pa.array([True, None]),
    pa.array([1, None], pa.decimal128(10, 2)),
]


@pytest.mark.parametrize("inner", INNER, ids=lambda inner: str(inner.type))
def test_every_type_is_read_alone_and_in_lists_structs_and_maps(inner: pa.Array) -> None:
    """What a value is alone it is inside of a list, a struct, a map, and a list of structs."""
    two = len(inner)
    keys = pa.array(["k"] * two)
    offsets = pa.array(range(two + 1), pa.int32())
    struct = pa.StructArray.from_arrays([inner], ["v"])
    columns = {
        "alone": inner,
        "list": pa.ListArray.from_arrays(offsets, inner),
        "struct": struct,
        "map": pa.MapArray.from_arrays(offsets, keys, inner),
        "deep": pa.ListArray.from_arrays(offsets, struct),
    }
    source = FilesSource(path="x", text_column="body", metadata_columns=tuple(columns))
    table = pa.table({"body": ["a", "b"], **columns})
    first, second = one_by_one(parquet_records(as_parquet(table), source, 99))
    assert isinstance(first, Record) and isinstance(second, Record)
    (value,) = json.loads(first.metadata["list"])
    alone = first.metadata["alone"]
    assert alone == (value if isinstance(value, str) else json.dumps(value))
    assert json.loads(first.metadata["struct"]) == {"v": value}
    assert json.loads(first.metadata["map"]) == [["k", value]]
    assert json.loads(first.metadata["deep"]) == [{"v": value}]
    assert "alone" not in second.metadata and json.loads(second.metadata["deep"]) == [{"v": None}]


FORMS = {
    "lines": lambda rows: "\n".join(map(json.dumps, rows)),
    "lines with blanks": lambda rows: "\r\n\r\n".join(map(json.dumps, rows)) + "\r\n",
    "array": json.dumps,
    "pretty array": lambda rows: json.dumps(rows, indent=2),
    "array of lines": lambda rows: "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n",
    "pretty objects": lambda rows: "\n".join(json.dumps(row, indent=4) for row in rows),
    "objects in a row": lambda rows: "\n" + "".join(json.dumps(row, ensure_ascii=False, indent=1) for row in rows),
    "marked": lambda rows: "\ufeff" + json.dumps(rows, indent="\t"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("chunk", [1, 7, 1 << 16])
def test_every_form_of_json_gives_its_objects(form: str, chunk: int) -> None:
    """Random records with quotes, brackets and escapes in them, in every form, given in pieces of any size."""
    random_ = random.Random(form)
    letters = 'ab"\\{}[],: \n\t\u00e9\U0001f600'
    rows = [
        {"text": "".join(random_.choices(letters, k=random_.randrange(60))), "in": {"x": [random_.random(), None, {}]}}
        for _ in range(random_.randrange(2, 30))
    ]

    class Pieces(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(chunk, size or chunk) if size != -1 else chunk)

    values = list(json_values(Pieces(FORMS[form](rows).encode()), 1 << 20))
    assert [
        json.loads(one.data.removeprefix(b"\xef\xbb\xbf")) for one in values if not isinstance(one, Refused)
    ] == rows


def test_a_json_file_with_a_text_column_is_records_whatever_its_tail(
    files_config: Configs, data: Path, landing: Any
) -> None:
    """C4, Spark and pandas name their records .json.gz; without a column the same file is one document."""
    lines = "\n".join(map(json.dumps, ({"text": f"t{n}", "url": f"u{n}"} for n in range(3)))).encode()
    (data / "c4.json.gz").write_bytes(gzip.compress(lines))
    (data / "array.json").write_text(json.dumps([{"text": "t", "url": "u"}], indent=1))
    (data / "other.json").write_text('{"name": "package"}')
    documents, arrivals = landing.land(files_config(text_column="text", id_column="url"))
    assert sorted(row["path"] for row in documents) == ["array.json#u", *(f"c4.json.gz#u{n}" for n in range(3))]
    (fault,) = (row for row in arrivals if row["reason"])
    assert fault["location"].endswith("other.json") and "`format`" in fault["detail"]


def test_names_of_folders_are_columns(files_config: Configs, data: Path, landing: Any) -> None:
    """Hive's partitions in every format of records: decoded, null by its name, below a column of the file."""
    rows = [{"body": "a", "id": "1"}]
    for folder in ("lang=de/day=2026-01-31 12%3A00", "lang=__HIVE_DEFAULT_PARTITION__/day=x", "plain"):
        (data / folder).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), data / folder / "a.parquet")
        (data / folder / "a.jsonl").write_text(json.dumps(rows[0]))
        with (data / folder / "a.csv").open("w") as file:
            csv.writer(file).writerows([rows[0].keys(), rows[0].values()])
    found = landing.land(files_config(text_column="body", language_column="lang", metadata_columns=["day"]))
    de = [row for row in found[0] if row["language"] == "de"]
    assert {row["metadata"]["day"] for row in de} == {"2026-01-31 12:00"} and len(de) == 3
    assert len([row for row in found[0] if row["metadata"].get("day") == "x" and row["language"] is None]) == 3
    assert partitions("/a/x=1/y=%C3%BC/b=c.parquet") == {"x": "1", "y": "\u00fc"}


def test_names_of_folders_are_columns_of_every_kind_of_file(files_config: Configs, data: Path, landing: Any) -> None:
    """Texts, pages, XML and members of archives, where such columns are mapped; what the file says wins."""
    folder = data / "lang=de" / "day=1"
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "a.html").write_text("<p>Ein Satz mit mehr als einem Wort steht hier.</p>")
    (folder / "a.xml").write_text("<r><doc><t>x</t></doc></r>")
    (folder / "a.log").write_text("INFO x\nWARN y\n")
    with tarfile.open(data / "a.tar", "w") as archive:
        archive.add(folder / "a.txt", "lang=fr/day=2/a.txt")
    mapping = {"language_column": "lang", "metadata_columns": ["day"]}
    documents, _ = landing.land(files_config(**mapping, xml_element="doc", line_pattern=r"[A-Z]+ "))
    found = {row["path"].rpartition("/")[2]: (row["language"], row["metadata"].get("day")) for row in documents}
    assert found.pop("a.txt") in (("de", "1"), ("fr", "2")) and len(documents) == len(found) + 2
    assert {row["language"] for row in documents} == {"de", "fr"} and set(found.values()) == {("de", "1")}


def test_a_text_column_that_no_file_can_have_is_told(files_config: Configs, data: Path, landing: Any) -> None:
    """Of all files: the source is refused with the mend; of some: each says in its arrival that all of it landed."""
    for name in ("a.txt", "README.md", "b.html", "c.py", "d.txt.gz"):
        data_ = b"<p>This is a page, and it has a whole sentence in it.</p>" if name == "b.html" else b"a text"
        (data / name).write_bytes(gzip.compress(data_) if name.endswith("gz") else data_)
    with pytest.raises(InputError, match=r"text_column is 'text', and none of 5 files.*state `format`"):
        landing.land(files_config(text_column="text"))
    (data / "e.jsonl").write_text('{"text": "x"}')
    documents, arrivals = landing.land(files_config(text_column="text"))
    assert len(documents) == 6
    told = {row["location"].rpartition("/")[2] for row in arrivals if "text_column" in (row["detail"] or "")}
    assert told == {"a.txt", "README.md", "b.html", "c.py", "d.txt.gz"}
    assert not any(row["detail"] for row in arrivals if row["location"].endswith("e.jsonl"))


ENGINES = """
_temporary/0/a _SUCCESS .hive-staging_hive_1/a _impala_insert_staging/a _delta_log/0.json _metadata _common_metadata
_committed_123 _started_123 .hoodie/a _spark_metadata/0 __magic/a .spark-staging-1/a sub/_temporary/a day_$folder$
_tmp.-ext-10000/a _symlink_format_manifest/manifest _change_data/a _logs/history
"""


def test_what_engines_keep_beside_tables_is_told_and_is_no_data(
    files_config: Configs, data: Path, landing: Any
) -> None:
    """Each folder and mark once, with the reason; a blog's `_posts` and a module's `__init__.py` are data."""
    users = ["_posts/a.md", "__init__.py", "_config.yml", "metadata/a.json", "_tmp.md", "temporary/a.txt"]
    iceberg = ["table/metadata/v1.metadata.json", "table/metadata/a.avro", "table/data/a.txt"]
    for name in (*ENGINES.split(), *users, *iceberg):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text("[]")
    documents, arrivals = landing.land(files_config())
    assert {row["path"] for row in documents} == {*users, "table/data/a.txt"}
    told = {row["location"].removeprefix(f"{data}/") for row in arrivals if row["reason"] == "no_data"}
    folders = {name[: name.rindex("/")].removesuffix("/0") if "/" in name else name for name in ENGINES.split()}
    assert told == {*folders, "table/metadata"}
    assert engine_name("metadata") is None
