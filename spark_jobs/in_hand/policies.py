"""Filter texts in hand by a policy, as the steps `signals`, scorers and `verdicts` do.

What a policy reads is measured of each text alone, so batches are judged side by side and in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.process.memory_limit import core_count
from spark_jobs.arrays import Int64Array
from spark_jobs.exceptions import ConfigError, InputError, did_you_mean
from spark_jobs.filters.policy import LANGUAGES, Policy
from spark_jobs.filters.policy_resolution import resolve
from spark_jobs.in_hand.frames import frame_of
from spark_jobs.lake.declare.step import NoConfig
from spark_jobs.registry import find_scorer
from spark_jobs.sources.config.file_reading import KINDS
from spark_jobs.text.signals import SIGNALS, SignalsConfig
from spark_jobs.threads import in_order_of

_NO_TEXT = "no_text"
_FAILED = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("rule", pa.string(), nullable=False),
        pa.field("value", pa.float64()),
        pa.field("threshold", pa.float64()),
    ]
)
Measure = Callable[[pa.Array], Mapping[str, pa.Array]]


@dataclass(frozen=True)
class Filtered:
    """What a policy leaves of N rows.

    Attributes:
        rows: the rows that fail no rule, in the type that was given.
        row_numbers: (K,) int64 of these, ascending.
        failed: a table of the others, a row for each rule that one fails: `row`, `rule`, `value`, `threshold`.
        total: N.
    """

    rows: Any
    row_numbers: Int64Array
    failed: pa.Table
    total: int

    def __len__(self) -> int:
        return len(self.row_numbers)

    def __repr__(self) -> str:
        rules = sorted(pc.value_counts(self.failed["rule"]).to_pylist(), key=lambda entry: -entry["counts"])
        counts = ", ".join(f"{entry['values']} {entry['counts']:,}" for entry in rules[:5])
        return f"{len(self):,} of {self.total:,} rows are kept" + (f"; failed: {counts}" if counts else "")


def filter_texts(
    data: Any,
    column: str | None = "text",
    *,
    policy: str | Mapping[str, Any] | Policy = "fineweb",
    kind: str = "prose",
    language: str | None = None,
) -> Filtered:
    """Keep the texts that fail no rule of a policy.

    Args:
        data: as of `deduplicate`. A row without a text fails the rule `no_text`.
        column: of the texts.
        policy: name of a shipped policy, a path, its rules as a mapping, or the policy.
        kind: what the texts are: code, prose, markup or data; a rule holds for some kinds.
        language: of all texts, for rules of some languages; None where each text says.

    Raises:
        InputError: a column or a kind that there is not.
        ConfigError: the policy is unknown, or reads what a text alone does not tell.
    """
    if kind not in KINDS:
        raise InputError(f"filter: there is no kind {kind!r}{did_you_mean(kind, KINDS)}; kinds: {', '.join(KINDS)}")
    rules = resolve(policy)
    measures = _measures(rules)
    frame = frame_of(data, column)
    rows, failures, first = np.asarray(frame.texts.is_valid()).copy(), list[pa.Table](), 0
    without = np.flatnonzero(~rows)

    def judge(texts: pa.Array) -> pa.Array:
        return _judged(texts, rules, measures, kind, language)

    with ThreadPoolExecutor(core_count()) as pool:
        for failed in in_order_of(pool, judge, frame.batches()):
            counts = pc.list_value_length(failed).to_numpy(zero_copy_only=False)
            here = rows[first : first + len(failed)]
            numbers = np.repeat(np.arange(first, first + len(failed)), np.where(here, counts, 0))
            entries = failed.filter(pa.array(here)).flatten()
            columns = [entries.field(name) for name in ("rule", "value", "threshold")]
            failures.append(pa.table([pa.array(numbers), *columns], schema=_FAILED))
            rows[first : first + len(failed)] &= counts == 0
            first += len(failed)
    none = pa.nulls(len(without), pa.float64())
    failures.append(
        pa.table([pa.array(without), pa.array([_NO_TEXT] * len(without), pa.string()), none, none], _FAILED)
    )
    numbers = np.flatnonzero(rows)
    failed = pa.concat_tables(failures).sort_by("row") if len(without) else pa.concat_tables(failures)
    return Filtered(frame.rows(numbers), numbers, failed, len(frame))


def _measures(policy: Policy) -> dict[str, Measure]:
    """What measures the tables that a policy reads, by table.

    Raises:
        ConfigError: it reads a table that is not made of a text alone.
    """
    tables = dict.fromkeys([*policy.tables, *([LANGUAGES] if policy.asks_language else [])])
    measures = dict[str, Measure]()
    for table in tables:
        if table == SIGNALS.name:
            continue
        if table in ("metadata", "documents"):
            raise ConfigError(
                f"policy {policy.label}: it reads {table}.{policy.tables[table][0]}, which no text has; "
                "run it in a lake"
            )
        measures[table] = _scorer(table, policy)
    return measures


def _scorer(table: str, policy: Policy) -> Measure:
    scorer = find_scorer(table)
    if scorer.frozen is not None:
        raise ConfigError(
            f"policy {policy.label}: scorer {table} looks at a whole dataset before it scores; run it in a lake"
        )
    if scorer.config is NoConfig:
        return scorer.score
    prepared = scorer.prepare(scorer.config())
    return lambda content: scorer.score(content, prepared)


def _judged(
    texts: pa.Array, policy: Policy, measures: Mapping[str, Measure], kind: str, language: str | None
) -> pa.Array:
    """(N,) the rules that each text fails."""
    from spark_jobs.filters.judge import DOCUMENT_LANGUAGE, TEXT_LANGUAGE, failed_of
    from spark_jobs.text.measures import signal_batches
    from spark_jobs.text.text_columns import normalized

    content, _ = normalized(texts.cast(pa.string()))
    kinds = pa.repeat(pa.scalar(kind, pa.string()), len(content))
    nothing = pa.nulls(len(content), pa.string())
    batch = pa.RecordBatch.from_pydict({"shard": nothing, "doc_id": nothing, "kind": kinds, "content": content})
    columns = dict[str, pa.Array]()
    if SIGNALS.name in policy.tables:
        signals = next(signal_batches(iter([batch]), SignalsConfig().generated_marker_lines))
        columns |= {name: signals.column(name) for name in signals.schema.names}
    for table, measure in measures.items():
        columns |= {f"{table}.{name}": values for name, values in measure(content).items()}
    columns["kind"] = kinds
    columns[DOCUMENT_LANGUAGE] = nothing if language is None else pa.repeat(pa.scalar(language), len(content))
    if f"{LANGUAGES}.language" in columns:
        columns[TEXT_LANGUAGE] = columns[f"{LANGUAGES}.language"]
    return failed_of(pa.RecordBatch.from_pydict(columns), policy.rules)
