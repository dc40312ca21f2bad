"""Exact similarity join with a sample: find all documents of a batch similar enough to a sampled one.

Two bags of total weights X and Y with J >= t share at least the weight t / (1 + t) * (X + Y). Put the tokens into one
order, the rarest of the sample first, and call the weight of a token and all after it the document's *suffix*. At the
first shared token of two documents, all shared tokens are in both suffixes, so

    min(suffix of x, suffix of y) >= t / (1 + t) * (X + Y)        (positional filter)

and no token late in a document satisfies it: only the tokens with suffix >= t * X, its *prefix*, are looked at. Tokens
that all pages of a template share come last in the order and are in hardly any prefix, however many pages there are.

    x: rare 30, own 20, template 50        t = .7: the prefix of x is `rare`, `own` only if 70 <= suffix: (100, 70, 50)
    y: rare 30, else 15, template 55       they meet at `rare`: min(100, 100) >= .7 / 1.7 * 200 = 82.4, a candidate

Few candidates are compared bag by bag. Where tokens occur evenly (forms filled from short lists) nearly all sampled
documents are candidates; then the weights shared with all of them are summed together, token by token, as rows of
numbers for vector instructions. Documents are compared at several thresholds: a pair counts where it
reaches the lowest of those at which both are. All comparisons are made in integers.

Sources: Chaudhuri et al. 2006, "A Primitive Operator for Similarity Joins in Data Cleaning" (prefixes); Xiao et al.
2008, "Efficient Similarity Joins for Near Duplicate Detection" (suffixes).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np

from headrace.kernels.compiling import compiled, inner
from headrace.kernels.hash_tables import key_slot, slots_for
from spark_jobs.arrays import Int32Array, Int64Array, UInt16Array, UInt32Array, UInt64Array
from spark_jobs.dedup.bags.bag_arrays import Bags, token_weights, total_weights
from spark_jobs.dedup.near.prefix_join import lowest_group, threshold_terms
from spark_jobs.dedup.sketches.similarity import add_minima, share_row

_COMMON: Final = 1 / 16  # of the sample: more frequent tokens have a dense row, at most 32 bytes a token in all
_FEWEST_COMMON: Final = 8  # documents
_MERGE_COST: Final = 4  # cost of a merge step, which is mispredicted, in additions to a list's document
_SHIFT: Final = np.uint64(20)
_ROW_COST: Final = 8  # additions of a dense row that one vector instruction makes


class SampleIndex(NamedTuple):
    """S sampled documents, and for each token its documents.

    Attributes:
        offsets: (S + 1,) int64 where the tokens of each document begin.
        hashes: (T,) uint64 tokens, ascending in each document.
        weights: (T,) uint16 their weights.
        totals: (S,) int64 total weights.
        groups: (S,) int32 thresholds of each one's comparison: bit g is set for threshold number g.
        starts: (V + 1,) int64 where the list of the token of each rank begins.
        documents: (P,) int64 documents with the token in their prefix.
        suffixes: (P,) int64 weight of the token and of all after it in that document.
        list_starts: (V + 1,) int64 where the list of all documents with the token of each rank begins.
        list_documents: (T,) int64 those documents.
        list_weights: (T,) uint16 the weight of the token in them.
        rows: (V,) int64 row of `dense` of the token of each rank, -1 where it is not common.
        constants: (V,) uint16 weight of the token of each rank if all documents have it with one weight, such as labels
            of forms; 0 elsewhere.
        dense: (C, S) uint16 weight of each common token in each document.
        slots: (H,) uint64 hash table of the tokens, 0 where it is free.
        slot_ranks: (H,) int64 rank of the token in each slot.
    """

    offsets: Int64Array
    hashes: UInt64Array
    weights: UInt16Array
    totals: Int64Array
    groups: Int32Array
    starts: Int64Array
    documents: Int64Array
    suffixes: Int64Array
    list_starts: Int64Array
    list_documents: Int64Array
    list_weights: UInt16Array
    rows: Int64Array
    constants: UInt16Array
    dense: UInt16Array
    slots: UInt64Array
    slot_ranks: Int64Array


class SampledPairs(NamedTuple):
    """Pairs of a document and a sampled one.

    Attributes:
        rows: (P,) int64 row of the document.
        sampled: (P,) int64 row of the sampled one.
        shared: (P,) int64 numerator of J.
        united: (P,) int64 denominator of J.
    """

    rows: Int64Array
    sampled: Int64Array
    shared: Int64Array
    united: Int64Array


def sample_index(bags: Bags, groups: Int32Array, thresholds: tuple[Fraction, ...]) -> SampleIndex:
    """Index a sample of documents.

    Args:
        bags: S bags.
        groups: (S,) int32 thresholds of each document's comparison, at least one.
        thresholds: of each group, ascending.
    """
    tokens, numbers, counts = np.unique(bags.hashes, return_inverse=True, return_counts=True)
    order = np.argsort(counts, kind="stable")
    ranks = np.empty(len(tokens), np.int64)
    ranks[order] = np.arange(len(tokens))
    weights, totals = token_weights(bags), total_weights(bags)
    first = np.concatenate([[0], np.cumsum(counts[order])]).astype(np.int64)
    owners, by_rank, starts, documents, suffixes = _prefixes(
        _Documents(bags.offsets, bags.hashes, weights, totals, groups),
        ranks[numbers],
        first,
        *threshold_terms(thresholds),
    )
    rows, constants = np.full(len(tokens), -1, np.int64), np.zeros(len(tokens), np.uint16)
    for rank in np.flatnonzero(counts[order] == len(bags)).tolist():
        its_weights = weights[by_rank[first[rank] : first[rank + 1]]]
        constants[rank] = its_weights[0] if (its_weights == its_weights[0]).all() else 0
    common = np.flatnonzero((counts[order] > max(len(bags) * _COMMON, _FEWEST_COMMON)) & (constants == 0))
    rows[common] = np.arange(len(common))
    dense = np.zeros((len(common), len(bags)), np.uint16)
    for row, rank in enumerate(common.tolist()):
        entries = slice(first[rank], first[rank + 1])
        dense[row, owners[entries]] = weights[by_rank[entries]]
    slots, slot_ranks = _slots(tokens, ranks)
    return SampleIndex(
        offsets=bags.offsets,
        hashes=np.ascontiguousarray(bags.hashes),
        weights=weights,
        totals=totals,
        groups=groups,
        starts=starts,
        documents=documents,
        suffixes=suffixes,
        list_starts=first,
        list_documents=owners,
        list_weights=weights[by_rank],
        rows=rows,
        constants=constants,
        dense=dense,
        slots=slots,
        slot_ranks=slot_ranks,
    )


def similar_to_sample(
    bags: Bags, groups: Int32Array, index: SampleIndex, thresholds: tuple[Fraction, ...]
) -> SampledPairs:
    """All pairs of a document and a sampled one that reach the lowest threshold at which both are compared.

    Args:
        bags: D bags; a document of the sample finds itself too.
        groups: (D,) int32 thresholds of each document's comparison, at least one.
        index: the sample, indexed for the same thresholds.
        thresholds: of each group, ascending.
    """
    hashes = np.ascontiguousarray(bags.hashes)
    sampled_tokens, ranks = _look_up_tokens(hashes, index.slots, index.slot_ranks)
    starts = np.searchsorted(sampled_tokens, bags.offsets)
    documents = _Documents(bags.offsets, hashes, token_weights(bags), total_weights(bags), groups)
    looked_up = _SampledTokens(starts, sampled_tokens, ranks)
    return SampledPairs(*_look_up(documents, looked_up, index, *threshold_terms(thresholds)))


@compiled
def _slots(tokens: UInt64Array, ranks: Int64Array) -> tuple[UInt64Array, Int64Array]:
    """A hash table of tokens with their ranks, a quarter full: most tokens of a batch are in no sampled document."""
    slots = np.zeros(slots_for(2 * tokens.size), np.uint64)
    slot_ranks = np.zeros(slots.size, np.int64)
    for index in range(tokens.size):
        slot = key_slot(slots, tokens[index] >> _SHIFT, tokens[index])
        slots[slot], slot_ranks[slot] = tokens[index], ranks[index]
    return slots, slot_ranks


@compiled
def _look_up_tokens(hashes: UInt64Array, slots: UInt64Array, slot_ranks: Int64Array) -> tuple[Int64Array, Int64Array]:
    """(K,) indices of the tokens in the sample, and (K,) their ranks."""
    tokens, ranks = np.empty(hashes.size, np.int64), np.empty(hashes.size, np.int64)
    count = 0
    for index in range(hashes.size):
        slot = key_slot(slots, hashes[index] >> _SHIFT, hashes[index])
        tokens[count], ranks[count] = index, slot_ranks[slot]
        count += slots[slot] == hashes[index]
    return tokens[:count], ranks[:count]


class _Documents(NamedTuple):
    """Bags as flat arrays: (D + 1,) offsets, (T,) hashes and weights, (D,) total weights and groups."""

    offsets: Int64Array
    hashes: UInt64Array
    weights: UInt16Array
    totals: Int64Array
    groups: Int32Array


@compiled
def _prefixes(
    documents: _Documents, ranks: Int64Array, first: Int64Array, numerators: Int64Array, denominators: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array, Int64Array]:
    """The lists of an index: for each rank the documents with its token, and those with it in their prefix.

    Args:
        documents: S documents.
        ranks: (T,) rank of each of their tokens.
        first: (V + 1,) where the tokens of each rank begin, sorted by rank.
        numerators: of the thresholds.
        denominators: of the thresholds.

    Returns:
        (T,) documents by rank and (T,) indices of their tokens; `starts`, `documents` and `suffixes` of `SampleIndex`.
    """
    ends = first[:-1].copy()
    owners = np.empty(ranks.size, np.int64)
    by_rank = np.empty(ranks.size, np.int64)
    for doc in range(documents.totals.size):
        for token in range(documents.offsets[doc], documents.offsets[doc + 1]):
            end = ends[ranks[token]]
            owners[end], by_rank[end] = doc, token
            ends[ranks[token]] = end + 1
    starts = np.zeros(first.size, np.int64)
    prefixed = np.empty(ranks.size, np.int64)
    suffixes = np.empty(ranks.size, np.int64)
    left = documents.totals.copy()  # weight of the tokens of each document that come later in the order
    filled = 0
    for rank in range(first.size - 1):
        for entry in range(first[rank], first[rank + 1]):
            doc = owners[entry]
            group = lowest_group(documents.groups[doc])
            if left[doc] * denominators[group] >= documents.totals[doc] * numerators[group]:
                prefixed[filled], suffixes[filled] = doc, left[doc]
                filled += 1
            left[doc] -= np.int64(documents.weights[by_rank[entry]])
        starts[rank + 1] = filled
    return owners, by_rank, starts, prefixed[:filled].copy(), suffixes[:filled].copy()


class _SampledTokens(NamedTuple):
    """The K tokens of D documents in the sample: (D + 1,) offsets, (K,) token indices, (K,) their ranks."""

    starts: Int64Array
    tokens: Int64Array
    ranks: Int64Array


@compiled
def _look_up(
    documents: _Documents,
    looked_up: _SampledTokens,
    index: SampleIndex,
    numerators: Int64Array,
    denominators: Int64Array,
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """The fields of `SampledPairs`."""
    pairs = np.empty((4, 1024), np.int64)
    filled = 0
    last_met = np.full(index.totals.size, -1, np.int64)
    candidates = np.empty(index.totals.size, np.int64)
    sums = np.zeros(index.totals.size, np.uint32)
    for doc in range(documents.totals.size):
        count, steps = _candidates(documents, looked_up, index, numerators, denominators, doc, last_met, candidates)
        at_once = count > 0 and _MERGE_COST * steps > _cost_of_sums(looked_up, index, doc)
        all_share = _sum_all(documents, looked_up, index, doc, sums) if at_once else np.int64(0)
        for at in range(count):
            sampled = candidates[at]
            shared = (
                all_share + np.int64(sums[sampled]) if at_once else np.int64(share_row(documents, doc, index, sampled))
            )
            group = lowest_group(documents.groups[doc] & index.groups[sampled])
            both = documents.totals[doc] + index.totals[sampled]
            if shared * denominators[group] >= (both - shared) * numerators[group]:
                if filled == pairs.shape[1]:
                    larger = np.empty((4, 2 * filled), np.int64)
                    larger[:, :filled] = pairs
                    pairs = larger
                pairs[0, filled], pairs[1, filled] = doc, sampled
                pairs[2, filled], pairs[3, filled] = shared, both - shared
                filled += 1
    return pairs[0, :filled], pairs[1, :filled], pairs[2, :filled], pairs[3, :filled]


@compiled
def _candidates(
    documents: _Documents,
    looked_up: _SampledTokens,
    index: SampleIndex,
    numerators: Int64Array,
    denominators: Int64Array,
    doc: int,
    last_met: Int64Array,
    candidates: Int64Array,
) -> tuple[int, int]:
    """Put sampled documents that can be similar to `doc` into `candidates`; their number, and steps to merge them."""
    begin, end = looked_up.starts[doc], looked_up.starts[doc + 1]
    total, groups = documents.totals[doc], documents.groups[doc]
    lowest = lowest_group(groups)
    length = documents.offsets[doc + 1] - documents.offsets[doc]
    suffix = np.int64(0)
    for token in range(begin, end):
        suffix += np.int64(documents.weights[looked_up.tokens[token]])
    count, steps = 0, 0
    if suffix * denominators[lowest] < numerators[lowest] * total:
        return count, steps  # too much of its weight is on tokens that no sampled document has
    for at in np.argsort(looked_up.ranks[begin:end]):
        if suffix * denominators[lowest] < numerators[lowest] * total:
            break
        rank = looked_up.ranks[begin + at]
        for entry in range(index.starts[rank], index.starts[rank + 1]):
            sampled = index.documents[entry]
            common = groups & index.groups[sampled]
            if last_met[sampled] == doc or not common:
                continue
            group = lowest_group(common)
            ahead = min(suffix, index.suffixes[entry])
            both = total + index.totals[sampled]
            if ahead * (numerators[group] + denominators[group]) >= numerators[group] * both:
                last_met[sampled] = doc
                candidates[count] = sampled
                count += 1
                steps += length + index.offsets[sampled + 1] - index.offsets[sampled]
        suffix -= np.int64(documents.weights[looked_up.tokens[begin + at]])
    return count, steps


@inner
def _cost_of_sums(looked_up: _SampledTokens, index: SampleIndex, doc: int) -> int:
    """Number of additions to sum the weights shared by a document with every sampled one."""
    cost = index.totals.size
    for at in range(looked_up.starts[doc], looked_up.starts[doc + 1]):
        rank = looked_up.ranks[at]
        if index.rows[rank] >= 0:
            cost += index.totals.size // _ROW_COST
        elif index.constants[rank] == 0:
            cost += index.list_starts[rank + 1] - index.list_starts[rank]
    return cost


@inner
def _sum_all(
    documents: _Documents, looked_up: _SampledTokens, index: SampleIndex, doc: int, sums: UInt32Array
) -> np.int64:
    """Put the weight shared with each sampled document into `sums`, without that shared with all, which is returned."""
    sums[:] = 0
    all_share = np.int64(0)
    for at in range(looked_up.starts[doc], looked_up.starts[doc + 1]):
        weight, rank = documents.weights[looked_up.tokens[at]], looked_up.ranks[at]
        if index.constants[rank] > 0:
            all_share += np.int64(min(weight, index.constants[rank]))
            continue
        if index.rows[rank] >= 0:
            add_minima(index.dense[index.rows[rank]], weight, sums)
            continue
        for entry in range(index.list_starts[rank], index.list_starts[rank + 1]):
            sums[index.list_documents[entry]] += np.uint32(min(weight, index.list_weights[entry]))
    return all_share
