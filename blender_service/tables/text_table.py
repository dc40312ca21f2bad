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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from blender_service.arrays import Int32Array, Int64Array
from blender_service.exceptions import PackedTableError
from blender_service.tables.block import RowBlock, Segments
from blender_service.tables.data_file import OF_TEXTS, warn_without_checksums
from blender_service.tables.encoder_record import EncoderRecord, id_digests
from blender_service.tables.file_columns import FileColumn
from blender_service.tables.packed_table import PackedTable
from blender_service.tables.text_documents import (
    Digests,
    RowGroups,
    TextColumns,
    TextDocuments,
    digest,
    text_files,
    utf8_of,
)
from blender_service.tables.text_packing import RowPieces, TextRule, lay_out, pack
from blender_service.tables.token_columns import TokenColumn, all_trainable
from headrace.kernels.control_names import HeldName, NameFinder, control_names, held, told
from headrace.kernels.fixed_texts import fixed_ids
from headrace.kernels.token_bounds import character_bounds
from headrace.kernels.tokenizer_file import open_tokenizer
from headrace.tables.ordinals import OrdinalRun
from headrace.tables.window_facts import WindowFacts

BATCH_CHARACTERS: Final = 1 << 20  # encoded at once; the library needs about 115 bytes of memory a byte
logger = logging.getLogger(__name__)

LENGTHS, NAMES = "lengths", "names"
PACKED_DOCUMENTS: Final = 1 << 18  # of which rows are counted at once


class Objects(Protocol):
    """The needed operations of the store of blends."""

    def put_if_absent(self, path: str, content: bytes) -> bool:
        """Write a new object; say whether it was absent."""

    def read(self, path: str) -> bytes | None:
        """Read an object, None if there is none."""


class Encoded(NamedTuple):
    """Tokens of D documents, one after the other, each with its end token; (D + 1,) first one of each."""

    ids: Int32Array
    starts: Int64Array


Spans = Sequence[Mapping[str, int]] | None
"""Where a loss is taken, as `start` and `end` in characters of a document; None for all of it."""


