"""A lake in which a dataset waits, made by PyIceberg and the ledger alone, so that tests of it need no Spark."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog

from headrace_features.privacy.scans.scans import SCANS
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.materialization import Materialization
from spark_jobs.lake.session.catalogue import ensure_table

TEXTS = Table(
    name="documents",
    comment="one row per document",
    columns=(
        Column("doc_id!", "string", "identity"),
        Column("content!", "string", "its text"),
        *(Column(name, "string", "where it is") for name in ("repository", "path")),
        Column("byte_count", "long", "its size"),
    ),
    partition=("increment",),
)
SEEN = Table(
    name="arrivals",
    comment="one row per file",
    columns=(
        Column("location!", "string", "file"),
        Column("status!", "string", "landed"),
        Column("reason", "string", "why"),
        Column("content_sha256", "string", "hash of the bytes"),
        *(Column(name, "string", "of the document") for name in ("doc_id", "repository", "path")),
    ),
    partition=("increment",),
)


def publish(
    catalogue: Catalog,
    space: str,
    declared: Table,
    increment: int,
    rows: Sequence[dict[str, Any]],
    config: Mapping[str, Any] = MappingProxyType({"source": {"kind": "files", "path": "/data/web"}}),
    inputs: Sequence[str] = (),
) -> None:
    """Append an increment to a table, and record it as a step of a config that read some tables does."""
    Ledger(catalogue).record([append(catalogue, space, declared, increment, rows, config, inputs)])


def append(
    catalogue: Catalog,
    space: str,
    declared: Table,
    increment: int,
    rows: Sequence[dict[str, Any]],
    config: Mapping[str, Any] = MappingProxyType({"source": {"kind": "files", "path": "/data/web"}}),
    inputs: Sequence[str] = (),
) -> Materialization:
    """Append an increment to a table; gives what `publish` records, which together takes one commit."""
    identifier = f"{space}.{declared.name}"
    table = ensure_table(catalogue, identifier, declared, {})
    table.append(pa.Table.from_pylist([{**row, "increment": increment} for row in rows], table.schema().as_arrow()))
    digest = int(hashlib.sha256(json.dumps(rows, sort_keys=True, default=repr).encode()).hexdigest()[:15], 16)
    snapshot = catalogue.load_table(identifier).current_snapshot()
    assert snapshot is not None
    return Materialization(
        identifier,
        str(increment),
        "documents" if space.endswith("_quarantine") else "released",
        f"key of {increment}",
        DataVersion(len(rows), digest, digest),
        "1",
        json.dumps(dict(config)),
        {table: {} for table in inputs},
        snapshot.snapshot_id,
        snapshot.sequence_number or 0,
        str(table.metadata.table_uuid),
        len(rows),
        10 * len(rows),
        0.1,
        "run",
        None,
    )


def land(catalogue: Catalog, increment: int, texts: Sequence[str], scanned: bool = True, malware: int = 0) -> None:
    """An increment of `web` in quarantine, scanned or not."""
    documents = [
        {"doc_id": hashlib.sha256(text.encode()).hexdigest()[:32], "content": text, "increment": increment}
        for text in texts
    ]
    if scanned:
        found = {"shard": 0, "secret_count": 0, "personal_data_count": 0, "fixture_count": 0}
        names = {"malware.some": malware} if malware else {}
        scans = [
            {**found, "doc_id": one["doc_id"], "malware_count": malware, "findings": list(names.items())}
            for one in documents
        ]
        publish(catalogue, "web_quarantine", SCANS, increment, scans)
    publish(catalogue, "web_quarantine", TEXTS, increment, documents)
    publish(
        catalogue,
        "web_quarantine",
        SEEN,
        increment,
        [{"location": f"/data/web/{n}", "status": "landed"} for n in range(len(texts))],
    )


def carry(catalogue: Catalog, increment: int, texts: Sequence[str]) -> None:
    """The same increment, carried over into `web`."""
    documents = [{"doc_id": hashlib.sha256(text.encode()).hexdigest()[:32], "content": text} for text in texts]
    publish(catalogue, "web", TEXTS, increment, documents)
    publish(
        catalogue,
        "web",
        SEEN,
        increment,
        [{"location": f"/data/web/{n}", "status": "landed"} for n in range(len(texts))],
    )
