"""Tables declared in code: columns with types and comments, key, order, partitions and checks.

A `Table` is what a step promises about its output. It is written in Iceberg's own words (`string`, `decimal(38, 10)`,
`list<int>`, `struct<rule: string, value: double>`, `map<string, string>`); a `!` after a name or an element type means
required:

    SIGNALS = Table(
        name="signals",
        comment="What was measured of each text, one column per signal.",
        columns=(
            Column("shard!", "int", "hash of the repository modulo the dataset's shards"),
            Column("doc_id!", "string", "identity of the document"),
            Column("word_count!", "long", "words: maximal runs without white space"),
        ),
        key=("doc_id",),
        partition=("increment", "shard"),
        checks=(Check("words_not_negative", "word_count >= 0", "a count is never negative"),),
    )

Every table whose partition names `increment` gets the column `increment! int` first: `lake` writes it, steps do not.
This module needs PyIceberg alone, so that Dagster's definitions load without Spark (`spark_schema` imports it).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyiceberg import types
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import DayTransform, IdentityTransform

from spark_jobs.exceptions import TableDeclarationError
from spark_jobs.lake.declare.column_types import parse_type
from spark_jobs.spark_sql import DataFrame

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    from pyspark.sql.types import StructType

_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
_PARTITION = re.compile(r"(?:days\((?P<days>\w+)\)|(?P<identity>\w+))")
GROUP_BYTES = "headrace.row-group-bytes"  # of a table, for our own writer; PyIceberg warns of Iceberg's property
_RESERVED_NAMESPACES = frozenset({"system", "blends", "default"})
_METADATA_TABLES = frozenset(
    [
        "all_data_files",
        "all_delete_files",
        "all_entries",
        "all_files",
        "all_manifests",
        "changes",
        "data_files",
        "delete_files",
        "entries",
        "files",
        "history",
        "manifests",
        "metadata_log_entries",
        "partitions",
        "position_deletes",
        "properties",
        "refs",
        "snapshots",
    ]
)


@dataclass(frozen=True)
class Column:
    """One column: its name (`!` = required), Iceberg type, and what it means, with the unit.

    Nested parts take the same `!`: `list<int!>`, `list<struct<rule!: string, value: double>>`.
    """

    declared_name: str
    type: str
    comment: str

    @property
    def name(self) -> str:
        """The column's name without the mark."""
        return self.declared_name.removesuffix("!")

    @property
    def required(self) -> bool:
        """Whether null is refused."""
        return self.declared_name.endswith("!")


@dataclass(frozen=True)
class Check:
    """A blocking check of the audit: a SQL predicate, to be true (not null) for every row.

    Attributes:
        name: of the check.
        predicate: in SQL.
        description: what holds.
        holds: the same over an Arrow batch, (N,) booleans, for rows written by Python; tests compare the two.
    """

    name: str
    predicate: str
    description: str
    holds: Callable[[pa.RecordBatch], npt.NDArray[np.bool_]] | None = None


@dataclass(frozen=True)
class Proof:
    """A blocking check over all rows together, or over the rows and the step's inputs.

    Attributes:
        name: of the check.
        description: what holds.
        violations: gives the rows that break it. Its arguments are the rows as they were written, the step's inputs by
            name (the table's own earlier rows among them), the increment and the step's config.
        balance: gives, of the inputs and the config, what the sums that came with the batches of the rows add up to if
            nothing breaks it (`file_writer.BALANCE`); where they do the rows are not read again.
    """

    name: str
    description: str
    violations: Callable[[DataFrame, Mapping[str, DataFrame], int | None, Any], DataFrame]
    balance: Callable[[Mapping[str, DataFrame], Any], int] | None = None


@dataclass(frozen=True)
class Notice:
    """A check that warns and never blocks: the rows are published, and counted in a message.

    Attributes:
        name: of the check.
        rows: the rows, as a filter of PyIceberg's.
        called: the noun for such rows in messages, such as `rejected`.
        by: column; they are counted by its values.
        description: what holds where there are none.
        expected: values of that column, counted and never warned of.
    """

    name: str
    rows: str
    called: str
    by: str
    description: str
    expected: tuple[str, ...] = ()


INCREMENT = Column("increment!", "int", "increment that brought the row, from 0")


