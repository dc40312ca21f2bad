"""Passages: spans of at least 50 words that a document has in common with an earlier one, all of them.

    anchors    two documents that repeat 50 words have one in common: those of one document alone are dropped
    windows    of the texts that are left, the windows with such an anchor, in one part by anchor
    copies     the first of equal windows stays, the others are copies; consecutive ones are a passage
    places     texts are read once more, for where in them these words are

Nothing but the words is compared: what stands between them, such as punctuation, may differ. The first occurrence is
that in the earliest increment, then in the document with the lowest `place`, then at the first position. Documents that
have left are not there (`revisions`), and where the corpus cuts its passages, nor are these.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pydantic import Field

from spark_jobs.dedup.membership.revisions import left_members
from spark_jobs.dedup.passages.anchors import KEYS
from spark_jobs.lake.declare.step import ConfigModel, Output, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table, ddl_names
from spark_jobs.lake.engine.arrangement import dealt_in_turn, grouped, persist, release
from spark_jobs.lake.files.side_reads import map_joined
from spark_jobs.spark_sql import DataFrame, F

if TYPE_CHECKING:
    from spark_jobs.arrays import Int64Array, UInt64Array

_PART_RECORDS = 4_000_000  # of 16 bytes that a task holds in memory and sorts
_PART_WINDOWS = 16_000_000  # of 8 bytes
_WINDOWS_OF = 13  # windows of an anchor, about
_RUN_COLUMNS = ("place", "word_start", "word_end", "first_place", "first_word_start", "first_word_end")
_BLOCKS_DDL = "part int, keys binary, places binary, earlier boolean"
_SHARED_DDL = "place bigint, anchors binary"
_WINDOWS_DDL = "part int, records binary, windows binary"
_RUNS_DDL = ", ".join(f"{name} bigint" for name in _RUN_COLUMNS)
_FOUND_DDL = (
    "dataset string, shard int, doc_id string, place bigint, word_start bigint, word_end bigint, "
    "start bigint, end bigint, passage string"
)
_RECORD = np.dtype([("place", "<i8"), ("since", "<i4"), ("first", "<i4"), ("count", "<i4")])


class PassagesConfig(ConfigModel):
    """What counts as there."""

    cut_from: int | None = Field(
        None,
        ge=50,
        description="fewest words of a passage that the corpus cuts, so that no copy is left",
    )


PASSAGES = Table(
    name="passages",
    comment="One row per span of at least 50 words of a document that an earlier document has too.",
    columns=(
        Column("dataset!", "string", "dataset that the document came from"),
        Column("shard!", "int", "hash of the repository (else the doc_id) modulo the dataset's shards"),
        Column("doc_id!", "string", "the document"),
        Column("start!", "long", "first character of the span in its text"),
        Column("end!", "long", "character after the last"),
        Column("word_start!", "long", "words of the document before it"),
        Column("words!", "long", "words of the span; characters in scripts without spaces"),
        Column("passage!", "string", "hash of its words, 16 hex digits: spans of equal words have equal ones"),
        Column("first_dataset!", "string", "dataset of the document that has it first"),
        Column("first_doc_id!", "string", "that document, the one to keep"),
        Column("first_start!", "long", "first character there"),
        Column("first_end!", "long", "character after the last; a short text that repeats may be shorter there"),
    ),
    key=("doc_id", "start"),
    partition=("increment", "shard"),
    checks=(
        Check("long_enough", "words >= 50 and end - start >= 50", "a passage has 50 words"),
        Check("another_document", "doc_id <> first_doc_id", "what a document repeats of itself is no passage"),
    ),
)


@step(version="1", scope=Scope.HISTORY, tables=(PASSAGES,))
def passages(
    anchors: DataFrame,
    texts: DataFrame,
    passages: DataFrame,
    increment: int,
    config: PassagesConfig,
    revisions: DataFrame | None = None,
) -> Output:
    """Find all spans of 50 words that new documents have in common with others; one row per later occurrence."""
    in_corpus = anchors
    if revisions is not None:
        in_corpus = in_corpus.join(left_members(revisions), "doc_id", "left_anti")
    shared = _shared_anchors(in_corpus, increment)
    identities = in_corpus.select(*KEYS, "place", F.col("increment").alias("since"))
    wanted = identities.join(shared.groupBy("place").agg(F.collect_list("anchors").alias("anchors")), "place")
    gone = F.lit(False) if config.cut_from is None else F.col("words") >= config.cut_from
    copied = passages.where(gone).groupBy("doc_id")
    spans = F.collect_list(F.struct("word_start", (F.col("word_start") + F.col("words")).alias("word_end")))
    wanted = wanted.join(copied.agg(spans.alias("copied")), "doc_id", "left")
    anchor_count = shared.select(F.sum(F.octet_length("anchors") / 8)).first()
    part_count = 1 + int((anchor_count and anchor_count[0]) or 0) * _WINDOWS_OF // _PART_WINDOWS
    columns = ["kind", "language", "place", "since", "anchors", "copied"]
    emit = functools.partial(_window_blocks, part_count=part_count)
    windows = map_joined(texts, wanted, KEYS, columns, ["content"], emit, _WINDOWS_DDL).to_frame()
    copies = functools.partial(_copies, increment=increment)
    of_parts = dealt_in_turn(windows, part_count, F.col("part"))
    runs = of_parts.map(copies, _RUNS_DDL).to_frame()
    rows = persist(grouped(runs, ["place"], ["word_start"]).map(_joined, _RUNS_DDL).to_frame())
    release(of_parts.frame)
    located = persist(_located(rows, texts, identities))
    return Output({PASSAGES.name: _named(rows, located)}, persisted=(shared, rows, located))


def _shared_anchors(in_corpus: DataFrame, increment: int) -> DataFrame:
    """Anchors that several documents have, one of them new, persisted: place and some anchors of it."""
    from spark_jobs.dedup.near.key_filter import filter_of, passing_share

    is_new = F.col("increment") == increment
    sums = [F.sum(F.when(chosen, F.col("anchor_count"))) for chosen in (is_new, ~is_new)]
    new_count, old_count = (int(value or 0) for value in in_corpus.agg(*sums).first() or (0, 0))
    part_count = 1 + int(new_count + passing_share(new_count) * old_count) // _PART_RECORDS
    emit = functools.partial(_anchor_blocks, part_count=part_count)
    new = in_corpus.where(is_new).select("place", "anchors")
    blocks = new.mapInArrow(functools.partial(emit, earlier=False, filled=None), _BLOCKS_DDL)
    if old_count:
        filled = filter_of(new, _anchors_of, new_count)
        old = in_corpus.where(~is_new).select("place", "anchors")
        blocks = blocks.unionByName(old.mapInArrow(functools.partial(emit, earlier=True, filled=filled), _BLOCKS_DDL))
    of_parts = dealt_in_turn(blocks, part_count, F.col("part"))
    shared = persist(of_parts.map(_in_several, _SHARED_DDL).to_frame())
    release(of_parts.frame)
    return shared


def _anchors_of(batch: pa.RecordBatch) -> UInt64Array:
    """The anchors of all documents of a batch."""
    return _numbers(batch.column("anchors"))[1]


def _numbers(column: pa.Array) -> tuple[Int64Array, UInt64Array]:
    """Byte strings of 8-byte numbers: (D + 1,) offsets into the numbers, and these."""
    wide = column.cast(pa.large_binary())
    _, ends, data = wide.buffers()
    offsets = np.frombuffer(ends, np.int64)[wide.offset : wide.offset + len(wide) + 1]
    values = np.frombuffer(data or b"", np.uint8)[offsets[0] : offsets[-1]]
    return (offsets - offsets[0]) // 8, np.array(values.view("<u8"), np.uint64)


def _anchor_blocks(
    batches: Iterable[pa.RecordBatch], part_count: int, earlier: bool, filled: bytes | None
) -> Iterator[pa.RecordBatch]:
    """The anchors and places of documents, in one block for every part that gets any."""
    from spark_jobs.dedup.near.bucket_records import scatter
    from spark_jobs.dedup.near.key_filter import has_keys

    for batch in batches:
        offsets, keys = _numbers(batch.column("anchors"))
        places = np.repeat(batch.column("place").to_numpy(), np.diff(offsets))
        if filled is not None:
            passing = has_keys(keys, np.frombuffer(filled, np.uint8))
            keys, places = keys[passing], places[passing]
        bounds, keys, places = scatter(keys, places, part_count)
        spans = [(part, slice(bounds[part], bounds[part + 1])) for part in np.flatnonzero(np.diff(bounds)).tolist()]
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([part for part, _ in spans], pa.int32()),
                pa.array([keys[span].tobytes() for _, span in spans], pa.binary()),
                pa.array([places[span].tobytes() for _, span in spans], pa.binary()),
                pa.array([earlier] * len(spans), pa.bool_()),
            ],
            names=ddl_names(_BLOCKS_DDL),
        )


def _in_several(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """By document, the anchors of one part that another one has too."""
    from spark_jobs.dedup.bags.bag_arrays import binary_column
    from spark_jobs.dedup.near.bucket_records import group_by_key

    keys, places, earlier = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)], [np.zeros(0, np.bool_)]
    for batch in batches:
        offsets, values = _numbers(batch.column("keys"))
        keys.append(values)
        places.append(_numbers(batch.column("places"))[1].view(np.int64))
        earlier.append(np.repeat(batch.column("earlier").to_numpy(zero_copy_only=False), np.diff(offsets)))
    groups = group_by_key(np.concatenate(keys), np.concatenate(places), np.concatenate(earlier))
    both = np.concatenate([groups.new, groups.earlier])
    of = [np.repeat(groups.keys, np.diff(offsets)) for offsets in (groups.new_offsets, groups.earlier_offsets)]
    order = np.argsort(both, kind="stable")
    documents, starts = np.unique(both[order], return_index=True)
    column = binary_column(np.concatenate(of)[order], np.append(starts, len(both)).astype(np.int64))
    yield pa.RecordBatch.from_arrays([pa.array(documents), column], names=ddl_names(_SHARED_DDL))


def _window_blocks(batches: Iterable[pa.RecordBatch], part_count: int) -> Iterator[pa.RecordBatch]:
    """The windows of texts that have an anchor of several documents, in one block for every part that gets any.

    A record is consecutive windows of one anchor, and goes to the part of this.
    """
    from spark_jobs.dedup.near.bucket_records import scatter
    from spark_jobs.dedup.passages.windows import chosen_windows, slices, windows_in, words_in

    for batch in (part for whole in batches for part in slices(whole)):
        windows_of_texts = windows_in(words_in(batch))
        chosen = chosen_windows(
            *windows_of_texts[:2], *_wanted(batch.column("anchors")), *_spans(batch.column("copied"))
        )
        at = np.flatnonzero(chosen)
        document = np.repeat(np.arange(len(batch)), np.diff(windows_of_texts.offsets))[at]
        anchors = windows_of_texts.anchors[at]
        breaks = (np.diff(at) != 1) | (np.diff(document) != 0) | (anchors[1:] != anchors[:-1])
        starts = np.flatnonzero(np.concatenate([[True] * bool(len(at)), breaks]))
        counts = np.diff(np.append(starts, len(at)))
        records = np.empty(len(starts), _RECORD)
        for name in ("place", "since"):
            records[name] = batch.column(name).to_numpy()[document[starts]]
        records["first"] = at[starts] - windows_of_texts.offsets[document[starts]]
        records["count"] = counts
        bounds, _, order = scatter(anchors[starts], np.arange(len(starts)), part_count)
        for part in np.flatnonzero(np.diff(bounds)).tolist():
            rows = order[bounds[part] : bounds[part + 1]]
            inside = np.repeat(starts[rows] - np.cumsum(counts[rows]) + counts[rows], counts[rows])
            windows = windows_of_texts.hashes[at[inside + np.arange(len(inside))]]
            columns = [
                pa.array([part], pa.int32()),
                *(pa.array([x.tobytes()], pa.binary()) for x in (records[rows], windows)),
            ]
            yield pa.RecordBatch.from_arrays(columns, names=ddl_names(_WINDOWS_DDL))


def _wanted(column: pa.ListArray) -> tuple[Int64Array, UInt64Array]:
    """Lists of byte strings of anchors: (D + 1,) offsets into the anchors, and these, ascending for each document."""
    offsets, values = _numbers(column.flatten())
    bounds = offsets[column.offsets.to_numpy() - column.offsets[0].as_py()]
    return bounds, values[np.lexsort((values, np.repeat(np.arange(len(column)), np.diff(bounds))))]


def _spans(column: pa.ListArray) -> tuple[Int64Array, Int64Array]:
    """Lists of spans: (D + 1,) offsets into the spans, and (S, 2) these; a null is a list of none."""
    flat = column.flatten()
    lengths = column.value_lengths().fill_null(0).to_numpy()
    both = [flat.field(number).to_numpy().astype(np.int64) for number in (0, 1)]
    return np.cumsum([0, *lengths], dtype=np.int64), np.stack(both, axis=1)


def _copies(batches: Iterable[pa.RecordBatch], increment: int) -> Iterator[pa.RecordBatch]:
    """Runs of copies among the windows of one part, which is held in memory."""
    from spark_jobs.dedup.passages.copies import find_copies

    blocks, hashes = [np.zeros(0, _RECORD)], [np.zeros(0, np.uint64)]
    for batch in batches:
        blocks += [np.frombuffer(block.as_buffer(), _RECORD) for block in batch.column("records")]
        hashes.append(_numbers(batch.column("windows"))[1])
    records = np.concatenate(blocks)
    order = np.lexsort((records["place"], records["since"]))
    since, place = records["since"][order], records["place"][order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (np.diff(since) != 0) | (np.diff(place) != 0)
    number = np.empty(len(order), np.int32)
    number[order] = np.cumsum(begins) - 1
    offsets = np.cumsum(np.concatenate([[0], records["count"]]), dtype=np.int64)
    first = np.ascontiguousarray(records["first"])
    runs = find_copies(np.concatenate(hashes), offsets, number, first, since[begins] == increment)
    runs[0], runs[3] = place[begins][runs[0]], place[begins][runs[3]]
    yield _run_rows(runs)


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Passages as spans of words, of runs of windows of the same documents that come by their start."""
    from spark_jobs.dedup.passages.copies import joined
    from spark_jobs.dedup.passages.windows import WORDS

    tables = [batch for batch in batches if batch.num_rows]
    if tables:
        runs = pa.Table.from_batches(tables)
        longest = joined(np.stack([runs.column(name).to_numpy() for name in _RUN_COLUMNS]))
        longest[[2, 5]] += WORDS - 1
        yield _run_rows(longest)


