"""Findings: where a document holds an item of an eval set, how it was recognized, and how much of it.

- *exact*: all words of the item, in order, whatever their case, spacing, punctuation and line breaks; the share is 1.
- *ngram*: at least one counting n-gram (`spark_jobs.filters.contamination.index`). Runs of the item less than its
  own length apart are one finding; the share is that of its counting n-grams that these hold.
- *near*: a window of the document as long as the item, with words of a weighted Jaccard similarity of at least
  `min_similarity` with the item's, whatever their order; the share is that similarity. None where the item stands
  exactly.

An item may have a finding of kind ngram and one of kind near in the same place: each tells its own share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.arrays import BoolArray, Float64Array, Int64Array
from spark_jobs.filters.contamination.folding import fold_tables
from spark_jobs.filters.contamination.index import IndexContents
from spark_jobs.text.text_columns import utf8_arrays

if TYPE_CHECKING:
    from spark_jobs.filters.contamination.seeds import EvalTextIndex

KINDS: Final = ("exact", "ngram", "near")
FINDINGS_TYPE: Final = pa.list_(
    pa.field(
        "element",
        pa.struct(
            [
                pa.field("eval_set", pa.string(), nullable=False),
                pa.field("item", pa.string(), nullable=False),
                pa.field("kind", pa.string(), nullable=False),
                pa.field("start", pa.int64(), nullable=False),
                pa.field("end", pa.int64(), nullable=False),
                pa.field("share", pa.float64(), nullable=False),
            ]
        ),
        nullable=False,
    )
)


def score(content: pa.Array, contents: IndexContents) -> dict[str, pa.Array]:
    """Find every item of the registered eval sets in every text.

    Returns:
        `findings`: (D,) lists of struct<eval_set, item, kind, start, end, share>, by start, then end, eval set, item
        and kind; start and end are bytes of the text in UTF-8.
    """
    from spark_jobs.filters.contamination.folded_document import Settings
    from spark_jobs.filters.contamination.kernel import find

    if contents.arrays is None:
        offsets, rows, shares = np.zeros(1, dtype=np.int64), np.empty((0, 5), dtype=np.int64), np.empty(0)
    else:
        config = contents.config
        data, offsets = utf8_arrays(content)
        settings = Settings(config.near_seeds, config.min_near_words, config.min_similarity)
        matches = find(data, offsets, fold_tables(), contents.arrays, settings)
        rows, shares = _merged(matches, contents.arrays)
    # One row for every set that holds the text.
    holders = np.diff(contents.holder_starts)[rows[:, 1]]
    repeated = np.repeat(np.arange(len(rows)), holders)
    within = np.arange(len(repeated)) - np.repeat(np.cumsum(holders) - holders, holders)
    holder = contents.holder_starts[rows[repeated, 1]] + within
    rows, shares = rows[repeated], shares[repeated]
    order = np.lexsort((rows[:, 2], holder, rows[:, 4], rows[:, 3], rows[:, 0]))
    rows, named = rows[order], contents.holders.take(pa.array(holder[order]))
    begins = offsets[rows[:, 0]]
    structs = pa.StructArray.from_arrays(
        [
            *named.flatten(),
            pa.array(KINDS).take(pa.array(rows[:, 2])),
            pa.array(rows[:, 3] - begins),
            pa.array(rows[:, 4] - begins),
            pa.array(shares[order]),
        ],
        fields=list(FINDINGS_TYPE.value_type),
    )
    starts = np.searchsorted(rows[:, 0], np.arange(len(content) + 1)).astype(np.int32)
    return {"findings": pa.ListArray.from_arrays(pa.array(starts), structs, type=FINDINGS_TYPE)}


def _merged(rows: Int64Array, index: EvalTextIndex) -> tuple[Int64Array, Float64Array]:
    """Findings with their shares: runs of n-grams belonging together are one.

    Returns:
        (F, 5) document, text, kind, first byte and the byte after the last, and (F,) shares.
    """
    from spark_jobs.filters.contamination.kernel import NEAR, NGRAM

    order = np.lexsort((rows[:, 3], rows[:, 2], rows[:, 1], rows[:, 0]))
    rows = rows[order]
    text_starts = index.word_starts[index.text_words]
    keys = _group_keys(rows, 3)
    ends_before = np.maximum.accumulate(keys + rows[:, 4])[:-1] - keys[1:]
    close = (rows[1:, 2] == NGRAM) & (rows[1:, 3] - ends_before <= np.diff(text_starts)[rows[1:, 1]])
    # An exact finding is made twice where its text repeats itself; only rows that are wholly alike are one then.
    alike = (rows[1:] == rows[:-1]).all(axis=1)
    joins = np.zeros(len(rows), dtype=bool)
    joins[1:] = (keys[1:] == keys[:-1]) & (close | alike)
    firsts = np.flatnonzero(~joins)
    merged = rows[firsts][:, :5].copy()
    if len(rows):
        merged[:, 4] = np.maximum.reduceat(rows[:, 4], firsts)
    shares, near = np.ones(len(merged)), merged[:, 2] == NEAR
    shares[near] = rows[firsts[near], 7] / rows[firsts[near], 8]
    ngrams = np.flatnonzero(rows[:, 2] == NGRAM)
    group = np.cumsum(~joins)[ngrams] - 1
    covered = _covered_counts(index, rows[ngrams], group, len(firsts))
    texts = merged[:, 1]
    counting = index.counting[index.text_words[texts + 1]] - index.counting[index.text_words[texts]]
    chosen = merged[:, 2] == NGRAM
    shares[chosen] = covered[chosen] / counting[chosen]
    kept = ~_inside_exact(merged)
    return merged[kept], shares[kept]


def _inside_exact(rows: Int64Array) -> BoolArray:
    """(F,) whether a finding lies inside an exact one of the same text, as those of items with repetitions do.

    Args:
        rows: (F, 5) findings by document, text, kind and start, as `_merged` has them.
    """
    from spark_jobs.filters.contamination.kernel import EXACT

    keys = _group_keys(rows, 2)
    exact = rows[:, 2] == EXACT
    last = np.searchsorted((keys + rows[:, 3])[exact], keys + rows[:, 3], side="right") - 1
    has = last >= 0
    inside = ~exact
    inside[has] &= (keys[exact][last[has]] == keys[has]) & (rows[exact][last[has], 4] >= rows[has, 4])
    nested: BoolArray = inside & has
    return nested


def _group_keys(rows: Int64Array, fields: int) -> Int64Array:
    """(F,) a number for each group of rows alike in the first fields, with room to add first and last bytes.

    The numbers of groups are so far apart that every byte of one group is below all of the next.
    """
    new = np.ones(len(rows), dtype=bool)
    new[1:] = (rows[1:, :fields] != rows[:-1, :fields]).any(axis=1)
    keys: Int64Array = np.cumsum(new) * (rows[:, 4].max(initial=0) + 1)
    return keys


def _covered_counts(index: EvalTextIndex, rows: Int64Array, group: Int64Array, group_count: int) -> Int64Array:
    """(group_count,) distinct counting n-grams covered by the rows of each group."""
    grams = np.flatnonzero(np.diff(index.counting))
    # Both ends of n-grams ascend, so that a row covers those from one to another of them.
    first = np.searchsorted(grams, rows[:, 5])
    last = np.maximum(np.searchsorted(index.gram_ends[grams], rows[:, 6], side="right"), first)
    order = np.lexsort((first, group))
    apart = group[order] * (len(grams) + 1)  # numbers of one group are below all of the next
    reach = np.maximum.accumulate(np.concatenate([[0], apart + last[order]]))
    more = reach[1:] - np.maximum(apart + first[order], reach[:-1])
    covered = np.zeros(group_count, dtype=np.int64)
    np.add.at(covered, group[order], np.maximum(more, 0))
    return covered


def largest_shares(findings: pa.ListArray) -> pa.Array:
    """(D,) largest share of an item in each text; null without findings."""
    shares = pc.struct_field(findings.flatten(), "share").to_numpy()
    largest = np.zeros(len(findings))
    np.maximum.at(largest, pc.list_parent_indices(findings).to_numpy(), shares)
    return pa.array(largest, mask=largest == 0)
