"""Carry released increments of a quarantined dataset over into its own tables, as they would have landed there.

    web_quarantine.documents[3]    --decision in system.audit-->    web.documents[3]

Rows are copied as they are; an increment keeps its number, so a refused one leaves a gap. Kept objects are copied to
the folder of the dataset's own namespace, and their hash is checked on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import Output, Scope, step
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.sources.documents import ARRIVALS, DOCUMENTS, REPOSITORIES
from spark_jobs.sources.landing.provenance import PROVENANCE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@step(version="1", scope=Scope.INCREMENT, tables=(DOCUMENTS, REPOSITORIES, PROVENANCE, ARRIVALS), gate="person")
def released(
    landed: DataFrame,
    landed_repositories: DataFrame,
    landed_provenance: DataFrame,
    landed_arrivals: DataFrame,
    objects: ObjectFolder | None = None,
) -> Output:
    """Copy the rows of an increment released from quarantine.

    Args:
        landed: the documents in quarantine, of one increment.
        landed_repositories: their repositories.
        landed_provenance: where they are from.
        landed_arrivals: the seen files.
        objects: where the dataset keeps its own copies of bytes.
    """
    frames = (landed, landed_repositories, landed_provenance, landed_arrivals)
    outputs = {
        table.name: frame.select([column.name for column in table.columns])
        for table, frame in zip((DOCUMENTS, REPOSITORIES, PROVENANCE, ARRIVALS), frames, strict=True)
    }
    arrivals = outputs[ARRIVALS.name]
    outputs[ARRIVALS.name] = arrivals.mapInArrow(partial(_moved, objects=objects), arrivals.schema)
    return Output(outputs)


def _moved(batches: Iterable[pa.RecordBatch], objects: ObjectFolder | None) -> Iterator[pa.RecordBatch]:
    """Copy the kept objects of arrivals; gives the arrivals with the locations of the copies."""
    import pyarrow as pa

    for batch in batches:
        at = batch.schema.get_field_index("object")
        kept = [
            None if location is None or objects is None else _copy(location, sha256, objects)
            for location, sha256 in zip(
                batch.column("object").to_pylist(), batch.column("content_sha256").to_pylist(), strict=True
            )
        ]
        yield batch.set_column(at, batch.schema.field(at), pa.array(kept, batch.schema.field(at).type))


def _copy(location: str, sha256: str | None, objects: ObjectFolder) -> str:
    """Copy a kept object into a folder; gives the location of the copy.

    Raises:
        InputError: they are not what landed.
    """
    with objects.open(location) as stream:
        kept = objects.keep(stream)
    if sha256 is not None and kept.sha256 != sha256:
        raise InputError(f"{location}: its bytes are not those that landed ({sha256}); it stays in quarantine")
    return kept.location
