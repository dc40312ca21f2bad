"""The funnel of a corpus: how many documents, bytes and tokens are left after each of its steps.

Tokens are counted where a document was tokenized. Of the others they are estimated from their bytes, at the bytes a
token of the documents of the same dataset that were; where none was, at four.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo

from dagster_project.exceptions import CommandError
from dagster_project.inspect.corpora.rule_inputs import BYTES_PER_TOKEN
from dagster_project.inspect.documents.counted import excised_members
from dagster_project.inspect.lake.corpus_facts import CorpusFacts
from spark_jobs.lake.files.lookups import EVERYTHING, read_columns


@dataclass(frozen=True)
class FunnelStage:
    """What is left after a step.

    Attributes:
        step: `landed`, all documents that ever came; after it the name of the table that says what is left.
        documents: how many.
        byte_count: of these documents as they came.
        tokens: of them.
        estimated_tokens: how many of those are estimated.
    """

    step: str
    documents: int
    byte_count: int
    tokens: int
    estimated_tokens: int


def funnel(catalogue: Catalog, corpus: CorpusFacts) -> list[FunnelStage]:
    """What is left after each step of a corpus, from the documents of its datasets on.

    Raises:
        CommandError: a dataset has no documents.
    """
    documents = _documents(catalogue, corpus)
    found = [_stage("landed", documents)]
    for step, ids, stay in _steps(catalogue, corpus):
        own = pc.is_in(documents["doc_id"], value_set=ids)
        documents = documents.filter(own if stay else pc.invert(own))
        found.append(_stage(step, documents))
    return found


def _stage(step: str, documents: pa.Table) -> FunnelStage:
    tokens, estimated = (pc.sum(documents[name]).as_py() or 0 for name in ("counted", "estimated"))
    size = pc.sum(documents["byte_count"]).as_py() or 0
    return FunnelStage(step, documents.num_rows, size, tokens + round(estimated), round(estimated))


def _documents(catalogue: Catalog, corpus: CorpusFacts) -> pa.Table:
    """Every document of the datasets: doc_id, byte_count, and its tokens, counted or estimated."""
    tokens = read_columns(catalogue, corpus.own("tokens"), ("doc_id", "token_count"))
    parts = []
    for dataset in corpus.datasets:
        rows = read_columns(catalogue, f"{dataset}.documents", ("doc_id", "byte_count"))
        if rows is None:
            raise CommandError(f"{dataset}.documents has not been computed; run `headrace run {dataset}` first")
        ids, sizes = rows["doc_id"].cast(pa.string()), rows["byte_count"]
        counted = pa.nulls(rows.num_rows, pa.int64())
        if tokens is not None:
            place = pc.index_in(ids, value_set=tokens["doc_id"].cast(pa.string()))
            counted = tokens["token_count"].take(place).cast(pa.int64())
        total = pc.sum(counted).as_py()
        known = pc.sum(sizes.filter(pc.is_valid(counted))).as_py()
        ratio = known / total if total and known else BYTES_PER_TOKEN
        estimated = pc.if_else(pc.is_valid(counted), 0.0, pc.divide(sizes.cast(pa.float64()), ratio))
        parts.append(
            pa.table({"doc_id": ids, "byte_count": sizes.cast(pa.int64()), "counted": counted, "estimated": estimated})
        )
    return pa.concat_tables(parts)


def _steps(catalogue: Catalog, corpus: CorpusFacts) -> Iterator[tuple[str, pa.ChunkedArray, bool]]:
    """The computed steps, each with ids of documents, and whether these stay or leave."""
    kept = [
        _ids(catalogue, corpus.verdicts.get(dataset, f"{dataset}.verdicts"), kept=True) for dataset in corpus.datasets
    ]
    yield "verdicts", pa.chunked_array([chunk for ids in kept for chunk in ids.chunks], pa.string()), True
    yield "members", _ids(catalogue, corpus.own("members")), True
    left = _ids(catalogue, corpus.own(corpus.base))
    repeats = _ids(catalogue, corpus.own("exact_duplicates"))
    # One that survives stands in for the document that it repeats (`dedup.removal.stand_ins`).
    yield "exact_duplicates", repeats.filter(pc.invert(pc.is_in(repeats, value_set=left))), False
    for step in dict.fromkeys((corpus.base, *(stage.table for stage in corpus.stages), "tokens")):
        if step in corpus.tables:
            yield step, _ids(catalogue, corpus.own(step)), True
    excised = excised_members(catalogue, corpus.name, corpus.tables).cast(pa.string())
    if len(excised):
        yield "excised", excised, False


def _ids(catalogue: Catalog, table: str, kept: bool = False) -> pa.ChunkedArray:
    rows = read_columns(catalogue, table, ("doc_id",), EqualTo("kept", True) if kept else EVERYTHING)
    return pa.chunked_array([] if rows is None else rows["doc_id"].cast(pa.string()).chunks, pa.string())
