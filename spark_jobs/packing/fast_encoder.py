"""The fast encoder, where it is installed: `gigatoken`, byte-level BPE at a hundred times the reference's speed.

It is an option of the installation (`pip install headrace[fast]`) and decides no row: what it may encode is what a
certificate says it encodes as the reference does (`certificate`).

One document is one call of `encode`, which works on the calling thread. The library's batch calls are left alone: they
use a pool of threads by default, which hangs in a process that was forked after the pool was made (as Spark's workers
are), and they import `awkward`, a second. Bytes that are no UTF-8 pass without complaint, so callers check them.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]

_LIBRARY: Final = "gigatoken"
NO_ENCODER: Final = "none"
"""Version of the fast encoder where none is installed."""


def encoder_version() -> str:
    """Name and version of the fast encoder that is installed, or `none`."""
    return f"{_LIBRARY} {_version(_LIBRARY)}" if _version(_LIBRARY) else NO_ENCODER


def reference_version() -> str:
    """Name and version of the encoder whose ids count."""
    return f"tokenizers {_version('tokenizers')}"


def _version(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return ""


@functools.lru_cache(maxsize=2)
def load_fast_encoder(file_text: str) -> FastEncoder:
    """A fast encoder of the tokenizer; kept while the process lives, with what it has learned of frequent words."""
    return FastEncoder(file_text)


class FastEncoder:
    """Ids of whole documents, equal to the reference's where a certificate says so.

    The library takes the text of a special token for the token. It is given the file without them, so that they are
    text, as they are for the reference with `encode_special_tokens`. Other added tokens stay and match.
    """

    def __init__(self, file_text: str) -> None:
        """Read a tokenizer.

        Args:
            file_text: text of a tokenizer.json.

        Raises:
            RuntimeError: the library does not know such a tokenizer.
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
