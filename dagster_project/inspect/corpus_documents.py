"""The documents left in a corpus, with their texts after cuts.

lake.documents("mine").head(1000).to_pandas()
for batch in lake.documents("mine").batches(): ..           a shard of a dataset at a time
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo

from dagster_project.inspect.lake.corpus_facts import CorpusFacts
from dagster_project.inspect.lake_table import StreamedRows
from headrace.tables.catalogue import load_table
from spark_jobs.lake.files.lookups import first_parts
from spark_jobs.lake.plan.excisions import excised_documents

_TEXT = ("doc_id", "kind", "language", "content")


@dataclass(frozen=True, repr=False)
class CorpusDocuments(StreamedRows):
    """Documents of a corpus behind its last selection, dataset by dataset, without excised ones.

    Columns are dataset, doc_id, kind, language, content: the text for tokenizing, after cuts. Held are the ids of a
    shard of a dataset.

    Attributes:
        catalogue: of the lake.
        corpus: as its tables were computed.
        cut_texts: identifier of the table of texts cut by a selection; None where none did.
        most: documents at most, whichever come first; None for all.
    """

    catalogue: Catalog
    corpus: CorpusFacts
    cut_texts: str | None
    most: int | None = None

    @property
    def schema(self) -> pa.Schema:
        """Of the columns, as Arrow has it."""
        return pa.schema([(name, pa.large_string()) for name in ("dataset", *_TEXT)])

    def head(self, most: int) -> CorpusDocuments:
        """At most so many documents, whichever come first."""
        return dataclasses.replace(self, most=most if self.most is None else min(most, self.most))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The documents, some thousand at a time."""
        missing, schema = sys.maxsize if self.most is None else self.most, self.schema
        excised = self._excised()
        for dataset in self.corpus.datasets:
            for part in self._of_dataset(dataset, excised):
                rows = part.slice(0, missing)
                named = pa.table([pa.array([dataset] * len(rows)), *rows.columns], names=schema.names)
                yield from named.cast(schema).to_batches()
                missing -= len(rows)
                if missing <= 0:
                    return

    def __len__(self) -> int:
        """Number of the documents, from their ids alone."""
        excised = self._excised()
        ids = (ids for dataset in self.corpus.datasets for _, ids in self._going_on(dataset, excised))
        count = sum(map(len, ids))
        return count if self.most is None else min(count, self.most)

    def __repr__(self) -> str:
        most = f", at most {self.most:,}" if self.most is not None else ""
        stage = self.corpus.going_on
        return f"documents of {self.corpus.name} in {stage}, of {', '.join(self.corpus.datasets)}{most}"

    def _excised(self) -> pa.Array:
        """Ids of the documents taken out of all tables."""
        return pa.array(sorted(excised_documents(self.catalogue, None)), pa.string())

    def _of_dataset(self, dataset: str, excised: pa.Array) -> Iterator[pa.Table]:
        """Texts of a dataset's kept documents, shard by shard."""
        for shard, ids in self._going_on(dataset, excised):
            here = EqualTo("shard", shard)
            cut_ids = [pa.array([], pa.string())]
            if self.cut_texts is not None:
                for part in self._parts(self.cut_texts, And(here, EqualTo("dataset", dataset))):
                    cut_ids.append(part["doc_id"].combine_chunks())
                    yield part.filter(pc.is_in(part["doc_id"], ids))
            whole = ids.filter(pc.invert(pc.is_in(ids, pa.concat_arrays(cut_ids))))
            for part in self._parts(f"{dataset}.texts", here):
                yield part.filter(pc.is_in(part["doc_id"], whole))

    def _parts(self, name: str, condition: And | EqualTo) -> Iterator[pa.Table]:
        table = load_table(self.catalogue, name)
        return iter(()) if table is None else first_parts(table, _TEXT, sys.maxsize, condition)

    def _going_on(self, dataset: str, excised: pa.Array) -> Iterator[tuple[int, pa.Array]]:
        """Shards of a dataset with the ids of their kept documents."""
        table = load_table(self.catalogue, self.corpus.own(self.corpus.going_on))
        if table is None:
            return
        by_shard = [field.name for field in table.spec().fields].index("shard")
        shards = {task.file.partition[by_shard] for task in table.scan().plan_files()}
        for shard in sorted(shards):
            condition = And(EqualTo("shard", shard), EqualTo("dataset", dataset))
            parts = [
                part["doc_id"].combine_chunks() for part in first_parts(table, ("doc_id",), sys.maxsize, condition)
            ]
            ids = pa.concat_arrays([pa.array([], pa.string()), *parts])
            ids = ids.filter(pc.invert(pc.is_in(ids, excised)))
            if len(ids):
                yield shard, ids
