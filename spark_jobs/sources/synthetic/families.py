"""Families: a root, which nobody wrote from another document, with all that was written from it, to any depth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import In

from spark_jobs.lake.files.lookups import read_batches, read_rows
from spark_jobs.sources.synthetic.attempts import children, datasets_with_answers


def descendants(catalogue: Catalog, doc_ids: Collection[str]) -> set[str]:
    """Documents of the lake that models wrote from some documents, or from what was written from them."""
    found, new = set[str](), set(doc_ids)
    while new:
        paths: dict[str, set[str]] = defaultdict(set)
        for dataset, template, key in children(catalogue, new):
            paths[dataset].add(f"{template}#{key}")
        new = {
            row["doc_id"]
            for dataset, some in paths.items()
            for row in read_rows(catalogue, f"{dataset}.documents", ("doc_id",), In("path", some))
        } - found
        found |= new
    return found


def roots(catalogue: Catalog, doc_ids: Collection[str]) -> dict[str, str]:
    """The root of each of these documents that a model wrote, by its doc_id."""
    parents: dict[str, str] = {}
    for dataset in datasets_with_answers(catalogue):
        for batch in read_batches(catalogue, f"{dataset}.documents", ("doc_id", "metadata")):
            pairs = zip(batch["doc_id"].to_pylist(), batch["metadata"].to_pylist(), strict=True)
            parents |= {doc_id: dict(metadata or ()).get("parent", doc_id) for doc_id, metadata in pairs}
    found = {}
    for doc_id in parents.keys() & set(doc_ids):
        root = doc_id
        while root in parents and parents[root] != root:  # a child has another text than its parent, so there is an end
            root = parents[root]
        found[doc_id] = root
    return found
