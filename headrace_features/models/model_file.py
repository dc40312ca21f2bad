"""The file format of headrace's models: canonical bytes; the SHA-256 at their end is the model's identity.

kind, a line | version, length of the header | header: JSON | body | SHA-256 of all before

The body of a causal language model is a folder's files, concatenated (header {"kind": "folder", "files": [[name,
bytes], ..]}), or float32 parameters ({"kind": "byte network", "shape": {..}}). A folder in Hugging Face's layout has
one SHA-256 and is copied as one. Weights are taken as safetensors alone: other formats are pickles, and reading a
pickle may run what somebody put into it.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.tables import Check, Column

_VERSION: Final = 1
_HEAD: Final = struct.Struct("<II")
DIGEST_BYTES: Final = 32


SHA256_COLUMN: Final = Column(
    "sha256!", "string", "SHA-256 of the model's file; its first 12 digits are the version in the registry"
)
SHA256_CHECK: Final = Check(
    "sha256_of_file",
    "right(lower(hex(file)), 64) = sha256",
    "the identity is the hash that ends the file",
)


def write_model_file(kind: bytes, header: Mapping[str, Any], body: bytes) -> bytes:
    """The bytes of a model's file; equal models have equal bytes."""
    described = json.dumps(header, sort_keys=True, ensure_ascii=False).encode()
    data = kind + _HEAD.pack(_VERSION, len(described)) + described + body
    return data + hashlib.sha256(data).digest()


def read_model_file(kind: bytes, data: bytes, name: str, hint: str) -> tuple[dict[str, Any], memoryview]:
    """Check a model's file and return its header and body.

    Raises:
        InputError: the bytes are of another kind or version, or damaged.
    """
    if not data.startswith(kind):
        raise InputError(f"{name}: is no file of {kind.decode().strip()!r}, it begins with {data[:8]!r}; {hint}")
    damaged = InputError(f"{name}: is damaged, its {len(data)} bytes do not match their SHA-256; copy the file again")
    if len(data) < len(kind) + _HEAD.size + DIGEST_BYTES:
        raise damaged
    version, header_bytes = _HEAD.unpack_from(data, len(kind))
    if version != _VERSION:
        raise InputError(f"{name}: has version {version}, this headrace reads version {_VERSION}; train it again")
    view = memoryview(data)
    if hashlib.sha256(view[:-DIGEST_BYTES]).digest() != data[-DIGEST_BYTES:]:
        raise damaged
    start = len(kind) + _HEAD.size
    try:
        header: dict[str, Any] = json.loads(bytes(view[start : start + header_bytes]))
    except ValueError as error:
        raise InputError(f"{name}: its header makes no sense to this headrace; train it again") from error
    return header, view[start + header_bytes : -DIGEST_BYTES]


MAGIC: Final = b"headrace causal model\n"
_WANTED: Final = re.compile(r"config\.json|tokenizer\.json|[\w.-]+\.safetensors(\.index\.json)?")
_WEIGHTS: Final = ".safetensors"


def pack_folder(folder: Path, name: str) -> bytes:
    """Pack a folder of config.json, tokenizer.json and weights into one file; equal folders give equal bytes.

    Raises:
        InputError: one of them is missing.
    """
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if _WANTED.fullmatch(path.name)}
    for wanted in ("config.json", "tokenizer.json", _WEIGHTS):
        if not any(file_name.endswith(wanted) for file_name in files):
            how = "save it with save_pretrained, whose weights are safetensors; pickles (.bin) are not read"
            raise InputError(f"{name}: {folder} has no {wanted}, it is no causal model in Hugging Face's layout; {how}")
    sizes = {file_name: len(data) for file_name, data in files.items()}
    return write_model_file(MAGIC, {"kind": "folder", "files": list(sizes.items())}, b"".join(files.values()))


def unpack_folder(files: list[tuple[str, int]], body: memoryview, folder: Path, name: str) -> None:
    """Unpack the files of a packed model into a folder.

    Raises:
        InputError: a file has a name impossible in a packed folder.
    """
    start = 0
    for file_name, size in files:
        if not _WANTED.fullmatch(file_name):
            raise InputError(
                f"{name}: holds a file {file_name!r}, which no folder of a model has; add the folder again"
            )
        (folder / file_name).write_bytes(body[start : start + size])
        start += size


def byte_model_file(shape: Mapping[str, int], parameters: bytes) -> bytes:
    """The bytes of the file of a model over bytes; equal models have equal bytes."""
    return write_model_file(MAGIC, {"kind": "byte network", "shape": dict(shape)}, parameters)
