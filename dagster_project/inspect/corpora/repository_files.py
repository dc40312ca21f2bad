"""A repository as its tables say: files in their order, their needs, and cycles of needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo

from spark_jobs.lake.files.lookups import read_rows


@dataclass(frozen=True)
class Need:
    """A dependency of one file on another.

    Attributes:
        doc_id: the file.
        needed_doc_id: what it needs.
        needed_path: its path.
        kind: import, import_inner, import_type, module or symbol.
        evidence: the statement or name saying so.
    """

    doc_id: str
    needed_doc_id: str
    needed_path: str
    kind: str
    evidence: str


@dataclass(frozen=True)
class RepositoryFile:
    """A file of a repository.

    Attributes:
        doc_id: of the document.
        path: in the repository.
        language: of its code or text.
        byte_count: of the file.
        rank: position in the order of a corpus; None where the file is not in it.
        needed_by: number of files in need of it.
        cycle: number of its cycle of files, from 1; None where it is in none.
    """

    doc_id: str
    path: str
    language: str | None
    byte_count: int
    rank: int | None
    needed_by: int
    cycle: int | None


@dataclass(frozen=True)
class RepositoryFiles:
    """A repository.

    Attributes:
        files: by rank, then those without one by path.
        needs: all dependencies, by file, needed path and kind.
    """

    files: tuple[RepositoryFile, ...]
    needs: tuple[Need, ...]


def repository_files(catalogue: Catalog, dataset: str, repository: str, corpus: str | None) -> RepositoryFiles:
    """Read a repository from `documents`, `dependencies`, and the `ordered` of a corpus where one is named."""
    own = EqualTo("repository", repository)
    columns = ("increment", "doc_id", "path", "language", "byte_count")
    rows = sorted(read_rows(catalogue, f"{dataset}.documents", columns, own), key=lambda row: int(row["increment"]))
    documents = {row["doc_id"]: row for row in rows}  # of a file that came twice the later
    there = And(own, EqualTo("dataset", dataset))
    ordered = read_rows(catalogue, f"{corpus}.ordered", ("doc_id", "rank"), there) if corpus else []
    ranks = {row["doc_id"]: row["rank"] for row in ordered}
    fields = ("doc_id", "needed_doc_id", "needed_path", "kind", "evidence")
    found = {Need(**row) for row in read_rows(catalogue, f"{dataset}.dependencies", fields, own)}
    needs = sorted(found, key=lambda one: (one.doc_id, one.needed_path, one.kind, one.evidence))
    pairs = {(one.doc_id, one.needed_doc_id) for one in needs}
    users = dict.fromkeys(documents, 0)
    for _, needed in pairs:
        users[needed] = users.get(needed, 0) + 1
    cycles = cycles_of(sorted(pairs))
    files = [
        RepositoryFile(
            one, row["path"], row["language"], row["byte_count"], ranks.get(one), users[one], cycles.get(one)
        )
        for one, row in documents.items()
    ]
    files.sort(key=lambda one: (one.rank is None, one.rank or 0, one.path))
    return RepositoryFiles(tuple(files), tuple(needs))


def cycles_of(pairs: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Numbers from 1 of the strongly connected components of several files, by file, the largest first."""
    from spark_jobs.code.order.file_graph import strong_components

    names = sorted({name for pair in pairs for name in pair})
    number = {name: at for at, name in enumerate(names)}
    ends = np.array([[number[name] for name in pair] for pair in pairs], np.int64).reshape(-1, 2)
    labels = strong_components(ends[:, 0].copy(), ends[:, 1].copy(), len(names))
    sizes = np.bincount(labels, minlength=1)
    largest_first = [one for one in np.argsort(-sizes, kind="stable").tolist() if sizes[one] > 1]
    place = {label: at for at, label in enumerate(largest_first, start=1)}
    return {name: place[label] for name, label in zip(names, labels.tolist(), strict=True) if label in place}
