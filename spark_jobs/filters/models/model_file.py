"""The file of a model that headrace trains: canonical bytes, known by the SHA-256 that ends them.

kind, a line | version, length of the header | header: JSON | body | SHA-256 of all before
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from typing import Any, Final

from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.tables import Check, Column

_VERSION: Final = 1
_HEAD: Final = struct.Struct("<II")
DIGEST_BYTES: Final = 32


SHA256_COLUMN: Final = Column(
    "sha256!", "string", "what the model is known by; its first 12 digits are its version in the registry"
)
SHA256_CHECK: Final = Check(
    "sha256_of_file",
    "lower(hex(substring(file, length(file) - 31, 32))) = sha256",
    "the identity is the hash that ends the file",
)


def write_model_file(kind: bytes, header: Mapping[str, Any], body: bytes) -> bytes:
    """The file of a model; equal models have equal bytes."""
    described = json.dumps(header, sort_keys=True, ensure_ascii=False).encode()
    data = kind + _HEAD.pack(_VERSION, len(described)) + described + body
    return data + hashlib.sha256(data).digest()


def read_model_file(kind: bytes, data: bytes, name: str, hint: str) -> tuple[dict[str, Any], memoryview]:
    """Header and body of a file.

    Args:
        kind: what it must begin with.
        data: the file.
        name: how errors call it.
        hint: what to do where it is of another kind.

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
