"""Trace a token of a packed table back to the bytes of the file it came from.

    ordinal, position  ->  window: segment      the file by its bounds in the metadata, the row by its index in the file
                       ->  document, token      documents of the corpus increment, by doc_id
                       ->  bytes of the text    its piece, where tokens are not in the text's order; lengths of the
                                                tokens before it there, known for byte-level tokenizers; what the corpus
                                                cut of the text
                       ->  bytes of the file    the edits that made the text from the source

A `TokenTracer` keeps what does not change between two questions about one table: metadata of the tables it reads, the
tokenizer, and which increments of the dataset each increment of the corpus took in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, BooleanExpression, EqualTo, In

from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.document_lookup import FOUND_COLUMNS, FoundDocument, extraction_place, landing_of
from dagster_project.inspect.lake.found_table import require_table
from headrace.tables.catalogue import load_table
from headrace.tables.ordinals import OrdinalRun
from spark_jobs.arrays import Int64Array
from spark_jobs.corpus_stages import cut_texts_of
from spark_jobs.lake.files.lookups import read_columns, read_rows
from spark_jobs.lake.files.wide_values import read_wide_value
from spark_jobs.packing.ordinals import ordinal_runs, packed_facts, read_window
from spark_jobs.packing.windows.masks import MASK_RULE, TRAINABLE, rule_names
from spark_jobs.text.normalization import NO_EDITS, Edits, source_spans
from spark_jobs.text.text_columns import edits_of
from spark_jobs.tokens.pieces import PIECES, WITHOUT_BYTES, TextPiece, piece_of, sentinels_in, with_letters
from spark_jobs.tokens.token_bytes import encoded_bounds, token_byte_lengths

_DOCUMENT_COLUMNS = (
    *FOUND_COLUMNS,
    "revision",
    "encoding",
    "metadata",
)


@dataclass(frozen=True)
class Traced:
    """Where one token of a packed table came from.

    Attributes:
        table: the packed table.
        ordinal: row.
        position: index in its window.
        what: token, end_of_document, beginning_of_document, sentinel, header or padding; all below is None for padding.
        dataset: of the document.
        doc_id: the document.
        repository: its repository.
        path: its path there; `file#id` for a record of a file.
        revision: of the repository or the document.
        licence: SPDX.
        document_token: number of the token among the document's own, from 0; for an end of document how many there are.
        token_id: the id.
        text_start: first byte of the token in the UTF-8 of the text (`texts.content`), before the corpus cut it.
        text_end: byte after it.
        source_start: first byte of the token in the file; in the record's text, for a record, and in the extracted
            text, where one was extracted. A span that one edit replaced counts as a whole.
        source_end: byte after it.
        encoding: of the file.
        extracted: for an extracted text, what extracted it and from where: no bytes of the file are its own.
            None for a text of the source itself.
        location: of the landed file.
        object: where its bytes are kept, for a dataset copying them.
        trained: whether a loss is taken on it, where the table has masks. Of documents rendered by a template no bytes
            of the text are known to stand behind a token.
        rule: by which rule none is, where the table names rules; None of trained tokens.
    """

    table: str
    ordinal: int
    position: int
    what: str
    dataset: str | None = None
    doc_id: str | None = None
    repository: str | None = None
    path: str | None = None
    revision: str | None = None
    licence: str | None = None
    document_token: int | None = None
    token_id: int | None = None
    text_start: int | None = None
    text_end: int | None = None
    source_start: int | None = None
    source_end: int | None = None
    encoding: str | None = None
    extracted: str | None = None
    location: str | None = None
    object: str | None = None
    trained: bool | None = None
    rule: str | None = None

    def facts(self) -> dict[str, Any]:
        """All facts, ready for JSON."""
        return asdict(self)


class TokenTracer:
    """Answers for the tokens of one packed table, as it was when the tracer was made."""

    def __init__(self, catalogue: Catalog, identifier: str) -> None:
        """Read the table's metadata.

        Raises:
            CommandError: there is no such table.
            ConfigError: the table is not packed.
        """
        table = require_table(catalogue, identifier)
        self._catalogue, self._identifier, self._table = catalogue, identifier, table
        self._facts = packed_facts(identifier, table)
        self._runs = ordinal_runs(identifier, table)
        beginning = table.properties.get("headrace.beginning-of-document-id")
        self._beginning_id = int(beginning) if beginning is not None else None
        self._is_masked = TRAINABLE in table.schema().column_names

    def trace(self, ordinal: int, position: int) -> Traced:
        """Trace one token.

        Args:
            ordinal: row of the table.
            position: index in its window, from 0.

        Raises:
            CommandError: the table has no such row or position, or the document is not in the lake any more.
            TableMismatchError: tokens and texts disagree.
        """
        at = Traced(self._identifier, ordinal, position, "padding")
        size = self._facts.window_tokens
        run = self._run(ordinal)
        if not 0 <= position < size:
            raise CommandError(
                f"{self._identifier}: position {position} is outside of a window; give one in 0..{size - 1}"
            )
        columns = ["increment", "segments", *(["input_ids"] if self._beginning_id is not None else [])]
        columns += [name for name in (TRAINABLE, MASK_RULE) if name in self._table.schema().column_names]
        window = read_window(self._table, run, ordinal, columns)
        at = replace(at, trained=window[TRAINABLE][position] if self._is_masked else None)
        number = window[MASK_RULE][position] if MASK_RULE in window else 0
        at = replace(at, rule=rule_names(self._table.properties)[number] or None)
        for segment in window["segments"]:
            within = position - segment["window_start"]
            if 0 <= within < segment["token_count"]:
                break
        else:
            return at
        start = segment["document_start"]
        if self._beginning_id is not None and start == 0:
            begins = window["input_ids"][segment["window_start"]] == self._beginning_id
            if begins and within == 0:
                return self._with_document(at, "beginning_of_document", segment["doc_id"], window["increment"], -1)
            within -= begins
        return self._with_document(at, "token", segment["doc_id"], window["increment"], start + within)

    def _with_document(self, at: Traced, what: str, doc_id: str, increment: int, token: int) -> Traced:
        """Add the facts of a token of a document, by its number among the document's own tokens."""
        document = self._document(doc_id, increment)
        partition = And(EqualTo("increment", document["increment"]), EqualTo("shard", document["shard"]))
        own = And(EqualTo("increment", increment), EqualTo("shard", document["shard"]))
        ids = read_wide_value(self._catalogue, f"{self._facts.corpus}.tokens", "input_ids", doc_id, own)
        if ids is None:
            raise CommandError(
                f"document {doc_id} is not in {self._facts.corpus}.tokens, increment {increment}; it was dropped after "
                "it was packed: run the corpus again"
            )
        input_ids = np.array(ids, dtype=np.int32)
        about = {name: document[name] for name in ("repository", "path", "revision", "licence", "encoding")}
        known: dict[str, Any] = {**at.facts(), "dataset": self._facts.dataset, "doc_id": doc_id, **about}
        known["extracted"] = extraction_place(dict(document["metadata"]))
        found = FoundDocument(dataset=self._facts.dataset, **{name: document[name] for name in FOUND_COLUMNS})
        if file := landing_of(self._catalogue, found):
            known |= {"location": file["location"], "object": file["object"]}
        if token < 0 or token == len(input_ids):
            end = "end_of_document" if token >= 0 else what
            return Traced(**{**known, "what": end, "document_token": max(token, 0)})
        known |= {"what": what, "document_token": token, "token_id": int(input_ids[token])}
        place = self._place(doc_id, own, token, len(input_ids))
        if place is None or place.start < 0:
            return Traced(**{**known, "what": what if place is None else WITHOUT_BYTES[place.start]})
        edits, cuts = self._edits(f"{self._facts.dataset}.texts", doc_id, partition), self._cuts(doc_id, own)
        size = _text_bytes(document, edits)
        if place.end is None and size is not None:
            place = place._replace(end=size + _growth(cuts))
        encoded = self._token_bytes(doc_id, own if len(cuts) else partition, input_ids, token, place, bool(len(cuts)))
        start, end_byte = _before_edits(cuts, *encoded)
        source_start, source_end = self._source_bytes(doc_id, partition, document, edits, start, end_byte)
        return Traced(
            **{
                **known,
                "text_start": start,
                "text_end": end_byte,
                "source_start": source_start,
                "source_end": source_end,
            }
        )

    def _run(self, ordinal: int) -> OrdinalRun:
        """The file of a row."""
        count = self._runs[-1].end if self._runs else 0
        if not 0 <= ordinal < count:
            raise CommandError(f"{self._identifier}: ordinal {ordinal} is not in the table; it has 0..{count - 1}")
        starts = [run.start for run in self._runs]
        return self._runs[int(np.searchsorted(starts, ordinal, side="right")) - 1]

    def _document(self, doc_id: str, increment: int) -> dict[str, Any]:
        """The document's row, of the dataset increments taken in by the corpus increment."""
        taken = self._taken.get(increment, [])
        where = And(In("increment", taken), EqualTo("doc_id", doc_id)) if taken else EqualTo("doc_id", doc_id)
        rows = read_rows(self._catalogue, f"{self._facts.dataset}.documents", _DOCUMENT_COLUMNS, where)
        if not rows:
            raise CommandError(
                f"document {doc_id} is not in {self._facts.dataset}.documents any more, so it cannot be traced; "
                "headrace doc excise takes it out of packed tables too"
            )
        return rows[0]

    @cached_property
    def _taken(self) -> dict[int, list[int]]:
        """Increments of the dataset by increment of the corpus."""
        where = EqualTo("dataset", self._facts.dataset)
        found: dict[int, list[int]] = {}
        columns = ("increment", "dataset_increment")
        for row in read_rows(self._catalogue, f"{self._facts.corpus}.increments", columns, where):
            found.setdefault(row["increment"], []).append(row["dataset_increment"])
        return found

    @cached_property
    def _tokenizer(self) -> tuple[str, Int64Array | None]:
        """The tokenizer's file, and the bytes of its tokens where they are known."""
        rows = read_columns(self._catalogue, f"{self._facts.corpus}.tokenizer", ("file", "sha256"))
        sha256 = self._table.properties.get("headrace.tokenizer-sha256")
        if rows is None or not rows.num_rows or rows.column("sha256")[0].as_py() != sha256:
            raise CommandError(
                f"{self._facts.corpus}.tokenizer is not the tokenizer {sha256} that {self._identifier} was packed "
                "with; run the corpus again"
            )
        text = str(rows.column("file")[0].as_py())
        lengths = token_byte_lengths(text)
        return text if self._in_pieces is None else with_letters(text, sentinels_in(self._in_pieces)), lengths

    def _place(self, doc_id: str, own: BooleanExpression, token: int, token_count: int) -> TextPiece | None:
        """The piece of the text with a token; all of it where tokens are in its order, None where there is no order."""
        if self._in_pieces is not None:
            pieces = read_wide_value(self._catalogue, f"{self._facts.corpus}.tokens", PIECES, doc_id, own)
            return piece_of(pieces, token, token_count)
        return None if self._is_masked else TextPiece(0, token_count, 0, None)

    @cached_property
    def _in_pieces(self) -> Mapping[str, str] | None:
        """Properties of the tokens of a corpus that are not in the order of their texts; None where they are."""
        tokens = load_table(self._catalogue, f"{self._facts.corpus}.tokens") if self._is_masked else None
        return tokens.properties if tokens is not None and PIECES in tokens.schema().column_names else None

    def _edits(self, table: str, doc_id: str, partition: BooleanExpression) -> Edits:
        """The edits behind a text."""
        return edits_of(read_wide_value(self._catalogue, table, "edits", doc_id, partition) or [])

    def _cuts(self, doc_id: str, own: BooleanExpression) -> Edits:
        """What the corpus cut of the text before it was encoded."""
        return self._edits(self._cut_texts, doc_id, own) if self._cut_texts is not None else NO_EDITS

    @cached_property
    def _cut_texts(self) -> str | None:
        """The texts cut by a selection of the corpus; None where none did."""
        return cut_texts_of(self._catalogue, self._facts.corpus)

    def _token_bytes(
        self,
        doc_id: str,
        partition: BooleanExpression,
        input_ids: npt.NDArray[np.int32],
        token: int,
        place: TextPiece,
        is_cut: bool,
    ) -> tuple[int, int]:
        """Bytes of a token in what was encoded: by lengths of tokens if they add up to it, else by encoding again."""
        file, lengths = self._tokenizer
        ids, at = input_ids[place.token : place.stop], token - place.token
        if lengths is not None and ids.max() < len(lengths):
            ends = place.start + np.cumsum(lengths[ids])
            if place.end is None or ends[-1] == place.end:
                return int(ends[at] - lengths[ids[at]]), int(ends[at])
        table = self._cut_texts if is_cut and self._cut_texts is not None else f"{self._facts.dataset}.texts"
        text = read_wide_value(self._catalogue, table, "content", doc_id, partition)
        part = str(text).encode()[place.start : place.end if self._in_pieces is not None else None].decode()
        starts, stops = encoded_bounds(file, part, ids)
        return place.start + int(starts[at]), place.start + int(stops[at])

    def _source_bytes(
        self, doc_id: str, partition: BooleanExpression, document: dict[str, Any], edits: Edits, start: int, end: int
    ) -> tuple[int, int]:
        """(start, end) in the bytes of the file of a span of the text's bytes."""
        found = _before_edits(edits, start, end)
        if document["encoding"] == "utf-8" or start == end:
            return found
        content = read_wide_value(self._catalogue, f"{self._facts.dataset}.documents", "content", doc_id, partition)
        return file_bytes(str(content), document["encoding"], *found)


