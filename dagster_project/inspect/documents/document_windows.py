"""Find the windows of a document, in all packed tables; decode a window."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo, In
from pyiceberg.table import Table as IcebergTable

from dagster_project.inspect.documents.document_lookup import FoundDocument
from dagster_project.inspect.lake.corpus_facts import namespaces_with
from dagster_project.inspect.lake.dependent_blends import dependent_blends, pinned_snapshots
from headrace.tables.catalogue import load_table
from spark_jobs.exceptions import InputError
from spark_jobs.lake.files.lookups import read_rows
from spark_jobs.packing.generations import ServedHead, served_heads
from spark_jobs.packing.ordinals import find_windows, packed_facts


@dataclass(frozen=True)
class HeldIn:
    """One part of a document in a packed table.

    Attributes:
        table: the packed table.
        snapshot: `head`, or the id of an older one pinned by blends or tags.
        ordinal: row.
        window_start: position of its first token in the window.
        document_start: that token's number among the document's own.
        token_count: tokens, specials included.
    """

    table: str
    snapshot: str
    ordinal: int
    window_start: int
    document_start: int
    token_count: int


def packed_tables(catalogue: Catalog, dataset: str | None = None) -> list[str]:
    """Packed tables of the lake, or those of one dataset, by name."""
    wanted = re.compile(rf"packed_{'.+' if dataset is None else re.escape(dataset)}_[0-9]+")
    return [
        f"{corpus}.{name}"
        for corpus in namespaces_with(catalogue, "tokens")
        for _, name in sorted(catalogue.list_tables(corpus))
        if wanted.fullmatch(name)
    ]


def windows_of(catalogue: Catalog, document: FoundDocument) -> list[HeldIn]:
    """Every part of a document in all served snapshots, by table, the head first, then in the document's order.

    In the head, only the increments that took in the document's increment are read first. Where they do not hold it,
    all are read: while a corpus that was refrozen is computed anew, its increments are not those of its packed tables.
    Snapshots of older generations that blends and tags pin are read whole.
    """
    parts = []
    tables = packed_tables(catalogue, document.dataset)
    blends = dependent_blends(catalogue, tables)
    for identifier in tables:
        table = load_table(catalogue, identifier)
        if table is None:
            continue
        of_document = And(EqualTo("dataset", document.dataset), EqualTo("dataset_increment", document.increment))
        rows = read_rows(catalogue, f"{identifier.split('.')[0]}.increments", ("increment",), of_document)
        for head in served_heads(table, pinned_snapshots(blends[identifier])):
            likely = [row["increment"] for row in rows] if head.is_main else []
            parts += (likely and _parts(identifier, table, head, document.doc_id, likely)) or _parts(
                identifier, table, head, document.doc_id
            )
    return parts


@dataclass(frozen=True)
class WindowPart:
    """One document's part of a window, decoded.

    Attributes:
        doc_id: the document.
        path: its path; empty where its dataset does not have it any more.
        document_start: number of the part's first token among the document's own.
        token_count: tokens, specials included.
        text: those tokens, special ones included.
    """

    doc_id: str
    path: str
    document_start: int
    token_count: int
    text: str


def decoded_window(catalogue: Catalog, identifier: str, ordinal: int) -> list[WindowPart]:
    """The parts of a window of the newest rows of a packed table, in order; what follows them is padding.

    Raises:
        ConfigError: it is no packed table.
        InputError: there is no such window, or its tokenizer is not in the lake any more.
    """
    from tokenizers import Tokenizer

    table = load_table(catalogue, identifier)
    if table is None:
        raise InputError(f"table {identifier} is not in the lake; `headrace table show` shows those there")
    dataset = packed_facts(identifier, table).dataset
    rows = read_rows(catalogue, identifier, ("input_ids", "segments"), EqualTo("ordinal", ordinal))
    if not rows:
        raise InputError(f"{identifier} has no window {ordinal}; ordinals begin at 0")
    sha256 = table.properties["headrace.tokenizer-sha256"]
    files = read_rows(catalogue, f"{identifier.split('.')[0]}.tokenizer", ("file",), EqualTo("sha256", sha256))
    if not files:
        raise InputError(
            f"{identifier}: the tokenizer {sha256[:12]} is not in the lake any more, so nothing is decoded"
        )
    tokenizer = Tokenizer.from_str(files[0]["file"])
    segments = rows[0]["segments"]
    wanted = In("doc_id", {segment["doc_id"] for segment in segments})
    documents = read_rows(catalogue, f"{dataset}.documents", ("doc_id", "path"), wanted) if segments else []
    paths = {row["doc_id"]: row["path"] for row in documents}
    return [
        WindowPart(
            segment["doc_id"],
            paths.get(segment["doc_id"], ""),
            segment["document_start"],
            segment["token_count"],
            tokenizer.decode(
                rows[0]["input_ids"][segment["window_start"] :][: segment["token_count"]], skip_special_tokens=False
            ),
        )
        for segment in segments
    ]


def _parts(
    identifier: str, table: IcebergTable, head: ServedHead, doc_id: str, increments: Collection[int] | None = None
) -> list[HeldIn]:
    """Parts of a document in one snapshot, in the document's order; all increments are read if none are named."""
    snapshot = "head" if head.is_main else str(head.snapshot.snapshot_id)
    parts = [
        HeldIn(
            identifier, snapshot, ordinal, segment["window_start"], segment["document_start"], segment["token_count"]
        )
        for _, ordinal, segments in find_windows(identifier, table, [doc_id], increments, head.snapshot.snapshot_id)
        for segment in segments
        if segment["doc_id"] == doc_id
    ]
    return sorted(parts, key=lambda part: (part.document_start, part.token_count))
