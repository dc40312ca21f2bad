"""Families: a root, not written from another document, with all texts written from it, to any depth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import sqlalchemy as sa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import In

from headrace_features.synthetic.attempts import datasets_with_answers
from headrace_features.synthetic.tables import ANSWERS, KEYS_AT_ONCE
from spark_jobs.lake.files.lookups import read_batches, read_rows


def descendants(catalogue: Catalog, doc_ids: Collection[str]) -> set[str]:
    """Documents of the lake written by models from some documents, or from descendants of these."""
    below, new = set[str](), set(doc_ids)
    while new:
        paths: dict[str, set[str]] = defaultdict(set)
        for dataset, template, key in _children(catalogue, new):
            paths[dataset].add(f"{template}#{key}")
        new = {
            row["doc_id"]
            for dataset, some in paths.items()
            for row in read_rows(catalogue, f"{dataset}.documents", ("doc_id",), In("path", some))
        } - below
        below |= new
    return below


def roots(catalogue: Catalog, doc_ids: Collection[str]) -> dict[str, str]:
    """The root of each of these documents written by a model, by its doc_id."""
    parents: dict[str, str] = {}
    for dataset in datasets_with_answers(catalogue):
        for batch in read_batches(catalogue, f"{dataset}.documents", ("doc_id", "metadata")):
            pairs = zip(batch["doc_id"].to_pylist(), batch["metadata"].to_pylist(), strict=True)
            parents |= {doc_id: dict(metadata or ()).get("parent", doc_id) for doc_id, metadata in pairs}
    root_of = {}
    for doc_id in parents.keys() & set(doc_ids):
        root = doc_id
        while root in parents and parents[root] != root:  # a child has another text than its parent, so there is an end
            root = parents[root]
        root_of[doc_id] = root
    return root_of


def _children(catalogue: Catalog, doc_ids: Collection[str]) -> list[tuple[str, str, str]]:
    """Accepted answers (dataset, template, key) about some documents, in all datasets of a lake."""
    if not isinstance(catalogue, SqlCatalog) or not sa.inspect(catalogue.engine).has_table(ANSWERS.name):
        return []
    wanted, children = sorted(doc_ids), list[tuple[str, str, str]]()
    of_datasets = sa.not_(ANSWERS.c.dataset.contains("."))  # the answers of judges are no documents
    columns = sa.select(ANSWERS.c.dataset, ANSWERS.c.template, ANSWERS.c.key)
    columns = columns.where(ANSWERS.c.reason == "", of_datasets)
    with catalogue.engine.connect() as connection:
        for at in range(0, len(wanted), KEYS_AT_ONCE):
            some = ANSWERS.c.parent_doc_id.in_(wanted[at : at + KEYS_AT_ONCE])
            children += [(row[0], row[1], row[2]) for row in connection.execute(columns.where(some))]
    return children
