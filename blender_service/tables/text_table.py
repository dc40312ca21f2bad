"""Read a table of text as if it were a packed table: its documents are tokenized when a block of their rows is wanted.

The lengths of all documents are computed once for a tokenizer and a snapshot, and kept in the lake (`blends/texts/`),
so that replicas share them; they say which row holds which tokens (`text_packing`), hence how many rows there are, and
where any of them is. The same pass counts the names of control tokens in the texts, which are letters here.

A document excised since has no segment any more: what stands behind it in its row moves up, padding follows.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import StringType

from blender_service.arrays import Int32Array, Int64Array
from blender_service.exceptions import PackedTableError
from blender_service.tables.block import RowBlock, Segments
from blender_service.tables.conversation_texts import (
    ConversationEncoder,
    ObjectiveEncoder,
    Objects,
    open_conversations,
    open_objectives,
)
from blender_service.tables.encoder_record import EncoderRecord, id_digests
from blender_service.tables.file_columns import FileColumn
from blender_service.tables.packed_table import PackedTable
from blender_service.tables.text_documents import (
    SPANS,
    TOOLS,
    Digests,
    RowGroups,
    TextColumns,
    TextDocuments,
    chosen_documents,
    digest,
    text_files,
    utf8_of,
)
from blender_service.tables.text_encoder import EncodedDocuments, TextEncoder, Units
from blender_service.tables.text_packing import RowPieces, TextRule, lay_out, lay_out_mask, pack, some
from blender_service.tables.token_columns import TokenColumn, all_trainable
from blender_service.tables.unread_documents import UnreadDocuments, read_unread
from headrace.kernels.control_names import HeldName, NameFinder, held, told
from headrace.tables.cells import parse_choice
from headrace.tables.ordinals import OrdinalRun
from headrace.tables.window_facts import WindowFacts

logger = logging.getLogger(__name__)

LENGTHS, NAMES = "lengths", "names"
UNITS, UNIT_ENDS, REFUSED = "unit_counts", "unit_ends", "refused"
PACKED_DOCUMENTS: Final = 1 << 18  # of which rows are counted at once


@functools.lru_cache(maxsize=4)
def _encoder(file: str, end_of_document_id: int) -> TextEncoder:
    return TextEncoder(file, end_of_document_id)


def places_of(
    identifier: str, snapshot_id: int, columns: Mapping[str, FileColumn], window: WindowFacts, rule: TextRule
) -> dict[str, str]:
    """Give the objects that hold what was measured of a table's snapshot: lengths, names, and digests by column."""
    of = {name: f"{identifier}-{snapshot_id}-{column.field.field_id}" for name, column in columns.items()}
    encoded_by = "-".join(filter(None, (window.tokenizer_sha256, rule.conversations, rule.objectives)))
    read = f"{of['text']}.{columns[TOOLS].field.field_id}" if TOOLS in columns else of["text"]
    places = {name: f"texts/{name}/{encoded_by}/{read}" for name in (LENGTHS, NAMES)}
    return places | {name: f"texts/digests/{of_column}" for name, of_column in of.items()}


def open_text_rows(  # noqa: PLR0913, PLR0917 (what rows are made of)
    table: Table,
    identifier: str,
    snapshot: Snapshot,
    columns: TextColumns,
    window: WindowFacts,
    rule: TextRule,
    objects: Objects,
    groups: RowGroups,
    cells: str | None = None,
    unread: str | None = None,
) -> TextRows:
    """Open the rows made by a rule of a table of text at a snapshot; see `TextDocuments` and `TextRows`.

    `cells` is a choice of documents by columns of the table, None for all; `unread` the hash of `UnreadDocuments`.
    """
    files = text_files(table, identifier, snapshot)
    chosen = None if cells is None else chosen_documents(table, identifier, snapshot, files, parse_choice(cells))
    documents = TextDocuments(identifier, files, table.io, columns.of_rows(), table.name_mapping(), groups)
    rest = read_unread(objects, unread)
    return TextRows(identifier, snapshot.snapshot_id, documents, window, rule, objects, chosen, rest)


