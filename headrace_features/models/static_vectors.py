"""Static vectors (model2vec, StaticEmbedding of sentence-transformers): a tokenizer, and a vector for each token.

The vector of a text is the mean of its tokens' vectors; a folder may have `weights` of tokens, and a `mapping` from
tokens to rows. The unknown token has weight 0. No extra package is needed.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from tokenizers import Tokenizer

from headrace.kernels.tokenizer_file import open_text_tokenizer
from spark_jobs.arrays import Float32Array, Float64Array, Int16Array, Int64Array
from spark_jobs.exceptions import InputError

LENGTH: Final = 2030
"""Length of a vector, as in clusters (`clusters.embedding.SCALE`)."""
MOST_DIMENSIONS: Final = 1024
"""After rounding up to 1,024 coordinates a vector is shorter than 2^11, and a squared distance below 2^24."""
POOLING: Final = "1_Pooling/config.json"  # in a folder of sentence-transformers
_TYPES: Final = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I8": "i1"}
_BATCH_CHARACTERS: Final = 1 << 20  # the library takes about 115 bytes of memory for each


def read_tokenizer(text: bytes, name: str) -> Tokenizer:
    """The tokenizer of an encoder, without truncation, padding and dropout; a text has no control tokens to it.

    Raises:
        InputError: the text is no tokenizer.json.
    """
    try:
        return open_text_tokenizer(text.decode())
    except ValueError as error:  # bytes that are no UTF-8 as well
        raise InputError(f"{name}: tokenizer.json cannot be read ({error}); copy it again") from error


def scaled(vectors: Float64Array) -> Int16Array:
    """(D, V) vectors scaled to the length LENGTH and rounded; 0 stays 0."""
    lengths = np.sqrt(np.square(vectors).sum(axis=1, keepdims=True))
    return np.rint(vectors * (LENGTH / np.where(lengths > 0, lengths, 1))).astype(np.int16)


@dataclass(frozen=True)
class StaticVectors:
    """A tokenizer with a vector for each token.

    Attributes:
        tokenizer: of the library `tokenizers`.
        rows: (R, V) vectors.
        row_of: (T,) the row of each token.
        weights: (T,) its weight, 0 for the unknown token.
    """

    labels: ClassVar[tuple[str, ...]] = ("vector",)
    tokenizer: Tokenizer
    rows: Float32Array
    row_of: Int64Array
    weights: Float64Array

    @property
    def dimensions(self) -> int:
        """V, numbers of a vector."""
        return int(self.rows.shape[1])

    def encode(self, texts: Sequence[str]) -> Int16Array:
        """(D, V) weighted means of the tokens' rows, scaled to LENGTH and rounded."""
        from headrace_features.models.encoder_kernel import add_rows

        sums = np.zeros((len(texts), self.dimensions), np.float64)
        for start, end in _parts(texts):
            encodings = self.tokenizer.encode_batch_fast(list(texts[start:end]), add_special_tokens=False)
            ids = [np.array(encoding.ids, np.int64) for encoding in encodings]
            offsets = np.cumsum([0, *map(len, ids)], dtype=np.int64)
            add_rows(offsets, np.concatenate(ids), self.row_of, self.weights, self.rows, sums[start:end])
        return scaled(sums)


def _parts(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Ranges (start, end) of neighbouring texts of at most `_BATCH_CHARACTERS` together, or of one longer text."""
    ends = np.cumsum([len(text) for text in texts])
    start = 0
    while start < len(texts):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + _BATCH_CHARACTERS, side="right")))
        yield start, end
        start = end


def read_static(files: dict[str, bytes], name: str) -> StaticVectors:
    """Read the encoder from the files of a folder of static vectors."""
    tensors: dict[str, np.ndarray[Any, Any]] = {}
    for path, data in files.items():
        if path.endswith(".npy"):
            tensors["embeddings"] = np.load(io.BytesIO(data), allow_pickle=False)
        elif path.endswith(".safetensors"):
            tensors |= _tensors(data, f"{name}: {path}")
    tables = [tensor for tensor in tensors.values() if tensor.ndim == 2]
    if len(tables) != 1 or not 1 <= tables[0].shape[1] <= MOST_DIMENSIONS:
        shapes = {name_of_tensor: tensor.shape for name_of_tensor, tensor in tensors.items()}
        raise InputError(
            f"{name}: its tensors are {shapes}, static vectors are one table of at most {MOST_DIMENSIONS} dimensions"
        )
    tokenizer = read_tokenizer(files["tokenizer.json"], name)
    count = tokenizer.get_vocab_size()
    rows = np.ascontiguousarray(tables[0], np.float32)
    row_of = np.asarray(tensors.get("mapping", np.arange(count)), np.int64)[:count]
    weights = np.array(tensors.get("weights", np.ones(count)), np.float64)[:count]
    if min(len(row_of), len(weights)) < count or row_of.max(initial=-1) >= len(rows) or row_of.min(initial=0) < 0:
        raise InputError(
            f"{name}: the tokenizer has {count} tokens, the vectors are {len(rows)}; put the encoder's own "
            "tokenizer.json beside them"
        )
    model = json.loads(files["tokenizer.json"])["model"]
    unknown = tokenizer.token_to_id(model.get("unk_token") or "")
    unknown = model.get("unk_id") if unknown is None else unknown  # Unigram names it by its number
    if unknown is not None:
        weights[unknown] = 0
    return StaticVectors(tokenizer, rows, row_of, weights)


def _tensors(data: bytes, name: str) -> dict[str, np.ndarray[Any, Any]]:
    """Parse the tensors of a safetensors file: length of a JSON header, the header, the values.

    Raises:
        InputError: it is damaged, or has a type missing in NumPy.
    """
    try:
        (size,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + size])
        tensors = {}
        for tensor, facts in header.items():
            if tensor != "__metadata__":
                start, end = (8 + size + place for place in facts["data_offsets"])
                tensors[tensor] = np.frombuffer(data[start:end], _TYPES[facts["dtype"]]).reshape(facts["shape"])
    except (KeyError, ValueError, TypeError, struct.error) as error:
        type_names = ", ".join(_TYPES)
        raise InputError(f"{name}: no safetensors of {type_names} ({error}); save it again as float32") from error
    return tensors
