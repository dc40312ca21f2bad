"""The masks of a corpus: which rules are searched for in which documents, and what their spans make of tokens.

A mask is laid over tokens after they are laid out and encoded, so it moves and changes none of them: a token is without
loss where any of its characters lies in a span, and its rule is the first of the list that has such a span.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from headrace_features.objectives.layout import EncodedLayout, Header, LayoutEncoder, Span
from headrace_features.objectives.masks.placeholders import placeholders_of
from headrace_features.objectives.masks.rules import HEADER, MaskedText, MaskRule, find_rules, spans_of, token_rules
from spark_jobs.arrays import Int32Array, Int64Array
from spark_jobs.spark_sql import DataFrame, F

if TYPE_CHECKING:
    from headrace_features.objectives.config import ObjectivesConfig

EDITS: Final = "array<struct<rule: string, start: bigint, end: bigint, replacement_length: bigint>>"
SPAN: Final = pa.struct([("rule", pa.int32()), ("start", pa.int32()), ("end", pa.int32())])


class Masked(NamedTuple):
    """The masks of a document.

    Attributes:
        rules: (T + 1,) number of the rule of each token without loss, 0 of the others and of the end token.
        spans: (S, 3) rule, first character and the one behind the last of each span, by rule and place.
    """

    rules: Int32Array
    spans: Int64Array


class Masking(NamedTuple):
    """The rules of a corpus.

    Attributes:
        numbers: of rules by name, from 1 on.
        rules: by name.
        excepted: names of rules by kind of document, in the order in which they are asked.
        template_lines: hashes of `template_lines` by dataset, ascending.
    """

    numbers: Mapping[str, int]
    rules: Mapping[str, MaskRule]
    excepted: Mapping[str, Sequence[str]]
    template_lines: Mapping[str, Int64Array]

    @classmethod
    def of(cls, config: ObjectivesConfig, template_lines: DataFrame | None) -> Masking:
        """The rules that a corpus declares."""
        names = config.mask_rules
        rules = find_rules(name for name in names if name != HEADER)
        excepted = {kind: config.kinds[kind].excepted for kind in config.kinds}
        numbers = {name: number for number, name in enumerate(names, 1)}
        return cls(numbers, rules, excepted, {} if template_lines is None else _hashes(template_lines))

    def masked(self, kind: str, document: MaskedText, row: EncodedLayout, encoder: LayoutEncoder) -> Masked:
        """The masks of a document.

        Args:
            kind: under which its rules are declared.
            document: to be searched.
            row: its tokens.
            encoder: that made them.
        """
        document = document._replace(template_lines=self.template_lines.get(document.dataset))
        names = self.excepted.get(kind, ())
        found = {self.numbers[name]: spans_of(name, self.rules[name], document) for name in names}
        found = {number: spans for number, spans in found.items() if len(spans)}
        rules = np.zeros(len(row.ids) + 1, np.int32)
        if found:
            starts, ends = encoder.characters(document.text, row)
            is_text = np.array([isinstance(piece, Span) for piece in row.layout], np.bool_)[row.pieces()]
            rules[:-1] = token_rules(starts, ends, found) * is_text
        if HEADER in self.numbers:
            of_header = np.array([isinstance(piece, Header) for piece in row.layout], np.bool_)[row.pieces()]
            rules[:-1][of_header] = self.numbers[HEADER]
        spans = [np.column_stack([np.full(len(spans), number), spans]) for number, spans in sorted(found.items())]
        return Masked(rules, np.concatenate([np.zeros((0, 3), np.int64), *spans]))


def with_edits(rows: DataFrame, texts: DataFrame, cut_texts: DataFrame | None, keys: Sequence[str]) -> DataFrame:
    """Rows with `edits` of the texts and `cut_edits` of the cut ones, null for texts that are whole."""
    edited = rows.join(texts.select(*keys, F.col("edits").cast(EDITS).alias("edits")), [*keys], "left")
    if cut_texts is None:
        return edited.withColumn("cut_edits", F.lit(None).cast(EDITS))
    return edited.join(cut_texts.select(*keys, F.col("edits").cast(EDITS).alias("cut_edits")), [*keys], "left")


def searched(batch: pa.RecordBatch) -> list[MaskedText]:
    """The documents of a batch as rules get them."""
    names = ("content", "doc_id", "dataset", "kind", "language")
    documents = [MaskedText(*values) for values in zip(*(batch[name].to_pylist() for name in names), strict=True)]
    if "edits" not in batch.schema.names:
        return documents
    edited = zip(documents, batch["edits"].to_pylist(), batch["cut_edits"].to_pylist(), strict=True)
    return [
        document._replace(placeholders=placeholders_of(document.text, edits or (), cuts))
        for document, edits, cuts in edited
    ]


def mask_columns(masked: Sequence[Masked]) -> tuple[pa.ListArray, pa.ListArray]:
    """The columns `mask_rule` and `masked` of documents."""
    offsets = np.cumsum([0, *(len(each.rules) for each in masked)]).astype(np.int32)
    rules = pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate([each.rules for each in masked])))
    flat = np.concatenate([each.spans for each in masked]).astype(np.int32)
    bounds = np.cumsum([0, *(len(each.spans) for each in masked)]).astype(np.int32)
    spans = pa.StructArray.from_arrays([pa.array(column) for column in flat.T], fields=[*SPAN])
    return rules, pa.ListArray.from_arrays(pa.array(bounds), spans)


def _hashes(lines: DataFrame) -> dict[str, Int64Array]:
    rows = lines.select("dataset", "line_hash").toArrow()
    names: Iterable[str] = dict.fromkeys(rows["dataset"].to_pylist())
    hashes, of = rows["line_hash"].to_numpy(), np.array(rows["dataset"].to_pylist(), object)
    return {name: np.sort(hashes[of == name]) for name in names}
