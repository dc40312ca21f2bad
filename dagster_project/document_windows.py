"""From a document to the windows that hold it, over all packed tables."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo

from dagster_project.corpus_facts import namespaces_with
from dagster_project.document_lookup import FoundDocument
from spark_jobs.lake.catalogue import load_table
from spark_jobs.lake.lookups import read_rows
from spark_jobs.packing.ordinals import find_windows


@dataclass(frozen=True)
class HeldIn:
    """One part of a document in a packed table.

    Attributes:
        table: the packed table.
        ordinal: row.
        window_start: place of its first token in the window.
        document_start: that token's number among the document's own.
        token_count: tokens, specials included.
    """

    table: str
    ordinal: int
    window_start: int
    document_start: int
    token_count: int


def packed_tables(catalogue: Catalog, dataset: str | None = None) -> list[str]:
    """Packed tables of the lake, or those of one dataset, by name."""
    prefix = f"packed_{dataset}_" if dataset is not None else "packed_"
    return [
        f"{corpus}.{name}"
        for corpus in namespaces_with(catalogue, "tokens")
        for _, name in sorted(catalogue.list_tables(corpus))
        if name.startswith(prefix) and name.removeprefix(prefix).split("_")[-1].isdigit()
    ]


def windows_of(catalogue: Catalog, document: FoundDocument) -> list[HeldIn]:
    """Every part of a document, by table, then in the document's order.

    Reads the segments of those increments of each table that took in the document's increment.
    """
    found = []
    for identifier in packed_tables(catalogue, document.dataset):
        table = load_table(catalogue, identifier)
        if table is None or table.current_snapshot() is None:
            continue
        of_document = And(EqualTo("dataset", document.dataset), EqualTo("dataset_increment", document.increment))
        rows = read_rows(catalogue, f"{identifier.split('.')[0]}.increments", ("increment",), of_document)
        increments = {row["increment"] for row in rows}
        if not increments:
            continue
        parts = [
            HeldIn(identifier, ordinal, segment["window_start"], segment["document_start"], segment["token_count"])
            for _, ordinal, segments in find_windows(identifier, table, [document.doc_id], increments)
            for segment in segments
            if segment["doc_id"] == document.doc_id
        ]
        found += sorted(parts, key=lambda part: (part.document_start, part.token_count))
    return found
