"""The documents that a model is asked about, by rank: a sample of them is spread over the whole, whatever its size."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo

from spark_jobs.exceptions import InputError
from spark_jobs.lake.files.lookups import EVERYTHING, read_columns
from spark_jobs.lake.plan.excisions import excised_documents
from spark_jobs.lake.session.catalogue import load_table
from spark_jobs.sources.config.generated_config import Parents


def ranked_parents(catalogue: Catalog, parents: Parents, seed: int) -> list[tuple[str, str]]:
    """The documents (dataset, doc_id) that go on and were not excised, in an order by a hash of seed and document.

    Raises:
        InputError: no document was judged yet.
    """
    condition = EVERYTHING if parents.dataset is None else EqualTo("kept", True)
    found = read_columns(catalogue, parents.table, ("dataset", "doc_id"), condition)
    if found is None:
        space = parents.table.split(".")[0]
        raise InputError(
            f"parents: {parents.table} is not there yet; run `headrace run {space}` first, then this again"
        )
    doc_ids = found["doc_id"].to_pylist()
    datasets = [parents.dataset] * len(doc_ids) if parents.dataset is not None else found["dataset"].to_pylist()
    excised = excised_documents(catalogue, None)
    pairs = {pair for pair in zip(datasets, doc_ids, strict=True) if pair[1] not in excised}
    return sorted(pairs, key=lambda pair: hashlib.sha256(f"{seed} {pair[1]}".encode()).digest())


def texts_of(catalogue: Catalog, wanted: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    """The texts (dataset, doc_id, text) of some documents, in the order of the tables."""
    datasets: dict[str, list[str]] = {}
    for dataset, doc_id in wanted:
        datasets.setdefault(dataset, []).append(doc_id)
    for dataset, doc_ids in datasets.items():
        table = load_table(catalogue, f"{dataset}.texts")
        if table is None:
            continue
        chosen = pa.array(doc_ids, pa.string())
        for batch in table.scan(selected_fields=("doc_id", "content")).to_arrow_batch_reader():
            rows = batch.filter(pc.is_in(batch["doc_id"].cast(pa.string()), chosen))
            for doc_id, text in zip(rows["doc_id"].to_pylist(), rows["content"].to_pylist(), strict=True):
                if text is not None:
                    yield dataset, doc_id, text
