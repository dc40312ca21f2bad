"""An archive of the classes that Spark and Iceberg load, so that a local session starts and plans sooner.

Java maps such an archive (class data sharing, https://openjdk.org/jeps/350) in place of reading and verifying some
25,000 classes from jars in each process. `python -m spark_jobs.lake.session.class_archive` makes it, as the set-up
does, by running small queries of the kinds that steps consist of. It lies beside the jars, of which it holds
the same classes again, and takes 150 to 200 MB. It is for one Java and one list of jars: for another a session finds
none, and starts without.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from headrace.tables.settings import settings_at
from spark_jobs.exceptions import SetupError
from spark_jobs.lake.session.jars import CORE, QUIET, archive_path, jar_directory, jar_paths
from spark_jobs.lake.session.session import LOCAL_JAVA_OPTIONS, start_session
from spark_jobs.spark_sql import F, SparkSession

_EXIT_SECONDS = 120


def make(purposes: frozenset[str] = CORE) -> Path:
    """Make the archive; it appears whole or not at all.

    Raises:
        SetupError: Java or a jar is missing, Spark does not start, or the directory cannot be written.
    """
    from pyspark.errors import PySparkException

    path = archive_path(purposes)
    try:
        with tempfile.TemporaryDirectory(prefix=".archiving-", dir=jar_directory()) as scratch:
            archive = Path(scratch) / path.name
            options = " ".join((LOCAL_JAVA_OPTIONS, f"-XX:ArchiveClassesAtExit={archive}", *QUIET))
            extra = {
                "spark.driver.extraJavaOptions": options,
                "spark.driver.extraClassPath": ":".join(map(str, jar_paths(purposes))),
                "spark.jars": "",
            }
            session = start_session(settings_at(Path(scratch) / "lake"), master="local[2]", extra=extra)
            _load_classes(session)
            gateway = session.sparkContext._gateway
            session.stop()
            _end(gateway)
            return archive.replace(path)
    except OSError as error:
        raise SetupError(f"class archive: {path.parent}: {error.strerror or error}; set HEADRACE_JARS") from error
    except (PySparkException, subprocess.TimeoutExpired) as error:
        raise SetupError(f"class archive: {str(error).splitlines()[0]}; sessions start without it") from error


def _load_classes(session: SparkSession) -> None:
    """Read, join, group, sort and map rows as steps do."""
    session.sql("CREATE NAMESPACE lake.a")
    columns = "shard int, n bigint, name string, many array<int>"
    session.sql(f"CREATE TABLE lake.a.b ({columns}) USING iceberg PARTITIONED BY (shard)")
    rows = session.range(1000).selectExpr(
        "cast(id % 2 AS int) AS shard", "id AS n", "sha2(cast(id AS string), 256) AS name", "array(1, 2) AS many"
    )
    session.sql("ALTER TABLE lake.a.b CREATE BRANCH c")
    rows.writeTo("lake.a.b.branch_c").overwrite(F.expr("shard >= 0"))
    there = session.table("lake.a.b.branch_c")
    mapped = there.sortWithinPartitions("shard", "n").mapInArrow(lambda batches: batches, columns)
    joined = mapped.join(there.withColumnRenamed("name", "other"), ["shard", "n"]).where("name = other")
    ranked = joined.selectExpr("*", "row_number() OVER (PARTITION BY shard ORDER BY n DESC) AS place")
    ranked.groupBy("shard").agg(F.collect_list("n"), F.max("place")).toArrow()
    there.join(mapped.where("n % 3 = 0"), "n", "left_anti").orderBy("n").limit(5).collect()
    session.createDataFrame(there.limit(3).toArrow()).select(F.explode("many")).distinct().count()
    there.groupBy("shard").applyInArrow(lambda table: table.select(["n"]), "n bigint").count()


def _end(gateway: Any) -> None:
    """End the JVM of a stopped session and wait until it has written the archive."""
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=_EXIT_SECONDS)


def main() -> int:
    """Make the archive for the jars of the purposes on the command line; status 2 and one line where that fails."""
    try:
        path = make(frozenset(sys.argv[1:]) or CORE)
    except SetupError as error:
        print(f"set-up: {error}", file=sys.stderr)  # noqa: T201
        return 2
    print(f"set-up: {path.stat().st_size / 1e6:,.0f} MB of classes in {path}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
