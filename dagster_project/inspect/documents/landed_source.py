"""Where a document is from: its file is read once more, compared with what landed, and searched for the document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import Catalog

from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.document_lookup import FoundDocument, landings_of
from headrace.tables.quarantine import quarantine_of
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.files.rows import table_rows
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.landing.landed import (
    LandedPlace,
    find_document,
    landed_chunks,
    unlike_landed,
    unlike_provenance,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class LandedSource:
    """Where a document is from; its bytes were compared when this was made.

    Attributes:
        document: the document.
        arrival: of its file (`document_lookup.LANDING_COLUMNS`).
        place: in the file.
        config: of the dataset, as it was when the file landed.
        objects: of the dataset.
    """

    document: FoundDocument
    arrival: Mapping[str, Any]
    place: LandedPlace
    config: DocumentsConfig
    objects: ObjectFolder

    def facts(self) -> dict[str, Any]:
        """All facts, ready for JSON."""
        modified = self.arrival["modified"]
        file = {**self.arrival, "modified": modified.isoformat() if modified else None}
        return {"document": self.document.facts(), "file": file, **self.place._asdict()}

    def lines(self) -> Iterator[tuple[str, str]]:
        """Name and value of each fact, for people."""
        yield "document", f"{self.document.doc_id}  {self.document.dataset} {self.document.path}"
        yield "file", f"{self.arrival['location']}, {self.arrival['byte_count'] or 0:,} bytes, as they landed"
        yield "SHA-256", str(self.arrival["content_sha256"])
        if self.arrival["object"]:
            yield "kept as", self.arrival["object"]
        place = self.place
        if place.member is not None:
            yield "member", place.member
        if place.start is not None and place.end is not None:
            yield place.unit or "bytes", f"{place.number}: bytes {place.start:,} to {place.end:,}"
        elif place.unit is not None:
            begins = f"; it begins at byte {place.start:,} of the file" if place.start is not None else ""
            yield place.unit, f"{place.number:,}{' of the member' if place.member else ''}{begins}"


def landed_source(catalogue: Catalog, document: FoundDocument) -> LandedSource:
    """Read the file of a document once more; if several files are possible, such as pages, try one after the other.

    Raises:
        CommandError: the arrivals do not tell its file.
        InputError: the file is gone, has other bytes than the landed ones, or does not give the document any more.
    """
    arrivals, ledger = landings_of(catalogue, document), Ledger(catalogue)
    ledger.refresh()
    config = _configs(ledger, document.dataset).get(document.increment)
    if not arrivals or config is None:
        raise CommandError(
            f"document {document.doc_id}: {document.dataset}.arrivals does not tell which file it is from; "
            f"headrace table show {document.dataset}.arrivals --where 'increment = {document.increment}' lists them"
        )
    objects = ObjectFolder.of(catalogue, document.dataset)
    arrival, _, place = find_document(arrivals, document.doc_id, config, objects)
    return LandedSource(document, arrival, place, config, objects)


def _configs(ledger: Ledger, dataset: str) -> dict[int, DocumentsConfig]:
    """The config behind each landed increment of a dataset; waiting ones have landed in the dataset's quarantine."""
    landed = ledger.increments(f"{quarantine_of(dataset)}.documents") or ledger.increments(f"{dataset}.documents")
    return {number: DocumentsConfig.model_validate_json(row.config) for number, row in landed.items()}


def write_bytes(landed: LandedSource, output: Path) -> None:
    """Write the bytes of the document's record where the format has such, else those of its whole file.

    Raises:
        CommandError: they cannot be written.
    """
    try:
        with output.open("wb") as file:
            file.writelines(landed_chunks(landed.arrival, landed.place, landed.config, landed.objects))
    except OSError as error:
        raise CommandError(f"--output {output}: {error}") from error


def landed_faults(spark: SparkSession, catalogue: Catalog, ledger: Ledger, dataset: str) -> list[tuple[str, str]]:
    """Read all that landed in a dataset once more; gives what is missing or has other bytes than when it landed.

    Returns:
        Location of a file (or `provenance`, with an increment) and what is wrong, by location.
    """
    configs = _configs(ledger, dataset)
    if not configs:
        return []
    config = configs[max(configs)]
    faults = set[tuple[str, str]]()
    for space in (dataset, quarantine_of(dataset)):  # what waits has landed in the quarantine, and nowhere else yet
        if not ledger.places(f"{space}.arrivals"):
            continue
        arrivals, provenance = (table_rows(spark, f"{space}.{name}") for name in ("arrivals", "provenance"))
        changed = unlike_landed(arrivals, ObjectFolder.of(catalogue, space), config.source)
        rows = changed.unionByName(unlike_provenance(arrivals, provenance)).collect()
        faults |= {(row["location"], row["fault"]) for row in rows}
    return sorted(faults)