class TextEncoder:
    """Gives the ids of `tokenizers` for whole documents: no special tokens, whose names are encoded as text."""

    def __init__(self, file: str, end_of_document_id: int) -> None:
        """Read a tokenizer.json.

        Raises:
            PackedTableError: it is none, or has a field able to change ids unseen.
        """
        try:
            self._tokenizer = open_tokenizer(file)
        except ValueError as error:
            raise PackedTableError(f"the tokenizer of a table of text: {error}") from error
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.post_processor = None  # of no effect on ids without special tokens; it trims offsets
        self._normalize = self._tokenizer.normalizer and self._tokenizer.normalizer.normalize_str
        self._end = np.array([end_of_document_id], dtype=np.int32)
        self.control_names = control_names(file, self._ids_of)

    def _ids_of(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Encode documents."""
        return self._joined(self._encodings(texts, self._tokenizer.encode_batch_fast))

    def encode_trainable(self, texts: Sequence[str], spans: Sequence[Spans]) -> tuple[Encoded, NDArray[np.bool_]]:
        """Encode documents, each with the spans of its loss; (T,) whether it is taken on a token.

        It is slower than `encode`, for the library also says which characters a token is of.
        """
        masks: list[NDArray[np.bool_]] = []

        def noted() -> Iterator[Any]:
            for text, text_spans, encoding in zip(
                texts, spans, self._encodings(texts, self._tokenizer.encode_batch), strict=True
            ):
                masks.append(trainable(text, text_spans, encoding.offsets, self._normalize))
                yield encoding

        return self._joined(noted()), np.concatenate([*masks, np.empty(0, dtype=bool)])

    def fixed_ids(self, file: str) -> str:
        """The ids telling encoders of a tokenizer.json apart (`fixed_texts`)."""
        return fixed_ids(file, lambda texts: [row.ids for row in self._encodings(texts, self._tokenizer.encode_batch)])

    def _encodings(self, texts: Sequence[str], encode: Callable[..., list[Any]]) -> Iterator[Any]:
        """Let the library encode documents, about a million characters at a time."""
        batch: list[str] = []
        characters = 0
        for number, text in enumerate(texts, start=1):
            batch.append(text)
            characters += len(text)
            if characters >= BATCH_CHARACTERS or number == len(texts):
                yield from encode(batch, add_special_tokens=False)
                batch, characters = [], 0

    def _joined(self, encodings: Iterable[Any]) -> Encoded:
        """The ids of encodings, and the token that ends a document behind each."""
        parts: list[Int32Array] = []
        lengths: list[int] = []
        for encoding in encodings:
            parts += (np.array(encoding.ids, dtype=np.int32), self._end)
            lengths.append(len(parts[-2]) + 1)
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
        return Encoded(np.concatenate([*parts, np.empty(0, dtype=np.int32)]), starts)


def trainable(
    text: str, spans: Spans, offsets: Sequence[tuple[int, int]], normalize: Callable[[str], str] | None = None
) -> NDArray[np.bool_]:
    """Say which tokens of a document a loss is taken on: those whose characters all lie in one span.

    The end token belongs to the span reaching the end of the text.

    Args:
        text: of the document.
        spans: [start, end) in characters; None for the whole document.
        offsets: [start, end) of each token in characters, see `character_bounds`.
        normalize: the tokenizer's normalizer; None if it has none.

    Returns:
        (T + 1,) one for each token, and one for the document's end token.
    """
    if spans is None:
        return np.ones(len(offsets) + 1, dtype=bool)
    bounds = np.array(sorted((span["start"], span["end"]) for span in spans), dtype=np.int64).reshape(-1, 2)
    starts, ends = character_bounds(text, offsets, normalize)
    furthest = np.concatenate([[-1], np.maximum.accumulate(bounds[:, 1])])  # end of the first n spans
    begun = np.searchsorted(bounds[:, 0], starts, side="right")  # spans that begin at or before a token
    return np.append(ends <= furthest[begun], furthest[-1] >= len(text))


@functools.lru_cache(maxsize=4)
def _encoder(file: str, end_of_document_id: int) -> TextEncoder:
    return TextEncoder(file, end_of_document_id)


def put_tokenizer(objects: Objects, file: str) -> str:
    """Keep a tokenizer.json by its hash; gives the hash."""
    sha256 = hashlib.sha256(file.encode()).hexdigest()
    objects.put_if_absent(f"texts/tokenizers/{sha256}", file.encode())
    return sha256


def places_of(
    identifier: str, snapshot_id: int, columns: Mapping[str, FileColumn], window: WindowFacts
) -> dict[str, str]:
    """Give the objects that hold what was measured of a table's snapshot: lengths, names, and digests by column."""
    of = {name: f"{identifier}-{snapshot_id}-{column.field.field_id}" for name, column in columns.items()}
    places = {name: f"texts/{name}/{window.tokenizer_sha256}/{of['text']}" for name in (LENGTHS, NAMES)}
    return places | {name: f"texts/digests/{of_column}" for name, of_column in of.items()}


def open_text_rows(
    table: Table,
    identifier: str,
    snapshot: Snapshot,
    columns: TextColumns,
    window: WindowFacts,
    rule: TextRule,
    objects: Objects,
    groups: RowGroups,
) -> TextRows:
    """Open the rows made by a rule of a table of text at a snapshot; see `TextDocuments` and `TextRows`."""
    files = text_files(table, identifier, snapshot)
    documents = TextDocuments(identifier, files, table.io, columns.of_rows(), table.name_mapping(), groups)
    return TextRows(identifier, snapshot.snapshot_id, documents, window, rule, objects)


def log_warnings(where: str, rows: TextRows, file_io: FileIO) -> None:
    """Log what to know of a source with opened rows."""
    if rows.warning:
        logger.warning("%s: %s", where, rows.warning)
    warn_without_checksums(where, file_io, [file.path for file in rows.documents.files], OF_TEXTS)


def warning_of(names: bytes) -> str:
    """Say the names of control tokens in a table, as counted; empty where it holds none."""
    counted = json.loads(names)
    return told([HeldName(*name) for name in counted["held"]], counted["texts"])


def _digests_of(kept: Mapping[str, bytes]) -> dict[str, Digests]:
    return {name: Digests.from_bytes(content) for name, content in kept.items() if name not in (LENGTHS, NAMES)}


def _some(pieces: RowPieces, chosen: NDArray[np.bool_]) -> RowPieces:
    return RowPieces(pieces.documents[chosen], pieces.firsts[chosen], pieces.tokens[chosen], pieces.rows[chosen])


class TextRows:
    """The rows made by a rule of a table of text at a snapshot."""

    def __init__(
        self,
        identifier: str,
        snapshot_id: int,
        documents: TextDocuments,
        window: WindowFacts,
        rule: TextRule,
        objects: Objects,
    ) -> None:
        """Find the lengths of the documents (computed where nobody has yet), and count rows.

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
        places = places_of(identifier, snapshot_id, documents.columns, window)
        self._place = places[LENGTHS]
        kept = {name: content for name, place in places.items() if (content := objects.read(place)) is not None}
        documents.expected = _digests_of(kept)
        if lacking := places.keys() - kept.keys():
            for name, content in self._measure(lacking, fixed).items():
                objects.put_if_absent(places[name], content)
                kept[name] = objects.read(places[name]) or content
            documents.expected = _digests_of(kept)
        self.warning = warning_of(kept[NAMES])
        measured = np.load(io.BytesIO(kept[LENGTHS]))
        self.lengths: Int32Array = measured["lengths"]
        self._record = EncoderRecord.of(measured)
        self._record.require_same(fixed, f"table {identifier}: {self._place}")
        if self.lengths.size != documents.count:
            raise PackedTableError(
                f"table {identifier}: snapshot {snapshot_id} has {documents.count} documents, {self._place} is of "
                f"{self.lengths.size}; delete that object"
            )
        step = max(1, PACKED_DOCUMENTS // rule.group_documents) * rule.group_documents
        counts = [self._pack(first, first + step)[1] for first in range(0, documents.count, step)]
        self._first_rows = np.concatenate([[0], np.cumsum(np.concatenate([*counts, np.empty(0, dtype=np.int64)]))])

    @property
    def count(self) -> int:
        """Number of rows."""
        return int(self._first_rows[-1])

    def table(self, file_io: FileIO, excised: Collection[str], columns: tuple[TokenColumn, ...] = ()) -> PackedTable:
        """Give the rows as a packed table of one file, with columns of tokens."""
        state = hashlib.sha256("\n".join(sorted(excised)).encode()).hexdigest()[:16]
        run = OrdinalRun(f"{self._place} {self.documents.field_ids} {self.rule!r} {state}", 0, self.count)
        decode = functools.partial(self._decode, frozenset(excised), columns)
        runs = (run,) if self.count else ()
        return PackedTable(self.identifier, self.window, runs, file_io, decode=decode, columns=columns)

    def _measure(self, lacking: set[str], fixed_ids: Callable[[], str]) -> dict[str, bytes]:
        """Read every document once, and give what is lacking: lengths, counts of names, digests of columns."""
        documents, encodes = self.documents, not lacking.isdisjoint((LENGTHS, NAMES))
        lengths, starts = np.empty(documents.count, dtype=np.int32), list[int]()
        ids_digests = np.empty(documents.count, dtype=np.uint32)
        names = NameFinder(self._encoder.control_names)
        counts = np.zeros(len(names.names), dtype=np.int64)
        values = {name: list[int]() for name in documents.columns}
        for first, part in documents.parts(0, documents.count):
            starts.append(first)
            for name, numbers in values.items():
                numbers.append(digest(part[name]))
            if encodes:
                texts = part["text"].combine_chunks()
                encoded = self._encoder.encode(texts.to_pylist())
                lengths[first : first + part.num_rows] = np.diff(encoded.starts)
                ids_digests[first : first + part.num_rows] = id_digests(*encoded)
                counts += np.bincount(names.find(*utf8_of(texts))[1], minlength=counts.size)
        digests_of = {name: Digests(np.array(starts, np.int64), np.array(of, np.uint64)) for name, of in values.items()}
        written = io.BytesIO()
        if encodes:
            record: dict[str, Any] = EncoderRecord.arrays(fixed_ids(), ids_digests)
            np.savez_compressed(written, lengths=lengths, **record)
        of_names = {"texts": documents.count, "held": held(names.names, counts.tolist())}
        measured = {NAMES: json.dumps(of_names).encode(), LENGTHS: written.getvalue()}
        measured |= {name: digests.to_bytes() for name, digests in digests_of.items()}
        return {name: content for name, content in measured.items() if name in lacking}

    def _pack(self, first: int, last: int) -> tuple[RowPieces, Int64Array]:
        packed: tuple[RowPieces, Int64Array] = pack(
            self.lengths[first:last], self.window.window_tokens, self.rule.group_documents, self.rule.whole
        )
        return packed

    def _decode(
        self, excised: frozenset[str], columns: tuple[TokenColumn, ...], ranges: Sequence[tuple[int, int]]
    ) -> Iterator[RowBlock]:
        return (self._block(excised, columns, start, end) for start, end in ranges)

    def _block(self, excised: frozenset[str], columns: tuple[TokenColumn, ...], start: int, end: int) -> RowBlock:
        """Tokenize the documents of the rows [start, end)."""
        groups = np.searchsorted(self._first_rows, [start, end - 1], side="right") - 1
        base = int(groups[0]) * self.rule.group_documents
        pieces, _ = self._pack(base, (int(groups[1]) + 1) * self.rule.group_documents)
        rows = pieces.rows + int(self._first_rows[groups[0]]) - start
        taken = (rows >= 0) & (rows < end - start)
        pieces = _some(pieces._replace(rows=rows), taken)
        needed, index = np.unique(pieces.documents, return_inverse=True)
        low, high = int(needed[0]) + base, int(needed[-1]) + base + 1
        texts = self.documents.read(low, high).take(needed + base - low)
        contents, mask = texts["text"].to_pylist(), None
        if columns and self.rule.trainable is not None:
            encoded, mask = self._encoder.encode_trainable(contents, texts["trainable"].to_pylist())
        else:
            encoded = self._encoder.encode(contents)
        names = texts["doc_id"].to_pylist()
        wrong = self._record.differing(*encoded, needed + base)
        wrong |= np.diff(encoded.starts) != self.lengths[needed + base]
        if wrong.any():
            where = f"table {self.identifier}: {self._place}"
            raise self._record.error(f"document {names[int(wrong.argmax())]}", where)
        kept = np.array([name not in excised for name in names], dtype=bool)[index]
        pieces, index = _some(pieces, kept), index[kept]
        window = self.window
        windows = np.full((end - start, window.window_tokens), window.padding_id, dtype=f"<u{window.token_bytes}")
        laid = pieces._replace(documents=index)
        places, row_tokens = lay_out(laid, encoded.ids, encoded.starts, windows)
        written = [names[number].encode() for number in index.tolist()]
        return RowBlock(
            start=start,
            input_ids=windows,
            segments=Segments(
                row_tokens=row_tokens,
                starts=np.searchsorted(pieces.rows, np.arange(end - start + 1)).astype(np.int64),
                doc_ids=np.frombuffer(b"".join(written), dtype=np.uint8),
                doc_id_starts=np.cumsum([0, *map(len, written)], dtype=np.int64),
                document_starts=pieces.firsts,
                token_counts=pieces.tokens,
                window_starts=places,
            ),
            columns=tuple(
                all_trainable(row_tokens, window.window_tokens)
                if mask is None
                else _laid_out(mask, laid, encoded.starts, windows.shape)
                for _ in columns
            ),
        )


def _laid_out(
    mask: NDArray[np.bool_], pieces: RowPieces, starts: Int64Array, shape: tuple[int, ...]
) -> NDArray[np.bool_]:
    """(R, L) whether a loss is taken on a token, laid out as the tokens are; false in the padding."""
    windows = np.zeros(shape, dtype=np.uint16)
    lay_out(pieces, mask.astype(np.int32), starts, windows)
    return windows.astype(bool)
