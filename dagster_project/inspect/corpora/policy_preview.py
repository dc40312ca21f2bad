"""Say what a policy would keep before anything runs: from the columns that its rules read, by Arrow alone.

The rows are those of the newest state of each table, and judged by the same function as in the step `verdicts`
(`spark_jobs.filters.judge`), so a preview and a run that follows it agree document by document. They are read and
counted part by part, so memory does not grow with the documents.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression

from dagster_project.exceptions import CommandError
from dagster_project.inspect.corpora.reviews import Precision, decisions, precision
from dagster_project.inspect.lake.corpus_facts import namespaces_with
from spark_jobs.exceptions import ConfigError, nearest
from spark_jobs.filters.judge import (
    EVIDENCE_RULES,
    LOCK_FILE_RULE,
    MANIFEST_RULE,
    PERSONAL_DATA_RULE,
    Judged,
    evidence,
    judged,
)
from spark_jobs.filters.policy import LANGUAGES, Columns, Policy, Rule, check_signals, signal_columns
from spark_jobs.lake.declare.tables import type_text
from spark_jobs.lake.files.lookups import parts, read_columns
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.session.catalogue import load_table, tables_in
from spark_jobs.registry import scorer_names

BYTES_PER_TOKEN = 4.0
"""Where no corpus has counted tokens of the dataset: about what byte-level BPE of 32,000 to 50,000 entries makes of
English prose; of code it is nearer to 3."""
_NEAR = 10
_NOT_SCORED = frozenset({"increment", "shard", "doc_id", "kind"})

BoolArray = npt.NDArray[np.bool_]
_Near = tuple[float, str, float | None]
"""Distance from a threshold, document, value."""
_Reader = Callable[[str, Sequence[str]], pa.Table]
"""Reads some columns of a table of the dataset, of the rows of one part."""


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
    """Signals of D documents, as `judged` takes them; a part of a dataset.

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


def read_documents(
    catalogue: Catalog,
    dataset: str,
    policies: Sequence[Policy],
    declared: Callable[[], Columns] = dict,
    where: BooleanExpression | None = None,
) -> Iterator[Documents]:
    """What some policies read of a dataset, in parts that fit into memory (`lookups.parts`); at least one.

    Args:
        catalogue: the lake's.
        dataset: its name.
        policies: those that judge.
        declared: gives the columns that the dataset declares, by table; called where a policy reads one that the lake
            does not have.
        where: the documents that are read, few enough for one part; None for all.

    Raises:
        CommandError: the dataset or a table that a policy reads has not been computed, or lacks documents.
        ConfigError: a policy reads a column that is not there, or compares it with what it cannot be.
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
        yield Documents(dataset, _rows(read_table, dataset, wanted, left_out), *tokens, reviewed)


def _refuse_uncomputed(dataset: str, policy: Policy, there: Columns, declared: Columns) -> None:
    """Refuse a policy that reads what is declared and was not computed yet, or what a scorer would measure.

    Raises:
        CommandError: says what to run, or which lines to add to the declaration.
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
    """Size, whether it is evidence, and some columns and keys of the metadata of documents, as rules call them."""
    rows = read("documents", ("doc_id", "byte_count", "metadata", "path", *columns))
    metadata = rows.column("metadata").combine_chunks()
    paths = rows.column("path").combine_chunks()
    found = {name: rows.column(name) for name in ("doc_id", "byte_count")}
    found |= {f"documents.{name}": rows.column(name) for name in columns}
    for key in keys:
        found[f"metadata.{key}"] = pc.map_lookup(metadata, pa.scalar(key, metadata.type.key_type), "first")
    return pa.table({**found, **evidence(paths, metadata, left_out)})


