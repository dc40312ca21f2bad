"""Read losses: the segments of a step, documents, and groups of documents by source, cell or rule, the worst first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, In, LessThan

from blender_service.recently_used import RecentlyUsed
from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.blend_rows import dataset_of
from dagster_project.inspect.lake.corpus_facts import namespaces_with
from dagster_project.inspect.lake.training_runs import batch_of, find_run, training_runs
from headrace.tables.catalogue import load_table
from headrace_features.losses.document_losses import DOCUMENT_LOSSES, UNIT
from headrace_features.losses.tables import LOSSES, counting
from spark_jobs.lake.files.scans import scan_of

MOST_ROWS: Final = 3_000_000  # added up while somebody waits, in a second or two
ORDERS: Final = ("loss", "fall")
GROUPS: Final = ("source", "cell", "rule")
MayRead = Callable[[str], bool]
Lines = list[dict[str, Any]]

_KEPT: Final = RecentlyUsed[tuple[Any, ...], pa.Table](8)


def everywhere(namespace: str) -> bool:
    """Read all namespaces."""
    return True


def segments_of_step(catalogue: Catalog, run: str, offset: int, rows: int, may_read: MayRead = everywhere) -> Lines:
    """The segments of some rows of a run, by loss a token, the highest first; not a number is above all.

    Raises:
        CommandError: no loss of these rows was written down.
    """
    part = And(EqualTo("run", run), GreaterThanOrEqual("offset", offset), LessThan("offset", offset + rows))
    tables = [load_table(catalogue, name) for name in _tables(catalogue, may_read)]
    found = pa.concat_tables([counting(scan_of(table, part).to_arrow()) for table in tables if table is not None])
    if not found.num_rows:
        raise CommandError(
            f"training run {run}: no loss of rows {offset} to {offset + rows - 1} was written down; LossWriter takes "
            "one in `every` steps, of runs that are given one"
        )
    sums = found["sum"].to_numpy().astype(np.float64)
    losses = sums / found["tokens"].to_numpy()
    named = found.drop_columns(["run", "commit", "sum"]).append_column("loss", pa.array(losses))
    shares = sums / np.nansum(sums)
    order = np.lexsort((found["segment"], found["offset"], -np.nan_to_num(losses, nan=np.inf)))
    lines: Lines = named.append_column("share", pa.array(shares)).take(pa.array(order)).to_pylist()
    return lines


def documents(catalogue: Catalog, run: str, may_read: MayRead = everywhere) -> pa.Table:
    """The documents of a run with their losses, as `document_losses` has them; added up now where that has not.

    Raises:
        CommandError: there are none, or too many to add them up now.
    """
    names = _tables(catalogue, may_read)
    parts = [_documents(catalogue, run, name) for name in names]
    found = pa.concat_tables([part for part in parts if part.num_rows]) if any(p.num_rows for p in parts) else None
    if found is None:
        raise CommandError(f"training run {run} wrote no losses down; give its loop a headrace.LossWriter")
    return found


def worst(found: pa.Table, by: str, most: int) -> Lines:
    """The documents with the highest `loss` or `fall`; of equal ones the first by id.

    Raises:
        CommandError: there is no such order.
    """
    if by not in ORDERS:
        raise CommandError(f"sort={by[:40]} is no order of documents; give {' or '.join(ORDERS)}")
    there = found.filter(pc.is_valid(found[by]))
    chosen = pc.select_k_unstable(there, most, [(by, "descending"), ("doc_id", "ascending")])
    lines: Lines = there.take(chosen).to_pylist()
    return lines


def groups(catalogue: Catalog, found: pa.Table, by: str) -> Lines:
    """Documents, tokens, mean loss and mean fall by source, cell or failed rule, the highest loss first.

    Raises:
        CommandError: documents are in no such groups.
    """
    if by == "source":
        labels = found.select(["doc_id", "source"]).rename_columns(["doc_id", "group"])
    elif by in GROUPS:
        tables = pc.unique(found["table"]).to_pylist()
        labels = pa.concat_tables([_cells(catalogue, tables) if by == "cell" else _rules(catalogue, tables)])
    else:
        raise CommandError(f"by={by[:40]} is nothing that documents are grouped by; give {', '.join(GROUPS)}")
    total = pc.multiply(found["loss"], found["tokens"])
    facts = found.select(["doc_id", "tokens", "fall"]).append_column("total", total)
    joined = facts.join(labels, "doc_id", join_type="inner").group_by("group", use_threads=False)
    summed = joined.aggregate([("doc_id", "count"), ("tokens", "sum"), ("total", "sum"), ("fall", "mean")])
    lines = [
        {"group": row["group"], "documents": row["doc_id_count"], "tokens": row["tokens_sum"],
         "loss": row["total_sum"] / row["tokens_sum"], "fall": row["fall_mean"]}
        for row in summed.to_pylist()
    ]  # fmt: skip
    return sorted(lines, key=lambda line: (-line["loss"], line["group"]))


def worst_of_run(catalogue: Catalog, run: str, step: int | None, most: int) -> Lines:
    """What `headrace runs --worst RUN` prints: the segments of a step by loss, or all documents."""
    if step is None:
        return with_paths(catalogue, worst(documents(catalogue, run), "loss", most))
    _, offset, rows = batch_of(find_run(training_runs(catalogue), run), step)
    return with_paths(catalogue, segments_of_step(catalogue, run, offset, rows)[:most])


def with_paths(catalogue: Catalog, lines: Lines) -> Lines:
    """Lines with the path of their document, None where the lake has none."""
    paths: dict[str, str] = {}
    for table in sorted({line["table"] for line in lines}):
        documents = load_table(catalogue, f"{_dataset(table)}.documents")
        if documents is not None:
            wanted = In("doc_id", [line["doc_id"] for line in lines if line["table"] == table])
            there = scan_of(documents, wanted, ("doc_id", "path")).to_arrow()
            paths |= dict(zip(there["doc_id"].to_pylist(), there["path"].to_pylist(), strict=True))
    return [{**line, "path": paths.get(line["doc_id"])} for line in lines]


def by_document(rows: pa.Table) -> pa.Table:
    """Add rows that count up by document, as the step `document_losses` does."""
    finite = rows.filter(pc.is_finite(rows["sum"]))
    units = pc.round(pc.multiply(finite["sum"].cast(pa.float64()), UNIT), round_mode="half_towards_infinity").cast(
        pa.int64()
    )
    grouped = finite.append_column("units", units).group_by(["doc_id", "epoch"], use_threads=False)
    summed = grouped.aggregate([("units", "sum"), ("tokens", "sum")])
    epochs = summed.sort_by([("doc_id", "ascending"), ("epoch", "ascending")])
    ids = epochs["doc_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    firsts = np.flatnonzero(np.diff(ids, prepend=-1))
    if not firsts.size:
        return DOCUMENT_SCHEMA.empty_table()
    lasts, counts = np.append(firsts[1:], ids.size) - 1, np.diff(firsts, append=ids.size)
    parts, tokens = epochs["units_sum"].to_numpy(), epochs["tokens_sum"].to_numpy()
    losses, all_tokens = parts / (tokens * UNIT), np.add.reduceat(tokens, firsts)
    falls = np.where(counts > 1, losses[firsts] - losses[lasts], np.nan)
    named = finite.group_by("doc_id", use_threads=False).aggregate([("source", "min"), ("table", "min")])
    heads = named.sort_by("doc_id")
    columns: dict[str, Any] = {
        "doc_id": heads["doc_id"], "source": heads["source_min"], "table": heads["table_min"],
        "epoch_count": counts.astype(np.int32), "tokens": all_tokens,
        "loss": np.add.reduceat(parts, firsts) / (all_tokens * UNIT),
        "first_loss": losses[firsts], "last_loss": losses[lasts], "fall": pa.array(falls, from_pandas=True),
    }  # fmt: skip
    return pa.table(columns).cast(DOCUMENT_SCHEMA)


DOCUMENT_SCHEMA: Final = pa.schema(
    {
        **dict.fromkeys(("doc_id", "source", "table"), pa.string()), "epoch_count": pa.int32(), "tokens": pa.int64(),
        **dict.fromkeys(("loss", "first_loss", "last_loss", "fall"), pa.float64()),
    }
)  # fmt: skip


def _documents(catalogue: Catalog, run: str, name: str) -> pa.Table:
    """Documents of a run in one table of losses."""
    summed = load_table(catalogue, f"{name.partition('.')[0]}.{DOCUMENT_LOSSES.name}")
    if summed is not None:
        found = _kept(summed, run, lambda: scan_of(summed, EqualTo("run", run), DOCUMENT_SCHEMA.names).to_arrow())
        if found.num_rows:
            return found
    table = catalogue.load_table(name)
    rows = scan_of(table, EqualTo("run", run))
    if sum(task.file.record_count for task in rows.plan_files()) > MOST_ROWS:
        namespace = name.partition(".")[0]
        raise CommandError(
            f"{name}: more than {MOST_ROWS:,} rows to add up; declare losses: {{run: {run}}} for the corpus "
            f"{namespace}, and headrace run {namespace}.{DOCUMENT_LOSSES.name}"
        )
    return _kept(table, run, lambda: by_document(counting(rows.to_arrow())))


def _kept(table: Any, run: str, make: Callable[[], pa.Table]) -> pa.Table:
    """Documents of a run at a snapshot, made once for the next pages."""
    key = str(table.metadata.table_uuid), table.metadata.current_snapshot_id, run
    return _KEPT.find(key, lambda: make().cast(DOCUMENT_SCHEMA))


def _tables(catalogue: Catalog, may_read: MayRead) -> list[str]:
    """The tables of losses that may be read.

    Raises:
        CommandError: there is none.
    """
    names = [f"{name}.{LOSSES.name}" for name in namespaces_with(catalogue, LOSSES.name) if may_read(name)]
    if not names:
        raise CommandError("no losses were written down yet; give a training loop a headrace.LossWriter")
    return names


def _dataset(table: str) -> str:
    """The dataset of a source's table: of a packed one by its name, of texts by its namespace."""
    namespace, _, name = table.partition(".")
    return dataset_of(table) if name.startswith("packed_") else namespace


