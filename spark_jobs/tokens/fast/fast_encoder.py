"""The fast encoders: `gigatoken`, a hundred times as fast as the reference, and our own (`piece_encoder`).

    Chinese, Japanese: a third beyond ASCII, in long runs         our own, where it supports the tokenizer
    other documents, and a piece that is too long for ours        gigatoken

gigatoken caches words, and in scripts without spaces few words come again: on Chinese it has a third to a half of our
speed (benchmarks/bench_tokens.py --languages). Where words have spaces it is faster.

gigatoken is an optional dependency (`pip install headrace[fast]`) and decides no row: the two encode only the texts for
which a certificate says that they give the reference's ids (`certificate`).

One document is one call of `encode`, which works on the calling thread. gigatoken's batch calls are not used: they use
a pool of threads by default, which hangs in a process that was forked after the pool was made (as Spark's workers are),
and they import `awkward`, which takes a second. gigatoken accepts bytes that are no UTF-8, so callers check them.
"""

from __future__ import annotations

import importlib.metadata
import json
import unicodedata
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spark_jobs.arrays import Int32Array
from spark_jobs.threads import made_once

if TYPE_CHECKING:
    from spark_jobs.tokens.fast.piece_encoder import PieceEncoder


_LIBRARY: Final = "gigatoken"
_PIECES: Final = "pieces 1"  # a new number makes certificates of earlier ones invalid
_LEAST_SHARE: Final = 1 / 3
_LEAST_RUN: Final = 24  # bytes; words of other scripts have 8 to 12
_HEAD_BYTES: Final = 1 << 16
NO_ENCODER: Final = "none"
"""Value of `encoder_version` where no fast encoder is installed."""


def encoder_version() -> str:
    """Versions of the fast encoders and of the tables of characters that ours uses; `none` without the library."""
    own = f"{_PIECES}, Unicode {unicodedata.unidata_version}"
    return f"{_LIBRARY} {_version(_LIBRARY)}, {own}" if _version(_LIBRARY) else NO_ENCODER


def reference_version() -> str:
    """Name and version of the reference, the encoder whose ids are right by definition."""
    return f"tokenizers {_version('tokenizers')}"


def _version(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return ""


def load_pieces(file_text: str) -> PieceEncoder | None:
    """Our own encoder of the tokenizer, or None where it does not support the tokenizer."""
    from spark_jobs.tokens.fast.piece_encoder import PieceEncoder

    try:
        return PieceEncoder(file_text)
    except ValueError:
        return None


@made_once(most=2)
def load_fast_encoder(file_text: str) -> FastEncoder:
    """A fast encoder of the tokenizer, cached for the life of the process, with its cache of frequent words."""
    return FastEncoder(file_text)


class LibraryEncoder:
    """Ids of whole documents by gigatoken.

    gigatoken would encode the text of a special token as that token. It is given the file without special tokens, so
    that their text is encoded as text, as the reference does with `encode_special_tokens`. Other added tokens stay.
    """

    def __init__(self, file_text: str) -> None:
        """Read a tokenizer.

        Raises:
            RuntimeError: the library does not support the tokenizer.
        """
        from gigatoken.gigatoken_rs import load_hf_json

        declared = json.loads(file_text)
        declared["added_tokens"] = [t for t in declared.get("added_tokens") or [] if not t.get("special")]
        self._backend: Any = load_hf_json(json.dumps(declared))

    def encode(self, data: bytes) -> Int32Array:
        """Encode a document.

        Args:
            data: its text as UTF-8.

        Returns:
            (T,) ids.
        """
        ids: Int32Array = self._backend.encode(data).view(np.int32)
        return ids


class FastEncoder:
    """Ids of a document by the faster of two encoders; equal to the reference's where a certificate says so."""

    def __init__(self, file_text: str) -> None:
        self._library = LibraryEncoder(file_text)
        self._pieces = load_pieces(file_text)

    def encode(self, data: bytes) -> Int32Array:
        """(T,) ids of a document, given as UTF-8."""
        if self._pieces is not None and _has_long_runs(data):
            ids = self._pieces.encode(data)
            if ids is not None:
                return ids
        return self._library.encode(data)


def _has_long_runs(data: bytes) -> bool:
    """Whether at least a third of a text's first 64 KiB is beyond ASCII, in runs of 24 bytes or more on average."""
    if data.isascii():  # found much faster, which counts for the short texts between added tokens
        return False
    beyond = np.frombuffer(data, np.uint8, min(len(data), _HEAD_BYTES)) >= 0x80
    count = np.count_nonzero(beyond)
    runs = np.count_nonzero(np.diff(beyond, prepend=False) & beyond)
    return bool(count > len(beyond) * _LEAST_SHARE and count >= _LEAST_RUN * runs)
