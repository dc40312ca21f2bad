"""Tables of text are read as Iceberg means them, by field id, and no bit that flips in a file is served."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ResolveError, ValidationError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
)
from tokenizers import Tokenizer

from blender_service.blend.requests import BlendSpec, SourceChange, SourceSpec, Stage, TextSpec, UpdateSpec
from blender_service.exceptions import InvalidBlendError, PackedTableError
from blender_service.server.blender import Blender
from blender_service.tables.file_columns import FileColumn, FileColumns, find_column
from blender_service.tables.text_documents import (
    TextColumns,
    TextDocuments,
    columns_of_pin,
    find_columns,
    row_groups,
    text_files,
)
from tests.blender_service.rows.test_blend_reader import rows_of
from tests.blender_service.test_texts import tokenizer as tokenizer_fixture
from tests.tiers import sampled, tries

tokenizer = tokenizer_fixture
TYPES = (
    IntegerType(),
    LongType(),
    FloatType(),
    DoubleType(),
    StringType(),
    DecimalType(5, 2),
    BooleanType(),
    DateType(),
)
WIDER = {IntegerType(): LongType(), FloatType(): DoubleType(), DecimalType(5, 2): DecimalType(9, 2)}
NAMES = ["content", "clean", "raw", "text", "id", "a.b", "ü", "content_"]


def values(random: np.random.Generator, kind: Any) -> Any:
    """A random value of a type, or none."""
    if random.random() < 0.15:
        return None
    if isinstance(kind, StructType):
        return {field.name: values(random, field.field_type) for field in kind.fields}
    if isinstance(kind, ListType):
        return [values(random, kind.element_type) or 0 for _ in range(random.integers(0, 3))]
    number = int(random.integers(0, 1000))
    plain = {
        "int": number,
        "long": number << 33,
        "float": float(np.float32(number) / 8),
        "double": number / 7,
        "boolean": number % 2 == 0,
    }
    if isinstance(kind, DecimalType):
        return Decimal(number) / 100
    if isinstance(kind, DateType):
        return pa.scalar(number, pa.int32()).cast(pa.date32()).as_py()
    return plain.get(str(kind), f"{random.choice(['', 'ü', 'word '])}{number}")


def append(table: Table, random: np.random.Generator, folder: Path) -> None:
    """Append a few random rows, by PyIceberg or as a file of somebody else, without field ids."""
    schema = table.schema()
    arrow = schema.as_arrow()
    rows = [
        {field.name: values(random, field.field_type) for field in schema.fields} for _ in range(random.integers(1, 4))
    ]
    made = pa.Table.from_pylist(rows, schema=arrow)
    if random.random() < 0.3:
        path = folder / f"{random.integers(1 << 60)}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=schema.as_arrow()).replace_schema_metadata(None), path)
        bare = pa.Table.from_pylist(rows, schema=_without_ids(arrow))
        pq.write_table(bare, path, store_schema=False, row_group_size=2)
        table.add_files([str(path)])
    else:
        table.append(made)


def _without_ids(schema: pa.Schema) -> pa.Schema:
    def bare(field: pa.Field) -> pa.Field:
        kind = field.type
        if pa.types.is_struct(kind):
            kind = pa.struct([bare(one) for one in kind])
        elif pa.types.is_large_list(kind) or pa.types.is_list(kind):
            kind = pa.list_(pa.field("element", bare(kind.value_field).type))
        return pa.field(field.name, kind, field.nullable)

    return pa.schema([bare(field) for field in schema])


def evolve(table: Table, random: np.random.Generator) -> None:
    """Change the schema at random: one of all the ways that Iceberg allows."""
    schema = table.schema()
    leaves = [name for name in schema._name_to_id if "element" not in name]
    name = str(random.choice(leaves))
    parent = name.rpartition(".")[0]
    kind = schema.find_field(name).field_type
    new = str(random.choice(NAMES))
    with (
        contextlib.suppress(ValueError, ValidationError),
        table.update_schema(allow_incompatible_changes=True) as update,
    ):
        match int(random.integers(0, 9)):
            case 0 | 1:
                update.rename_column(name, new)
            case 2:
                update.delete_column(name)
            case 3 | 4:
                update.add_column(new, TYPES[random.integers(len(TYPES))])
            case 5:
                inside = NestedField(100, new, StringType()), NestedField(101, "n", IntegerType())
                update.add_column(str(random.choice(NAMES)), StructType(*inside))
            case 6:
                structs = [one.name for one in schema.fields if isinstance(one.field_type, StructType)]
                update.add_column((str(random.choice(structs)) if structs else "none", new), StringType())
            case 7:
                siblings = [one for one in leaves if one.rpartition(".")[0] == parent and one != name]
                (update.move_before if siblings and random.random() < 0.7 else lambda one, _: update.move_first(one))(
                    name, str(random.choice(siblings or leaves))
                )
            case _:
                update.update_column(name, WIDER.get(kind, StringType()))


def read(table: Table, snapshot: Snapshot, columns: TextColumns) -> list[tuple[str, str]]:
    """Texts and ids of all documents, sorted."""
    files = text_files(table, "main.t", snapshot)
    documents = TextDocuments("main.t", files, table.io, columns.of_rows(), table.name_mapping(), row_groups())
    rows = documents.read(0, documents.count)
    return sorted(zip(rows["text"].to_pylist(), rows["doc_id"].to_pylist(), strict=True))


def scanned(table: Table, names: dict[str, str], snapshot_id: int | None) -> list[tuple[str, str]]:
    """The same by PyIceberg's scan."""
    schema = table.schema() if snapshot_id is None else table.schemas()[table.snapshot_by_id(snapshot_id).schema_id]
    paths = [here.path for name in ("text", "doc_id") if (here := find_column(schema, names[name])) is not None]
    rows = table.scan(selected_fields=tuple({path[0].name for path in paths}), snapshot_id=snapshot_id).to_arrow()
    found = []
    for path in paths:
        column: Any = rows
        for field in path:
            if isinstance(column, pa.Table):
                column = column[field.name].combine_chunks()
            else:
                at = column.type.get_field_index(field.name)
                column = column.flatten()[at]
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks)
        found.append(column.cast(pa.large_string()).fill_null("").to_pylist())
    return sorted(zip(*found, strict=True))


