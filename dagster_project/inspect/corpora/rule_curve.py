"""What every threshold of one rule would keep, so that a threshold can be moved while somebody watches.

The documents that a rule holds for are sorted by their value once, with running sums of those that no other rule drops;
then a threshold is a position in the order, and what it keeps is a difference of two sums.

    value     0   4   9  11  30        below 10:  0, 4 and 9 fail
    alone     x       x       x        of them 0 and 9 fail nothing else: these two would be kept at below 0
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.catalog import Catalog

from dagster_project.exceptions import CommandError
from dagster_project.inspect.bins import bin_edges
from dagster_project.inspect.corpora.policy_preview import DocumentVolume, judged_rules
from dagster_project.inspect.corpora.rule_inputs import MeasuredDocuments
from spark_jobs.exceptions import did_you_mean
from spark_jobs.filters.judge import judged
from spark_jobs.filters.policy import Policy, Rule
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.run.registry import entries


@dataclass(frozen=True)
class RuleCurve:
    """Documents of a rule in the order of their values, N of them; equal values by doc_id.

    Attributes:
        rule: with a condition `below` or `above`.
        values: (N,) float64, ascending; of the documents in its scope with a value.
        doc_ids: (N,) identities, 32 hex digits.
        alone: (N,) whether no other rule drops the document.
        sums: (N + 1, 2) documents and bytes of those before a place that no other rule drops.
        always: documents and bytes kept at any threshold.
        bytes_per_token: for estimates of tokens.
    """

    rule: Rule
    values: npt.NDArray[np.float64]
    doc_ids: npt.NDArray[np.bytes_]
    alone: npt.NDArray[np.bool_]
    sums: npt.NDArray[np.int64]
    always: tuple[int, int]
    bytes_per_token: float

    def failing(self, threshold: float) -> slice:
        """Slice of the failed documents at a threshold of the rule."""
        if self.rule.below is not None:
            return slice(0, int(np.searchsorted(self.values, threshold, "left")))
        return slice(int(np.searchsorted(self.values, threshold, "right")), len(self.values))

    def kept(self, threshold: float) -> DocumentVolume:
        """What the policy would keep with this threshold."""
        gone = self.failing(threshold)
        documents, size = (self.sums[-1] - (self.sums[gone.stop] - self.sums[gone.start]) + self.always).tolist()
        return DocumentVolume(documents, size, round(size / self.bytes_per_token))

    def nearest(self, threshold: float, count: int) -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
        """Failed and passed documents, each with its value, the nearest first; of equal values the lowest ids."""
        gone = self.failing(threshold)
        cut = gone.stop if self.rule.below is not None else gone.start
        under: list[int] = []
        over = list(range(cut, min(cut + count, len(self.values))))
        while cut and len(under) < count:  # a run of equal values at a time, whose ids ascend
            first = int(np.searchsorted(self.values, self.values[cut - 1], "left"))
            under += range(first, min(cut, first + count - len(under)))
            cut = first
        sides = [[(self.doc_ids[at].decode(), float(self.values[at])) for at in places] for places in (under, over)]
        return (sides[0], sides[1]) if self.rule.below is not None else (sides[1], sides[0])

    def edges(self, bins: int) -> npt.NDArray[np.float64]:
        """(bins + 1) values from the .5% to the 99.5% quantile, and around the rule's own threshold."""
        last = len(self.values) - 1
        low, high = (float(self.values[int(share * last)]) for share in (0.005, 0.995)) if last >= 0 else (0.0, 1.0)
        own = self.rule.threshold or 0.0
        return bin_edges(min(low, own), max(high, own), bins)

    def histogram(self, edges: npt.NDArray[np.float64], threshold: float) -> tuple[list[int], list[int]]:
        """(bins) documents between edges, the first and last with what lies outside; (bins) failed ones of these."""
        places = np.concatenate([[0], np.searchsorted(self.values, edges[1:-1], "left"), [len(self.values)]])
        gone = self.failing(threshold)
        return np.diff(places).tolist(), np.diff(np.clip(places, gone.start, gone.stop)).tolist()


def judged_policy(catalogue: Catalog, dataset: str) -> Policy:
    """The policy of a dataset's last verdicts.

    Raises:
        CommandError: it has not been judged.
    """
    rows = list(Ledger.fresh(catalogue).increments_there(f"{dataset}.verdicts").values())
    if not rows:
        raise CommandError(f"{dataset} has not been judged yet; run `headrace run {dataset}.verdicts` first")
    found = Policy.model_validate(json.loads(rows[-1].config)["policy"])
    entered = [one.content for one in entries(catalogue, "policy", found.name) if one.version == found.version]
    return Policy.model_validate_json(entered[-1]) if entered else found  # which says of each rule why


def reference_of(policy: Policy, rule: Rule) -> str:
    """The name of a rule in `set`: `too_short`, or `prose.too_short` where rules of several kinds have the name."""
    return (
        rule.rule if sum(one.rule == rule.rule for one in policy.rules) == 1 else f"{rule.judged_kinds[0]}.{rule.rule}"
    )


def find_rule(policy: Policy, reference: str) -> Rule:
    """The rule of a reference; of a shared bare name, the first.

    Raises:
        CommandError: the policy has none.
    """
    rules = {rule.rule: rule for rule in reversed(policy.rules)}
    rules |= {reference_of(policy, rule): rule for rule in policy.rules}
    if reference not in rules:
        raise CommandError(f"policy {policy.label}: there is no rule {reference!r}{did_you_mean(reference, rules)}")
    return rules[reference]


def rule_curve(parts: Iterable[MeasuredDocuments], policy: Policy, rule: Rule) -> RuleCurve:
    """Sort the documents of a rule by value, and sum what its threshold decides.

    Args:
        parts: what the policy reads of the dataset; at least one.
        policy: with the rule.
        rule: `below` or `above` a number.
    """
    found: list[tuple[npt.NDArray[np.generic], ...]] = []
    always = np.zeros(2, np.int64)
    for documents in parts:
        rows = documents.rows
        others = np.zeros(rows.num_rows, np.bool_)
        for one in judged(rows, judged_rules(policy, rows)):
            if one.rule is rule:
                values = one.values.to_numpy(zero_copy_only=False)
                moves = one.applies & ~np.isnan(values)  # what has no value fails at no threshold
            else:
                others |= one.fails
        sizes = rows.column("byte_count").to_numpy(zero_copy_only=False).astype(np.int64)
        stays = ~moves & ~others
        always += (int(stays.sum()), int(sizes[stays].sum()))
        ids = np.array(rows.column("doc_id").cast(pa.binary()).cast(pa.binary(32)), "S32")
        found.append((values[moves], ids[moves], ~others[moves], sizes[moves]))
    values, ids, alone, sizes = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.lexsort((ids, values))
    values, ids, alone, sizes = values[order], ids[order], alone[order], sizes[order]
    sums = np.zeros((len(values) + 1, 2), np.int64)
    np.cumsum(np.stack([alone, np.where(alone, sizes, 0)], 1), axis=0, out=sums[1:])
    return RuleCurve(rule, values, ids, alone, sums, (int(always[0]), int(always[1])), documents.bytes_per_token)
