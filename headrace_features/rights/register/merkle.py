"""The tree hash of RFC 9162: one value for a list of entries, which an entry cannot leave, enter or change unseen.

leaf      SHA-256(0x00 || entry)
node      SHA-256(0x01 || left || right), split at the largest power of two below the count
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence


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


def prefix_roots(leaves: Iterable[bytes]) -> Iterator[bytes]:
    """The roots over the first 0, 1, 2, .. leaves: a log that grew had each of them.

    Kept are the roots of whole subtrees, one for each 1 in the binary number of leaves, the largest first.
    """
    yield root_of(())
    whole: list[bytes] = []
    for count, leaf in enumerate(leaves, 1):
        whole.append(leaf)
        for _ in range((count & -count).bit_length() - 1):
            right = whole.pop()
            whole[-1] = _node(whole[-1], right)
        root = whole[-1]
        for left in reversed(whole[:-1]):
            root = _node(left, root)
        yield root


def audit_path(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """The hashes beside the way from a leaf to the root, from below (RFC 9162, 2.1.3.1): they prove that it is in."""
    path, level = [], list(leaves)
    while len(level) > 1:
        if index ^ 1 < len(level):
            path.append(level[index ^ 1])
        joined = [_node(level[at], level[at + 1]) for at in range(0, len(level) - 1, 2)]
        level, index = joined + level[len(level) - len(level) % 2 :], index // 2
    return path


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()
