"""Read the columns of a dataset for the rules of policies, in parts of bounded memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression

from dagster_project.exceptions import CommandError
from dagster_project.inspect.corpora.reviews import decisions
from dagster_project.inspect.lake.corpus_facts import namespaces_with
from headrace.tables.catalogue import load_table, tables_in
from spark_jobs.exceptions import ConfigError, nearest
from spark_jobs.filters.judge import (
    LOCK_FILE_RULE,
    MANIFEST_RULE,
    PERSONAL_DATA_RULE,
    evidence,
)
from spark_jobs.filters.policy import LANGUAGES, Columns, Policy, Rule, check_signals, signal_columns
from spark_jobs.lake.declare.column_types import type_text
from spark_jobs.lake.files.lookups import parts, read_columns
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.registry import scorer_names

BYTES_PER_TOKEN = 4.0
"""Assumed if no corpus has counted tokens of the dataset: about right for byte-level BPE with 32,000 to 50,000 entries
on English prose; on code it is nearer to 3."""
_NOT_SCORED = frozenset({"increment", "shard", "doc_id", "kind"})
BoolArray = npt.NDArray[np.bool_]
_Reader = Callable[[str, Sequence[str]], pa.Table]
"""Reads some columns of a table of the dataset, for the rows of one part."""


@dataclass(frozen=True)
class MeasuredDocuments:
    """A part of a dataset: D documents with the columns for rules.

    Attributes:
        dataset: its name.
        rows: doc_id, kind, byte_count and the signals.
        bytes_per_token: for an estimate of tokens.
        measured: whether a corpus has counted it; else it is `BYTES_PER_TOKEN`.
        reviewed: the decisions of reviewers, by rule and document.
    """

    dataset: str
    rows: pa.RecordBatch
    bytes_per_token: float
    measured: bool
    reviewed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def read_documents(
    catalogue: Catalog,
    dataset: str,
    policies: Sequence[Policy],
    declared: Callable[[], Columns] = dict,
    where: BooleanExpression | None = None,
) -> Iterator[MeasuredDocuments]:
    """Read the columns for some policies, in parts of bounded memory (`lookups.parts`); at least one part.

    Args:
        catalogue: the lake's.
        dataset: its name.
        policies: the policies.
        declared: returns the dataset's declared columns, by table; called if the lake lacks a column.
        where: the documents to read, few enough for one part; None for all.

    Raises:
        CommandError: the dataset or a policy's table has not been computed, or lacks documents.
        ConfigError: a policy reads a missing column, or compares it with what it cannot be.
    """
    known = namespaces_with(catalogue, "signals")
    if dataset not in known:
        raise CommandError(f"{dataset}: no signals have been computed{nearest(dataset, known)}; headrace run {dataset}")
    there = signal_columns(_scored(catalogue, dataset))
    for policy in policies:
        try:
            check_signals(policy, there)
        except ConfigError:
            _refuse_uncomputed(dataset, policy, there, declared())
            raise
    wanted: dict[str, list[str]] = {"signals": []}
    for policy in policies:
        for table, read in policy.tables.items():
            wanted.setdefault(table, []).extend(read)
    audit, count = PERSONAL_DATA_RULE.source
    if count in _scored(catalogue, dataset).get(audit, {}):
        wanted[audit] = [*dict.fromkeys([*wanted.get(audit, []), count])]
    if any(policy.asks_language for policy in policies):
        wanted.setdefault("documents", []).append("language")
        if load_table(catalogue, f"{dataset}.{LANGUAGES}") is not None:
            wanted.setdefault(LANGUAGES, []).append("language")
    reviewed, left_out = decisions(catalogue, dataset), _leaves_out(catalogue, dataset)
    tokens = _bytes_per_token(catalogue, dataset)
    for part in parts(catalogue, f"{dataset}.signals") if where is None else [where]:
        read_table = partial(_read, catalogue, dataset, part)
        yield MeasuredDocuments(dataset, _rows(read_table, dataset, wanted, left_out), *tokens, reviewed)


def _refuse_uncomputed(dataset: str, policy: Policy, there: Columns, declared: Columns) -> None:
    """Refuse a policy reading columns declared but not computed yet, or of a scorer not declared.

    Raises:
        CommandError: says what to run, or the lines to add to the declaration.
    """
    lacking = [table for table in policy.tables if table in scorer_names() and table not in {*there, *declared}]
    if lacking:
        lines = ", ".join(f"{name}: {{}}" for name in lacking)
        tables = " ".join(f"{dataset}.{name}" for name in lacking)
        names = " and no ".join(map(repr, lacking))
        raise CommandError(
            f"policy {policy.label}: there is no scorer {names} in {dataset}; add to attributes of its declaration "
            f"`scorers: {{{lines}}}`, or to `scorers` where that is there, then: headrace run {tables}"
        )
    for table, column in (rule.source for rule in policy.rules):
        if column not in there.get(table, ()) and column in declared.get(table, ()):
            name = f"{dataset}.{table}"
            what = f"column {column} of {name}" if table in there else name
            raise CommandError(f"policy {policy.label}: {what} has not been computed yet; first: headrace run {name}")


def _rows(
    read: _Reader, dataset: str, wanted: Mapping[str, Sequence[str]], left_out: Collection[Rule]
) -> pa.RecordBatch:
    """The rows of one part: doc_id, kind, byte_count, and what is wanted of each table."""
    signals = read("signals", ("doc_id", "kind", *wanted["signals"]))
    ids = signals.column("doc_id")
    arrays = {name: signals.column(name) for name in signals.column_names}
    facts = _aligned(_facts(read, wanted.get("documents", ()), wanted.get("metadata", ()), left_out), ids)
    arrays |= {name: facts.column(name) for name in facts.column_names if name != "doc_id"}
    for table, names in wanted.items():
        if table in ("signals", "documents", "metadata"):
            continue
        scored = read(table, ("doc_id", *names))
        there = pc.is_in(ids, scored.column("doc_id").cast(ids.type))
        if missing := len(ids) - (pc.sum(there).as_py() or 0):
            name = f"{dataset}.{table}"
            raise CommandError(
                f"{name} lacks {missing:,} of {len(ids):,} documents looked at; run `headrace run {name}` first"
            )
        rows = _aligned(scored, ids)
        arrays |= {f"{table}.{name}": rows.column(name) for name in names}
    return pa.RecordBatch.from_pydict({name: one.combine_chunks() for name, one in arrays.items()})


def _facts(read: _Reader, columns: Sequence[str], keys: Sequence[str], left_out: Collection[Rule]) -> pa.Table:
    """Columns of `documents` and keys of its metadata, by the names in rules, with size and whether it is evidence."""
    rows = read("documents", ("doc_id", "byte_count", "metadata", "path", *columns))
    metadata = rows.column("metadata").combine_chunks()
    paths = rows.column("path").combine_chunks()
    found = {name: rows.column(name) for name in ("doc_id", "byte_count")}
    found |= {f"documents.{name}": rows.column(name) for name in columns}
    for key in keys:
        found[f"metadata.{key}"] = pc.map_lookup(metadata, pa.scalar(key, metadata.type.key_type), "first")
    return pa.table({**found, **evidence(paths, metadata, left_out)})


def _scored(catalogue: Catalog, dataset: str) -> dict[str, dict[str, str]]:
    """Types of the columns of scorers' tables: those of the dataset's tables with one row for each text."""
    found = {}
    for identifier in tables_in(catalogue, dataset):
        table = load_table(catalogue, identifier)
        columns = {one.name: type_text(one.field_type) for one in table.schema().fields} if table is not None else {}
        if columns.keys() >= _NOT_SCORED:
            found[identifier.split(".")[1]] = {name: kind for name, kind in columns.items() if name not in _NOT_SCORED}
    return {
        name: columns for name, columns in found.items() if name not in ("documents", "signals", "raw_texts", "texts")
    }


def _read(catalogue: Catalog, dataset: str, part: BooleanExpression, table: str, columns: Sequence[str]) -> pa.Table:
    found = read_columns(catalogue, f"{dataset}.{table}", tuple(dict.fromkeys(columns)), part)
    if found is None:
        raise CommandError(f"{dataset}.{table} has not been computed; run `headrace run {dataset}.{table}` first")
    return found


def _aligned(rows: pa.Table, ids: pa.ChunkedArray) -> pa.Table:
    """The rows in the order of some documents; nulls for a document without a row."""
    keys = rows.column("doc_id")
    return rows if keys.equals(ids) else rows.take(pc.index_in(ids, value_set=keys.cast(ids.type)))


def _leaves_out(catalogue: Catalog, dataset: str) -> set[Rule]:
    """The evidence rules (manifests, lock files) of the verdicts' last computation."""
    ledger = Ledger.fresh(catalogue)
    rows = list(ledger.increments_there(f"{dataset}.verdicts").values())
    config = json.loads(rows[-1].config) if rows else {}
    chosen = {MANIFEST_RULE: config.get("manifests"), LOCK_FILE_RULE: config.get("lock_files", "leave_out")}
    return {rule for rule, choice in chosen.items() if choice == "leave_out"}


def _bytes_per_token(catalogue: Catalog, dataset: str) -> tuple[float, bool]:
    """Bytes of UTF-8 per token of a dataset, by the counts of all corpora with it; and whether there are any."""
    tokens = count = 0
    for corpus in namespaces_with(catalogue, "token_statistics"):
        rows = read_columns(catalogue, f"{corpus}.token_statistics", ("dataset", "token_count", "byte_count"))
        if rows is not None:
            own = rows.filter(pc.equal(rows["dataset"], dataset))
            tokens += pc.sum(own["token_count"]).as_py() or 0
            count += pc.sum(own["byte_count"]).as_py() or 0
    return (count / tokens, True) if tokens else (BYTES_PER_TOKEN, False)
