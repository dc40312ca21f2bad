r"""Make n-gram models by interpolated modified Kneser-Ney smoothing.

Counts are tables that merge in any order: `count_ngrams` makes one of a batch of texts, `merge_counts` adds them up,
`estimate` makes a model of the sum. With c the count of an n-gram, and N the highest order:

    a(w1..wn)  = number of words v with c(v w1..wn) > 0;  c(w1..wn) where n = N, or where w1 is <s>
    D_n(k)     = k - (k + 1) * t1 / (t1 + 2 t2) * t(k+1) / t(k)    for k = 1, 2, 3; t(k) n-grams of n words have a = k
    p(w | h)   = (a(hw) - D(a(hw))) / a(h .) + g(h) p(w | h without its first word),   a(h .) = sum of a(hw) over w
    g(h)       = (sum of D(a(hw)) over kept hw, and of a(hw) over pruned ones) / a(h .)

p of a single word backs off to the uniform distribution over all words, </s> and <unk>. D(k) = D(3) for larger k.
N-grams that occur less often than `min_counts` says are pruned after discounts were estimated, and their mass goes to
shorter n-grams, so that probabilities still add up to 1; a pruned word is <unk>. Because <unk> is never counted as a
word, text of unknown words is not taken for likely.

Sources: Chen and Goodman 1998, "An Empirical Study of Smoothing Techniques for Language Modeling"; Heafield et al.
2013, "Scalable Modified Kneser-Ney Language Model Estimation", section 3, for <s> and pruning.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from headrace_features.models.ngram_kernel import EMPTY, NgramTable, hash_ngram, list_ngrams, look_up, ngram_table
from headrace_features.models.ngram_model import NgramConfig, NgramModel, splitting
from spark_jobs.arrays import Float64Array, Int64Array, UInt64Array
from spark_jobs.exceptions import ConfigError, InputError, did_you_mean
from spark_jobs.lake.engine.arrangement import persist, release
from spark_jobs.spark_sql import DataFrame, F
from spark_jobs.text.text_columns import utf8_arrays

NGRAM_COUNTS: Final = pa.schema([(name, pa.int64()) for name in ("ngram", "prefix", "suffix", "words", "ngram_count")])
"""Columns: hash of an n-gram, of it without its last and without its first word (uint64 bits), words, occurrences."""
_CHUNK_BYTES: Final = 4 << 20  # texts counted together; the rest of a longer text is left out
_NGRAM_FACTS: Final = [*NGRAM_COUNTS.names, "adjusted", "total"]
"""Also a(ngram), and the sum of a(..) over all n-grams with this prefix, pruned ones too."""
_CAPS: Final = {"adjusted": 5, "ngram_count": 1 << 16}  # `figures` counts larger values as this one
_NO_DISCOUNTS: Final = (0.5, 1.0, 1.5)  # where counts are too few or too even to estimate them; KenLM's fallback


def _signed(word: str) -> int:
    """The hash of a word as an int64, as in NGRAM_COUNTS."""
    return int(np.uint64(hash_ngram([word])).view(np.int64))


_CONTEXTS: Final = [int(EMPTY.view(np.int64)), _signed("<s>")]
_SPECIALS: Final = pa.table([*[_CONTEXTS] * 3, [0, 0], [0, 0]], schema=NGRAM_COUNTS)
"""Rows for the contexts that are no n-grams: no word at all, and `<s>`."""


def train(table: pa.Table, config: NgramConfig | None = None) -> NgramModel:
    """Train a model on a column of texts.

    Raises:
        ConfigError: the column is missing.
        InputError: there is no word in it.
    """
    config = config or NgramConfig()
    if config.text_column not in table.column_names:
        near = did_you_mean(config.text_column, table.column_names)
        raise ConfigError(f"n-gram model: the table has no column {config.text_column!r}{near}")
    parts = (count_ngrams(chunk.drop_null(), config.order) for chunk in table[config.text_column].chunks)
    return estimate(merge_counts(parts), config)


def train_on_spark(texts: DataFrame, config: NgramConfig) -> NgramModel:
    """`train` on Spark: workers count; the driver gets only n-grams that may be kept, 56 bytes each."""
    content = texts.select(config.text_column).where(F.col(config.text_column).isNotNull())
    ddl = ", ".join(f"{name} bigint" for name in NGRAM_COUNTS.names)
    counted = content.mapInArrow(functools.partial(_count_batches, order=config.order), ddl)
    specials = texts.sparkSession.createDataFrame([tuple(row.values()) for row in _SPECIALS.to_pylist()], ddl)
    merged = counted.groupBy(*NGRAM_COUNTS.names[:-1]).agg(F.sum("ngram_count").alias("ngram_count"))
    merged = persist(merged.unionByName(specials))
    longer = merged.where("words > 1").groupBy(F.col("suffix").alias("ngram")).agg(F.count("*").alias("extended"))
    adjusted = merged.join(longer, "ngram", "left").withColumn("adjusted", F.coalesce("extended", "ngram_count"))
    adjusted = persist(adjusted.drop("extended"))
    capped = [F.least(name, F.lit(cap)).alias(name) for name, cap in _CAPS.items()]
    figures = adjusted.groupBy("words", *capped).agg(F.count("*").alias("ngrams")).toArrow()
    least = F.array(*map(F.lit, _thresholds(figures, config).tolist()))[F.col("words").cast("int")]
    totals = adjusted.where("words > 0").groupBy(F.col("prefix").alias("ngram")).agg(F.sum("adjusted").alias("total"))
    chosen = adjusted.where((F.col("ngram_count") >= least) | (F.col("ngram") == _signed("</s>")))
    rows = chosen.join(totals, "ngram", "left").fillna(0, ["total"]).select(_NGRAM_FACTS).toArrow()
    release(merged)
    release(adjusted)
    return _smoothed(rows, figures, config)


def _count_batches(batches: Iterable[pa.RecordBatch], order: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from count_ngrams(batch.column(0), order).to_batches()


def count_ngrams(content: pa.Array, order: int) -> pa.Table:
    """Count the n-grams of a batch of texts.

    Returns:
        Rows of NGRAM_COUNTS.
    """
    words = splitting("folded")
    data, offsets = utf8_arrays(content)
    parts: list[pa.Table] = []
    first = 0
    while first < len(content):
        stop = max(first + 1, int(np.searchsorted(offsets, offsets[first] + _CHUNK_BYTES)) - 1)
        stop = min(stop, len(content))
        room = min(int(offsets[stop] - offsets[first]), _CHUNK_BYTES) + 16
        while True:
            rows, lengths = np.empty((room, 3), np.uint64), np.empty(room, np.int8)
            count = list_ngrams(words, order, _CHUNK_BYTES, data, offsets[first : stop + 1], rows.reshape(-1), lengths)
            if count <= room:
                break
            room = count
        hashes, at, counts = np.unique(rows[:count, 0], return_index=True, return_counts=True)
        columns = (hashes, rows[at, 1], rows[at, 2])
        arrays = [pa.array(column.view(np.int64)) for column in columns]
        parts.append(pa.table([*arrays, pa.array(lengths[at].astype(np.int64)), pa.array(counts)], schema=NGRAM_COUNTS))
        first = stop
    return merge_counts(parts)


def merge_counts(parts: Iterable[pa.Table]) -> pa.Table:
    """Add tables of NGRAM_COUNTS up; the order of the parts does not matter."""
    keys = NGRAM_COUNTS.names[:-1]
    total = NGRAM_COUNTS.empty_table()
    waiting: list[pa.Table] = []
    rows = 0
    for part in parts:
        waiting.append(part)
        rows += len(part)
        if rows > len(total) + (1 << 22):
            total, waiting, rows = _added([total, *waiting]), [], 0
    return _added([total, *waiting]).select([*keys, "ngram_count"]).sort_by("ngram")


def _added(parts: list[pa.Table]) -> pa.Table:
    keys = NGRAM_COUNTS.names[:-1]
    if sum(map(bool, map(len, parts))) <= 1:
        return pa.concat_tables(parts)
    added = pa.concat_tables(parts).group_by(keys, use_threads=False).aggregate([("ngram_count", "sum")])
    return added.rename_columns([*keys, "ngram_count"])


def estimate(counts: pa.Table, config: NgramConfig) -> NgramModel:
    """Make a model from counts, by the definition above.

    Raises:
        InputError: there is no n-gram.
    """
    rows = pa.concat_tables([counts, _SPECIALS])
    hashes, prefixes, suffixes, words, occurrences = (rows[name].to_numpy() for name in NGRAM_COUNTS.names)
    places = _places(np.sort(hashes.view(np.uint64)))
    at, prefix_at, suffix_at = (look_up(places, column.view(np.uint64)) for column in (hashes, prefixes, suffixes))
    extended = np.bincount(suffix_at[words > 1], minlength=len(rows))[at]
    adjusted = np.where(extended > 0, extended, occurrences)
    with_word = words > 0
    totals = np.bincount(prefix_at[with_word], weights=adjusted[with_word], minlength=len(rows))[at].astype(np.int64)
    facts = rows.append_column("adjusted", pa.array(adjusted)).append_column("total", pa.array(totals))
    capped = {name: np.minimum(facts[name].to_numpy(), cap) for name, cap in _CAPS.items()}
    figures = pa.table({"words": words, **capped}).group_by(["words", *_CAPS]).aggregate([([], "count_all")])
    figures = figures.rename_columns(["words", *_CAPS, "ngrams"])
    kept = (occurrences >= _thresholds(figures, config)[words]) | (hashes == _signed("</s>"))
    return _smoothed(facts.filter(pa.array(kept)), figures, config)


def _smoothed(rows: pa.Table, figures: pa.Table, config: NgramConfig) -> NgramModel:
    """Make a model from the sufficiently frequent n-grams.

    Args:
        rows: columns _NGRAM_FACTS, the contexts that are no n-grams among them: no word at all, and `<s>`.
        figures: number of n-grams (`ngrams`) by words, adjusted and ngram_count (up to _CAPS), pruned ones too.
        config: of the counted order.
    """
    rows = rows.take(pa.array(np.argsort(rows["ngram"].to_numpy().view(np.uint64))))
    hashes, prefixes, suffixes = (rows[name].to_numpy().view(np.uint64) for name in _NGRAM_FACTS[:3])
    words, adjusted, totals = (rows[name].to_numpy() for name in ("words", "adjusted", "total"))
    if not (words > 0).any():
        raise InputError("n-gram model: the texts have no word; take other documents")
    places = _places(hashes)
    prefix_at, suffix_at = look_up(places, prefixes), look_up(places, suffixes)
    kept = words == 0
    for n in range(1, config.order + 1):  # an n-gram needs those without its first and its last word
        at = np.flatnonzero((words == n) & (prefix_at >= 0) & (suffix_at >= 0))
        kept[at] = kept[prefix_at[at]] & kept[suffix_at[at]]

    taken = discounts(figures, config.order)[words, np.minimum(adjusted, 3)]
    kept_words = np.flatnonzero(kept & (words > 0))
    left = np.bincount(prefix_at[kept_words], weights=adjusted[kept_words] - taken[kept_words], minlength=len(rows))
    with np.errstate(invalid="ignore", divide="ignore"):
        backoffs = np.where(totals > 0, 1 - left / totals, 1.0)
    empty = int(np.searchsorted(hashes, EMPTY))
    vocabulary = int((kept & (words == 1)).sum()) + 1  # and <unk>
    probabilities = np.ones(len(rows))  # that of <s> is never asked for
    probabilities[empty] = 1 / vocabulary
    for n in range(1, config.order + 1):
        at = np.flatnonzero(kept & (words == n))
        shares = (adjusted[at] - taken[at]) / totals[prefix_at[at]]
        probabilities[at] = shares + backoffs[prefix_at[at]] * probabilities[suffix_at[at]]
    final = np.flatnonzero(kept & (hashes != EMPTY))
    final_hashes = np.append(hashes[final], np.uint64(hash_ngram(["<unk>"])))
    values = np.append(probabilities[final], backoffs[empty] / vocabulary), np.append(backoffs[final], 1.0)
    order = np.argsort(final_hashes)
    log10 = [np.log10(np.maximum(column[order], 1e-30)).astype(np.float32) for column in values]
    return NgramModel(config.order, "folded", final_hashes[order], *log10)


def discounts(figures: pa.Table, order: int) -> Float64Array:
    """(order + 1, 4) discount D of an n-gram, by its words and its adjusted count; column 3 is for 3 and more."""
    taken = np.zeros((order + 1, 4))
    words, adjusted, ngrams = (figures[name].to_numpy() for name in ("words", "adjusted", "ngrams"))
    for n in range(1, order + 1):
        t = np.bincount(adjusted[words == n], weights=ngrams[words == n], minlength=6)
        with np.errstate(invalid="ignore", divide="ignore"):
            estimates = np.array([k - (k + 1) * t[1] / (t[1] + 2 * t[2]) * t[k + 1] / t[k] for k in (1, 2, 3)])
        fits = np.isfinite(estimates).all() and ((estimates >= 0) & (estimates <= (1, 2, 3))).all()
        taken[n, 1:] = estimates if fits else _NO_DISCOUNTS
    return taken


def _thresholds(figures: pa.Table, config: NgramConfig) -> Int64Array:
    """(order + 1,) least occurrences of a kept n-gram, by its words; raised until at most `max_ngrams` are kept."""
    words, occurrences, ngrams = (figures[name].to_numpy() for name in ("words", "ngram_count", "ngrams"))
    min_counts = config.min_counts
    least = np.array([0, *(min_counts[min(n, len(min_counts)) - 1] for n in range(1, config.order + 1))])
    while ngrams[(occurrences >= least[words]) & (words > 0)].sum() > config.max_ngrams:
        least[min(2, config.order) :] += 1
        if least[-1] > _CAPS["ngram_count"]:
            raise ConfigError(f"n-gram model: more than {config.max_ngrams} n-grams are frequent; raise max_ngrams")
    return least


def _places(hashes: UInt64Array) -> NgramTable:
    """Hash table from sorted hashes to their indices, for `look_up`; ten times as fast as np.searchsorted."""
    return ngram_table(hashes, np.arange(len(hashes), dtype=np.uint64))
