"""Documents similar to one of a corpus, by the signatures and bags that its deduplication stored.

All signatures are compared with one (256 bytes each, one to two seconds for a million), so what no band found is
found too; of the nearest the bags are compared exactly. Nothing is computed again.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import numpy as np
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo, In

from dagster_project.inspect.documents.document_lookup import members_named
from dagster_project.inspect.documents.neighbours import find_neighbours, removed_of, representative_of
from dagster_project.inspect.lake.corpus_facts import CorpusFacts, find_corpus
from spark_jobs.dedup.bags.bag_arrays import bags_from_columns, rows_of
from spark_jobs.dedup.sketches.darts import SIGNATURE_VALUES
from spark_jobs.dedup.sketches.signatures import signature_rows
from spark_jobs.dedup.sketches.similarity import overlaps
from spark_jobs.lake.files.lookups import read_batches, read_columns, read_rows

_MOST: Final = 50
_CHANCE: Final = 1 / 256  # share of the values of two signatures that agree by chance: they have 8 bits
_LEAST_AGREEING: Final = SIGNATURE_VALUES // 16  # fewer say nothing: J below .06 or so


def similar_in(catalogue: Catalog, name: str, at: Hashable, doc_id: str) -> dict[str, Any]:
    """The most similar `documents` of a corpus, the nearest first, and whether the document `has_signature` there.

    Each has doc_id, dataset, path, J as `estimated` by signatures and `exact` by bags (1 where all letters are equal),
    and the level at which the corpus `removed` it, None where it was kept.

    Args:
        catalogue: of the lake.
        name: the corpus.
        at: its snapshots, of which the answer is.
        doc_id: a document.
    """
    corpus = find_corpus(catalogue, name)
    subject = representative_of(catalogue, corpus, doc_id)
    columns = ("kind", "signature", "signature_version")
    own = read_rows(catalogue, corpus.own("signatures"), columns, EqualTo("doc_id", subject))
    if not own:
        return {"has_signature": False, "documents": []}
    estimated = _nearest(catalogue, corpus, own[0])
    exact = _exactly(catalogue, corpus, subject, [*estimated])
    equal = {one.doc_id for one in find_neighbours(catalogue, corpus, doc_id, 1.0) if one.match != "near"}
    estimated, exact = {**estimated, **dict.fromkeys(equal, 1.0)}, {**exact, **dict.fromkeys(equal, 1.0)}
    others = [other for other in exact if other != doc_id]
    about, removed = members_named(catalogue, corpus, others), removed_of(catalogue, corpus, others)
    rows: list[dict[str, Any]] = [
        {"doc_id": other, "estimated": estimated[other], "exact": exact[other], "removed": removed.get(other)}
        | {fact: about[other][fact] for fact in ("dataset", "path")}
        for other in others
        if other in about
    ]
    rows.sort(key=lambda row: (-row["exact"], -row["estimated"], row["doc_id"]))
    return {"has_signature": True, "documents": rows[:_MOST]}


def _nearest(catalogue: Catalog, corpus: CorpusFacts, own: dict[str, Any]) -> dict[str, float]:
    """The estimated similarity of the documents whose signatures agree most with one, by doc_id."""
    signature = np.frombuffer(own["signature"], np.uint8)
    alike = And(EqualTo("kind", own["kind"]), EqualTo("signature_version", own["signature_version"]))
    best: list[tuple[int, str]] = []
    for batch in read_batches(catalogue, corpus.own("signatures"), ("doc_id", "signature"), alike):
        agreeing = (signature_rows(batch.column("signature")) == signature).sum(axis=1)
        first = np.argsort(-agreeing, kind="stable")[: _MOST + 1]
        first = first[agreeing[first] >= _LEAST_AGREEING]
        ids = batch.column("doc_id").take(first).to_pylist()
        best = sorted([*best, *zip((-agreeing[first]).tolist(), ids, strict=True)])[: _MOST + 1]
    return {doc_id: max(0.0, (-count / SIGNATURE_VALUES - _CHANCE) / (1 - _CHANCE)) for count, doc_id in best}


def _exactly(catalogue: Catalog, corpus: CorpusFacts, subject: str, others: list[str]) -> dict[str, float]:
    """The similarity of documents to one by their bags, by doc_id."""
    columns = ("doc_id", "token_hashes", "units", "levels")
    rows = read_columns(catalogue, corpus.own("bags"), columns, In("doc_id", [subject, *others]))
    if rows is None or not len(rows):
        return {}
    ids, bags = rows["doc_id"].to_pylist(), bags_from_columns(*(rows[name].combine_chunks() for name in columns[1:]))
    shared, united = overlaps(rows_of(bags, np.full(len(ids), ids.index(subject))), bags)
    return dict(zip(ids, (shared / united).tolist(), strict=True))
