"""Make the metadata that the UI shows of a table: its schema and code; counts, samples and a plot of its rows."""

from __future__ import annotations

import base64
import enum
import functools
import inspect
import os
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, In
from pyiceberg.expressions.parser import parse
from pyiceberg.table import Table as IcebergTable

from dagster_project.addresses import EXPLORER_VARIABLE
from dagster_project.standards import standards_of_table
from spark_jobs.exceptions import CheckResult
from spark_jobs.lake.declare.step import Plot, Step
from spark_jobs.lake.declare.tables import Notice, Table
from spark_jobs.lake.files.lookups import first_rows
from spark_jobs.lake.ledger.materialization import Materialization
from spark_jobs.lake.run.outcomes import TableOutcome

_SAMPLE_ROWS = 5
_READ_FIRST = ("path", "text", "kept", "rules", "reason", "detail", "doc_id")
_SAMPLE_CHARACTERS = 60
_PLOT_ROWS = 1_000_000
_SHOWN_COUNTS = 5
_KEPT = ("sample", "rejected_sample", "plot", "kept_share")
# What people look at first, and what only programs compare, in the order of a page.
_FIRST: tuple[str, ...] = (
    "dagster/row_count",
    "rows_of_all_partitions",
    "kept_share",
    "share_of_members",
    "rejected_share",
    "note",
)
_FIRST += ("notice", "rollout", "sample", "rejected_sample", "plot")
_LAST = ("iceberg/snapshot_id", "data_version", "step_key", "dagster/column_lineage")


KEPT = "kept"  # column of tables that judge documents


class Samples(enum.Enum):
    """Which sample rows the UI shows: none, rows without the texts of documents, or rows with them."""

    NONE = "none"
    IDS = "ids"
    TEXT = "text"


GUARDED = (Samples.NONE, Samples.IDS, Samples.TEXT)


def definition_metadata(identifier: str, table: Table, step: Step, samples: Samples | None) -> dict[str, Any]:
    """Metadata of a definition: columns with descriptions, which of them may be shown, the line of the code."""
    columns = [
        dg.TableColumn(
            column.name,
            column.type.replace("!", ""),
            description=column.comment,
            constraints=dg.TableColumnConstraints(nullable=not column.required, unique=table.key == (column.name,)),
        )
        for column in table.all_columns
    ]
    file, line = inspect.getsourcefile(step.function), inspect.getsourcelines(step.function)[1]
    return {
        "dagster/column_schema": dg.TableSchema(columns=columns),
        "dagster/table_name": identifier,
        "dagster/code_references": _code_reference(str(file), line, step.name),
        "scope": step.scope.value,
        "samples": samples.value if samples is not None else "as of the most guarded table that it reads",
        "texts": list(table.sampled),
        **_explorer_page(identifier),
    }


def _explorer_page(identifier: str) -> dict[str, Any]:
    """The page of a table's dataset or corpus, where `headrace ui --explore` serves the explorer too."""
    if not (address := os.environ.get(EXPLORER_VARIABLE)):
        return {}
    return {"explorer": dg.MetadataValue.url(f"{address}/go/{identifier.partition('.')[0]}")}