def _run_rows(runs: Int64Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(column) for column in runs], names=list(_RUN_COLUMNS))


def _located(rows: DataFrame, texts: DataFrame, identities: DataFrame) -> DataFrame:
    """Where in their texts all spans of some passages are, each once: `_FOUND_DDL`."""
    names = ("place", "word_start", "word_end")
    firsts = rows.select(*(F.col(f"first_{name}").alias(name) for name in names))
    spans = rows.select(*names).unionByName(firsts).distinct().groupBy("place")
    wanted = identities.join(spans.agg(F.collect_list(F.struct(*names[1:])).alias("spans")), "place")
    columns = [*KEYS, "kind", "language", "place", "spans"]
    return map_joined(texts, wanted, KEYS, columns, ["content"], _place_spans, _FOUND_DDL).to_frame()


def _place_spans(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Characters and hashes of spans of words of texts."""
    from spark_jobs.dedup.passages.windows import slices, span_hashes, words_in
    from spark_jobs.text.text_columns import utf8_arrays

    for batch in (part for whole in batches for part in slices(whole)):
        words = words_in(batch)
        bounds, spans = _spans(batch.column("spans"))
        document = np.repeat(np.arange(len(batch)), np.diff(bounds))
        starts, ends = spans.T
        data, offsets = utf8_arrays(batch.column("content"))
        begins = np.cumsum((data[offsets[0] : offsets[-1]] & 0xC0) != 0x80, dtype=np.int64)  # characters up to a byte
        before = np.concatenate([[0], begins])[offsets[document] - offsets[0]]
        first, last = words.offsets[document] + starts, words.offsets[document] + ends
        hashes = span_hashes(words.hashes, first, last)
        taken = pa.array(document)
        yield pa.RecordBatch.from_arrays(
            [
                *(batch.column(name).take(taken) for name in (*KEYS, "place")),
                pa.array(starts),
                pa.array(ends),
                pa.array(begins[words.starts[first]] - 1 - before),
                pa.array(begins[words.ends[last - 1] - 1] - before),
                pa.array([f"{h:016x}" for h in hashes.tolist()], pa.string()),
            ],
            names=ddl_names(_FOUND_DDL),
        )


def _named(rows: DataFrame, located: DataFrame) -> DataFrame:
    """Rows of the table, of spans of words and of where all of them are."""
    names = ("place", "word_start", "word_end", "dataset", "doc_id", "start", "end")
    firsts = located.select(*(F.col(name).alias(f"first_{name}") for name in names))
    both = rows.join(located, list(names[:3])).join(firsts, [f"first_{name}" for name in names[:3]])
    counted = both.withColumn("words", F.col("word_end") - F.col("word_start"))
    return counted.select([column.name for column in PASSAGES.columns])
