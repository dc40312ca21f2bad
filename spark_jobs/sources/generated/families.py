"""Families: a document with all that was written from it, and from that, to any depth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import In

from spark_jobs.lake.files.lookups import read_rows
from spark_jobs.sources.generated.attempts import children


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
