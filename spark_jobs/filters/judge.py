"""Judge rows of signals by the rules of a policy, in Arrow; the one evaluator of the step `verdicts` and of previews.

Rows are one batch with the column `kind` and every signal under its name in rules (`word_count`,
`heuristics.stop_word_count`, `metadata.stars`), beside `documents.language` where a rule names languages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.exceptions import InputError
from spark_jobs.filters.policy import LANGUAGES, PRESENT, Rule
from spark_jobs.sources.config.file_reading import KINDS
from spark_jobs.sources.languages import EVIDENCE, LOCK_FILE, MANIFEST

MANIFEST_RULE: Final = Rule(rule="manifest", signal="manifest", equals=True)
LOCK_FILE_RULE: Final = Rule(rule="lock_file", signal="lock_file", equals=True)
EVIDENCE_RULES: Final = (MANIFEST_RULE, LOCK_FILE_RULE)
"""Fail what is no training text: they stand after the rules of every policy where documents are known."""
EVIDENCE_NAMES: Final = ((MANIFEST_RULE, MANIFEST), (LOCK_FILE_RULE, LOCK_FILE))
"""The names of files that these rules are about, as patterns of paths."""
PERSONAL_DATA_RULE: Final = Rule(rule="personal_data", signal="personal_data.drop_count", above=0)
"""Fails what holds personal data of a kind that its dataset drops; it stands before those of evidence."""
DOCUMENT_LANGUAGE: Final = "documents.language"
TEXT_LANGUAGE: Final = f"{LANGUAGES}.language"
_NUMBER: Final = r"^[-+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]+)?$"
_FIELDS: Final = [
    pa.field("rule", pa.string(), nullable=False),
    pa.field("value", pa.float64()),
    pa.field("threshold", pa.float64()),
]


class RuleResult(NamedTuple):
    """The result of one rule for D documents.

    Attributes:
        rule: the rule.
        applies: (D,) bool, whether it holds for documents of their kind and language.
        fails: (D,) bool.
        values: (D,) float64 Arrow array of what was compared; nulls where it is no number.
    """

    rule: Rule
    applies: npt.NDArray[np.bool_]
    fails: npt.NDArray[np.bool_]
    values: pa.Array


def judged(rows: pa.RecordBatch, rules: Sequence[Rule]) -> Iterator[RuleResult]:
    """Judge documents by each rule in turn.

    Raises:
        InputError: a document is of an unknown kind, so that no rule would hold for it.
    """
    kinds = rows.column("kind")
    for kind in pc.unique(kinds).to_pylist():
        if kind not in KINDS:
            raise InputError(f"verdicts: no rules for kind {kind}; know {', '.join(KINDS)}")
    for rule in rules:
        applies = pc.is_in(kinds, pa.array(rule.judged_kinds, kinds.type))
        if rule.languages:
            language = _language(rows)
            applies = pc.and_(applies, pc.is_in(language, pa.array(rule.languages, language.type)))
        fails, values = _failing(rows.column(rule.signal), rule)
        fails = pc.and_(applies, pc.fill_null(fails, False))
        yield RuleResult(rule, _flags(applies), _flags(fails), values)


def failed_of(rows: pa.RecordBatch, rules: Sequence[Rule]) -> pa.ListArray:
    """(D,) every failed rule of a document, in the order of the rules: list<struct<rule, value, threshold>>."""
    failures = [(judged_rule, np.flatnonzero(judged_rule.fails)) for judged_rule in judged(rows, rules)]
    documents = np.concatenate([np.zeros(0, np.int64), *(places for _, places in failures)])
    by_document = np.argsort(documents, kind="stable")
    numbers = np.repeat(np.arange(len(failures)), [len(places) for _, places in failures])[by_document]
    values = pa.concat_arrays(
        [pa.array([], pa.float64()), *(judged_rule.values.take(pa.array(p)) for judged_rule, p in failures)]
    )
    entries = pa.StructArray.from_arrays(
        [
            pa.array([rule.rule for rule in rules], pa.string()).take(pa.array(numbers)),
            values.take(pa.array(by_document)),
            pa.array([rule.threshold for rule in rules], pa.float64()).take(pa.array(numbers)),
        ],
        fields=_FIELDS,
    )
    offsets = np.zeros(rows.num_rows + 1, np.int32)
    np.cumsum(np.bincount(documents, minlength=rows.num_rows), out=offsets[1:])
    return pa.ListArray.from_arrays(
        pa.array(offsets), entries, type=pa.list_(pa.field("element", pa.struct(_FIELDS), False))
    )


def verdict_batches(
    batches: Iterable[pa.RecordBatch], names: Sequence[str], rules: Sequence[Rule]
) -> Iterator[pa.RecordBatch]:
    """Turn batches of signals into batches of the table `verdicts`."""
    for batch in batches:
        failed = failed_of(batch.rename_columns(list(names)), rules)
        kept = pc.equal(pc.list_value_length(failed), 0)
        yield pa.RecordBatch.from_arrays(
            [batch.column("shard"), batch.column("doc_id"), kept, failed], names=["shard", "doc_id", "kept", "failed"]
        )


def evidence(paths: pa.Array, metadata: pa.Array, left_out: Collection[Rule]) -> dict[str, pa.Array]:
    """(D,) bool by signal, whether documents are evidence and no training text, as the step `verdicts` decides it.

    Args:
        paths: (D,) paths.
        metadata: (D,) maps of strings.
        left_out: those of `EVIDENCE_RULES` that leave files out for their names.
    """
    landed_so = pc.is_valid(pc.map_lookup(metadata, pa.scalar(EVIDENCE, metadata.type.key_type), "first"))
    named = {rule: pc.match_substring_regex(paths, pattern) for rule, pattern in EVIDENCE_NAMES if rule in left_out}
    never = pa.array(np.zeros(len(paths), np.bool_))
    return {
        MANIFEST_RULE.signal: pc.or_(landed_so, named.get(MANIFEST_RULE, never)),
        LOCK_FILE_RULE.signal: named.get(LOCK_FILE_RULE, never),
    }


def _language(rows: pa.RecordBatch) -> pa.Array:
    """(D,) language of documents: of code that of the file, else what was identified, else what the source says."""
    stated = rows.column(DOCUMENT_LANGUAGE)
    if TEXT_LANGUAGE not in rows.schema.names:
        return stated
    of_text = rows.column(TEXT_LANGUAGE).cast(stated.type)
    return pc.if_else(pc.equal(rows.column("kind"), "code"), stated, pc.coalesce(of_text, stated))


def _failing(signal: pa.Array, rule: Rule) -> tuple[pa.Array, pa.Array]:
    """(D,) whether the condition of a rule is met, null where the signal is null; (D,) values compared."""
    nothing = pa.nulls(len(signal), pa.float64())
    if rule.equals == PRESENT:
        return pc.is_valid(signal), nothing
    if pa.types.is_list(signal.type) or pa.types.is_large_list(signal.type):
        holders = pc.list_parent_indices(signal).filter(pc.equal(pc.list_flatten(signal), rule.equals))
        return pa.array(np.isin(np.arange(len(signal)), holders)), nothing
    if rule.not_in is not None:
        listed = pc.is_in(signal, pa.array(rule.not_in, signal.type))
        return pc.and_(pc.is_valid(signal), pc.invert(listed)), nothing
    if rule.threshold is None:
        return pc.equal(signal, pa.scalar(rule.equals, signal.type)), nothing
    values = _numbers(signal)
    compare = pc.less if rule.below is not None else pc.greater if rule.above is not None else pc.equal
    return compare(values, rule.threshold), values


def _numbers(signal: pa.Array) -> pa.Array:
    """(D,) the signal as float64; of texts the numbers, the others null."""
    if pa.types.is_string(signal.type) or pa.types.is_large_string(signal.type):
        signal = pc.if_else(pc.match_substring_regex(signal, _NUMBER), signal, pa.scalar(None, signal.type))
    return signal.cast(pa.float64(), safe=False)


def _flags(values: pa.Array) -> npt.NDArray[np.bool_]:
    flags: npt.NDArray[np.bool_] = values.to_numpy(zero_copy_only=False).astype(np.bool_, copy=False)
    return flags