def file_bytes(content: str, encoding: str, start: int, end: int) -> tuple[int, int]:
    """Bytes of a file in another encoding than UTF-8, for bytes of its content's UTF-8.

    Exact for codecs without state; characters that the span cuts count as a whole.

    Args:
        content: the decoded file.
        encoding: a codec giving the file's bytes back.
        start: first byte in the UTF-8 of the content.
        end: byte after the last one.
    """
    utf8 = content.encode()
    while start > 0 and utf8[start] & 0xC0 == 0x80:
        start -= 1
    while end < len(utf8) and utf8[end] & 0xC0 == 0x80:
        end += 1
    return tuple(len(utf8[:at].decode().encode(encoding)) for at in (start, end))  # type: ignore[return-value]


def _text_bytes(document: dict[str, Any], edits: Edits) -> int | None:
    """Bytes of the text's UTF-8, from those of the file and what the edits changed; None for other encodings."""
    if document["encoding"] != "utf-8":
        return None
    return int(document["byte_count"]) + _growth(edits)


def _growth(edits: Edits) -> int:
    """Bytes added to a text by edits."""
    return int((edits.replacement_length - (edits.end - edits.start)).sum())


def _before_edits(edits: Edits, start: int, end: int) -> tuple[int, int]:
    """(start, end) before the edits of a (perhaps empty) span of bytes after them."""
    starts, ends = source_spans(edits, np.array([start]), np.array([max(end, start + 1)]))
    return int(starts[0]), int(ends[0] if end > start else starts[0])
