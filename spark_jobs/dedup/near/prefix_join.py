"""Exact similarity join by prefixes: find all pairs of documents within reach of a weighted Jaccard similarity.

Two bags of total weights X and Y with J >= t share at least the weight t / (1 + t) * (X + Y). Put the tokens of every
document into one order, the rarest first, and call the weight of a token and all after it the document's *suffix*. At
the first shared token of two documents, all shared tokens are in both suffixes, so

    min(suffix of x, suffix of y) >= t / (1 + t) * (X + Y)        (positional filter)

and no token late in a document satisfies it: only the tokens with suffix >= t * X, its *prefix*, are looked at. Tokens
that all pages of a template share come last in the order and are in hardly any prefix, however many pages there are.

    x: rare 30, own 20, template 50        t = .7: the prefix of x is `rare`, `own` only if 70 <= suffix: (100, 70, 50)
    y: rare 30, else 15, template 55       they meet at `rare`: min(100, 100) >= .7 / 1.7 * 200 = 82.4, a candidate

Sources: Chaudhuri et al. 2006, "A Primitive Operator for Similarity Joins in Data Cleaning" (prefixes); Xiao et al.
2008, "Efficient Similarity Joins for Near Duplicate Detection" (suffixes). All comparisons are made in integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np

from headrace.kernels.compiling import compiled, inner
from spark_jobs.arrays import BoolArray, Int32Array, Int64Array, UInt16Array, UInt32Array, UInt64Array
from spark_jobs.dedup.bags.bag_arrays import Bags, token_weights, total_weights

_COUNTER_BITS: Final = 20
COUNTERS: Final = 1 << _COUNTER_BITS
"""Counters of tokens: 4 MB of them, however many tokens there are. Tokens that share a counter look less rare than
they are, which costs time and loses no pair, since any order of tokens is right."""
_CHECKS_A_CALL: Final = 1 << 22
"""Pairs that one call checks: it returns 64 MB at most, and longer lists take several calls."""


class Prefixes(NamedTuple):
    """The tokens in the prefixes of documents, R in all.

    Attributes:
        documents: (R,) int64 row of the document.
        tokens: (R,) uint64 hash of the token.
        suffixes: (R,) int64 weight of the token and of all after it in the document.
    """

    documents: Int64Array
    tokens: UInt64Array
    suffixes: Int64Array


class Members(NamedTuple):
    """Documents with a token in their prefix, list by list of one token.

    Attributes:
        places: (R,) int64 place of the document; those of one list ascend, the earlier ones first.
        totals: (R,) int64 its total weight.
        suffixes: (R,) int64 its suffix at the token.
        groups: (R,) int32 thresholds of its comparison: bit g is set for threshold number g.
        earlier: (R,) bool whether it came in an earlier increment; two such are not compared.
    """

    places: Int64Array
    totals: Int64Array
    suffixes: Int64Array
    groups: Int32Array
    earlier: BoolArray


def count_tokens(hashes: UInt64Array, counters: UInt32Array) -> None:
    """Add (T,) tokens to the 2^20 counters for estimates of the rarity of tokens."""
    _count(hashes, counters)


def prefixes(bags: Bags, counters: UInt32Array, groups: Int32Array, thresholds: tuple[Fraction, ...]) -> Prefixes:
    """The prefix of every document: tokens that can be the first that it shares with a sufficiently similar one.

    Args:
        bags: D bags, with all their tokens.
        counters: document counts of tokens, as of `count_tokens`; a token with count 1 is shared by no two documents
            and left out.
        groups: (D,) int32 thresholds of each document's comparison, at least one.
        thresholds: of each group, ascending.
    """
    numerators, denominators = threshold_terms(thresholds)
    weights = token_weights(bags)
    totals = total_weights(bags)
    columns = _prefixes(bags.offsets, bags.hashes, weights, totals, counters, groups, numerators, denominators)
    return Prefixes(*columns)


def list_pairs(
    begins: Int64Array, ends: Int64Array, members: Members, thresholds: tuple[Fraction, ...], pivots: int | None = None
) -> Iterator[tuple[Int64Array, Int64Array]]:
    """Pairs of documents that share a token and can reach the lowest threshold at which both are compared.

    Args:
        begins: (L,) int64 where each list begins.
        ends: (L,) int64 where it ends.
        members: the lists' documents.
        thresholds: of each group, ascending.
        pivots: number of first members of each list, paired with all after them; None for all pairs.

    Yields:
        (P,) places first in their list and (P,) places of the others; a pair once for each list it is in.
    """
    numerators, denominators = threshold_terms(thresholds)
    sizes = ends - begins
    heads = sizes if pivots is None else np.minimum(sizes, pivots)
    rows = np.maximum(1, _CHECKS_A_CALL // np.maximum(sizes, 1))  # heads of a list that a call can compare with all
    parts = -(-heads // rows)
    of = np.repeat(np.arange(len(sizes)), parts)
    first = begins[of] + (np.arange(len(of)) - np.repeat(np.cumsum(parts) - parts, parts)) * rows[of]
    last = np.minimum(first + rows[of], (begins + heads)[of])
    call = np.cumsum((last - first) * sizes[of]) // _CHECKS_A_CALL
    edges = np.concatenate([[0], np.flatnonzero(np.diff(call)) + 1, [len(of)]])
    compare = _all_pairs if pivots is None else _pivot_pairs
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        part = slice(low, high)
        lists = _Heads(begins[of[part]], ends[of[part]], first[part], last[part])
        yield compare(lists, members, numerators, denominators)


class _Heads(NamedTuple):
    """Parts of lists, (P,) each: begin and end of the list, and its members [first, last) to pair with the others."""

    begins: Int64Array
    ends: Int64Array
    first: Int64Array
    last: Int64Array


def threshold_terms(thresholds: tuple[Fraction, ...]) -> tuple[Int64Array, Int64Array]:
    """(G,) numerators and (G,) denominators of G thresholds, for kernels."""
    return (
        np.array([threshold.numerator for threshold in thresholds], np.int64),
        np.array([threshold.denominator for threshold in thresholds], np.int64),
    )


@compiled
def _counter(token: np.uint64) -> np.int64:
    return np.int64(token >> np.uint64(64 - _COUNTER_BITS))


@inner
def lowest_group(groups: np.int32) -> int:
    """Index of the lowest set bit, 0b1100 -> 2; at least one is set."""
    group = 0
    while not (groups >> group) & 1:
        group += 1
    return group


@compiled
def _count(hashes: UInt64Array, counters: UInt32Array) -> None:
    for token in hashes:
        counters[_counter(token)] += np.uint32(1)


@compiled
def _prefixes(
    offsets: Int64Array,
    hashes: UInt64Array,
    weights: UInt16Array,
    totals: Int64Array,
    counters: UInt32Array,
    groups: Int32Array,
    numerators: Int64Array,
    denominators: Int64Array,
) -> tuple[Int64Array, UInt64Array, Int64Array]:
    """The fields of `Prefixes`."""
    documents = np.empty(hashes.size, np.int64)
    tokens = np.empty(hashes.size, np.uint64)
    suffixes = np.empty(hashes.size, np.int64)
    filled = 0
    for doc in range(offsets.size - 1):
        begin, end = offsets[doc], offsets[doc + 1]
        counts = np.empty(end - begin, np.int64)
        for token in range(begin, end):
            counts[token - begin] = counters[_counter(hashes[token])]
        group = lowest_group(groups[doc])
        least = numerators[group] * totals[doc]
        suffix = totals[doc]
        # Tokens ascend, so a stable sort puts those of equal counters into one order in all documents.
        for rank in np.argsort(counts, kind="mergesort"):
            if suffix * denominators[group] < least:
                break
            if counts[rank] > 1:
                documents[filled] = doc
                tokens[filled] = hashes[begin + rank]
                suffixes[filled] = suffix
                filled += 1
            suffix -= np.int64(weights[begin + rank])
    return documents[:filled], tokens[:filled], suffixes[:filled]


@inner
def _can_reach(members: Members, entry: int, other: int, numerators: Int64Array, denominators: Int64Array) -> bool:
    """Whether two members of a list can reach the lowest threshold at which both are compared."""
    common = members.groups[entry] & members.groups[other]
    if not common:
        return False
    group = lowest_group(common)
    suffix = min(members.suffixes[entry], members.suffixes[other])
    needed = numerators[group] * (members.totals[entry] + members.totals[other])
    return bool(suffix * (numerators[group] + denominators[group]) >= needed)


@inner
def _is_heavy(members: Members, entry: int, numerators: Int64Array, denominators: Int64Array) -> bool:
    """Whether a member's suffix suffices for a pair with a member of at least its total weight."""
    group = lowest_group(members.groups[entry])
    ahead = members.suffixes[entry] * (numerators[group] + denominators[group])
    return bool(ahead >= 2 * numerators[group] * members.totals[entry])


