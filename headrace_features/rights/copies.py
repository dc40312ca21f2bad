"""From documents that entries name to their copies and to what was made of them.

    named, or a fork's      -> exact copies (bytes or letters, in any dataset)
    these                   -> near copies at a corpus's threshold, sharers of a passage, repeats by meaning
    all so far              -> derived documents (rephrased, executed, labelled), to any depth
    all so far              -> exact copies once more

A near copy's own near copies do not follow: similarity is not handed on, and a chain of it ends anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog

from dagster_project.inspect.lake.corpus_facts import CorpusFacts, corpora, namespaces_with
from headrace_features.rights.hits import Hit, NotAsked
from spark_jobs.dedup.graph.threshold_pairs import exact
from spark_jobs.lake.files.lookups import read_batches
from spark_jobs.sources.landing.derivations import descendants, staying


@dataclass
class Reached:
    """The documents that entries reach.

    Attributes:
        how: by entry and document, how it was reached, the first way.
        entries: by document, the entries that reach it.
        places: by document, its dataset and path.
        derived: documents that were made of others.
        not_asked: what could not be looked at.
    """

    how: dict[str, dict[str, str]] = field(default_factory=dict)
    entries: dict[str, set[str]] = field(default_factory=dict)
    places: dict[str, tuple[str, str]] = field(default_factory=dict)
    derived: set[str] = field(default_factory=set)
    not_asked: list[NotAsked] = field(default_factory=list)

    def add(self, entry: str, doc_id: str, how: str) -> bool:
        """Note that an entry reaches a document; whether that is new."""
        there = self.how.setdefault(entry, {})
        if doc_id in there:
            return False
        there[doc_id] = how
        self.entries.setdefault(doc_id, set()).add(entry)
        return True

    def hand_on(self, doc_id: str, other: str, how: str) -> None:
        """Let all entries of a document reach another one, too."""
        for entry in tuple(self.entries.get(doc_id, ())):
            self.add(entry, other, f"{how} {doc_id}")


def reach(catalogue: Catalog, hits: Iterable[Hit], not_asked: list[NotAsked]) -> Reached:
    """All that some hits lead to."""
    reached = Reached(not_asked=not_asked)
    for hit in hits:
        reached.add(hit.entry, hit.doc_id, hit.how)
    if reached.entries:
        _exact_copies(catalogue, reached)
        sources = set(reached.entries)
        for corpus in corpora(catalogue):
            for doc_id, other, how in _alike(catalogue, corpus, sources, not_asked):
                reached.hand_on(doc_id, other, how)
        _derived(catalogue, reached)
        _exact_copies(catalogue, reached)
        _place(catalogue, reached)
    return reached


def _exact_copies(catalogue: Catalog, reached: Reached) -> None:
    """Documents of equal bytes, or equal letters, in all datasets."""
    tables = (("documents", "content_sha256", "the bytes of"), ("texts", "letters_sha256", "the letters of"))
    for table, column, how in tables:
        names = [f"{dataset}.{table}" for dataset in namespaces_with(catalogue, "documents")]
        known, wanted = _ids(reached.entries), dict[str, str]()
        for doc_id, digest in _rows(catalogue, names, column, known, "doc_id"):
            wanted.setdefault(digest, doc_id)
        first = dict[str, list[str]]()
        for doc_id, digest in _rows(catalogue, names, column, pa.array(wanted, pa.string()), column):
            first.setdefault(digest, []).append(doc_id)
        for copies in first.values():
            for one in [doc_id for doc_id in copies if doc_id in reached.entries]:
                for other in copies:
                    if other != one:
                        reached.hand_on(one, other, how)


def _rows(
    catalogue: Catalog, names: Iterable[str], column: str, wanted: pa.Array, of: str
) -> Iterator[tuple[str, str]]:
    """Document and digest of rows with a wanted value in the column `of`; rows without digest are left out."""
    for name in names:
        for batch in read_batches(catalogue, name, ("doc_id", column)):
            rows = batch.filter(pc.is_in(batch[of].cast(pa.string()), wanted))
            pairs = zip(rows["doc_id"].to_pylist(), rows[column].to_pylist(), strict=True)
            yield from ((doc_id, digest) for doc_id, digest in pairs if digest is not None)


def _alike(
    catalogue: Catalog, corpus: CorpusFacts, sources: set[str], not_asked: list[NotAsked]
) -> Iterator[tuple[str, str, str]]:
    """(document, other, how) for what a corpus found to be near copies, to share passages, to say the same."""
    wanted = _ids(sources)
    if corpus.applied is not None:
        yield from _near(catalogue, corpus, wanted, sources)
    else:
        not_asked.append(NotAsked(corpus.name, "near copies: the corpus compares none"))
    if "passages" in corpus.tables:
        yield from _passages(catalogue, corpus, sources)
    else:
        not_asked.append(NotAsked(corpus.name, "copied passages: the corpus has no selection `passages`"))
    for stage in corpus.repeating:
        columns = ("doc_id", "witness_doc_id")
        for batch in read_batches(catalogue, corpus.own(stage.reasons), columns):
            if set(columns) <= set(batch.schema.names):
                yield from _both_ways(batch, *columns, wanted, sources, f"{stage.name} repeat of")


def _near(
    catalogue: Catalog, corpus: CorpusFacts, wanted: pa.Array, sources: set[str]
) -> Iterator[tuple[str, str, str]]:
    """Pairs at the threshold of their kind, by exact arithmetic."""
    columns = ("kind", "doc_id", "better_doc_id", "shared_weight", "united_weight")
    applied = corpus.applied
    for batch in read_batches(catalogue, corpus.own("pairs"), columns):
        either = pc.or_(*(pc.is_in(batch[name].cast(pa.string()), wanted) for name in ("doc_id", "better_doc_id")))
        rows = batch.filter(either).to_pylist()
        for row in rows:
            if applied is None or row["shared_weight"] < exact(applied.of(row["kind"])) * row["united_weight"]:
                continue
            how = f"near copy (J {row['shared_weight'] / row['united_weight']:.3f}) of"
            ends = row["doc_id"], row["better_doc_id"]
            yield from ((one, other, how) for one, other in (ends, ends[::-1]) if one in sources)


def _both_ways(
    batch: pa.RecordBatch, left: str, right: str, wanted: pa.Array, sources: set[str], how: str
) -> Iterator[tuple[str, str, str]]:
    either = pc.or_(*(pc.is_in(batch[name].cast(pa.string()), wanted) for name in (left, right)))
    rows = batch.filter(either)
    for ends in zip(rows[left].to_pylist(), rows[right].to_pylist(), strict=True):
        yield from ((one, other, how) for one, other in (ends, ends[::-1]) if one in sources)


def _passages(catalogue: Catalog, corpus: CorpusFacts, sources: set[str]) -> Iterator[tuple[str, str, str]]:
    """Documents with a passage that a source has too: the first to have it, and all that have it again."""
    columns, wanted = ("doc_id", "first_doc_id", "passage"), _ids(sources)
    of_passage: dict[str, str] = {}
    for batch in read_batches(catalogue, corpus.own("passages"), columns):
        either = pc.or_(*(pc.is_in(batch[name].cast(pa.string()), wanted) for name in columns[:2]))
        for row in batch.filter(either).to_pylist():
            source = row["doc_id"] if row["doc_id"] in sources else row["first_doc_id"]
            of_passage.setdefault(row["passage"], source)
            yield from _both_ways(pa.RecordBatch.from_pylist([row]), *columns[:2], wanted, sources, "has a passage of")
    shared = pa.array(of_passage, pa.string())
    for batch in read_batches(catalogue, corpus.own("passages"), columns):
        for row in batch.filter(pc.is_in(batch["passage"].cast(pa.string()), shared)).to_pylist():
            source = of_passage[row["passage"]]
            yield from (
                (source, other, "has a passage of") for other in (row["doc_id"], row["first_doc_id"]) if other != source
            )


def _derived(catalogue: Catalog, reached: Reached) -> None:
    """What models and programs made of the documents; whom it is of is asked entry by entry only where there is any."""
    known = set(reached.entries)
    reached.derived |= descendants(catalogue, known) - known
    if reached.derived:
        for entry, documents in list(reached.how.items()):
            for doc_id in descendants(catalogue, set(documents)) - documents.keys():
                reached.add(entry, doc_id, "derived from documents of the entry")
    reached.not_asked += [NotAsked("", line) for line in staying("wrote from these")]


def _place(catalogue: Catalog, reached: Reached) -> None:
    """Dataset and path of every document."""
    wanted = _ids(reached.entries)
    for dataset in namespaces_with(catalogue, "documents"):
        for batch in read_batches(catalogue, f"{dataset}.documents", ("doc_id", "path")):
            rows = batch.filter(pc.is_in(batch["doc_id"].cast(pa.string()), wanted))
            named = zip(rows["doc_id"].to_pylist(), rows["path"].to_pylist(), strict=True)
            reached.places.update({doc_id: (dataset, path) for doc_id, path in named})


def _ids(doc_ids: Iterable[str] | Mapping[str, object]) -> pa.Array:
    return pa.array(sorted(doc_ids), pa.string())
