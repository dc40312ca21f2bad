"""Which documents of a table of text were unread in an epoch when its rows became longer; kept with the blends.

A document of which any piece stands in a row that was read is not read again in that epoch: the rest of one that was
read in part is held by no row, and counted.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blender_service.arrays import Int64Array
from blender_service.exceptions import PackedTableError
from blender_service.tables.conversation_texts import Objects

UNREAD: Final = "texts/unread"


class UnreadDocuments(NamedTuple):
    """The documents of a table.

    Attributes:
        mask: (D,) whether nothing of a document was read.
        in_part: how many were read in part.
    """

    mask: NDArray[np.bool_]
    in_part: int


def unread_in_epoch(
    pieces: Iterable[tuple[Int64Array, Int64Array]],
    read: NDArray[np.bool_],
    count_of_all: int,
    size: int,
    former: UnreadDocuments | None,
) -> UnreadDocuments:
    """Give the documents of which nothing stands in rows that were read in an epoch.

    Args:
        pieces: document and row of each, some groups after the other.
        read: (R,) whether each row was read in it.
        count_of_all: rows of all documents, before those of `former`.
        size: documents D of the table.
        former: those that the epoch ends with, in the rows behind those of all; None where it is of all.
    """
    some, others = np.zeros((2, size), np.bool_)
    for documents, rows in pieces:
        some[documents[read[rows]]] = True
        others[documents[~read[rows] & ((rows >= count_of_all) == (former is not None))]] = True
    return UnreadDocuments(~some if former is None else ~some & former.mask, int((some & others).sum()))


def put_unread(objects: Objects, unread: UnreadDocuments, change: str) -> str:
    """Keep them by a hash, which is given; it is another one for each `change` of the length of rows."""
    bits = zlib.compress(np.packbits(unread.mask).tobytes(), 1)
    content = f"{unread.mask.size} {unread.in_part} {change}\n".encode() + bits
    sha256 = hashlib.sha256(content).hexdigest()
    objects.put_if_absent(f"{UNREAD}/{sha256}", content)
    return sha256


def read_unread(objects: Objects, sha256: str | None) -> UnreadDocuments | None:
    """Read them; None without a hash.

    Raises:
        PackedTableError: they are lost or damaged.
    """
    if sha256 is None:
        return None
    content = objects.read(f"{UNREAD}/{sha256}")
    if content is None or hashlib.sha256(content).hexdigest() != sha256:
        raise PackedTableError(
            f"{UNREAD}/{sha256} is lost or damaged beside the blends; restore the object, or create the blend again"
        )
    head, _, bits = content.partition(b"\n")
    size, in_part = map(int, head.split()[:2])
    mask = np.unpackbits(np.frombuffer(zlib.decompress(bits), np.uint8), count=size).astype(np.bool_)
    return UnreadDocuments(mask, in_part)
