"""Maintain one table: merge small files, expire snapshots, remove orphan files; no row and no ordinal changes."""

from __future__ import annotations

from datetime import datetime

from pyiceberg.catalog import Catalog

from spark_jobs.lake.engine.embedded import require_spark
from spark_jobs.lake.ledger.lease import WAIT_SECONDS, table_leases
from spark_jobs.lake.session.catalogue import spark_identifier
from spark_jobs.lake.session.identity import require_inside, warehouse_of
from spark_jobs.spark_sql import SparkSession

_MIN_FILES = 2  # Iceberg's own default, 5, leaves groups of up to four files unmerged


def compact(
    spark: SparkSession, catalogue: Catalog, identifier: str, wait_seconds: float = WAIT_SECONDS
) -> tuple[int, int]:
    """Merge the small data files of each partition; rows keep the table's sort order inside a file.

    In a packed table each merged file still holds one contiguous run of ordinals, because the files of an increment are
    merged in order of their ordinals and cut into ranges.

    Returns:
        Data files before and after.

    Raises:
        LeaseError: another writer held the table for longer than `wait_seconds`.
    """
    require_spark(spark, "compaction")
    with table_leases(catalogue, [identifier], wait_seconds):
        before = _file_count(catalogue, identifier)
        table = catalogue.load_table(identifier)
        sort = ", ".join(table.schema().find_column_name(field.source_id) or "" for field in table.sort_order().fields)
        strategy = f", strategy => 'sort', sort_order => '{sort}'" if sort else ""
        spark.sql(
            f"CALL {spark_identifier('system.rewrite_data_files')}(table => '{identifier}'{strategy}, "
            f"options => map('min-input-files', '{_MIN_FILES}'))"
        )
        return before, _file_count(catalogue, identifier)


def expire(
    spark: SparkSession,
    catalogue: Catalog,
    identifier: str,
    older_than: datetime,
    wait_seconds: float = WAIT_SECONDS,
) -> int:
    """Remove snapshots older than a moment, and the files that only they used; heads and tagged snapshots stay.

    Raises:
        LeaseError: another writer held the table for longer.
    """
    require_spark(spark, "expiry of snapshots")
    with table_leases(catalogue, [identifier], wait_seconds):
        _require_files_inside(spark, catalogue, identifier)
        before = len(catalogue.load_table(identifier).metadata.snapshots)
        moment = older_than.strftime("%Y-%m-%d %H:%M:%S.%f")
        spark.sql(
            f"CALL {spark_identifier('system.expire_snapshots')}(table => '{identifier}', "
            f"older_than => TIMESTAMP '{moment}', retain_last => 1)"
        )
        return before - len(catalogue.load_table(identifier).metadata.snapshots)


def _require_files_inside(spark: SparkSession, catalogue: Catalog, identifier: str) -> None:
    """Refuse to expire what would delete a file outside of the lake's warehouse, which another program may have added.

    Raises:
        WrongLakeError: names the first folder.
    """
    warehouse, files = warehouse_of(catalogue), f"{spark_identifier(identifier)}.all_files"
    if warehouse is None:
        return
    for row in spark.sql(f"SELECT DISTINCT regexp_replace(file_path, '/[^/]*$', '') FROM {files} ORDER BY 1").collect():
        require_inside(identifier, row[0], warehouse)


def old_snapshots(catalogue: Catalog, identifier: str, older_than: datetime) -> int:
    """How many snapshots are older than a moment and neither a head nor tagged; expiry removes those."""
    metadata = catalogue.load_table(identifier).metadata
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    moment = older_than.timestamp() * 1000
    return sum(one.timestamp_ms < moment and one.snapshot_id not in named for one in metadata.snapshots)


def remove_orphans(
    spark: SparkSession,
    catalogue: Catalog,
    identifier: str,
    older_than: datetime,
    dry_run: bool = False,
    wait_seconds: float = WAIT_SECONDS,
) -> list[str]:
    """Remove files below a table's location that no snapshot, branch or tag names.

    Raises:
        LeaseError: another writer held the table for longer.
    """
    require_spark(spark, "removal of orphan files")
    with table_leases(catalogue, [identifier], wait_seconds):
        moment = older_than.strftime("%Y-%m-%d %H:%M:%S.%f")
        # Without prefix_listing Hadoop lists the files, which knows no store: "No FileSystem for scheme s3".
        rows = spark.sql(
            f"CALL {spark_identifier('system.remove_orphan_files')}(table => '{identifier}', "
            f"older_than => TIMESTAMP '{moment}', dry_run => {str(dry_run).lower()}, prefix_listing => true)"
        ).collect()
        return [row[0] for row in rows]


def _file_count(catalogue: Catalog, identifier: str) -> int:
    return sum(1 for _ in catalogue.load_table(identifier).scan().plan_files())
