"""Steps tried on some shards before the whole is computed, and stopped where their columns moved."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, Field

from spark_jobs.exceptions import ConfigError, RolloutError
from spark_jobs.lake.declare.step import Scope, step
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.lake.run.rollout import TrialConfig
from tests.spark_jobs.lake.steps import FolderConfig, bind, land, numbers, one

PARTS = Table(
    name="parts",
    comment="one row per number, in shards",
    columns=(Column("shard!", "int", "n modulo 8"), Column("n!", "long", "the number")),
    key=("n",),
    partition=("increment", "shard"),
)
MEASURED = Table(
    name="measured",
    comment="one row per number",
    columns=(
        Column("shard!", "int", "n modulo 8"),
        Column("n!", "long", "the number"),
        Column("size", "double", "a number of its own; null for some"),
        Column("kept!", "boolean", "whether it goes on"),
        Column("marks!", "list<int!>", "one mark for each of some numbers"),
    ),
    key=("n",),
    partition=("increment", "shard"),
)


class MeasuredConfig(BaseModel):
    """What is measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    factor: float = Field(1.0, description="of the size")
    upto: int = Field(90, description="percent of the numbers that are kept")
    marked: int = Field(2, description="marks of each number")


@step(version="1", scope=Scope.INCREMENT, tables=(PARTS,))
def parts(numbers):  # type: ignore[no-untyped-def]
    """Put each number into a shard."""
    return numbers.selectExpr("cast(n % 8 AS int) AS shard", "n")


@step(version="1", scope=Scope.INCREMENT, tables=(MEASURED,))
def measured(parts, config: MeasuredConfig):  # type: ignore[no-untyped-def]
    """Measure each number; the text of the increment decides nothing."""
    return parts.selectExpr(
        "shard",
        "n",
        f"if(n % 50 = 0, null, {config.factor}D * (100 + (n div 8) % 10)) AS size",
        f"(n div 8 * 31) % 100 < {config.upto} AS kept",
        f"array_repeat(1, {config.marked}) AS marks",
    )


@pytest.fixture
def planted(lake: Lake, folder: Path) -> Iterator[Lake]:
    """Increment 1 of 4,000 numbers, measured with the defaults; the one before holds three."""
    land(folder, "many.txt", list(range(100, 4100)))
    materialize(lake, bind(numbers, FolderConfig(folder=str(folder))))
    materialize(lake, bind(parts))
    materialize(lake, bind(measured))
    yield lake


@pytest.mark.nightly
def test_a_change_is_tried_on_shards_and_refused_before_the_rest(planted: Lake, folder: Path) -> None:
    """What moved is named, with both means; nothing is published. What did not move beyond the limit is computed."""
    before = planted.ledger.places("demo.measured")
    refused = {
        "mean of size is 105.7, was 104.6; beyond 0.01": (MeasuredConfig(factor=1.0105), 0.01),
        "mean of kept is 0.8, was 0.9": (MeasuredConfig(upto=80), 0.05),
        "mean of size of marks is 3, was 2": (MeasuredConfig(marked=3), 0.4),
    }
    for said, (config, limit) in refused.items():
        rolled = dataclasses.replace(planted, rollout=TrialConfig.parse("10,50,100", limit))
        with pytest.raises(RolloutError) as caught:
            materialize(rolled, bind(measured, config))
        message = str(caught.value)
        assert said in message and ": increment 1, after 1 of 8 shards, against what is published of them" in message
        assert planted.ledger.places("demo.measured")["1"] == before["1"]
    rolled = dataclasses.replace(planted, rollout=TrialConfig.parse("10,25,50,100", 0.05))
    assert one(materialize(rolled, bind(measured, MeasuredConfig(factor=1.04)))).computed == ("0", "1")
    assert rolled.rollout is not None
    assert rolled.rollout.said == {"demo.measured": "tried on 1, 2, 4 of 8 shards: no column moved beyond 0.05"}, (
        "increment 0 has three rows in three shards, too few to compare"
    )

    # A new increment is compared with the earlier ones, and chance is allowed for.
    land(folder, "new.txt", list(range(5000, 9000)))
    materialize(planted, bind(numbers, FolderConfig(folder=str(folder))))
    materialize(planted, bind(parts))
    changed = bind(measured, MeasuredConfig(factor=1.04))
    unlike = dataclasses.replace(measured, function=lambda parts, config: measured(parts, MeasuredConfig(factor=1.2)))
    with pytest.raises(RolloutError, match=r"against earlier increments: mean of size is 125\.5, was 108\.7"):
        materialize(rolled, dataclasses.replace(changed, step=unlike))
    assert one(materialize(rolled, changed)).computed == ("2",)


def test_what_is_no_rollout_is_told() -> None:
    """Percentages ascend to 100, the drift is a share; tags of a Dagster run say the same."""
    for stages in ("", "10,25", "50,10,100", "10,x,100", "0,100", "10,10,100", "100,110"):
        with pytest.raises(ConfigError, match="percentages that ascend to 100"):
            TrialConfig.parse(stages)
    for drift in ("much", 0, -1, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="a share above 0"):
            TrialConfig.parse("10,100", drift)
    assert TrialConfig.of_tags({"headrace/command": "run"}) is None
    given = TrialConfig.parse("10%, 25,100", 0.2)
    assert TrialConfig.of_tags(given.tags) == given
