"""An Iceberg table as a source: the data files of its newest or of a named snapshot, read where they lie.

source: {kind: iceberg, table: web.pages, catalogue: {type: rest, uri: https://..}, text_column: body, id_column: url}

What a snapshot adds to the one before is an increment: its new files are read, the records of removed files are gone. A
file with rows deleted since is read again, without them. Rows moved to new files by another engine's compaction come
again under the names of those.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from spark_jobs.credentials import filled
from spark_jobs.exceptions import ConfigError, InputError
from spark_jobs.sources.config.declared import NO_ROWS
from spark_jobs.sources.config.file_source import FileSource
from spark_jobs.sources.opening.file_trees import FoundFile
from spark_jobs.sources.refusals import Reason, Refusal, first_line
from spark_jobs.threads import made_once

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table


class IcebergSource(FileSource):
    """Records of an Iceberg table of this or another catalogue, read where they lie; docs/prepare/ingest.md."""

    kind: Literal["iceberg"] = "iceberg"
    table: str = Field(pattern=r".+\..+", description="the table, with its namespace")
    catalogue: dict[str, str] = Field(
        default_factory=dict,
        description="its catalogue: name, of one in .pyiceberg.yaml or in a database of several, and properties as "
        "PyIceberg has them (type, uri, ..), ${NAME} for a variable of the environment; empty: that of this lake",
        json_schema_extra=NO_ROWS,
    )
    format: str = Field("parquet", description="of the data files; there is no other")
    snapshot: int | None = Field(None, description="id of the snapshot that is read; without it the newest")

    @field_validator("format")
    @classmethod
    def _format_is_parquet(cls, name: str) -> str:
        """Refuse any format but Parquet, the format of a table's files."""
        if name != "parquet":
            raise ValueError(f"{name} is no format of a table's files that is read; leave it out")
        return name

    @property
    def lake_tables(self) -> tuple[str, ...]:
        """The table, if it is one of this lake."""
        return () if self.catalogue else (self.table,)

    def entries(self) -> Iterator[FoundFile]:
        """The data files of the snapshot; the size of one includes its files of deleted rows."""
        from pyiceberg.manifest import FileFormat

        _scanned.forget()  # what was committed since the last run counts
        table, tasks = _scanned(self.model_dump_json())
        root = table.location().rstrip("/") + "/"
        for task in tasks.values():
            size = task.file.file_size_in_bytes + sum(file.file_size_in_bytes for file in task.delete_files)
            path = task.file.file_path.removeprefix(root).removeprefix("data/")
            kind = task.file.file_format
            unread = Refusal(Reason.UNKNOWN_FORMAT, f"a data file in {kind.value}; only Parquet is read")
            refusal = None if kind == FileFormat.PARQUET else unread
            yield FoundFile(task.file.file_path, path.lstrip("/"), size, None, refusal)

    def open(self, location: str) -> IO[bytes] | Any:
        """A data file where it lies; after deletions or changes of the schema a copy with its present rows.

        Raises:
            OSError: it is no file of the snapshot any more, or cannot be read.
        """
        table, tasks = _scanned(self.model_dump_json())
        if location not in tasks:  # a worker that has read an earlier snapshot
            _scanned.forget()
            table, tasks = _scanned(self.model_dump_json())
        if (task := tasks.get(location)) is None:
            raise OSError(f"{self.table} has no such file any more; run again")
        if not task.delete_files and len(table.schemas()) == 1:
            return table.io.new_input(location).open()
        return _as_it_is(table, task)


@made_once(most=4)
def _scanned(source: str) -> tuple[Table, dict[str, FileScanTask]]:
    """The table of a source, and the scan of each of its data files, by location.

    Raises:
        InputError: the catalogue cannot be reached, or has no such table or snapshot.
    """
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    from headrace.tables.settings import load_settings
    from spark_jobs.lake.session.catalogue import open_catalogue

    config = IcebergSource.model_validate(json.loads(source))
    try:
        if config.catalogue:
            properties = {key: filled(text, "catalogue") for key, text in config.catalogue.items()}
            catalogue = load_catalog(properties.pop("name", None), **properties)
        else:
            catalogue = open_catalogue(load_settings())
        table = catalogue.load_table(config.table)
        if config.snapshot is not None and table.snapshot_by_id(config.snapshot) is None:
            newest = ", ".join(str(snapshot.snapshot_id) for snapshot in table.snapshots()[-3:])
            raise InputError(f"{config.table} has no snapshot {config.snapshot}; the last are {newest}")
        tasks = table.scan(snapshot_id=config.snapshot).plan_files()
        return table, {task.file.file_path: task for task in tasks}
    except NoSuchTableError as error:
        raise InputError(f"{config.table}: the catalogue has no such table; correct `table` or `catalogue`") from error
    except ConfigError as error:
        raise InputError(f"{config.table}: {error}") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{config.table}: {first_line(error)}; check `catalogue` and the credentials") from error


def _as_it_is(table: Table, task: FileScanTask) -> IO[bytes]:
    """A temporary Parquet file with a data file's remaining rows, in the present schema of the table."""
    import pyarrow.parquet as pq
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow

    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    file = tempfile.TemporaryFile()  # noqa: SIM115  whoever reads it closes it
    schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in scan.to_record_batches([task]):
            writer.write_batch(batch.cast(schema))
    file.seek(0)
    return file
