"""Side reads: columns read by Python workers from the data files; Spark passes only the position of each row.

Spark reads a list out of Iceberg element by element, and hands it to Python the same way: some 100 ns an element
measured, where Arrow takes 6 to 9. So a frame carries file and row number instead of the lists, and the Python worker
that needs the lists reads them as Arrow arrays, a row group at a time:

    doc_id  data_file    data_row             a.parquet: row groups of 2,000 rows
    x       a.parquet         7       ->      [0 .. 1999] [2000 .. 3999] ..
    y       a.parquet      2100               read first, then the second; each once, if rows come in order

File and row number are metadata columns that Iceberg (`_file`, `_pos`) and Spark's Parquet reader (`_metadata`) give
beside every row. Frames read otherwise than straight from files have none.

Memory of a worker: one row group of the wanted columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.arrays import Int64Array
from spark_jobs.lake.declare.step import ArrowRows
from spark_jobs.lake.engine.arrangement import Arranged, grouped
from spark_jobs.lake.engine.embedded import is_embedded
from spark_jobs.lake.files.rows import FILE, ROW, located_rows
from spark_jobs.lake.files.storage import open_input
from spark_jobs.spark_sql import DataFrame, F, SparkSession

Batches = Iterable[pa.RecordBatch]

_FILE_HASH = "data_file_hash"
_STRETCH, _STRETCH_ROWS = "data_stretch", 1 << 14  # more than a row group holds, so few are read twice


def located(frame: DataFrame) -> DataFrame | None:
    """The frame with the position of each row: `data_file`, its path or URI, and `data_row`, from 0 in the file.

    Returns:
        None where the rows do not come straight from files: made in memory, joined or put together of several tables.
    """
    if is_embedded(frame):
        return located_rows(frame)
    if _has_metadata(frame, "_file"):
        return frame.withColumns({FILE: F.col("_file"), ROW: F.col("_pos")})
    if _has_metadata(frame, "_metadata"):
        # Spark gives paths as URIs with escapes; url_decode is for forms, where + stands for a blank.
        path = F.expr("url_decode(replace(_metadata.file_path, '+', '%2B'))")
        return frame.withColumns({FILE: path, ROW: F.col("_metadata.row_index")})
    return None


def _read_aside(frame: DataFrame) -> DataFrame | None:
    """The located rows of a frame for side reads; None to let the engine read all columns, as Sail does by itself."""
    if is_embedded(frame):
        return frame if FILE in frame.columns else None
    return located(frame)


def _has_metadata(frame: DataFrame, name: str) -> bool:
    """Whether the source of a frame's rows gives a metadata column."""
    from pyspark.errors import AnalysisException

    try:
        frame.metadataColumn(name)
    except AnalysisException:  # the API has no other way to ask; unlike a failed `select` it logs nothing
        return False
    return True


def map_rows(
    frame: DataFrame,
    columns: Sequence[str],
    aside: Sequence[str],
    function: Callable[[Batches], Iterator[pa.RecordBatch]],
    ddl: str,
) -> ArrowRows:
    """As `frame.select(*columns, *aside).mapInArrow(function, ddl)`, the last ones read by the workers.

    Args:
        frame: rows; where they do not come from files, Spark reads all of it.
        columns: what Spark reads.
        aside: what the workers read.
        function: from batches of all those columns, these last, to batches of `ddl`.
        ddl: columns of the result.
    """
    rows = _read_aside(frame)
    if rows is None:
        return ArrowRows(frame.select(*columns, *aside), function, ddl)
    # A condition on a column that only Spark reads must stay Spark's: rows that it dropped are not asked for.
    return ArrowRows(rows.select(*columns, F.col(FILE), F.col(ROW)), fetching(rows.sparkSession, aside, function), ddl)


def map_joined(
    frame: DataFrame,
    others: DataFrame,
    keys: Sequence[str],
    columns: Sequence[str],
    aside: Sequence[str],
    function: Callable[[Batches], Iterator[pa.RecordBatch]],
    ddl: str,
) -> ArrowRows:
    """As `map_rows` over the inner join of a frame with others by keys.

    Side reads take no part in the join, on either engine: a join holds, sorts or spills whole rows. It may shuffle
    them, so they are brought back into the order of their files: each task then reads consecutive rows.

    Args:
        frame: rows, with the keys.
        others: narrow rows with the keys and further columns; at most one for each row of the frame.
        keys: columns, equal in both.
        columns: what Spark reads, of both.
        aside: what the workers read, of the frame.
        function: as of `map_rows`.
        ddl: columns of the result.
    """
    rows = frame if FILE in frame.columns else located(frame)
    if rows is None:
        return ArrowRows(frame.join(others, list(keys)).select(*columns, *aside), function, ddl)
    mine = [*keys, *(name for name in columns if name not in {*keys, *others.columns})]
    chosen = rows.select(*mine, FILE, ROW).join(others, list(keys)).select(*columns, FILE, ROW)
    return in_file_order(chosen).map(fetching(rows.sparkSession, aside, function), ddl)


