"""How often documents, and clusters of near-duplicates, were read: from counts of windows, in a few passes over arrays.

A document that was cut lies in several windows. It was read whole as often as the part that was read least, and in part
as often as the part that was read most. A cluster was read as often as its documents were in part, together::

    windows   0 1 2   read 2 1 0      document a in 0 and 1: whole 1, in part 2     b in 1: 1, 1     c in 2: 0, 0
    clusters  {a, b}: 3      {c}: 0

Documents are known by 128 bits (`dagster_project.inspect.documents.document_keys`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagster_project.inspect.documents.blend_documents import TableParts
from dagster_project.inspect.documents.document_keys import Keys, keys_of, number_keys
from headrace.kernels.compiling import compiled
from spark_jobs.arrays import Int32Array, Int64Array
from spark_jobs.dedup.graph.in_memory import component_labels

_EDGES: Final = [*range(17), *((1 << bits) + 1 for bits in range(4, 62))]  # above 16 reads a line has twice as many


class DocumentReads(NamedTuple):
    """How often a document was read.

    Attributes:
        whole: times all of its parts were read.
        in_part: times some part of it was.
        of_cluster: times something of its cluster of near-duplicates was.
        cluster_documents: documents of the cluster, itself and removed ones included.
        is_packed: whether it is in a window at all.
    """

    whole: int
    in_part: int
    of_cluster: int
    cluster_documents: int
    is_packed: bool


@dataclass(frozen=True)
class Repeats:
    """Reads of all documents in the tables of a blend, and of what was removed as a duplicate of one.

    Attributes:
        keys: (D, 2) the documents.
        whole: (D,) times read whole.
        in_part: (D,) times read in part.
        is_packed: (D,) whether a window holds it.
        cluster: (D,) its cluster: the number of the first document of it.
    """

    keys: Keys
    whole: Int64Array
    in_part: Int64Array
    is_packed: NDArray[np.bool_]
    cluster: Int64Array

    @property
    def cluster_reads(self) -> Int64Array:
        """(D,) times something of the cluster named by each document was read."""
        return np.bincount(self.cluster, self.in_part, self.whole.size).astype(np.int64)

    def of(self, doc_id: str) -> DocumentReads | None:
        """How often a document was read; None where neither a window nor a table of duplicates has it."""
        rows = np.flatnonzero((self.keys == keys_of(pa.array([doc_id]))[0]).all(axis=1))
        if not rows.size:
            return None
        at, inside = rows[0], self.cluster == self.cluster[rows[0]]
        of_cluster, documents = int(self.in_part[inside].sum()), int(inside.sum())
        return DocumentReads(
            int(self.whole[at]), int(self.in_part[at]), of_cluster, documents, bool(self.is_packed[at])
        )

    def histogram(self) -> list[dict[str, Any]]:
        """How many documents and clusters were read how often; a range of counts a line, those without any left out."""
        reached = np.bincount(self.cluster[self.is_packed], minlength=self.whole.size) > 0
        counted = {
            "documents_whole": self.whole[self.is_packed], "documents_in_part": self.in_part[self.is_packed],
            "clusters": self.cluster_reads[reached],
        }  # fmt: skip
        counts = {name: np.histogram(values, _EDGES)[0].tolist() for name, values in counted.items()}
        return [
            {"reads": low, "most_reads": high - 1, **{name: counts[name][at] for name in counts}}
            for at, (low, high) in enumerate(pairwise(_EDGES))
            if any(counts[name][at] for name in counts)
        ]


def count_repeats(tables: list[TableParts], links: list[tuple[Keys, Keys]]) -> Repeats:
    """Count the reads of documents.

    Args:
        tables: the windows of a blend.
        links: pairs of documents of one cluster, as (first ends, second ends).
    """
    keys = np.concatenate([*(table.keys for table in tables), *(ends for link in links for ends in link)])
    numbers, first = number_keys(keys)
    whole, in_part = np.zeros((2, first.size), np.int64)
    is_packed = np.zeros(first.size, np.bool_)
    start = 0
    for table in tables:
        document = numbers[start : start + table.window.size]
        start += table.window.size
        add_reads(table.reads, table.window, document, whole, in_part)
        is_packed[document] = True
    sizes = [len(ends) for link in links for ends in link]
    ends = np.split(numbers[start:], np.cumsum(sizes)[:-1]) if sizes else []
    empty = [np.zeros(0, np.int32)]
    cluster = component_labels(np.concatenate(ends[::2] or empty), np.concatenate(ends[1::2] or empty), first.size)
    return Repeats(keys[first], whole, in_part, is_packed, cluster)


@compiled
def add_reads(
    reads: Int64Array, window: Int64Array, document: Int32Array, whole: Int64Array, in_part: Int64Array
) -> None:
    """Add the reads of the documents of a table, by its windows, to those of the tables before it."""
    least, most = np.full(whole.size, -1, np.int64), np.zeros(whole.size, np.int64)
    for segment in range(window.size):
        count, number = reads[window[segment]], document[segment]
        if least[number] < 0 or count < least[number]:
            least[number] = count
        most[number] = max(most[number], count)
    for number in range(whole.size):
        whole[number] += max(least[number], 0)
        in_part[number] += most[number]
