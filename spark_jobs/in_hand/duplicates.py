"""Deduplicate texts in hand, as a corpus of a lake does: copies by bytes and letters, then near copies by their bags.

    texts  ->  letters: equal ones go   ->  bags, signatures, buckets  ->  near ones go, each with the kept one and J

Rows are kept in their order, the first of equal ones. A removed row names the kept row that it is like, and their
exact weighted Jaccard similarity. Buckets find a pair at the threshold with probability 0.9999, others more surely.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.process.memory_limit import core_count
from spark_jobs.arrays import Int64Array, UInt8Array, UInt64Array
from spark_jobs.dedup.bags.bag_arrays import Bags, rows_of, token_weights, total_weights
from spark_jobs.dedup.bags.bags import BagsConfig
from spark_jobs.dedup.bags.features import Features
from spark_jobs.dedup.bags.vocabulary import UNIT_SCALE
from spark_jobs.dedup.graph.threshold_pairs import ascending, exact
from spark_jobs.dedup.near.buckets import RELATED, BucketsConfig
from spark_jobs.dedup.sketches.background import BINS, BackgroundConfig
from spark_jobs.dedup.sketches.signatures import SignaturesConfig
from spark_jobs.exceptions import InputError, did_you_mean
from spark_jobs.in_hand.frames import Frame, frame_of
from spark_jobs.sources.config.file_reading import KINDS
from spark_jobs.text.texts import TextsConfig
from spark_jobs.threads import in_order_of

_SIGNED_ROWS = 4096  # documents of a call: threads take turns, and a signature has 256 bytes
_REMOVED = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("kept_row", pa.int64(), nullable=False),
        pa.field("match", pa.string(), nullable=False),
        pa.field("similarity", pa.float64(), nullable=False),
    ]
)


@dataclass(frozen=True)
class Deduplicated:
    """What deduplication leaves of N rows.

    Attributes:
        rows: the rows that stay, in the type that was given.
        row_numbers: (K,) int64 of these, ascending.
        removed: a table of the others: `row`, `kept_row` that it is like, `match` (bytes, letters or near), and
            `similarity`, 1 for bytes and letters.
    """

    rows: Any
    row_numbers: Int64Array
    removed: pa.Table

    def __len__(self) -> int:
        return len(self.row_numbers)

    def __repr__(self) -> str:
        total = len(self) + len(self.removed)
        how = pc.value_counts(self.removed["match"]).to_pylist()
        counts = ", ".join(f"{entry['counts']:,} by {entry['values']}" for entry in how)
        return f"{len(self):,} of {total:,} rows are kept" + (f"; removed: {counts}" if counts else "")


class _WeighedTexts(NamedTuple):
    """Tokens of the documents of a batch, before they are weighed: offsets, hashes, capped counts."""

    offsets: Int64Array
    hashes: UInt64Array
    levels: UInt8Array


def deduplicate(
    data: Any,
    column: str | None = "text",
    *,
    threshold: float = 0.8,
    kind: str = "prose",
    language: str | None = None,
    recall: float = 0.9999,
) -> Deduplicated:
    """Keep the first of equal and of near-identical texts.

    Args:
        data: a pandas, Polars or Arrow frame, a Hugging Face dataset, a list, or an iterator of Arrow batches.
        column: of the texts; of a list of texts it has no meaning. A row without a text is kept and not compared.
        threshold: weighted Jaccard similarity from which on the later of two texts goes, above 0 and at most 1.
        kind: what the texts are: code, prose, markup or data.
        language: of code, by which it is lexed; of prose it has no meaning.
        recall: share of the pairs at the threshold that buckets find.

    Raises:
        InputError: a column, kind or threshold that cannot be; a threshold has six decimals at most.
    """
    if kind not in KINDS:
        raise InputError(
            f"deduplicate: there is no kind {kind!r}{did_you_mean(kind, KINDS)}; kinds: {', '.join(KINDS)}"
        )
    if not 0 < threshold <= 1:
        raise InputError(f"deduplicate: threshold {threshold:g}: it is above 0 and at most 1")
    try:
        ascending((threshold,))
    except ValueError as error:
        raise InputError(f"deduplicate: {error}") from error
    frame = frame_of(data, column)
    with ThreadPoolExecutor(core_count()) as pool:
        compared = [*_compared(frame, kind, pool)]
        letters, content = (_joined([part[at] for part in compared]) for at in (0, 1))
        firsts, matches = _first_of_equals(letters, content, np.asarray(frame.texts.is_null()))
        is_first = (firsts == np.arange(len(frame))) & ~_is_empty(frame)
        near = _near(
            [part[2] for part in compared], np.flatnonzero(is_first), (kind, language), (threshold, recall), pool
        )
    return _result(frame, firsts, matches, near)


def _joined(parts: list[pa.Array]) -> pa.Array:
    return pa.chunked_array(parts, pa.string()).combine_chunks()


def _compared(frame: Frame, kind: str, pool: ThreadPoolExecutor) -> Iterator[tuple[pa.Array, pa.Array, pa.Array]]:
    """Of each batch of texts the hashes of their letters, null for short ones, of their bytes, and the normal texts."""
    from spark_jobs.sources.reading.record_rows import digit_strings, sha256_of_texts
    from spark_jobs.text.compared_texts import letters_column
    from spark_jobs.text.text_columns import normalized

    def work(texts: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
        plain = texts.cast(pa.string())
        content, _ = normalized(plain)
        kinds = pa.repeat(pa.scalar(kind, pa.string()), len(texts))
        hashes = digit_strings(sha256_of_texts(plain))
        return letters_column(content, kinds, TextsConfig().min_letters), hashes, content

    yield from in_order_of(pool, work, frame.batches())


def _first_of_equals(letters: pa.Array, content: pa.Array, is_null: np.ndarray) -> tuple[Int64Array, np.ndarray]:
    """(N,) the first row that each equals, and (N,) whether by bytes or letters; a null equals none.

    Args:
        letters: (N,) hashes of the letters of each text, null for a short one, which is equal by its bytes alone.
        content: (N,) hashes of its bytes.
        is_null: (N,) whether there is no text.
    """
    by_bytes = _first_rows(pc.if_else(pa.array(is_null), pa.scalar(None, content.type), content))
    firsts = np.where(np.asarray(letters.is_valid()), _first_rows(letters), by_bytes)
    return firsts, np.where(by_bytes == firsts, "bytes", "letters")


def _first_rows(values: pa.Array) -> Int64Array:
    """(N,) the first row with the value of each; of a null the row itself."""
    codes = values.dictionary_encode().indices
    numbers = codes.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    rows = np.arange(len(numbers))
    first = np.full(int(numbers.max(initial=-1)) + 1, len(numbers), np.int64)
    np.minimum.at(first, numbers[numbers >= 0], rows[numbers >= 0])
    result: Int64Array = np.where(numbers >= 0, first[numbers] if len(first) else rows, rows)
    return result


def _is_empty(frame: Frame) -> np.ndarray:
    """(N,) bool, whether a row has no text."""
    return np.asarray(pc.fill_null(pc.equal(pc.binary_length(frame.texts), 0), True))


def _near(
    texts: list[pa.Array],
    rows: Int64Array,
    described: tuple[str, str | None],
    asked: tuple[float, float],
    pool: ThreadPoolExecutor,
) -> tuple[Int64Array, Int64Array, np.ndarray]:
    """Rows that near copies remove, the kept row of each, and J.

    Args:
        texts: normal texts of all rows, batch by batch.
        rows: (D,) those that are compared, ascending.
        described: kind and language of the texts.
        asked: threshold and recall.
        pool: of threads.
    """
    from spark_jobs.dedup.near.comparison import SIGNATURE_LOSS
    from spark_jobs.dedup.sketches.similarity import least_agreement
    from spark_jobs.in_hand.greedy import Sketched, removed_documents

    nothing = np.zeros(0, np.int64)
    threshold, recall = asked
    counted = [*_counted(texts, rows, described, pool)]
    some = np.concatenate([nothing, *(np.diff(part.offsets) for part in counted)])
    bagged = rows[some > 0]  # a text without any token is no duplicate
    if len(bagged) < 2:
        return nothing, nothing, np.zeros(0)
    bags, hot = _weighed(counted, len(rows))
    sketches = _signed(bags, hot, pool)
    buckets = _buckets(bags, sketches, (threshold, recall), pool)
    documents = Sketched(bags.offsets, bags.hashes, token_weights(bags), total_weights(bags), sketches)
    removed = removed_documents(documents, buckets, exact(threshold), least_agreement(exact(threshold), SIGNATURE_LOSS))
    return bagged[removed.documents], bagged[removed.witnesses], removed.shared / removed.united


def _counted(
    texts: list[pa.Array], rows: Int64Array, described: tuple[str, str | None], pool: ThreadPoolExecutor
) -> Iterator[_WeighedTexts]:
    """Tokens of the compared texts."""
    from spark_jobs.dedup.bags.features import token_rules
    from spark_jobs.dedup.bags.token_counts import count_tokens

    kind, language = described
    starts = np.concatenate([[0], np.cumsum([len(part) for part in texts])])

    def work(number: int) -> _WeighedTexts:
        first, last = np.searchsorted(rows, starts[number : number + 2])
        content = texts[number].take(pa.array(rows[first:last] - starts[number]))
        rules = token_rules([kind] * len(content), [language] * len(content), Features())
        tokens = count_tokens(content, *rules)
        levels = np.minimum(tokens.counts, BagsConfig().max_level).astype(np.uint8)
        return _WeighedTexts(tokens.offsets, tokens.hashes, levels)

    yield from in_order_of(pool, work, range(len(texts)))


def _weighed(counted: list[_WeighedTexts], document_count: int) -> tuple[Bags, tuple[UInt64Array, UInt8Array]]:
    """Bags of the documents that have a token, and the hottest tokens with their weights.

    Weights are those of a vocabulary of these documents: a token of one document alone weighs as an unknown one.
    """
    from spark_jobs.dedup.bags.token_table import UnitTable

    hashes = np.concatenate([part.hashes for part in counted])
    levels = np.concatenate([part.levels for part in counted])
    lengths = np.concatenate([np.diff(part.offsets) for part in counted])
    distinct, frequency = np.unique(hashes, return_counts=True)
    others = _unit(document_count, np.ones(1))
    shared = frequency >= 2
    units = _unit(document_count, frequency[shared])
    table = UnitTable(distinct[shared], units)
    weights = table.of(hashes, np.repeat(others, len(hashes)))
    hottest = np.lexsort((distinct[shared].view(np.int64), -frequency[shared]))[: SignaturesConfig().hot_tokens]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths[lengths > 0])])
    return Bags(offsets, hashes, weights, levels), (distinct[shared][hottest], units[hottest])


def _unit(document_count: int, frequency: np.ndarray) -> UInt8Array:
    """(V,) weight of one occurrence of tokens that so many documents hold."""
    scaled = np.rint(UNIT_SCALE * np.log((document_count + 1) / (frequency + 1)))
    units: UInt8Array = scaled.clip(1, 255).astype(np.uint8)
    return units


def _signed(bags: Bags, hot: tuple[UInt64Array, UInt8Array], pool: ThreadPoolExecutor) -> UInt8Array:
    """(D, K) signatures."""
    from spark_jobs.dedup.sketches.darts import make_darts
    from spark_jobs.dedup.sketches.weighted_minhash import signatures

    darts = make_darts(SignaturesConfig().seed, SignaturesConfig().max_level, *hot)

    def work(first: int) -> UInt8Array:
        last = min(first + _SIGNED_ROWS, len(bags))
        begin, end = bags.offsets[first], bags.offsets[last]
        part = Bags(
            bags.offsets[first : last + 1] - begin,
            bags.hashes[begin:end],
            bags.units[begin:end],
            bags.levels[begin:end],
        )
        return np.ascontiguousarray(signatures(part, darts))

    return np.concatenate([*in_order_of(pool, work, range(0, len(bags), _SIGNED_ROWS))])


def _buckets(bags: Bags, sketches: UInt8Array, asked: tuple[float, float], pool: ThreadPoolExecutor) -> Any:
    """Buckets of the documents, by bands that are solved for them."""
    from spark_jobs.dedup.near.buckets_by_band import bucket_batches
    from spark_jobs.dedup.sketches.bands import solve_bands
    from spark_jobs.dedup.sketches.similarity import background_counts
    from spark_jobs.in_hand.greedy import buckets_of

    threshold, recall = asked
    count = len(bags)
    most = BackgroundConfig().sample_documents
    sample = np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))
    measured = background_counts(rows_of(bags, sample), BINS)
    scheme = solve_bands(
        measured,
        threshold=threshold,
        recall=recall,
        documents=count,
        false_below=min(threshold, RELATED),
        most_bytes=BucketsConfig().document_bytes,
    )
    values = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(sketches.shape[1]), count, [None, pa.py_buffer(np.ascontiguousarray(sketches))]
    )
    rows = pa.table(
        {
            "increment": pa.array(np.zeros(count, np.int32)),
            "kind": pa.repeat(pa.scalar("prose", pa.string()), count),
            "place": pa.array(np.arange(count)),
            "signature": values.cast(pa.binary()),
        }
    )
    batches = pa.Table.from_batches(rows.to_batches(max_chunksize=_SIGNED_ROWS))
    members, lengths = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for batch in bucket_batches(batches, {None: scheme}, 0, pool._max_workers):
        lists = batch.column("members")
        lengths.append(pc.list_value_length(lists).to_numpy().astype(np.int64))
        members.append(lists.flatten().to_numpy())
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(lengths))])
    return buckets_of(np.concatenate(members), starts, count)


def _result(
    frame: Frame, firsts: Int64Array, matches: np.ndarray, near: tuple[Int64Array, Int64Array, np.ndarray]
) -> Deduplicated:
    """Rows that stay, and those that go."""
    rows = np.arange(len(frame))
    copies = rows[firsts != rows]
    gone, witnesses, similarity = near
    # A copy of a near copy is like the kept row in its place; its J is that of the row that it equals.
    kept_row, match, value = firsts.copy(), matches.astype(object), np.ones(len(frame))
    kept_row[gone], match[gone], value[gone] = witnesses, "near", similarity
    through = copies[kept_row[firsts[copies]] != firsts[copies]]
    value[through], match[through] = value[firsts[through]], "near"
    kept_row[through] = kept_row[firsts[through]]
    removed = np.sort(np.concatenate([copies, gone]))
    table = pa.table(
        [removed, kept_row[removed], pa.array(match[removed], pa.string()), value[removed]], schema=_REMOVED
    )
    stays = np.ones(len(frame), np.bool_)
    stays[removed] = False
    numbers = np.flatnonzero(stays)
    return Deduplicated(frame.rows(numbers), numbers, table)
