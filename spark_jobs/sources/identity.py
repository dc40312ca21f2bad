"""The identity of a document, `doc_id`, and its shard (docs/extend/architecture.md, Identity).

Both are functions of the document's content and path, never of when or in which order it was read, so a rebuild on
another machine gives the same ids. They are fixed for good: changing either makes every document a new one.
"""

from __future__ import annotations

import hashlib
from json.encoder import encode_basestring as quoted


def sha256_hex(data: bytes) -> str:
    """SHA-256 of some bytes in lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def document_id(dataset: str, repository: str | None, path: str, content_sha256: str) -> str:
    """First 32 hex digits of SHA-256 over the JSON array `[dataset, repository or null, path, content_sha256]`.

    The array is written in UTF-8 without white space and without escapes for characters beyond ASCII.
    """
    return sha256_hex(json_array(dataset, repository, path, content_sha256))[:32]


def identified(dataset: str, shards: int, repository: str | None, path: str, content_sha256: str) -> tuple[str, int]:
    """The `doc_id` and the shard of a document; arguments as of `document_id` and `shard_of`."""
    doc_id = document_id(dataset, repository, path, content_sha256)
    return doc_id, shard_of(repository, doc_id, shards)


def json_array(*texts: str | None) -> bytes:
    """The JSON array of some texts, in UTF-8 without white space and without escapes for characters beyond ASCII."""
    return f"[{','.join(['null' if text is None else quoted(text) for text in texts])}]".encode()


def shard_of(repository: str | None, doc_id: str, shards: int) -> int:
    """The shard of a document, in 0..shards-1, by its repository, never split; without one by its id.

    Args:
        repository: name of the repository, or None.
        doc_id: id of the document.
        shards: number of shards of the dataset, a power of two, so that doubling it splits every shard in two.
    """
    return int(sha256_hex((doc_id if repository is None else repository).encode())[:16], 16) % shards