def _cells(catalogue: Catalog, tables: Sequence[str]) -> pa.Table:
    """Cells of the documents of corpora, as `doc_id` and `group`."""
    names = sorted({f"{table.partition('.')[0]}.cells" for table in tables})
    return _labels(catalogue, names, "cell", "they have no cells")


def _rules(catalogue: Catalog, tables: Sequence[str]) -> pa.Table:
    """Rules that documents fail, by any policy of their datasets: each is a `group`."""
    datasets = sorted({_dataset(table) for table in tables} & {*namespaces_with(catalogue, "verdicts")})
    verdicts = [f"{space}.{name}" for space in datasets for _, name in catalogue.list_tables(space)]
    judged = [name for name in verdicts if name.partition(".")[2].startswith("verdicts")]
    found = _labels(catalogue, judged, "failed", "no policy judged them")
    parents, rules = pc.list_parent_indices(found["group"]), pc.list_flatten(found["group"])
    named = pc.struct_field(rules, "rule")
    return (
        pa.table({"doc_id": found["doc_id"].take(parents), "group": named}).group_by(["doc_id", "group"]).aggregate([])
    )


def _labels(catalogue: Catalog, names: Sequence[str], column: str, without: str) -> pa.Table:
    tables = [table for name in names if (table := load_table(catalogue, name)) is not None]
    if not tables:
        raise CommandError(f"documents of this run: {without}")
    parts = [scan_of(table, columns=("doc_id", column)).to_arrow() for table in tables]
    return pa.concat_tables(parts).rename_columns(["doc_id", "group"]).combine_chunks()
