"""The fast encoder: `fastokens`, tens of times as fast as the reference in all scripts.

It decides no row, and all goes on without it: it encodes only the texts for which a certificate says that it gives the
reference's ids (`certificate`). It was the fastest of those measured under a certificate, on words without spaces too
(benchmarks/bench_tokens.py).
"""

from __future__ import annotations

import importlib.metadata
from typing import Any, Final

import numpy as np

from spark_jobs.arrays import Int32Array
from spark_jobs.threads import made_once

_LIBRARY: Final = "fastokens"
NO_ENCODER: Final = "none"
"""Value of `encoder_version` where no fast encoder is installed."""


def encoder_version() -> str:
    """Name and version of the fast encoder; `none` without it."""
    return f"{_LIBRARY} {_version(_LIBRARY)}" if _version(_LIBRARY) else NO_ENCODER


def reference_version() -> str:
    """Name and version of the reference, the encoder with the right ids by definition."""
    return f"tokenizers {_version('tokenizers')}"


def _version(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return ""


@made_once(most=2)
def load_fast_encoder(file_text: str) -> FastEncoder:
    """A fast encoder of the tokenizer, cached for the life of the process, with its cache of frequent words."""
    return FastEncoder(file_text)


class FastEncoder:
    """Ids of texts by a tokenizer without normalizer and added tokens; the reference's where a certificate says so."""

    def __init__(self, file_text: str) -> None:
        """Read a tokenizer (`added_tokens.plain_tokenizer`).

        Raises:
            Exception: the library does not support the tokenizer; it has no narrower one.
        """
        from fastokens import Tokenizer

        self._tokenizer: Any = Tokenizer.from_json_str(file_text)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode(self, text: str) -> Int32Array:
        """(T,) ids of a text; one at a time, three times as fast as many in one call (0.3.5)."""
        ids, _ = self._tokenizer.encode_batch_flat([text])
        return np.frombuffer(ids, np.int32)