def _code_reference(file: str, line: int, label: str) -> dg.CodeReferencesMetadataValue:
    """The line of the code. Dagster warns that this is beta; its version is pinned, so the warning is silenced."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        reference = dg.LocalFileCodeReference(file_path=file, line_number=line, label=label)
        return dg.CodeReferencesMetadataValue(code_references=[reference])


def materialization_metadata(
    outcome: TableOutcome,
    declared: Table,
    iceberg: IcebergTable | None,
    shown: BooleanExpression,
    samples: Samples,
    plot: Plot | None,
    documents: IcebergTable | None = None,
) -> dict[str, Any]:
    """Facts of one materialization; sample (of the rows `shown`) and plot only where something was computed.

    Rejected documents are named by their paths, which are those of `documents`.
    """
    latest = outcome.latest
    values: dict[str, Any] = {
        "dagster/row_count": outcome.version.count,
        "data_version": str(outcome.version),
        "increments_computed": ", ".join(outcome.computed) or "none" if outcome.computed != ("",) else "all",
        "increments_computed_count": len(outcome.computed),
        "increments_left": len(outcome.unchanged),
        "seconds": outcome.seconds if outcome.computed or latest is None else latest.seconds,
        "skipped": not outcome.computed,
    }
    if outcome.note:
        values["note"] = outcome.note
    if latest is not None:
        values |= {
            # As text: JavaScript rounds 64-bit numbers.
            "iceberg/snapshot_id": dg.MetadataValue.text(str(latest.snapshot_id)),
            "step_key": latest.step_key,
            "stored_bytes": latest.byte_count,
            "engine": latest.engine or "not known",
        }
        if commands := standards_of_table(latest.table):
            values["standards"] = dg.MetadataValue.md(commands)
    if outcome.computed and iceberg is not None and latest is not None:
        if sample := sample_rows(iceberg, declared, shown, samples):
            values["sample"] = dg.MetadataValue.md(sample)
        if declared.notice is not None:
            rejected = And(parse(declared.notice.rows), shown)
            if sample := sample_rows(iceberg, declared, rejected, samples):
                values[f"{declared.notice.called}_sample"] = dg.MetadataValue.md(sample)
        if judges_documents(declared) and outcome.version.count:
            values["kept_share"] = round(iceberg.scan(EqualTo(KEPT, True)).count() / outcome.version.count, 4)
            rejected = And(EqualTo(KEPT, False), shown)
            if sample := sample_rows(iceberg, declared, rejected, samples, documents):
                values["rejected_sample"] = dg.MetadataValue.md(sample)
        if plot is not None:
            values["plot"] = dg.MetadataValue.md(plot_markdown(iceberg, plot))
    return values


def judges_documents(declared: Table) -> bool:
    """Whether a table says which documents are kept."""
    return any(column.name == KEPT for column in declared.columns)


def in_order(values: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as a page shows them: for people first, hashes last."""
    middle = [name for name in values if name not in _FIRST and name not in _LAST]
    return {name: values[name] for name in (*_FIRST, *middle, *_LAST) if name in values}


def carried_columns(declared: Table, inputs: Mapping[str, Table]) -> dict[str, Any]:
    """Which columns of a table have the name of a column that its step reads, and so carry it on: Dagster's lineage.

    Dagster+ draws it; the open-source UI shows it as JSON behind a click, so it is told as text too.

    Args:
        declared: the table.
        inputs: declarations of the tables that the step reads, by identifier.
    """
    carried = {
        identifier: [
            column.name for column in declared.columns if column.name in {other.name for other in read.columns}
        ]
        for identifier, read in inputs.items()
    }
    lineage: dict[str, list[dg.TableColumnDep]] = {}
    for identifier, names in carried.items():
        for name in names:
            dep = dg.TableColumnDep(asset_key=dg.AssetKey(identifier.split(".")), column_name=name)
            lineage.setdefault(name, []).append(dep)
    text = "; ".join(f"{', '.join(names)} from {identifier}" for identifier, names in carried.items() if names)
    carried_text = {"columns_carried": text} if text else {}
    return {"dagster/column_lineage": dg.TableColumnLineage(lineage), **carried_text}


def notice_counts(declared: Table, iceberg: IcebergTable | None, latest: Materialization | None) -> dict[str, int]:
    """Count the rows of the newest increment that a table's notice is about, by its column, most first."""
    if declared.notice is None or iceberg is None or latest is None:
        return {}
    rows = And(parse(declared.notice.rows), shown_rows(declared, (latest.place,)))
    values = iceberg.scan(rows, (declared.notice.by,)).to_arrow()[declared.notice.by].to_pylist()
    return dict(Counter(map(str, sorted(values))).most_common())


def previous_counts(
    notice: Notice, previous: Mapping[str, Any], latest: Materialization | None
) -> dict[str, int] | None:
    """The counts of a notice that Dagster knows already; None where it does not, so that rows must be read.

    Args:
        notice: of the table.
        previous: metadata of the previous materialization; empty where there is none.
        latest: what the ledger has of the newest increment.
    """
    if latest is None or "step_key" not in previous or previous["step_key"].value != latest.step_key:
        return None  # the increment was computed outside of Dagster
    counts = previous.get(notice.called)
    return {} if counts is None else dict(counts.value)


def notice_metadata(notice: Notice, identifier: str, counts: Mapping[str, int], used_count: int) -> dict[str, Any]:
    """The counts of a notice, and one line with the command that shows the rows.

    Args:
        notice: of the table.
        identifier: of the table.
        counts: rows that the notice is about, by reason.
        used_count: rows of the step's main table, which are those that the notice is not about.

    Returns:
        The counts, the share of those that are not `expected`, and the line; empty where there are none.
    """
    if not counts:
        return {}
    faults = {name: number for name, number in counts.items() if name not in notice.expected}
    left_out = {name: number for name, number in counts.items() if name in notice.expected}
    count = sum(faults.values())
    parts = [f"{count:,} of {count + used_count:,} {notice.called}: {_first(faults)}"] if faults else []
    parts += [f"{sum(left_out.values()):,} left out: {_first(left_out)}"] if left_out else []
    line = "; ".join([*parts, f'look: headrace table show {identifier} --rows 20 --where "{notice.rows}"'])
    share = round(count / (count + used_count), 4) if faults else 0.0
    return {notice.called: dict(counts), f"{notice.called}_share": share, "notice": line}