@dataclass
class _Count:
    """Documents and bytes, counted part by part."""

    documents: int = 0
    bytes: int = 0

    def add(self, documents: Documents, chosen: BoolArray) -> None:
        """Count some of the documents of a part."""
        self.documents += int(chosen.sum())
        self.bytes += int(documents.rows.column("byte_count").to_numpy(zero_copy_only=False)[chosen].sum())

    def size(self, bytes_per_token: float) -> Size:
        """What was counted."""
        return Size(self.documents, self.bytes, round(self.bytes / bytes_per_token))


@dataclass
class _RuleTally:
    """What one rule does to the documents, counted part by part; as in `RuleCount`."""

    rule: Rule
    judged: int = 0
    drops: int = 0
    alone: int = 0
    decisions: list[str] = field(default_factory=list)
    failing: list[_Near] = field(default_factory=list)
    passing: list[_Near] = field(default_factory=list)

    def add(self, documents: Documents, one: Judged, failures: npt.NDArray[np.int32]) -> None:
        """Count a part, of which `failures` says how many rules each document fails."""
        ids, decided = documents.rows.column("doc_id"), documents.reviewed.get(self.rule.rule, {})
        places = pc.index_in(pa.array(list(decided), ids.type), value_set=ids).to_pylist() if decided else []
        self.decisions += [
            said for place, said in zip(places, decided.values(), strict=True) if place is not None and one.fails[place]
        ]
        self.judged += int(one.applies.sum())
        self.drops += int(one.fails.sum())
        self.alone += int((one.fails & (failures == 1)).sum())
        self.failing = sorted([*self.failing, *_nearest(ids, one, one.fails)])[:_NEAR]
        self.passing = sorted([*self.passing, *_nearest(ids, one, one.applies & ~one.fails)])[:_NEAR]

    def count(self) -> RuleCount:
        """What was counted."""
        rule, (condition,) = self.rule, self.rule.conditions
        failing, passing = (
            tuple((doc_id, value) for _, doc_id, value in some) for some in (self.failing, self.passing)
        )
        right = precision(rule.rule, self.decisions)
        counts = (self.judged, self.drops, self.alone)
        return RuleCount(rule.rule, rule.kinds, rule.signal, condition, rule.value, *counts, right, failing, passing)


@dataclass
class _Tally:
    """What a policy does to the documents, counted part by part."""

    policy: Policy
    before: _Count = field(default_factory=_Count)
    kept: _Count = field(default_factory=_Count)
    rules: list[_RuleTally] = field(default_factory=list)

    def add(self, documents: Documents) -> tuple[BoolArray, list[Judged]]:
        """Count a part of D documents; gives (D,) whether each is kept, and what each rule says."""
        rows = documents.rows
        found = list(judged(rows, judged_rules(self.policy, rows)))
        failures = np.zeros(rows.num_rows, np.int32)
        for one in found:
            failures += one.fails
        self.rules = self.rules or [_RuleTally(one.rule) for one in found]
        for rule, one in zip(self.rules, found, strict=True):
            rule.add(documents, one, failures)
        self.before.add(documents, np.ones(rows.num_rows, np.bool_))
        self.kept.add(documents, failures == 0)
        return failures == 0, found

    def preview(self, last: Documents) -> Preview:
        """What was counted; `last` is any of the parts."""
        bytes_per_token = last.bytes_per_token
        before, kept = (one.size(bytes_per_token) for one in (self.before, self.kept))
        rules = tuple(rule.count() for rule in self.rules)
        label, digest = self.policy.label, self.policy.content_hash
        return Preview(last.dataset, label, digest, before, kept, bytes_per_token, last.measured, rules)


def judged_rules(policy: Policy, rows: pa.RecordBatch) -> list[Rule]:
    """The rules of a policy with those that stand behind every policy, as far as the rows have what they read."""
    dropping = [PERSONAL_DATA_RULE] if PERSONAL_DATA_RULE.signal in rows.schema.names else []
    return [*policy.rules, *dropping, *EVIDENCE_RULES]


