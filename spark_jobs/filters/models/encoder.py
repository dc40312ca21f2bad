"""Sentence encoders: from a text to a vector of integers, whose direction says what the text is about.

    headrace encoder | header: kind, files | the files of a folder | SHA-256

Static vectors (model2vec, StaticEmbedding of sentence-transformers) are a tokenizer and a row for each token; a text is
the mean of the rows of its tokens, weighted and by way of a mapping where the folder has `weights` and `mapping`. The
token that stands for what is not known counts for nothing. They need no package. Transformers are read by
`sentence_encoder`, which needs torch. Either mean is scaled to the length LENGTH and rounded, so that products of two
vectors are exact in float32.
"""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

import numpy as np
from tokenizers import Tokenizer

from spark_jobs.arrays import Float32Array, Float64Array, Int16Array, Int64Array
from spark_jobs.exceptions import InputError, SetupError
from spark_jobs.filters.models.model_file import read_model_file, write_model_file

MAGIC: Final = b"headrace encoder\n"
LENGTH: Final = 2030
"""Of a vector, as of those of clusters (`clusters.embedding.SCALE`)."""
MOST_DIMENSIONS: Final = 1024
"""With the rounding of so many coordinates a vector is shorter than 2^11, a squared distance below 2^24."""
STATIC, TRANSFORMER = "static", "transformer"
POOLING: Final = "1_Pooling/config.json"
_WANTED: Final = re.compile(
    rf"tokenizer\.json|config\.json|sentence_bert_config\.json|{re.escape(POOLING)}|embeddings\.npy|"
    r"[\w.-]+\.safetensors(\.index\.json)?"
)
_TYPES: Final = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I8": "i1"}
_BATCH_CHARACTERS: Final = 1 << 20  # the tokenizers take about 115 bytes of memory for each


class Encoder(Protocol):
    """What makes vectors of texts."""

    @property
    def dimensions(self) -> int:
        """Of a vector."""

    def encode(self, texts: Sequence[str]) -> Int16Array:
        """(D, V) vectors of length LENGTH of D texts; 0 where a text has no token that the encoder knows."""


def pack_encoder(folder: Path, name: str) -> bytes:
    """The files of a sentence encoder as one; equal folders give equal bytes.

    Raises:
        InputError: they are not there, or no encoder.
    """
    paths = {str(path.relative_to(folder)): path for path in sorted([*folder.iterdir(), folder / POOLING])}
    files = {found: path.read_bytes() for found, path in paths.items() if _WANTED.fullmatch(found) and path.is_file()}
    weights = [found for found in files if found.endswith((".safetensors", ".npy"))]
    if "tokenizer.json" not in files or not weights:
        lacking = "tokenizer.json" if weights else "weights (model.safetensors or embeddings.npy)"
        raise InputError(f"{name}: {folder} has no {lacking}; give the folder that holds both; pickles are not read")
    config = json.loads(files.get("config.json", b"{}"))
    plain = config.get("model_type", "model2vec") == "model2vec"
    header = {"kind": STATIC if plain else TRANSFORMER, "files": [(found, len(data)) for found, data in files.items()]}
    return write_model_file(MAGIC, header, b"".join(files.values()))


def read_encoder(data: bytes, name: str) -> Encoder:
    """Read an encoder from its file.

    Raises:
        InputError: the bytes are none, of another version, or damaged.
        SetupError: it needs a package that is not installed.
    """
    header, body = read_model_file(MAGIC, data, name, "headrace model add takes a folder with --encoder")
    files, start = dict[str, bytes](), 0
    for found, size in header["files"]:
        if not _WANTED.fullmatch(found):
            raise InputError(f"{name}: holds a file {found!r}, which no encoder has; add the folder again")
        files[found] = bytes(body[start : start + size])
        start += size
    if header["kind"] == STATIC:
        return _read_static(files, name)
    try:
        from spark_jobs.filters.models.sentence_encoder import read_transformer
    except ImportError as error:
        raise SetupError(f"{name}: needs torch; pip install 'headrace[torch,transformers]'") from error
    return read_transformer(files, name)


