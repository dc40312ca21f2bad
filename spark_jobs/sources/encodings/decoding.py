"""Decode bytes to text without loss: `text.encode(encoding)` gives exactly the bytes read.

The encoding is the first of: that of a byte order mark; for Python a declared one (PEP 263, looked for only where there
is a byte beyond ASCII); UTF-8. Nothing is guessed: text in an undeclared legacy encoding is refused, unless the source
says `encoding: detect` (`formats/legacy_encoding.py`).
"""

from __future__ import annotations

import codecs
import io
import tokenize
from collections.abc import Callable
from typing import Any, NamedTuple

from spark_jobs.sources.opening.streams import Stream
from spark_jobs.sources.refusals import Reason, Refusal, RefusedError

DETECTION_BYTES = 1 << 20
"""Bytes by which an encoding is detected."""
_SNIFFED = 8192  # bytes in which a null byte means that the file is binary
_BYTE_ORDER_MARKS: tuple[tuple[bytes, str], ...] = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16: its mark starts with that of UTF-16-LE
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Decoded(NamedTuple):
    """A text, and the codec to give its bytes back.

    After `utf-16-be` and `utf-32-be` the text still starts with U+FEFF: Python has no codec to write such a mark.
    """

    text: str
    encoding: str


def decode(data: bytes, *, declares_encoding: bool = False) -> Decoded | Refusal:
    """Decode the bytes of one file.

    Args:
        data: all bytes of the file.
        declares_encoding: whether the language lets a comment declare the encoding (PEP 263).

    Returns:
        The text with its codec, or why there is none: `binary` or `undecodable`.
    """
    marked = marked_encoding(data)
    if marked is not None:
        return decode_as(data, marked)
    if refusal := null_byte_refusal(data):
        return refusal
    if data.isascii():
        return Decoded(data.decode("ascii"), "utf-8")
    if declares_encoding:
        try:
            declared, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        except SyntaxError as error:
            return Refusal(Reason.UNDECODABLE, f"{error}; declare the real encoding or save the file as UTF-8")
        return decode_as(data, declared)
    return decode_as(data, "utf-8")


def marked_encoding(data: bytes) -> str | None:
    """The codec named by a byte order mark, or None where there is no mark."""
    return next((name for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark)), None)


def null_byte_refusal(data: bytes) -> Refusal | None:
    """The refusal of bytes with a null byte near their start, else None."""
    index = data.find(b"\0", 0, _SNIFFED)
    return None if index < 0 else Refusal(Reason.BINARY, f"null byte at offset {index}: not a text")


class Recoded:
    """A file of lines in an unknown encoding, as UTF-8; read from start to end in bounded memory.

    The encoding is detected at the first byte beyond ASCII (or a byte order mark), by at most a megabyte from there on.
    Where none is found, the bytes stay as they are. So do single bytes outside of the encoding, and their lines are
    refused later.
    """

    def __init__(self, stream: Stream, detect: Callable[[bytes], Any]) -> None:
        """Wrap a stream.

        Args:
            stream: the file.
            detect: gives a refusal, or a text with `source_encoding` and `source_encoding_by` in its `metadata`.
        """
        self.facts: dict[str, str] = {}
        self._stream, self._detect = stream, detect
        self._decoder: codecs.IncrementalDecoder | None = None
        self._is_detected = False

    def read(self, size: int, /) -> bytes:
        """The next bytes, at least one before the end.

        Raises:
            OSError: the bytes are not of the encoding, and it cannot keep single wrong bytes (UTF-16, UTF-32).
        """
        while True:
            data = self._stream.read(size)
            if not self._is_detected and data and not (data.isascii() and b"\0" not in data):
                data = self._detect_encoding(data)
            if self._decoder is None:
                return data
            try:
                text = self._decoder.decode(data, not data)
            except UnicodeDecodeError as error:
                raise OSError(f"not {error.encoding}: {error.reason}") from error
            if text or not data:
                return text.encode("utf-8", "surrogateescape")

    def _detect_encoding(self, data: bytes) -> bytes:
        """Detect the encoding; gives the bytes read for it, still to be decoded."""
        self._is_detected = True
        pieces = [data]
        while sum(map(len, pieces)) < DETECTION_BYTES and (more := self._stream.read(DETECTION_BYTES)):
            pieces.append(more)
        data = b"".join(pieces)
        codec = marked_encoding(data)
        if codec is not None:
            self.facts = {"source_encoding": codec, "source_encoding_by": "byte order mark"}
        elif not _is_utf8(data):
            detected = self._detect(data)
            if isinstance(detected, Refusal) and detected.reason == Reason.NOT_INSTALLED:
                raise RefusedError(detected.reason, detected.detail)
            self.facts = getattr(detected, "metadata", {})
            codec = self.facts.get("source_encoding")
        if codec not in (None, "utf-8-sig"):
            self._decoder = codecs.getincrementaldecoder(codec)("surrogateescape")
        return data


def _is_utf8(data: bytes) -> bool:
    """Whether bytes are UTF-8, the last character perhaps cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


def decode_as(data: bytes, encoding: str) -> Decoded | Refusal:
    """Decode by one codec, and check for codecs other than UTF-8 that encoding gives the same bytes back."""
    try:
        text = data.decode(encoding)
        text.encode()  # a codec such as raw_unicode_escape can make lone surrogates
        lossless = encoding == "utf-8" or text.encode(encoding) == data
    except UnicodeDecodeError as error:
        where = f"byte 0x{data[error.start]:02x} at offset {error.start} is not {encoding}"
        return Refusal(Reason.UNDECODABLE, f"{where}; save the file as UTF-8")
    except (UnicodeError, LookupError) as error:
        return Refusal(Reason.UNDECODABLE, f"{encoding}: {error}; save the file as UTF-8")
    if not lossless:
        return Refusal(Reason.UNDECODABLE, f"{encoding} does not give the same bytes back; save the file as UTF-8")
    return binary_refusal(text) or Decoded(text, encoding)


def binary_refusal(text: str) -> Refusal | None:
    """The refusal of a text with a null character near its start, else None."""
    index = text.find("\0", 0, _SNIFFED)
    return None if index < 0 else Refusal(Reason.BINARY, f"null character at {index}: not a text")
