"""Maintenance: merge small files and expire snapshots; no row changes, and no ordinal comes to mean another row."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog

from spark_jobs.lake.ledger.lease import table_leases
from spark_jobs.lake.session.catalogue import spark_identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MIN_FILES = 2  # Iceberg's own default, 5, leaves groups of up to four files unmerged


def compact(spark: SparkSession, catalogue: Catalog, identifier: str) -> tuple[int, int]:
    """Merge the small data files of each partition; rows keep the table's sort order inside a file.

    In a packed table each merged file still holds one contiguous run of ordinals, because the files of an increment are
    merged in order of their ordinals and cut into ranges.

    Returns:
        Data files before and after.
    """
    with table_leases(catalogue, [identifier]):
        before = _file_count(catalogue, identifier)
        table = catalogue.load_table(identifier)
        sort = ", ".join(table.schema().find_column_name(field.source_id) or "" for field in table.sort_order().fields)
        strategy = f", strategy => 'sort', sort_order => '{sort}'" if sort else ""
        spark.sql(
            f"CALL {spark_identifier('system.rewrite_data_files')}(table => '{identifier}'{strategy}, "
            f"options => map('min-input-files', '{_MIN_FILES}'))"
        )
        return before, _file_count(catalogue, identifier)


def expire(spark: SparkSession, catalogue: Catalog, identifier: str, older_than: datetime) -> int:
    """Remove snapshots older than a moment, and the files that only they used; heads and tagged snapshots stay.

    Args:
        spark: a session of this lake.
        catalogue: its catalogue.
        identifier: the table.
        older_than: aware time; younger snapshots stay.

    Returns:
        Snapshots removed.
    """
    with table_leases(catalogue, [identifier]):
        before = len(catalogue.load_table(identifier).metadata.snapshots)
        moment = older_than.strftime("%Y-%m-%d %H:%M:%S.%f")
        spark.sql(
            f"CALL {spark_identifier('system.expire_snapshots')}(table => '{identifier}', "
            f"older_than => TIMESTAMP '{moment}', retain_last => 1)"
        )
        return before - len(catalogue.load_table(identifier).metadata.snapshots)


def _file_count(catalogue: Catalog, identifier: str) -> int:
    return sum(1 for _ in catalogue.load_table(identifier).scan().plan_files())