@pytest.mark.nightly
def test_every_schema_evolution_is_read_as_pyiceberg_scans_it(lake: Catalog, tmp_path: Path) -> None:
    """Random histories of changes; columns, at the top or in structs, of today's schema and of a snapshot's."""
    lake.create_namespace("main")
    compared = 0
    for number in range(tries(200, 12)):
        random = np.random.default_rng(number)
        table = lake.create_table(
            f"main.t{number}",
            Schema(
                NestedField(1, "id", IntegerType()),
                NestedField(2, "content", StringType()),
                NestedField(3, "clean", StringType()),
                NestedField(
                    4, "meta", StructType(NestedField(5, "text", StringType()), NestedField(6, "n", FloatType()))
                ),
                NestedField(7, "tags", ListType(8, IntegerType(), element_required=False)),
            ),
            properties={"write.parquet.row-group-limit": "2"},
        )
        append(table, random, tmp_path)
        for _ in range(int(random.integers(1, 9))):
            (evolve if random.random() < 0.7 else lambda t, r: append(t, r, tmp_path))(table, random)
            table = lake.load_table(f"main.t{number}")
        head = table.current_snapshot()
        assert head is not None
        moments = [(head, True), *((snapshot, False) for snapshot in table.snapshots())]
        for snapshot, is_present in moments:
            schema = table.schema() if is_present else table.schemas()[snapshot.schema_id or 0]
            names = [
                name
                for name in schema._name_to_id
                if isinstance(schema.find_type(name), PrimitiveType) and ".element" not in name
            ]
            wanted = {"text": str(random.choice(names)), "doc_id": str(random.choice(names))}
            columns = find_columns(table, snapshot, wanted, is_present)
            assert isinstance(columns, TextColumns)
            types = {str(schema.find_type(name)) for name in wanted.values()}
            then = table.schemas()[snapshot.schema_id or 0]
            promoted = any(
                (old := find_column(then, schema.find_field(name).field_id)) is not None
                and old.field.field_type != schema.find_type(name)
                for name in wanted.values()
            )
            if promoted and types & {"double"}:
                continue  # a float of then is written as a float
            try:
                expected = scanned(table, wanted, None if is_present else snapshot.snapshot_id)
                found = read(table, snapshot, columns)
            except (ResolveError, ValueError):  # a name of a file without ids that is another column's by now
                with pytest.raises(PackedTableError, match="cannot be read"):
                    read(table, snapshot, columns)
                continue
            except PackedTableError as error:  # the same, where PyIceberg gives null
                assert re.search("a column of type struct is .* in it", str(error))
                continue
            assert found == expected, (number, wanted)
            pinned = columns_of_pin(table, snapshot, wanted, f"text 1{columns.note}")
            assert read(table, snapshot, pinned) == expected
            compared += 1
    assert compared > 20


