"""Encode documents: by the fast encoder if its certificate covers them, else by the reference.

    ASCII, or no excluded code point    fast, once normalized       nearly all real documents
    an excluded code point              reference, in batches       and everything where there is no certificate
    names that `added_tokens` leaves    reference                   of other added tokens the ids are put between texts
    the fast encoder fails              reference
    one in 1,000, by hash of doc_id     fast and reference; the first difference is an error

Documents are read from the buffers of Arrow columns. Which of them are ASCII is found for a whole column at once; the
others are decoded, bytes other than UTF-8 refused, and their code points beyond ASCII are looked up in a table.
"""

from __future__ import annotations

import functools
import logging
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.arrays import BoolArray, Int32Array
from spark_jobs.exceptions import InputError
from spark_jobs.tokens.added_tokens import AddedTokens, load_added_tokens
from spark_jobs.tokens.certificate import Certificate
from spark_jobs.tokens.fast.fast_encoder import FastEncoder, load_fast_encoder
from spark_jobs.tokens.hf_tokenizer import load_encoder

_log = logging.getLogger(__name__)
_CHECKED_ONE_IN = 1000
_MOST_CHECKED = 1 << 20  # characters of a task's first document; those chosen by hash are checked whatever their size


@dataclass
class Tally:
    """Number of documents by encoder, and of those encoded by both."""

    fast: int = 0
    reference: int = 0
    checked: int = 0


class DocumentColumn:
    """A column of documents, read from Arrow's buffers without a copy.

    Args:
        content: (D,) texts, none of them null.
        doc_ids: (D,) their ids.
    """

    def __init__(self, content: pa.Array, doc_ids: pa.Array) -> None:
        self._ascii: list[bool] = pc.string_is_ascii(content).to_numpy(zero_copy_only=False).tolist()
        _, offsets, data = content.buffers()
        width = np.int64 if pa.types.is_large_string(content.type) else np.int32
        starts = np.frombuffer(offsets or b"\0" * 8, width)[content.offset : content.offset + len(content) + 1]
        self._starts: list[int] = starts.tolist()
        self._data = memoryview(data or b"")
        self.doc_ids: list[str] = doc_ids.to_pylist()

    def __len__(self) -> int:
        return len(self.doc_ids)

    def data(self, row: int) -> memoryview:
        """A document's UTF-8."""
        return self._data[self._starts[row] : self._starts[row + 1]]

    def text(self, row: int) -> str:
        """A document's text.

        Raises:
            InputError: it is no UTF-8.
        """
        try:
            return str(self.data(row), "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"tokens: document {self.doc_ids[row]} is not UTF-8 at byte {error.start} ({error.reason}); "
                "materialize texts again, which decodes what it reads"
            ) from error

    def is_ascii(self, row: int) -> bool:
        """Whether a document has nothing beyond ASCII."""
        return self._ascii[row]


