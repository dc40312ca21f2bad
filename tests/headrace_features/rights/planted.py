"""A lake with what opt-outs must and must not hit, made with PyIceberg: two datasets, a corpus, a packed table."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from headrace_features.synthetic.tables import ANSWERS, METADATA
from spark_jobs.dedup.membership.exact_duplicates import EXACT_DUPLICATES
from spark_jobs.dedup.membership.members import MEMBERS
from spark_jobs.dedup.near.pairs import PAIRS
from spark_jobs.dedup.passages.passages import PASSAGES
from spark_jobs.dedup.removal.survivors import SURVIVORS
from spark_jobs.lake.declare.tables import Table
from spark_jobs.lake.files.data_files import file_schema
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.materialization import Materialization
from spark_jobs.sources.documents import DOCUMENTS, REPOSITORIES
from tests.blender_service.packed_tables import open_lake
from tests.dagster_project.traced_lake import write_corpus
from tests.dagster_project.waiting_lake import publish

KINDS = ("code", "prose", "markup", "data")
PACKED = "main.packed_code_16"
DOCUMENTS_OF: dict[str, dict[str, dict[str, Any]]] = {
    "code": {
        "ann/tools:a.py": {}, "ann/tools:b.py": {}, "bob/tools:a.py": {"copy": "ann/tools:a.py"},
        "bob/tools:own.py": {}, "zed/more:near.py": {}, "zed/more:like_near.py": {}, "zed/more:part.py": {},
        "zed/more:other_part.py": {}, "zed/more:alone.py": {}, "zed/more:by.py": {"metadata": {"author": "A. Miller"}},
        "zed/more:also.py": {"metadata": {"from": "Ann Miller <ann@example.org>"}},
        "zed/more:not.py": {"metadata": {"author": "Ann Millers"}},
        "ann/tools:blank.py": {"copy": ""}, "zed/more:blank.py": {"copy": ""}, "ann/tools:line.py": {"copy": "\n"},
        "zed/more:line.py": {"copy": "\n"},
    },
    "web": {
        "page": {"metadata": {"url": "http://www.example.org/blog/1?x=2"}},
        "https://other.example/mirror": {"copy": "page", "metadata": {"url": "https://other.example/mirror"}},
        "elsewhere": {"metadata": {"url": "https://example.organic/blog/1"}},
        "t#rephrased": {"metadata": {"parent": "ann/tools:b.py", "parent_dataset": "code"}},
        "copy-of-rephrased": {"copy": "t#rephrased"},
    },
}  # fmt: skip


def doc_id_of(name: str) -> str:
    """Of a document by its name above."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def name_of(doc_id: str) -> str:
    """Of a document by its id."""
    return {doc_id_of(name): name for names in DOCUMENTS_OF.values() for name in names}[doc_id]


def filled(declared: Table, row: dict[str, Any]) -> dict[str, Any]:
    """A row with some value in each required column."""
    some: dict[str, Any] = {"string": "x", "long": 1, "int": 0, "double": 1.0, "binary": b""}
    empty = {column.name: some.get(column.type, []) for column in declared.columns if column.required}
    return {**empty, **row}


def put(
    catalogue: Catalog, space: str, declared: Table, rows: list[dict[str, Any]], increment: int = 0, **facts: Any
) -> None:
    """Write the rows of a table as a step's increment."""
    publish(catalogue, space, declared, increment, [filled(declared, row) for row in rows], **facts)