WINDOW = 256
SPEC = TextSpec("main.tokenizer", WINDOW)


@pytest.fixture
def named(lake: Catalog, tokenizer: Tokenizer) -> Table:
    """A table whose column `content` became `raw`, then `clean` became `content`, after its only file was written."""
    lake.create_namespace("main")
    facts = {"vocabulary_size": [300], "end_of_document_id": [0], "padding_id": [1]}
    row = pa.table({"file": [tokenizer.to_str()], **facts})
    lake.create_table("main.tokenizer", row.schema).append(row)
    rows = pa.table({"doc_id": ["a", "b"], "content": ["old a", "old b"], "clean": ["new a", "new b, longer"]})
    table = lake.create_table("main.t", rows.schema)
    table.append(rows)
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "before").commit()
    with table.update_schema() as update:
        update.rename_column("content", "raw")
    with table.update_schema() as update:
        update.rename_column("clean", "content")
    return lake.load_table("main.t")


def texts_of(lake: Catalog, blend_id: str, tokenizer: Tokenizer) -> dict[str, str]:
    """What a blend serves: the text of each document."""
    blender = Blender(lake)
    end = blender.head(blend_id).end
    assert end is not None
    served = {}
    for row in rows_of(blender.open(blend_id).gather(0, end)):
        for doc_id, _, count, at in row.segments:
            served[doc_id] = tokenizer.decode(row.input_ids[at : at + count], skip_special_tokens=True)
    return served


@pytest.mark.nightly
def test_a_blend_reads_the_columns_that_its_names_meant_when_it_was_made(
    lake: Catalog, named: Table, tokenizer: Tokenizer
) -> None:
    """Today's names of the newest snapshot and of a branch, those of its time of a tag or an id; also after updates."""
    new, old = {"a": "new a", "b": "new b, longer"}, {"a": "old a", "b": "old b"}
    snapshot = named.current_snapshot()
    assert snapshot is not None
    blender = Blender(lake)

    def made(**source: Any) -> str:
        return blender.create(BlendSpec((SourceSpec("main.t", max_epochs=0, **source),), texts=SPEC)).blend_id

    of_today, of_then = made(), made(snapshot="before")
    assert of_today != of_then
    assert made(snapshot="main") == of_today
    assert made(snapshot=str(snapshot.snapshot_id)) == of_then
    child = blender.update(UpdateSpec(of_today, (Stage(1, (SourceChange("main.t", max_epochs=3),)),))).blend_id
    with named.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("content")
    with named.update_schema() as update:
        update.add_column("content", StringType())
    for blend_id, expected in ((child, new), (of_then, old)):
        whole = {**expected} if blend_id == of_then else new
        config = Blender(lake).config(blend_id)
        batch = Blender(lake).open(config.blend_id).gather(0, 2)
        served = {
            name: tokenizer.decode(row.input_ids[at : at + count], skip_special_tokens=True)
            for row in rows_of(batch)
            for name, _, count, at in row.segments
        }
        assert served == whole
    with pytest.raises(InvalidBlendError, match="no document with text"):
        made()  # the column of today is in no file: its texts are null


