"""Kinds of documents: each has a vocabulary and a space of tokens of its own."""

from __future__ import annotations

import hashlib

KINDS = ("code", "prose", "markup", "data")


def kind_salt(kind: str) -> int:
    """Salt of the tokens of a kind (`documents.kind`): 8 bytes of a SHA-256, little-endian."""
    return int.from_bytes(hashlib.sha256(f"headrace.dedup.kind.1\0{kind}".encode()).digest()[:8], "little")
