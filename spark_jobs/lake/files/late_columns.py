"""Columns that Python workers read from the data files themselves, where Spark only says which rows.

Spark reads a list out of Iceberg element by element, and hands it to Python the same way: some 100 ns an element
measured, where Arrow takes 6 to 9. So a frame carries the place of a row instead of its lists, and whoever needs the
lists fetches them as Arrow arrays, a row group at a time:

    doc_id  data_file    data_row             a.parquet: row groups of 2,000 rows
    x       a.parquet         7       ->      [0 .. 1999] [2000 .. 3999] ..
    y       a.parquet      2100               read first, then the second; each once, if rows come in order

Places are metadata that Iceberg and Spark's Parquet reader give beside every row (`_file`, `_pos`; `_metadata`). Frames
that are not read from files have none.

Memory of a worker: one row group of the wanted columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.arrays import Int64Array
from spark_jobs.lake.files.storage import open_input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = Iterable[pa.RecordBatch]

FILE, ROW = "data_file", "data_row"


def located(frame: DataFrame) -> DataFrame | None:
    """The frame with the place of each row: `data_file`, the path or URI, and `data_row`, from 0 in the file.

    Returns:
        None where the rows do not come straight from files: made in memory, joined or put together of several tables.
    """
    from pyspark.sql import functions as F

    hidden = frame._jdf.queryExecution().analyzed().metadataOutput()  # the one way to ask that logs no error
    names = {hidden.apply(number).name() for number in range(hidden.size())}
    if "_file" in names:
        return frame.withColumns({FILE: F.col("_file"), ROW: F.col("_pos")})
    if "_metadata" in names:
        path = F.expr("url_decode(replace(_metadata.file_path, '+', '%2B'))")
        return frame.withColumns({FILE: path, ROW: F.col("_metadata.row_index")})
    return None


def map_rows(
    frame: DataFrame,
    columns: Sequence[str],
    late: Sequence[str],
    function: Callable[[Batches], Iterator[pa.RecordBatch]],
    ddl: str,
) -> DataFrame:
    """As `frame.select(*columns, *late).mapInArrow(function, ddl)`, with the late columns read by the workers.

    Args:
        frame: rows; where they do not come from files, Spark reads all of it.
        columns: what Spark reads.
        late: what the workers read.
        function: from batches of those columns to batches of `ddl`.
        ddl: columns of the result.
    """
    from pyspark.sql import functions as F

    rows = located(frame)
    if rows is None:
        return frame.select(*columns, *late).mapInArrow(function, ddl)
    fetch = LateColumns(tuple(late), file_properties(rows.sparkSession)).fetch
    # A condition on a column that only Spark reads must stay Spark's: rows that it dropped are not asked for.
    return rows.select(*columns, F.col(FILE), F.col(ROW)).mapInArrow(lambda batches: function(fetch(batches)), ddl)


def file_properties(spark: SparkSession) -> dict[str, str]:
    """Properties of the lake's files for PyIceberg, from those of the session's catalogue."""
    from spark_jobs.lake.session.settings import CATALOGUE, FILE_PROPERTIES  # which loads much that workers do not need

    prefix = f"spark.sql.catalog.{CATALOGUE}."
    found = {name: spark.conf.get(prefix + key, None) for name, key in FILE_PROPERTIES.items()}
    return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True)
class LateColumns:
    """What a worker reads from data files.

    Attributes:
        names: columns.
        properties: of PyIceberg's FileIO, for files that are not local.
    """

    names: tuple[str, ...]
    properties: Mapping[str, str]

    def fetch(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Put the late columns in the place of `data_file` and `data_row`.

        Args:
            batches: rows with both; any order is right, that of the files is fast.

        Yields:
            The rows in their order, in batches of one row group each.
        """
        for rows, group, places in self.groups(batches):
            kept = [name for name in rows.schema.names if name not in (FILE, ROW)]
            together = len(places) == places[-1] - places[0] + 1 and bool((np.diff(places) == 1).all())
            found = group.slice(places[0], len(places)) if together else group.take(pa.array(places))
            yield pa.RecordBatch.from_arrays(
                [*(rows.column(name) for name in kept), *found.columns], names=[*kept, *self.names]
            )

    def groups(self, batches: Batches) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch, Int64Array]]:
        """Read row groups as rows ask for them.

        Args:
            batches: as for `fetch`.

        Yields:
            Some rows; the late columns of a row group that holds them all; (N,) where in it they lie.
        """
        path, number = "", -1
        file: pq.ParquetFile | None = None
        firsts = np.zeros(0, dtype=np.int64)
        group: pa.RecordBatch | None = None
        for batch in batches:
            if not batch.num_rows:
                continue
            for part in _same_file(batch):
                own = part.column(FILE)[0].as_py()
                if file is None or own != path:
                    opened = open_input(own, self.properties)
                    file, path, number = pq.ParquetFile(opened, page_checksum_verification=True), own, -1
                    sizes = [file.metadata.row_group(n).num_rows for n in range(file.metadata.num_row_groups)]
                    firsts = np.cumsum([0, *sizes])[:-1]
                places = part.column(ROW).to_numpy()
                wanted = np.searchsorted(firsts, places, side="right") - 1
                for start, end in _runs(wanted):
                    if group is None or wanted[start] != number:
                        number = int(wanted[start])
                        table = file.read_row_group(number, columns=list(self.names), use_threads=False)
                        group = table.select(self.names).combine_chunks().to_batches()[0]
                    yield part.slice(start, end - start), group, places[start:end] - firsts[number]


def _same_file(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Parts of a batch that lie in one file each."""
    codes = batch.column(FILE).dictionary_encode().indices.to_numpy()
    for start, end in _runs(codes):
        yield batch.slice(start, end - start)


def _runs(values: npt.NDArray[np.integer]) -> Iterator[tuple[int, int]]:
    """Where runs of equal values start and end."""
    yield from pairwise([0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)])
