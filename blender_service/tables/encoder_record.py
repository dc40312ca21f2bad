"""Which version of the tokenizer's library measured a table of text, and what another version's ids are compared with.

It lies beside the lengths of the documents: the versions, the ids of fixed texts, which are compared when the rows are
opened by another version, and a digest of every document's ids, which is compared whenever the document is read.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blender_service.arrays import Int32Array, Int64Array
from blender_service.exceptions import PackedTableError
from headrace.kernels.fixed_texts import first_difference


def reference_version() -> str:
    """The library behind the ids, with its version."""
    return f"tokenizers {importlib.metadata.version('tokenizers')}"


def id_digests(ids: Int32Array, starts: Int64Array) -> NDArray[np.uint32]:
    """(D,) CRC-32 of the ids of each of D documents, which lie one after the other; (D + 1,) starts."""
    digests = [zlib.crc32(ids[start:end].tobytes()) for start, end in itertools.pairwise(starts.tolist())]
    return np.array(digests, dtype=np.uint32)


@dataclass(frozen=True)
class EncoderRecord:
    """What is recorded of the encoder of a table of text.

    Attributes:
        encoded_by: name and version of the library.
        fixed_ids: ids of the fixed texts (`fixed_texts`).
        digests: (D,) digest of the ids of each document; None in records from before.
    """

    encoded_by: str
    fixed_ids: str
    digests: NDArray[np.uint32] | None

    @classmethod
    def of(cls, measured: Mapping[str, NDArray[np.generic]]) -> EncoderRecord:
        """Read the arrays beside the lengths; those from before have none of these."""
        if "digests" not in measured:
            return cls("the version before", "{}", None)
        return cls(str(measured["encoded_by"]), str(measured["fixed_ids"]), measured["digests"].astype(np.uint32))

    @staticmethod
    def arrays(fixed_ids: str, digests: NDArray[np.uint32]) -> dict[str, NDArray[np.generic]]:
        """The record of the installed library as arrays to lie with the lengths."""
        return {"encoded_by": np.array(reference_version()), "fixed_ids": np.array(fixed_ids), "digests": digests}

    def require_same(self, fixed_ids: Callable[[], str], place: str) -> None:
        """Refuse another version of the library with other ids for a fixed text; the same version is not asked.

        Args:
            fixed_ids: gives those of the installed library.
            place: of the record, for the message.

        Raises:
            PackedTableError: names both versions and the text.
        """
        if self.encoded_by != reference_version():
            differing = first_difference(self.fixed_ids, fixed_ids())
            if differing is not None:
                raise self.error(f"{differing[0]} from token {differing[1]} on", place)

    def differing(self, ids: Int32Array, starts: Int64Array, numbers: Int64Array) -> NDArray[np.bool_]:
        """(N,) whether each of some documents has other ids than it had when it was measured.

        Args:
            ids: of the documents, one after the other.
            starts: (N + 1,) first of them of each document.
            numbers: (N,) numbers of the documents.
        """
        if self.digests is None:
            return np.zeros(numbers.size, dtype=np.bool_)
        return np.not_equal(id_digests(ids, starts), self.digests[numbers])

    def error(self, what: str, place: str) -> PackedTableError:
        """The error about a text with other ids."""
        return PackedTableError(
            f"{place}: {what} gets other ids by {reference_version()} than by {self.encoded_by}, which measured it; "
            "install that version, or delete that object, which makes another order of rows"
        )