@dataclass
class DocumentEncoder:
    """Encodes the documents of one task.

    Attributes:
        file_text: text of the tokenizer.json.
        certificate: the texts allowed to the fast encoder; none if it is a refusal or for other versions.
        batch_characters: most characters sent to the reference at once (see `hf_tokenizer.ExactEncoder`).
        load_fast: makes the fast encoder.
        tally: counts of documents so far.
    """

    file_text: str
    certificate: Certificate
    batch_characters: int
    load_fast: Callable[[str], FastEncoder] = load_fast_encoder
    tally: Tally = field(default_factory=Tally)

    @functools.cached_property
    def _fast(self) -> FastEncoder | None:
        usable = self.certificate.refusal is None and self.certificate.is_for_this_installation
        return self.load_fast(self._added.plain) if usable else None

    @functools.cached_property
    def _added(self) -> AddedTokens:
        return load_added_tokens(self.file_text)

    @functools.cached_property
    def _excluded(self) -> BoolArray:
        return self.certificate.excluded_table()

    def encode(self, documents: DocumentColumn) -> Iterator[Int32Array]:
        """Encode documents in order.

        Yields:
            (T,) ids of each document.

        Raises:
            InputError: a text is no UTF-8, or the two encoders differ; the message names the document.
        """
        if self._fast is None:
            yield from self._by_reference(documents, range(len(documents)))
            return
        waiting: list[int] = []  # for the reference, which is fastest with many at once
        for row in range(len(documents)):
            ids = self._by_fast(self._fast, documents, row)
            if ids is None:
                waiting.append(row)
                continue
            yield from self._by_reference(documents, waiting)
            waiting = []
            yield ids
        yield from self._by_reference(documents, waiting)

    def _covered(self, documents: DocumentColumn, row: int) -> str | None:
        """A document's text as the fast encoder takes it, normalized; None where the certificate does not cover it."""
        text = documents.text(row)
        if not documents.is_ascii(row) and self._has_excluded(documents.data(row)):
            return None
        normal = self._added.normalized(text)
        return None if normal is None or (normal != text and self._has_excluded(normal.encode())) else normal

    def _has_excluded(self, data: bytes | memoryview) -> bool:
        from spark_jobs.tokens.fast.code_points import has_any

        return bool(has_any(np.frombuffer(data, np.uint8), self._excluded))

    def _by_fast(self, fast: FastEncoder, documents: DocumentColumn, row: int) -> Int32Array | None:
        """A document's ids; None where the certificate does not cover it, or the fast encoder fails."""
        text = self._covered(documents, row)
        if text is None:
            return None
        try:
            ids = self._added.encode(text, fast.encode)
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 (a panic of Rust is raised as one that is no `Exception`)
            name, doc_id = self.certificate.encoder, documents.doc_ids[row]
            _log.warning("tokens: document %s: %s fails, the reference encodes it: %s", doc_id, name, error)
            return None
        self.tally.fast += 1
        if self._is_checked(documents.doc_ids[row], len(text)):
            self._check(documents, row, ids)
        return ids

    def _by_reference(self, documents: DocumentColumn, rows: Sequence[int]) -> Iterator[Int32Array]:
        if not rows:
            return
        self.tally.reference += len(rows)
        reference = load_encoder(self.file_text)
        try:
            yield from reference.encode((documents.text(row) for row in rows), self.batch_characters)
        except (KeyboardInterrupt, SystemExit, GeneratorExit, InputError):
            raise
        except BaseException as error:  # a panic of Rust is raised as one that is no `Exception`
            raise InputError(
                f"tokens: {self.certificate.reference} fails on one of {len(rows)} documents, the first is "
                f"{documents.doc_ids[rows[0]]}: {error}; added tokens with lstrip or rstrip that meet do so: take "
                "these flags out of the tokenizer's file"
            ) from error

    def _is_checked(self, doc_id: str, characters: int) -> bool:
        """Whether the reference encodes a document as well: a thousandth of all, and the first of every task."""
        is_first = self.tally.checked == 0 and 0 < characters <= _MOST_CHECKED
        return is_first or zlib.crc32(doc_id.encode()) % _CHECKED_ONE_IN == 0

    def _check(self, documents: DocumentColumn, row: int, ids: Int32Array) -> None:
        """Compare a document's ids with the reference's.

        Raises:
            InputError: they differ.
        """
        self.tally.checked += 1
        (expected,) = load_encoder(self.file_text).encode([documents.text(row)], self.batch_characters)
        if np.array_equal(expected, ids):
            return
        common = min(len(expected), len(ids))
        first = int(np.append(np.flatnonzero(expected[:common] != ids[:common]), common)[0])
        raise InputError(
            f"tokens: document {documents.doc_ids[row]}: {self.certificate.encoder} gives other ids than "
            f"{self.certificate.reference} from token {first} on; set use_fast_encoder to false in the config of "
            "tokens and report the document"
        )
