"""Tables with thousands of snapshots, made without as many commits."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from sqlalchemy import update


def lengthen_history(catalogue: SqlCatalog, identifier: str, count: int) -> None:
    """Give the table `count` snapshots more before its first, each as a commit of headrace would leave it."""
    table = catalogue.load_table(identifier)
    metadata: dict[str, Any] = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    first = metadata["snapshots"][0]
    before: list[dict[str, Any]] = []
    for number in range(1, count + 1):
        snapshot = copy.deepcopy(first)
        snapshot |= {
            "snapshot-id": number,
            "sequence-number": 0,
            "timestamp-ms": first["timestamp-ms"] - count + number,
        }
        snapshot["summary"] |= {f"headrace.fact-{fact}": f"{number:064x}" for fact in range(6)}
        if before:
            snapshot["parent-snapshot-id"] = number - 1
        before.append(snapshot)
    metadata["snapshots"] = before + metadata["snapshots"]
    log = [{"snapshot-id": one["snapshot-id"], "timestamp-ms": one["timestamp-ms"]} for one in before]
    metadata["snapshot-log"] = log + metadata["snapshot-log"]
    place = table.metadata_location.replace("/metadata/", "/metadata/9", 1)
    Path(place.removeprefix("file://")).write_text(json.dumps(metadata))
    namespace, name = identifier.rsplit(".", 1)
    with catalogue.engine.begin() as connection:
        connection.execute(
            update(IcebergTables)
            .where(IcebergTables.table_namespace == namespace, IcebergTables.table_name == name)
            .values(metadata_location=place)
        )
