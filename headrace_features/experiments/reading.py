"""The rows of a variant as a model reads them: without the left-out documents, up to the budget."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.client.window_layout import WindowLayout
from blender_service.exceptions import BlenderError
from blender_service.server.blender import Blender
from blender_service.tables.token_columns import TRAINABLE
from blender_service.wire.row_batch import RowBatch
from dagster_project.exceptions import CommandError
from headrace.tables.catalogue import load_table
from headrace_features.experiments.declaration import Variant
from headrace_features.experiments.thinning import ThinnedOrder, kept_rows

_GROUP_ROWS: Final = 256  # whose order a seed decides; coarser order is the blend's
_MOST_EMPTY: Final = 64  # groups without a token that goes on, after which a variant has none


@dataclass(frozen=True)
class VariantRows:
    """Some rows of a variant.

    Attributes:
        offset: of the first of them, counted in read rows.
        input_ids: (R, L) token ids.
        document_ids: (R, L) number of the document in its row, -1 in padding.
        tokens: of documents, padding left out.
    """

    offset: int
    input_ids: NDArray[np.int64]
    document_ids: NDArray[np.int32]
    tokens: int

    def cut(self, first: int, last: int) -> VariantRows:
        """Some of its rows."""
        ids, numbers = self.input_ids[first:last], self.document_ids[first:last]
        return VariantRows(self.offset + first, ids, numbers, int((numbers >= 0).sum()))

    def followed_by(self, other: VariantRows) -> VariantRows:
        """These rows and the next ones."""
        ids = np.concatenate([self.input_ids, other.input_ids])
        numbers = np.concatenate([self.document_ids, other.document_ids])
        return VariantRows(self.offset, ids, numbers, self.tokens + other.tokens)


@dataclass
class VariantContents:
    """What a variant consists of, for one sample.

    Attributes:
        digest: SHA-256 of all rows in their order; equal for variants with the same rows.
        tokens: read, padding left out.
        rows: that were read.
        offsets: of their blend, with those of rows with nothing left.
        sources: tokens by source.
        epochs: how often each source was read.
        documents: hashes of the ids of its documents.
        left_out: left-out documents, by reason.
    """

    digest: str = ""
    tokens: int = 0
    rows: int = 0
    offsets: int = 0
    sources: Counter[str] = field(default_factory=Counter)
    epochs: dict[str, float] = field(default_factory=dict)
    documents: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    left_out: Counter[str] = field(default_factory=Counter)


def blend_of(blender: Blender, name: str, variant: Variant, sample: int) -> str:
    """The id of the blend read by a variant under a seed of the sample.

    Raises:
        CommandError: the blend cannot be.
    """
    try:
        if variant.blend is not None:
            return blender.resolve(variant.blend)
        sources = tuple(SourceSpec(table, str(weight), max_epochs=0) for table, weight in variant.sources.items())
        return blender.create(BlendSpec(sources, seed=sample)).blend_id
    except BlenderError as error:
        raise CommandError(f"experiment: variant {name}: {error}") from error


def rows_of(
    catalogue: Catalog,
    blend_id: str,
    left_out: Mapping[str, str],
    budget: int,
    order: int,
    contents: VariantContents,
    start: int = 0,
    thinned: float = 1,
) -> Iterator[VariantRows]:
    """The rows of a blend from an offset on until so many tokens were given; what they are is noted in `contents`.

    Of each source only a share `thinned` of the rows is read (`thinning`). Left-out documents are taken out of their
    rows, the others closed up to the left. Rows change places in groups of 256 by the seed `order`. The last row may go
    over the budget.

    Raises:
        CommandError: the blend ends before the budget, almost all of it is left out, or a table of it has masks.
    """
    blender = Blender(catalogue)
    for pin in blender.head(blend_id).pins().values():
        table = load_table(catalogue, pin.table)
        if table is not None and TRAINABLE in table.schema().column_names:
            raise CommandError(
                f"experiment: {pin.table} is trained on as its masks say, and proxies on every token; leave it out"
            )
    reader, window, head = blender.open(blend_id), blender.config(blend_id).window, blender.head(blend_id)
    if thinned < 1:
        reader.order = ThinnedOrder(blender.config(blend_id), head, thinned)
    end, digest, at, empty = reader.order.end, hashlib.sha256(), start, 0
    read: list[NDArray[np.uint64]] = []
    skipped: dict[str, str] = {}
    source_rows: Counter[str] = Counter()
    while contents.tokens < budget:
        count = _GROUP_ROWS if end is None else min(_GROUP_ROWS, end - at)
        if count <= 0:
            raise CommandError(
                f"experiment: blend {blend_id[:12]} ends after {contents.tokens:,} tokens of the {budget:,} of the "
                "budget; lower the budget, or let its sources go round (max_epochs: 0)"
            )
        batch = reader.gather(at, count)
        ids, numbers, documents, row_of, tokens = _laid_out(batch, left_out, window.padding_id, skipped)
        kept = np.flatnonzero(tokens)
        if thinned < 1:  # cut before they change places, so that no row comes twice more often than another
            kept = _within(kept, tokens, budget - contents.tokens)
        kept = np.random.default_rng([order, at]).permutation(kept)
        kept = _within(kept, tokens, budget - contents.tokens)
        empty = empty + 1 if not len(kept) else 0
        if empty >= _MOST_EMPTY:
            raise CommandError(f"experiment: blend {blend_id[:12]}: almost all of its documents are held out")
        names = np.array(batch.source_names)[batch.sources[kept]]
        for name in batch.source_names:
            contents.sources[name] += int(tokens[kept][names == name].sum())
            source_rows[name] += int((names == name).sum())
        rows = VariantRows(contents.rows, ids[kept], numbers[kept], int(tokens[kept].sum()))
        digest.update(rows.input_ids.astype("<u4").tobytes())
        digest.update(rows.document_ids.astype("<i4").tobytes())
        read.append(documents[np.isin(row_of, kept)])
        contents.tokens += rows.tokens
        contents.rows += len(kept)
        at += count
        contents.offsets += count
        if len(kept):
            yield rows
    contents.digest = digest.hexdigest()
    contents.documents = np.unique(np.concatenate(read))
    contents.left_out = Counter(skipped.values())
    sizes = {name: pin.rows and kept_rows(pin.rows, thinned) for name, pin in head.pins().items()}
    contents.epochs = {name: count / size for name, count in source_rows.items() if (size := sizes.get(name))}


def _within(rows: NDArray[np.int64], tokens: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """The first of some rows, up to the one that brings them to so many tokens."""
    return rows[: np.searchsorted(np.cumsum(tokens[rows]), most) + 1]


def _laid_out(
    batch: RowBatch, left_out: Mapping[str, str], padding_id: int, skipped: dict[str, str]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
    """Rows without the left-out documents, the rest closed up to the left.

    Returns:
        (R, L) token ids; (R, L) document numbers, -1 in padding; (D,) hashes and (D,) rows of the kept documents;
        (R,) tokens of each row.
    """
    layout = WindowLayout(batch)
    ids, numbers = layout.input_ids.copy(), layout.document_ids.copy()
    ends = np.cumsum(batch.doc_id_lengths)
    doc_ids = [
        batch.doc_id_bytes[end - size : end].decode() for end, size in zip(ends, batch.doc_id_lengths, strict=True)
    ]
    gone = np.array([doc_id in left_out for doc_id in doc_ids], bool)
    skipped.update({doc_id: left_out[doc_id] for doc_id, is_gone in zip(doc_ids, gone, strict=True) if is_gone})
    row_of = np.repeat(np.arange(batch.rows), batch.segment_counts)
    number_of = np.arange(len(row_of)) - (np.cumsum(batch.segment_counts) - batch.segment_counts)[row_of]
    for row in np.unique(row_of[gone]):
        stays = (numbers[row] >= 0) & ~np.isin(numbers[row], number_of[gone & (row_of == row)])
        count = int(stays.sum())
        ids[row, :count], numbers[row, :count] = ids[row][stays], numbers[row][stays]
        ids[row, count:], numbers[row, count:] = padding_id, -1
    hashed = [int(doc_id[:16], 16) for doc_id, is_gone in zip(doc_ids, gone, strict=True) if not is_gone]
    return ids, numbers, np.array(hashed, np.uint64), row_of[~gone], (numbers >= 0).sum(axis=1)
