"""Say what a policy would keep before anything runs: from the columns that its rules read, by Arrow alone.

The rows are those of the newest state of each table, and judged by the same function as in the step `verdicts`
(`spark_jobs.filters.judge`), so a preview and a run that follows it agree document by document.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog

from dagster_project.exceptions import CommandError
from dagster_project.inspect.corpora.reviews import Precision, decisions, precision
from dagster_project.inspect.lake.corpus_facts import namespaces_with
from spark_jobs.exceptions import nearest
from spark_jobs.filters.judge import (
    MANIFEST_COLUMN,
    MANIFEST_RULE,
    PERSONAL_DATA_RULE,
    Judged,
    judged,
    manifests,
)
from spark_jobs.filters.policy import LANGUAGES, Policy, check_signals, signal_columns
from spark_jobs.lake.declare.tables import type_text
from spark_jobs.lake.files.lookups import read_columns
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.session.catalogue import load_table, tables_in

BYTES_PER_TOKEN = 4.0
"""Where no corpus has counted tokens of the dataset: about what byte-level BPE of 32,000 to 50,000 entries makes of
English prose; of code it is nearer to 3."""
_NEAR = 10
_NOT_SCORED = frozenset({"increment", "shard", "doc_id", "kind"})

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RuleCount:
    """What one rule does to the documents.

    Attributes:
        rule: its name.
        kinds: kinds of documents that it holds for; empty for all.
        signal: what it judges.
        condition: below, above, is or not_in.
        threshold: what values are compared with.
        judged: documents that it holds for.
        drops: documents that fail it.
        alone: those that fail no other rule.
        precision: how often people found it right, of the documents that it drops and that were reviewed.
        failing: ids and values of those that fail and are nearest to the threshold; ids alone where it is no number.
        passing: the same of those that do not fail.
    """

    rule: str
    kinds: tuple[str, ...]
    signal: str
    condition: str
    threshold: Any
    judged: int
    drops: int
    alone: int
    precision: Precision
    failing: tuple[tuple[str, float | None], ...]
    passing: tuple[tuple[str, float | None], ...]


@dataclass(frozen=True)
class Size:
    """Documents with their bytes and an estimate of their tokens."""

    documents: int
    bytes: int
    tokens: int


@dataclass(frozen=True)
class Preview:
    """What a policy would do to a dataset.

    Attributes:
        dataset: its name.
        policy: name@version.
        content_hash: of the policy.
        before: all documents.
        kept: those that fail no rule.
        bytes_per_token: by which tokens are estimated.
        measured: whether a corpus has counted it; else it is `BYTES_PER_TOKEN`.
        rules: in the order of the policy.
    """

    dataset: str
    policy: str
    content_hash: str
    before: Size
    kept: Size
    bytes_per_token: float
    measured: bool
    rules: tuple[RuleCount, ...]


@dataclass(frozen=True)
class Comparison:
    """Two policies on one dataset.

    Attributes:
        first: what the first would do.
        second: what the second would do.
        kept_by: documents kept by `both`, by the `first` alone, the `second` alone, by `neither`.
        lost: by rule of the second, documents that the first keeps and the rule drops.
        gained: by rule of the first, documents that the second keeps and the rule drops.
        examples: ids of documents that are kept by the `first` or the `second` alone.
    """

    first: Preview
    second: Preview
    kept_by: Mapping[str, Size]
    lost: Mapping[str, int]
    gained: Mapping[str, int]
    examples: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Documents:
    """Signals of D documents, as `judged` takes them.

    Attributes:
        dataset: its name.
        rows: doc_id, kind, byte_count and the signals.
        bytes_per_token: by which tokens are estimated.
        measured: whether a corpus has counted it.
        reviewed: what people decided, by rule and document.
    """

    dataset: str
    rows: pa.RecordBatch
    bytes_per_token: float
    measured: bool
    reviewed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def size(self, chosen: BoolArray) -> Size:
        """Size of some of the documents."""
        count = int(self.rows.column("byte_count").to_numpy(zero_copy_only=False)[chosen].sum())
        return Size(int(chosen.sum()), count, round(count / self.bytes_per_token))


def read_documents(catalogue: Catalog, dataset: str, policies: Sequence[Policy]) -> Documents:
    """What some policies read of a dataset.

    Raises:
        CommandError: the dataset or a table that a policy reads has not been computed, or lacks documents.
        ConfigError: a policy reads a column that is not there, or compares it with what it cannot be.
    """
    known = namespaces_with(catalogue, "signals")
    if dataset not in known:
        raise CommandError(f"{dataset}: no signals have been computed{nearest(dataset, known)}; headrace run {dataset}")
    for policy in policies:
        check_signals(policy, signal_columns(_scored(catalogue, dataset)))
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
    keys, columns = wanted.pop("metadata", []), wanted.pop("documents", [])
    signals = _read(catalogue, dataset, "signals", ("doc_id", "kind", *wanted.pop("signals")))
    ids = signals.column("doc_id")
    arrays = {name: signals.column(name) for name in signals.column_names}
    facts = _aligned(_facts(catalogue, dataset, columns, keys), ids)
    arrays |= {name: facts.column(name) for name in facts.column_names if name != "doc_id"}
    for table, names in wanted.items():
        scored = _read(catalogue, dataset, table, ("doc_id", *names))
        there = pc.is_in(ids, scored.column("doc_id").cast(ids.type))
        if missing := len(ids) - (pc.sum(there).as_py() or 0):
            name = f"{dataset}.{table}"
            raise CommandError(f"{name} lacks {missing:,} of {len(ids):,} documents; run `headrace run {name}` first")
        rows = _aligned(scored, ids)
        arrays |= {f"{table}.{name}": rows.column(name) for name in names}
    whole = {name: one.combine_chunks() for name, one in arrays.items()}
    reviewed = decisions(catalogue, dataset)
    return Documents(dataset, pa.RecordBatch.from_pydict(whole), *_bytes_per_token(catalogue, dataset), reviewed)


def _facts(catalogue: Catalog, dataset: str, columns: Sequence[str], keys: Sequence[str]) -> pa.Table:
    """Size, manifest, and some columns and keys of the metadata of all documents, as rules call them."""
    by_name = _leaves_out_manifests(catalogue, dataset)
    wanted = ("doc_id", "byte_count", "metadata", *(("path",) if by_name else ()), *columns)
    rows = _read(catalogue, dataset, "documents", wanted)
    metadata = rows.column("metadata").combine_chunks()
    paths = rows.column("path").combine_chunks() if by_name else pa.nulls(len(rows), pa.string())
    found = {name: rows.column(name) for name in ("doc_id", "byte_count")}
    found |= {f"documents.{name}": rows.column(name) for name in columns}
    for key in keys:
        found[f"metadata.{key}"] = pc.map_lookup(metadata, pa.scalar(key, metadata.type.key_type), "first")
    return pa.table({**found, MANIFEST_COLUMN: manifests(paths, metadata, by_name)})


def preview(documents: Documents, policy: Policy) -> Preview:
    """What a policy would keep of documents, and what each of its rules drops."""
    return _previewed(documents, policy)[0]


def compare(documents: Documents, first: Policy, second: Policy) -> Comparison:
    """What two policies would keep of the same documents, and which rules make the difference."""
    (one, kept_one, found_one), (two, kept_two, found_two) = (
        _previewed(documents, policy) for policy in (first, second)
    )
    parts = {
        "both": kept_one & kept_two,
        "first": kept_one & ~kept_two,
        "second": kept_two & ~kept_one,
        "neither": ~kept_one & ~kept_two,
    }
    ids = documents.rows.column("doc_id")

    def by_rule(found: Sequence[Judged], chosen: BoolArray) -> dict[str, int]:
        counts: dict[str, int] = {}
        for each in found:
            if count := int((each.fails & chosen).sum()):
                counts[each.rule.rule] = counts.get(each.rule.rule, 0) + count
        return counts

    return Comparison(
        one,
        two,
        {name: documents.size(chosen) for name, chosen in parts.items()},
        by_rule(found_two, parts["first"]),
        by_rule(found_one, parts["second"]),
        {name: _least(ids, parts[name]) for name in ("first", "second")},
    )


def _previewed(documents: Documents, policy: Policy) -> tuple[Preview, BoolArray, list[Judged]]:
    """The preview, (D,) whether each document is kept, and what each rule says."""
    rows = documents.rows
    dropping = [PERSONAL_DATA_RULE] if PERSONAL_DATA_RULE.signal in rows.schema.names else []
    found = list(judged(rows, [*policy.rules, *dropping, MANIFEST_RULE]))
    failures = np.zeros(rows.num_rows, np.int32)
    for one in found:
        failures += one.fails
    kept = failures == 0
    counts = tuple(_count(documents, one, failures) for one in found)
    made = Preview(
        documents.dataset,
        policy.label,
        policy.content_hash,
        documents.size(np.ones(rows.num_rows, np.bool_)),
        documents.size(kept),
        documents.bytes_per_token,
        documents.measured,
        counts,
    )
    return made, kept, found


def _count(documents: Documents, one: Judged, failures: npt.NDArray[np.int32]) -> RuleCount:
    rule, ids = one.rule, documents.rows.column("doc_id")
    decided = documents.reviewed.get(rule.rule, {})
    places = pc.index_in(pa.array(list(decided), ids.type), value_set=ids).to_pylist() if decided else []
    dropped = [
        said for place, said in zip(places, decided.values(), strict=True) if place is not None and one.fails[place]
    ]
    passes = one.applies & ~one.fails
    condition = rule.conditions[0]
    return RuleCount(
        rule.rule,
        rule.kinds,
        rule.signal,
        condition,
        rule.value,
        int(one.applies.sum()),
        int(one.fails.sum()),
        int((one.fails & (failures == 1)).sum()),
        precision(rule.rule, dropped),
        _nearest(ids, one, one.fails),
        _nearest(ids, one, passes),
    )


def _nearest(ids: pa.Array, one: Judged, chosen: BoolArray) -> tuple[tuple[str, float | None], ...]:
    """Ids and values of the documents that are nearest to the threshold, of some; of equals the lowest ids."""
    if one.rule.threshold is None:
        return tuple((doc_id, None) for doc_id in _least(ids, chosen))
    places = np.flatnonzero(chosen & one.values.is_valid().to_numpy(zero_copy_only=False))
    values = one.values.to_numpy(zero_copy_only=False)[places]
    far = np.abs(values - one.rule.threshold)
    if len(places) > _NEAR:
        last = np.partition(far, _NEAR - 1)[_NEAR - 1]
        close = np.flatnonzero(far <= last)
        places, values, far = places[close], values[close], far[close]
    table = pa.table({"far": far, "id": ids.take(pa.array(places)), "value": values})
    order = pc.select_k_unstable(table, _NEAR, [("far", "ascending"), ("id", "ascending")])
    rows = table.take(order)
    return tuple(zip(rows["id"].to_pylist(), rows["value"].to_pylist(), strict=True))


def _least(ids: pa.Array, chosen: BoolArray) -> tuple[str, ...]:
    """The lowest ids of some documents."""
    some = ids.filter(pa.array(chosen))
    return tuple(some.take(pc.select_k_unstable(some, _NEAR, [("", "ascending")])).to_pylist())


def _scored(catalogue: Catalog, dataset: str) -> dict[str, dict[str, str]]:
    """Types of columns of the dataset's tables that have a row per text, as a scorer's have."""
    found = {}
    for identifier in tables_in(catalogue, dataset):
        table = load_table(catalogue, identifier)
        columns = {one.name: type_text(one.field_type) for one in table.schema().fields} if table is not None else {}
        if columns.keys() >= _NOT_SCORED:
            found[identifier.split(".")[1]] = {name: kind for name, kind in columns.items() if name not in _NOT_SCORED}
    return {
        name: columns for name, columns in found.items() if name not in ("documents", "signals", "raw_texts", "texts")
    }


def _read(catalogue: Catalog, dataset: str, table: str, columns: Sequence[str]) -> pa.Table:
    found = read_columns(catalogue, f"{dataset}.{table}", tuple(dict.fromkeys(columns)))
    if found is None:
        raise CommandError(f"{dataset}.{table} has not been computed; run `headrace run {dataset}.{table}` first")
    return found


def _aligned(rows: pa.Table, ids: pa.ChunkedArray) -> pa.Table:
    """The rows of some documents, in their order; nulls where a document has none."""
    own = rows.column("doc_id")
    if own.equals(ids):
        return rows
    return rows.take(pc.index_in(ids, value_set=own.cast(ids.type)))


def _leaves_out_manifests(catalogue: Catalog, dataset: str) -> bool:
    """Whether the verdicts were last computed with `manifests: leave_out`."""
    ledger = Ledger.fresh(catalogue)
    rows = list(ledger.increments_there(f"{dataset}.verdicts").values())
    return bool(rows) and json.loads(rows[-1].config).get("manifests") == "leave_out"


def _bytes_per_token(catalogue: Catalog, dataset: str) -> tuple[float, bool]:
    """Bytes of UTF-8 per token of a dataset, as the corpora that tokenized it counted them, and whether one did."""
    tokens = count = 0
    for corpus in namespaces_with(catalogue, "token_statistics"):
        rows = read_columns(catalogue, f"{corpus}.token_statistics", ("dataset", "token_count", "byte_count"))
        if rows is not None:
            own = rows.filter(pc.equal(rows["dataset"], dataset))
            tokens += pc.sum(own["token_count"]).as_py() or 0
            count += pc.sum(own["byte_count"]).as_py() or 0
    return (count / tokens, True) if tokens else (BYTES_PER_TOKEN, False)