@compiled
def _all_pairs(
    lists: _Heads, members: Members, numerators: Int64Array, denominators: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """All pairs of each list within reach of their threshold.

    The lighter document of such a pair is heavy at the token (`_is_heavy`), so each heavy one looks for the others.
    """
    first = np.empty(1024, np.int64)
    second = np.empty(1024, np.int64)
    filled = 0
    for at in range(lists.begins.size):
        for entry in range(lists.first[at], lists.last[at]):
            if not _is_heavy(members, entry, numerators, denominators):
                continue
            for other in range(lists.begins[at], lists.ends[at]):
                if other == entry or (members.earlier[entry] and members.earlier[other]):
                    continue
                if other < entry and _is_heavy(members, other, numerators, denominators):
                    continue  # the other one, being heavy, found this pair before
                if _can_reach(members, entry, other, numerators, denominators):
                    if filled == first.size:
                        first, second = _twice(first), _twice(second)
                    first[filled] = members.places[min(entry, other)]
                    second[filled] = members.places[max(entry, other)]
                    filled += 1
    return first[:filled], second[:filled]


@compiled
def _pivot_pairs(
    lists: _Heads, members: Members, numerators: Int64Array, denominators: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Pairs of the first members of each list with all after them, if they can reach a threshold."""
    first = np.empty(1024, np.int64)
    second = np.empty(1024, np.int64)
    filled = 0
    for at in range(lists.begins.size):
        for entry in range(lists.first[at], lists.last[at]):
            for other in range(entry + 1, lists.ends[at]):
                if members.earlier[other]:  # then the pivot, which comes before it, is an earlier one too
                    continue
                if _can_reach(members, entry, other, numerators, denominators):
                    if filled == first.size:
                        first, second = _twice(first), _twice(second)
                    first[filled], second[filled] = members.places[entry], members.places[other]
                    filled += 1
    return first[:filled], second[:filled]


@inner
def _twice(values: Int64Array) -> Int64Array:
    """A copy of an array with room for as many values more."""
    larger = np.empty(2 * values.size, np.int64)
    larger[: values.size] = values
    return larger
