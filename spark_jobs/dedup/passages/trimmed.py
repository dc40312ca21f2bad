r"""Trimmed: the documents that go on where a corpus cuts passages, and the texts that were cut.

What an earlier document has too (`passages`) is cut, the first occurrence stays. A cut begins and ends at the border of
a line, in prose of a sentence too, and holds nothing but words of passages:

    Read this. In no event shall we .. be liable. But do ask.      a passage from `no` to `liable`: nothing is cut,
    Read this. In no event shall we .. be liable. But do ask.      from `In` to `liable`: this sentence

Which passages there are was found before any was cut. Words that a cut brought together may stand so in two documents:
that is counted, and not cut again.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from pydantic import Field

from spark_jobs.arrays import Int64Array
from spark_jobs.dedup.passages.anchors import KEYS
from spark_jobs.dedup.removal.survivors import SURVIVORS
from spark_jobs.lake.declare.step import ConfigModel, Output, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.engine.arrangement import persist
from spark_jobs.lake.files.side_reads import map_joined
from spark_jobs.selection.cuts import TEXT_COLUMNS, without
from spark_jobs.spark_sql import DataFrame, F
from spark_jobs.text.texts import TEXTS

_WORD: Final = re.compile(r"\w")
_LINE: Final = re.compile(r"\n")
_SENTENCE: Final = re.compile(r"\n|[.!?…]+[\"'”’»)\]]*[^\S\n]+(?![a-z])|[。！？]+[」』”’）]*")
_JOINT_WORDS: Final = 25  # on each side of a cut: together the shortest passage
_CUT_DDL = (
    "dataset string, shard int, doc_id string, kind string, language string, content string, "
    "edits array<struct<rule: string, start: bigint, end: bigint, replacement_length: bigint>>, "
    "failed array<struct<rule: string, value: double, threshold: double>>, joints array<bigint>"
)
_FAILED_TYPE = pa.list_(pa.struct({"rule": pa.string(), "value": pa.float64(), "threshold": pa.float64()}))


class TrimmedConfig(ConfigModel):
    """What is cut, and which documents are too short after it."""

    min_words: int = Field(50, ge=50, description="words of the shortest passage that is cut")
    min_left: int = Field(
        200,
        ge=0,
        description="fewest characters left, white space around them not counted; a document that was cut to less goes",
    )


TRIMMED = Table(
    name="trimmed",
    comment="One row per document that goes on: nothing was cut of it, or enough is left.",
    columns=SURVIVORS.columns,
    key=("doc_id",),
    partition=("increment", "shard"),
)
CUT_TEXTS = Table(
    name="cut_texts",
    comment="One row per document that something was cut of: its text after that, whether or not it goes on.",
    columns=(
        *SURVIVORS.columns,
        *(column for column in TEXTS.columns if column.name in ("kind", "language", "content")),
        Column(
            "edits!",
            "list<struct<rule!: string, start!: long, end!: long, replacement_length!: long>!>",
            "what was cut, by start: rule (passage), bytes [start, end) of the UTF-8 of `texts.content`, 0",
        ),
        Column(
            "failed!",
            "list<struct<rule!: string, value!: double, threshold!: double>!>",
            "too_little_left with the characters that are left and the bound, where it does not go on; else empty",
        ),
    ),
    key=("doc_id",),
    partition=("increment", "shard"),
    checks=(Check("something_was_cut", "size(edits) > 0", "a text without a cut is in `texts` alone"),),
    sampled=("content",),
)


@step(version="1", scope=Scope.INCREMENT, tables=(TRIMMED, CUT_TEXTS))
def trimmed(survivors: DataFrame, texts: DataFrame, passages: DataFrame, config: TrimmedConfig) -> Output:
    """Cut the passages that earlier documents have; one row per document that goes on."""
    spans = passages.where(F.col("words") >= config.min_words).groupBy(KEYS)
    spans_by_text = spans.agg(F.sort_array(F.collect_list(F.struct("start", "end"))).alias("spans"))
    columns = [*TEXT_COLUMNS[:-1], "spans"]
    cut = partial(_cut_batches, min_left=config.min_left)
    trimmed_texts = persist(map_joined(texts, spans_by_text, KEYS, columns, ["content"], cut, _CUT_DDL).to_frame())
    stays = survivors.select(KEYS).join(
        trimmed_texts.where(F.size("failed") > 0).select("doc_id"), "doc_id", "left_anti"
    )
    joints = trimmed_texts.select("doc_id", F.explode("joints").alias("joint")).groupBy("joint")
    repeated = joints.agg(F.count_distinct("doc_id").alias("documents")).where("documents > 1").count()
    frames = {TRIMMED.name: stays.select(KEYS), CUT_TEXTS.name: trimmed_texts.drop("joints")}
    return Output(frames, persisted=(trimmed_texts,), summary={"new-repeats": str(repeated)})


def cuts_in(text: str, kind: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """What is cut of a text, as the module says.

    Args:
        text: with its passages.
        kind: code, prose, markup or data.
        spans: first character and character after the last of each passage, by start; they may overlap.
    """
    together: list[tuple[int, int]] = []
    for start, end in spans:
        if together and not _WORD.search(text, together[-1][1], max(start, together[-1][1])):
            together[-1] = (together[-1][0], max(end, together[-1][1]))
        else:
            together.append((start, end))
    pattern = _SENTENCE if kind == "prose" else _LINE
    borders = [0, *(match.end() for match in pattern.finditer(text)), len(text)]
    cuts = []
    for start, end in together:
        low, high = bisect_right(borders, start) - 1, bisect_left(borders, end)
        low += _WORD.search(text, borders[low], start) is not None
        high -= _WORD.search(text, end, borders[high]) is not None
        if borders[low] < borders[high]:
            cuts.append((borders[low], borders[high]))
    return cuts


def _cut_batches(batches: Iterable[pa.RecordBatch], min_left: int) -> Iterator[pa.RecordBatch]:
    """The texts that something is cut of, of batches of texts with passages."""
    from spark_jobs.text.text_columns import EDITS_TYPE

    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("content", "kind", "spans"))
        cut_texts = [
            (row, *without(text, cuts, "passage"))
            for row, (text, kind, spans) in enumerate(zip(*columns, strict=True))
            if (cuts := cuts_in(text, kind, [(span["start"], span["end"]) for span in spans]))
        ]
        if not cut_texts:
            continue
        rows, texts, listed = zip(*cut_texts, strict=True)
        uncut = (
            batch.select(TEXT_COLUMNS[:-1]).take(pa.array(rows)).append_column("content", pa.array(texts, pa.string()))
        )
        left = [len(text.strip()) for text in texts]
        reason = {"rule": "too_little_left", "threshold": float(min_left)}
        failed = [[{**reason, "value": float(size)}] if size < min_left else [] for size in left]
        edits = pa.array(listed, EDITS_TYPE)
        joints = pa.array(_joints(uncut, edits), pa.list_(pa.int64()))
        further = [edits, pa.array(failed, _FAILED_TYPE), joints]
        yield pa.RecordBatch.from_arrays([*uncut.columns, *further], names=[*TEXT_COLUMNS, "edits", "failed", "joints"])


def _joints(uncut: pa.RecordBatch, edits: pa.ListArray) -> list[Int64Array]:
    """For each text that was cut, the hashes of the words around its cuts that are not at its ends."""
    from spark_jobs.dedup.passages.windows import span_hashes, words_in
    from spark_jobs.text.text_columns import edits_of, utf8_arrays

    words = words_in(uncut)
    begins = utf8_arrays(uncut.column("content"))[1]
    joints = []
    for number, cuts in enumerate(edits):
        first, last = words.offsets[number : number + 2]
        places = begins[number] - begins[0] + edits_of(cuts.as_py()).text_start
        at = first + np.searchsorted(words.starts[first:last], places)
        at = at[(at - first >= _JOINT_WORDS) & (last - at >= _JOINT_WORDS)]
        joints.append(span_hashes(words.hashes, at - _JOINT_WORDS, at + _JOINT_WORDS).view(np.int64))
    return joints
