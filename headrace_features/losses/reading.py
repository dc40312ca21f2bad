"""Read losses: the segments of a step, documents, and groups of documents by source, cell or rule, the worst first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, In, LessThan

from blender_service.recently_used import RecentlyUsed
from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.blend_rows import dataset_of
from dagster_project.inspect.lake.corpus_facts import namespaces_with
from dagster_project.inspect.lake.training_runs import batch_of, find_run, training_runs
from headrace.tables.catalogue import load_table
from headrace_features.losses.document_losses import DOCUMENT_LOSSES, ORDERS, SCHEMA, WORST, by_document
from headrace_features.losses.tables import LOSSES, counting
from spark_jobs.lake.files.lookups import EVERYTHING
from spark_jobs.lake.files.scans import scan_of

MOST_ROWS: Final = 3_000_000  # added up while somebody waits, in a second or two
GROUPS: Final = ("source", "cell", "rule")
_LONG: Final = ("path", "doc_id", "table", "step_loss", "first_loss", "last_loss")
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
    shares = sums / (sums[np.isfinite(sums)].sum() or np.nan)  # of a segment that is infinite: infinite
    order = np.lexsort((found["segment"], found["offset"], -np.nan_to_num(losses, nan=np.inf)))
    lines: Lines = named.append_column("share", pa.array(shares)).take(pa.array(order)).to_pylist()
    return lines


def worst(catalogue: Catalog, run: str, by: str, most: int, may_read: MayRead = everywhere) -> Lines:
    """The documents of a run with the highest `loss`, `excess` or `fall`; of equal ones the first by id.

    Raises:
        CommandError: there is no such order, the run has no losses, or too many to add them up now.
    """
    if by not in ORDERS:
        raise CommandError(f"sort={by[:40]} is no order of documents; give {', '.join(ORDERS)}")
    found = _of_run(catalogue, run, WORST.name, may_read, EqualTo("order", by))
    there = found.filter(pc.is_valid(found[by]))
    chosen = pc.select_k_unstable(there, most, [(by, "descending"), ("doc_id", "ascending")])
    lines: Lines = there.take(chosen).to_pylist()
    return lines


def groups(catalogue: Catalog, run: str, by: str, may_read: MayRead = everywhere) -> Lines:
    """Documents, tokens, mean loss and mean fall by source, cell or failed rule, the highest loss first.

    Raises:
        CommandError: as of `worst`, or documents are in no such groups.
    """
    if by not in GROUPS:
        raise CommandError(f"by={by[:40]} is nothing that documents are grouped by; give {', '.join(GROUPS)}")
    found = _of_run(catalogue, run, DOCUMENT_LOSSES.name, may_read)
    facts = found.append_column("total", pc.multiply(found["loss"], found["tokens"]))
    if by == "source":
        facts = facts.append_column("group", found["source"])
    else:
        labelled = _cells if by == "cell" else _rules
        labels = labelled(catalogue, pc.unique(found["table"]).to_pylist())
        facts = facts.select(["doc_id", "tokens", "fall", "total"]).join(labels, "doc_id", join_type="inner")
    by_group = facts.group_by("group", use_threads=False)
    summed = by_group.aggregate([("tokens", "count"), ("tokens", "sum"), ("total", "sum"), ("fall", "mean")])
    lines = [
        {"group": row["group"], "documents": row["tokens_count"], "tokens": row["tokens_sum"],
         "loss": row["total_sum"] / row["tokens_sum"], "fall": row["fall_mean"]}
        for row in summed.to_pylist()
    ]  # fmt: skip
    return sorted(lines, key=lambda line: (-line["loss"], line["group"] or ""))


def worst_of_run(catalogue: Catalog, run: str, step: int | None, most: int, brief: bool) -> Lines:
    """What `headrace runs --worst RUN` prints: the segments of a step by loss, or all documents; `brief` for people."""
    if step is None:
        found = worst(catalogue, run, "loss", most)
    else:
        _, offset, rows = batch_of(find_run(training_runs(catalogue), run), step)
        found = segments_of_step(catalogue, run, offset, rows)[:most]
    lines = with_paths(catalogue, found)
    return [_brief(line) for line in lines] if brief else lines


def _brief(line: dict[str, Any]) -> dict[str, Any]:
    """A line that fits a terminal."""
    document = {"document": line["path"] or line["doc_id"][:12]}
    shown = {name: line[name] for name in line if name not in _LONG}
    return document | {name: round(value, 3) if isinstance(value, float) else value for name, value in shown.items()}


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


def _of_run(
    catalogue: Catalog, run: str, declared: str, may_read: MayRead, which: BooleanExpression = EVERYTHING
) -> pa.Table:
    """Rows of a run in a table of the step `document_losses`; where a namespace has none, its losses added up now."""
    parts = []
    for name in _tables(catalogue, may_read):
        summed = load_table(catalogue, f"{name.partition('.')[0]}.{declared}")
        rows = None if summed is None else scan_of(summed, And(EqualTo("run", run), which), SCHEMA.names).to_arrow()
        parts.append(rows.cast(SCHEMA) if rows is not None and rows.num_rows else _added_up(catalogue, run, name))
    found = pa.concat_tables(parts)
    if not found.num_rows:
        raise CommandError(f"training run {run} wrote no losses down; give its loop a headrace.LossWriter")
    return found


def _added_up(catalogue: Catalog, run: str, name: str) -> pa.Table:
    """The documents of a run in a table of losses, kept for the next pages."""
    table, namespace = catalogue.load_table(name), name.partition(".")[0]
    rows = scan_of(table, EqualTo("run", run))
    if sum(task.file.record_count for task in rows.plan_files()) > MOST_ROWS:
        raise CommandError(
            f"{name}: more than {MOST_ROWS:,} rows to add up; declare losses: {{run: {run}}} for the corpus "
            f"{namespace}, and headrace run {namespace}.{DOCUMENT_LOSSES.name}"
        )
    key = str(table.metadata.table_uuid), table.metadata.current_snapshot_id, run
    return _KEPT.find(key, lambda: by_document(counting(rows.to_arrow())))


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