def make(root: Path) -> SqlCatalog:
    """Make the lake."""
    catalogue = open_lake(root)
    assert isinstance(catalogue, SqlCatalog)
    for dataset, documents in DOCUMENTS_OF.items():
        put(catalogue, dataset, DOCUMENTS, [_document(name, facts) for name, facts in documents.items()])
    put(catalogue, "code", REPOSITORIES, [{"repository": "bob/tools", "fork_of": "Ann/Tools"}])
    code = {doc_id_of(name): f"{name} {name * 9}\n" for name in DOCUMENTS_OF["code"]}
    write_corpus(catalogue, "code", 0, code)
    _rewrite(catalogue, PACKED)
    record(catalogue, "main.increments", "main.tokens", "main.tokenizer", PACKED)
    put(catalogue, "main", MEMBERS, [{"dataset": "code", "doc_id": key} for key in code], config={"datasets": ["code"]})
    put(catalogue, "main", SURVIVORS, [{"dataset": "code", "doc_id": key} for key in code],
        config={"threshold": dict.fromkeys(KINDS, 0.7)}, inputs=["main.removals"])  # fmt: skip
    pair = {"kind": "code", "dataset": "code", "better_dataset": "code", "united_weight": 10}
    put(catalogue, "main", PAIRS, [
        {**pair, **_ids("zed/more:near.py", "ann/tools:a.py"), "shared_weight": 8, "similarity": 0.8},
        {**pair, **_ids("zed/more:like_near.py", "zed/more:near.py"), "shared_weight": 8, "similarity": 0.8},
        {**pair, **_ids("zed/more:alone.py", "ann/tools:a.py"), "shared_weight": 6, "similarity": 0.6},
    ], config={"thresholds": {kind: [0.6, 0.7] for kind in KINDS}})  # fmt: skip
    put(catalogue, "main", EXACT_DUPLICATES, [
        {"dataset": "code", "doc_id": doc_id_of("bob/tools:a.py"), "witness_doc_id": doc_id_of("ann/tools:a.py"),
         "matched": "bytes"},
        {"dataset": "code", "doc_id": doc_id_of("zed/more:blank.py"), "witness_doc_id": doc_id_of("ann/tools:blank.py"),
         "matched": "bytes"}])  # fmt: skip
    passage = {"dataset": "code", "first_dataset": "code", "first_doc_id": doc_id_of("ann/tools:b.py"), "words": 60}
    put(catalogue, "main", PASSAGES, [
        {**passage, "doc_id": doc_id_of("zed/more:part.py"), "first_start": 0, "first_end": 300},
        {**passage, "doc_id": doc_id_of("zed/more:other_part.py"), "first_start": 400, "first_end": 700},
    ])  # fmt: skip
    answer = {column.name: 0 if isinstance(column.type, sa.Integer | sa.Boolean) else "" for column in ANSWERS.columns}
    answer |= {"dataset": "web", "template": "t", "key": "rephrased", "parent_doc_id": doc_id_of("ann/tools:b.py")}
    with catalogue.engine.begin() as connection:
        METADATA.create_all(connection)
        connection.execute(sa.insert(ANSWERS).values(**answer))
    return catalogue


def _rewrite(catalogue: Catalog, identifier: str) -> None:
    """Write the rows of a table with Arrow's small lists, as engines do: Sail reads no others."""
    table = catalogue.load_table(identifier)
    rows = table.scan().to_arrow()
    table.overwrite(rows.cast(file_schema(rows.schema)))


def record(catalogue: Catalog, *tables: str) -> None:
    """Record what is in tables as a step would."""
    rows = []
    for identifier in tables:
        table = catalogue.load_table(identifier)
        snapshot = table.current_snapshot()
        assert snapshot is not None
        rows.append(
            Materialization(
                identifier, "0", "step", "key", DataVersion(1, 1, 1), "1", "{}", {},
                snapshot.snapshot_id, snapshot.sequence_number or 0, str(table.metadata.table_uuid),
                table.scan().count(), 10, 0.1, "run", None,
            )
        )  # fmt: skip
    Ledger(catalogue).record(rows)


def _ids(worse: str, better: str) -> dict[str, str]:
    return {"doc_id": doc_id_of(worse), "better_doc_id": doc_id_of(better)}


def _document(name: str, facts: dict[str, Any]) -> dict[str, Any]:
    """A row of documents; those with `copy` have the bytes of another."""
    repository, _, path = name.rpartition(":") if "/" in name and not name.startswith("http") else ("", "", name)
    metadata = {key: doc_id_of(value) if key == "parent" else value for key, value in facts.get("metadata", {}).items()}
    return {
        "doc_id": doc_id_of(name), "repository": repository or None, "path": path, "shard": 0, "kind": "code",
        "content": name, "encoding": "utf-8", "metadata": list(metadata.items()),
        "content_sha256": hashlib.sha256(facts.get("copy", name).encode()).hexdigest(),
    }  # fmt: skip


def rows_of(catalogue: Catalog, identifier: str = PACKED) -> list[dict[str, Any]]:
    """The rows of a table by ordinal."""
    table: pa.Table = catalogue.load_table(identifier).scan().to_arrow()
    return sorted(table.to_pylist(), key=lambda row: int(row["ordinal"]))