def preview(parts: Iterable[Documents], policy: Policy) -> Preview:
    """What a policy would keep of documents, and what each of its rules drops."""
    tally = _Tally(policy)
    for documents in parts:
        tally.add(documents)
    return tally.preview(documents)


def compare(parts: Iterable[Documents], first: Policy, second: Policy) -> Comparison:
    """What two policies would keep of the same documents, and which rules make the difference."""
    one, two = _Tally(first), _Tally(second)
    kept_by = {name: _Count() for name in ("both", "first", "second", "neither")}
    lost, gained = Counter[str](), Counter[str]()
    examples: dict[str, tuple[str, ...]] = {"first": (), "second": ()}
    for documents in parts:
        (kept_one, found_one), (kept_two, found_two) = one.add(documents), two.add(documents)
        chosen = {
            "both": kept_one & kept_two,
            "first": kept_one & ~kept_two,
            "second": kept_two & ~kept_one,
            "neither": ~kept_one & ~kept_two,
        }
        for name, count in kept_by.items():
            count.add(documents, chosen[name])
        for counts, found, name in ((lost, found_two, "first"), (gained, found_one, "second")):
            for each in found:
                counts[each.rule.rule] += int((each.fails & chosen[name]).sum())
        ids = documents.rows.column("doc_id")
        for name, some in examples.items():
            examples[name] = tuple(sorted([*some, *_least(ids, chosen[name])])[:_NEAR])
    sizes = {name: count.size(documents.bytes_per_token) for name, count in kept_by.items()}
    return Comparison(one.preview(documents), two.preview(documents), sizes, dict(+lost), dict(+gained), examples)


def _nearest(ids: pa.Array, one: Judged, chosen: BoolArray) -> Iterator[_Near]:
    """Documents that are nearest to the threshold, of some; of equals the lowest ids."""
    if one.rule.threshold is None:
        yield from ((0.0, doc_id, None) for doc_id in _least(ids, chosen))
        return
    places = np.flatnonzero(chosen & one.values.is_valid().to_numpy(zero_copy_only=False))
    values = one.values.to_numpy(zero_copy_only=False)[places]
    far = np.abs(values - one.rule.threshold)
    if len(places) > _NEAR:
        last = np.partition(far, _NEAR - 1)[_NEAR - 1]
        close = np.flatnonzero(far <= last)
        places, values, far = places[close], values[close], far[close]
    table = pa.table({"far": far, "id": ids.take(pa.array(places)), "value": values})
    order = pc.select_k_unstable(table, _NEAR, [("far", "ascending"), ("id", "ascending")])
    yield from zip(*(table.take(order)[name].to_pylist() for name in table.column_names), strict=True)


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


def _read(catalogue: Catalog, dataset: str, part: BooleanExpression, table: str, columns: Sequence[str]) -> pa.Table:
    found = read_columns(catalogue, f"{dataset}.{table}", tuple(dict.fromkeys(columns)), part)
    if found is None:
        raise CommandError(f"{dataset}.{table} has not been computed; run `headrace run {dataset}.{table}` first")
    return found


def _aligned(rows: pa.Table, ids: pa.ChunkedArray) -> pa.Table:
    """The rows of some documents, in their order; nulls where a document has none."""
    own = rows.column("doc_id")
    if own.equals(ids):
        return rows
    return rows.take(pc.index_in(ids, value_set=own.cast(ids.type)))


def _leaves_out(catalogue: Catalog, dataset: str) -> set[Rule]:
    """The rules by which the verdicts, as they were last computed, left evidence out for its name."""
    ledger = Ledger.fresh(catalogue)
    rows = list(ledger.increments_there(f"{dataset}.verdicts").values())
    config = json.loads(rows[-1].config) if rows else {}
    chosen = {MANIFEST_RULE: config.get("manifests"), LOCK_FILE_RULE: config.get("lock_files", "leave_out")}
    return {rule for rule, choice in chosen.items() if choice == "leave_out"}


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
