"""Losses of a lake for tests: any rows, without a server."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog

from headrace_features.losses.tables import LOSSES, LossTable

Rows = list[dict[str, Any]]


def draw_rows(seed: int, count: int, documents: int = 12, runs: int = 2, offsets: int = 9) -> Rows:
    """Random rows without a commit: several of one segment, some of them not finite."""
    random = np.random.default_rng(seed)
    rows: Rows = []
    for _ in range(count):
        offset, segment = int(random.integers(offsets)), int(random.integers(3))
        kind = random.random()
        tokens = int(random.integers(1, 500))
        total = np.inf if kind < 0.03 else np.nan if kind < 0.06 else float(random.gamma(2, 1.5)) * tokens
        rows.append(
            {
                "offset": offset, "run": f"r{random.integers(runs)}", "segment": segment,
                "doc_id": f"d{(7 * offset + segment) % documents}", "source": f"s{offset % 2}",
                "table": f"main.packed_{'ab'[offset % 2]}_16", "epoch": offset // 3, "tokens": tokens,
                "sum": float(np.float32(total)), "step_loss": float(np.float32(random.gamma(2, 1.5))),
            }
        )  # fmt: skip
    return rows


def table_of(rows: Rows, commit: int | None = None) -> pa.Table:
    """Rows as Arrow, without the number of a commit or with one."""
    kinds = {"long": pa.int64(), "int": pa.int32(), "string": pa.string(), "float": pa.float32()}
    schema = pa.schema([(column.name, kinds[column.type]) for column in LOSSES.columns if column.name != "commit"])
    made = pa.Table.from_pylist(rows, schema)
    return made if commit is None else made.append_column("commit", pa.array([commit] * len(rows), pa.int64()))


def write(catalogue: Catalog, rows: Rows, namespace: str = "main") -> None:
    """Commit rows, as the service does."""
    LossTable(catalogue, namespace).append(table_of(rows))


def counted(commits: list[Rows], run: str) -> dict[str, dict[str, Any]]:
    """What a run lost on each document, by a loop over rows; of a segment the last commit counts."""
    segments = {(row["offset"], row["segment"]): row for rows in commits for row in rows if row["run"] == run}
    epochs: dict[str, dict[int, list[float]]] = {}
    for row in segments.values():
        if np.isfinite(row["sum"]):
            summed = epochs.setdefault(row["doc_id"], {}).setdefault(row["epoch"], [0.0, 0.0, 0.0])
            summed[0] += row["sum"]
            summed[1] += row["tokens"]
            summed[2] += row["sum"] - row["step_loss"] * row["tokens"]
    facts: dict[str, dict[str, Any]] = {}
    for doc_id, of_epochs in epochs.items():
        totals = [of_epochs[epoch] for epoch in sorted(of_epochs)]
        first, last = totals[0][0] / totals[0][1], totals[-1][0] / totals[-1][1]
        tokens = sum(total[1] for total in totals)
        facts[doc_id] = {
            "epoch_count": len(totals), "tokens": tokens, "loss": sum(total[0] for total in totals) / tokens,
            "first_loss": first, "last_loss": last, "fall": first - last if len(totals) > 1 else None,
            "excess": sum(total[2] for total in totals) / tokens,
        }  # fmt: skip
    return facts
