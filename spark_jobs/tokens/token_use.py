"""Counts behind `token_statistics`: documents, tokens, characters, lengths, and which ids of the vocabulary occur.

All are counts, so those of batches, partitions, increments and languages add up. Which ids occur is a bitmap, one bit
an id, and bitmaps are joined by `or`. Lengths of documents are counted in powers of two:

    tokens       0   1   2-3   4-7   8-15   ..
    histogram   [0] [1]  [2]   [3]   [4]    ..
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.control_names import ControlName, NameFinder
from spark_jobs.arrays import BoolArray, Int64Array
from spark_jobs.text.text_columns import utf8_arrays

HISTOGRAM_LENGTH: Final = 33  # a token count has 0 to 32 bits
MEASURES: Final = ("character_count", "byte_count", "word_count")
SUMMED: Final = ("document_count", "token_count", *MEASURES)
COUNTED_SCHEMA: Final = pa.schema(
    [
        pa.field("dataset", pa.string()),
        pa.field("language", pa.string()),
        *(pa.field(name, pa.int64()) for name in SUMMED),
        pa.field("max_token_count", pa.int64()),
        pa.field("length_histogram", pa.list_(pa.int64())),
        pa.field("used_ids", pa.binary()),
        pa.field("named", pa.list_(pa.int64())),
    ]
)

Group = tuple[str, str]


@dataclass
class TokenUse:
    """Counts of some documents.

    Attributes:
        sums: (5,) the counts named in `SUMMED`.
        max_token_count: tokens of the longest document.
        histogram: (HISTOGRAM_LENGTH,) documents by the bits of their token count.
        used: (V,) whether each id occurs.
        named: (N,) documents with each name of a control token.
    """

    sums: Int64Array
    max_token_count: int
    histogram: Int64Array
    used: BoolArray
    named: Int64Array

    def add(self, other: TokenUse) -> None:
        """Add the counts of other documents."""
        self.sums += other.sums
        self.max_token_count = max(self.max_token_count, other.max_token_count)
        self.histogram += other.histogram
        self.used |= other.used
        self.named += other.named


@dataclass
class TokenUses:
    """Counts by dataset and language.

    Attributes:
        vocabulary_size: V.
        name_count: N, names of control tokens.
        by_group: counts of each (dataset, language).
    """

    vocabulary_size: int
    name_count: int = 0
    by_group: dict[Group, TokenUse] = field(default_factory=dict)

    def count(self, batch: pa.RecordBatch) -> None:
        """Count a batch of documents (dataset, language, token_count, the columns of `measured`, input_ids)."""
        from spark_jobs.tokens.text_counts import mark_used  # Numba takes half a second to load

        groups = _groups(batch)
        code_of = {group: number for number, group in enumerate(dict.fromkeys(groups))}
        codes = np.array([code_of[group] for group in groups], dtype=np.int64)
        counts = batch.column("token_count").to_numpy().astype(np.int64)
        measured = np.stack(
            [
                np.ones(len(codes), dtype=np.int64),
                counts,
                *(batch.column(name).to_numpy() for name in MEASURES),
            ]
        )
        used = np.zeros((len(code_of), self.vocabulary_size), dtype=np.bool_)
        mark_used(batch.column("input_ids").flatten().to_numpy(), codes, counts, used)
        names_of_documents = np.repeat(codes, pc.list_value_length(batch.column("named")).to_numpy())
        named = np.zeros((len(code_of), self.name_count), dtype=np.int64)
        np.add.at(named, (names_of_documents, batch.column("named").flatten().to_numpy()), 1)
        bits = np.frexp(counts)[1]
        for group, code in code_of.items():
            rows = codes == code
            self.add(
                group,
                TokenUse(
                    measured[:, rows].sum(axis=1),
                    int(counts[rows].max()),
                    np.bincount(bits[rows], minlength=HISTOGRAM_LENGTH).astype(np.int64),
                    used[code],
                    named[code],
                ),
            )

    def merge(self, rows: pa.RecordBatch) -> None:
        """Add rows of `COUNTED_SCHEMA`; further columns are ignored."""
        for row in rows.to_pylist():
            bits = np.unpackbits(np.frombuffer(row["used_ids"], np.uint8), bitorder="little")
            use = TokenUse(
                np.array([row[name] for name in SUMMED], dtype=np.int64),
                row["max_token_count"],
                np.array(row["length_histogram"], dtype=np.int64),
                bits[: self.vocabulary_size].astype(np.bool_),
                np.array(row["named"], dtype=np.int64),
            )
            self.add((row["dataset"], row["language"]), use)

    def add(self, group: Group, use: TokenUse) -> None:
        """Add counts to those of a dataset and language."""
        if group in self.by_group:
            self.by_group[group].add(use)
        else:
            self.by_group[group] = use

    def rows(self) -> list[dict[str, object]]:
        """Rows of `COUNTED_SCHEMA`, by dataset and language."""
        return [
            {
                "dataset": dataset,
                "language": language,
                **dict(zip(SUMMED, use.sums.tolist(), strict=True)),
                "max_token_count": use.max_token_count,
                "length_histogram": use.histogram.tolist(),
                "used_ids": np.packbits(use.used, bitorder="little").tobytes(),
                "named": use.named.tolist(),
            }
            for (dataset, language), use in sorted(self.by_group.items())
        ]


def count_partition(
    batches: Iterable[pa.RecordBatch], vocabulary_size: int, name_count: int = 0
) -> Iterator[pa.RecordBatch]:
    """Count the documents of a partition into one batch of `COUNTED_SCHEMA`; no batch for no document."""
    uses = TokenUses(vocabulary_size, name_count)
    for batch in batches:
        if len(batch):
            uses.count(batch)
    if uses.by_group:
        yield pa.RecordBatch.from_pylist(uses.rows(), schema=COUNTED_SCHEMA)


def measured(batches: Iterable[pa.RecordBatch], names: Sequence[ControlName] = ()) -> Iterator[pa.RecordBatch]:
    """Replace the column `content` of batches, the last one, by the lengths of `MEASURES` and the `names` it holds."""
    from spark_jobs.tokens.text_counts import character_and_word_counts

    finder = NameFinder(names)
    for batch in batches:
        content = batch.column("content")
        data, starts = utf8_arrays(content)
        characters, words = character_and_word_counts(data, starts)
        lengths = [pa.array(characters), pc.binary_length(content), pa.array(words)]
        texts, names_of_texts = finder.find(data, starts)
        ends = np.searchsorted(texts, np.arange(len(batch) + 1)).astype(np.int32)
        named = pa.ListArray.from_arrays(pa.array(ends), pa.array(names_of_texts.astype(np.int32)))
        columns = [*batch.columns[:-1], *(length.cast(pa.int64()) for length in lengths), named]
        yield pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names[:-1], *MEASURES, "named"])


def _groups(batch: pa.RecordBatch) -> list[Group]:
    return list(zip(batch.column("dataset").to_pylist(), batch.column("language").to_pylist(), strict=True))
