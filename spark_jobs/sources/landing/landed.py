"""Go back to the landed bytes: which file a document is from, where in it, and whether the bytes are the same.

    arrivals -> find_document    the reader reads each file once more, until the document comes out of one
    arrivals -> unlike_landed    every landed file is hashed once more, on the executors

What is kept (`arrivals.object`) is named by its hash, so it can only be missing or damaged. A referenced file may have
been changed since; then it is named with both hashes, and its bytes are never taken for the landed ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from spark_jobs.exceptions import InputError
from spark_jobs.lake.files.objects import ObjectFolder, sha256_of
from spark_jobs.sources.config.source_config import DocumentsConfig, Source
from spark_jobs.sources.kinds import OpensListed, opening
from spark_jobs.sources.landing.provenance import landed_digest
from spark_jobs.sources.listed_file import ListedFile
from spark_jobs.sources.listing.changes import listed_again
from spark_jobs.sources.opening.compression import decompressed_by_name
from spark_jobs.sources.opening.file_trees import unreadable
from spark_jobs.sources.opening.streams import Stream
from spark_jobs.sources.reading.files import read_parts
from spark_jobs.sources.reading.record_rows import each_row
from spark_jobs.sources.reading.rows import ReadingRules, Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BLOB_BYTES = 1 << 31
_CHUNK_BYTES = 1 << 20
_UNLIKE = pa.schema([("location", pa.string()), ("fault", pa.string())])


class LandedPlace(NamedTuple):
    """Where a document is in the landed bytes.

    Attributes:
        unit: what `number` counts: line or row from 1, or the offset of a web archive's record, decompressed; None
            where the document is the file, or was made of all of it.
        number: of the record.
        start: first byte of the record, in the decompressed file for a line, in the file itself for a web archive's;
            None where the format has no such place (a row of Parquet) or the file as a whole is meant.
        end: byte after it; None where only the start is known.
        member: of the archive, in which `number` counts then; None where the file is no archive.
    """

    unit: str | None
    number: int | None
    start: int | None = None
    end: int | None = None
    member: str | None = None


def find_document(
    arrivals: Iterable[Mapping[str, Any]], doc_id: str, config: DocumentsConfig, objects: ObjectFolder
) -> tuple[Mapping[str, Any], Row, LandedPlace]:
    """Read landed files once more, until a document comes out of one.

    Args:
        arrivals: rows of `arrivals` of its possible files, in the order of trial.
        doc_id: the document.
        config: as it was when the files landed.
        objects: of the dataset.

    Returns:
        The arrival of its file, its row (`reading.READ_ROWS`), and where it is in the file.

    Raises:
        InputError: the document is in none of them; an unreadable file, or one with other bytes, is named first.
    """
    faults, tried = list[str](), list[str]()
    with opening(config.source, objects) as opens:
        rules = ReadingRules(
            config.dataset, config.shards, config.max_document_bytes, config.source, objects, opens=opens
        )
        for arrival in arrivals:
            tried.append(arrival["location"])
            if fault := _fault(arrival, opens):
                faults.append(f"{arrival['location']}: {fault}")
                continue
            file = listed_again(config, arrival)
            for row in chain.from_iterable(map(each_row, read_parts(file, rules))):
                if row["doc_id"] == doc_id:
                    return arrival, row, _place(file, row, rules)
    others = f" and {len(tried) - 1} others" if len(tried) > 1 else ""
    changed = f"{tried[0]}{others}: document {doc_id} does not come out of it again; its reader has changed since"
    raise InputError(faults[0] if faults else changed)


def landed_chunks(
    arrival: Mapping[str, Any], place: LandedPlace, config: DocumentsConfig, objects: ObjectFolder
) -> Iterator[bytes]:
    """The bytes of a document's record in pieces, or of its whole file where the record has no first and last byte.

    Raises:
        OSError: they cannot be read.
    """
    with opening(config.source, objects) as opens, opens(ListedFile.of(arrival), _BLOB_BYTES) as stream:
        if place.start is None or place.end is None:
            yield from iter(lambda: bytes(stream.read(_CHUNK_BYTES)), b"")
            return
        position, plain = 0, decompressed_by_name(stream, arrival["location"])
        while position < place.end and (chunk := bytes(plain.read(_CHUNK_BYTES))):
            yield chunk[max(place.start - position, 0) : max(place.end - position, 0)]
            position += len(chunk)


def _fault(arrival: Mapping[str, Any], opens: OpensListed) -> str | None:
    """What is wrong with the bytes of a landed file; None where they are as they were."""
    try:
        with opens(ListedFile.of(arrival), _BLOB_BYTES) as stream:
            sha256 = sha256_of(stream)
    except OSError as error:
        kept = f"its copy {arrival['object']} " if arrival["object"] else ""
        return f"{kept}cannot be read: {unreadable(error).detail}"
    if sha256 == arrival["content_sha256"]:
        return None
    if arrival["object"] is not None:
        return f"its copy {arrival['object']} is damaged: its SHA-256 is {sha256}"
    return (
        f"was changed since it landed: its SHA-256 is {sha256}, {arrival['content_sha256']} landed; run the dataset to "
        "land what is there now, and declare `landing: copy` to keep the bytes of what lands"
    )


def _place(file: ListedFile, row: Row, rules: ReadingRules) -> LandedPlace:
    """Where a document is in its file, by the columns from its reader."""
    unit, number = row.get("unit"), row.get("number")
    if unit == "line" and file.reader == "jsonl" and number:
        with rules.opens(file, rules.max_document_bytes) as stream:
            return LandedPlace(unit, number, *_line_bytes(decompressed_by_name(stream, file.location), number))
    offset = row["metadata"].get("offset") if unit == "offset" else None
    return LandedPlace(unit, number, int(offset) if offset is not None else None, None, row.get("member"))


def _line_bytes(stream: Stream, number: int) -> tuple[int, int]:
    """First byte of a line, counted from 1, and the byte after its last one."""
    line, start, position = 1, 0, 0
    while chunk := stream.read(_CHUNK_BYTES):
        at = -1
        while (at := chunk.find(b"\n", at + 1)) >= 0:
            if line == number:
                return start, position + at
            line, start = line + 1, position + at + 1
        position += len(chunk)
    return start, position


def unlike_landed(arrivals: DataFrame, objects: ObjectFolder, source: Source) -> DataFrame:
    """Hash what landed once more, on the executors; one row is a file with missing or changed bytes.

    Of a referenced file only its newest version can be there still; copies of all versions are read. The row of a git
    repository itself is not of a file: its hash is that of its refs.

    Args:
        arrivals: of the dataset, with `increment`.
        objects: of the dataset.
        source: of the dataset.

    Returns:
        `location`, and `fault` in a sentence.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    columns = ("location", "object", "content_sha256")
    kept = arrivals.where("object IS NOT NULL AND content_sha256 IS NOT NULL").select(*columns).distinct()
    newest = F.struct("status", "reason", *columns[1:])
    files = arrivals.where("path IS NOT NULL OR repository IS NULL")
    latest = files.groupBy("location").agg(F.max_by(newest, "increment").alias("last"))
    there = latest.select("location", "last.*").where(
        "status IN ('landed', 'unchanged', 'returned') AND object IS NULL AND content_sha256 IS NOT NULL "
        "AND NOT reason <=> 'deleted'"
    )
    return kept.unionByName(there.select(*columns)).mapInArrow(
        partial(_check_files, objects=objects, source=source), from_arrow_schema(_UNLIKE)
    )


def unlike_provenance(arrivals: DataFrame, provenance: DataFrame) -> DataFrame:
    """Compare `provenance` with `arrivals`; one row is an increment where they differ.

    Returns:
        As of `unlike_landed`.
    """
    from pyspark.sql import functions as F

    digests = arrivals.groupBy("increment").agg(landed_digest().alias("made"))
    other = provenance.join(digests, "increment", "left").where("NOT digest <=> made")
    where, fault = F.format_string("provenance of increment %d", "increment"), F.lit("is not that of its arrivals")
    return other.select(where.alias("location"), fault.alias("fault"))


def _check_files(batches: Iterator[pa.RecordBatch], objects: ObjectFolder, source: Source) -> Iterator[pa.RecordBatch]:
    with opening(source, objects) as opens:
        for batch in batches:
            rows = [{"location": row["location"], "fault": _fault(row, opens)} for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist([row for row in rows if row["fault"]], _UNLIKE)
