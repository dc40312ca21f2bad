"""What engines keep in the folders of tables beside the data: left out; and the columns in names of folders.

sales/_SUCCESS                                    a mark of Spark: no data
sales/_temporary/0/task_1/part-1.parquet          of a task never committed: no data
sales/lang=de/day=2026-01-31/part-0.parquet       its rows have the columns lang and day
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote

from spark_jobs.sources.refusals import Reason, Refusal

if TYPE_CHECKING:
    from spark_jobs.sources.opening.file_trees import FoundFile

_UNCOMMITTED = re.compile(
    r"_temporary|_temporary-.+|\.spark-staging-.+|__magic(_job-.+)?"  # Hadoop, Spark, the committers of S3A
    r"|\.hive-staging.*|_(task_)?tmp\.[-\d].*|_impala_insert_staging.*|\.impala_insert_staging.*"  # Hive, Impala
    r"|\.distcp\.tmp\..+|\._COPYING_|.+\._COPYING_|.*\.inprogress(\..+)?"  # copies; Flink
)
_LOGS = re.compile(
    r"_delta_log|_delta_index|_change_data|_symlink_format_manifest|_spark_metadata|_logs"  # Delta, Spark, Hadoop
    r"|\.hoodie.*|_orc_acid_version|.+_flush_length"  # Hudi, Hive
)
_MARKS = re.compile(
    r"_SUCCESS|_FAILURE|_metadata|_common_metadata|_(committed|started)_\w+|.+_\$folder\$"  # Parquet, Databricks, EMR
)
_ICEBERG_METADATA = re.compile(
    r"(?:.*/)?metadata/(?:v\d+|\d+-[0-9a-f-]{36})(?:\.\w+)?\.metadata\.json(?:\.gz)?|(?:.*/)?metadata/version-hint\.text"
)
_PARTITION = re.compile(r"([^=/#?]+)=([^/#?]*)")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def engine_name(name: str) -> str | None:
    """What an engine keeps under a name of a file or folder; None where it is data."""
    if _UNCOMMITTED.fullmatch(name):
        return "what a task of an engine wrote and did not commit"
    if _LOGS.fullmatch(name):
        return "what an engine notes about a table"
    return "a mark of an engine beside its data" if _MARKS.fullmatch(name) else None


def engine_refusal(path: str) -> Refusal | None:
    """The refusal of a file in a folder of an engine, or of one of its marks; None for data."""
    engine = next(filter(None, map(engine_name, path.split("/"))), None)
    return None if engine is None else Refusal(Reason.NO_DATA, f"{engine}, no data")


def without_engine_files(files: Iterable[FoundFile]) -> Iterator[FoundFile]:
    """Files of data; of each folder of an engine, and each of its marks, one refused entry."""
    listed = list(files)
    iceberg = {file.path.rpartition("/")[0] for file in listed if _ICEBERG_METADATA.fullmatch(file.path)}
    counts = Counter[str]()
    tops: dict[str, tuple[FoundFile, str]] = {}
    for file in listed:
        parts = file.path.rstrip("/").split("/")
        for end, name in enumerate(parts, start=1):
            top = "/".join(parts[:end])
            what = engine_name(name) or ("what Iceberg notes about a table" if top in iceberg else None)
            if what is not None:
                counts[top] += 1
                tops.setdefault(top, (file, what))
                break
        else:
            yield file
    for top, (file, what) in tops.items():
        below = file.path.rstrip("/").count("/") - top.count("/")
        if not below:
            yield file._replace(refusal=Refusal(Reason.NO_DATA, f"{what}, no data"))
            continue
        location = file.location.partition("?")[0].rstrip("/").rsplit("/", below)[0]
        detail = f"{what}, no data: {counts[top]} files in it are left out"
        yield file._replace(
            location=location, path=f"{top}/", byte_count=None, modified=None, refusal=Refusal(Reason.NO_DATA, detail)
        )


def partitions(location: str) -> dict[str, str | None]:
    """The columns from the folders above a file, as Hive names them: `lang=de/`; of one name the last."""
    folders = re.split(r"[/#]", location.partition("?")[0])[:-1]
    pairs = filter(None, map(_PARTITION.fullmatch, folders))
    values = ((unquote(pair[1]), unquote(pair[2])) for pair in pairs)
    return {name: None if value == _NO_VALUE else value for name, value in values}
