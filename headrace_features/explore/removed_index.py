"""What deduplication removed, and what fails a rule in one of two states alone, as SQLite files that filter lists."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import In

from dagster_project.inspect.corpora.snapshot_diff import LakeState, moved_documents
from dagster_project.inspect.lake.corpus_facts import CorpusFacts, find_corpus
from headrace_features.explore.index_files import written
from spark_jobs.lake.files.lookups import read_columns


def removed_index(catalogue: Catalog, name: str, at: object, folder: Path) -> Path:
    """Write the file of one state of a corpus where it is not there: removed(doc_id, level, witness, similarity).

    Args:
        catalogue: of the lake.
        name: the corpus.
        at: its snapshots, which the file's name stands for.
        folder: where it lies.
    """
    file = folder / f"{name}.{hashlib.sha256(repr(at).encode()).hexdigest()[:16]}.removed.sqlite"
    if file.exists():
        return file
    with written(file) as (database, _):
        database.execute("CREATE TABLE removed (doc_id BLOB PRIMARY KEY, level TEXT, witness TEXT, similarity REAL)")
        for rows in _removed(catalogue, find_corpus(catalogue, name)):
            ids = (bytes.fromhex(doc_id) for doc_id in rows["doc_id"].to_pylist())
            others = (rows[column].to_pylist() for column in ("level", "witness_doc_id", "similarity"))
            database.executemany("INSERT OR IGNORE INTO removed VALUES (?, ?, ?, ?)", zip(ids, *others, strict=True))
        database.execute("CREATE INDEX by_similarity ON removed (similarity, doc_id)")
        database.commit()
    return file


def moved_index(
    catalogue: Catalog, first: LakeState, second: LakeState, rule: str, is_passed: bool, folder: Path
) -> Path:
    """Write the file of documents that fail a rule in the second state alone, or in the first alone: docs(doc_id).

    Args:
        catalogue: of the lake.
        first: a state of a dataset.
        second: another of it, or of another dataset.
        rule: by its name.
        is_passed: whether it is in the first that they fail it.
        folder: where the file lies.
    """
    states = [(state.name, sorted(state.snapshots.items()), state.moment) for state in (first, second)]
    digest = hashlib.sha256(repr((states, rule, is_passed)).encode()).hexdigest()[:16]
    file = folder / f"{second.name}.{digest}.moved.sqlite"
    if not file.exists():
        ids = moved_documents(catalogue, first, second, rule)[is_passed].to_pylist()
        with written(file) as (database, _):
            database.execute("CREATE TABLE docs (doc_id BLOB PRIMARY KEY)")
            database.executemany("INSERT INTO docs VALUES (?)", ((bytes.fromhex(doc_id),) for doc_id in ids))
            database.commit()
    return file


def _removed(catalogue: Catalog, corpus: CorpusFacts) -> Iterator[pa.Table]:
    """What a corpus removed: exact duplicates, those that selections name, near ones at their threshold."""
    exact = read_columns(catalogue, corpus.own("exact_duplicates"), ("doc_id", "witness_doc_id"))
    survivors = read_columns(catalogue, corpus.own(corpus.base), ("doc_id",))
    if exact is not None and survivors is not None:
        gone = exact.filter(pc.invert(pc.is_in(exact["doc_id"], value_set=survivors["doc_id"].combine_chunks())))
        yield _with(gone, "exact", pa.repeat(1.0, len(gone)))
    for stage in corpus.repeating:
        alike = read_columns(catalogue, corpus.own(stage.reasons), ("doc_id", "witness_doc_id", "similarity"))
        if alike is not None:
            yield _with(alike, stage.name, alike["similarity"])
    if corpus.applied is None:
        return
    columns = ("threshold", "doc_id", "witness_doc_id", "similarity", "repository")
    near = read_columns(catalogue, corpus.own("removals"), columns, In("threshold", corpus.applied.distinct))
    if near is None:
        return
    if not corpus.applied.is_one:
        members = read_columns(catalogue, corpus.own("members"), ("doc_id", "kind"))
        assert members is not None
        kinds = members["kind"].take(pc.index_in(near["doc_id"], value_set=members["doc_id"].combine_chunks()))
        applied = [corpus.applied.of(kind) for kind in kinds.to_pylist()]
        near = near.filter(pc.equal(near["threshold"], pa.array(applied, pa.float64())))
    level = pc.if_else(pc.is_valid(near["repository"]), "repository", "near")
    yield _with(near, level, near["similarity"])


def _with(rows: pa.Table, level: str | pa.ChunkedArray, similarity: pa.Array | pa.ChunkedArray) -> pa.Table:
    levels = pa.array([level] * len(rows), pa.string()) if isinstance(level, str) else level
    columns = {name: rows[name] for name in ("doc_id", "witness_doc_id")}
    return pa.table({**columns, "level": levels, "similarity": similarity})