@pytest.mark.nightly
def test_files_without_field_ids_need_a_name_mapping(lake: Catalog, named: Table, tmp_path: Path) -> None:
    """Without one nothing says which column is which, and the message says what to set."""
    pq.write_table(pa.table({"doc_id": ["c"], "content": ["c"]}), tmp_path / "c.parquet")
    named.add_files([str(tmp_path / "c.parquet")])
    Blender(lake).create(BlendSpec((SourceSpec("main.t"),), texts=SPEC))
    lake.load_table("main.t").transaction().remove_properties("schema.name-mapping.default").commit_transaction()
    with pytest.raises(InvalidBlendError, match=r"c\.parquet: its columns have no field ids, .*; set that property"):
        Blender(lake).create(BlendSpec((SourceSpec("main.t"),), texts=replace(SPEC, text="raw")))


def test_what_an_older_file_lacks_is_its_partition_the_default_or_null(tmp_path: Path) -> None:
    """In this order, also inside a struct."""
    pq.write_table(
        pa.table(
            {"s": pa.array([{"x": 1}, None])},
            pa.schema(
                [
                    pa.field(
                        "s",
                        pa.struct([pa.field("x", pa.int32(), metadata={"PARQUET:field_id": "2"})]),
                        metadata={"PARQUET:field_id": "1"},
                    )
                ]
            ),
        ),
        tmp_path / "f.parquet",
    )
    text = NestedField(3, "text", StringType(), initial_default="none")
    schema = Schema(
        NestedField(1, "s", StructType(NestedField(2, "x", LongType()), text)),
        NestedField(4, "p", StringType(), initial_default="none"),
        NestedField(5, "q", MapType(6, StringType(), 7, StringType())),
    )
    with pq.ParquetFile(tmp_path / "f.parquet") as file:
        wanted = {name: find_column(schema, name) for name in ("s", "s.x", "s.text", "p", "q", "s.y")}
        assert wanted.pop("s.y") is None
        columns = {name: column for name, column in wanted.items() if column is not None}
        reader = FileColumns(file, "f", columns, None, {4: "partition"})
        found = {name: array.to_pylist() for name, array in reader.select(file.read(reader.names)).items()}
    assert found == {
        "s": [{"x": 1, "text": "none"}, None],
        "s.x": [1, None],
        "s.text": ["none", None],
        "p": ["partition"] * 2,
        "q": [None] * 2,
    }
    assert isinstance(columns["s"], FileColumn)


@sampled()
@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_no_bit_that_flips_in_a_file_of_texts_is_served(
    lake: Catalog, named: Table, tokenizer: Tokenizer, checksums: bool, compression: str
) -> None:
    """In pages, headers and the footer, with page checksums and without: rows are right, or one line names the file."""
    random = np.random.default_rng(5)
    rows = {f"d{i}": " ".join(random.choice(["a", "word", "of", "many", "ü"], 30)) for i in range(40)}
    table = lake.create_table("main.flips", pa.schema([("doc_id", pa.string()), ("content", pa.string())]))
    table.append(pa.table({"doc_id": [*rows], "content": [*rows.values()]}))
    path = Path(next(iter(table.scan().plan_files())).file.file_path.removeprefix("file://"))
    pq.write_table(
        pq.ParquetFile(path).read(), path, compression=compression, write_page_checksum=checksums, row_group_size=16
    )
    blend_id = Blender(lake).create(BlendSpec((SourceSpec("main.flips"),), texts=SPEC)).blend_id
    assert texts_of(lake, blend_id, tokenizer) == rows
    whole, refused = path.read_bytes(), 0
    for _ in range(tries(400, 12)):
        damaged = bytearray(whole)
        for bit in random.integers(0, 8 * len(whole), random.integers(1, 4)).tolist():
            damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            assert texts_of(lake, blend_id, tokenizer) == rows
        except PackedTableError as error:
            assert str(path) in str(error)
            assert "\n" not in str(error)
            refused += 1
    assert refused > 4
