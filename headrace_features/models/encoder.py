"""Sentence encoders: from a text to an integer vector; texts of similar meaning have vectors of similar direction.

    headrace encoder | header: kind, names and sizes of files | the files, concatenated | SHA-256

Static vectors are read by `static_vectors`, transformers by `sentence_encoder`, with torch. The vectors of
either are scaled to one length and rounded, so that products of two of them are exact in float32.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from headrace_features.models.model_file import read_model_file, write_model_file
from headrace_features.models.static_vectors import POOLING, read_static
from spark_jobs.arrays import Int16Array
from spark_jobs.exceptions import InputError, SetupError

MAGIC: Final = b"headrace encoder\n"
STATIC, TRANSFORMER = "static", "transformer"
_WANTED: Final = re.compile(
    rf"tokenizer\.json|config\.json|sentence_bert_config\.json|{re.escape(POOLING)}|embeddings\.npy|"
    r"[\w.-]+\.safetensors(\.index\.json)?"
)


class Encoder(Protocol):
    """A model to turn texts into vectors."""

    @property
    def dimensions(self) -> int:
        """V, numbers of a vector."""

    def encode(self, texts: Sequence[str]) -> Int16Array:
        """(D, V) vectors of length LENGTH (`static_vectors`) of D texts; all 0 for a text without a known token."""


def pack_encoder(folder: Path, name: str) -> bytes:
    """Pack a sentence encoder's folder into one file; equal folders give equal bytes.

    Raises:
        InputError: the folder lacks a tokenizer.json or weights.
    """
    paths = {str(path.relative_to(folder)): path for path in sorted([*folder.iterdir(), folder / POOLING])}
    files = {
        file_name: path.read_bytes()
        for file_name, path in paths.items()
        if _WANTED.fullmatch(file_name) and path.is_file()
    }
    weights = [file_name for file_name in files if file_name.endswith((".safetensors", ".npy"))]
    if "tokenizer.json" not in files or not weights:
        lacking = "tokenizer.json" if weights else "weights (model.safetensors or embeddings.npy)"
        raise InputError(f"{name}: {folder} has no {lacking}; give the folder that holds both; pickles are not read")
    config = json.loads(files.get("config.json", b"{}"))
    plain = config.get("model_type", "model2vec") == "model2vec"
    header = {
        "kind": STATIC if plain else TRANSFORMER,
        "files": [(file_name, len(data)) for file_name, data in files.items()],
    }
    return write_model_file(MAGIC, header, b"".join(files.values()))


def read_encoder(data: bytes, name: str) -> Encoder:
    """Read an encoder from its file.

    Raises:
        InputError: the bytes are no encoder, of another version, or damaged.
        SetupError: it needs a missing package.
    """
    header, body = read_model_file(MAGIC, data, name, "headrace model add takes a folder with --encoder")
    files, start = dict[str, bytes](), 0
    for file_name, size in header["files"]:
        if not _WANTED.fullmatch(file_name):
            raise InputError(f"{name}: holds a file {file_name!r}, which no encoder has; add the folder again")
        files[file_name] = bytes(body[start : start + size])
        start += size
    if header["kind"] == STATIC:
        return read_static(files, name)
    try:
        from headrace_features.models.sentence_encoder import read_transformer
    except ImportError as error:
        raise SetupError(f"{name}: needs torch; pip install 'headrace[torch,transformers]'") from error
    return read_transformer(files, name)