def warning_of(names: bytes) -> str:
    """Say the names of control tokens in a table, and which conversations have no row, as counted; empty without."""
    counted = json.loads(names)
    lines = [told([HeldName(*name) for name in counted["held"]], counted["texts"])]
    if refused := counted.get(REFUSED):
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in refused.items())
        lines.append(f"{sum(refused.values()):,} of {counted['texts']:,} conversations have no row: {reasons}")
    return "; ".join(filter(None, lines))


def _digests_of(kept: Mapping[str, bytes]) -> dict[str, Digests]:
    return {name: Digests.from_bytes(content) for name, content in kept.items() if name not in (LENGTHS, NAMES)}


class TextRows:
    """The rows made by a rule of a table of text at a snapshot; behind them those of its `unread` documents alone."""

    def __init__(
        self,
        identifier: str,
        snapshot_id: int,
        documents: TextDocuments,
        window: WindowFacts,
        rule: TextRule,
        objects: Objects,
        chosen: NDArray[np.bool_] | None = None,
        unread: UnreadDocuments | None = None,
    ) -> None:
        """Find the lengths of the documents (computed where nobody has yet), and count rows.

        Of documents that are not `chosen` no token stands in a row.

        Raises:
            PackedTableError: the tokenizer is not in the lake, or the lengths are of other documents.
        """
        self.identifier, self.window, self.rule, self.documents = identifier, window, rule, documents
        file = objects.read(f"texts/tokenizers/{window.tokenizer_sha256}")
        if file is None or hashlib.sha256(file).hexdigest() != window.tokenizer_sha256:
            raise PackedTableError(
                f"table {identifier}: tokenizer {window.tokenizer_sha256} is not kept with the blends; create it again"
            )
        self._encoder = _encoder(file.decode(), window.end_of_document_id)
        fixed = functools.partial(self._encoder.fixed_ids, file.decode())
        self._conversations: ConversationEncoder | None = None
        self.template: str | None = None  # its hash
        if rule.conversations is not None:
            self._conversations = open_conversations(objects, rule.conversations, file.decode())
            self.template = self._conversations.template_sha256
        self._objectives: ObjectiveEncoder | None = None
        if rule.objectives is not None:
            self._objectives = open_objectives(objects, rule.objectives, file.decode())
        places = places_of(identifier, snapshot_id, documents.columns, window, rule)
        self._place = places[LENGTHS]
        kept = {name: content for name, place in places.items() if (content := objects.read(place)) is not None}
        documents.expected = _digests_of(kept)
        if lacking := places.keys() - kept.keys():
            for name, content in self._measure(lacking, fixed).items():
                objects.put_if_absent(places[name], content)
                kept[name] = objects.read(places[name]) or content
            documents.expected = _digests_of(kept)
        self.warning = warning_of(kept[NAMES])
        self.refused: dict[str, int] = json.loads(kept[NAMES]).get(REFUSED, {})
        measured = np.load(io.BytesIO(kept[LENGTHS]))
        self.lengths: Int32Array = measured["lengths"]
        self._record = EncoderRecord.of(measured)
        self._record.require_same(fixed, f"table {identifier}: {self._place}")
        units = np.cumsum(np.append(0, measured[UNITS]), dtype=np.int64) if UNITS in measured else None
        self._units: Int64Array | None = units  # (D + 1,) first unit of each document; None: each is one
        self._unit_ends: Int64Array | None = measured.get(UNIT_ENDS)
        measured_count = self.lengths.size if units is None else units.size - 1
        if measured_count != documents.count:
            raise PackedTableError(
                f"table {identifier}: snapshot {snapshot_id} has {documents.count} documents, {self._place} is of "
                f"{measured_count}; delete that object"
            )
        self.chosen = chosen
        if chosen is not None:
            of_units = chosen if units is None else np.repeat(chosen, np.diff(units))
            self._packed_lengths = np.where(of_units, self.lengths, 0).astype(np.int32)
        else:
            self._packed_lengths = self.lengths
        self.unread = unread
        self._first_unread = -(-self.lengths.size // rule.group_documents) * rule.group_documents  # unit of a group
        if unread is not None:
            rest = np.where(unread.mask, self._packed_lengths, 0)
            gap = np.zeros(self._first_unread - self.lengths.size, np.int32)
            self._packed_lengths = np.concatenate([self._packed_lengths, gap, rest]).astype(np.int32)
        counts = [groups for _, _, groups in self._packed_steps()]
        self._first_rows = np.concatenate([[0], np.cumsum(np.concatenate([*counts, np.empty(0, dtype=np.int64)]))])

    @property
    def count(self) -> int:
        """Number of rows."""
        return int(self._first_rows[-1])

    @property
    def count_of_all(self) -> int:
        """Number of rows of all documents."""
        return int(self._first_rows[self._first_unread // self.rule.group_documents])

    @property
    def chosen_lengths(self) -> Int32Array:
        """Tokens of the chosen documents."""
        of_all = self._packed_lengths[: self.lengths.size]
        return self.lengths if self.chosen is None else self.lengths[of_all > 0]

    def pieces(self) -> Iterator[tuple[Int64Array, Int64Array]]:
        """Give the document and the row of each piece, some groups after the other."""
        for first, pieces, _ in self._packed_steps():
            rows = pieces.rows + self._first_rows[first // self.rule.group_documents]
            yield (pieces.documents + first) % self._first_unread, rows

    @property
    def differ_by_epoch(self) -> bool:
        """Whether rows are others in each epoch."""
        return self._objectives is not None

    def table(
        self, file_io: FileIO, excised: Collection[str], columns: tuple[TokenColumn, ...] = (), epoch: int = 0
    ) -> PackedTable:
        """Give the rows of an epoch as a packed table of one file, with columns of tokens."""
        left_out = b"" if self.chosen is None else np.packbits(self.chosen).tobytes()
        state = hashlib.sha256("\n".join(sorted(excised)).encode() + left_out).hexdigest()[:16]
        of_epoch = f" epoch {epoch}" if epoch else ""
        path = f"{self._place} {self.documents.field_ids} {self.rule!r} {state}{of_epoch}"
        runs = [OrdinalRun(path, 0, self.count_of_all)]
        if self.unread is not None:  # a file of its own, so that no block has documents of both ends of the table
            mask = hashlib.sha256(np.packbits(self.unread.mask).tobytes()).hexdigest()[:16]
            runs.append(OrdinalRun(f"{path} unread {mask}", self.count_of_all, self.count))
        decode = functools.partial(self._decode, frozenset(excised), columns, epoch)
        there = tuple(run for run in runs if run.start < run.end)
        return PackedTable(self.identifier, self.window, there, file_io, decode=decode, columns=columns)

    def _measure(self, lacking: set[str], fixed_ids: Callable[[], str]) -> dict[str, bytes]:
        """Read every document once, and give what is lacking: lengths, counts of names, digests of columns."""
        documents, encodes = self.documents, not lacking.isdisjoint((LENGTHS, NAMES))
        starts, lengths, ids_digests = list[int](), [np.empty(0, np.int32)], [np.empty(0, np.uint32)]
        unit_counts, unit_ends, refused = [np.empty(0, np.int64)], [np.empty(0, np.int64)], Counter[str]()
        names = NameFinder(self._encoder.control_names)
        counts = np.zeros(len(names.names), dtype=np.int64)
        values = {name: list[int]() for name in documents.columns}
        for first, part in documents.parts(0, documents.count):
            starts.append(first)
            for name, numbers in values.items():
                numbers.append(digest(part[name]))
            if encodes:
                if self._objectives is not None:
                    units, encoded = self._objectives.divide(part["text"].to_pylist())
                    lengths.append(units.room)
                    unit_ends.append(units.ends)
                else:
                    encoded = self._encode(part)
                    lengths.append(np.diff(encoded.starts).astype(np.int32))
                ids_digests.append(id_digests(encoded.digested(), encoded.starts))
                if encoded.unit_counts is not None:
                    unit_counts.append(encoded.unit_counts)
                refused.update(encoded.refused)
                found = names.find(*utf8_of(part["text"].combine_chunks()))[1]
                counts += np.bincount(found, minlength=counts.size)
        digests_of = {name: Digests(np.array(starts, np.int64), np.array(of, np.uint64)) for name, of in values.items()}
        written = io.BytesIO()
        if encodes:
            record: dict[str, Any] = EncoderRecord.arrays(fixed_ids(), np.concatenate(ids_digests))
            if self._objectives is not None:
                record[UNIT_ENDS] = np.concatenate(unit_ends)
            if len(unit_counts) > 1:
                record[UNITS] = np.concatenate(unit_counts)
            np.savez_compressed(written, lengths=np.concatenate(lengths), **record)
        of_refused = {REFUSED: dict(sorted(refused.items()))} if refused else {}
        of_names = {"texts": documents.count, "held": held(names.names, counts.tolist()), **of_refused}
        measured = {NAMES: json.dumps(of_names).encode(), LENGTHS: written.getvalue()}
        measured |= {name: digests.to_bytes() for name, digests in digests_of.items()}
        return {name: content for name, content in measured.items() if name in lacking}

    def _encode(self, part: pa.Table, with_spans: bool = False) -> EncodedDocuments:
        """Encode documents as the rule says, with the mask of its spans where that is wanted."""
        texts = part["text"].to_pylist()
        if self._conversations is not None:
            tools = self._values(TOOLS, part) if TOOLS in part.column_names else [None] * len(texts)
            return self._conversations.encode(self._values("text", part), tools)
        if with_spans and self.rule.trainable is not None:
            encoded, mask = self._encoder.encode_trainable(texts, part[SPANS].to_pylist())
            return EncodedDocuments(*encoded, mask)
        return EncodedDocuments(*self._encoder.encode(texts))

    def _values(self, name: str, part: pa.Table) -> list[object]:
        """Values of a column of JSON: texts of a column of texts, else what a column of lists has."""
        texts: list[Any] = part[name].to_pylist()
        if isinstance(self.documents.columns[name].field.field_type, StringType):
            return texts
        return [json.loads(text) if text else None for text in texts]

    def _pack(self, first: int, last: int) -> tuple[RowPieces, Int64Array]:
        packed: tuple[RowPieces, Int64Array] = pack(
            self._packed_lengths[first:last], self.window.window_tokens, self.rule.group_documents, self.rule.whole
        )
        return packed

    def _packed_steps(self) -> Iterator[tuple[int, RowPieces, Int64Array]]:
        """The pieces of some groups after the other: the first unit, its pieces, and the rows of each group."""
        step = max(1, PACKED_DOCUMENTS // self.rule.group_documents) * self.rule.group_documents
        for first in range(0, self._packed_lengths.size, step):
            yield first, *self._pack(first, first + step)

    def _decode(
        self, excised: frozenset[str], columns: tuple[TokenColumn, ...], epoch: int, ranges: Sequence[tuple[int, int]]
    ) -> Iterator[RowBlock]:
        return (self._block(excised, columns, epoch, start, end) for start, end in ranges)

    def _block(
        self, excised: frozenset[str], columns: tuple[TokenColumn, ...], epoch: int, start: int, end: int
    ) -> RowBlock:
        """Tokenize the documents of the rows [start, end) as they are in an epoch."""
        groups = np.searchsorted(self._first_rows, [start, end - 1], side="right") - 1
        base = int(groups[0]) * self.rule.group_documents
        pieces, _ = self._pack(base, (int(groups[1]) + 1) * self.rule.group_documents)
        rows = pieces.rows + int(self._first_rows[groups[0]]) - start
        taken = (rows >= 0) & (rows < end - start)
        pieces = some(pieces._replace(rows=rows), taken)
        base %= self._first_unread
        documents, numbers = self._documents_of(np.unique(pieces.documents) + base)
        texts = self.documents.read(int(documents[0]), int(documents[-1]) + 1).take(documents - documents[0])
        names = texts["doc_id"].to_pylist()
        if self._objectives is not None and self._unit_ends is not None and self._units is not None:
            units = Units(np.diff(self._units)[documents], self._unit_ends[numbers], self.lengths[numbers])
            encoded = self._objectives.encode(texts["text"].to_pylist(), names, units, epoch)
        else:
            encoded = self._encode(texts, bool(columns))
        owners = self._owners(encoded, documents, numbers, names)
        index = np.searchsorted(numbers, pieces.documents + base)
        if encoded.changed is not None:  # rows have room for what units may become
            pieces = pieces._replace(tokens=np.diff(encoded.starts)[index].astype(np.int32))
        kept = np.array([name not in excised for name in names], dtype=bool)[owners[index]]
        pieces, index = some(pieces, kept), index[kept]
        of_units = encoded.starts[:-1] - encoded.starts[np.searchsorted(owners, owners)]  # tokens before, in a document
        window = self.window
        windows = np.full((end - start, window.window_tokens), window.padding_id, dtype=f"<u{window.token_bytes}")
        laid = pieces._replace(documents=index)
        places, row_tokens = lay_out(laid, encoded.ids, encoded.starts, windows)
        written = [names[number].encode() for number in owners[index].tolist()]
        return RowBlock(
            start=start,
            input_ids=windows,
            segments=Segments(
                row_tokens=row_tokens,
                starts=np.searchsorted(pieces.rows, np.arange(end - start + 1)).astype(np.int64),
                doc_ids=np.frombuffer(b"".join(written), dtype=np.uint8),
                doc_id_starts=np.cumsum([0, *map(len, written)], dtype=np.int64),
                document_starts=pieces.firsts + of_units[index],
                token_counts=pieces.tokens,
                window_starts=places,
            ),
            columns=tuple(
                all_trainable(row_tokens, window.window_tokens)
                if encoded.trainable is None
                else lay_out_mask(encoded.trainable, laid, encoded.starts, windows.shape)
                for _ in columns
            ),
        )

    def _documents_of(self, units: Int64Array) -> tuple[Int64Array, Int64Array]:
        """The documents of units, ascending, and the numbers of all their units."""
        if self._units is None:
            return units, units
        documents = np.unique(np.searchsorted(self._units, units, side="right") - 1)
        return documents, np.concatenate([np.arange(*self._units[number : number + 2]) for number in documents])

    def _owners(
        self, encoded: EncodedDocuments, documents: Int64Array, numbers: Int64Array, names: Sequence[str]
    ) -> Int64Array:
        """(U,) index of the document of each unit; refuses units other than the measured ones.

        Raises:
            PackedTableError: names the document.
        """
        counts = np.ones(len(documents), np.int64) if encoded.unit_counts is None else encoded.unit_counts
        measured = counts if self._units is None else np.diff(self._units)[documents]
        wrong = counts != measured
        owners = np.repeat(np.arange(len(documents)), counts)
        if not wrong.any():
            differs = self._record.differing(encoded.digested(), encoded.starts, numbers)
            sizes = np.diff(encoded.starts)
            if encoded.changed is None:
                differs |= sizes != self.lengths[numbers]
            else:
                differs = (differs & ~encoded.changed) | (sizes > self.lengths[numbers])
            wrong[owners[differs]] = True
        if wrong.any():
            where = f"table {self.identifier}: {self._place}"
            raise self._record.error(f"document {names[int(wrong.argmax())]}", where)
        return owners