@dataclass(frozen=True)
class Table:
    """The declaration of one table; see the module for an example.

    Attributes:
        name: last part of the identifier, `[a-z][a-z0-9_]{0,40}`.
        comment: what one row is.
        columns: in the order written, without `increment` (added where the partition names it).
        key: columns, unique together within the table; empty where no key exists.
        sort: columns of each data file's order.
        partition: identity columns or `days(column)`, in order.
        checks: blocking row checks, audited before publishing. Required columns and the key are checked besides.
        proofs: blocking checks over all rows written together, each a Spark job of its own.
        notice: reported rows of the newest increment; None for none.
        listed: which rows `Step.discover` is given, where it is the last table of such a step, as a filter of
            PyIceberg's; empty for all.
        condensed: drops the `listed` rows replaced by later ones, such as earlier states of a file. Called again and
        again while rows are read, so that they fit into memory. None where every row counts.
        properties: table properties set at creation.
        sampled: columns with text of documents, hidden where the policy for samples is `ids`.
    """

    name: str
    comment: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    sort: tuple[str, ...] = ()
    partition: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    proofs: tuple[Proof, ...] = ()
    notice: Notice | None = None
    listed: str = ""
    condensed: Callable[[pa.Table], pa.Table] | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    sampled: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a declaration of an impossible table."""
        if not _NAME.fullmatch(self.name) or self.name in _METADATA_TABLES:
            raise TableDeclarationError(
                f"table {self.name!r}: not a table name; write [a-z][a-z0-9_]{{0,40}} "
                "and none of Iceberg's metadata tables"
            )
        names = [column.name for column in self.all_columns]
        if len(set(names)) != len(names):
            raise TableDeclarationError(f"table {self.name}: a column is declared twice in {names}")
        used = [*self.key, *self.sort, *(partition_column(p) for p in self.partition), *self.sampled]
        for name in used:
            if name not in names:
                raise TableDeclarationError(
                    f"table {self.name}: key, sort, partition or sampled names {name!r}, its columns are {names}"
                )
        self.schema()

    @property
    def has_increments(self) -> bool:
        """Whether rows carry the increment that brought them."""
        return "increment" in self.partition

    @property
    def all_columns(self) -> tuple[Column, ...]:
        """Columns as written, `increment` first where there is one."""
        if self.has_increments and all(column.name != "increment" for column in self.columns):
            return (INCREMENT, *self.columns)
        return self.columns

    def schema(self) -> Schema:
        """PyIceberg schema with comments; ids count from 1 in depth-first order."""
        ids = itertools.count(1)
        fields = []
        for column in self.all_columns:
            field_id = next(ids)
            parsed = parse_type(column.type, ids)
            fields.append(
                types.NestedField(field_id, column.name, parsed, required=column.required, doc=column.comment)
            )
        return Schema(*fields)

    def partition_spec(self, schema: Schema) -> PartitionSpec:
        """PyIceberg partition spec over `schema`."""
        fields = []
        for number, text in enumerate(self.partition):
            source = partition_column(text)
            daily = text.startswith("days(")
            transform: DayTransform[int] | IdentityTransform[int] = DayTransform() if daily else IdentityTransform()
            name = f"{source}_day" if daily else source
            fields.append(PartitionField(schema.find_field(source).field_id, 1000 + number, transform, name))
        return PartitionSpec(*fields)

    def sort_order(self, schema: Schema) -> SortOrder:
        """PyIceberg sort order over `schema`: ascending, nulls first."""
        return SortOrder(
            *(
                SortField(schema.find_field(n).field_id, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST)
                for n in self.sort
            )
        )


def partition_column(text: str) -> str:
    """The column behind a partition field: `day` for `days(day)`, else the name itself.

    Raises:
        TableDeclarationError: the text is neither.
    """
    match = _PARTITION.fullmatch(text)
    if match is None:
        raise TableDeclarationError(f"partition field {text!r}: write a column name or days(column)")
    return match["days"] or match["identity"]


def check_identifier(identifier: str) -> tuple[str, str]:
    """Split `namespace.table` and refuse names impossible in the lake.

    Raises:
        TableDeclarationError: not two parts, a reserved namespace, or a name Iceberg or Spark would misread.
    """
    parts = identifier.split(".")
    if len(parts) != 2 or not all(_NAME.fullmatch(part) for part in parts) or parts[1] in _METADATA_TABLES:
        raise TableDeclarationError(
            f"table {identifier!r}: write namespace.table, each [a-z][a-z0-9_]{{0,40}}, "
            "none of Iceberg's metadata tables"
        )
    if parts[0] in _RESERVED_NAMESPACES:
        raise TableDeclarationError(
            f"table {identifier!r}: the namespace {parts[0]!r} is reserved; choose another name"
        )
    return parts[0], parts[1]


def spark_schema(table: Table) -> StructType:
    """Spark's schema of a declared table, `increment` included where it has one."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(table.schema().as_arrow(), prefer_timestamp_ntz=True)


def ddl_names(ddl: str) -> list[str]:
    """Names of the columns of a schema in DDL, `place long, doc_id string`, whose types have no fields of their own."""
    return [column.split()[0] for column in ddl.split(", ")]
