"""A dataset, a corpus or a packed table in the facts that standards ask for, as far as a lake has them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable

from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.counted import documents_that_count
from dagster_project.inspect.lake.corpus_facts import find_corpus, landed_source, namespaces_with
from headrace.tables.catalogue import load_table
from headrace_features.rights.summary.summary_counts import corpus_parts, count, in_windows
from spark_jobs.exceptions import nearest
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.sources.licences.expressions import ids_in

_COLUMNS = ("licence", "language")

Groups = list[tuple[str | None, int, int]]
"""Value of a column, documents, and their measure."""


@dataclass(frozen=True)
class Described:
    """What is described.

    Attributes:
        name: of a dataset, corpus or packed table.
        kind: which of these.
        tables: with its rows, by identifier.
        sources: config of each dataset's source, as it was last computed.
        licences: expressions with documents, None for documents without.
        languages: of the documents.
        unit: of the measure of groups, bytes or tokens.
        steps: that computed it and what is before it, with the versions of their code.
        landed: when its first and its last documents landed.
        version: a digest of its tables' snapshots, 16 hex digits.
    """

    name: str
    kind: str
    tables: Mapping[str, IcebergTable]
    sources: Mapping[str, Mapping[str, Any]]
    licences: Groups
    languages: Groups
    unit: str
    steps: tuple[str, ...]
    landed: tuple[datetime, ...]
    version: str

    @property
    def documents(self) -> int:
        """How many documents it has."""
        return sum(documents for _, documents, _ in self.licences)

    @property
    def measure(self) -> int:
        """Its bytes or tokens."""
        return sum(measure for _, _, measure in self.licences)

    @property
    def licence_ids(self) -> list[str]:
        """The names of the licences in all expressions, sorted."""
        return sorted({name for licence, _, _ in self.licences if licence for name in ids_in(licence)})

    @property
    def about(self) -> str:
        """A line about it."""
        of = "" if self.kind == "dataset" else f" of {', '.join(self.sources)}"
        return f"{self.kind} {self.name}{of}: {self.documents:,} documents, {self.measure:,} {self.unit}"

    @property
    def collection(self) -> str:
        """How it was collected: the sources as they are declared."""
        declared = {name: source for name, source in self.sources.items() if source}
        return "; ".join(f"{name}: {json.dumps(source, ensure_ascii=False)}" for name, source in declared.items())


def describe(catalogue: Catalog, name: str) -> Described:
    """Describe a dataset, a corpus (its packed tables), or one packed table.

    Raises:
        CommandError: there is none of this name, or nothing in it.
    """
    ledger, (space, _, packed) = Ledger.fresh(catalogue), name.partition(".")
    datasets, corpora = namespaces_with(catalogue, "documents"), namespaces_with(catalogue, "members")
    if name in datasets:
        rows = documents_that_count(catalogue, name, (*_COLUMNS, "byte_count"))
        licences, languages = (_groups(rows, column) for column in _COLUMNS)
        kind, unit, identifiers, sources = "dataset", "bytes", [f"{name}.documents"], [name]
    elif space in corpora:
        facts = find_corpus(catalogue, space)
        every = [table for table in sorted(facts.tables) if table.startswith("packed_")]
        read = [corpus_parts(catalogue, facts, table) for table in ([packed] if packed else every or [""])]
        counts = count(catalogue, name, [in_windows([parts]) for _, parts in read])
        licences, languages = (list(counts.by(column)) for column in _COLUMNS)
        kind, identifiers = "packed table" if packed else "corpus", [identifier for identifier, _ in read]
        unit, sources = "tokens", list(facts.datasets)
    else:
        near = nearest(space, datasets + corpora)
        raise CommandError(f"{name}: no dataset, corpus or packed table of this name{near}; headrace status lists them")
    loaded = {identifier: load_table(catalogue, identifier) for identifier in identifiers}
    tables = {identifier: table for identifier, table in loaded.items() if table is not None}
    landings = [load_table(catalogue, f"{dataset}.documents") for dataset in sources]
    times = sorted(entry.timestamp_ms for landing in landings if landing is not None for entry in landing.history())
    state = "\n".join(f"{identifier} {table.metadata.current_snapshot_id}" for identifier, table in tables.items())
    return Described(
        name, kind, tables, {dataset: landed_source(ledger, dataset) for dataset in sources}, licences, languages, unit,
        tuple(_steps(ledger, {space, *sources})),
        tuple(datetime.fromtimestamp(moment / 1000, UTC) for moment in [*times[:1], *times[1:][-1:]]),
        hashlib.sha256(f"{name}\n{state}".encode()).hexdigest()[:16],
    )  # fmt: skip


def _groups(rows: pa.Table, column: str) -> Groups:
    groups = rows.group_by(column).aggregate([([], "count_all"), ("byte_count", "sum")])
    ordered = groups.sort_by([("count_all", "descending"), (column, "ascending")]).to_pylist()
    return [(row[column], row["count_all"], row["byte_count_sum"]) for row in ordered]


def _steps(ledger: Ledger, spaces: set[str]) -> list[str]:
    tables = [table for table in ledger.recorded_tables() if table.partition(".")[0] in spaces]
    rows = {(table, row.step, row.code_version) for table in tables for row in ledger.places(table).values()}
    return [f"{table}: step {step}, code version {version}" for table, step, version in sorted(rows)]
