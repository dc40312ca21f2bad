"""Try a step on some shards of an increment before the whole of it is computed, and stop where its columns have moved.

A shard holds whole repositories and is the same in every table of a dataset, so a step of scope increment gives for
some shards what it gives for them as a part of all. Nothing of a trial is kept. A stage computes only the shards that
the stages before it did not, so trying 10, 25 and 50% costs half of a full computation.

The columns of the shards that were tried are compared with what is published: with the same shards of the same
increment where it was computed before, and then every difference comes from the change; else with all other increments,
and then a difference must also exceed what chance explains (three standard errors).
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from spark_jobs.exceptions import ConfigError, RolloutError
from spark_jobs.lake.declare.step import Output, Scope
from spark_jobs.lake.declare.tables import Table
from spark_jobs.lake.engine.arrangement import release
from spark_jobs.lake.files.rows import table_rows
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.spark_sql import Column, DataFrame, F, SparkSession

STAGES_TAG, DRIFT_TAG = "headrace/rollout", "headrace/max-drift"
_NUMBERS = ("int", "long", "float", "double")
_LEAST_ROWS = 100  # fewer are not compared: their means say nothing
_SURE = 3.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrialConfig:
    """How a run tries its steps.

    Attributes:
        stages: percent of the shards, ascending; the last is 100, which is the computation itself.
        max_drift: largest relative change of a mean, and largest change of a share, that is not refused.
        said: result of the last trial, in words, by main table; filled while the run lasts.
    """

    stages: tuple[int, ...]
    max_drift: float = 0.05
    said: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, stages: str, max_drift: float | str = 0.05) -> TrialConfig:
        """Read `10,25,50,100`.

        Raises:
            ConfigError: the percentages do not ascend to 100, or the drift is no positive number.
        """
        words = [word.strip().removesuffix("%") for word in stages.split(",")]
        numbers = tuple(int(word) for word in words if word.isdecimal())
        ascending = all(low < high for low, high in zip((0, *numbers), numbers, strict=False))
        if len(numbers) != len(words) or not ascending or numbers[-1] != 100:
            raise ConfigError(f"rollout {stages!r}: percentages that ascend to 100 are expected, such as 10,25,50,100")
        with contextlib.suppress(ValueError):
            drift = float(max_drift)
            if drift > 0 and math.isfinite(drift):
                return cls(numbers, drift)
        raise ConfigError(f"max drift {max_drift!r}: a share above 0 is expected, such as 0.05")

    @classmethod
    def of_tags(cls, tags: Mapping[str, str]) -> TrialConfig | None:
        """The rollout that the tags of a Dagster run ask for; None where they ask for none.

        Raises:
            ConfigError: a tag cannot be read.
        """
        stages = tags.get(STAGES_TAG)
        return None if stages is None else cls.parse(stages, tags.get(DRIFT_TAG, "0.05"))

    @property
    def tags(self) -> dict[str, str]:
        """The tags that give this rollout."""
        return {STAGES_TAG: ",".join(map(str, self.stages)), DRIFT_TAG: str(self.max_drift)}


def can_be_tried(binding: Binding) -> bool:
    """Whether some shards of a step's rows can be computed alone."""
    step = binding.step
    return (
        step.scope is Scope.INCREMENT
        and step.discover is None
        and not step.numbered
        and binding.partition is None
        and "shard" in step.table.partition
    )


def try_on_shards(
    rollout: TrialConfig,
    spark: SparkSession,
    binding: Binding,
    increment: int,
    base: int,
    inputs: Mapping[str, DataFrame],
    published: Sequence[int],
) -> None:
    """Compute a step for more and more of the shards of its inputs, and compare what comes out with what is published.

    Raises:
        RolloutError: a column moved too far.
    """
    shards = _shards(inputs)
    columns = _measures(binding.step.table)
    others = [number for number in published if number != increment]
    paired = increment in published
    total: _Sums = {}
    done, tried, compared = 0, list[str](), False
    for percent in rollout.stages[:-1]:
        upto = math.ceil(len(shards) * percent / 100)
        if upto in (done, len(shards)):
            continue
        chosen = shards[done:upto]
        total = _added(total, _tried(spark, binding, increment, base, inputs, chosen, columns))
        done = upto
        tried.append(str(done))
        paired = increment in published
        before = _published(
            spark, binding, [increment] if paired else others, shards[:done] if paired else None, columns
        )
        moved = list(_moved(total, before, rollout.max_drift, paired))
        if moved:
            against = "what is published of them" if paired else "earlier increments"
            raise RolloutError(
                f"{binding.tables[0]}: increment {increment}, after {done} of {len(shards)} shards, against {against}: "
                f"{'; '.join(moved)}; beyond {rollout.max_drift:g}, so nothing was published. Go back, or allow it: "
                "--max-drift"
            )
        compared = compared or bool(before)
    finding = f"no column moved beyond {rollout.max_drift:g}" if compared else "nothing to compare with"
    text = f"tried on {', '.join(tried)} of {len(shards)} shards: {finding}"
    rollout.said[binding.tables[0]] = text if tried else f"not tried: it has {len(shards)} shards"
    _log.info("%s[%s]: %s", binding.tables[0], increment, rollout.said[binding.tables[0]])


