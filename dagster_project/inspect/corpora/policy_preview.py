"""Preview a policy without running a step: how many documents it would keep, and how many each of its rules drops.

The newest rows of each table (`rule_inputs`) are judged by the function of the step `verdicts`
(`spark_jobs.filters.judge`), so a preview and a later run agree document by document. They are counted part by part, so
memory does not grow with the number of documents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dagster_project.inspect.corpora.reviews import Precision, precision
from dagster_project.inspect.corpora.rule_inputs import BoolArray, MeasuredDocuments
from spark_jobs.filters.judge import (
    EVIDENCE_RULES,
    PERSONAL_DATA_RULE,
    RuleResult,
    judged,
)
from spark_jobs.filters.policy import Policy, Rule

_NEAR = 10

_Near = tuple[float, str, float | None]
"""Distance from a threshold, document, value."""


@dataclass(frozen=True)
class RuleCount:
    """What one rule does to the documents.

    Attributes:
        rule: its name.
        kinds: kinds of documents that it holds for; empty for all.
        signal: what it judges.
        condition: below, above, is or not_in.
        threshold: what values are compared with.
        judged: documents in its scope.
        drops: documents failing it.
        alone: those failing no other rule.
        precision: how often people found it right, of its dropped and reviewed documents.
        failing: ids and values of those that fail and are nearest to the threshold; ids alone where it is no number.
        passing: the same of those not failing.
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
class DocumentVolume:
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
        kept: those failing no rule.
        bytes_per_token: for estimates of tokens.
        measured: whether a corpus has counted it; else it is `BYTES_PER_TOKEN`.
        rules: in the order of the policy.
    """

    dataset: str
    policy: str
    content_hash: str
    before: DocumentVolume
    kept: DocumentVolume
    bytes_per_token: float
    measured: bool
    rules: tuple[RuleCount, ...]


@dataclass(frozen=True)
class PolicyComparison:
    """Two policies on one dataset.

    Attributes:
        first: what the first would do.
        second: what the second would do.
        kept_by: documents kept by `both`, by the `first` alone, the `second` alone, by `neither`.
        lost: by rule of the second, documents kept by the first and dropped by the rule.
        gained: by rule of the first, documents kept by the second and dropped by the rule.
        examples: ids of documents kept by the `first` or the `second` alone.
    """

    first: Preview
    second: Preview
    kept_by: Mapping[str, DocumentVolume]
    lost: Mapping[str, int]
    gained: Mapping[str, int]
    examples: Mapping[str, tuple[str, ...]]


@dataclass
class _Count:
    """Documents and bytes, counted part by part."""

    documents: int = 0
    bytes: int = 0

    def add(self, documents: MeasuredDocuments, chosen: BoolArray) -> None:
        """Count some of the documents of a part."""
        self.documents += int(chosen.sum())
        self.bytes += int(documents.rows.column("byte_count").to_numpy(zero_copy_only=False)[chosen].sum())

    def size(self, bytes_per_token: float) -> DocumentVolume:
        """What was counted."""
        return DocumentVolume(self.documents, self.bytes, round(self.bytes / bytes_per_token))


@dataclass
class _RuleTally:
    """The counts of one rule, added up part by part; fields as in `RuleCount`."""

    rule: Rule
    judged: int = 0
    drops: int = 0
    alone: int = 0
    decisions: list[str] = field(default_factory=list)
    failing: list[_Near] = field(default_factory=list)
    passing: list[_Near] = field(default_factory=list)

    def add(self, documents: MeasuredDocuments, one: RuleResult, failures: npt.NDArray[np.int32]) -> None:
        """Count a part; `failures` has the number of failed rules of each document."""
        ids, decided = documents.rows.column("doc_id"), documents.reviewed.get(self.rule.rule, {})
        rows = pc.index_in(pa.array(list(decided), ids.type), value_set=ids).to_pylist() if decided else []
        self.decisions += [
            decision for row, decision in zip(rows, decided.values(), strict=True) if row is not None and one.fails[row]
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
    """The counts of a policy and its rules, added up part by part."""

    policy: Policy
    before: _Count = field(default_factory=_Count)
    kept: _Count = field(default_factory=_Count)
    rules: list[_RuleTally] = field(default_factory=list)

    def add(self, documents: MeasuredDocuments) -> tuple[BoolArray, list[RuleResult]]:
        """Count a part of D documents; returns (D,) whether each is kept, and the result of each rule."""
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

    def preview(self, last: MeasuredDocuments) -> Preview:
        """What was counted; `last` is any of the parts."""
        bytes_per_token = last.bytes_per_token
        before, kept = (one.size(bytes_per_token) for one in (self.before, self.kept))
        rules = tuple(rule.count() for rule in self.rules)
        label, digest = self.policy.label, self.policy.content_hash
        return Preview(last.dataset, label, digest, before, kept, bytes_per_token, last.measured, rules)


def judged_rules(policy: Policy, rows: pa.RecordBatch) -> list[Rule]:
    """The rules of a policy, then those of every policy, if the rows have their columns."""
    dropping = [PERSONAL_DATA_RULE] if PERSONAL_DATA_RULE.signal in rows.schema.names else []
    return [*policy.rules, *dropping, *EVIDENCE_RULES]


def preview(parts: Iterable[MeasuredDocuments], policy: Policy) -> Preview:
    """Count the documents kept by a policy, and those dropped by each of its rules."""
    tally = _Tally(policy)
    for documents in parts:
        tally.add(documents)
    return tally.preview(documents)


def compare(parts: Iterable[MeasuredDocuments], first: Policy, second: Policy) -> PolicyComparison:
    """Count the documents kept by two policies, both or one alone, and the rules behind the difference."""
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
    return PolicyComparison(one.preview(documents), two.preview(documents), sizes, dict(+lost), dict(+gained), examples)


def _nearest(ids: pa.Array, one: RuleResult, chosen: BoolArray) -> Iterator[_Near]:
    """Of the chosen documents those with values nearest to the threshold, at most `_NEAR`; lowest ids first."""
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
    """The lowest ids of the chosen documents, at most `_NEAR`."""
    some = ids.filter(pa.array(chosen))
    return tuple(some.take(pc.select_k_unstable(some, _NEAR, [("", "ascending")])).to_pylist())