def in_file_order(placed: DataFrame, *order: str) -> Arranged:
    """Rows in the order of their files: a call gets ranges of consecutive rows, each longer than a row group.

    Args:
        placed: with `data_file` and `data_row`.
        order: columns of the order among rows of equal position.
    """
    # Any order of the files will do, and that of numbers is found in a tenth of the time that their paths take.
    stretches = placed.withColumns({_FILE_HASH: F.xxhash64(FILE), _STRETCH: F.expr(f"{ROW} div {_STRETCH_ROWS}")})
    return grouped(stretches, [_FILE_HASH, _STRETCH], [ROW, *order]).select(*placed.columns)


def fetching(
    spark: SparkSession, aside: Sequence[str], function: Callable[[Batches], Iterator[pa.RecordBatch]]
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Wrap a function so that it takes batches with `data_file` and `data_row` in place of the side reads."""
    fetch = SideReads(tuple(aside), file_properties(spark)).fetch
    return lambda batches: function(fetch(batches))


def file_properties(spark: SparkSession) -> dict[str, str]:
    """Properties of the lake's files for PyIceberg, from those of the session's catalogue."""
    from headrace.tables.settings import CATALOGUE
    from spark_jobs.lake.session.spark_settings import FILE_PROPERTIES  # which loads much that workers do not need

    if is_embedded(spark):
        return {}
    prefix = f"spark.sql.catalog.{CATALOGUE}."
    configured = {name: spark.conf.get(prefix + key, None) for name, key in FILE_PROPERTIES.items()}
    return {name: value for name, value in configured.items() if value is not None}


@dataclass(frozen=True)
class SideReads:
    """Reads columns of given rows from data files, in a worker.

    Attributes:
        names: columns.
        properties: of PyIceberg's FileIO, for remote files.
    """

    names: tuple[str, ...]
    properties: Mapping[str, str]

    def fetch(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Replace `data_file` and `data_row` by the columns of the side read.

        Args:
            batches: rows with both; any order gives the right rows, the order of the files is fast.

        Yields:
            The rows in their order, in batches of one row group each.
        """
        for rows, group, indices in self.groups(batches):
            kept = [name for name in rows.schema.names if name not in (FILE, ROW)]
            contiguous = len(indices) == indices[-1] - indices[0] + 1 and bool((np.diff(indices) == 1).all())
            values = group.slice(indices[0], len(indices)) if contiguous else group.take(pa.array(indices))
            yield pa.RecordBatch.from_arrays(
                [*(rows.column(name) for name in kept), *values.columns], names=[*kept, *self.names]
            )

    def groups(self, batches: Batches) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch, Int64Array]]:
        """Read the row groups of some rows, one after the other.

        Yields:
            N rows; the side reads of the row group that holds them, or of a part of it where a column of it exceeds
            2 GiB (beyond them Arrow needs several arrays of texts); (N,) index of each row in that.
        """
        path, number = "", -1
        file: pq.ParquetFile | None = None
        firsts = np.zeros(0, dtype=np.int64)
        group: list[pa.RecordBatch] = []
        for batch in batches:
            if not batch.num_rows:
                continue
            for part in _same_file(batch):
                file_path = part.column(FILE)[0].as_py()
                if file is None or file_path != path:
                    opened = open_input(file_path, self.properties)
                    file, path, number = pq.ParquetFile(opened, page_checksum_verification=True), file_path, -1
                    sizes = [file.metadata.row_group(n).num_rows for n in range(file.metadata.num_row_groups)]
                    firsts = np.cumsum([0, *sizes])[:-1]
                numbers = part.column(ROW).to_numpy()
                wanted = np.searchsorted(firsts, numbers, side="right") - 1
                for start, end in _stretches(wanted):
                    if wanted[start] != number:
                        number = int(wanted[start])
                        group = []  # two row groups at a time would double a worker's memory
                        table = file.read_row_group(number, columns=list(self.names), use_threads=False)
                        group = _pieces(table.select(self.names))
                    places = numbers[start:end] - firsts[number]
                    starts = np.cumsum([0, *(piece.num_rows for piece in group)])
                    held_by = np.searchsorted(starts, places, side="right") - 1
                    for low, high in _stretches(held_by):
                        piece = int(held_by[low])
                        yield (
                            part.slice(start + low, high - low),
                            group[piece],
                            places[low:high] - starts[piece],
                        )


def _pieces(group: pa.Table) -> list[pa.RecordBatch]:
    """The rows of a row group, one batch where its arrays may be that large."""
    batches: list[pa.RecordBatch] = group.combine_chunks().to_batches()
    return batches


def _same_file(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Parts of a batch, of one file each."""
    codes = batch.column(FILE).dictionary_encode().indices.to_numpy()
    for start, end in _stretches(codes):
        yield batch.slice(start, end - start)


def _stretches(values: npt.NDArray[np.integer]) -> Iterator[tuple[int, int]]:
    """Start and end of each run of equal values: 5 5 7 -> (0, 2), (2, 3)."""
    yield from pairwise([0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)])
