"""Read rows of a blend with their documents, sources, licences and text, such as the batch of a loss spike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo, In
from tokenizers import Tokenizer

from dagster_project.exceptions import CommandError
from headrace.tables.catalogue import load_table
from spark_jobs.lake.files.scans import scan_of

if TYPE_CHECKING:
    from blender_service.blend.config import BlendConfig
    from blender_service.server.blender import Blender
    from blender_service.wire.row_batch import RowBatch

_FACTS = ("doc_id", "path", "repository", "licence", "language")


@dataclass(frozen=True)
class InspectedSegment:
    """A document's part of a row; facts outside of the lake are None.

    Attributes:
        doc_id: of the document.
        path: of its file.
        repository: that the file is in.
        licence: SPDX.
        language: of the text or code.
        window_start: first token, in the row.
        document_start: first token, in the document's own tokens.
        token_count: tokens, special ones included.
        text: the decoded tokens.
    """

    doc_id: str
    path: str | None
    repository: str | None
    licence: str | None
    language: str | None
    window_start: int
    document_start: int
    token_count: int
    text: str | None


@dataclass(frozen=True)
class InspectedRow:
    """A row of a blend: where it comes from, and the documents in it, from left to right."""

    offset: int
    source: str
    table: str
    epoch: int
    ordinal: int
    token_count: int
    segments: tuple[InspectedSegment, ...]

    def facts(self) -> dict[str, Any]:
        """Give the row ready for JSON."""
        return asdict(self)


def inspect_rows(catalogue: Catalog, blender: Blender, blend_id: str, offset: int, rows: int) -> list[InspectedRow]:
    """Read rows of a blend and look up their documents.

    Args:
        catalogue: of the lake.
        blender: opens the blend.
        blend_id: full id.
        offset: first row.
        rows: how many; fewer where the blend ends.

    Raises:
        CommandError: the blend has no row there.
        OffsetOutOfRangeError: the offset is beyond its end.
    """
    config = blender.config(blend_id)
    tables = {name: pin.table for name, pin in blender.head(blend_id).pins().items()}
    inspected: list[InspectedRow] = []
    for batch in blender.open(blend_id, offset).read(offset, rows, wait_seconds=1):
        if batch.rows:
            inspected += _inspect_batch(catalogue, config, batch, tables)
    if not inspected:
        raise CommandError(f"blend show: {blend_id[:12]} ends at row {offset}; give an offset below that")
    return inspected


def _inspect_batch(
    catalogue: Catalog, config: BlendConfig, batch: RowBatch, tables: Mapping[str, str]
) -> list[InspectedRow]:
    used = sorted({tables[batch.source_names[index]] for index in batch.sources})
    wanted = sorted(set(batch.doc_ids))
    documents = {table: documents_of(catalogue, table, wanted) for table in used}
    tokenizer = next(
        (decoder for table in used if (decoder := tokenizer_of(catalogue, table, config.window.tokenizer_sha256))), None
    )
    rows, first = [], 0
    for i in range(batch.rows):
        name = batch.source_names[batch.sources[i]]
        table = tables[name]
        segments = []
        for at in range(first, first + int(batch.segment_counts[i])):
            start, count = int(batch.window_starts[at]), int(batch.segment_token_counts[at])
            ids = batch.input_ids[i, start : start + count].tolist()
            facts = documents[table].get(batch.doc_ids[at], {})
            segments.append(
                InspectedSegment(
                    doc_id=batch.doc_ids[at],
                    path=facts.get("path"),
                    repository=facts.get("repository"),
                    licence=facts.get("licence"),
                    language=facts.get("language"),
                    window_start=start,
                    document_start=int(batch.document_starts[at]),
                    token_count=count,
                    text=tokenizer.decode(ids) if tokenizer is not None else None,
                )
            )
        first += int(batch.segment_counts[i])
        rows.append(
            InspectedRow(
                offset=batch.offset + i,
                source=name,
                table=table,
                epoch=int(batch.epochs[i]),
                ordinal=int(batch.ordinals[i]),
                token_count=int(batch.token_counts[i]),
                segments=tuple(segments),
            )
        )
    return rows


def dataset_of(packed: str) -> str:
    """The dataset of a packed table, from its name: packed_<dataset>_<L>."""
    return packed.rpartition(".")[2].removeprefix("packed_").rpartition("_")[0]


def documents_of(catalogue: Catalog, packed: str, doc_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Facts of documents in a packed table's dataset, by doc_id."""
    table = load_table(catalogue, f"{dataset_of(packed)}.documents")
    if table is None:
        return {}
    names = tuple(name for name in _FACTS if name in table.schema().column_names)
    facts = scan_of(table, In("doc_id", doc_ids), names).to_arrow().to_pylist()
    return {row["doc_id"]: row for row in facts}


def tokenizer_of(catalogue: Catalog, packed: str, sha256: str) -> Tokenizer | None:
    """Load a tokenizer of a packed table's corpus, also one of an older generation; None if it is not in the lake."""
    file = tokenizer_file(catalogue, packed, sha256)
    return None if file is None else Tokenizer.from_str(file)


def tokenizer_file(catalogue: Catalog, packed: str, sha256: str) -> str | None:
    """The text of a tokenizer's file; arguments and answer as of `tokenizer_of`."""
    table = load_table(catalogue, f"{packed.partition('.')[0]}.tokenizer")
    if table is None:
        return None
    for snapshot in sorted(table.snapshots(), key=lambda snapshot: snapshot.sequence_number or 0, reverse=True):
        files = scan_of(table, EqualTo("sha256", sha256), ("file",), snapshot.snapshot_id).to_arrow().to_pylist()
        if files:
            return str(files[0]["file"])
    return None