_Sums = dict[str, tuple[float, float, float]]  # by column: rows that are not null, their sum, their sum of squares


def _shards(inputs: Mapping[str, DataFrame]) -> list[int]:
    """Shards of the first input that has any, ascending; a shard is a hash, so any order is a random one."""
    for frame in inputs.values():
        if "shard" in frame.columns:
            return sorted(row.shard for row in frame.select("shard").distinct().collect())
    return []


def _measures(table: Table) -> dict[str, str]:
    """SQL of what is compared, by name: numbers as they are, truth as 0 or 1, of lists how many they hold."""
    expressions: dict[str, str] = {}
    for column in table.all_columns:
        name, kind = column.name, column.type.removesuffix("!")
        if name in ("shard", "increment", *table.key):
            continue
        if kind in _NUMBERS:
            expressions[name] = f"cast({name} as double)"
        elif kind == "boolean":
            expressions[name] = f"cast(cast({name} as int) as double)"
        elif kind.startswith("list<"):
            expressions[f"size of {name}"] = f"cast(size({name}) as double)"
    return expressions


def _tried(
    spark: SparkSession,
    binding: Binding,
    increment: int,
    base: int,
    inputs: Mapping[str, DataFrame],
    shards: Sequence[int],
    columns: Mapping[str, str],
) -> _Sums:
    """Sums over what the step makes of some shards."""
    some = {
        name: frame.where(F.col("shard").isin(*shards)) if "shard" in frame.columns else frame
        for name, frame in inputs.items()
    }
    output = Output({})
    try:
        output = binding.call(some, lambda: spark, increment, base)
        return _sums(output.frames[binding.step.table.name], columns)
    finally:
        for frame in output.persisted:
            release(frame)


def _published(
    spark: SparkSession,
    binding: Binding,
    increments: Sequence[int],
    shards: Sequence[int] | None,
    columns: Mapping[str, str],
) -> _Sums:
    """Sums over published rows; empty where there are none."""
    if not increments:
        return {}
    frame = table_rows(spark, binding.tables[0]).where(F.col("increment").isin(*increments))
    return _sums(frame if shards is None else frame.where(F.col("shard").isin(*shards)), columns)


def _sums(frame: DataFrame, columns: Mapping[str, str]) -> _Sums:
    there = {name: F.expr(sql) for name, sql in columns.items() if name.removeprefix("size of ") in frame.columns}
    sums: list[Column] = [
        part for value in there.values() for part in (F.count(value), F.sum(value), F.sum(value * value))
    ]
    (row,) = frame.select(*sums).collect() if sums else [()]
    return {name: (row[3 * at], row[3 * at + 1] or 0.0, row[3 * at + 2] or 0.0) for at, name in enumerate(there)}


def _added(left: _Sums, right: _Sums) -> _Sums:
    if not left:
        return right
    return {name: (a + right[name][0], b + right[name][1], c + right[name][2]) for name, (a, b, c) in left.items()}


def _moved(new: _Sums, old: _Sums, limit: float, paired: bool) -> Iterator[str]:
    """The columns whose mean moved too far, in words."""
    for name, (count, total, squares) in new.items():
        count_before, total_before, squares_before = old.get(name, (0.0, 0.0, 0.0))
        if min(count, count_before) < _LEAST_ROWS:
            continue
        mean, before = total / count, total_before / count_before
        # Of shares and truths the difference itself counts: twice a share of one in a million is no drift.
        share = max(squares / count, squares_before / count_before) <= 1 and min(mean, before) >= 0
        change = abs(mean - before) / (1.0 if share else abs(before) or 1.0)
        noise = math.sqrt(
            max(squares / count - mean**2, 0.0) / count
            + max(squares_before / count_before - before**2, 0.0) / count_before
        )
        if change > limit and (paired or abs(mean - before) > _SURE * noise):
            yield f"mean of {name} is {mean:.4g}, was {before:.4g}"