def _first(counts: Mapping[str, int]) -> str:
    """The first of some counts, as text."""
    more = " .." if len(counts) > _SHOWN_COUNTS else ""
    return ", ".join(f"{name} {number:,}" for name, number in list(counts.items())[:_SHOWN_COUNTS]) + more


def kept_metadata(previous: Mapping[str, Any]) -> dict[str, Any]:
    """Sample and plot of the previous materialization, for one that computed nothing."""
    return {name: previous[name] for name in _KEPT if name in previous}


def drawn_before(previous: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The plot of the previous materialization, where its rows were those of this data version; else nothing."""
    last = previous.get("data_version")
    return {"plot": previous["plot"]} if last is not None and last.value == version and "plot" in previous else {}


def shown_rows(declared: Table, computed: tuple[str, ...]) -> BooleanExpression:
    """Rows of the increment computed last; all rows of a table without increments."""
    return EqualTo("increment", int(computed[-1])) if declared.has_increments and computed else AlwaysTrue()


def sample_rows(
    iceberg: IcebergTable,
    declared: Table,
    shown: BooleanExpression,
    samples: Samples,
    documents: IcebergTable | None = None,
) -> str:
    """A Markdown table of a few rows, each with its path in `documents`; empty without rows to show."""
    if samples is Samples.NONE:
        return ""
    hidden = set(declared.sampled) if samples is Samples.IDS else set()
    names = sorted((column.name for column in declared.all_columns if column.name not in hidden), key=_place)
    rows = first_rows(iceberg, names, _SAMPLE_ROWS, shown).to_pylist()
    if not rows:
        return ""
    if documents is not None and "doc_id" in names and "path" not in names:
        paths = _paths(documents, rows)
        rows = [{**row, "path": paths.get(row["doc_id"], "")} for row in rows]
        names = ["path", *names]
    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    lines += ["| " + " | ".join(_cell(row[name]) for name in names) + " |" for row in rows]
    return "\n".join(lines)


def _paths(documents: IcebergTable, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Paths of the documents of some rows by doc_id, read from the shards of their increments alone."""
    of_rows = {name: {row[name] for row in rows if name in row} for name in ("increment", "shard", "doc_id")}
    wanted = functools.reduce(And, (In(name, values) for name, values in of_rows.items() if values))
    paths = documents.scan(wanted, ("doc_id", "path")).to_arrow()
    return dict(zip(paths["doc_id"].to_pylist(), paths["path"].to_pylist(), strict=True))


def refused_rows(check: CheckResult, samples: Samples) -> dict[str, dg.MetadataValue[Any]]:
    """Some rows that a failed check refused, as far as the policy shows rows; else their keys.

    A table, not Markdown, because Dagster shows it on the page of the check without a click.
    """
    if check.passed:
        return {}
    if samples is Samples.NONE or not check.bad_rows:
        return {"refused": dg.MetadataValue.text("; ".join(check.bad_keys) or "none")}
    schema = dg.TableSchema(columns=[dg.TableColumn(name) for name in check.bad_rows[0]])
    return {"refused": dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in check.bad_rows], schema)}


def plot_markdown(iceberg: IcebergTable, plot: Plot) -> str:
    """The plot as an image inside Markdown, which is what the UI renders."""
    rows: pa.Table = first_rows(iceberg, plot.columns, _PLOT_ROWS)
    picture = base64.b64encode(plot.draw(rows)).decode()
    return f"![{plot.title}](data:image/png;base64,{picture})"


def _place(column: str) -> int:
    """Sort key of a column in a sample: what people read first, hashes last."""
    if column in _READ_FIRST:
        return _READ_FIRST.index(column)
    return len(_READ_FIRST) + column.endswith(("sha256", "_id"))


def _cell(value: Any) -> str:
    """A value on one line, short, safe inside a Markdown table."""
    text = str(value)
    if len(text) > _SAMPLE_CHARACTERS:
        text = f"{text[:_SAMPLE_CHARACTERS]} .."
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("`", "'")