def read_tokenizer(text: bytes, name: str) -> Tokenizer:
    """The tokenizer of an encoder, without truncation and padding.

    Raises:
        InputError: it is none.
    """
    try:
        tokenizer = Tokenizer.from_str(text.decode())
    except Exception as error:  # the library raises what it likes
        raise InputError(f"{name}: tokenizer.json cannot be read ({error}); copy it again") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def scaled(vectors: Float64Array) -> Int16Array:
    """(D, V) vectors at the length LENGTH, rounded; 0 stays 0."""
    lengths = np.sqrt(np.square(vectors).sum(axis=1, keepdims=True))
    return np.rint(vectors * (LENGTH / np.where(lengths > 0, lengths, 1))).astype(np.int16)


@dataclass(frozen=True)
class StaticVectors:
    """Vectors of tokens, and the tokenizer.

    Attributes:
        tokenizer: of the library.
        rows: (R, V) vectors.
        row_of: (T,) the row of each token.
        weights: (T,) its weight, 0 for the one that stands for what is not known.
    """

    labels: ClassVar[tuple[str, ...]] = ("vector",)
    tokenizer: Tokenizer
    rows: Float32Array
    row_of: Int64Array
    weights: Float64Array

    @property
    def dimensions(self) -> int:
        """Of a vector."""
        return int(self.rows.shape[1])

    def encode(self, texts: Sequence[str]) -> Int16Array:
        """(D, V) scaled means of the rows of tokens."""
        from spark_jobs.filters.models.encoder_kernel import add_rows

        sums = np.zeros((len(texts), self.dimensions), np.float64)
        for start, end in _parts(texts):
            encodings = self.tokenizer.encode_batch_fast(list(texts[start:end]), add_special_tokens=False)
            ids = [np.array(one.ids, np.int64) for one in encodings]
            offsets = np.cumsum([0, *map(len, ids)], dtype=np.int64)
            add_rows(offsets, np.concatenate(ids), self.row_of, self.weights, self.rows, sums[start:end])
        return scaled(sums)


def _parts(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Neighbouring texts of at most so many characters together, or one longer text."""
    ends = np.cumsum([len(text) for text in texts])
    start = 0
    while start < len(texts):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + _BATCH_CHARACTERS, side="right")))
        yield start, end
        start = end


def _read_static(files: dict[str, bytes], name: str) -> StaticVectors:
    """The encoder of a folder of static vectors."""
    tensors: dict[str, np.ndarray[Any, Any]] = {}
    for found, data in files.items():
        if found.endswith(".npy"):
            tensors["embeddings"] = np.load(io.BytesIO(data), allow_pickle=False)
        elif found.endswith(".safetensors"):
            tensors |= _tensors(data, f"{name}: {found}")
    tables = [one for one in tensors.values() if one.ndim == 2]
    if len(tables) != 1 or not 1 <= tables[0].shape[1] <= MOST_DIMENSIONS:
        shapes = {found: one.shape for found, one in tensors.items()}
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
    """The tensors of a file of safetensors: length of a JSON header, the header, the values.

    Raises:
        InputError: it is damaged, or has a type that NumPy has not.
    """
    try:
        (size,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + size])
        found = {}
        for tensor, facts in header.items():
            if tensor != "__metadata__":
                start, end = (8 + size + place for place in facts["data_offsets"])
                found[tensor] = np.frombuffer(data[start:end], _TYPES[facts["dtype"]]).reshape(facts["shape"])
    except (KeyError, ValueError, TypeError, struct.error) as error:
        known = ", ".join(_TYPES)
        raise InputError(f"{name}: no safetensors of {known} ({error}); save it again as float32") from error
    return found
