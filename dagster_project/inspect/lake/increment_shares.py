"""What an alert compares in the newest increment with all earlier ones: shares of duplicates and rejections, means.

Increments with fewer than `least` documents are not measured: their shares are None, which is not zero, and an alert
compares nothing with them. Means of too few values are left out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo

from dagster_project.inspect.measured import share_of
from headrace.tables.catalogue import load_table
from spark_jobs.lake.files.lookups import read_batches
from spark_jobs.lake.ledger.materialization import Materialization
from spark_jobs.sources.refusals import LEFT_OUT


def removed_shares(
    members: Mapping[int, Materialization], survivors: Mapping[int, Materialization], least: int
) -> tuple[float | None, float | None]:
    """Share of members that do not survive, of the newest increment and of all earlier ones, by the ledger's counts."""
    counted = [(row.row_count, survivors[n].row_count) for n, row in members.items() if n in survivors]
    if not counted:
        return None, None
    *earlier, last = counted

    def share(pairs: list[tuple[int, int]]) -> float | None:
        total = sum(all_ for all_, _ in pairs)
        return 1 - sum(kept for _, kept in pairs) / total if total >= least else None

    return share([last]), share(earlier)


def refused(catalogue: Catalog, name: str, numbers: list[int]) -> dict[str, Any]:
    """Share of the newest increment's arrivals that were refused for a fault, and how many files are not taken.

    The share is None where nothing was read, as in an increment in which a file went and no other arrived.
    Files that did not change are not counted. Where records were refused, all documents of the dataset count too: a
    file of 400 records of which one is refused each time it is read is not half refused.
    """
    table = load_table(catalogue, f"{name}.arrivals")
    if not numbers or table is None or table.current_snapshot() is None:
        return {}
    counts: Counter[tuple[str, str | None]] = Counter()
    newest = EqualTo("increment", numbers[-1])
    for batch in table.scan(newest, selected_fields=("status", "reason")).to_arrow_batch_reader():
        groups = pa.Table.from_batches([batch]).group_by(["status", "reason"]).aggregate([([], "count_all")])
        for row in groups.to_pylist():
            counts[row["status"], row["reason"]] += row["count_all"]
    landed = sum(count for (status, _), count in counts.items() if status == "landed")
    refused = {reason: count for (status, reason), count in counts.items() if status == "rejected"}
    left_out = sum(count for reason, count in refused.items() if reason in LEFT_OUT)
    faults = sum(refused.values()) - left_out
    rejected = And(newest, EqualTo("status", "rejected"))
    places = table.scan(rejected, selected_fields=("location",)).to_arrow()["location"].to_pylist() if faults else []
    documents = load_table(catalogue, f"{name}.documents") if any("#" in place for place in places) else None
    snapshot = documents.current_snapshot() if documents is not None else None
    if snapshot is not None and snapshot.summary is not None:
        landed += int(snapshot.summary.additional_properties.get("total-records", 0))
    return {"error_share": share_of(faults, landed + faults), "left_out": left_out}


def rejections(
    catalogue: Catalog, name: str, least: int
) -> tuple[dict[str, float] | None, dict[str, float] | None, float | None]:
    """Count the verdicts of a dataset by increment and rule.

    Returns:
        The share of the newest increment's documents that each rule rejects, rules that reject none left out; the same
        of all earlier increments; and the share of the newest increment's documents that are kept. Each is None where
        there are fewer than `least` documents.
    """
    documents, kept = Counter[int](), Counter[int]()
    failed: dict[int, Counter[str]] = defaultdict(Counter)
    for batch in read_batches(catalogue, f"{name}.verdicts", ("increment", "kept", "failed.element.rule")):
        increments = batch.column("increment").to_numpy()
        documents.update(dict(zip(*map(np.ndarray.tolist, np.unique(increments, return_counts=True)), strict=True)))
        kept.update(increments[batch.column("kept").to_numpy(zero_copy_only=False)].tolist())
        lists = batch.column("failed")
        parents = pc.list_parent_indices(lists).to_numpy()
        rules = pc.struct_field(pc.list_flatten(lists), "rule")
        pairs = pa.table({"increment": increments[parents], "rule": rules})
        for row in pairs.group_by(["increment", "rule"]).aggregate([([], "count_all")]).to_pylist():
            failed[row["increment"]][row["rule"]] += row["count_all"]
    if not documents:
        return None, None, None
    last = max(documents)

    def shares(numbers: list[int]) -> dict[str, float] | None:
        total = sum(documents[number] for number in numbers)
        if total < least:
            return None
        counts: Counter[str] = sum((failed[number] for number in numbers), Counter())
        return {rule: count / total for rule, count in sorted(counts.items())}

    share = kept[last] / documents[last] if documents[last] >= least else None
    return shares([last]), shares([number for number in documents if number != last]), share


def signal_means(catalogue: Catalog, name: str, least: int) -> dict[str, tuple[float, float]]:
    """Mean of each numeric signal in the newest increment, and in all earlier ones; empty without earlier ones."""
    table = load_table(catalogue, f"{name}.signals")
    if table is None:
        return {}
    kinds = ("double", "float", "long", "int")
    fields = {field.name: str(field.field_type) for field in table.schema().fields}
    columns = [column for column, kind in fields.items() if kind in kinds and column not in ("increment", "shard")]
    sums: dict[int, np.ndarray[Any, np.dtype[np.float64]]] = {}
    for batch in read_batches(catalogue, f"{name}.signals", ("increment", *columns)):
        rows = pa.Table.from_batches([batch])
        aggregates = [(column, what) for column in columns for what in ("sum", "count")]
        for row in rows.group_by("increment").aggregate(aggregates).to_pylist():
            part = [[row[f"{column}_sum"] or 0.0, row[f"{column}_count"]] for column in columns]
            sums[row["increment"]] = sums.get(row["increment"], np.zeros((len(columns), 2))) + np.array(part)
    if len(sums) < 2:
        return {}
    last = max(sums)
    new, old = sums[last], np.sum([part for number, part in sums.items() if number != last], axis=0)
    enough = (new[:, 1] >= least) & (old[:, 1] >= least)
    return {
        column: (float(new[at, 0] / new[at, 1]), float(old[at, 0] / old[at, 1]))
        for at, column in enumerate(columns)
        if enough[at]
    }
