"""The tree hash of RFC 9162: one value for a list of entries, which an entry cannot leave, enter or change unseen.

leaf      SHA-256(0x00 || entry)
node      SHA-256(0x01 || left || right), split at the largest power of two below the count
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def leaf_hash(entry: bytes) -> bytes:
    """Hash of one entry (RFC 9162, 2.1.1)."""
    return hashlib.sha256(b"\x00" + entry).digest()


def root_of(leaves: Sequence[bytes]) -> bytes:
    """Root over the hashes of N entries in order; of none, the hash of nothing.

    Pairs are joined level by level and an odd last node goes up as it is, which gives the recursive definition's tree.
    """
    if not leaves:
        return hashlib.sha256().digest()
    level = list(leaves)
    while len(level) > 1:
        joined = [_node(level[at], level[at + 1]) for at in range(0, len(level) - 1, 2)]
        level = joined + level[len(level) - len(level) % 2 :]
    return level[0]


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()
