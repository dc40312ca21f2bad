"""Packed tables made with PyIceberg and Arrow alone, with the rows that a reader must give back; no Spark."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType, StructType

from headrace.tables.catalogue import SqlLake

WINDOW_TOKENS = 16
VOCABULARY_SIZE = 300
END_OF_DOCUMENT, PADDING = 1, 0
TOKENIZER = hashlib.sha256(b"the tokenizer of the tests").hexdigest()

FACTS = tuple(
    f"headrace.{name}"
    for name in ("window-tokens", "tokenizer-sha256", "vocabulary-size", "end-of-document-id", "padding-id")
)

SCHEMA = Schema(
    NestedField(1, "ordinal", LongType(), required=True),
    NestedField(2, "increment", IntegerType(), required=True),
    NestedField(3, "token_count", IntegerType(), required=True),
    NestedField(4, "input_ids", ListType(5, IntegerType(), element_required=True), required=True),
    NestedField(
        6,
        "segments",
        ListType(
            7,
            StructType(
                NestedField(8, "doc_id", StringType(), required=True),
                NestedField(9, "document_start", LongType(), required=True),
                NestedField(10, "token_count", IntegerType(), required=True),
                NestedField(11, "window_start", IntegerType(), required=True),
            ),
            element_required=True,
        ),
        required=True,
    ),
)


@dataclass(frozen=True)
class Row:
    """One row as it was written: what a reader must give back."""

    input_ids: tuple[int, ...]
    segments: tuple[tuple[str, int, int, int], ...]

    @property
    def token_count(self) -> int:
        """Tokens before the padding."""
        return sum(segment[2] for segment in self.segments)


@dataclass
class PackedFixture:
    """A packed table with the rows that were written to it, by ordinal."""

    catalogue: Catalog
    identifier: str
    rows: list[Row] = field(default_factory=list)
    increments: list[int] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)

    @property
    def table(self) -> Table:
        """The table as it is now."""
        return self.catalogue.load_table(self.identifier)

    def append_cells(self, seed: int, increment: int, counts: Mapping[str, int], files: int = 1) -> PackedFixture:
        """Append random rows of cells as an increment of some files: those of a cell in one run, cells ascending."""
        cells = [cell for cell in sorted(counts) for _ in range(counts[cell])]
        for part in np.array_split(np.arange(len(cells)), files):
            if len(part):
                first = len(self.rows)
                self.rows += random_rows(len(part), seed * 1000 + int(part[0]))
                self.increments += [increment] * len(part)
                self.cells += [cells[number] for number in part]
                self.table.append(self._to_arrow(first, increment))
        return self

    def _to_arrow(self, first: int, increment: int) -> pa.Table:
        """The rows from one on."""
        return to_arrow(self.rows[first:], first, increment, self.table.schema(), self.cells[first:])

    def append(self, count: int, seed: int, increment: int = 0, row_group: int | None = None) -> PackedFixture:
        """Append `count` random rows as one file of an increment, in row groups of `row_group` rows."""
        return self.append_files((count, seed, increment, row_group))

    def append_files(self, *files: tuple[int, int, int, int | None]) -> PackedFixture:
        """Append as `append` does, a snapshot for each file but one commit for all of them."""
        table = self.table
        with table.transaction() as transaction:
            for count, seed, increment, row_group in files:
                first = len(self.rows)
                self.rows += random_rows(count, seed)
                self.increments += [increment] * count
                if row_group:
                    transaction.set_properties({"write.parquet.row-group-limit": str(row_group)})
                transaction.append(to_arrow(self.rows[first:], first, increment, table.schema()))
        return self

    def repack(self, count: int, seed: int, generation: str, **changed: str) -> PackedFixture:
        """Replace all rows, as a new generation does; the snapshot says what it was made with, the table follows."""
        self.rows, self.increments = random_rows(count, seed), [0] * count
        properties = {f"headrace.{name.replace('_', '-')}": value for name, value in changed.items()}
        properties["headrace.generation"] = generation
        facts = {**{name: self.table.properties[name] for name in FACTS}, **properties}
        table = self.table
        write = table.append if table.current_snapshot() is None else table.overwrite
        write(to_arrow(self.rows, 0, 0, table.schema()), snapshot_properties=facts)
        self.table.transaction().set_properties(properties).commit_transaction()
        return self

    def excise(self, ordinal: int) -> None:
        """Take the first document of a row of several out, as `headrace doc excise` does, in all snapshots."""
        row, old = self.rows[ordinal], [str(snapshot.snapshot_id) for snapshot in self.table.snapshots()]
        gone = row.segments[0][2]
        kept = tuple((name, start, count, place - gone) for name, start, count, place in row.segments[1:])
        self.rows[ordinal] = Row(row.input_ids[gone:] + (PADDING,) * gone, kept)
        increment = self.increments[ordinal]
        first = self.increments.index(increment)
        end = first + self.increments.count(increment)
        content = to_arrow(self.rows[first:end], first, increment, self.table.schema(), self.cells[first:end])
        self.table.overwrite(content, overwrite_filter=EqualTo("increment", increment))
        head = self.table.current_snapshot()
        assert head is not None
        successors = dict.fromkeys(old, str(head.snapshot_id))
        self.table.transaction().set_properties({"headrace.successors": json.dumps(successors)}).commit_transaction()


def random_rows(count: int, seed: int) -> list[Row]:
    """Make rows of random segments: one to four documents, ids in hex, padding at the end of some rows."""
    return [*_random_rows(count, seed)]


@functools.cache
def _random_rows(count: int, seed: int) -> list[Row]:
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        cuts = np.sort(random.choice(np.arange(1, WINDOW_TOKENS + 1), size=int(random.integers(1, 5)), replace=False))
        starts = [0, *cuts[:-1].tolist()]
        ids = np.full(WINDOW_TOKENS, PADDING)
        ids[: cuts[-1]] = random.integers(2, VOCABULARY_SIZE, size=cuts[-1])
        ids[cuts - 1] = END_OF_DOCUMENT
        segments = tuple(
            (random.bytes(16).hex(), int(random.integers(0, 1 << 40)), int(end) - start, start)
            for start, end in zip(starts, cuts, strict=True)
        )
        rows.append(Row(tuple(int(i) for i in ids), segments))
    return rows


def to_arrow(rows: list[Row], first: int, increment: int, schema: Schema, cells: Sequence[str | None] = ()) -> pa.Table:
    """Give rows the form of a packed table, ordinals from `first`."""
    names = ("doc_id", "document_start", "token_count", "window_start")
    return pa.Table.from_pydict(
        {
            "ordinal": range(first, first + len(rows)),
            "increment": [increment] * len(rows),
            "token_count": [row.token_count for row in rows],
            "input_ids": [list(row.input_ids) for row in rows],
            "segments": [[dict(zip(names, segment, strict=True)) for segment in row.segments] for row in rows],
            **({"cell": cells} if cells else {}),
        },
        schema=schema.as_arrow(),
    )


def open_lake(warehouse: Path) -> Catalog:
    """Open an embedded lake, made if it is not there."""
    warehouse.mkdir(parents=True, exist_ok=True)
    uri = f"sqlite:///{warehouse}/catalog.db?timeout=30"
    return SqlLake("lake", type="sql", uri=uri, warehouse=str(warehouse))


def create_packed(catalogue: Catalog, identifier: str, *, cells: bool = False, **changed: str) -> PackedFixture:
    """Create an empty packed table, with a column of cells; `changed` replaces properties, dashes as underscores."""
    with contextlib.suppress(NamespaceAlreadyExistsError):
        catalogue.create_namespace(identifier.split(".", maxsplit=1)[0])
    properties = {
        "headrace.window-tokens": str(WINDOW_TOKENS),
        "headrace.tokenizer-sha256": TOKENIZER,
        "headrace.vocabulary-size": str(VOCABULARY_SIZE),
        "headrace.end-of-document-id": str(END_OF_DOCUMENT),
        "headrace.padding-id": str(PADDING),
        "headrace.generation": "first",
    }
    properties.update({f"headrace.{name.replace('_', '-')}": value for name, value in changed.items()})
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "increment"))
    schema = Schema(*SCHEMA.fields, NestedField(12, "cell", StringType(), required=True)) if cells else SCHEMA
    catalogue.create_table(identifier, schema=schema, partition_spec=spec, properties=properties)
    return PackedFixture(catalogue, identifier)
