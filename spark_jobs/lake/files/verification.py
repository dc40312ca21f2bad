"""Read all rows of a table again and compare their data versions with those that the ledger holds.

A difference is what another program did: files replaced or lost, rows written, bits flipped. The version of an
increment is over the columns that the table had when it was written, so older schemas of the table are tried too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from spark_jobs.exceptions import StepRunError
from spark_jobs.lake.ledger.data_version import DataVersion, digest, digest_columns, row_hash, version_of
from spark_jobs.lake.session.catalogue import spark_identifier
from spark_jobs.lake.session.spark_errors import failure_line

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyspark.sql import DataFrame, SparkSession


def changed_places(
    spark: SparkSession, identifier: str, table: IcebergTable, expected: Mapping[str, DataVersion]
) -> dict[str, DataVersion]:
    """Compare a table's rows with its data versions, in one Spark job where all is well.

    Args:
        spark: a session of the lake.
        identifier: of the table.
        table: the same in PyIceberg.
        expected: data version by increment; of a table without increments by partition.

    Returns:
        What was found at each increment that differs, with those that nobody recorded; for a table without increments
        at the place "", which stands for all of it.

    Raises:
        StepRunError: a data file cannot be read; the message names it.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    by_increment = "increment" in table.schema().column_names
    wanted = dict(expected) if by_increment else {"": sum(expected.values(), DataVersion())}
    schemas = dict.fromkeys(
        tuple(field.name for field in schema.fields) for schema in (table.schema(), *table.metadata.schemas)
    )
    first: dict[str, DataVersion] = {}
    try:
        for columns in schemas:
            frame = spark.table(spark_identifier(identifier))
            if not set(columns) <= set(frame.columns):
                continue  # a column was dropped since, so no version over it can be made again
            if first:
                frame = frame.where(frame["increment"].isin(*map(int, wanted))) if by_increment else frame
            found = _by_increment(frame.select(*columns)) if by_increment else {"": digest(frame.select(*columns))}
            first = first or found
            wanted = {place: version for place, version in wanted.items() if found.get(place, DataVersion()) != version}
            if not wanted:
                break
    except (PySparkException, Py4JError, OSError) as error:
        raise StepRunError(f"{identifier}: {failure_line(error)}") from error
    unrecorded = {place: version for place, version in first.items() if by_increment and place not in expected}
    return {place: first.get(place, DataVersion()) for place in wanted} | unrecorded


def _by_increment(frame: DataFrame) -> dict[str, DataVersion]:
    columns = digest_columns(row_hash(frame.schema))
    rows = frame.groupBy("increment").agg(*(column.alias(name) for name, column in columns.items())).collect()
    return {str(row["increment"]): version_of({name: row[name] for name in columns}) for row in rows}
