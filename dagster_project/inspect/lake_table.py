"""A table of a lake whose columns and rows are chosen before anything is read.

lake["notes.texts"].select("doc_id", "content").where("kind = 'prose'").head(1000).to_pandas()
polars.from_arrow(lake["notes.signals"])                     as a stream, through the Arrow C interface
"""

from __future__ import annotations

import dataclasses
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table as IcebergTable

from dagster_project.exceptions import CommandError
from dagster_project.inspect.conditions import parse_condition
from spark_jobs.exceptions import did_you_mean
from spark_jobs.lake.files.lookups import EVERYTHING, first_parts, first_rows

if TYPE_CHECKING:
    import datasets
    import pandas
    import polars


class StreamedRows(ABC):
    """Rows that are read as they are asked for, in the forms that people use."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Of the columns, as Arrow has it."""

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, some thousand at a time; no more are held."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A stream of the rows, for whatever reads Arrow."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches()).__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """The rows, in memory."""
        return pa.Table.from_batches(self.batches(), self.schema)

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as pandas has them."""
        frame: pandas.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_polars(self) -> polars.DataFrame:
        """The rows as Polars has them."""
        import polars

        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_hf(self) -> datasets.Dataset:
        """The rows as a dataset of Hugging Face."""
        import datasets

        return datasets.Dataset(self.to_arrow())


@dataclass(frozen=True, repr=False)
class LakeTable(StreamedRows):
    """Some columns of some rows of a table.

    Attributes:
        name: identifier, `namespace.table`.
        iceberg: the table as PyIceberg has it.
        columns: names, in order; none for all.
        condition: as of `headrace table show --where`; empty for all rows.
        most: rows at most, whichever come first; None for all.
    """

    name: str
    iceberg: IcebergTable
    columns: tuple[str, ...] = ()
    condition: str = ""
    most: int | None = None

    def select(self, *columns: str) -> LakeTable:
        """Some columns.

        Raises:
            CommandError: there is no such column.
        """
        there = [field.name for field in self.iceberg.schema().fields]
        if unknown := [column for column in columns if column not in there]:
            raise CommandError(f"{self.name} has no column {unknown[0]}{did_you_mean(unknown[0], there)}")
        return dataclasses.replace(self, columns=columns)

    def where(self, condition: str) -> LakeTable:
        """The rows that meet a condition, and those of `where` before: "status = 'rejected' and byte_count > 100".

        Raises:
            CommandError: the condition cannot be read, or names a column that there is not.
        """
        both = f"({self.condition}) and ({condition})" if self.condition else condition
        parse_condition(self.iceberg.schema(), both, ())
        return dataclasses.replace(self, condition=both)

    def head(self, most: int) -> LakeTable:
        """At most so many rows, whichever come first."""
        return dataclasses.replace(self, most=most if self.most is None else min(most, self.most))

    @property
    def schema(self) -> pa.Schema:
        """Of the columns, as Arrow has it."""
        whole = schema_to_pyarrow(self.iceberg.schema(), include_field_ids=False)
        return pa.schema([whole.field(name) for name in self._names])

    def __len__(self) -> int:
        """Number of the rows; read from the table's summary where all of them are asked for."""
        if not self.condition:
            snapshot = self.iceberg.current_snapshot()
            facts = snapshot.summary if snapshot is not None else None
            total = int(facts["total-records"] or 0) if facts is not None else 0
            return total if self.most is None else min(total, self.most)
        return sum(part.num_rows for part in dataclasses.replace(self, columns=self._names[:1])._parts())

    def __repr__(self) -> str:
        rows = f" where {self.condition}" if self.condition else ""
        most = f", at most {self.most:,} rows" if self.most is not None else ""
        whole = len(dataclasses.replace(self, condition="", most=None))
        return f"{self.name}: {', '.join(self._names)} of {whole:,} rows{rows}{most}"

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, some thousand at a time; no more are held."""
        schema = self.schema
        for part in self._parts():
            yield from part.cast(schema).to_batches()

    def to_arrow(self) -> pa.Table:
        """The rows, in memory."""
        return first_rows(self.iceberg, self._names, self._most, *self._condition())

    @property
    def _names(self) -> tuple[str, ...]:
        return self.columns or tuple(field.name for field in self.iceberg.schema().fields)

    @property
    def _most(self) -> int:
        return sys.maxsize if self.most is None else self.most

    def _condition(self) -> tuple[Any, Any]:
        return parse_condition(self.iceberg.schema(), self.condition, ()) if self.condition else (EVERYTHING, {})

    def _parts(self) -> Iterator[pa.Table]:
        return first_parts(self.iceberg, self._names, self._most, *self._condition())
